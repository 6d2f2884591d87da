//! The appliance's own certificate authority: for its agents' listener, deployers and agents.
//!
//! Node certificates say nothing but which node they are for; what a holder may do is decided by the record of the
//! certificate, so that ending one takes effect at once. A request's key is used and nothing else of it.

use std::net::IpAddr;
use std::path::Path;

use manifest::Digest;
use protocol::NodeId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::secret_file;

/// Clocks of nodes are wrong at times: certificates hold from before they were made.
const BACKDATED: Duration = Duration::days(2);
const AUTHORITY_LIFE: Duration = Duration::days(20 * 365);
const SERVER_LIFE: Duration = Duration::days(825);

/// The authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file cannot be read or written.
    #[error("certificate authority: {0}")]
    File(#[from] secret_file::FileError),
    /// Certificates cannot be made or read.
    #[error("certificate authority: {what}")]
    Certificate {
        /// What was being done.
        what: &'static str,
        /// The library's error.
        #[source]
        source: rcgen::Error,
    },
}

/// A certificate the authority has issued.
#[derive(Debug, Clone)]
pub struct Issued {
    /// PEM.
    pub pem: String,
    /// SHA-256 of the DER form.
    pub fingerprint: Digest,
    /// When it ends.
    pub not_after: OffsetDateTime,
}

/// The certificate authority.
pub struct Authority {
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

fn failed(what: &'static str) -> impl FnOnce(rcgen::Error) -> AuthorityError {
    move |source| AuthorityError::Certificate { what, source }
}

impl Authority {
    /// Reads the authority from this folder, or makes it.
    ///
    /// # Errors
    /// [`AuthorityError`] when the files are unreadable or damaged.
    pub fn load_or_create(dir: &Path) -> Result<Self, AuthorityError> {
        // One file with both, so that a crash in between cannot leave a key without its certificate.
        let pem = secret_file::load_or_create(&dir.join("authority.pem"), || {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            params.distinguished_name = name("Plumbline appliance CA");
            let now = OffsetDateTime::now_utc();
            params.not_before = now - BACKDATED;
            params.not_after = now + AUTHORITY_LIFE;
            let certificate = params.self_signed(&key)?;
            Ok::<_, rcgen::Error>(format!("{}{}", key.serialize_pem(), certificate.pem()))
        })?;
        let at = pem.find("-----BEGIN CERTIFICATE-----").unwrap_or(0);
        let (key, certificate) = pem.split_at(at);
        let key = KeyPair::from_pem(key).map_err(failed("reading its key"))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(failed("reading its certificate"))?;
        Ok(Self {
            certificate_pem: certificate.to_owned(),
            issuer,
        })
    }

    /// The CA's certificate, PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A certificate and key for the agents' listener, made anew at each start.
    ///
    /// # Errors
    /// [`AuthorityError::Certificate`].
    pub fn issue_server(&self, addresses: &[IpAddr]) -> Result<(Issued, String), AuthorityError> {
        let key = KeyPair::generate().map_err(failed("making a key"))?;
        let mut params = self.params("Plumbline agents' listener", SERVER_LIFE);
        // A node whose clock starts at the mainboard's first day believes it as well: the key is made at each start, so
        // that nothing rests on when the certificate begins.
        params.not_before = OffsetDateTime::UNIX_EPOCH;
        params.subject_alt_names = addresses.iter().map(|address| SanType::IpAddress(*address)).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let not_after = params.not_after;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed("signing"))?;
        Ok((issued(&certificate, not_after), key.serialize_pem()))
    }

    /// A client certificate for a node, for the key of this PKCS #10 request.
    ///
    /// # Errors
    /// [`AuthorityError::Certificate`] when the request is not one, or its own signature is wrong.
    pub fn issue_node(&self, request: &str, node: NodeId, life: Duration) -> Result<(Issued, Digest), AuthorityError> {
        let request = CertificateSigningRequestParams::from_pem(request).map_err(failed("reading the request"))?;
        let mut params = self.params(&format!("node {node}"), life);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let not_after = params.not_after;
        let certificate = params
            .signed_by(&request.public_key, &self.issuer)
            .map_err(failed("signing"))?;
        Ok((
            issued(&certificate, not_after),
            Digest::of(&request.public_key.subject_public_key_info()),
        ))
    }

    fn params(&self, common_name: &str, life: Duration) -> CertificateParams {
        let mut params = CertificateParams::default();
        let now = OffsetDateTime::now_utc();
        params.not_before = now - BACKDATED;
        params.not_after = now + life;
        params.distinguished_name = name(common_name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params
    }
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn issued(certificate: &rcgen::Certificate, not_after: OffsetDateTime) -> Issued {
    Issued {
        pem: certificate.pem(),
        fingerprint: Digest::of(certificate.der()),
        not_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// wazuh/wazuh#38439: a clock two hours ahead or years behind is no reason to turn away from the server.
    #[test]
    fn wazuh_38439_a_wrong_clock_believes_the_listener() {
        use rustls::client::WebPkiServerVerifier;
        use rustls::client::danger::ServerCertVerifier as _;
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::load_or_create(dir.path()).unwrap();
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let (listener, _) = authority.issue_server(&[address]).unwrap();
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(der(authority.certificate_pem())).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .unwrap();
        let believes_at = |unix_secs: i64| {
            let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(unix_secs.try_into().unwrap()));
            let name = ServerName::IpAddress(address.into());
            verifier
                .verify_server_cert(&der(&listener.pem), &[], &name, &[], at)
                .is_ok()
        };
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let day = 24 * 3_600;
        for at in [now, now + 2 * 3_600, now - 2 * 365 * day, day] {
            assert!(believes_at(at), "{at}");
        }
        assert!(!believes_at(now + 20 * 365 * day));
    }

    #[test]
    fn an_authority_outlives_a_restart_and_signs_for_the_requests_key() {
        let dir = tempfile::tempdir().unwrap();
        let first = Authority::load_or_create(dir.path()).unwrap();
        let again = Authority::load_or_create(dir.path()).unwrap();
        assert_eq!(first.certificate_pem(), again.certificate_pem());

        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default()
            .serialize_request(&key)
            .unwrap()
            .pem()
            .unwrap();
        let node = NodeId::new();
        let (_, digest) = again.issue_node(&request, node, Duration::days(1)).unwrap();
        assert_eq!(digest, Digest::of(&key.subject_public_key_info()));
        assert!(again.issue_node("hello", node, Duration::days(1)).is_err());
    }
}
