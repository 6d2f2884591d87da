//! Who is asking.
//!
//! Ethernet clients are named by the address in the header, always: option 61 differs between ROM, iPXE and the
//! system, and would make three machines of one. InfiniBand clients have no room for their address in the header
//! (RFC 4390: `htype` 32, `hlen` 0) and are named by the GUID in option 61, which firmware and system write in
//! several shapes. All shapes of one port give one identity here.

use super::packet::{HTYPE_INFINIBAND, Request};
use crate::mac::MacAddr;

/// The canonical identity of a client port, from one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HardwareIdentity {
    /// An Ethernet address in the header.
    Ethernet(MacAddr),
    /// An InfiniBand port.
    Infiniband {
        /// Port GUID; none when the client sent only the address derived from it.
        guid: Option<[u8; 8]>,
        /// The Ethernet-like address that Mellanox tools print: the GUID without its fourth and fifth octets.
        mac: MacAddr,
    },
    /// Nothing that names a port. Such clients must never be taken for one another.
    Unknown,
}

impl HardwareIdentity {
    pub(crate) fn of(request: &Request) -> Self {
        if let Some(mac) = request.mac() {
            return if mac.is_group() {
                Self::Unknown
            } else {
                Self::Ethernet(mac)
            };
        }
        if request.header().htype != HTYPE_INFINIBAND {
            return Self::Unknown;
        }
        let candidates = [Some(request.header().link_address()), request.client_id()];
        candidates
            .into_iter()
            .flatten()
            .find_map(Self::from_infiniband)
            .unwrap_or(Self::Unknown)
    }

    /// Reads a link address or client identifier of an InfiniBand port.
    fn from_infiniband(bytes: &[u8]) -> Option<Self> {
        match bytes {
            // RFC 4361 section 6.1: type 255, four octets of interface identifier, a DUID.
            [0xff, _, _, _, _, duid @ ..] => Self::from_address(hardware_of_duid(duid)?),
            // A type octet (RFC 2132 section 9.14) in front of an address of a known length.
            [0x20, rest @ ..] if matches!(rest.len(), 6 | 8 | 20) => Self::from_address(rest),
            [0x01, rest @ ..] if rest.len() == 6 => Self::from_address(rest),
            whole => Self::from_address(whole),
        }
    }

    fn from_address(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [a, b, c, d, e, f] => Self::from_mac([a, b, c, d, e, f]),
            [a, b, c, d, e, f, g, h] => Self::from_guid([a, b, c, d, e, f, g, h]),
            // The link address of RFC 4391 section 9.1.1: flags, queue pair, and a GID that ends in the GUID.
            [.., a, b, c, d, e, f, g, h] if bytes.len() == 20 => Self::from_guid([a, b, c, d, e, f, g, h]),
            _ => None,
        }
    }

    fn from_mac(octets: [u8; 6]) -> Option<Self> {
        let mac = MacAddr::new(octets);
        (!mac.is_zero()).then_some(Self::Infiniband { guid: None, mac })
    }

    fn from_guid(guid: [u8; 8]) -> Option<Self> {
        let [a, b, c, _, _, f, g, h] = guid;
        (guid != [0; 8]).then_some(Self::Infiniband {
            guid: Some(guid),
            mac: MacAddr::new([a, b, c, f, g, h]),
        })
    }

    /// The address by which the machine is looked up: the same for every shape that one port shows.
    pub fn mac(&self) -> Option<MacAddr> {
        match self {
            Self::Ethernet(mac) | Self::Infiniband { mac, .. } => Some(*mac),
            Self::Unknown => None,
        }
    }
}

/// The hardware address in a DUID (RFC 8415 section 11), where there is one. A DUID of another kind, such as a UUID, is
/// an opaque name: reading a GUID out of it would make a port of it that does not exist.
fn hardware_of_duid(duid: &[u8]) -> Option<&[u8]> {
    match duid {
        // By time and by address: hardware type 32 is InfiniBand.
        [0, 1, 0, HTYPE_INFINIBAND, _, _, _, _, address @ ..] | [0, 3, 0, HTYPE_INFINIBAND, address @ ..] => {
            Some(address)
        }
        // What Linux systems make for InfiniBand: enterprise 713 (Mellanox), a zero, the GUID.
        [0, 2, 0, 0, 0x02, 0xc9, 0, guid @ ..] => Some(guid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dhcp::options::{OptionList, code};
    use crate::dhcp::packet::{Header, MessageType};

    fn infiniband(client_id: &[u8]) -> HardwareIdentity {
        let mut header = Header::ethernet(1, MacAddr::new([0; 6]));
        header.htype = HTYPE_INFINIBAND;
        header.hlen = 0;
        let options = OptionList::new().with(code::CLIENT_ID, client_id);
        Request::new(header, MessageType::Discover, options).unwrap().identity()
    }

    const GUID: [u8; 8] = [0xec, 0x0d, 0x9a, 0x03, 0x00, 0x9c, 0x81, 0xe2];

    fn all(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    /// canonical/cloud-init#4830: firmware and system show one port in many shapes, which are one machine.
    #[test]
    fn cloud_init_4830_every_shape_of_one_infiniband_port_is_one_identity() {
        let link = all(&[&[0x80, 0, 0x10, 0x48, 0xfe, 0x80, 0, 0, 0, 0, 0, 0], &GUID]);
        let iaid = [0xff, 0, 0, 0, 0];
        let derived = [0xec, 0x0d, 0x9a, 0x9c, 0x81, 0xe2];
        for shape in [
            GUID.to_vec(),
            all(&[&[0x20], &GUID]),
            link.clone(),
            all(&[&[0x20], &link]),
            all(&[&iaid, &[0, 2, 0, 0, 2, 0xc9, 0], &GUID]),
            all(&[&iaid, &[0, 3, 0, 32], &link]),
            all(&[&iaid, &[0, 3, 0, 32], &GUID]),
            all(&[&iaid, &[0, 1, 0, 32, 1, 2, 3, 4], &link]),
            derived.to_vec(),
            all(&[&[0x01], &derived]),
            all(&[&[0x20], &derived]),
        ] {
            let identity = infiniband(&shape);
            assert_eq!(
                identity.mac().map(|mac| mac.to_string()).as_deref(),
                Some("ec:0d:9a:9c:81:e2"),
                "{shape:02x?}"
            );
        }
    }

    /// isc/kea PR#134: an identifier that holds no hardware address must not be cut into one.
    #[test]
    fn kea_134_a_name_that_holds_no_address_is_nobody() {
        let iaid = [0xff, 1, 2, 3, 4];
        for opaque in [
            // systemd's, and a UUID: both are long enough to hold a GUID at their end.
            all(&[&iaid, &[0, 2, 0, 0, 0xab, 0x11], &GUID]),
            all(&[&iaid, &[0, 4], &GUID, &GUID]),
            // The DUID of an Ethernet interface of the same machine.
            all(&[&iaid, &[0, 3, 0, 1, 0x52, 0x54, 0, 0xaa, 0, 1]]),
            b"gpu-001.cluster.example.org".to_vec(),
            vec![0; 20],
            vec![0; 8],
            vec![],
        ] {
            assert_eq!(infiniband(&opaque), HardwareIdentity::Unknown, "{opaque:02x?}");
        }
    }

    #[test]
    fn an_ethernet_client_is_its_address_whatever_its_client_identifier() {
        let mac = MacAddr::new([0x52, 0x54, 0, 0xaa, 0, 1]);
        for client_id in [
            &[1, 0x52, 0x54, 0, 0xaa, 0, 1][..],
            &[0, 9, 9, 9][..],
            &[0xff, 1, 2, 3, 4][..],
        ] {
            let options = OptionList::new().with(code::CLIENT_ID, client_id);
            let request = Request::new(Header::ethernet(1, mac), MessageType::Discover, options).unwrap();
            assert_eq!(request.identity(), HardwareIdentity::Ethernet(mac));
        }
        let nobody = Header::ethernet(1, MacAddr::new([0; 6]));
        let request = Request::new(nobody, MessageType::Discover, OptionList::new()).unwrap();
        assert_eq!(request.identity(), HardwareIdentity::Unknown);
    }
}
