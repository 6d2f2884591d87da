//! What holds for any bytes: shared by the fuzz target and by the test that replays its corpus.

use plumbline_agent::ramdisk::lldp::frame::{ETHERTYPE, FrameError, parse, source};

/// Longest name of a port or a switch: 255 bytes as pairs of digits with colons between.
const NAME_BYTES_MAX: usize = 255 * 3;

/// A frame from the wire: reading never panics; what is read has names, within bounds, that a terminal shows as they are;
/// and what is no LLDP is nothing.
pub fn lldp(bytes: &[u8]) {
    let from = source(bytes);
    assert_eq!(from.is_some(), bytes.len() >= 12, "six bytes of each address");
    assert!(from.is_none_or(|mac| mac.len() == 17));
    let is_lldp = bytes.get(12..14) == Some(&ETHERTYPE.to_be_bytes());
    let heard = match parse(bytes) {
        Err(error) => return assert_eq!(error == FrameError::OtherProtocol, !is_lldp),
        Ok(heard) => heard,
    };
    assert!(is_lldp);
    let names = [
        Some(&heard.chassis),
        Some(&heard.port),
        heard.system_name.as_ref(),
        heard.port_description.as_ref(),
    ];
    for name in names.into_iter().flatten() {
        assert!(!name.trim().is_empty() && name.len() <= NAME_BYTES_MAX, "{name:?}");
        assert!(!name.chars().any(char::is_control), "{name:?}");
    }
    assert!(heard.switch_port().ends_with(&heard.port));
    // What an end mark closes does not depend on what fills the frame.
    let padded = parse(&[bytes, &[0; 46]].concat());
    assert_eq!(padded.as_ref(), Ok(&heard), "padding changes nothing");
}
