//! Keys that are made on the machine and never leave it.

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustix::rand::{GetRandomFlags, getrandom};
use ssh_key::private::{Ed25519Keypair, KeypairData};

/// A key could not be made.
#[derive(Debug, thiserror::Error)]
#[error("making a key: {0}")]
pub struct KeyError(String);

/// A private key and the request that names it to the server.
pub struct CertificateKey {
    /// Private key, PKCS #8, PEM.
    pub key: String,
    /// PKCS #10 request, PEM. It carries no names: the server writes them.
    pub request: String,
}

impl CertificateKey {
    /// Makes an ECDSA P-256 key.
    ///
    /// # Errors
    /// [`KeyError`] when there is no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        let wrong = |error: rcgen::Error| KeyError(error.to_string());
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(wrong)?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        let request = parameters
            .serialize_request(&key)
            .and_then(|request| request.pem())
            .map_err(wrong)?;
        Ok(Self {
            key: key.serialize_pem(),
            request,
        })
    }
}

impl std::fmt::Debug for CertificateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateKey")
    }
}

/// An SSH host key.
pub struct HostKey {
    /// Private key in OpenSSH's format.
    pub private: String,
    /// Public key in OpenSSH's one-line form, without a line feed.
    pub public: String,
}

impl HostKey {
    /// Makes an ed25519 key; `comment` is usually `root@name`.
    ///
    /// # Errors
    /// [`KeyError`] when there is no randomness.
    pub fn generate(comment: &str) -> Result<Self, KeyError> {
        let mut seed = [0_u8; 32];
        // Waits until the kernel has gathered enough randomness; virtual machines get it from virtio_rng.
        match getrandom(&mut seed, GetRandomFlags::empty()) {
            Ok(32) => {}
            Ok(short) => return Err(KeyError(format!("{short} of 32 bytes of randomness"))),
            Err(error) => return Err(KeyError(error.to_string())),
        }
        let wrong = |error: ssh_key::Error| KeyError(error.to_string());
        let data = KeypairData::Ed25519(Ed25519Keypair::from_seed(&seed));
        let key = ssh_key::PrivateKey::new(data, comment).map_err(wrong)?;
        Ok(Self {
            private: key.to_openssh(ssh_key::LineEnding::LF).map_err(wrong)?.to_string(),
            public: key.public_key().to_openssh().map_err(wrong)?,
        })
    }
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostKey({})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_usable_and_never_the_same() {
        let (one, two) = (
            HostKey::generate("root@n1").unwrap(),
            HostKey::generate("root@n1").unwrap(),
        );
        assert_ne!(one.private, two.private);
        let read = ssh_key::PrivateKey::from_openssh(&one.private).unwrap();
        assert_eq!(read.public_key().to_openssh().unwrap(), one.public);
        assert!(
            one.public.starts_with("ssh-ed25519 ") && one.public.ends_with(" root@n1"),
            "{}",
            one.public
        );
        let made = CertificateKey::generate().unwrap();
        assert!(
            made.request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"),
            "{}",
            made.request
        );
        assert!(KeyPair::from_pem(&made.key).is_ok());
        assert!(!format!("{made:?}{one:?}").contains("PRIVATE"), "keys are not for logs");
    }
}
