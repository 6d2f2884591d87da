//! Who may sign a bundle and the images in it: the one place that asks for keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use manifest::{ManifestKind, PublicKey, Signature};

use super::super::keys::{Keys, TrustedKeys};
use super::{BundleError, INDEX};

/// Signs a bundle's index with the image key.
pub(super) fn sign(keys: &Keys, index: &[u8]) -> Result<Signature, BundleError> {
    Ok(keys.image.sign(index, "plumbline bundle")?)
}

/// Checks the signature of a bundle's index (`kind` is none), or of a manifest of this kind.
pub(super) fn check(
    trusted: &TrustedKeys,
    kind: Option<ManifestKind>,
    what: &str,
    bytes: &[u8],
    signature: &Signature,
) -> Result<(), BundleError> {
    // A bundle is signed by the key that signs images.
    let kind = kind.unwrap_or(ManifestKind::Os);
    let Some((_, key)) = trusted.for_kind(kind) else {
        let problem = format!("images of kind {} are in no bundle", kind.as_str());
        return Err(BundleError::refused(what, problem));
    };
    let Some(signed_by) = signature.as_str().lines().nth(1).and_then(key_id) else {
        return Err(BundleError::refused(what, "its signature is no minisign signature"));
    };
    if own_id(key) != Some(signed_by) {
        return Err(BundleError::Untrusted {
            what: what.to_owned(),
            key: id_text(signed_by),
            trusted: own_id(key).map_or_else(|| "none".to_owned(), id_text),
        });
    }
    let wrong = |_| {
        let whose = id_text(signed_by);
        let problem = format!("its signature by key {whose} is not over these bytes: it was changed after signing");
        BundleError::refused(what, problem)
    };
    key.verify(bytes, signature).map_err(wrong)
}

/// Checks the signature of a bundle's index against the key that this site signs with.
pub(super) fn is_own(keys: &Keys, index: &[u8], signature: &Signature) -> bool {
    check(&keys.trusted(), None, INDEX, index, signature).is_ok()
}

fn own_id(key: &PublicKey) -> Option<u64> {
    key_id(key.as_str())
}

/// The id in a base64 line of minisign: after two bytes that name the algorithm, eight, the lowest first.
fn key_id(line: &str) -> Option<u64> {
    let bytes = STANDARD.decode(line.trim()).ok()?;
    let id: [u8; 8] = bytes.get(2..10)?.try_into().ok()?;
    Some(u64::from_le_bytes(id))
}

/// As minisign prints it.
fn id_text(id: u64) -> String {
    format!("{id:016X}")
}
