//! What a site's DHCP server tells firmware that the rack has no machine with: one question on the wire, and its answer.
//!
//! QEMU's BIOS machines have an iPXE as their NIC's ROM, so nothing in a rack asks as the ROM of an ordinary card does.

use crate::command::run_checked;
use crate::netns::{NetworkNamespace, UPLINK};
use anyhow::{Context as _, Result, ensure};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// The asking host's address on the wire; the question itself names none.
const ADDRESS: &str = "10.77.0.3/24";
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const MAC: [u8; 6] = [0x52, 0x54, 0x00, 0x77, 0xff, 0x01];
const TRANSACTION: [u8; 4] = *b"lab1";
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// BOOTP's fixed part with the cookie (RFC 2131 section 2).
const HEAD_BYTES: usize = 240;
/// Where `siaddr` and `file` are in it.
const SERVER_AT: usize = 20;
const FILE_AT: std::ops::Range<usize> = 108..236;
const BOOT_FILE_OPTION: u8 = 67;

/// What a machine is told to boot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// `siaddr`: whose TFTP.
    pub next_server: Ipv4Addr,
    /// The boot file, from `file` or option 67.
    pub boot_file: String,
}

/// Asks as the PXE ROM of a BIOS machine does (option 93 = 0, no iPXE), from a host of its own on the rack's wire.
///
/// # Errors
/// When no offer comes in time, or it cannot be read.
pub(super) fn ask_as_bios(rack: &NetworkNamespace) -> Result<Told> {
    let host = rack.add_host("asks", ADDRESS)?;
    let mut route = host.command("ip");
    route.args(["route", "add", "255.255.255.255/32", "dev", UPLINK]);
    run_checked(&mut route, COMMAND_LIMIT)?;
    host.enter(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68)).context("port 68")?;
        socket.set_broadcast(true)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        socket.send_to(&discover(), (Ipv4Addr::BROADCAST, 67))?;
        let mut answer = [0; 1500];
        let read = socket.recv(&mut answer).context("no offer")?;
        told(answer.get(..read).unwrap_or_default())
    })
}

/// A DISCOVER whose answer is broadcast.
fn discover() -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0];
    message.extend(TRANSACTION);
    message.extend([0, 0, 0x80, 0]);
    message.extend([0; 16]);
    message.extend(MAC);
    message.resize(HEAD_BYTES - COOKIE.len(), 0);
    message.extend(COOKIE);
    let class = b"PXEClient:Arch:00000:UNDI:002001";
    for (code, value) in [
        (53, &[1][..]),
        (55, &[1, 3, 43, 54, 60, 66, 67]),
        (60, class),
        (93, &[0, 0]),
        (94, &[1, 2, 1]),
    ] {
        message.extend([code, value.len() as u8]);
        message.extend(value);
    }
    message.push(255);
    message.resize(message.len().max(300), 0);
    message
}

/// Reads an offer.
fn told(offer: &[u8]) -> Result<Told> {
    ensure!(
        offer.get(4..8) == Some(&TRANSACTION[..]) && offer.len() > HEAD_BYTES,
        "not the answer to what was asked: {} bytes",
        offer.len()
    );
    let server: [u8; 4] = offer
        .get(SERVER_AT..SERVER_AT + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .context("siaddr")?;
    let file = offer.get(FILE_AT).context("file")?;
    let named = option(offer.get(HEAD_BYTES..).unwrap_or_default(), BOOT_FILE_OPTION).unwrap_or(file);
    let named = named.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Told {
        next_server: server.into(),
        boot_file: String::from_utf8_lossy(named).into_owned(),
    })
}

/// The value of an option; none where it is not there or cut off.
fn option(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [code, rest @ ..] = options {
        match code {
            0 => options = rest,
            255 => return None,
            _ => {
                let (length, rest) = rest.split_first()?;
                let value = rest.get(..usize::from(*length))?;
                if *code == wanted {
                    return Some(value);
                }
                options = rest.get(usize::from(*length)..)?;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(file: &[u8], options: &[u8]) -> Vec<u8> {
        let mut offer = discover();
        offer.truncate(HEAD_BYTES);
        offer[SERVER_AT..SERVER_AT + 4].copy_from_slice(&[10, 77, 0, 1]);
        offer[FILE_AT][..file.len()].copy_from_slice(file);
        offer.extend(options);
        offer
    }

    #[test]
    fn the_boot_file_is_read_from_either_place() {
        let by_field = told(&offer(b"undionly.kpxe", &[53, 1, 2, 255])).unwrap();
        let by_option = told(&offer(
            b"",
            &[
                0, 53, 1, 2, 67, 14, b'u', b'n', b'd', b'i', b'o', b'n', b'l', b'y', b'.', b'k', b'p', b'x', b'e', 0,
                255,
            ],
        ))
        .unwrap();
        assert_eq!(by_field.boot_file, "undionly.kpxe");
        assert_eq!(by_field, by_option);
        assert_eq!(by_field.next_server, Ipv4Addr::new(10, 77, 0, 1));
    }

    #[test]
    fn what_is_cut_off_is_no_file() {
        assert_eq!(told(&offer(b"", &[67, 99, b'x'])).unwrap().boot_file, "");
        assert!(told(b"lab1").is_err());
    }
}
