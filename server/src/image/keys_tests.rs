//! Tests of the folder of keys.

use super::super::trust::Revocation;
use super::*;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn image_id(keys: &Keys) -> KeyId {
    keys.image_signer().unwrap().unwrap().public().id().unwrap()
}

#[test]
fn keys_are_made_once_private_and_distinct() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("keys");
    let first = Keys::load_or_create(&dir).unwrap();
    let second = Keys::load_or_create(&dir).unwrap();
    assert_eq!(first.signers().trust, second.signers().trust);
    assert_eq!(first.job.public(), second.job.public());
    let image = first.image_signer().unwrap().unwrap().public();
    assert_ne!(image, first.agent_release.public());
    assert_ne!(image, first.job.public());
    for name in ["image", "agent-release", "job"] {
        assert_eq!(mode(&dir.join(format!("{name}.key"))), 0o600);
        public_read(&dir.join(format!("{name}.pub"))).unwrap();
    }
    let expected = [
        "agent-release.key",
        "agent-release.pub",
        "image-keys",
        "image.key",
        "image.pub",
        "job.key",
        "job.pub",
        "trust.toml",
    ];
    assert_eq!(names(&dir), expected, "nothing temporary is left");
    assert_eq!(names(&dir.join(PUBLIC_KEYS)), [format!("{}.pub", image.id().unwrap())]);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    Keys::load_or_create(dir).unwrap();
    std::fs::set_permissions(dir.join("job.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Keys::load_or_create(dir).unwrap_err().to_string();
    assert!(error.contains("job.key") && error.contains("0600"), "{error}");
}

#[test]
fn an_exchanged_public_key_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let keys = Keys::load_or_create(dir).unwrap();
    let id = image_id(&keys);
    std::fs::copy(dir.join("job.pub"), dir.join("agent-release.pub")).unwrap();
    assert!(matches!(Keys::load_or_create(dir), Err(KeyError::Pair { .. })));
    std::fs::remove_file(dir.join("agent-release.pub")).unwrap();
    std::fs::copy(dir.join("job.pub"), keys.public_path(id)).unwrap();
    let error = Keys::load_or_create(dir).unwrap_err().to_string();
    assert!(error.contains("trust.toml") && error.contains("holds key"), "{error}");
}

/// The folder of a release before there was more than one key.
#[test]
fn a_folder_with_one_key_becomes_a_set_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let before = image_id(&Keys::load_or_create(dir).unwrap());
    std::fs::remove_file(dir.join(TRUST_FILE)).unwrap();
    std::fs::remove_dir_all(dir.join(PUBLIC_KEYS)).unwrap();
    let keys = Keys::load_or_create(dir).unwrap();
    assert_eq!(image_id(&keys), before);
    assert_eq!(keys.signers().trust.keys().len(), 1);
}

#[test]
fn a_server_with_the_public_half_alone_checks_and_signs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let elsewhere = KeyPair::generate().unwrap();
    std::fs::write(dir.join(IMAGE_PUB), public_text("image", &elsewhere.public())).unwrap();
    let keys = Keys::load_or_create(dir).unwrap();
    assert!(keys.image_signer().unwrap().is_none());
    assert!(!dir.join(IMAGE_KEY).exists(), "no key is made in its place");
    let signature = elsewhere.sign(b"manifest", "x").unwrap();
    let id = keys.signers().check(ManifestKind::Os, b"manifest", &signature).unwrap();
    assert_eq!(id, elsewhere.public().id().unwrap());
    let error = keys.rotate(NOW).unwrap_err().to_string();
    assert!(
        error.contains("another machine") && error.contains("key add"),
        "{error}"
    );
}

#[test]
fn rotation_leaves_one_secret_and_both_public_keys() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let keys = Keys::load_or_create(dir).unwrap();
    let old = keys.image_signer().unwrap().unwrap();
    let signature = old.sign(b"manifest", "x").unwrap();
    let (new, before) = keys.rotate(NOW).unwrap();
    assert_eq!(before, Some(old.public().id().unwrap()));
    assert_eq!(image_id(&keys), new);
    assert_eq!(public_read(&dir.join(IMAGE_PUB)).unwrap().id().unwrap(), new);
    assert_eq!(names(&dir.join(PUBLIC_KEYS)).len(), 2);
    assert_eq!(mode(&dir.join(IMAGE_KEY)), 0o600);
    assert!(keys.signers().check(ManifestKind::Os, b"manifest", &signature).is_ok());
    // After a restart it is the same.
    let again = Keys::load_or_create(dir).unwrap();
    assert_eq!((image_id(&again), again.signers().trust.keys().len()), (new, 2));
}

#[test]
fn a_revocation_reaches_whoever_has_the_folder_open() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (server, other) = (Keys::load_or_create(dir).unwrap(), Keys::load_or_create(dir).unwrap());
    let key = server.image_signer().unwrap().unwrap();
    let signature = key.sign(b"manifest", "x").unwrap();
    let check = || server.signers().check(ManifestKind::Os, b"manifest", &signature);
    check().unwrap();
    let revocation = Revocation {
        at: NOW,
        by: "admin".to_owned(),
        reason: "the laptop was stolen".to_owned(),
    };
    let id = key.public().id().unwrap();
    other.change(|trust| trust.revoke(id, revocation)).unwrap();
    let error = check().unwrap_err();
    assert!(
        error.contains("revoked: on 1970-01-01, by admin: the laptop was stolen"),
        "{error}"
    );
    assert!(
        server
            .signers()
            .against(Digest::of(b"x"), ManifestKind::Os, id)
            .is_some()
    );
    assert!(!dir.join(IMAGE_KEY).exists(), "what may not sign is not kept");
    // The next one is made although none signs.
    let (new, _) = server.rotate(NOW).unwrap();
    assert_eq!(image_id(&other), new);

    // A file that somebody broke takes nothing back.
    std::fs::write(dir.join(TRUST_FILE), "key = 3").unwrap();
    assert!(check().is_err());
    assert_eq!(server.signers().trust.keys().len(), 2);
    assert!(Keys::load_or_create(dir).is_err());
}

#[test]
fn a_key_that_nobody_listed_signs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let keys = Keys::load_or_create(dir).unwrap();
    let text = KeyPair::generate().unwrap().to_secret_text("x").unwrap();
    std::fs::write(dir.join(IMAGE_KEY), text).unwrap();
    let error = keys.image_signer().unwrap_err().to_string();
    assert!(error.contains("does not name") && error.contains("key add"), "{error}");
}

#[test]
fn a_revoked_image_is_refused_under_a_good_signature() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::load_or_create(dir.path()).unwrap();
    let signature = keys.agent_release.sign(b"manifest", "x").unwrap();
    keys.signers()
        .check(ManifestKind::Agent, b"manifest", &signature)
        .unwrap();
    assert!(
        keys.signers().check(ManifestKind::Os, b"manifest", &signature).is_err(),
        "the wrong key"
    );
    let revocation = Revocation {
        at: NOW,
        by: "admin".to_owned(),
        reason: "bad".to_owned(),
    };
    keys.change(|trust| trust.revoke_image(Digest::of(b"manifest"), revocation))
        .unwrap();
    let error = keys
        .signers()
        .check(ManifestKind::Agent, b"manifest", &signature)
        .unwrap_err();
    assert!(error.contains("it was revoked on 1970-01-01, by admin: bad"), "{error}");
}
