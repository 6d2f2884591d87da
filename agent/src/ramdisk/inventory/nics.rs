//! Network interfaces.

use std::path::Path;

use protocol::latest::Nic;

use super::{names, number, value};

/// Interfaces with hardware behind them, by name.
pub fn nics(root: &Path, boot_mac: Option<&str>, problems: &mut Vec<String>) -> Vec<Nic> {
    names(root, "sys/class/net", problems)
        .into_iter()
        .filter_map(|name| nic(&root.join("sys/class/net").join(&name), name, boot_mac))
        .collect()
}

fn nic(folder: &Path, name: String, boot_mac: Option<&str>) -> Option<Nic> {
    // Bonds, bridges, VLANs and the loopback have no device.
    let device = folder.join("device").canonicalize().ok()?;
    let address = value(&folder.join("address"))?.to_ascii_lowercase();
    let driver = folder.join("device/driver").canonicalize().ok();
    Some(Nic {
        boot: boot_mac.is_some_and(|mac| address == mac || mac_of_link_address(&address).as_deref() == Some(mac)),
        driver: driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())),
        // A virtio device hangs below its PCI function; the nearest one is meant.
        pci_address: device
            .ancestors()
            .filter_map(|path| path.file_name()?.to_str())
            .find(|part| is_pci_address(part))
            .map(str::to_owned),
        // -1 without a link.
        speed_mbps: number::<i64>(&folder.join("speed"))
            .and_then(|speed| u32::try_from(speed).ok())
            .filter(|speed| *speed > 0 && *speed < u32::MAX),
        link: number::<u8>(&folder.join("carrier")) == Some(1),
        mac: address,
        name,
        lldp: None,
    })
}

/// The MAC that firmware derives from an InfiniBand link address of 20 bytes: the port GUID (its last eight bytes)
/// without the two in the middle. `None` for anything else.
#[must_use]
pub fn mac_of_link_address(address: &str) -> Option<String> {
    let parts: Vec<&str> = address.split(':').collect();
    if parts.len() != 20 {
        return None;
    }
    let guid = &parts[12..];
    Some([guid[0], guid[1], guid[2], guid[5], guid[6], guid[7]].join(":"))
}

/// `domain:bus:device.function`, as in `0000:3b:00.0`.
pub fn is_pci_address(text: &str) -> bool {
    let is_hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    matches!(parts.as_slice(), [domain, bus, device, function]
        if domain.len() >= 4 && is_hex(domain, domain.len()) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_infiniband_port_is_known_by_the_mac_firmware_shows() {
        let address = "00:00:10:49:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:9c:81:e2";
        assert_eq!(mac_of_link_address(address).as_deref(), Some("ec:0d:9a:9c:81:e2"));
        assert_eq!(mac_of_link_address("52:54:00:aa:00:01"), None);
    }

    #[test]
    fn pci_addresses_are_told_from_other_names() {
        assert!(is_pci_address("0000:3b:00.0"));
        assert!(is_pci_address("10000:01:00.1"), "a domain behind VMD has five digits");
        for other in ["virtio0", "pci0000:00", "0000:3b:00", "eth0"] {
            assert!(!is_pci_address(other), "{other}");
        }
    }
}
