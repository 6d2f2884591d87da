//! What fuzzing found worth keeping, replayed through the decoders without a fuzzer.

#[path = "../fuzz/checks.rs"]
mod checks;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        // The name of the one that fails, before it does.
        println!("{}", path.display());
        check(&bytes);
        files += 1;
    }
    assert!(files >= 20, "only {files} files in {}", folder.display());
}

#[test]
fn the_corpus_of_dhcp_datagrams_holds() {
    replay("dhcp_decode", checks::dhcp);
}

#[test]
fn the_corpus_of_tftp_datagrams_holds() {
    replay("tftp_decode", checks::tftp);
}

#[test]
fn the_corpus_of_boot_texts_holds() {
    replay("boot_text", checks::boot_text);
}
