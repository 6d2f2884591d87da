//! A server for tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use manifest::KeyPair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Config;
use super::contact::Contact;
use crate::api::Api;
use crate::node::NodeParts;
use crate::state::StateFolder;

/// Status and body, in the order they are given.
type Answers = Vec<(u16, Vec<u8>)>;

/// A server that answers each path with the next prepared answer, or the last one again, and remembers what it heard.
#[derive(Default)]
pub(super) struct Server {
    answers: Mutex<BTreeMap<String, Answers>>,
    heard: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Server {
    pub(super) fn answer(&self, path: &str, status: u16, body: impl Into<Vec<u8>>) {
        let mut answers = self.answers.lock().unwrap();
        answers.entry(path.to_owned()).or_default().push((status, body.into()));
    }

    /// A server on a port of its own.
    pub(super) async fn start() -> (Arc<Self>, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Arc::new(Self::default());
        tokio::spawn(server.clone().serve(listener));
        (server, url)
    }

    /// The next answers take the place of those prepared; what was heard stays.
    pub(super) fn forget_answer(&self, path: &str) {
        self.answers.lock().unwrap().remove(path);
    }

    /// Bodies sent to this path.
    pub(super) fn raw(&self, path: &str) -> Vec<Vec<u8>> {
        let heard = self.heard.lock().unwrap();
        heard
            .iter()
            .filter(|(to, _)| to == path)
            .map(|(_, body)| body.clone())
            .collect()
    }

    pub(super) fn forget(&self, path: &str) {
        self.answers.lock().unwrap().remove(path);
        self.heard.lock().unwrap().clear();
    }

    pub(super) fn heard<T: serde::de::DeserializeOwned>(&self, path: &str) -> Vec<T> {
        let heard = self.heard.lock().unwrap();
        heard
            .iter()
            .filter(|(to, _)| to == path)
            .map(|(_, body)| serde_json::from_slice(body).unwrap())
            .collect()
    }

    pub(super) fn calls(&self, path: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|(to, _)| to == path).count()
    }

    async fn serve(self: Arc<Self>, listener: tokio::net::TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(self.clone().converse(stream));
        }
    }

    async fn converse(self: Arc<Self>, mut stream: tokio::net::TcpStream) {
        let mut bytes = Vec::new();
        let (head, length) = loop {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
                let length = |line: &str| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok();
                let length: usize = head.lines().find_map(length).unwrap_or(0);
                bytes.drain(..end + 4);
                break (head, length);
            }
        };
        while bytes.len() < length {
            stream.read_buf(&mut bytes).await.unwrap();
        }
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let (status, body) = {
            let mut answers = self.answers.lock().unwrap();
            match answers.get_mut(&path) {
                Some(list) if list.len() > 1 => list.remove(0),
                Some(list) => list[0].clone(),
                None => (404, Vec::new()),
            }
        };
        self.heard.lock().unwrap().push((path, bytes));
        let head = format!(
            "HTTP/1.1 {status} x\r\nretry-after: 120\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.into_bytes(), body].concat()).await.unwrap();
    }
}

/// A contact with a node in this folder, by keys for images, agent layers and jobs.
pub(super) fn contact(url: &str, folder: &Path, keys: &[KeyPair; 3], base: &Path) -> Contact {
    let text = format!(
        "server = \"https://unused\"\nimage_key = \"{}\"\nagent_release_key = \"{}\"\njob_key = \"{}\"\n",
        keys[0].public().as_str(),
        keys[1].public().as_str(),
        keys[2].public().as_str()
    );
    let config = Config::parse(&text).unwrap();
    let state = StateFolder::open(folder).unwrap();
    Contact::new(&config, Api::plain(url).unwrap(), state, NodeParts::of_folder(base))
}
