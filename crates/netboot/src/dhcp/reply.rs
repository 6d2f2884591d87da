//! What the server says: a message that is built once and coded once.

use std::net::Ipv4Addr;

use super::error::PacketError;
use super::options::{OptionList, code};
use super::packet::{Datagram, HEADER_BYTES, Header, MessageType, encode};

/// The longest message every client must take when it names no limit (RFC 2131 section 2: 576 bytes of IP datagram).
const MESSAGE_BYTES_DEFAULT: usize = 548;

/// A message to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The fixed header. Transaction, relay, flags and hardware address are the request's.
    pub header: Header,
    /// Offer, ack or nak.
    pub message_type: MessageType,
    /// `sname`: the next server as text, at most 63 bytes; NUL-terminated on the wire.
    pub server_name: Vec<u8>,
    /// `file`: the boot file, at most 127 bytes; NUL-terminated on the wire.
    pub boot_file: Vec<u8>,
    /// Options in the order they are sent; relay agent information is sent last.
    pub options: OptionList,
}

impl Reply {
    /// The message as bytes, at least 300 and, where dropping what the header repeats can help, at most
    /// `bytes_max` (option 57; 548 when the client named none).
    ///
    /// Errors only when the codec refuses the header, which no field value causes.
    pub fn encode(&self, bytes_max: Option<u16>) -> Result<Vec<u8>, PacketError> {
        // Clients disagree on whether option 57 counts the IP and UDP headers; the smaller reading suits both.
        let bytes_max = bytes_max
            .map_or(0, |bytes| usize::from(bytes).saturating_sub(28))
            .max(MESSAGE_BYTES_DEFAULT);
        let mut options = self.options.clone();
        // Least needed first: the TFTP server stands in siaddr too, the client identifier is a courtesy (RFC 6842),
        // except to a client without a hardware address, which knows its answers by nothing else (RFC 4390 section 3).
        // Relay information is never dropped: without it the relay cannot find the client.
        for code in [code::TFTP_SERVER_NAME, code::CLIENT_ID, code::MESSAGE] {
            if HEADER_BYTES + options.encoded_bytes() < bytes_max {
                break;
            }
            if code != code::CLIENT_ID || self.header.hlen != 0 {
                options.remove(code);
            }
        }
        encode(&self.header, true, &self.server_name, &self.boot_file, &options)
    }

    /// Reads a server's message; for simulated clients and tests.
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        let Datagram {
            header,
            options,
            message_type,
            sname,
            file,
        } = Datagram::decode_reply(bytes)?;
        Ok(Self {
            header,
            message_type,
            server_name: until_nul(sname),
            boot_file: until_nul(file),
            options,
        })
    }

    /// Option 54: the server's stable address.
    pub fn server_id(&self) -> Option<Ipv4Addr> {
        self.options.address(code::SERVER_ID).ok().flatten()
    }

    /// Option 67 or, without it, the `file` field, as text for people and simulators; empty when nothing is booted.
    pub fn boot_name(&self) -> String {
        let name = self.options.get(code::BOOTFILE_NAME).unwrap_or(&self.boot_file);
        String::from_utf8_lossy(name).into_owned()
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
