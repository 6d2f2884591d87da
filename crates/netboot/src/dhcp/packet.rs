//! What a client says: the fixed header and a checked list of options (RFC 2131 section 2).
//!
//! Idea: [`Request::decode`] checks every option that the policy reads, once; the accessors then cannot fail.
//! Options that are only echoed (61, 82, 97) or only evidence (175) are not checked at all: a machine identifier of
//! an odd length is no reason to leave a machine without an answer.
//! The fixed header is `dhcproto`'s to code; the option area is ours (see [`super::options`]).

use std::net::Ipv4Addr;

use dhcproto::Encoder;
use dhcproto::v4::{Decodable, Decoder, Encodable, Flags, HType, MIN_PACKET_SIZE, Message, Opcode};

use super::error::PacketError;
use super::identity::HardwareIdentity;
use super::options::{OptionList, code};
use crate::mac::MacAddr;

/// Bytes before the option area: the BOOTP header and the magic cookie.
pub(crate) const HEADER_BYTES: usize = 240;
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;
const OPCODE_REQUEST: u8 = 1;
const OPCODE_REPLY: u8 = 2;

/// Sub-option of option 82 with an address of the link that the client is on (RFC 3527 section 2).
const RELAY_LINK_SELECTION: u8 = 5;

/// Hardware type of Ethernet (RFC 1700, ARP).
pub const HTYPE_ETHERNET: u8 = 1;
/// Hardware type of InfiniBand (RFC 4390).
pub const HTYPE_INFINIBAND: u8 = 32;

/// Option 53, the message types that occur between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// A client looks for servers.
    Discover,
    /// A server proposes.
    Offer,
    /// A client takes a proposal, or renews.
    Request,
    /// A client found its address in use.
    Decline,
    /// A server confirms.
    Ack,
    /// A server refuses.
    Nak,
    /// A client gives its address back.
    Release,
    /// A client with an address asks for options only.
    Inform,
}

impl MessageType {
    const ALL: [Self; 8] = [
        Self::Discover,
        Self::Offer,
        Self::Request,
        Self::Decline,
        Self::Ack,
        Self::Nak,
        Self::Release,
        Self::Inform,
    ];

    /// The value of option 53.
    pub fn value(self) -> u8 {
        match self {
            Self::Discover => 1,
            Self::Offer => 2,
            Self::Request => 3,
            Self::Decline => 4,
            Self::Ack => 5,
            Self::Nak => 6,
            Self::Release => 7,
            Self::Inform => 8,
        }
    }

    fn from_value(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.value() == value)
    }

    /// Lower-case name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discover => "discover",
            Self::Offer => "offer",
            Self::Request => "request",
            Self::Decline => "decline",
            Self::Ack => "ack",
            Self::Nak => "nak",
            Self::Release => "release",
            Self::Inform => "inform",
        }
    }

    fn is_from_client(self) -> bool {
        !matches!(self, Self::Offer | Self::Ack | Self::Nak)
    }
}

/// The fixed header, without opcode, `sname` and `file`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Hardware type: 1 Ethernet, 32 InfiniBand.
    pub htype: u8,
    /// Octets of `chaddr` that count, 0 to 16.
    pub hlen: u8,
    /// Relays passed.
    pub hops: u8,
    /// Transaction, chosen by the client.
    pub xid: u32,
    /// Seconds since the client began; some firmware fills it in the wrong byte order.
    pub secs: u16,
    /// Flags; bit 15 asks for broadcast.
    pub flags: u16,
    /// The client's present address, or zero.
    pub ciaddr: Ipv4Addr,
    /// The address given to the client.
    pub yiaddr: Ipv4Addr,
    /// The next server.
    pub siaddr: Ipv4Addr,
    /// The relay that passed this on, or zero.
    pub giaddr: Ipv4Addr,
    /// Client hardware address, filled up with zeros.
    pub chaddr: [u8; 16],
}

impl Header {
    /// Bit 15 of `flags`: the client cannot yet take unicast (RFC 2131 section 2).
    pub const BROADCAST: u16 = 0x8000;

    /// The header of an Ethernet client that has no address yet.
    pub fn ethernet(xid: u32, mac: MacAddr) -> Self {
        let mut chaddr = [0; 16];
        chaddr[..6].copy_from_slice(&mac.octets());
        Self {
            htype: HTYPE_ETHERNET,
            hlen: 6,
            hops: 0,
            xid,
            secs: 0,
            flags: 0,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            chaddr,
        }
    }

    /// The octets of the hardware address that count.
    pub fn link_address(&self) -> &[u8] {
        self.chaddr.get(..usize::from(self.hlen)).unwrap_or(&self.chaddr)
    }
}

/// Header, options, and the two text fields of one datagram, before anything is known of its direction.
pub(crate) struct Datagram {
    pub(crate) header: Header,
    pub(crate) options: OptionList,
    pub(crate) message_type: MessageType,
    pub(crate) sname: Vec<u8>,
    pub(crate) file: Vec<u8>,
}

impl Datagram {
    fn decode(bytes: &[u8], opcode: u8) -> Result<Self, PacketError> {
        let (head, area) = bytes
            .split_at_checked(HEADER_BYTES)
            .ok_or(PacketError::TooShort { bytes: bytes.len() })?;
        if head[236..] != dhcproto::v4::MAGIC {
            return Err(PacketError::NoMagic);
        }
        if head[0] != opcode {
            return Err(PacketError::Opcode {
                found: head[0],
                expected: opcode,
            });
        }
        if head[2] > 16 {
            return Err(PacketError::HardwareLength { found: head[2] });
        }
        let options = OptionList::parse(area, &head[FILE], &head[SNAME])?;
        let [message_type] = options
            .fixed::<1>(code::MESSAGE_TYPE)?
            .ok_or(PacketError::NoMessageType)?;
        let message_type =
            MessageType::from_value(message_type).ok_or(PacketError::MessageType { found: message_type })?;

        // The text fields may hold options (overload) and need not end in NUL, so the header codec never sees them.
        let mut fixed = [0; HEADER_BYTES];
        fixed.copy_from_slice(head);
        fixed[SNAME.start..FILE.end].fill(0);
        let message = Message::decode(&mut Decoder::new(&fixed)).map_err(|_| PacketError::Header)?;
        let mut chaddr = [0; 16];
        chaddr.copy_from_slice(&head[28..44]);
        let header = Header {
            htype: message.htype().into(),
            hlen: message.hlen(),
            hops: message.hops(),
            xid: message.xid(),
            secs: message.secs(),
            flags: message.flags().into(),
            ciaddr: message.ciaddr(),
            yiaddr: message.yiaddr(),
            siaddr: message.siaddr(),
            giaddr: message.giaddr(),
            chaddr,
        };
        Ok(Self {
            header,
            options,
            message_type,
            sname: head[SNAME].to_vec(),
            file: head[FILE].to_vec(),
        })
    }

    pub(crate) fn decode_reply(bytes: &[u8]) -> Result<Self, PacketError> {
        Self::decode(bytes, OPCODE_REPLY)
    }
}

/// Writes a whole message. `sname` and `file` are cut to what fits with a NUL behind it.
pub(crate) fn encode(
    header: &Header,
    is_reply: bool,
    sname: &[u8],
    file: &[u8],
    options: &OptionList,
) -> Result<Vec<u8>, PacketError> {
    let mut message = Message::default();
    message
        .set_opcode(Opcode::from(if is_reply { OPCODE_REPLY } else { OPCODE_REQUEST }))
        .set_htype(HType::from(header.htype))
        .set_chaddr(header.link_address())
        .set_hops(header.hops)
        .set_xid(header.xid)
        .set_secs(header.secs)
        .set_flags(Flags::from(header.flags))
        .set_ciaddr(header.ciaddr)
        .set_yiaddr(header.yiaddr)
        .set_siaddr(header.siaddr)
        .set_giaddr(header.giaddr)
        .set_sname(sname.get(..63).unwrap_or(sname))
        .set_fname(file.get(..127).unwrap_or(file));
    let mut bytes = Vec::with_capacity(MIN_PACKET_SIZE);
    let mut encoder = Encoder::new(&mut bytes);
    message.encode(&mut encoder).map_err(|_| PacketError::Header)?;
    options.encode(&mut encoder)?;
    encoder.write_u8(code::END).map_err(|_| PacketError::Header)?;
    // The codec clears what lies past `hlen`; the field goes out as it came in.
    if let Some(chaddr) = bytes.get_mut(28..44) {
        chaddr.copy_from_slice(&header.chaddr);
    }
    // RFC 951: 300 bytes is the smallest message that old relays and clients take.
    if bytes.len() < MIN_PACKET_SIZE {
        bytes.resize(MIN_PACKET_SIZE, 0);
    }
    Ok(bytes)
}

/// One message from a client, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    header: Header,
    options: OptionList,
    message_type: MessageType,
}

impl Request {
    /// Reads a datagram that arrived at a server port. Any bytes are allowed; none panic.
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        let datagram = Datagram::decode(bytes, OPCODE_REQUEST)?;
        Self::check(datagram.header, datagram.options, datagram.message_type)
    }

    /// A request from its parts, checked as a received one is; for simulated clients and tests.
    pub fn new(header: Header, message_type: MessageType, mut options: OptionList) -> Result<Self, PacketError> {
        options.set_first(code::MESSAGE_TYPE, [message_type.value()]);
        Self::check(header, options, message_type)
    }

    fn check(header: Header, options: OptionList, message_type: MessageType) -> Result<Self, PacketError> {
        if !message_type.is_from_client() {
            return Err(PacketError::MessageType {
                found: message_type.value(),
            });
        }
        options.address(code::REQUESTED_ADDRESS)?;
        options.address(code::SERVER_ID)?;
        options.fixed::<2>(code::MAX_MESSAGE_BYTES)?;
        if let Some(list) = options.get(code::CLIENT_ARCH)
            && (list.is_empty() || list.len() % 2 != 0)
        {
            return Err(PacketError::OptionLength {
                code: code::CLIENT_ARCH,
                bytes: list.len(),
            });
        }
        Ok(Self {
            header,
            options,
            message_type,
        })
    }

    /// The message as bytes: `decode` of these gives the same request.
    pub fn encode(&self) -> Result<Vec<u8>, PacketError> {
        encode(&self.header, false, &[], &[], &self.options)
    }

    /// The fixed header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// All options as they came, parts joined.
    pub fn options(&self) -> &OptionList {
        &self.options
    }

    /// Option 53.
    pub fn message_type(&self) -> MessageType {
        self.message_type
    }

    /// The Ethernet address in the header: none when the header carries another kind, or zeros.
    pub fn mac(&self) -> Option<MacAddr> {
        let octets = <[u8; 6]>::try_from(self.header.link_address()).ok()?;
        Some(MacAddr::new(octets)).filter(|mac| self.header.htype != HTYPE_INFINIBAND && !mac.is_zero())
    }

    /// Who is asking, over all the shapes in which InfiniBand hides it; see [`HardwareIdentity`].
    pub fn identity(&self) -> HardwareIdentity {
        HardwareIdentity::of(self)
    }

    /// Option 50: the address the client wants.
    pub fn requested_address(&self) -> Option<Ipv4Addr> {
        self.options.address(code::REQUESTED_ADDRESS).ok().flatten()
    }

    /// An address of the subnet that the client is in, for the choice of its own address; none: the subnet of the
    /// interface it was heard on.
    ///
    /// Behind a relay: the link that the relay names (RFC 3527), or the relay's own address. Without one, an address
    /// that the client has already: a renewal comes straight from its subnet through the router.
    pub fn subnet_address(&self) -> Option<Ipv4Addr> {
        let known = |address: Ipv4Addr| Some(address).filter(|address| !address.is_unspecified());
        match known(self.header.giaddr) {
            // Only a relay says where its client is: a client could write itself into any subnet.
            Some(relay) => Some(self.relay_link().unwrap_or(relay)),
            None => known(self.header.ciaddr),
        }
    }

    /// Option 82, sub-option 5 (RFC 3527): the link that the client is on, where a relay's own address lies elsewhere.
    fn relay_link(&self) -> Option<Ipv4Addr> {
        let mut rest = self.relay_agent_info()?;
        while let [code, length, tail @ ..] = rest {
            let (value, tail) = tail.split_at_checked(usize::from(*length))?;
            if *code == RELAY_LINK_SELECTION {
                return Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?));
            }
            rest = tail;
        }
        None
    }

    /// Option 54: the server the client talks to.
    pub fn server_id(&self) -> Option<Ipv4Addr> {
        self.options.address(code::SERVER_ID).ok().flatten()
    }

    /// Option 55: codes of the options the client would like.
    pub fn parameter_list(&self) -> &[u8] {
        self.options.get(code::PARAMETER_LIST).unwrap_or_default()
    }

    /// Option 57: the longest DHCP message the client takes, in bytes.
    pub fn max_message_bytes(&self) -> Option<u16> {
        self.options
            .fixed::<2>(code::MAX_MESSAGE_BYTES)
            .ok()
            .flatten()
            .map(u16::from_be_bytes)
    }

    /// Option 60, for example `PXEClient:Arch:00007:UNDI:003016`.
    pub fn vendor_class(&self) -> Option<&[u8]> {
        self.options.get(code::VENDOR_CLASS)
    }

    /// Option 61, raw. Never an identity for Ethernet clients: firmware, iPXE and the system each send another one.
    pub fn client_id(&self) -> Option<&[u8]> {
        self.options.get(code::CLIENT_ID)
    }

    /// Option 77 as a list: the length-prefixed form of RFC 3004, or the one plain string that iPXE sends.
    pub fn user_classes(&self) -> Vec<&[u8]> {
        let Some(value) = self.options.get(code::USER_CLASS) else {
            return Vec::new();
        };
        let mut classes = Vec::new();
        let mut rest = value;
        while let [length, tail @ ..] = rest {
            match tail.split_at_checked(usize::from(*length)) {
                Some((class, tail)) if !class.is_empty() => {
                    classes.push(class);
                    rest = tail;
                }
                _ => return vec![value],
            }
        }
        classes
    }

    /// Option 82, raw.
    pub fn relay_agent_info(&self) -> Option<&[u8]> {
        self.options.get(code::RELAY_AGENT)
    }

    /// Option 93: every architecture in the list, best first (RFC 4578 section 2.1).
    pub fn client_arches(&self) -> Vec<u16> {
        let list = self.options.get(code::CLIENT_ARCH).unwrap_or_default();
        list.chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect()
    }

    /// Option 97, raw: a type octet and, mostly, the 16 octets of the SMBIOS UUID.
    pub fn machine_id(&self) -> Option<&[u8]> {
        self.options.get(code::MACHINE_ID)
    }

    /// The 16 octets of option 97 as sent; none when the option is absent, of another length or another type.
    pub fn machine_uuid(&self) -> Option<[u8; 16]> {
        match self.machine_id()? {
            [0, uuid @ ..] => uuid.try_into().ok(),
            _ => None,
        }
    }

    /// Option 175, raw: what iPXE says of itself.
    pub fn ipxe_options(&self) -> Option<&[u8]> {
        self.options.get(code::IPXE)
    }

    /// Whether option 175 has `feature` set, for example 0x13 for HTTP. A malformed option has no features.
    pub fn has_ipxe_feature(&self, feature: u8) -> bool {
        let Some(area) = self.ipxe_options() else { return false };
        OptionList::parse(area, &[], &[]).is_ok_and(|list| {
            list.get(feature)
                .is_some_and(|value| value.iter().any(|byte| *byte != 0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discover(options: OptionList) -> Request {
        let mac = MacAddr::new([0x52, 0x54, 0, 0xaa, 0, 1]);
        Request::new(Header::ethernet(7, mac), MessageType::Discover, options).unwrap()
    }

    #[test]
    fn every_architecture_of_the_list_is_seen() {
        let request = discover(OptionList::new().with(code::CLIENT_ARCH, [0, 7, 0, 16]));
        assert_eq!(request.client_arches(), vec![7, 16]);
    }

    #[test]
    fn user_class_is_read_in_both_forms() {
        for (value, classes) in [
            (&b"iPXE"[..], vec![&b"iPXE"[..]]),
            (&b"\x04iPXE"[..], vec![&b"iPXE"[..]]),
            (&b"\x04iPXE\x02ab"[..], vec![&b"iPXE"[..], &b"ab"[..]]),
            (&b"\x00"[..], vec![&b"\x00"[..]]),
            (&b"\x09iPXE"[..], vec![&b"\x09iPXE"[..]]),
        ] {
            assert_eq!(
                discover(OptionList::new().with(code::USER_CLASS, value)).user_classes(),
                classes
            );
        }
        assert!(discover(OptionList::new()).user_classes().is_empty());
    }

    #[test]
    fn features_are_read_and_a_broken_option_has_none() {
        let feature = |value: &[u8]| discover(OptionList::new().with(code::IPXE, value)).has_ipxe_feature(0x13);
        assert!(feature(&[0x13, 1, 1]));
        assert!(feature(&[0xb1, 1, 2, 0x13, 1, 1, 0x18, 1, 1]));
        assert!(!feature(&[0x13, 1, 0]));
        assert!(!feature(&[0x18, 1, 1]));
        assert!(!feature(&[0x13, 1, 1, 0x18, 9]));
    }

    #[test]
    fn malformed_options_are_errors_with_a_name() {
        let header = Header::ethernet(1, MacAddr::new([2, 0, 0, 0, 0, 1]));
        for (code, value) in [
            (code::REQUESTED_ADDRESS, &[10, 0, 0][..]),
            (code::SERVER_ID, &[][..]),
            (code::MAX_MESSAGE_BYTES, &[1, 2, 3][..]),
            (code::CLIENT_ARCH, &[0, 7, 0][..]),
            (code::CLIENT_ARCH, &[][..]),
        ] {
            let error = Request::new(
                header.clone(),
                MessageType::Discover,
                OptionList::new().with(code, value),
            )
            .unwrap_err();
            assert_eq!(
                error,
                PacketError::OptionLength {
                    code,
                    bytes: value.len()
                }
            );
            assert!(PacketError::KINDS.contains(&error.kind()));
        }
    }

    #[test]
    fn what_is_no_request_is_refused_by_name() {
        let good = discover(OptionList::new()).encode().unwrap();
        let broken = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            Request::decode(&bytes).unwrap_err().kind()
        };
        assert_eq!(broken(&|bytes| bytes.truncate(239)), "too_short");
        assert_eq!(broken(&|bytes| bytes.truncate(240)), "no_message_type");
        assert_eq!(broken(&|bytes| bytes[0] = 2), "opcode");
        assert_eq!(broken(&|bytes| bytes[2] = 17), "hardware_length");
        assert_eq!(broken(&|bytes| bytes[237] = 0), "no_magic");
        assert_eq!(broken(&|bytes| bytes[242] = 2), "message_type");
        assert_eq!(broken(&|bytes| bytes[242] = 99), "message_type");
        assert_eq!(
            broken(&|bytes| bytes[243..245].copy_from_slice(&[61, 200])),
            "option_truncated"
        );
    }
}
