//! What fuzzing found worth keeping, replayed without a fuzzer: whole, cut off anywhere, and with each bit turned over.

#[path = "../../fuzz/checks.rs"]
mod checks;

use std::path::Path;

#[test]
fn the_corpus_of_lldp_frames_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/lldp_frame");
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        // The name of the one that fails, before it does.
        println!("{}", path.display());
        checks::lldp(&whole);
        for length in 0..whole.len() {
            checks::lldp(&whole[..length]);
        }
        for bit in 0..whole.len() * 8 {
            let mut turned = whole.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            checks::lldp(&turned);
        }
        files += 1;
    }
    assert!(files >= 20, "only {files} files in {}", folder.display());
}
