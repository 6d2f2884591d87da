//! The wire: five kinds of packet of RFC 1350 section 5, and the option acknowledgement of RFC 2347.

/// The longest request that is read, in bytes. RFC 2347 allows 512; some loaders send a little more.
pub const REQUEST_BYTES_MAX: usize = 1024;
/// Options read from one request; the rest is malformed.
const OPTIONS_MAX: usize = 16;

/// Error codes of RFC 1350 section 5 and RFC 2347.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// 0: see the message.
    Undefined,
    /// 1: no such file.
    NotFound,
    /// 2: not allowed.
    AccessViolation,
    /// 4: not a TFTP operation that is served.
    IllegalOperation,
    /// 5: the packet is not from the port this transfer belongs to.
    UnknownTransfer,
    /// 8: the client does not want the options, or only wanted to know the size.
    OptionsRefused,
    /// Any other number.
    Other(u16),
}

impl ErrorCode {
    /// The number on the wire.
    pub fn value(self) -> u16 {
        match self {
            Self::Undefined => 0,
            Self::NotFound => 1,
            Self::AccessViolation => 2,
            Self::IllegalOperation => 4,
            Self::UnknownTransfer => 5,
            Self::OptionsRefused => 8,
            Self::Other(value) => value,
        }
    }
}

impl From<u16> for ErrorCode {
    fn from(value: u16) -> Self {
        match value {
            0 => Self::Undefined,
            1 => Self::NotFound,
            2 => Self::AccessViolation,
            4 => Self::IllegalOperation,
            5 => Self::UnknownTransfer,
            8 => Self::OptionsRefused,
            other => Self::Other(other),
        }
    }
}

/// The transfer mode of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferMode {
    /// Bytes as they are.
    Octet,
    /// Text with translated line ends.
    Netascii,
    /// Anything else, such as `mail`.
    Other,
}

/// One option as it was written: name in the client's spelling, value as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireOption {
    /// Name; compared without regard to case, echoed as written.
    pub name: Vec<u8>,
    /// Value; decimal text for every option in use.
    pub value: Vec<u8>,
}

/// A read or write request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRequest {
    /// True for a write request.
    pub is_write: bool,
    /// The name as sent, without its NUL.
    pub name: Vec<u8>,
    /// Transfer mode.
    pub mode: TransferMode,
    /// Options in the order sent.
    pub options: Vec<WireOption>,
}

/// One datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Opcodes 1 and 2.
    Request(FileRequest),
    /// Opcode 3: a block of content.
    Data {
        /// Block number, modulo 65536.
        block: u16,
        /// Content.
        payload: &'a [u8],
    },
    /// Opcode 4: everything up to this block arrived.
    Ack {
        /// Block number, modulo 65536.
        block: u16,
    },
    /// Opcode 5: the other side gives up.
    Error {
        /// Why.
        code: ErrorCode,
        /// Text for people; not necessarily UTF-8.
        message: &'a [u8],
    },
    /// Opcode 6: options that were agreed on.
    OptionAck(Vec<WireOption>),
}

/// Why a datagram is not TFTP. Each has a stable name for counting: [`PacketError::kind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Too short to hold what its opcode needs.
    #[error("the packet is cut short")]
    TooShort,
    /// Longer than any packet of a reader.
    #[error("the packet is longer than {bytes_max} bytes")]
    TooLong {
        /// The bound it broke, in bytes.
        bytes_max: usize,
    },
    /// An opcode that does not exist.
    #[error("opcode {found} does not exist")]
    Opcode {
        /// Opcode in the datagram.
        found: u16,
    },
    /// A text without its NUL, or a request without its mode.
    #[error("a text in the request does not end, or the mode is missing")]
    Unterminated,
    /// More options than anybody has a use for.
    #[error("the request has too many options")]
    TooManyOptions,
}

impl PacketError {
    /// Every name that [`PacketError::kind`] gives.
    pub const KINDS: &'static [&'static str] = &["too_short", "too_long", "opcode", "unterminated", "too_many_options"];

    /// A stable name for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::TooLong { .. } => "too_long",
            Self::Opcode { .. } => "opcode",
            Self::Unterminated => "unterminated",
            Self::TooManyOptions => "too_many_options",
        }
    }
}

impl<'a> Packet<'a> {
    /// Reads a datagram. Any bytes are allowed; none panic.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let [high, low, rest @ ..] = bytes else {
            return Err(PacketError::TooShort);
        };
        match u16::from_be_bytes([*high, *low]) {
            opcode @ (1 | 2) => request(opcode == 2, rest).map(Self::Request),
            3 => number(rest).map(|(block, payload)| Self::Data { block, payload }),
            4 => number(rest).map(|(block, _)| Self::Ack { block }),
            5 => number(rest).map(|(code, message)| {
                // Some firmware leaves the NUL out.
                let end = message.iter().position(|byte| *byte == 0).unwrap_or(message.len());
                Self::Error {
                    code: code.into(),
                    message: &message[..end],
                }
            }),
            6 => wire_options(rest).map(Self::OptionAck),
            found => Err(PacketError::Opcode { found }),
        }
    }

    /// Writes the datagram in place of what `buffer` held.
    pub fn encode_into(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        let mut numbers = |opcode: u16, number: u16| {
            buffer.extend_from_slice(&opcode.to_be_bytes());
            buffer.extend_from_slice(&number.to_be_bytes());
        };
        match self {
            Self::Request(request) => {
                buffer.extend_from_slice(&[0, if request.is_write { 2 } else { 1 }]);
                push_text(buffer, &request.name);
                let mode: &[u8] = match request.mode {
                    TransferMode::Octet => b"octet",
                    TransferMode::Netascii => b"netascii",
                    TransferMode::Other => b"mail",
                };
                push_text(buffer, mode);
                push_options(buffer, &request.options);
            }
            Self::Data { block, payload } => {
                numbers(3, *block);
                buffer.extend_from_slice(payload);
            }
            Self::Ack { block } => numbers(4, *block),
            Self::Error { code, message } => {
                numbers(5, code.value());
                push_text(buffer, message);
            }
            Self::OptionAck(options) => {
                buffer.extend_from_slice(&[0, 6]);
                push_options(buffer, options);
            }
        }
    }

    /// The datagram as new bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut buffer = Vec::new();
        self.encode_into(&mut buffer);
        buffer
    }
}

fn push_text(buffer: &mut Vec<u8>, text: &[u8]) {
    buffer.extend_from_slice(text);
    buffer.push(0);
}

fn push_options(buffer: &mut Vec<u8>, options: &[WireOption]) {
    for option in options {
        push_text(buffer, &option.name);
        push_text(buffer, &option.value);
    }
}

fn number(rest: &[u8]) -> Result<(u16, &[u8]), PacketError> {
    match rest {
        [high, low, tail @ ..] => Ok((u16::from_be_bytes([*high, *low]), tail)),
        _ => Err(PacketError::TooShort),
    }
}

fn text(rest: &[u8]) -> Result<(&[u8], &[u8]), PacketError> {
    let end = rest
        .iter()
        .position(|byte| *byte == 0)
        .ok_or(PacketError::Unterminated)?;
    Ok((&rest[..end], &rest[end + 1..]))
}

fn request(is_write: bool, rest: &[u8]) -> Result<FileRequest, PacketError> {
    let (name, rest) = text(rest)?;
    let (mode, rest) = text(rest)?;
    let mode = if mode.eq_ignore_ascii_case(b"octet") {
        TransferMode::Octet
    } else if mode.eq_ignore_ascii_case(b"netascii") {
        TransferMode::Netascii
    } else {
        TransferMode::Other
    };
    let options = wire_options(rest)?;
    Ok(FileRequest {
        is_write,
        name: name.to_vec(),
        mode,
        options,
    })
}

fn wire_options(mut rest: &[u8]) -> Result<Vec<WireOption>, PacketError> {
    let mut options = Vec::new();
    // An empty name is where padding starts: firmware is known to fill the packet up with NULs.
    while !rest.is_empty() && rest[0] != 0 {
        if options.len() == OPTIONS_MAX {
            return Err(PacketError::TooManyOptions);
        }
        let (name, tail) = text(rest)?;
        let (value, tail) = text(tail)?;
        options.push(WireOption {
            name: name.to_vec(),
            value: value.to_vec(),
        });
        rest = tail;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_options_is_read_and_written_back() {
        let bytes = b"\x00\x01shimx64.efi\0octet\0tsize\x000\0blksize\x001468\0";
        let packet = Packet::decode(bytes).unwrap();
        let Packet::Request(request) = &packet else {
            panic!("{packet:?}")
        };
        assert_eq!(
            (request.name.as_slice(), request.mode),
            (&b"shimx64.efi"[..], TransferMode::Octet)
        );
        assert_eq!(request.options[1].value, b"1468");
        assert_eq!(packet.encode(), bytes);
    }

    #[test]
    fn padding_after_the_mode_is_no_option() {
        let Packet::Request(request) = Packet::decode(b"\x00\x01a\0OCTET\0\0\0\0").unwrap() else {
            panic!()
        };
        assert_eq!((request.mode, request.options.len()), (TransferMode::Octet, 0));
        let padded = b"\x00\x01a\0octet\0tsize\x000\0\0\0";
        let Packet::Request(request) = Packet::decode(padded).unwrap() else {
            panic!()
        };
        assert_eq!(request.options.len(), 1);
    }

    #[test]
    fn what_is_no_packet_has_a_name() {
        let many = [&b"\x00\x01a\0octet\0"[..], &b"o\x001\0".repeat(17)].concat();
        for (bytes, kind) in [
            (&b""[..], "too_short"),
            (&b"\0"[..], "too_short"),
            (&b"\0\x04\0"[..], "too_short"),
            (&b"\0\x09abc\0octet\0"[..], "opcode"),
            (&b"\0\x01name"[..], "unterminated"),
            (&b"\0\x01name\0"[..], "unterminated"),
            (&b"\0\x01name\0octet"[..], "unterminated"),
            (&b"\0\x01name\0octet\0tsize\0"[..], "unterminated"),
            (&many[..], "too_many_options"),
        ] {
            assert_eq!(Packet::decode(bytes).unwrap_err().kind(), kind, "{bytes:?}");
        }
    }
}
