//! Messages as text for logs and golden files: one field a line, nothing left out, nothing that depends on the clock.

use std::fmt;

use super::options::{OptionList, code};
use super::packet::{Header, Request};
use super::policy::{Decision, Destination, LeaseEvent};
use super::reply::Reply;

fn header_text(header: &Header, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Header {
        htype,
        hlen,
        hops,
        xid,
        secs,
        flags,
        ciaddr,
        yiaddr,
        siaddr,
        giaddr,
        ..
    } = header;
    writeln!(formatter, "  xid {xid:08x} secs {secs} flags {flags:04x} hops {hops}")?;
    writeln!(
        formatter,
        "  htype {htype} hlen {hlen} address {}",
        hex(header.link_address())
    )?;
    writeln!(
        formatter,
        "  ciaddr {ciaddr} yiaddr {yiaddr} siaddr {siaddr} giaddr {giaddr}"
    )
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if pairs.is_empty() {
        "-".to_owned()
    } else {
        pairs.join(":")
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn options_text(options: &OptionList, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (code, value) in options.iter() {
        let text = match code {
            code::VENDOR_CLASS | code::USER_CLASS | code::TFTP_SERVER_NAME | code::BOOTFILE_NAME | code::MESSAGE => {
                format!("\"{}\"", printable(value))
            }
            code::SERVER_ID | code::REQUESTED_ADDRESS | code::SUBNET_MASK | code::ROUTER | code::DNS_SERVER => {
                let parts: Vec<String> = value
                    .chunks(4)
                    .map(|part| part.iter().map(u8::to_string).collect::<Vec<_>>().join("."))
                    .collect();
                parts.join(" ")
            }
            code::LEASE_TIME | code::RENEWAL_TIME | code::REBINDING_TIME => {
                let secs = value.iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
                format!("{secs} s")
            }
            _ => hex(value),
        };
        writeln!(formatter, "  option {code} {text}")?;
    }
    Ok(())
}

impl fmt::Display for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.message_type().name())?;
        header_text(self.header(), formatter)?;
        options_text(self.options(), formatter)
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.message_type.name())?;
        header_text(&self.header, formatter)?;
        writeln!(formatter, "  sname \"{}\"", printable(&self.server_name))?;
        writeln!(formatter, "  file \"{}\"", printable(&self.boot_file))?;
        options_text(&self.options, formatter)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relay(ip) => write!(formatter, "relay {ip}"),
            Self::Client(ip) => write!(formatter, "client {ip}"),
            Self::Broadcast => write!(formatter, "broadcast"),
            Self::Asker(ip) => write!(formatter, "asker {ip}"),
            Self::Sender => write!(formatter, "sender"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignore { reason } => writeln!(formatter, "ignore: {}", reason.as_str()),
            Self::Lease(LeaseEvent::Released { ip }) => writeln!(formatter, "released {ip}"),
            Self::Lease(LeaseEvent::Declined { ip }) => writeln!(formatter, "declined {ip}"),
            Self::Reply(plan) => {
                write!(
                    formatter,
                    "to {}, boots {}: {}",
                    plan.destination,
                    plan.boot.stage(),
                    plan.reply
                )
            }
        }
    }
}
