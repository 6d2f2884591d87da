//! Two wires in network namespaces, with a server's interface at one end of each and a machine at the other.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use lab::command::run_checked;
use lab::netns::NetworkNamespace;
use netboot::MacAddr;
use netboot::dhcp::options::code;
use netboot::dhcp::{Header, MessageType, OptionList, Reply, Request};

pub const LIMIT: Duration = Duration::from_secs(20);
/// How long a machine waits for an answer before it asks again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// A network namespace without anything in it.
pub fn bare(purpose: &str) -> NetworkNamespace {
    let namespace = NetworkNamespace::create_unique(purpose).unwrap();
    ip(&namespace, "link delete br0");
    namespace
}

/// `ip` inside a namespace.
pub fn ip(namespace: &NetworkNamespace, arguments: &str) {
    run_checked(namespace.command("ip").args(arguments.split(' ')), LIMIT).unwrap();
}

/// A machine at the end of a wire; its interface is `up0`.
pub struct Machine {
    pub namespace: NetworkNamespace,
    pub mac: MacAddr,
    clients: UdpSocket,
}

impl Machine {
    /// Lays a wire from `interface` of the server's namespace, which gets `address`.
    pub fn on(server: &NetworkNamespace, interface: &str, address: &str, last: u8) -> Self {
        let namespace = bare(&format!("wire-{interface}"));
        let peer = namespace.name();
        ip(
            server,
            &format!("link add {interface} type veth peer name up0 netns {peer}"),
        );
        ip(server, &format!("address add {address} dev {interface}"));
        ip(server, &format!("link set {interface} up"));
        ip(&namespace, "link set up0 up");
        ip(&namespace, "route add default dev up0");
        let clients = namespace
            .enter(|| Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68))?))
            .unwrap();
        clients.set_broadcast(true).unwrap();
        Self {
            namespace,
            mac: MacAddr::new([0x52, 0x54, 0, 0xaa, 0, last]),
            clients,
        }
    }

    /// Asks as firmware does until it is answered; gives the answer to this very question.
    pub fn ask(&self, kind: MessageType, transaction: u32, options: OptionList) -> Reply {
        let end = Instant::now() + LIMIT;
        let request = self.request(kind, transaction, Ipv4Addr::UNSPECIFIED, options);
        loop {
            self.clients.send_to(&request, (Ipv4Addr::BROADCAST, 67)).unwrap();
            self.clients.set_read_timeout(Some(ASK_AGAIN)).unwrap();
            if let Some(reply) = receive(&self.clients) {
                assert_eq!(reply.header.xid, transaction, "an answer to somebody else: {reply:?}");
                return reply;
            }
            assert!(Instant::now() < end, "no DHCP answer");
        }
    }

    pub fn request(&self, kind: MessageType, transaction: u32, relay: Ipv4Addr, options: OptionList) -> Vec<u8> {
        let mut header = Header::ethernet(transaction, self.mac);
        (header.flags, header.giaddr) = (Header::BROADCAST, relay);
        let options = options
            .with(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016")
            .with(code::CLIENT_ARCH, [0, 7]);
        Request::new(header, kind, options).unwrap().encode().unwrap()
    }

    /// What else came to the clients' port.
    pub fn overheard(&self) -> Option<Reply> {
        self.clients.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        receive(&self.clients)
    }

    /// Says what a DHCP server would say to everybody.
    pub fn speak_as_server(&self, reply: &Reply) {
        self.clients
            .send_to(&reply.encode(None).unwrap(), (Ipv4Addr::BROADCAST, 68))
            .unwrap();
    }

    pub fn socket(&self, port: u16) -> UdpSocket {
        let socket = self
            .namespace
            .enter(|| Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?))
            .unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }

    /// A small file by TFTP, and the address that it came from.
    pub fn tftp(&self, server: Ipv4Addr, name: &str) -> (String, Ipv4Addr) {
        let socket = self.socket(0);
        let request = [b"\0\x01", name.as_bytes(), b"\0octet\0"].concat();
        socket.send_to(&request, (server, 69)).unwrap();
        let (mut content, mut buffer) = (Vec::new(), [0; 600]);
        loop {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..2], [0, 3], "{:?}", buffer[..length].escape_ascii().to_string());
            content.extend(&buffer[4..length]);
            socket.send_to(&[0, 4, buffer[2], buffer[3]], from).unwrap();
            if length < 4 + 512 {
                let SocketAddr::V4(from) = from else { panic!("{from}") };
                return (String::from_utf8(content).unwrap(), *from.ip());
            }
        }
    }

    /// Whether a port answers that nobody listens on: the kernel says so.
    pub fn is_refused(&self, server: Ipv4Addr, port: u16) -> bool {
        let socket = self.socket(0);
        socket.connect((server, port)).unwrap();
        socket.send(b"\0\x01snponly.efi\0octet\0").unwrap();
        let refused = socket.recv(&mut [0; 600]);
        refused.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    }
}

fn receive(socket: &UdpSocket) -> Option<Reply> {
    let mut buffer = [0; 2048];
    let (length, _) = socket.recv_from(&mut buffer).ok()?;
    Some(Reply::decode(&buffer[..length]).unwrap())
}

/// A GET from inside a namespace: the whole answer as text.
pub fn get(namespace: &NetworkNamespace, server: SocketAddrV4, path: &str) -> String {
    let mut stream = namespace.connect(server.into()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// `plumbline serve` inside a namespace; ended with this value.
pub struct Program(std::process::Child);

impl Program {
    pub fn serve(namespace: &NetworkNamespace, config: &Path, log: &Path) -> Self {
        let mut command = namespace.command(env!("CARGO_BIN_EXE_plumbline"));
        let log = std::fs::File::create(log).unwrap();
        command.args(["serve", "--config"]).arg(config).stderr(log);
        command.stdout(std::process::Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
