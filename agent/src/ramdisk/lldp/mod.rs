//! Listening for switches: which port each interface is plugged into.
//!
//! Idea: switches say every 30 s who they are (LLDP). [`Opened`] makes the interfaces hear it, [`Opened::listen`] waits
//! for a word on each, and dropping it leaves them as they were. [`frame`] reads a frame, apart from all that.
//!
//! Invariant: nothing is sent. Interfaces lead into networks that are none of ours: they get no address, IPv6 is off on
//! them before they come up, and they go down again afterwards.
//!
//! Refused: waiting for it. A node that is to be installed is installed meanwhile; a second inventory tells the ports.

pub mod frame;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{LinkAddr, recvfrom};
use protocol::latest::{Inventory, LldpListening, Neighbour};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with, sockopt};

/// Longer than the 30 s between two words of a switch (IEEE 802.1AB-2016, 9.2.5.7).
pub const LIMIT: Duration = Duration::from_secs(35);
/// How long one wait for a frame is.
const POLL: Duration = Duration::from_millis(500);
/// More frames than arrive in that time: somebody floods the network.
const FRAMES_MAX: usize = 20_000;
/// Longest frame that is read.
const FRAME_BYTES_MAX: usize = 2_048;
/// Most interfaces listened on.
const INTERFACES_MAX: usize = 64;
/// `ARPHRD_ETHER`; InfiniBand has no LLDP.
const ETHERNET: &str = "1";
/// Flags of an interface (`linux/if.h`).
const UP: u32 = 0x1;
const ALL_MULTICAST: u32 = 0x200;

/// An interface that was made to listen.
#[derive(Debug)]
struct Interface {
    name: String,
    mac: String,
    index: usize,
    folder: PathBuf,
    /// Flags that were not set before.
    added: u32,
}

/// Interfaces that listen; they are left as they were when this is dropped.
#[derive(Debug)]
pub struct Opened {
    interfaces: Vec<Interface>,
    socket: OwnedFd,
}

impl Opened {
    /// Opens the Ethernet interfaces with hardware behind them under `root`. Blocks while drivers bring them up.
    ///
    /// # Errors
    /// Why nothing can be heard.
    pub fn all(root: &Path) -> Result<Self, String> {
        // The kernel wants the protocol in network order; with it the socket hears all interfaces, and only this.
        let protocol = NonZeroU32::new(u32::from(frame::ETHERTYPE.to_be())).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
            .map_err(|error| format!("opening a packet socket: {error}"))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(POLL))
            .map_err(|error| format!("setting a limit on the packet socket: {error}"))?;
        let mut opened = Self {
            interfaces: candidates(root),
            socket,
        };
        for interface in &mut opened.interfaces {
            // A link-local address would be a word of ours in a network that is not.
            let ipv6 = root
                .join("proc/sys/net/ipv6/conf")
                .join(&interface.name)
                .join("disable_ipv6");
            if flags_read(&interface.folder).is_some_and(|flags| flags & UP == 0) {
                let _ = std::fs::write(ipv6, "1");
            }
            interface.added = flags_change(&interface.folder, UP | ALL_MULTICAST, 0);
        }
        Ok(opened)
    }

    /// Listens until each interface with a link has heard its switch, at most for `limit`. Blocks. Returns what was
    /// heard, by interface, and how long it took.
    #[must_use]
    pub fn listen(&self, limit: Duration) -> (BTreeMap<String, Neighbour>, Duration) {
        let start = Instant::now();
        let mut heard = BTreeMap::new();
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        for _ in 0..FRAMES_MAX {
            let has_link = |one: &&Interface| value(&one.folder.join("carrier")).as_deref() == Some("1");
            let is_complete = !heard.is_empty()
                && self
                    .interfaces
                    .iter()
                    .filter(has_link)
                    .all(|one| heard.contains_key(&one.name));
            if is_complete || start.elapsed() >= limit {
                break;
            }
            let Ok((length, Some(from))) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer) else {
                continue;
            };
            if let Some((name, neighbour)) = self.take(&buffer[..length], from.ifindex()) {
                heard.entry(name).or_insert(neighbour);
            }
        }
        (heard, start.elapsed())
    }

    /// A frame from somebody else on one of the interfaces: cards with a mind of their own speak LLDP too.
    fn take(&self, bytes: &[u8], index: usize) -> Option<(String, Neighbour)> {
        let interface = self.interfaces.iter().find(|one| one.index == index)?;
        let source = frame::source(bytes)?;
        if self.interfaces.iter().any(|one| one.mac == source) {
            return None;
        }
        Some((interface.name.clone(), frame::parse(bytes).ok()?))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for interface in &self.interfaces {
            flags_change(&interface.folder, 0, interface.added);
        }
    }
}

/// Puts what was heard into an inventory.
pub fn add(inventory: &mut Inventory, heard: &BTreeMap<String, Neighbour>, took: Duration) {
    for nic in &mut inventory.nics {
        nic.lldp = heard.get(&nic.name).cloned();
    }
    inventory.lldp = LldpListening::Listened {
        secs: u32::try_from(took.as_secs()).unwrap_or(u32::MAX),
    };
}

fn candidates(root: &Path) -> Vec<Interface> {
    let folder = root.join("sys/class/net");
    let mut found: Vec<Interface> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| interface(&entry.ok()?.path()))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.truncate(INTERFACES_MAX);
    found
}

fn interface(folder: &Path) -> Option<Interface> {
    let is_wanted = folder.join("device").exists() && value(&folder.join("type")).as_deref() == Some(ETHERNET);
    is_wanted.then_some(())?;
    Some(Interface {
        name: folder.file_name()?.to_str()?.to_owned(),
        mac: value(&folder.join("address"))?.to_ascii_lowercase(),
        index: value(&folder.join("ifindex"))?.parse().ok()?,
        folder: folder.to_owned(),
        added: 0,
    })
}

fn value(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn flags_read(folder: &Path) -> Option<u32> {
    let text = value(&folder.join("flags"))?;
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Sets and clears flags; others stay as they are. Returns those that were not set before and are now.
fn flags_change(folder: &Path, set: u32, clear: u32) -> u32 {
    let Some(flags) = flags_read(folder) else { return 0 };
    let wanted = (flags | set) & !clear;
    if wanted != flags && std::fs::write(folder.join("flags"), format!("{wanted:#x}\n")).is_err() {
        return 0;
    }
    wanted & !flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(root: &Path, name: &str, kind: &str, flags: &str, index: usize) -> PathBuf {
        let folder = root.join("sys/class/net").join(name);
        std::fs::create_dir_all(folder.join("device")).unwrap();
        for (file, content) in [
            ("type", kind.to_owned()),
            ("flags", flags.to_owned()),
            ("address", format!("52:54:00:AA:00:{index:02x}")),
            ("ifindex", index.to_string()),
            ("carrier", "1".to_owned()),
        ] {
            std::fs::write(folder.join(file), format!("{content}\n")).unwrap();
        }
        folder
    }

    #[test]
    fn flags_that_were_set_before_are_left_set() {
        let root = tempfile::tempdir().unwrap();
        let up = place(root.path(), "eth0", "1", "0x1003", 2);
        let down = place(root.path(), "eth1", "1", "0x1002", 3);
        for (folder, before, during) in [(&up, 0x1003, 0x1203), (&down, 0x1002, 0x1203)] {
            let added = flags_change(folder, UP | ALL_MULTICAST, 0);
            assert_eq!(flags_read(folder), Some(during));
            flags_change(folder, 0, added);
            assert_eq!(flags_read(folder), Some(before));
        }
    }

    #[test]
    fn only_ethernet_with_hardware_behind_it_listens() {
        let root = tempfile::tempdir().unwrap();
        place(root.path(), "eth1", "1", "0x1002", 3);
        place(root.path(), "ib0", "32", "0x1002", 4);
        std::fs::remove_dir(place(root.path(), "bond0", "1", "0x1002", 5).join("device")).unwrap();
        let names: Vec<String> = candidates(root.path()).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["eth1"]);
    }

    #[test]
    fn what_was_not_heard_has_no_port_and_says_how_long_was_listened() {
        let nic = |name: &str| protocol::latest::Nic {
            name: name.to_owned(),
            ..Default::default()
        };
        let mut inventory = Inventory {
            nics: vec![nic("eth0"), nic("eth1")],
            ..Inventory::default()
        };
        let neighbour = Neighbour {
            chassis: "leaf1".to_owned(),
            port: "Ethernet1".to_owned(),
            ..Neighbour::default()
        };
        add(
            &mut inventory,
            &[("eth1".to_owned(), neighbour)].into(),
            Duration::from_millis(35_200),
        );
        assert_eq!(inventory.nics[0].lldp, None);
        assert_eq!(
            inventory.nics[1].lldp.as_ref().unwrap().switch_port(),
            "leaf1:Ethernet1"
        );
        assert_eq!(inventory.lldp, LldpListening::Listened { secs: 35 });
    }
}
