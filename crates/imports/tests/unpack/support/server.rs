//! A registry that speaks the pull part of the distribution API, and can misbehave.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;

use super::{Images, sha256};

/// What the registry does wrong.
#[derive(Clone, Default)]
pub struct Behaviour {
    /// Connections that send a blob break off after so many bytes of it, so many times.
    pub cut_bytes: usize,
    pub cuts: usize,
    /// Range requests are answered with all of the blob.
    pub knows_no_ranges: bool,
    /// Blobs come with their first byte changed.
    pub lies: bool,
    /// So many first requests are answered with 503.
    pub busy: usize,
    /// User and password it wants.
    pub account: Option<(&'static str, &'static str)>,
    /// It hands out tokens for the account; otherwise it wants it with every request.
    pub tokens: bool,
    /// It accepts connections and says nothing.
    pub silent: bool,
}

struct Shared {
    images: Images,
    tags: BTreeMap<String, String>,
    behaviour: Behaviour,
    cuts: AtomicUsize,
    busy: AtomicUsize,
    requests: Mutex<Vec<String>>,
    stop: AtomicBool,
    address: String,
}

pub struct Server {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

const TOKEN: &str = "a-token";

impl Server {
    /// Serves the first image of `images` as `team/root:1`.
    pub fn start(images: &Images, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let digest = images.manifests[0]["digest"].as_str().unwrap().to_owned();
        let shared = Arc::new(Shared {
            images: images.clone(),
            tags: BTreeMap::from([("1".to_owned(), digest)]),
            cuts: AtomicUsize::new(behaviour.cuts),
            busy: AtomicUsize::new(behaviour.busy),
            behaviour,
            requests: Mutex::default(),
            stop: AtomicBool::new(false),
            address: listener.local_addr().unwrap().to_string(),
        });
        let inner = shared.clone();
        let thread = std::thread::spawn(move || {
            // Those that are never answered stay open until the end.
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                if inner.stop.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.unwrap();
                if inner.behaviour.silent {
                    silent.push(stream);
                } else {
                    let inner = inner.clone();
                    std::thread::spawn(move || {
                        // A client that goes away is no news.
                        let _ = inner.answer(stream);
                    });
                }
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    pub fn reference(&self, rest: &str) -> String {
        format!("{}/team/root{rest}", self.shared.address)
    }

    /// Method, path and range of each request so far.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.shared.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn take(counter: &AtomicUsize) -> bool {
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1))
        .is_ok()
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        let mut headers = BTreeMap::new();
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let path = first.split(' ').nth(1).unwrap_or("").to_owned();
        let range = headers.get("range").cloned();
        let logged = format!("{first} {}", range.clone().unwrap_or_default());
        self.requests.lock().unwrap().push(logged.trim().to_owned());
        if take(&self.busy) {
            return respond(&mut stream, "503 Service Unavailable", "", b"");
        }
        let sent = headers.get("authorization").map(String::as_str).unwrap_or("");
        let basic = self.behaviour.account.map(|(user, password)| {
            let text = format!("{user}:{password}");
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
        });
        if path.starts_with("/token") {
            if basic.as_deref() != Some(sent) {
                return respond(&mut stream, "401 Unauthorized", "", b"{}");
            }
            let body = format!(r#"{{"token":"{TOKEN}"}}"#);
            return respond(&mut stream, "200 OK", "", body.as_bytes());
        }
        if let Some(basic) = basic {
            let (wanted, challenge) = if self.behaviour.tokens {
                let realm = format!("http://{}/token", self.address);
                let challenge = format!("Bearer realm=\"{realm}\",service=\"test\"");
                (format!("Bearer {TOKEN}"), challenge)
            } else {
                (basic, "Basic realm=\"test\"".to_owned())
            };
            if wanted != sent {
                let header = format!("WWW-Authenticate: {challenge}\r\n");
                return respond(&mut stream, "401 Unauthorized", &header, b"{}");
            }
        }
        match path.split('/').collect::<Vec<_>>().as_slice() {
            ["", "v2", ""] => respond(&mut stream, "200 OK", "", b"{}"),
            ["", "v2", "team", "root", "manifests", name] => {
                let digest = self.tags.get(*name).map_or(*name, String::as_str);
                match self.images.blobs.get(digest.trim_start_matches("sha256:")) {
                    Some(body) => {
                        let kind = serde_json::from_slice::<serde_json::Value>(body).unwrap();
                        let kind = kind["mediaType"].as_str().unwrap_or("text/plain").to_owned();
                        let header = format!(
                            "Content-Type: {kind}\r\nDocker-Content-Digest: sha256:{}\r\n",
                            sha256(body)
                        );
                        respond(&mut stream, "200 OK", &header, body)
                    }
                    None => {
                        let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
                        respond(&mut stream, "404 Not Found", "", body)
                    }
                }
            }
            ["", "v2", "team", "root", "blobs", digest] => self.blob(&mut stream, digest, range.as_deref()),
            _ => respond(&mut stream, "404 Not Found", "", b""),
        }
    }

    fn blob(&self, stream: &mut TcpStream, digest: &str, range: Option<&str>) -> std::io::Result<()> {
        let Some(blob) = self.images.blobs.get(digest.trim_start_matches("sha256:")) else {
            return respond(stream, "404 Not Found", "", b"");
        };
        let mut blob = blob.clone();
        if self.behaviour.lies {
            blob[0] ^= 1;
        }
        let start = range.filter(|_| !self.behaviour.knows_no_ranges).and_then(|range| {
            range
                .strip_prefix("bytes=")?
                .trim_end_matches('-')
                .parse::<usize>()
                .ok()
        });
        let (status, header, body) = match start {
            Some(start) => {
                let header = format!("Content-Range: bytes {start}-{}/{}\r\n", blob.len() - 1, blob.len());
                ("206 Partial Content", header, &blob[start..])
            }
            None => ("200 OK", String::new(), &blob[..]),
        };
        if body.len() > self.behaviour.cut_bytes && take(&self.cuts) {
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{header}\r\n",
                body.len()
            )?;
            return stream.write_all(&body[..self.behaviour.cut_bytes]);
        }
        respond(stream, status, &header, body)
    }
}

fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
        body.len()
    )?;
    stream.write_all(body)
}
