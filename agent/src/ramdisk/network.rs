//! The one interface the machine booted from.
//!
//! Invariant: only the interface with the MAC the boot loader named ever gets an address or sends anything. The others
//! come up only to listen for their switches (`lldp`). A GPU server has ten ports and nine of them lead into networks
//! that are none of ours.

use std::path::Path;
use std::time::{Duration, Instant};

use super::console::Console;
use super::inventory::mac_of_link_address;
use super::modules::Coldplug;

/// How long the interface may take to appear.
const INTERFACE_LIMIT: Duration = Duration::from_secs(60);
/// How often a person is told what is waited for.
const NEWS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(250);

/// Waits for the interface with this MAC, loading drivers as devices turn up. Blocks.
///
/// # Errors
/// What was there instead, for a person.
pub fn interface(mac: &str, coldplug: &mut Coldplug, console: &Console) -> Result<String, String> {
    let start = Instant::now();
    let mut told = Instant::now();
    loop {
        let links = links(Path::new("/"));
        if let Some((name, _)) = links.iter().find(|(_, address)| matches(address, mac)) {
            return Ok(name.clone());
        }
        let seen = if links.is_empty() {
            "there is no network interface at all: its driver may be missing from the ramdisk".to_owned()
        } else {
            let list: Vec<String> = links
                .iter()
                .map(|(name, address)| format!("{name} ({address})"))
                .collect();
            format!("there is only {}", list.join(", "))
        };
        if start.elapsed() > INTERFACE_LIMIT {
            let waited = INTERFACE_LIMIT.as_secs();
            return Err(format!(
                "The machine booted from the interface with MAC {mac}. In {waited} s none appeared; {seen}."
            ));
        }
        if told.elapsed() > NEWS {
            told = Instant::now();
            console.say(format!(
                "waiting for the interface with MAC {mac}, which the machine booted from; {seen}"
            ));
        }
        coldplug.round();
        std::thread::sleep(POLL);
    }
}

/// Interfaces with hardware behind them: name and link address.
fn links(root: &Path) -> Vec<(String, String)> {
    let folder = root.join("sys/class/net");
    let mut links: Vec<(String, String)> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            // A VLAN or bond repeats the address of its port, and has no device.
            entry.path().join("device").exists().then_some(())?;
            let address = std::fs::read_to_string(entry.path().join("address")).ok()?;
            Some((
                entry.file_name().into_string().ok()?,
                address.trim().to_ascii_lowercase(),
            ))
        })
        .collect();
    links.sort();
    links
}

fn matches(address: &str, mac: &str) -> bool {
    address == mac || mac_of_link_address(address).as_deref() == Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hardware_with_the_boot_mac_is_taken() {
        let root = tempfile::tempdir().unwrap();
        for (name, address, device) in [
            ("bond0", "52:54:00:aa:00:01", false),
            ("eth1", "52:54:00:AA:00:01", true),
            ("eth0", "52:54:00:aa:00:02", true),
        ] {
            let folder = root.path().join("sys/class/net").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("address"), format!("{address}\n")).unwrap();
            if device {
                std::fs::create_dir(folder.join("device")).unwrap();
            }
        }
        let links = links(root.path());
        let found: Vec<&str> = links
            .iter()
            .filter(|(_, address)| matches(address, "52:54:00:aa:00:01"))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(found, ["eth1"]);
    }
}
