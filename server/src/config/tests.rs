//! What a file amounts to, and how it is refused.

use super::*;
use lifecycle::Chain;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("plumbline.toml")).map_err(|error| error.to_string())
}

#[test]
fn every_key_is_optional() {
    let config = parse("").unwrap();
    assert_eq!(config.people_listen.to_string(), "127.0.0.1:8080");
    assert!(config.boot.is_none());
}

#[test]
fn an_unknown_key_is_refused_with_line_and_column() {
    let error = parse("data_dir = \"/x\"\n[boot]\ninterfaec = \"br0\"\n").unwrap_err();
    assert!(
        error.contains("line 3, column 1") && error.contains("interfaec"),
        "{error}"
    );
    assert!(
        error.contains("plumbline.toml") && error.contains("expected one of"),
        "{error}"
    );
}

#[test]
fn values_that_do_not_fit_name_their_key() {
    let boot = "[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\n";
    for (text, expected) in [
        (format!("{boot}dhcp = \"full\"\n"), "boot.pool_first"),
        (
            format!("{boot}dhcp = \"full\"\npool_first = \"10.78.0.1\"\npool_last = \"10.78.0.9\"\n"),
            "inside",
        ),
        (
            format!("{boot}[[boot.subnets]]\nnetwork = \"10.78.0.0/24\"\n"),
            "boot.subnets.router: expected the router of 10.78.0.0/24",
        ),
        (
            format!("{boot}[[boot.subnets]]\nnetwork = \"10.77.0.128/25\"\nrouter = \"10.77.0.129\"\n"),
            "10.77.0.128/25 lies in 10.77.0.0/24",
        ),
        (format!("{boot}dhcp = \"sometimes\"\n"), "line 4"),
        ("[boot]\n".to_owned(), "boot.interface"),
        (
            format!("{boot}[boot.tftp]\nblock_bytes_max = 65535\n"),
            "boot.tftp.block_bytes_max: 65535: expected 512 to 65464",
        ),
        (
            format!("{boot}[boot.tftp]\nwindow_blocks_max = 0\n"),
            "boot.tftp.window_blocks_max",
        ),
        (format!("{boot}[boot.tftp]\nrollover = \"two\"\n"), "line 5"),
        (format!("{boot}loader_bytes_per_sec_max = 1\n"), "65536 or more"),
        (
            format!("{boot}http_bodies_max = 0\n"),
            "boot.http_bodies_max: 0: expected 1 to 10000",
        ),
        (
            "[site]\nauthorized_keys = [\"hello\"]\n".to_owned(),
            "site.authorized_keys",
        ),
        ("[site]\nscan_interval_secs = 1\n".to_owned(), "60 to 86400"),
        (
            "[site]\nkernel_arguments = \"x; reboot\"\n".to_owned(),
            "site.kernel_arguments",
        ),
        (
            "[remediation]\nsuspect_percent = 100\n".to_owned(),
            "remediation.suspect_percent: 100: expected 1 to 50",
        ),
        ("[remediation]\nat_once = 2\n".to_owned(), "at_once_percent"),
        (
            "[images.builds]\nsecs_max = 1\n".to_owned(),
            "images.builds.secs_max: 1: expected 60 to 86400",
        ),
        (
            "[images.builds]\nmemory_bytes_max = 4\n".to_owned(),
            "images.builds.memory_bytes_max: 4: expected",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{error} should say {expected}");
    }
}

const TWO: &str = "\
[[boot.interfaces]]
name = \"eno1\"
address = \"10.77.0.1/24\"
dhcp = \"full\"
pool_first = \"10.77.0.100\"
pool_last = \"10.77.0.199\"
[[boot.interfaces]]
name = \"eno2.40\"
address = \"10.87.0.5/24\"
";

#[test]
fn one_interface_written_either_way_is_the_same() {
    let short = parse("[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\nrouter = \"10.77.0.254\"\n");
    let long = parse("[[boot.interfaces]]\nname = \"br0\"\naddress = \"10.77.0.1/24\"\nrouter = \"10.77.0.254\"\n");
    let (short, long) = (short.unwrap().boot.unwrap(), long.unwrap().boot.unwrap());
    assert_eq!(short.interfaces, long.interfaces);
    assert_eq!(short.subnets, long.subnets);
    assert_eq!(short.interfaces[0].dhcp, DhcpMode::Proxy, "the default");
}

#[test]
fn several_interfaces_have_their_own_networks_and_modes() {
    let boot = parse(&format!(
        "{TWO}[[boot.subnets]]\nnetwork = \"10.78.0.0/24\"\nrouter = \"10.78.0.1\"\ndhcp = \"proxy\"\n"
    ))
    .unwrap()
    .boot
    .unwrap();
    let subnets: Vec<(String, Option<&str>, DhcpMode)> = boot
        .subnets
        .iter()
        .map(|one| (one.network.to_string(), one.interface.as_deref(), one.dhcp))
        .collect();
    assert_eq!(
        subnets,
        [
            ("10.77.0.0/24".to_owned(), Some("eno1"), DhcpMode::Full),
            ("10.87.0.0/24".to_owned(), Some("eno2.40"), DhcpMode::Proxy),
            ("10.78.0.0/24".to_owned(), None, DhcpMode::Proxy),
        ]
    );
    let of = |local: &str| boot.http_url(boot.interface_at(Some(local.parse().unwrap())));
    assert_eq!(of("10.87.0.5"), "http://10.87.0.5:8081");
    assert_eq!(
        of("127.0.0.1"),
        "http://10.77.0.1:8081",
        "the first, where it is none of them"
    );
}

#[test]
fn interfaces_that_do_not_go_together_are_refused() {
    let third = |name: &str, address: &str, more: &str| {
        format!("{TWO}[[boot.interfaces]]\nname = \"{name}\"\naddress = \"{address}\"\n{more}")
    };
    let relay = "[[boot.subnets]]\nrouter = \"10.78.0.1\"\nnetwork = ";
    for (text, expected) in [
        (
            third("eno1", "10.97.0.1/24", ""),
            "boot.interfaces.name: eno1 is there twice",
        ),
        (
            third("eno3", "10.87.0.129/25", ""),
            "boot.interfaces.address: 10.87.0.128/25 of eno3 overlaps 10.87.0.0/24 of eno2.40",
        ),
        (
            third("eno3", "10.97.0.1/24", "dhcp = \"full\"\n"),
            "boot.interfaces.pool_first: eno3: mode full needs pool_first and pool_last",
        ),
        (
            third(
                "eno3",
                "10.97.0.1/24",
                "pool_first = \"10.77.0.9\"\npool_last = \"10.77.0.10\"\n",
            ),
            "boot.interfaces.pool_first: expected two ascending addresses inside 10.97.0.0/24",
        ),
        (
            third("eno3", "10.97.0.1/24", "router = \"10.77.0.254\"\n"),
            "boot.interfaces.router: 10.77.0.254: expected an address inside 10.97.0.0/24",
        ),
        (
            third("a name/with a slash", "10.97.0.1/24", ""),
            "expected the name of a network interface",
        ),
        (
            third("eno3", "10.97.0.1/24", "interface = \"eno3\"\n"),
            "unknown field `interface`",
        ),
        (
            format!("[boot]\ndhcp = \"full\"\n{TWO}"),
            "boot.dhcp: with [[boot.interfaces]] it belongs into one of them",
        ),
        (
            format!("{TWO}{relay}\"10.87.0.0/16\"\ndhcp = \"full\"\n").replace("10.78.0.1", "10.87.0.1"),
            "boot.subnets.network: 10.87.0.0/16 lies in 10.87.0.0/24, which is a subnet already",
        ),
        (
            format!("{TWO}{relay}\"10.78.0.0/24\"\n"),
            "boot.subnets.dhcp: expected full, proxy or off for 10.78.0.0/24: the interfaces differ",
        ),
        (
            format!(
                "[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\ndhcp = \"off\"\n\
                 {relay}\"10.78.0.0/24\"\ndhcp = \"full\"\n"
            ),
            "boot.subnets.dhcp: 10.78.0.0/24 is never heard of",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{error} should say {expected}");
    }
}

#[test]
fn agents_are_told_the_address_of_the_interface_they_are_behind() {
    let url = |listen: &str, local: &str| {
        let config = parse(&format!("{TWO}[agents]\nlisten = \"{listen}\"\n")).unwrap();
        config.agents_url(Some(local.parse().unwrap()))
    };
    assert_eq!(url("0.0.0.0:8443", "10.87.0.5"), "https://10.87.0.5:8443");
    assert_eq!(url("0.0.0.0:8443", "10.77.0.1"), "https://10.77.0.1:8443");
    assert_eq!(
        url("10.9.9.9:8443", "10.87.0.5"),
        "https://10.9.9.9:8443",
        "as configured"
    );
}

/// uftpd#45, edk2#7632, docker-netbootxyz#39: what some firmware and networks need can be set.
#[test]
fn uftpd_45_tftp_can_be_set_for_firmware_and_networks_that_need_it() {
    let boot = "[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\n";
    let usual = parse(boot).unwrap().boot.unwrap();
    assert_eq!(usual.tftp, TftpSettings::default());
    assert_eq!(
        (usual.tftp.limits.block_bytes_max, usual.tftp.limits.window_blocks_max),
        (1468, 64)
    );
    let text = format!(
        "{boot}loader_bytes_per_sec_max = 1000000\n[boot.tftp]\nblock_bytes_max = 1024\nwindow_blocks_max = 1\n\
         rollover = \"one\"\nsingle_port = true\n"
    );
    let set = parse(&text).unwrap().boot.unwrap();
    assert_eq!(set.loader_bytes_per_sec_max, Some(1_000_000));
    assert_eq!(
        set.tftp,
        TftpSettings {
            limits: netboot::tftp::Limits {
                block_bytes_max: 1024,
                window_blocks_max: 1,
            },
            rollover: netboot::tftp::Rollover::One,
            is_single_port: true,
        }
    );
}

#[test]
fn agents_are_told_an_address_they_can_reach() {
    let config =
        parse("[agents]\nlisten = \"0.0.0.0:8443\"\n[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\n")
            .unwrap();
    assert_eq!(config.agents_url(None), "https://10.77.0.1:8443");
}

#[test]
fn a_makers_interfaces_may_have_a_chain_of_their_own() {
    let boot = "[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\n";
    let text = format!(
        "{boot}chain = \"ipxe\"\nchain_by_group = {{ login = \"http\" }}\nchain_by_oui = {{ \"B8-59-9f\" = \"grub\" }}\n"
    );
    let config = parse(&text).unwrap().boot.unwrap();
    let chain = |mac: &str, node, group| config.chain_of(mac.parse().unwrap(), node, group, None);
    assert_eq!(chain("b8:59:9f:00:00:01", Chain::Auto, "default"), Chain::Grub);
    assert_eq!(
        chain("b8:59:9f:00:00:01", Chain::Auto, "login"),
        Chain::Grub,
        "before the group's"
    );
    assert_eq!(
        chain("b8:59:9f:00:00:01", Chain::Ipxe, "login"),
        Chain::Ipxe,
        "after the node's own"
    );
    assert_eq!(chain("b8:59:9e:00:00:01", Chain::Auto, "login"), Chain::Http);
    assert_eq!(chain("b8:59:9e:00:00:01", Chain::Auto, "default"), Chain::Ipxe);
    for wrong in ["b8:59", "b8:59:9f:00", "b8599f", "b8:59:zz", "+8:59:9f"] {
        let error = parse(&format!("{boot}chain_by_oui = {{ \"{wrong}\" = \"grub\" }}\n")).unwrap_err();
        assert!(
            error.contains("boot.chain_by_oui") && error.contains("first three octets"),
            "{wrong}: {error}"
        );
    }
}
