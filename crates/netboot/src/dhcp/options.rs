//! The option area, read by ourselves and kept as it came.
//!
//! Idea: an ordered list of `(code, bytes)`. The typed views of [`super::Request`] read from it, so what is echoed
//! (relay agent information, machine identifier) is byte for byte what arrived.
//!
//! Invariant: parts of one option are joined (RFC 3396), options that overflowed into `file` and `sname` are found
//! (option 52, RFC 2132 section 9.3), and anything malformed is an error with a name.
//!
//! Refused: the option decoder of `dhcproto`. It ignores option 52, keeps one architecture of the list in option 93,
//! and stops silently at the first option it cannot read, which turns a broken client into a puzzling one.

use std::net::Ipv4Addr;

use dhcproto::Encoder;
use dhcproto::v4::{OptionCode, encode_long_opt_bytes};

use super::error::PacketError;

/// Option codes used here, named as in the IANA registry.
#[allow(missing_docs)]
pub mod code {
    pub const PAD: u8 = 0;
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS_SERVER: u8 = 6;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER_ID: u8 = 54;
    pub const PARAMETER_LIST: u8 = 55;
    pub const MESSAGE: u8 = 56;
    pub const MAX_MESSAGE_BYTES: u8 = 57;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const VENDOR_CLASS: u8 = 60;
    pub const CLIENT_ID: u8 = 61;
    pub const TFTP_SERVER_NAME: u8 = 66;
    pub const BOOTFILE_NAME: u8 = 67;
    pub const USER_CLASS: u8 = 77;
    pub const RELAY_AGENT: u8 = 82;
    pub const CLIENT_ARCH: u8 = 93;
    pub const MACHINE_ID: u8 = 97;
    pub const VENDOR_OPTIONS: u8 = 43;
    pub const IPXE: u8 = 175;
    pub const END: u8 = 255;
}

/// Options in the order they were met, each code once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OptionList {
    entries: Vec<(u8, Vec<u8>)>,
}

impl OptionList {
    /// No options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the option area (what follows the magic cookie) and, where option 52 says so, `file` and `sname` too.
    ///
    /// A missing end mark is accepted, as real clients leave it out. Errors: an option that runs past its area, or an
    /// overload value that does not exist.
    pub fn parse(area: &[u8], file: &[u8], sname: &[u8]) -> Result<Self, PacketError> {
        let mut list = Self::default();
        list.scan(area)?;
        // RFC 2132 section 9.3: 1 is `file`, 2 is `sname`, 3 both. RFC 2131 section 4.1: `file` is read first.
        let overload = match list.get(code::OVERLOAD) {
            None => 0,
            Some([value @ 1..=3]) => *value,
            Some([value]) => return Err(PacketError::Overload { value: *value }),
            Some(bytes) => {
                return Err(PacketError::OptionLength {
                    code: code::OVERLOAD,
                    bytes: bytes.len(),
                });
            }
        };
        list.entries.retain(|(found, _)| *found != code::OVERLOAD);
        if overload & 1 != 0 {
            list.scan(file)?;
        }
        if overload & 2 != 0 {
            list.scan(sname)?;
        }
        // An overload option inside an overloaded field means nothing, and must not survive to be echoed.
        list.entries.retain(|(found, _)| *found != code::OVERLOAD);
        Ok(list)
    }

    fn scan(&mut self, area: &[u8]) -> Result<(), PacketError> {
        let mut rest = area;
        while let [code, tail @ ..] = rest {
            match *code {
                code::PAD => rest = tail,
                code::END => break,
                code => {
                    let (length, tail) = tail.split_first().ok_or(PacketError::OptionTruncated { code })?;
                    let (value, tail) = tail
                        .split_at_checked(usize::from(*length))
                        .ok_or(PacketError::OptionTruncated { code })?;
                    self.append(code, value);
                    rest = tail;
                }
            }
        }
        Ok(())
    }

    /// Joins a part to the option of that code, which is where RFC 3396 wants it.
    fn append(&mut self, code: u8, value: &[u8]) {
        match self.entries.iter_mut().find(|(found, _)| *found == code) {
            Some((_, bytes)) => bytes.extend_from_slice(value),
            None => self.entries.push((code, value.to_vec())),
        }
    }

    /// Sets an option at the end of the list, in place of one of the same code.
    pub fn set(&mut self, code: u8, value: impl Into<Vec<u8>>) {
        self.remove(code);
        self.entries.push((code, value.into()));
    }

    /// Sets an option at the start of the list, where most clients put the message type.
    pub(crate) fn set_first(&mut self, code: u8, value: impl Into<Vec<u8>>) {
        self.remove(code);
        self.entries.insert(0, (code, value.into()));
    }

    /// The same list with one option set; for building lists in one expression.
    #[must_use]
    pub fn with(mut self, code: u8, value: impl Into<Vec<u8>>) -> Self {
        self.set(code, value);
        self
    }

    /// Takes an option out.
    pub fn remove(&mut self, code: u8) -> Option<Vec<u8>> {
        let index = self.entries.iter().position(|(found, _)| *found == code)?;
        Some(self.entries.remove(index).1)
    }

    /// The value of an option, as it travelled.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.entries
            .iter()
            .find(|(found, _)| *found == code)
            .map(|(_, value)| value.as_slice())
    }

    /// All options in order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.entries.iter().map(|(code, value)| (*code, value.as_slice()))
    }

    /// An address option; an error when it is there with another length than 4.
    pub(crate) fn address(&self, code: u8) -> Result<Option<Ipv4Addr>, PacketError> {
        Ok(self.fixed::<4>(code)?.map(Ipv4Addr::from))
    }

    /// An option of exactly `N` bytes.
    pub(crate) fn fixed<const N: usize>(&self, code: u8) -> Result<Option<[u8; N]>, PacketError> {
        self.get(code)
            .map(|value| {
                <[u8; N]>::try_from(value).map_err(|_| PacketError::OptionLength {
                    code,
                    bytes: value.len(),
                })
            })
            .transpose()
    }

    /// Writes the options after what `encoder` holds, without an end mark.
    ///
    /// Relay agent information goes last whatever its place in the list (RFC 3046 section 2.1). One pad byte follows
    /// the boot file name: old ROMs read that option up to a NUL and would take the next code for a part of the name,
    /// while a NUL inside the option is more than RFC 2132 allows.
    pub(crate) fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), PacketError> {
        let is_relay = |entry: &&(u8, Vec<u8>)| entry.0 == code::RELAY_AGENT;
        let ordered = self
            .entries
            .iter()
            .filter(|entry| !is_relay(entry))
            .chain(self.entries.iter().filter(is_relay));
        for (code, value) in ordered {
            if value.is_empty() {
                encoder.write_slice(&[*code, 0]).map_err(|_| PacketError::Header)?;
            } else {
                encode_long_opt_bytes(OptionCode::from(*code), value, encoder).map_err(|_| PacketError::Header)?;
            }
            if *code == code::BOOTFILE_NAME {
                encoder.write_u8(code::PAD).map_err(|_| PacketError::Header)?;
            }
        }
        Ok(())
    }

    /// Bytes that [`OptionList::encode`] will write, without the end mark.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.entries
            .iter()
            .map(|(code, value)| {
                let heads = value.len().div_ceil(255).max(1) * 2;
                value.len() + heads + usize::from(*code == code::BOOTFILE_NAME)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(area: &[u8]) -> Result<OptionList, PacketError> {
        OptionList::parse(area, &[0; 128], &[0; 64])
    }

    #[test]
    fn options_are_read_in_order_with_pads_and_without_an_end_mark() {
        let list = parse(&[0, 53, 1, 1, 0, 0, 93, 4, 0, 7, 0, 16]).unwrap();
        assert_eq!(
            list.iter().collect::<Vec<_>>(),
            vec![(53, &[1][..]), (93, &[0, 7, 0, 16][..])]
        );
    }

    #[test]
    fn nothing_counts_after_the_end_mark() {
        assert_eq!(parse(&[53, 1, 1, 255, 60, 1, b'x', 61, 99]).unwrap().iter().count(), 1);
    }

    #[test]
    fn parts_of_one_option_are_joined() {
        let list = parse(&[60, 3, b'P', b'X', b'E', 53, 1, 1, 60, 2, b'C', b'l', 255]).unwrap();
        assert_eq!(list.get(60), Some(&b"PXECl"[..]));
    }

    #[test]
    fn overloaded_fields_are_read() {
        let mut file = [0; 128];
        file[..5].copy_from_slice(&[93, 2, 0, 7, 255]);
        let mut sname = [0; 64];
        sname[..4].copy_from_slice(&[97, 1, 9, 255]);
        for (overload, arch, uuid) in [(1, true, false), (2, false, true), (3, true, true)] {
            let list = OptionList::parse(&[52, 1, overload, 53, 1, 1, 255], &file, &sname).unwrap();
            assert_eq!(
                (list.get(93).is_some(), list.get(97).is_some()),
                (arch, uuid),
                "overload {overload}"
            );
            assert_eq!(list.get(52), None);
        }
        assert_eq!(
            OptionList::parse(&[52, 1, 4, 255], &file, &sname),
            Err(PacketError::Overload { value: 4 })
        );
        assert_eq!(
            parse(&[52, 1, 1]).map(|list| list.iter().count()),
            Ok(0),
            "an empty overloaded field is fine"
        );
    }

    #[test]
    fn an_option_past_the_end_is_an_error_and_not_silence() {
        for area in [&[53, 1, 1, 60][..], &[53, 1, 1, 60, 33, b'H'][..]] {
            assert_eq!(parse(area), Err(PacketError::OptionTruncated { code: 60 }));
        }
    }

    #[test]
    fn long_values_are_split_and_the_length_is_known_before() {
        let list = OptionList::new()
            .with(82, vec![1; 3])
            .with(43, vec![7; 300])
            .with(67, *b"x")
            .with(80, []);
        let mut bytes = Vec::new();
        list.encode(&mut Encoder::new(&mut bytes)).unwrap();
        assert_eq!(bytes.len(), list.encoded_bytes());
        assert!(
            bytes.ends_with(&[67, 1, b'x', 0, 80, 0, 82, 3, 1, 1, 1]),
            "a NUL ends the name, 82 is last: {bytes:?}"
        );
        assert_eq!(parse(&bytes).unwrap().get(43), Some(&[7; 300][..]));
    }
}
