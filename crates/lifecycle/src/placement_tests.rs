use super::*;

fn node(label: &str, plan: Option<PlanLine>, serial: &str, macs: &[&str]) -> Evidence {
    Evidence {
        node: NodeId::new(),
        label: label.to_owned(),
        rack: plan.as_ref().and_then(|plan| plan.rack.clone()),
        unit: plan.as_ref().and_then(|plan| plan.unit),
        plan,
        serial: Some(serial.to_owned()),
        serials: vec![serial.to_owned()],
        nics: macs
            .iter()
            .enumerate()
            .map(|(at, mac)| NicSeen {
                mac: (*mac).to_owned(),
                name: format!("eno{}", at + 1),
                driver: Some("mlx5_core".to_owned()),
                is_boot: at == 0,
                switch_port: None,
            })
            .collect(),
    }
}

fn plan(unit: i32, serial: &str, mac: &str) -> Option<PlanLine> {
    Some(PlanLine {
        rack: Some("r1".to_owned()),
        unit: Some(unit),
        serial: Some(serial.to_owned()),
        mac: Some(mac.to_owned()),
        ..PlanLine::default()
    })
}

const MAC_1: &str = "3c:ec:ef:00:00:01";
const MAC_2: &str = "3c:ec:ef:00:00:02";
const BMC_USB: &str = "be:3a:f2:b6:05:9f";

fn pair() -> Vec<Evidence> {
    vec![
        node("gpu-1", plan(1, "S1", MAC_1), "S1", &[MAC_1]),
        node("gpu-2", plan(2, "S2", MAC_2), "S2", &[MAC_2]),
    ]
}

/// Kinds and details of the first node.
fn first(all: &[Evidence]) -> Vec<(MismatchKind, String)> {
    let found = mismatches(all).remove(&all[0].node).unwrap_or_default();
    found.into_iter().map(|one| (one.kind, one.detail)).collect()
}

#[track_caller]
fn only(all: &[Evidence], kind: MismatchKind, words: &[&str]) {
    let found = first(all);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, kind, "{found:?}");
    for word in words {
        assert!(found[0].1.contains(word), "{word:?} in {found:?}");
    }
}

#[test]
fn what_fits_has_nothing_to_say_whatever_the_case_of_a_serial() {
    let mut all = pair();
    all[0].serial = Some("s1".to_owned());
    assert!(mismatches(&all).is_empty());
}

#[test]
fn a_machine_in_another_place_is_in_the_wrong_slot() {
    let mut all = pair();
    all[0].unit = Some(2);
    only(
        &all,
        MismatchKind::WrongSlot,
        &["rack r1 unit 1", "found in rack r1 unit 2", "the place of gpu-2"],
    );
    all[0].rack = Some("r9".to_owned());
    only(&all, MismatchKind::WrongSlot, &["rack r9"]);
    all[0].rack = None;
    assert!(first(&all).is_empty(), "a place that nobody knows is not a wrong one");
}

#[test]
fn another_machine_than_planned_has_the_wrong_serial() {
    let mut all = pair();
    all[0].serial = Some("S9".to_owned());
    all[0].serials = vec!["S9".to_owned()];
    only(
        &all,
        MismatchKind::WrongSerial,
        &["plan says serial S1", "machine is S9"],
    );
    all[0].serial = Some("S2".to_owned());
    all[0].serials = vec!["S2".to_owned()];
    only(&all, MismatchKind::WrongSerial, &["S2, which is planned as gpu-2"]);
    all[0].serial = None;
    assert!(
        first(&all).is_empty(),
        "a serial that could not be read is not a wrong one"
    );
}

#[test]
fn a_mac_of_another_line_of_the_plan_means_swapped_cables_or_cards() {
    let mut all = pair();
    all[0].nics.push(NicSeen {
        mac: MAC_2.to_owned(),
        name: "eno2".to_owned(),
        ..NicSeen::default()
    });
    all[1].nics.clear();
    only(&all, MismatchKind::SwappedCables, &[MAC_2, "eno2", "planned for gpu-2"]);
}

#[test]
fn a_switch_port_of_another_line_of_the_plan_means_swapped_cables() {
    let mut all = pair();
    for (at, port) in ["leaf1:Eth1", "leaf1:Eth2"].into_iter().enumerate() {
        all[at].plan.as_mut().unwrap().switch_port = Some(port.to_owned());
    }
    assert!(first(&all).is_empty(), "a port that was not heard is no mismatch");
    all[0].nics[0].switch_port = Some("LEAF1:eth1".to_owned());
    assert!(first(&all).is_empty());
    all[0].nics[0].switch_port = Some("leaf1:Eth2".to_owned());
    only(
        &all,
        MismatchKind::SwappedCables,
        &["eno1 is on leaf1:Eth2, the port of gpu-2", "its own is leaf1:Eth1"],
    );
    all[0].nics[0].switch_port = Some("leaf1:Eth9".to_owned());
    only(
        &all,
        MismatchKind::SwappedCables,
        &["leaf1:Eth9; the plan says leaf1:Eth1"],
    );
}

#[test]
fn two_machines_with_one_mac_are_both_named() {
    let mut all = pair();
    let twin = all[0].nics[0].clone();
    all[1].nics.push(NicSeen {
        name: "eno2".to_owned(),
        is_boot: false,
        ..twin
    });
    only(&all, MismatchKind::MacTwice, &[MAC_1, "also in gpu-2"]);
    let other = mismatches(&all).remove(&all[1].node).unwrap();
    assert!(
        other
            .iter()
            .any(|one| one.kind == MismatchKind::MacTwice && one.detail.contains("gpu-1")),
        "{other:?}"
    );
}

#[test]
fn two_machines_that_boot_in_turns_as_one_node_are_seen_by_their_serials() {
    let mut all = pair();
    all[0].plan.as_mut().unwrap().serial = None;
    all[0].serials.push("S7".to_owned());
    only(&all, MismatchKind::MacTwice, &["S1, and was S7 before", "mainboard"]);
    all[0].plan.as_mut().unwrap().serial = Some("S1".to_owned());
    assert!(
        first(&all).is_empty(),
        "the plan says which machine it is: the other one was before"
    );
}

#[test]
fn an_interface_to_a_bmc_is_noted_and_never_a_problem() {
    let mut all = pair();
    for one in &mut all {
        let nic = NicSeen {
            mac: BMC_USB.to_owned(),
            name: "usb0".to_owned(),
            ..NicSeen::default()
        };
        one.nics.push(NicSeen {
            driver: Some("rndis_host".to_owned()),
            ..nic
        });
    }
    only(
        &all,
        MismatchKind::SharedMac,
        &[BMC_USB, "in 2 machines", "identifies nobody"],
    );
    assert!(!MismatchKind::SharedMac.is_problem());
    // Without a driver that is known: made up by somebody, booted from by nobody.
    for one in &mut all {
        one.nics[1].mac = "7e:00:00:00:00:01".to_owned();
        one.nics[1].driver = Some("vendor_usb".to_owned());
    }
    only(&all, MismatchKind::SharedMac, &["7e:00"]);
    // What a machine boots from identifies it, made up or not.
    all[1].nics[1].is_boot = true;
    only(&all, MismatchKind::MacTwice, &["7e:00"]);
}

#[test]
fn usb_identifies_nobody_unless_the_machine_booted_from_it() {
    assert!(is_identity(MAC_1, Some("mlx5_core"), false));
    assert!(
        is_identity("52:54:00:aa:00:01", Some("virtio_net"), false),
        "virtual machines have made-up MACs"
    );
    assert!(!is_identity(MAC_1, Some("cdc_ether"), false));
    assert!(!is_identity(BMC_USB, None, false));
    assert!(is_identity(MAC_1, Some("r8152"), true));
    assert!(is_locally_administered("7e:00:00:00:00:01") && !is_locally_administered(MAC_1));
}
