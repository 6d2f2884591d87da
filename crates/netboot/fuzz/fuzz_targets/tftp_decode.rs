//! Any datagram: decoding never panics, what was read is written back the same, names never lead out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netboot::tftp::{Agreed, FileName, Limits, Packet};

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::decode(bytes) else { return };
    let written = packet.encode();
    assert_eq!(Packet::decode(&written).as_ref(), Ok(&packet));
    if let Packet::Request(request) = packet {
        let _ = Agreed::negotiate(&request.options, 1 << 20, &Limits::default());
        for name in FileName::candidates(&request.name).unwrap_or_default() {
            assert!(
                name.as_str()
                    .split('/')
                    .all(|part| !part.is_empty() && part != "." && part != "..")
            );
        }
    }
});
