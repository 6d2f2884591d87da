//! Cases from the field that need the appliance's records: leases, nodes, events.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use netboot::dhcp::options::code;
use netboot::dhcp::{Header, OptionList};
use netboot::script::Language;
use netboot::tftp::{FileName, OpenError, Outcome, TftpSource, TransferEvent, TransferEventKind};
use protocol::NodeId;
use store::Store;
use testkit::TestDatabase;

use super::*;
use crate::config::Config;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0, 1];

/// A database, and as many servers on it as are wanted.
struct Site {
    database: TestDatabase,
    folder: tempfile::TempDir,
}

impl Site {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("loaders")).unwrap();
        for (file, content) in [
            ("shimx64.efi", "shim"),
            ("grubnetx64.efi", "grub"),
            ("snponly.efi", "ipxe"),
        ] {
            std::fs::write(folder.path().join("loaders").join(file), content).unwrap();
        }
        Self {
            database: TestDatabase::create().await,
            folder,
        }
    }

    fn server(&self, number: u32) -> App {
        let data = self.folder.path().join(format!("data{number}"));
        let text = format!(
            "data_dir = {data:?}\n[boot]\ninterface = \"lo\"\naddress = \"10.77.0.1/24\"\ndhcp = \"full\"\n\
             pool_first = \"10.77.0.100\"\npool_last = \"10.77.0.103\"\nloaders_dir = {:?}\n\
             [[boot.subnets]]\nnetwork = \"10.78.0.0/24\"\nrouter = \"10.78.0.1\"\n\
             pool_first = \"10.78.0.1\"\npool_last = \"10.78.0.3\"\n",
            self.folder.path().join("loaders")
        );
        let config = Config::parse(&text, Path::new("test.toml")).unwrap();
        App::open(Arc::new(config), Store::new(self.database.pool.clone())).unwrap()
    }
}

fn dhcp(app: &App) -> Dhcp {
    let boot = app.config.boot.as_ref().unwrap();
    Dhcp::new(app, boot, &boot.interfaces[0])
}

async fn node(app: &App, name: &str, mac: &str) -> NodeId {
    let machine_id = uuid::Uuid::new_v4().simple().to_string();
    app.store.node_create(name, mac, &machine_id).await.unwrap()
}

fn request(kind: MessageType, change: impl FnOnce(&mut Header), options: OptionList) -> Request {
    let mut header = Header::ethernet(7, MacAddr::new(MAC));
    change(&mut header);
    Request::new(header, kind, options).unwrap()
}

async fn address(app: &App, request: &Request) -> Option<Ipv4Addr> {
    let standing = dhcp(app).lookup(request, Mode::Full).await.unwrap();
    standing.lease.map(|lease| lease.ip)
}

/// infra-controller#3663, #2233, #2558: the address is the same from the offer to each renewal, and another instance
/// on the same database knows it.
#[tokio::test]
async fn infra_controller_3663_a_second_instance_renews_the_lease_of_the_first() {
    let site = Site::new().await;
    let (first, second) = (site.server(1), site.server(2));
    node(&first, "gpu-001", "52:54:00:aa:00:01").await;
    let discover = request(MessageType::Discover, |_| {}, OptionList::new());
    let offered = address(&first, &discover).await.unwrap();
    let selecting = OptionList::new().with(code::REQUESTED_ADDRESS, offered.octets());
    let selecting = request(MessageType::Request, |_| {}, selecting);
    assert_eq!(address(&first, &selecting).await, Some(offered));
    // The first is gone. No option 54: the client asks whoever answers.
    let renewing = request(
        MessageType::Request,
        |header| header.ciaddr = offered,
        OptionList::new(),
    );
    for _ in 0..3 {
        assert_eq!(address(&second, &renewing).await, Some(offered));
    }
    node(&second, "gpu-002", "52:54:00:aa:00:02").await;
    let other = |header: &mut Header| header.chaddr[5] = 2;
    let other = request(MessageType::Discover, other, OptionList::new());
    assert_ne!(address(&second, &other).await.unwrap(), offered);
}

/// coreos/bugs#1432, pfsense#3307: one address for ROM, iPXE and system, whatever they call themselves.
#[tokio::test]
async fn coreos_1432_a_node_has_one_address_under_three_client_identifiers() {
    let site = Site::new().await;
    let app = site.server(1);
    node(&app, "gpu-001", "52:54:00:aa:00:01").await;
    let mut addresses = Vec::new();
    for identifier in [
        &b"\x00rom"[..],
        &b"\x01\x52\x54\x00\xaa\x00\x01"[..],
        &b"\xff\x00\xaa\x00\x01\x00\x02system"[..],
    ] {
        let options = OptionList::new().with(code::CLIENT_ID, identifier);
        addresses.push(
            address(&app, &request(MessageType::Discover, |_| {}, options))
                .await
                .unwrap(),
        );
    }
    assert_eq!(addresses, [addresses[0]; 3]);
}

/// cloud-init#4830, xcat-core#7777: two IPoIB nodes with zero hardware addresses are two nodes with two addresses, in
/// every shape in which firmware and system show their GUID.
#[tokio::test]
async fn xcat_7777_infiniband_nodes_are_found_by_their_guid() {
    let site = Site::new().await;
    let app = site.server(1);
    node(&app, "ib-001", "ec:0d:9a:9c:81:e2").await;
    node(&app, "ib-002", "ec:0d:9a:9c:81:e3").await;
    let of = async |identifier: &[u8]| {
        let options = OptionList::new().with(code::CLIENT_ID, identifier);
        let change = |header: &mut Header| (header.htype, header.hlen, header.chaddr) = (32, 0, [0; 16]);
        address(&app, &request(MessageType::Discover, change, options)).await
    };
    let guid = |last| [0xec, 0x0d, 0x9a, 0x03, 0x00, 0x9c, 0x81, last];
    let firmware = of(&[&[0x20][..], &guid(0xe2)].concat()).await;
    let other = of(&[&[0x20][..], &guid(0xe3)].concat()).await;
    assert!(
        firmware.is_some() && other.is_some() && firmware != other,
        "{firmware:?} {other:?}"
    );
    let system = of(&[&[0xff, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0xc9, 0][..], &guid(0xe2)].concat()).await;
    let link = of(&[&[0x80, 0, 2, 8, 0xfe, 0x80, 0, 0, 0, 0, 0, 0][..], &guid(0xe2)].concat()).await;
    let bare = of(&guid(0xe2)).await;
    assert_eq!([system, link, bare], [firmware; 3]);
    assert_eq!(of(&[]).await, None, "nothing to tell it by: nobody");
}

/// A machine gets an address of the subnet it is in: behind a relay the relay's, or the one the relay names (RFC 3527);
/// when it renews, straight through the router, that of its own address. Where nobody knows its subnet, it gets none.
#[tokio::test]
async fn the_address_is_one_of_the_subnet_that_the_machine_is_in() {
    let site = Site::new().await;
    let app = site.server(1);
    node(&app, "gpu-001", "52:54:00:aa:00:01").await;
    let relayed = |relay: [u8; 4], options: OptionList| {
        request(MessageType::Discover, |header| header.giaddr = relay.into(), options)
    };
    let home = address(&app, &request(MessageType::Discover, |_| {}, OptionList::new())).await;
    assert_eq!(home, Some(Ipv4Addr::new(10, 77, 0, 100)));
    let behind = dhcp(&app)
        .lookup(&relayed([10, 78, 0, 1], OptionList::new()), Mode::Full)
        .await
        .unwrap()
        .lease
        .unwrap();
    assert_eq!(
        (behind.ip, behind.router),
        (Ipv4Addr::new(10, 78, 0, 2), Some(Ipv4Addr::new(10, 78, 0, 1))),
        "the router's own address is given to nobody"
    );
    assert_eq!(address(&app, &relayed([10, 79, 0, 1], OptionList::new())).await, None);
    let link = OptionList::new().with(code::RELAY_AGENT, [5, 4, 10, 78, 0, 0]);
    assert_eq!(
        address(&app, &relayed([10, 79, 0, 1], link.clone())).await,
        Some(behind.ip)
    );
    let renewing = request(
        MessageType::Request,
        |header| header.ciaddr = behind.ip,
        OptionList::new(),
    );
    assert_eq!(address(&app, &renewing).await, Some(behind.ip));
    // Carried to another rack: the address of the old subnet is of no use there.
    let moved = request(
        MessageType::Request,
        |header| header.ciaddr = [192, 168, 7, 7].into(),
        OptionList::new(),
    );
    assert_eq!(address(&app, &moved).await, home);
    // Without a relay, nobody's word counts for a link.
    assert_eq!(address(&app, &request(MessageType::Discover, |_| {}, link)).await, home);
}

/// A fixed address is its node's, in and outside the pool, and nobody else gets it.
#[tokio::test]
async fn a_fixed_address_is_its_nodes_alone() {
    let site = Site::new().await;
    let app = site.server(1);
    let first = node(&app, "gpu-001", "52:54:00:aa:00:01").await;
    let second = node(&app, "gpu-002", "52:54:00:aa:00:02").await;
    let fixed = |last| Some(Ipv4Addr::new(10, 77, 0, last));
    leases::fixed_address_set(&app, first, fixed(50), "admin")
        .await
        .unwrap();
    leases::fixed_address_set(&app, second, fixed(100), "admin")
        .await
        .unwrap();
    let taken = leases::fixed_address_set(&app, second, fixed(50), "admin").await;
    assert!(
        taken.unwrap_err().to_string().contains("another node's"),
        "one address, two nodes"
    );
    for wrong in [[10, 77, 0, 1], [10, 77, 0, 255], [10, 78, 0, 1], [192, 168, 0, 9]] {
        let refused = leases::fixed_address_set(&app, second, Some(wrong.into()), "admin").await;
        assert!(refused.is_err(), "{wrong:?}");
    }
    let of = async |last| {
        let change = |header: &mut Header| header.chaddr[5] = last;
        address(&app, &request(MessageType::Discover, change, OptionList::new())).await
    };
    node(&app, "gpu-003", "52:54:00:aa:00:03").await;
    assert_eq!(of(3).await, fixed(101), "the first of the pool is reserved");
    assert_eq!(of(1).await, fixed(50));
    assert_eq!(of(2).await, fixed(100));
    let view = leases::fixed_address_set(&app, first, None, "admin").await.unwrap();
    assert_eq!(view.record.fixed_address, None);
    assert_eq!(of(1).await, fixed(102), "from the pool again");
}

/// What was said to a node is kept as it was on the wire, the newest of it; of nobody's machine nothing is.
#[tokio::test]
async fn the_last_messages_of_a_node_are_kept_as_they_were() {
    let site = Site::new().await;
    let app = site.server(1);
    let id = node(&app, "gpu-001", "52:54:00:aa:00:01").await;
    let dhcp = dhcp(&app);
    let asked = request(MessageType::Discover, |_| {}, OptionList::new());
    let exchange = |request: &'static [u8]| Exchange {
        sender: "0.0.0.0:68".parse().unwrap(),
        port: 67,
        request,
        answer: Some((b"offer", "255.255.255.255:68".parse().unwrap())),
    };
    dhcp.exchanged(&asked, &exchange(b"discover")).await;
    let unlisted = request(MessageType::Discover, |header| header.chaddr[5] = 9, OptionList::new());
    dhcp.exchanged(&unlisted, &exchange(b"somebody else's")).await;
    let kept = app.store.packet_list(id).await.unwrap();
    let shown: Vec<String> = kept
        .iter()
        .map(|packet| {
            let text = String::from_utf8_lossy(&packet.payload).into_owned();
            format!("{} > {} {text}", packet.source, packet.destination)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "0.0.0.0:68 > 255.255.255.255:67 discover",
            "10.77.0.1:67 > 255.255.255.255:68 offer"
        ]
    );
    for _ in 0..store::PACKETS_MAX {
        dhcp.exchanged(&asked, &exchange(b"again")).await;
    }
    let kept = app.store.packet_list(id).await.unwrap();
    assert_eq!(kept.len(), store::PACKETS_MAX as usize);
    assert!(
        kept.iter().all(|packet| packet.payload != b"discover"),
        "the oldest are forgotten"
    );
    assert_eq!(app.store.packet_prune(90).await.unwrap(), 0);
    node(&app, "gpu-009", "52:54:00:aa:00:09").await;
    let nobody = app.store.node_find("gpu-009").await.unwrap();
    assert_eq!(app.store.packet_list(nobody).await.unwrap(), []);
    app.store.node_delete(id).await.unwrap();
    let gone = app.store.packet_prune(90).await.unwrap();
    assert_eq!(
        gone,
        store::PACKETS_MAX as u64,
        "nothing stays of a node that was removed"
    );
}

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 100)), 2070);

fn name(text: &str) -> FileName {
    FileName::parse(text.as_bytes()).unwrap()
}

async fn happened(tftp: &Tftp, name: &FileName, kind: TransferEventKind) {
    let event = TransferEvent {
        peer: PEER,
        name: name.clone(),
        kind,
    };
    tftp.event(event).await;
}

fn finished(outcome: Outcome) -> TransferEventKind {
    TransferEventKind::Finished {
        outcome,
        acked_bytes: 4,
        duration: Duration::from_millis(3),
    }
}

async fn timeline(app: &App, node: NodeId) -> Vec<String> {
    let events = app.store.event_list(node, 0).await.unwrap();
    events.into_iter().map(|event| event.detail).collect()
}

/// shim#696: a name made of a boot entry's label is answered with GRUB, after shim and before GRUB.
#[tokio::test]
async fn shim_696_a_machine_that_read_shim_gets_grub_for_garbage() {
    let site = Site::new().await;
    let app = site.server(1);
    let tftp = Tftp::new(&app, "http://10.77.0.1:8081");
    let garbage = name("grub/Onboard NIC (IPv4)");
    assert!(tftp.open_default(Some(&garbage), PEER).await.is_none());
    happened(&tftp, &name("shimx64.efi"), finished(Outcome::Probed)).await;
    assert!(tftp.open_default(None, PEER).await.is_none(), "only asked for the size");
    happened(&tftp, &name("shimx64.efi"), finished(Outcome::Complete)).await;
    for asked in [Some(&garbage), None] {
        let (meant, content) = tftp.open_default(asked, PEER).await.unwrap();
        assert_eq!((meant.as_str(), &content[..]), ("grubx64.efi", &b"grub"[..]));
    }
    assert!(
        tftp.open_default(Some(&name("grub/revocations.efi")), PEER)
            .await
            .is_none()
    );
    happened(&tftp, &name("grubx64.efi"), finished(Outcome::Complete)).await;
    assert!(tftp.open_default(Some(&garbage), PEER).await.is_none());
}

/// shim#524, #300: a loader is found by its last component, wherever it is asked for; what is no loader is not.
#[tokio::test]
async fn shim_524_a_loader_is_found_under_any_folder() {
    let site = Site::new().await;
    let tftp = Tftp::new(&site.server(1), "http://10.77.0.1:8081");
    for (asked, content) in [
        ("grubx64.efi", "grub"),
        ("//grubx64.efi", "grub"),
        ("EFI\\BOOT\\GRUBX64.EFI", "grub"),
        ("grub/shimx64.efi", "shim"),
    ] {
        assert_eq!(
            tftp.open(&name(asked), PEER).await.unwrap(),
            content.as_bytes(),
            "{asked}"
        );
    }
    for absent in ["EFI/debian/grub.cfg", "grub/x86_64-efi/grub.cfg", "autoexec.ipxe"] {
        assert!(
            matches!(tftp.open(&name(absent), PEER).await, Err(OpenError::NotFound)),
            "{absent}"
        );
    }
}

/// pin/tftp#125: what firmware and loaders do at each start is no failure in a node's timeline; what fails is, and
/// belongs to the node that leased the address.
#[tokio::test]
async fn pin_tftp_125_the_timeline_tells_failures_and_no_probes() {
    let site = Site::new().await;
    let app = site.server(1);
    let node = node(&app, "gpu-001", "52:54:00:aa:00:01").await;
    assert!(
        app.store
            .lease_take("10.77.0.100", "52:54:00:aa:00:01", 3600)
            .await
            .unwrap()
    );
    let tftp = Tftp::new(&app, "http://10.77.0.1:8081");
    happened(&tftp, &name("snponly.efi"), finished(Outcome::Probed)).await;
    for optional in ["autoexec.ipxe", "grub/revocations.efi", "grub/x86_64-efi/command.lst"] {
        happened(&tftp, &name(optional), TransferEventKind::NotFound).await;
    }
    assert_eq!(timeline(&app, node).await, Vec::<String>::new());
    happened(&tftp, &name("missing.efi"), TransferEventKind::NotFound).await;
    happened(&tftp, &name("snponly.efi"), finished(Outcome::Silent)).await;
    happened(&tftp, &name("snponly.efi"), finished(Outcome::Complete)).await;
    assert_eq!(
        timeline(&app, node).await,
        [
            "missing.efi: no such file to 10.77.0.100",
            "snponly.efi silent: 4 bytes in 3 ms to 10.77.0.100",
            "snponly.efi complete: 4 bytes in 3 ms to 10.77.0.100",
        ]
    );
}

/// A deployer with the lease of another server is turned down, and its node is not quarantined; with no other server about,
/// the same is a theft.
#[tokio::test]
async fn a_lease_of_another_server_is_no_theft() {
    let site = Site::new().await;
    let app = site.server(1);
    let (first, second) = ("52:54:00:aa:00:01", "52:54:00:aa:00:02");
    let id = node(&app, "gpu-001", first).await;
    let other = node(&app, "gpu-002", second).await;
    deployment_of(&app, id).await;
    let (leased, token) = booted(&app, 1).await;
    let taken = OptionList::new().with(code::SERVER_ID, [10, 77, 0, 2]);
    let taken = request(MessageType::Request, |_| {}, taken);
    let lost = Decision::Ignore {
        reason: IgnoreReason::OtherServer,
    };
    dhcp(&app).decided(&taken, &lost).await;
    let refused = claim(&app, &token, first).await;
    assert!(refused.contains("another DHCP server, 10.77.0.2"), "{refused}");
    let from_there = script_from(&app, 1, [10, 77, 0, 66].into()).await;
    assert!(!from_there.contains("plumbline.token"), "{from_there}");
    let why = trace::node_why(&app, id).await.unwrap();
    assert!(why.sentence.contains("two DHCP servers"), "{why:?}");
    assert_ne!(app.store.node_get(id).await.unwrap().state, NodeState::Quarantined);
    let again = script_from(&app, 1, leased.into()).await;
    assert!(again.contains(&token), "the same token, and its own address: {again}");

    app.store.dhcp_server_prune(-1).await.unwrap();
    let (_, token) = booted(&app, 2).await;
    let refused = claim(&app, &token, second).await;
    assert!(refused.contains("claimed from 10.77.0.66"), "{refused}");
    assert_eq!(app.store.node_get(other).await.unwrap().state, NodeState::Quarantined);
}

/// The address and the token of the machine with this last byte of its MAC, after its loader has its script.
async fn booted(app: &App, last: u8) -> (Ipv4Addr, String) {
    let discover = request(
        MessageType::Discover,
        |header| header.chaddr[5] = last,
        OptionList::new(),
    );
    let leased = address(app, &discover).await.unwrap();
    let script = script_from(app, last, leased.into()).await;
    let own = format!(" plumbline.dhcp=10.77.0.1 plumbline.address={leased}/24");
    assert!(script.contains(&own), "{script}");
    let token = script.split("plumbline.token=").nth(1).unwrap();
    (leased, token.split(' ').next().unwrap().to_owned())
}

async fn script_from(app: &App, last: u8, peer: IpAddr) -> String {
    let mut mac = MAC;
    mac[5] = last;
    let asked = boot::ScriptAsked {
        mac: MacAddr::new(mac),
        peer,
        local: None,
        language: Language::Ipxe,
        said: boot::Said::Nothing,
        is_probe: false,
    };
    boot::script(app, &asked).await.unwrap()
}

/// Claims from an address that nobody was given here; gives the refusal.
async fn claim(app: &App, token: &str, mac: &str) -> String {
    let claim = protocol::latest::Claim {
        token: token.to_owned(),
        boot_mac: mac.to_owned(),
        certificate_request: String::new(),
        agent_version: String::new(),
    };
    let refused = crate::app::enrol::claim(app, &claim, [10, 77, 0, 66].into()).await;
    refused.unwrap_err().to_string()
}

/// cobbler#1374, infra-controller#3574, #5066, #884: a node that installs again and again because its end is never told
/// stops after the last attempt, and then boots no installation, however often it comes back.
#[tokio::test]
async fn cobbler_1374_installs_whose_end_is_never_told_stop() {
    let site = Site::new().await;
    let app = site.server(1);
    let mac = "52:54:00:aa:00:01";
    let node = node(&app, "gpu-001", mac).await;
    app.store
        .node_set_inventory(node, &Default::default(), &[])
        .await
        .unwrap();
    assert!(app.store.lease_take("10.77.0.100", mac, 3600).await.unwrap());
    let deployment = app
        .store
        .deployment_create(&deployment_of(&app, node).await)
        .await
        .unwrap();

    let mut installs = 0;
    for boot in 1..=8 {
        let asked = boot::ScriptAsked {
            mac: MacAddr::new(MAC),
            peer: PEER.ip(),
            local: None,
            language: Language::Ipxe,
            said: boot::Said::Nothing,
            is_probe: false,
        };
        let script = boot::script(&app, &asked).await.unwrap();
        // What the deployer does with its token: it claims it, and takes up the deployment if there is one for it.
        let token = script
            .split("plumbline.token=")
            .nth(1)
            .and_then(|rest| rest.split(['.', ' ']).next());
        let token: uuid::Uuid = token
            .unwrap_or_else(|| panic!("boot {boot}: {script}"))
            .parse()
            .unwrap();
        assert!(
            app.store
                .token_claim(token, format!("key {boot}").as_bytes())
                .await
                .unwrap()
        );
        if app.store.deployment_start(deployment, token).await.unwrap_or(false) {
            installs += 1;
        }
        // It installs, restarts, and nobody ever hears of it.
    }
    assert_eq!(installs, 3);
    let record = app.store.node_get(node).await.unwrap();
    assert_eq!(record.state, NodeState::Failed);
    assert!(
        record.state_reason.contains("attempt 3 of 3"),
        "{}",
        record.state_reason
    );
}

async fn deployment_of(app: &App, node_id: NodeId) -> store::NewDeployment {
    let image = async |kind: &str| {
        let digest = manifest::Digest::of(kind.as_bytes());
        let image = store::NewImage {
            digest,
            kind: kind.to_owned(),
            name: kind.to_owned(),
            version: "20260101T000000Z".to_owned(),
            description: None,
            architecture: "amd64".to_owned(),
            files: 1,
            content_bytes: 1,
            stored_bytes: 1,
            files_by_class: Default::default(),
            signer: None,
        };
        app.store.image_register(&image).await.unwrap();
        digest
    };
    image("deployer").await;
    store::NewDeployment {
        node_id,
        image: image("os").await,
        channel: None,
        agent_layer: image("agent").await,
        disk_rule: Default::default(),
        layout: protocol::latest::Layout {
            esp_mib: 256,
            esp_volume_id: "1A2B3C4D".to_owned(),
            esp_label: "PL12AB34CD".to_owned(),
            root_uuid: uuid::Uuid::nil(),
        },
        mode: protocol::latest::DeployMode::InPlace,
        keep: Vec::new(),
        attempts_max: 3,
        requested_by: "admin".to_owned(),
    }
}
