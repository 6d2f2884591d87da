//! Why a datagram is not a DHCP message that can be answered.

/// Why a datagram was dropped. Each has a stable name for counting: [`PacketError::kind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Shorter than the fixed header and magic cookie.
    #[error("{bytes} bytes are fewer than the 240 of a DHCP header")]
    TooShort {
        /// Length of the datagram.
        bytes: usize,
    },
    /// Longer than any datagram the server reads.
    #[error("the datagram is longer than {bytes_max} bytes")]
    TooLong {
        /// The bound it broke, in bytes.
        bytes_max: usize,
    },
    /// The magic cookie of RFC 2131 section 3 is missing: plain BOOTP or noise.
    #[error("the DHCP magic cookie is missing")]
    NoMagic,
    /// The opcode is not the expected one: a reply where a request should be, or the reverse.
    #[error("opcode {found} where {expected} was expected")]
    Opcode {
        /// Opcode in the datagram.
        found: u8,
        /// Opcode expected at this port.
        expected: u8,
    },
    /// The hardware address claims more than the 16 octets there are.
    #[error("hardware address length {found} is above 16")]
    HardwareLength {
        /// Length in the datagram.
        found: u8,
    },
    /// An option claims more bytes than its area holds.
    #[error("option {code} runs past the end of its area")]
    OptionTruncated {
        /// The option.
        code: u8,
    },
    /// An option has a length its definition does not allow.
    #[error("option {code} has the impossible length {bytes}")]
    OptionLength {
        /// The option.
        code: u8,
        /// Its length, all parts together (RFC 3396).
        bytes: usize,
    },
    /// Option 52 has a value other than 1, 2 or 3 (RFC 2132 section 9.3).
    #[error("option overload {value} is not 1, 2 or 3")]
    Overload {
        /// Value in the datagram.
        value: u8,
    },
    /// No option 53: plain BOOTP.
    #[error("there is no message type (option 53)")]
    NoMessageType,
    /// A message type that this side does not take.
    #[error("message type {found} is not for this side")]
    MessageType {
        /// Value of option 53.
        found: u8,
    },
    /// The codec under ours refused the header.
    #[error("the header cannot be coded")]
    Header,
}

impl PacketError {
    /// Every name that [`PacketError::kind`] gives.
    pub const KINDS: &'static [&'static str] = &[
        "too_short",
        "too_long",
        "no_magic",
        "opcode",
        "hardware_length",
        "option_truncated",
        "option_length",
        "overload",
        "no_message_type",
        "message_type",
        "header",
    ];

    /// A stable name for counting; never changes with the wording of the message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooShort { .. } => "too_short",
            Self::TooLong { .. } => "too_long",
            Self::NoMagic => "no_magic",
            Self::Opcode { .. } => "opcode",
            Self::HardwareLength { .. } => "hardware_length",
            Self::OptionTruncated { .. } => "option_truncated",
            Self::OptionLength { .. } => "option_length",
            Self::Overload { .. } => "overload",
            Self::NoMessageType => "no_message_type",
            Self::MessageType { .. } => "message_type",
            Self::Header => "header",
        }
    }
}
