//! UDP sockets with the options both protocols need.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

/// What a socket is opened with.
pub(crate) struct UdpOptions<'a> {
    /// Where it listens; port 0 lets the kernel choose.
    pub(crate) address: SocketAddr,
    /// Interface it is tied to (SO_BINDTODEVICE), so that neither questions nor answers use another one.
    pub(crate) interface: Option<&'a str>,
    /// SO_BROADCAST: needed to send to 255.255.255.255.
    pub(crate) broadcast: bool,
    /// SO_REUSEADDR: one socket an interface may listen on the same wildcard address and port.
    pub(crate) reuse_address: bool,
    /// Receive buffer asked of the kernel, in bytes; the kernel caps it at net.core.rmem_max.
    pub(crate) receive_buffer_bytes: Option<usize>,
}

/// Opens the socket and hands it to the runtime.
pub(crate) fn udp_open(options: &UdpOptions<'_>) -> io::Result<UdpSocket> {
    UdpSocket::from_std(udp_open_std(options)?)
}

/// Opens the socket, non-blocking, for whoever waits for it without the runtime.
pub(crate) fn udp_open_std(options: &UdpOptions<'_>) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(options.address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(options.reuse_address)?;
    socket.set_broadcast(options.broadcast)?;
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(interface) = options.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&options.address.into())?;
    Ok(socket.into())
}
