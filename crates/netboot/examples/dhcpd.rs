//! Answers every machine on one interface, to try the engine by hand in a network namespace:
//! `cargo run -p netboot --example dhcpd -- INTERFACE SERVER_IP HTTP_BASE [LEASE_IP]`
//! Without a lease address it is a proxy.

use std::net::Ipv4Addr;

use netboot::dhcp::{
    BackendError, Decision, DhcpBackend, DhcpConfig, DhcpServer, LeaseOffer, LoaderSet, Mode, NodeStanding, Request,
    Standing,
};
use tokio_util::sync::CancellationToken;

struct Everybody {
    lease: Option<LeaseOffer>,
}

impl DhcpBackend for Everybody {
    async fn lookup(&self, request: &Request, _mode: Mode) -> Result<Standing, BackendError> {
        println!("{request}");
        Ok(Standing {
            loaders: LoaderSet::Ipxe,
            node: NodeStanding::Listed,
            lease: self.lease.clone(),
        })
    }

    async fn decided(&self, _request: &Request, decision: &Decision) {
        println!("{decision}");
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, server_ip, http_base, rest @ ..] = arguments.as_slice() else {
        return Err("arguments: INTERFACE SERVER_IP HTTP_BASE [LEASE_IP]".into());
    };
    let server_ip: Ipv4Addr = server_ip.parse()?;
    let ip = rest.first().map(|ip| ip.parse::<Ipv4Addr>()).transpose()?;
    let mode = if ip.is_some() { Mode::Full } else { Mode::Proxy };
    let lease = ip.map(|ip| LeaseOffer {
        ip,
        subnet_mask: Ipv4Addr::new(255, 255, 255, 0),
        router: Some(server_ip),
        dns: vec![server_ip],
        lease_secs: 600,
    });
    let mut config = DhcpConfig::new(mode, server_ip, http_base);
    config.interface = Some(interface.clone());
    let server = DhcpServer::bind(config, Everybody { lease })?;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let task = tokio::spawn(server.run(cancel));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    task.await?;
    Ok(())
}
