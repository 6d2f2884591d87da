//! Keys and signatures against minisign itself, the tool that people have.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use manifest::{KeyPair, PublicKey, Signature, TrustedKeys, Untrusted};

fn minisign(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("minisign");
    // `cargo xtask setup` installs it.
    command.args(arguments).current_dir(folder).output().unwrap()
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The key is on another machine, and only its public half here.
#[test]
fn what_minisign_signs_counts_here() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let made = minisign(folder, &["-G", "-W", "-p", "image.pub", "-s", "image.key"]);
    assert!(made.status.success(), "{made:?}");
    std::fs::write(folder.join("manifest.ndjson"), "manifest\n").unwrap();
    let comment = ["-t", "plumbline os debian 1"];
    let signed = minisign(
        folder,
        &[&["-S", "-s", "image.key", "-m", "manifest.ndjson"][..], &comment].concat(),
    );
    assert!(signed.status.success(), "{signed:?}");

    let text = read(folder, "image.pub");
    let public = PublicKey::parse(&text).unwrap();
    // minisign's comment has the id, too.
    assert!(text.contains(&public.id().unwrap().to_string()), "{text}");
    let keys = TrustedKeys::of(public).unwrap();
    let signature = Signature::from_text(read(folder, "manifest.ndjson.minisig"));
    assert!(keys.check(b"manifest\n", &signature).is_ok());
    let changed = keys.check(b"manifest", &signature);
    assert!(matches!(changed, Err(Untrusted::Changed { .. })), "{changed:?}");
}

#[test]
fn minisign_verifies_what_is_signed_here_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let key = KeyPair::generate().unwrap();
    let signature = key.sign(b"manifest\n", "plumbline os debian 1").unwrap();
    let public = format!(
        "untrusted comment: plumbline image public key\n{}\n",
        key.public().as_str()
    );
    std::fs::write(folder.join("image.pub"), public).unwrap();
    std::fs::write(folder.join("manifest.ndjson"), "manifest\n").unwrap();
    std::fs::write(folder.join("manifest.ndjson.minisig"), signature.as_str()).unwrap();
    let verify = ["-V", "-p", "image.pub", "-m", "manifest.ndjson"];
    let verified = minisign(folder, &verify);
    assert!(verified.status.success(), "{verified:?}");
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(said.contains("Trusted comment: plumbline os debian 1"), "{said}");

    std::fs::write(folder.join("manifest.ndjson"), "manifesT\n").unwrap();
    assert!(!minisign(folder, &verify).status.success());
    // The secret half can be carried to another machine and used there.
    let secret = key.to_secret_text("plumbline image secret key").unwrap();
    std::fs::write(folder.join("image.key"), secret).unwrap();
    let signed = minisign(folder, &["-S", "-s", "image.key", "-m", "manifest.ndjson"]);
    assert!(signed.status.success(), "{signed:?}");
    assert!(minisign(folder, &verify).status.success());
}
