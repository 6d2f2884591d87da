//! The inventory of recorded machines.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use plumbline_agent::ramdisk::inventory;

/// Makes the tree that a fixture describes.
fn recorded(text: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((path, target)) = line.split_once(" -> ") {
            place(root.path(), path, |at| symlink(target, at).unwrap());
        } else {
            let (path, content) = line.split_once(" = ").unwrap();
            let bytes = match content.strip_prefix("hex:") {
                Some(digits) => hex::decode(digits).unwrap(),
                None => format!("{content}\n").into_bytes(),
            };
            place(root.path(), path, |at| fs::write(at, bytes).unwrap());
        }
    }
    root
}

fn place(root: &Path, path: &str, make: impl FnOnce(&Path)) {
    let at = root.join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    make(&at);
}

#[test]
fn a_gpu_server_is_described_without_what_cannot_hold_a_system() {
    let root = recorded(include_str!("../fixtures/inventory/gpu-node.tree"));
    let inventory = inventory::read(root.path(), Some("52:54:00:aa:00:01"));

    let disks: Vec<(&str, u64, Option<&str>, Option<&str>)> = inventory
        .disks
        .iter()
        .map(|d| (d.name.as_str(), d.size_bytes, d.serial.as_deref(), d.wwn.as_deref()))
        .collect();
    let expected = [
        (
            "nvme0n1",
            960_197_124_096,
            Some("S666NE0R100001"),
            Some("eui.36344830546024900025384700000001"),
        ),
        ("nvme1n1", 240_047_926_272, Some("LAB0001"), None),
        ("sda", 1_920_383_410_176, Some("001A2B3C"), Some("naa.600508b1001c0001")),
        ("sdb", 31_914_983_424, None, None),
    ];
    assert_eq!(disks, expected);
    assert_eq!(inventory.disks[1].sector_bytes, 4096);
    assert!(inventory.disks[2].rotational && !inventory.disks[0].rotational);
    assert!(inventory.disks[3].removable);

    let nics: Vec<_> = inventory
        .nics
        .iter()
        .map(|nic| (nic.name.as_str(), nic.boot, nic.link, nic.speed_mbps))
        .collect();
    let expected = [
        ("ens1f0", false, true, Some(25_000)),
        ("eth0", true, false, None),
        ("ibs2", false, false, None),
    ];
    assert_eq!(
        nics, expected,
        "a bond with the same address is not the interface booted from"
    );
    assert_eq!(inventory.nics[0].driver.as_deref(), Some("mlx5_core"));
    assert_eq!(inventory.nics[0].pci_address.as_deref(), Some("0000:3b:00.0"));
    assert_eq!(inventory.nics[1].driver.as_deref(), Some("virtio_net"));
    assert_eq!(inventory.nics[1].pci_address.as_deref(), Some("0000:00:03.0"));
    assert_eq!(inventory.nics[1].mac, "52:54:00:aa:00:01");

    assert_eq!(inventory.pci.len(), 1);
    assert_eq!(inventory.pci[0].device, "101f");
    assert!(inventory.uefi);
    assert_eq!(inventory.memory_bytes, 2_113_412_340 * 1024);
    assert_eq!(
        inventory.dmi.uuid.as_deref(),
        Some("4c4c4544-0051-4d10-8052-b6c04f4a3232")
    );
    assert_eq!(inventory.dmi.bios_date, None, "unknown is not made up");
    assert_eq!(inventory.problems, ["PCI 0000:99:00.0: ids cannot be read"]);
}

/// cloud-init#4830: the boot interface is found by the MAC that firmware derives from the GUID.
#[test]
fn cloud_init_4830_an_infiniband_boot_is_found_by_the_mac_that_firmware_derives() {
    let root = recorded(include_str!("../fixtures/inventory/gpu-node.tree"));
    let inventory = inventory::read(root.path(), Some("ec:0d:9a:9c:81:e2"));
    let boot: Vec<&str> = inventory
        .nics
        .iter()
        .filter(|nic| nic.boot)
        .map(|nic| nic.name.as_str())
        .collect();
    assert_eq!(boot, ["ibs2"]);
}

#[test]
fn what_cannot_be_read_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let problems = inventory::read(empty.path(), None).problems.join("\n");
    for part in [
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/sys/block",
        "/sys/class/net",
        "/sys/class/dmi/id",
    ] {
        assert!(problems.contains(part), "{part} is not in {problems}");
    }
}
