//! Files of which not even the plain digest is told.
//!
//! A digest of a short password hash or token can be guessed back. For such files the digests in findings are keyed
//! (HMAC-SHA-256 over the plain digest, RFC 2104) with a key that only the server and its nodes hold, and their content
//! is never asked for and never sent. Keying the digest and not the content lets the expected side be keyed from the
//! manifest, and keeps the cache of plain digests on the node useful.

use hmac::{Hmac, KeyInit, Mac};
use manifest::{Digest, TreePath};
use sha2::Sha256;

use crate::{Difference, FindingKind};

/// The key, 32 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

impl SecretKey {
    /// From 32 bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// From 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.trim(), &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The keyed digest as it stands in findings: `hmac-sha256:` and 64 hexadecimal digits.
    #[must_use]
    pub fn keyed(&self, plain: Digest) -> String {
        let mut block = [0; 64];
        block[..self.0.len()].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(plain.as_bytes());
        format!("hmac-sha256:{}", hex::encode(mac.finalize().into_bytes()))
    }
}

/// Folders all of whose files are secret.
const FOLDERS: [&str; 5] = [
    "/etc/ssl/private",
    "/etc/munge",
    "/etc/kubernetes/pki",
    "/var/lib/plumbline/identity",
    "/etc/NetworkManager/system-connections",
];
/// Single files.
const FILES: [&str; 9] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/krb5.keytab",
    "/etc/machine-key",
    "/etc/slurm/jwt_hs256.key",
    "/var/spool/slurm/jwt_hs256.key",
];
/// Ends of names.
const ENDS: [&[u8]; 8] = [
    b".key",
    b"_key",
    b".keytab",
    b".p12",
    b".pfx",
    b".token",
    b".secret",
    b".kubeconfig",
];
/// Whole names, wherever they are.
const NAMES: [&[u8]; 9] = [
    b"id_rsa",
    b"id_dsa",
    b"id_ecdsa",
    b"id_ed25519",
    b".netrc",
    b".pgpass",
    b"token",
    b"credentials",
    b"key.pem",
];

/// Whether the content of this path is secret, judged by its name alone, so that agent and server agree.
#[must_use]
pub fn is_secret(path: &TreePath) -> bool {
    let bytes = path.as_bytes();
    let name = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    FILES.iter().any(|file| bytes == file.as_bytes())
        || FOLDERS.iter().any(|folder| {
            bytes
                .strip_prefix(folder.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&b'/'))
        })
        || NAMES.contains(&name)
        || ENDS.iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

/// Replaces the plain digests of secret files in findings. Without a key they only say that the content is another.
pub fn seal_secrets(differences: &mut [Difference], key: Option<&SecretKey>) {
    for difference in differences {
        let is_of_secret =
            difference.kind == FindingKind::File && difference.key.parse().is_ok_and(|path| is_secret(&path));
        if !is_of_secret {
            continue;
        }
        let sides = [
            (&mut difference.expected, "of the image"),
            (&mut difference.actual, "another"),
        ];
        for (side, unkeyed) in sides {
            if let Some(digest) = side.as_mut().and_then(|attributes| attributes.0.get_mut("digest")) {
                let keyed = digest.parse().ok().and_then(|plain| Some(key?.keyed(plain)));
                *digest = keyed.unwrap_or_else(|| unkeyed.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;

    #[test]
    fn keyed_digests_are_pinned() {
        // HMAC-SHA-256 of the 32 bytes of SHA-256("x") under a key of 32 times 0x0b, made with another implementation.
        let key = SecretKey::new([0x0b; 32]);
        assert_eq!(key.keyed(Digest::of(b"x")), PINNED);
        assert_eq!(SecretKey::parse(&"0b".repeat(32)), Some(key));
        assert_eq!(SecretKey::parse("0b"), None);
    }

    const PINNED: &str = "hmac-sha256:1aed14d5c68e620969917c89837a581fb5e86f0cd76516be86c695350fd5a880";

    #[test]
    fn no_plain_digest_of_a_secret_is_told() {
        let difference = |key: &str| Difference {
            kind: FindingKind::File,
            key: key.into(),
            expected: Some(Attributes::from_pairs([("digest", Digest::of(b"a").to_string())])),
            actual: Some(Attributes::from_pairs([("digest", Digest::of(b"b").to_string())])),
        };
        let plain = [difference("/etc/motd"), difference("/etc/shadow")];
        let mut sealed = plain.clone();
        seal_secrets(&mut sealed, Some(&SecretKey::new([7; 32])));
        assert_eq!(sealed[0], plain[0]);
        let digest = |side: &Option<Attributes>| side.as_ref().unwrap().get("digest").unwrap().to_owned();
        assert!(digest(&sealed[1].actual).starts_with("hmac-sha256:"));
        assert_ne!(digest(&sealed[1].actual), digest(&sealed[1].expected));
        let mut unkeyed = plain.clone();
        seal_secrets(&mut unkeyed, None);
        assert_eq!(digest(&unkeyed[1].actual), "another");
    }

    #[test]
    fn passwords_keys_and_tokens_are_secret() {
        let secret = |path: &str| is_secret(&path.parse().unwrap());
        for path in [
            "/etc/shadow",
            "/etc/gshadow-",
            "/etc/ssh/ssh_host_ed25519_key",
            "/root/.ssh/id_ed25519",
            "/etc/munge/munge.key",
            "/etc/ssl/private/deep/x.pem",
            "/var/lib/kubelet/token",
            "/home/a/.netrc",
        ] {
            assert!(secret(path), "{path}");
        }
        for path in [
            "/etc/passwd",
            "/etc/ssh/ssh_host_ed25519_key.pub",
            "/root/.ssh/authorized_keys",
            "/etc/mungerc",
            "/etc/ssl/certs/a.pem",
            "/usr/share/doc/token/x",
        ] {
            assert!(!secret(path), "{path}");
        }
    }
}
