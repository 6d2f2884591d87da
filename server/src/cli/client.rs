//! The HTTP API, as the commands use it. Every error is one line that says what to do.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::Value;

use crate::http::error::{ErrorBody, chain};

/// Limits: to connect, for an answer, for one that takes long.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const LONG_LIMIT: Duration = Duration::from_secs(3_600);
/// Largest answer that is read, in bytes: ten thousand nodes with their inventories.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// A server, and who asks.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    server: Url,
    token: Option<String>,
}

/// What the server said when it would not.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// Whether the server answered and refused: asking again does not help.
#[must_use]
pub fn is_refusal(error: &anyhow::Error) -> bool {
    error.is::<Refusal>()
}

/// What is asked for: parts of a path below `/api/v1`, escaped where they are joined.
pub type Path<'a> = &'a [&'a str];

impl Client {
    /// A client for this server.
    ///
    /// # Errors
    /// The URL is none.
    pub fn new(server: &str, token: Option<String>) -> anyhow::Result<Self> {
        let server = server_parse(server)?;
        // An earlier call in the same process installed the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("plumbline/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&server) {
            // What is on this machine is not behind the site's proxy.
            http = http.no_proxy();
        }
        let http = http.build().context("preparing HTTP")?;
        Ok(Self { http, server, token })
    }

    /// The server's URL, for people.
    #[must_use]
    pub fn server(&self) -> &str {
        self.server.as_str().trim_end_matches('/')
    }

    /// Whether what is sent can be read on the way.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.server.scheme() == "http" && !is_loopback(&self.server)
    }

    /// Reads.
    ///
    /// # Errors
    /// One line: the server does not answer, or what it said.
    pub async fn get(&self, path: Path<'_>) -> anyhow::Result<Value> {
        self.request(Method::GET, path, &[], None, ANSWER_LIMIT).await
    }

    /// Reads with a query.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_with(&self, path: Path<'_>, query: &[(&str, String)]) -> anyhow::Result<Value> {
        self.request(Method::GET, path, query, None, ANSWER_LIMIT).await
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_file(&self, path: Path<'_>) -> anyhow::Result<Vec<u8>> {
        self.answer(Method::GET, path, &[], None, ANSWER_LIMIT).await
    }

    /// Reads a file with a query.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_file_with(&self, path: Path<'_>, query: &[(&str, String)]) -> anyhow::Result<Vec<u8>> {
        self.answer(Method::GET, path, query, None, ANSWER_LIMIT).await
    }

    /// Changes something.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn send(&self, method: Method, path: Path<'_>, body: Option<&Value>) -> anyhow::Result<Value> {
        self.request(method, path, &[], body, ANSWER_LIMIT).await
    }

    /// Removes something, with a query.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn delete_with(&self, path: Path<'_>, query: &[(&str, String)]) -> anyhow::Result<Value> {
        self.request(Method::DELETE, path, query, None, ANSWER_LIMIT).await
    }

    /// Asks for something that takes long, and says how.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn post_long_with(&self, path: Path<'_>, body: &Value) -> anyhow::Result<Value> {
        self.request(Method::POST, path, &[], Some(body), LONG_LIMIT).await
    }

    /// Asks for something that takes long.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn post_long(&self, path: Path<'_>) -> anyhow::Result<Value> {
        self.request(Method::POST, path, &[], None, LONG_LIMIT).await
    }

    async fn request(
        &self,
        method: Method,
        path: Path<'_>,
        query: &[(&str, String)],
        body: Option<&Value>,
        limit: Duration,
    ) -> anyhow::Result<Value> {
        let bytes = self.answer(method, path, query, body, limit).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes)
            .map_err(|_| anyhow!("{} answered something that is no JSON: is it Plumbline?", self.server()))
    }

    /// The body of an answer that is no refusal.
    async fn answer(
        &self,
        method: Method,
        path: Path<'_>,
        query: &[(&str, String)],
        body: Option<&Value>,
        limit: Duration,
    ) -> anyhow::Result<Vec<u8>> {
        let mut request = self.http.request(method, self.url(path)?).query(query).timeout(limit);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let bytes = self.read(response).await?;
        if status.is_success() {
            return Ok(bytes);
        }
        let is_sign_in = path == ["session"] && body.is_some();
        Err(self.refused(status, &bytes, is_sign_in))
    }

    fn url(&self, path: Path<'_>) -> anyhow::Result<Url> {
        let mut url = self.server.clone();
        // "." and ".." would be taken for steps on the way, whatever their spelling.
        if path.iter().any(|part| matches!(*part, "" | "." | "..")) {
            bail!("{:?} names nothing", path.last().copied().unwrap_or_default());
        }
        url.path_segments_mut()
            .map_err(|()| anyhow!("{} cannot be a server", self.server()))?
            .pop_if_empty()
            .extend(["api", "v1"])
            .extend(path);
        Ok(url)
    }

    async fn read(&self, mut response: Response) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                bail!("{} answered more than {ANSWER_BYTES_MAX} bytes", self.server());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        let server = self.server();
        if error.is_connect() {
            let cause = innermost(error);
            return anyhow!("the server at {server} does not answer: is `plumbline serve` running there? ({cause})");
        }
        if error.is_timeout() {
            return anyhow!("the server at {server} took too long to answer: its log says why");
        }
        anyhow!("the connection to {server} failed: {}", chain(error))
    }

    fn refused(&self, status: StatusCode, bytes: &[u8], is_sign_in: bool) -> anyhow::Error {
        let Ok(ErrorBody { error }) = serde_json::from_slice(bytes) else {
            return anyhow!(
                "{} answered {status} without a reason: is it Plumbline, and not something before it?",
                self.server()
            );
        };
        match status {
            StatusCode::INTERNAL_SERVER_ERROR => anyhow!("{error} at {}: its log says why", self.server()),
            status if status.is_server_error() => anyhow!("{error}"),
            StatusCode::UNAUTHORIZED if is_sign_in => Refusal(error).into(),
            StatusCode::UNAUTHORIZED => {
                Refusal(format!("{error}. Run `plumbline login --server {}`", self.server())).into()
            }
            _ => Refusal(error).into(),
        }
    }
}

/// A server as people write it: `10.77.0.1:8080`, `https://plumbline.example`.
fn server_parse(text: &str) -> anyhow::Result<Url> {
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&full).map_err(|error| anyhow!("server {text:?}: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        bail!("server {text:?}: expected http://HOST:PORT or https://HOST");
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        bail!("server {text:?}: expected no user, password or query in it");
    }
    Ok(url)
}

/// The same server written the same way, for comparing.
///
/// # Errors
/// The text is no server.
pub fn server_normal(text: &str) -> anyhow::Result<String> {
    Ok(server_parse(text)?.as_str().trim_end_matches('/').to_owned())
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_people_write_them() {
        for (text, normal) in [
            ("10.77.0.1:8080", "http://10.77.0.1:8080"),
            ("https://Plumbline.example/", "https://plumbline.example"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(server_normal(text).unwrap(), normal);
        }
        for bad in ["", "ftp://x", "http://user:secret@host", "http://"] {
            assert!(server_normal(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_reference_stays_one_part_of_the_path() {
        let client = Client::new("http://host/plumbline/", None).unwrap();
        let url = client.url(&["images", "a/../b@1?x#y", "verify"]).unwrap();
        assert_eq!(
            url.as_str(),
            "http://host/plumbline/api/v1/images/a%2F..%2Fb@1%3Fx%23y/verify"
        );
        assert!(client.url(&["nodes", ".."]).is_err());
        assert!(client.url(&["nodes", ""]).is_err());
    }

    #[test]
    fn plain_http_is_only_private_on_this_machine() {
        for (server, plain) in [
            ("http://127.0.0.1:8080", false),
            ("http://[::1]:1", false),
            ("http://localhost", false),
            ("http://10.0.0.1", true),
            ("https://10.0.0.1", false),
        ] {
            assert_eq!(Client::new(server, None).unwrap().is_plain(), plain, "{server}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_with_what_to_do() {
        // A port that was free a moment ago.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let client = Client::new(&server, None).unwrap();
        let error = client.get(&["nodes"]).await.unwrap_err().to_string();
        assert!(
            error.contains(&server) && error.contains("plumbline serve") && error.contains("refused"),
            "{error}"
        );
    }
}
