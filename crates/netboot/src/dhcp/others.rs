//! Other DHCP servers on the segment: who else offers addresses here.
//!
//! Idea: what servers broadcast comes to port 68 of everybody, this host included. Where this server is the network's own
//! (mode `full`), it also asks now and then as a client would, with the broadcast bit set, so that servers which answer by
//! unicast are heard as well.
//!
//! Invariant: beside a site's own server nothing is sent: a proxy only listens.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::error::PacketError;
use super::options::OptionList;
use super::packet::{Header, MessageType, Request};
use super::reply::Reply;
use crate::mac::MacAddr;
use crate::socket::{UdpOptions, udp_open};

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
const DATAGRAM_BYTES_MAX: usize = 2048;
/// Soon after the start, and then as often as a person would look.
const FIRST_ASK: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(600);
const RECEIVE_RETRY: Duration = Duration::from_secs(1);

/// A word of a DHCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHeard {
    /// Its server identifier.
    pub server: Ipv4Addr,
    /// Offer, ack or nak.
    pub message_type: MessageType,
    /// The client it speaks to; none where it has no Ethernet address.
    pub client: Option<MacAddr>,
}

impl ServerHeard {
    /// Reads a datagram that came to a client's port; none where it names no server.
    ///
    /// Errors: a message that cannot be read.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, PacketError> {
        let reply = Reply::decode(bytes)?;
        let Some(server) = reply.server_id() else {
            return Ok(None);
        };
        let client = match reply.header.link_address() {
            [a, b, c, d, e, f] => Some(MacAddr::new([*a, *b, *c, *d, *e, *f])).filter(|mac| !mac.is_zero()),
            _ => None,
        };
        Ok(Some(Self {
            server,
            message_type: reply.message_type,
            client,
        }))
    }
}

/// A socket at the clients' port.
#[derive(Debug)]
pub struct Listener {
    socket: UdpSocket,
    asks_as: Option<MacAddr>,
}

impl Listener {
    /// Listens on an interface. With `asks_as`, that MAC's address is asked for now and then.
    ///
    /// # Errors
    /// When the port is taken (a DHCP client on the same interface), or the interface does not exist.
    pub fn bind(interface: &str, asks_as: Option<MacAddr>) -> io::Result<Self> {
        let options = UdpOptions {
            address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLIENT_PORT)),
            interface: Some(interface),
            broadcast: true,
            reuse_address: true,
            receive_buffer_bytes: None,
        };
        Ok(Self {
            socket: udp_open(&options)?,
            asks_as,
        })
    }

    /// Tells of each word of a server, until cancelled.
    pub async fn run<F, R>(self, heard: F, cancel: CancellationToken)
    where
        F: Fn(ServerHeard) -> R,
        R: Future<Output = ()>,
    {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let mut next_ask = tokio::time::Instant::now() + FIRST_ASK;
        loop {
            let received = tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep_until(next_ask), if self.asks_as.is_some() => {
                    next_ask += ASK_EVERY;
                    self.ask().await;
                    continue;
                }
                received = self.socket.recv_from(&mut buffer) => received,
            };
            match received.map(|(length, _)| ServerHeard::decode(&buffer[..length])) {
                Ok(Ok(Some(word))) => heard(word).await,
                Ok(Ok(None)) => {}
                Ok(Err(error)) => debug!(%error, "a message at the clients' port cannot be read"),
                Err(error) => {
                    debug!(%error, "receiving at the clients' port failed");
                    tokio::time::sleep(RECEIVE_RETRY).await;
                }
            }
        }
    }

    async fn ask(&self) {
        let Some(mac) = self.asks_as else { return };
        let sent = match discover(mac) {
            Ok(bytes) => {
                let everybody = SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER_PORT);
                self.socket.send_to(&bytes, everybody).await.map(drop)
            }
            Err(error) => Err(io::Error::other(error)),
        };
        if let Err(error) = sent {
            debug!(%error, "nobody could be asked for other DHCP servers");
        }
    }
}

/// A request for an address, answered by broadcast. It names no architecture, so that no boot server takes it for a
/// machine that boots.
fn discover(mac: MacAddr) -> Result<Vec<u8>, PacketError> {
    let mut header = Header::ethernet(0x504c_424e, mac);
    header.flags = Header::BROADCAST;
    Request::new(header, MessageType::Discover, OptionList::new())?.encode()
}

#[cfg(test)]
mod tests {
    use super::super::options::code;
    use super::*;

    const MAC: MacAddr = MacAddr::new([0x52, 0x54, 0, 0xaa, 0, 1]);

    fn reply(server: Option<[u8; 4]>) -> Vec<u8> {
        let mut options = OptionList::new().with(code::MESSAGE_TYPE, [MessageType::Offer.value()]);
        if let Some(server) = server {
            options.set(code::SERVER_ID, server);
        }
        let reply = Reply {
            header: Header::ethernet(7, MAC),
            message_type: MessageType::Offer,
            server_name: Vec::new(),
            boot_file: Vec::new(),
            options,
        };
        reply.encode(None).unwrap()
    }

    #[test]
    fn an_offer_names_its_server_and_its_client() {
        let bytes = reply(Some([10, 77, 0, 2]));
        let heard = ServerHeard::decode(&bytes).unwrap().unwrap();
        assert_eq!(
            (heard.server, heard.message_type, heard.client),
            (Ipv4Addr::new(10, 77, 0, 2), MessageType::Offer, Some(MAC))
        );
        assert_eq!(ServerHeard::decode(&reply(None)).unwrap(), None);
        assert!(ServerHeard::decode(&bytes[..100]).is_err());
        assert!(
            ServerHeard::decode(&discover(MAC).unwrap()).is_err(),
            "a client's own word"
        );
    }

    #[test]
    fn the_question_is_one_that_is_answered_by_broadcast_and_is_no_boot() {
        let asked = Request::decode(&discover(MAC).unwrap()).unwrap();
        assert_eq!(asked.message_type(), MessageType::Discover);
        assert_eq!(asked.header().flags, Header::BROADCAST);
        assert_eq!(asked.client_arches(), Vec::<u16>::new());
    }
}
