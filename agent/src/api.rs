//! The way to the server: HTTPS with the appliance's CA pinned, and plain HTTP for image data and the clock.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Time allowed to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time allowed between two pieces of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A call to the server that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Certificates or keys cannot be used.
    #[error("TLS set-up: {0}")]
    Tls(String),
    /// No answer came.
    #[error("{url}")]
    Transport {
        /// Where the call went.
        url: String,
        /// What went wrong.
        #[source]
        source: reqwest::Error,
    },
    /// The server said no.
    #[error("{url}: the server answered {status}: {message}")]
    Refused {
        /// Where the call went.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's reason, cut to 1,000 characters.
        message: String,
        /// `Retry-After`, in seconds, if the server gave one.
        retry_after_secs: Option<u64>,
    },
}

impl ApiError {
    /// Whether trying again later may help: no answer, or a server in trouble; not a refusal.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Tls(_) => false,
            Self::Transport { .. } => true,
            Self::Refused { status, .. } => *status >= 500 || *status == 429 || *status == 408,
        }
    }
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Identity {
    /// Certificate chain.
    pub certificate: String,
    /// Private key, PKCS #8.
    pub key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

/// A client of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Api {
    base: String,
    client: reqwest::Client,
}

impl Api {
    /// A client of the agents' listener at `base` (`https://10.77.0.1:8443`) that trusts only this CA.
    ///
    /// # Errors
    /// [`ApiError::Tls`] when the CA or the identity is not usable.
    pub fn new(base: &str, ca_certificate: &str, identity: Option<&Identity>) -> Result<Self, ApiError> {
        let wrong = |what: &str, error: &dyn std::fmt::Display| ApiError::Tls(format!("{what}: {error}"));
        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(ca_certificate.as_bytes()).map_err(|e| wrong("CA certificate", &e))?;
        roots.add(ca).map_err(|e| wrong("CA certificate", &e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong("protocol versions", &e))?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|e| wrong("client certificate", &e))?;
                let key =
                    PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|e| wrong("client key", &e))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|e| wrong("client certificate", &e))?
            }
        };
        Self::with_tls(base, config)
    }

    /// A client of a plain HTTP listener at `base`.
    ///
    /// # Errors
    /// [`ApiError::Tls`] when no client can be made.
    pub fn plain(base: &str) -> Result<Self, ApiError> {
        // reqwest asks for a TLS configuration even where none is used.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| ApiError::Tls(e.to_string()))?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        Self::with_tls(base, config)
    }

    fn with_tls(base: &str, config: rustls::ClientConfig) -> Result<Self, ApiError> {
        let client = reqwest::Client::builder()
            .use_preconfigured_tls(config)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .no_proxy()
            .build()
            .map_err(|e| ApiError::Tls(format!("HTTP client: {e}")))?;
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            client,
        })
    }

    /// GET, JSON answer.
    ///
    /// # Errors
    /// [`ApiError`] when the server does not answer 2xx with the expected JSON.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        let url = self.url(path);
        let response = self.checked(&url, self.client.get(&url)).await?;
        response
            .json()
            .await
            .map_err(|source| ApiError::Transport { url, source })
    }

    /// GET, JSON answer, or none (204).
    ///
    /// # Errors
    /// [`ApiError`] when the server does not answer 2xx with the expected JSON.
    pub async fn get_optional<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, ApiError> {
        let url = self.url(path);
        let response = self.checked(&url, self.client.get(&url)).await?;
        if response.status().as_u16() == 204 {
            return Ok(None);
        }
        let value = response.json().await;
        value.map(Some).map_err(|source| ApiError::Transport { url, source })
    }

    /// PUT of raw bytes, answer not looked at.
    ///
    /// # Errors
    /// [`ApiError`] when the server does not answer 2xx.
    pub async fn put_bytes(&self, path: &str, bytes: Vec<u8>) -> Result<(), ApiError> {
        let url = self.url(path);
        self.checked(&url, self.client.put(&url).body(bytes)).await.map(drop)
    }

    /// POST of raw bytes, answer not looked at.
    ///
    /// # Errors
    /// [`ApiError`] when the server does not answer 2xx.
    pub async fn post_bytes(&self, path: &str, bytes: bytes::Bytes) -> Result<(), ApiError> {
        let url = self.url(path);
        self.checked(&url, self.client.post(&url).body(bytes)).await.map(drop)
    }

    /// GET, raw bytes, at most `limit` of them.
    ///
    /// # Errors
    /// [`ApiError`] when the server does not answer 2xx, or with more than `limit` bytes.
    pub async fn get_bytes(&self, path: &str, limit: usize) -> Result<Vec<u8>, ApiError> {
        let url = self.url(path);
        let mut response = self.checked(&url, self.client.get(&url)).await?;
        let mut bytes = Vec::new();
        loop {
            let chunk = response.chunk().await.map_err(|source| ApiError::Transport {
                url: url.clone(),
                source,
            })?;
            let Some(chunk) = chunk else { return Ok(bytes) };
            if bytes.len() + chunk.len() > limit {
                let message = format!("the answer is longer than {limit} bytes");
                return Err(ApiError::Refused {
                    url,
                    status: 200,
                    message,
                    retry_after_secs: None,
                });
            }
            bytes.extend_from_slice(&chunk);
        }
    }

    /// GET as a stream, from byte `from` on, up to before byte `end` where that is given. A server may send more than
    /// was asked for: all of it, with status 200.
    ///
    /// # Errors
    /// [`ApiError`] when the server does not answer 2xx.
    pub async fn get_stream(&self, path: &str, from: u64, end: Option<u64>) -> Result<reqwest::Response, ApiError> {
        let url = self.url(path);
        let mut request = self.client.get(&url);
        let range = match end {
            // RFC 9110, 14.1.2: the last position is included.
            Some(end) => Some(format!("bytes={from}-{}", end.saturating_sub(1))),
            None => (from > 0).then(|| format!("bytes={from}-")),
        };
        if let Some(range) = range {
            request = request.header("range", range);
        }
        self.checked(&url, request).await
    }

    /// POST JSON, JSON answer.
    ///
    /// # Errors
    /// [`ApiError`] when the server does not answer 2xx with the expected JSON.
    pub async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, ApiError> {
        let url = self.url(path);
        let response = self.checked(&url, self.client.post(&url).json(body)).await?;
        response
            .json()
            .await
            .map_err(|source| ApiError::Transport { url, source })
    }

    /// POST JSON, answer not looked at.
    ///
    /// # Errors
    /// [`ApiError`] when the server does not answer 2xx.
    pub async fn send<B: Serialize + ?Sized>(&self, path: &str, body: &B) -> Result<(), ApiError> {
        let url = self.url(path);
        self.checked(&url, self.client.post(&url).json(body)).await.map(drop)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    async fn checked(&self, url: &str, request: reqwest::RequestBuilder) -> Result<reqwest::Response, ApiError> {
        let response = request.send().await.map_err(|source| ApiError::Transport {
            url: url.to_owned(),
            source,
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after_secs = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let message = response.text().await.unwrap_or_default().chars().take(1_000).collect();
        Err(ApiError::Refused {
            url: url.to_owned(),
            status: status.as_u16(),
            message,
            retry_after_secs,
        })
    }
}
