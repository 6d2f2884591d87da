//! One server on two provisioning networks: the program itself, real sockets, a network namespace for each machine. Needs
//! root; without it the test says so and passes.

use std::net::{Ipv4Addr, SocketAddrV4};

use lab::wait::wait_until;
use netboot::dhcp::options::code;
use netboot::dhcp::{Header, MessageType, OptionList, Reply};
use store::Store;
use testkit::TestDatabase;

use super::support::deployer_put;
use super::wires::{LIMIT, Machine, Program, bare, get, ip};

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 5);
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

const CONFIG: &str = r#"
[boot]
loaders_dir = "FOLDER/loaders"

[[boot.interfaces]]
name = "leg1"
address = "10.77.0.1/24"
dhcp = "full"
pool_first = "10.77.0.100"
pool_last = "10.77.0.199"

[[boot.interfaces]]
name = "leg2"
dhcp = "full"
pool_first = "10.87.0.100"
pool_last = "10.87.0.199"
router = "10.87.0.1"

[[boot.subnets]]
network = "10.78.0.0/24"
router = "10.78.0.1"
pool_first = "10.78.0.100"
pool_last = "10.78.0.199"
"#;

/// DISCOVER and REQUEST; gives the offer.
fn lease(machine: &Machine, transaction: u32, server: Ipv4Addr) -> Reply {
    let offer = machine.ask(MessageType::Discover, transaction, OptionList::new());
    assert_eq!(offer.message_type, MessageType::Offer);
    assert_eq!((offer.server_id(), offer.header.siaddr), (Some(server), server));
    let chosen = OptionList::new()
        .with(code::SERVER_ID, server.octets())
        .with(code::REQUESTED_ADDRESS, offer.header.yiaddr.octets());
    let ack = machine.ask(MessageType::Request, transaction, chosen);
    assert_eq!(
        (ack.message_type, ack.header.yiaddr, ack.server_id()),
        (MessageType::Ack, offer.header.yiaddr, Some(server))
    );
    offer
}

/// Everything that a machine meets after its address names the server by the address of the machine's own network.
fn leads_on(machine: &Machine, server: Ipv4Addr, elsewhere: Ipv4Addr) {
    let (start, from) = machine.tftp(server, "grub/grub.cfg");
    assert_eq!(from, server, "TFTP answers from the address that was asked");
    let http = SocketAddrV4::new(server, 8081);
    let script = get(
        &machine.namespace,
        http,
        &format!("/boot/v1/script?mac={}", machine.mac),
    );
    assert!(script.contains("/boot/v1/deployer/"), "{script}");
    let authority = get(&machine.namespace, http, "/boot/v1/authority.cpio");
    assert!(authority.contains(&format!("https://{server}:8443")), "{authority}");
    for text in [start, script, authority] {
        assert!(text.contains(&format!("http://{server}:8081")), "{text}");
        assert!(!text.contains(&elsewhere.to_string()), "{text}");
    }
    assert!(
        machine.is_refused(elsewhere, 69),
        "the other network's TFTP is not here"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_interfaces_boot_their_own_machines_and_neither_speaks_on_the_other() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: a network namespace needs root");
        return;
    }
    let database = TestDatabase::create().await;
    let store = Store::new(database.pool.clone());
    let folder = tempfile::tempdir().unwrap();
    deployer_put(&folder.path().join("data"), &store).await;
    std::fs::create_dir(folder.path().join("loaders")).unwrap();
    std::fs::write(folder.path().join("loaders/snponly.efi"), "a loader").unwrap();
    let config = folder.path().join("plumbline.toml");
    let text = format!(
        "data_dir = \"FOLDER/data\"\n[database]\nurl = {:?}\n{CONFIG}",
        database.url
    );
    let text = text.replace("FOLDER", folder.path().to_str().unwrap());
    std::fs::write(&config, text).unwrap();

    let server = bare("legs");
    let first = Machine::on(&server, "leg1", "10.77.0.1/24", 1);
    let second = Machine::on(&server, "leg2", "10.87.0.5/24", 2);
    for machine in [&first, &second] {
        let (name, id) = (
            format!("gpu-{}", machine.mac),
            uuid::Uuid::new_v4().simple().to_string(),
        );
        store.node_create(&name, &machine.mac.to_string(), &id).await.unwrap();
    }
    // On the first wire somebody has both pools' first addresses, and a stray route says that the second's is there.
    for taken in ["10.77.0.100/32", "10.87.0.100/32"] {
        ip(&first.namespace, &format!("address add {taken} dev lo"));
    }
    ip(&server, "route add 10.87.0.100/32 dev leg1");
    let log = folder.path().join("log");
    let mut program = Program::serve(&server, &config, &log);
    wait_until(LIMIT, "the boot listener", || {
        anyhow::ensure!(program.is_running(), "{}", std::fs::read_to_string(&log)?);
        Ok(server.connect(SocketAddrV4::new(SECOND, 8081).into()).ok())
    })
    .unwrap();

    let offer = lease(&first, 0x1001, FIRST);
    assert_eq!(offer.header.yiaddr, Ipv4Addr::new(10, 77, 0, 101), "the first is taken");
    assert_eq!(offer.options.get(code::ROUTER), None);
    let offer = lease(&second, 0x2002, SECOND);
    assert_eq!(
        offer.header.yiaddr,
        Ipv4Addr::new(10, 87, 0, 100),
        "asked for on its own wire, where it is free"
    );
    assert_eq!(offer.options.get(code::ROUTER), Some(&[10, 87, 0, 1][..]));
    for machine in [&first, &second] {
        assert_eq!(
            machine.overheard(),
            None,
            "what was said on one wire is not heard on the other"
        );
    }

    ip(&server, "route delete 10.87.0.100/32 dev leg1");
    ip(&first.namespace, "address add 10.77.0.101/24 dev up0");
    ip(&second.namespace, "address add 10.87.0.100/24 dev up0");
    leads_on(&first, FIRST, SECOND);
    leads_on(&second, SECOND, FIRST);

    // A relay behind the second machine's router, that is, behind that machine.
    ip(&second.namespace, "address add 10.78.0.1/32 dev lo");
    ip(&server, "route add 10.78.0.0/24 via 10.87.0.100");
    let relay = second.socket(67);
    let relayed = second.request(MessageType::Discover, 0x3003, RELAY, OptionList::new());
    relay.send_to(&relayed, (SECOND, 67)).unwrap();
    let mut buffer = [0; 2048];
    let length = relay.recv(&mut buffer).unwrap();
    let offer = Reply::decode(&buffer[..length]).unwrap();
    assert_eq!(
        (offer.header.yiaddr, offer.server_id()),
        (Ipv4Addr::new(10, 78, 0, 100), Some(SECOND))
    );

    let stray = Reply {
        header: Header::ethernet(7, first.mac),
        message_type: MessageType::Offer,
        server_name: Vec::new(),
        boot_file: Vec::new(),
        options: OptionList::new()
            .with(code::MESSAGE_TYPE, [MessageType::Offer.value()])
            .with(code::SERVER_ID, [192, 168, 1, 1]),
    };
    first.speak_as_server(&stray);
    let heard = testkit::wait_for_some(LIMIT, "the stray server to be listed", async || {
        let servers = store.dhcp_server_list().await.unwrap();
        (!servers.is_empty()).then_some(servers)
    });
    let heard: Vec<(String, String)> = heard
        .await
        .unwrap()
        .into_iter()
        .map(|server| (server.address, server.interface))
        .collect();
    assert_eq!(heard, [("192.168.1.1".to_owned(), "leg1".to_owned())]);
    let metrics = get(&server, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080), "/metrics");
    for (interface, answered) in [("leg1", 2), ("leg2", 3)] {
        let line = format!("plumbline_dhcp_total{{interface=\"{interface}\",kind=\"answered\"}} {answered}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}
