//! Builders for requests and contexts, and a wait with a limit.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use netboot::MacAddr;
use netboot::dhcp::options::code;
use netboot::dhcp::{
    Context, Decision, Header, LeaseOffer, LoaderTable, MessageType, Mode, NodeStanding, OptionList, Port, ReplyPlan,
    Request, answer,
};

pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub const LEASED: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 50);
pub const BASE: &str = "http://10.77.0.1:8081";
pub const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

/// A client being described; turned into a request by `kind`.
#[derive(Clone)]
pub struct Client {
    pub header: Header,
    pub options: OptionList,
}

impl Client {
    pub fn new() -> Self {
        let header = Header::ethernet(0x1234_5678, MacAddr::new([0x52, 0x54, 0, 0xaa, 0, 1]));
        Self {
            header,
            options: OptionList::new(),
        }
    }

    pub fn pxe(arch: u16) -> Self {
        Self::new()
            .class(&format!("PXEClient:Arch:{arch:05}:UNDI:003016"))
            .arches(&[arch])
    }

    pub fn http(arch: u16) -> Self {
        Self::new()
            .class(&format!("HTTPClient:Arch:{arch:05}:UNDI:003001"))
            .arches(&[arch])
    }

    pub fn class(self, class: &str) -> Self {
        self.option(code::VENDOR_CLASS, class.as_bytes())
    }

    pub fn arches(self, arches: &[u16]) -> Self {
        let value: Vec<u8> = arches.iter().flat_map(|arch| arch.to_be_bytes()).collect();
        self.option(code::CLIENT_ARCH, &value)
    }

    pub fn option(mut self, code: u8, value: &[u8]) -> Self {
        self.options.set(code, value);
        self
    }

    pub fn without(mut self, code: u8) -> Self {
        self.options.remove(code);
        self
    }

    pub fn ciaddr(mut self, ip: Ipv4Addr) -> Self {
        self.header.ciaddr = ip;
        self
    }

    pub fn requested(self, ip: Ipv4Addr) -> Self {
        self.option(code::REQUESTED_ADDRESS, &ip.octets())
    }

    pub fn server(self, ip: Ipv4Addr) -> Self {
        self.option(code::SERVER_ID, &ip.octets())
    }

    pub fn kind(self, kind: MessageType) -> Request {
        Request::new(self.header, kind, self.options).unwrap()
    }

    pub fn discover(self) -> Request {
        self.kind(MessageType::Discover)
    }
}

pub fn lease() -> LeaseOffer {
    LeaseOffer {
        ip: LEASED,
        subnet_mask: Ipv4Addr::new(255, 255, 255, 0),
        router: Some(SERVER),
        dns: vec![SERVER, OTHER],
        lease_secs: 3600,
    }
}

/// Decides as a server in `mode` would for a listed node, in full mode with the address of `lease()`.
pub fn decide(request: &Request, mode: Mode, port: Port) -> Decision {
    decide_for(request, mode, port, NodeStanding::Listed, Some(&lease()))
}

pub fn decide_for(
    request: &Request,
    mode: Mode,
    port: Port,
    node: NodeStanding,
    lease: Option<&LeaseOffer>,
) -> Decision {
    let loaders = LoaderTable::default();
    let lease = lease.filter(|_| mode == Mode::Full);
    let context = Context {
        mode,
        server_ip: SERVER,
        http_base: BASE,
        node,
        lease,
        loaders: &loaders,
        port,
    };
    answer(request, &context)
}

pub fn plan(decision: Decision) -> ReplyPlan {
    match decision {
        Decision::Reply(plan) => *plan,
        other => panic!("expected a reply, found {other}"),
    }
}

pub fn ignored(decision: Decision) -> &'static str {
    match decision {
        Decision::Ignore { reason } => reason.as_str(),
        other => panic!("expected silence, found {other}"),
    }
}

pub fn proxy(request: &Request) -> ReplyPlan {
    plan(decide(request, Mode::Proxy, Port::Server67))
}

pub fn full(request: &Request) -> ReplyPlan {
    plan(decide(request, Mode::Full, Port::Server67))
}

/// Waits until `is_true`, at most ten seconds.
pub async fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_true() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
