//! Who may sign a bundle and the images in it: the one place that asks for keys.

use manifest::{Digest, ManifestKind, Signature, Untrusted};

use super::super::keys::{Keys, Signers};
use super::{BundleError, INDEX};

/// Signs a bundle's index with the image key.
pub(super) fn sign(keys: &Keys, index: &[u8]) -> Result<Signature, BundleError> {
    match keys.image_signer()? {
        Some(key) => Ok(key.sign(index, "plumbline bundle")?),
        None => Err(BundleError::NoKey),
    }
}

/// Checks the signature of a bundle's index (`kind` is none), or of a manifest of this kind, which must not be revoked.
pub(super) fn check(
    signers: &Signers,
    kind: Option<ManifestKind>,
    what: &str,
    bytes: &[u8],
    signature: &Signature,
) -> Result<(), BundleError> {
    // A bundle is signed by the key that signs images.
    let of = kind.unwrap_or(ManifestKind::Os);
    let Some((_, keys)) = signers.for_kind(of) else {
        let problem = format!("images of kind {} are in no bundle", of.as_str());
        return Err(BundleError::refused(what, problem));
    };
    keys.check(bytes, signature).map_err(|error| match error {
        Untrusted::Unknown { key, trusted } => BundleError::Untrusted {
            what: what.to_owned(),
            key: key.to_string(),
            trusted: match trusted.is_empty() {
                true => "none".to_owned(),
                false => trusted.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            },
        },
        other => BundleError::refused(what, other),
    })?;
    match kind.and_then(|_| signers.trust.against(Digest::of(bytes))) {
        Some(reason) => Err(BundleError::refused(what, reason)),
        None => Ok(()),
    }
}

/// Checks the signature of a bundle's index against the keys that this site trusts.
pub(super) fn is_own(keys: &Keys, index: &[u8], signature: &Signature) -> bool {
    check(&keys.signers(), None, INDEX, index, signature).is_ok()
}
