//! Whether an address is in use by somebody who did not get it here.
//!
//! Every host answers ARP for its addresses, also those that drop all else. The kernel asks when it is given something to
//! send, and shows the answer in its table. Refused: ICMP echo, as ISC dhcpd and Kea send it: firewalls drop it, and it
//! needs a raw socket.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use netboot::MacAddr;
use tokio::net::UdpSocket;

/// The calling thread's network namespace.
const TABLE: &str = "/proc/net/arp";
/// ATF_COM: the hardware address is known (Linux `if_arp.h`).
const FLAG_COMPLETE: u32 = 0x2;
/// The discard port (RFC 863): whoever listens there expects nothing.
const DISCARD: u16 = 9;
/// A host on the same wire answers within a few milliseconds; a machine that asks for an address waits seconds.
const LOOKS: u32 = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(25);

/// Who answers for an address on an interface's wire, within a quarter of a second; none also where that cannot be told.
pub(crate) async fn holder(interface: &str, address: Ipv4Addr) -> Option<MacAddr> {
    match look(interface, address).await {
        Ok(holder) => holder,
        Err(error) => {
            tracing::debug!(interface, %address, %error, "nobody could be asked whether the address is in use");
            None
        }
    }
}

async fn look(interface: &str, address: Ipv4Addr) -> std::io::Result<Option<MacAddr>> {
    let socket = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).await?;
    // A route that leads elsewhere must not have the question asked there.
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.send_to(&[], SocketAddrV4::new(address, DISCARD)).await?;
    for _ in 0..LOOKS {
        tokio::time::sleep(LOOK_PAUSE).await;
        let table = tokio::fs::read_to_string(TABLE).await?;
        if let Some(mac) = entry(&table, interface, address) {
            return Ok(Some(mac));
        }
    }
    Ok(None)
}

/// The hardware address of an interface's entry that is complete.
fn entry(table: &str, interface: &str, address: Ipv4Addr) -> Option<MacAddr> {
    let address = address.to_string();
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [ip, _type, flags, mac, _mask, device] = words.as_slice() else {
            return None;
        };
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
        if *ip != address || *device != interface || flags & FLAG_COMPLETE == 0 {
            return None;
        }
        mac.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
10.77.0.100      0x1         0x2         52:54:00:77:00:01     *        br0
10.77.0.101      0x1         0x0         00:00:00:00:00:00     *        br0
10.77.0.102      0x1         0x6         52:54:00:77:00:09     *        br0
10.77.0.103      0x1         0x2         52:54:00:77:00:0a     *        br1
";

    #[test]
    fn only_an_entry_that_somebody_answered_for_is_a_holder() {
        let holder = |last| entry(TABLE, "br0", Ipv4Addr::new(10, 77, 0, last)).map(|mac| mac.to_string());
        assert_eq!(holder(100).as_deref(), Some("52:54:00:77:00:01"));
        assert_eq!(holder(101), None, "asked for, and nobody answered");
        assert_eq!(holder(102).as_deref(), Some("52:54:00:77:00:09"));
        assert_eq!(holder(10), None, "the beginning of an address is another address");
        assert_eq!(holder(103), None, "answered on another wire");
        assert_eq!(entry("", "br0", Ipv4Addr::LOCALHOST), None);
    }
}
