//! Any datagram: decoding, deciding and answering never panic, and what was read is written back the same.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use netboot::dhcp::{Context, Decision, LeaseOffer, LoaderTable, Mode, NodeStanding, Port, Reply, Request, answer};

fuzz_target!(|bytes: &[u8]| {
    let _ = Reply::decode(bytes);
    let Ok(request) = Request::decode(bytes) else { return };
    let _ = request.to_string();
    let written = request.encode().expect("a request that was read can be written");
    assert_eq!(
        Request::decode(&written).expect("and read again").message_type(),
        request.message_type()
    );
    let loaders = LoaderTable::default();
    let lease = LeaseOffer {
        ip: Ipv4Addr::new(10, 77, 0, 50),
        subnet_mask: Ipv4Addr::new(255, 255, 255, 0),
        router: None,
        dns: Vec::new(),
        lease_secs: 600,
    };
    for mode in [Mode::Proxy, Mode::Full] {
        for port in [Port::Server67, Port::Pxe4011] {
            let context = Context {
                mode,
                server_ip: Ipv4Addr::new(10, 77, 0, 1),
                http_base: "http://10.77.0.1:8081",
                node: NodeStanding::Listed,
                lease: Some(&lease),
                loaders: &loaders,
                port,
            };
            if let Decision::Reply(plan) = answer(&request, &context) {
                let bytes = plan
                    .reply
                    .encode(request.max_message_bytes())
                    .expect("every reply can be written");
                Reply::decode(&bytes).expect("and read");
            }
        }
    }
});
