use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use drift::{Attributes, Difference, FindingKind};
use manifest::{Header, KeyPair, Manifest, ManifestKind};
use protocol::NodeId;
use protocol::latest::{DriftReport, ReportKind, ScanSummary};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[test]
fn sequences_rise_even_when_the_agent_restarts_or_hurries() {
    let mut last = 0;
    let at = Duration::from_millis;
    assert_eq!(next_sequence(&mut last, at(5000)), 5000);
    assert_eq!(next_sequence(&mut last, at(5000)), 5001);
    assert_eq!(next_sequence(&mut last, at(5000)), 5002);
    let mut restarted = 0;
    assert!(next_sequence(&mut restarted, at(9000)) > last);
}

#[test]
fn a_wrong_clock_is_told_from_other_trouble() {
    let wrong = rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidYet);
    assert!(is_clock_problem(&wrong.to_string()), "{wrong}");
    let wrong = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
    assert!(is_clock_problem(&wrong.to_string()), "{wrong}");
    let other = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    assert!(!is_clock_problem(&other.to_string()), "{other}");
}

/// Status and body, in the order they are given.
type Answers = Vec<(u16, Vec<u8>)>;

/// A server that answers each path with the next prepared answer, or the last one again, and remembers what it heard.
#[derive(Default)]
struct Server {
    answers: Mutex<BTreeMap<String, Answers>>,
    heard: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Server {
    fn answer(&self, path: &str, status: u16, body: impl Into<Vec<u8>>) {
        let mut answers = self.answers.lock().unwrap();
        answers.entry(path.to_owned()).or_default().push((status, body.into()));
    }

    fn forget(&self, path: &str) {
        self.answers.lock().unwrap().remove(path);
        self.heard.lock().unwrap().clear();
    }

    fn heard<T: serde::de::DeserializeOwned>(&self, path: &str) -> Vec<T> {
        let heard = self.heard.lock().unwrap();
        heard
            .iter()
            .filter(|(to, _)| to == path)
            .map(|(_, body)| serde_json::from_slice(body).unwrap())
            .collect()
    }

    fn calls(&self, path: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|(to, _)| to == path).count()
    }

    async fn serve(self: Arc<Self>, listener: tokio::net::TcpListener) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            let (head, length) = loop {
                assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
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
}

struct Fixture {
    server: Arc<Server>,
    keys: [KeyPair; 2],
    node: NodeId,
    folder: tempfile::TempDir,
    contact: Contact,
}

impl Fixture {
    async fn new() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Arc::new(Server::default());
        tokio::spawn(server.clone().serve(listener));
        let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
        let folder = tempfile::tempdir().unwrap();
        let contact = contact(&url, folder.path(), &keys);
        Self {
            server,
            keys,
            node: NodeId::new(),
            folder,
            contact,
        }
    }

    /// Serves a baseline whose image has this version, signed by this key.
    fn offer(&self, version: &str, signer: &KeyPair) -> Baseline {
        let kinds = [ManifestKind::Os, ManifestKind::Agent, ManifestKind::Overlay];
        let digests = kinds.map(|kind| {
            let manifest = Manifest::new(Header::new(kind, "x", version), Vec::new()).unwrap();
            let bytes = manifest.encode().unwrap();
            let path = format!("{}/{}", paths::MANIFESTS, Digest::of(&bytes));
            let signer = if kind == ManifestKind::Os {
                signer
            } else {
                &self.keys[1]
            };
            let signature = signer.sign(&bytes, "x").unwrap();
            self.server.answer(&path, 200, bytes.clone());
            if kind != ManifestKind::Overlay {
                self.server
                    .answer(&format!("{path}/signature"), 200, signature.as_str());
            }
            Digest::of(&bytes)
        });
        let baseline = Baseline::new(self.node, digests[0], digests[1], digests[2]);
        self.server.forget(paths::BASELINE);
        self.server
            .answer(paths::BASELINE, 200, serde_json::to_vec(&baseline).unwrap());
        self.beat(baseline.digest, false, false);
        baseline
    }

    /// What heartbeats are answered from now on.
    fn beat(&self, baseline: Digest, full_report: bool, scan_now: bool) {
        let reply = HeartbeatReply {
            baseline,
            next_secs: 60,
            full_report,
            scan_now,
            unix_ms: process::unix_ms(),
        };
        self.server.forget(paths::HEARTBEAT);
        self.server
            .answer(paths::HEARTBEAT, 200, serde_json::to_vec(&reply).unwrap());
    }

    fn reply(&self, replies: &[ReportReply]) {
        self.server.forget(paths::REPORTS);
        for reply in replies {
            self.server
                .answer(paths::REPORTS, 200, serde_json::to_vec(reply).unwrap());
        }
    }

    fn reports(&self) -> Vec<DriftReport> {
        self.server.heard(paths::REPORTS)
    }

    fn beats(&self) -> Vec<Heartbeat> {
        self.server.heard(paths::HEARTBEAT)
    }
}

fn contact(url: &str, folder: &Path, keys: &[KeyPair; 2]) -> Contact {
    let text = format!(
        "server = \"https://unused\"\nimage_key = \"{}\"\nagent_release_key = \"{}\"\n",
        keys[0].public().as_str(),
        keys[1].public().as_str()
    );
    let config = Config::parse(&text).unwrap();
    Contact::new(&config, Api::plain(url).unwrap(), StateFolder::open(folder).unwrap()).unwrap()
}

fn state(baseline: &Baseline, keys: &[&str]) -> NodeState {
    let differences: Vec<_> = keys
        .iter()
        .map(|&key| Difference {
            kind: FindingKind::File,
            key: key.to_owned(),
            expected: None,
            actual: Some(Attributes::default()),
        })
        .collect();
    NodeState {
        baseline: baseline.digest,
        state: drift::state_digest(&differences),
        differences,
        not_looked_at: Vec::new(),
        scan: ScanSummary::default(),
    }
}

fn is_full(report: &DriftReport) -> bool {
    matches!(report.kind, ReportKind::Full { .. })
}

#[tokio::test]
async fn first_everything_is_told_then_what_changed_then_only_the_digest() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.reply(&[ReportReply::Accepted]);
    f.contact.talk().await;
    assert_eq!(f.contact.baseline().unwrap().0, baseline.digest);
    assert!(f.contact.is_ready() && f.contact.is_scan_wanted());
    assert_eq!(f.beats()[0].state, None);

    let first = state(&baseline, &["/a", "/b"]);
    f.contact.tell(first.clone());
    let pause = f.contact.talk().await;
    assert!((54..=66).contains(&pause.as_secs()), "{pause:?}");
    assert!(is_full(&f.reports()[0]));
    assert_eq!(f.beats()[1].state, Some(first.state));

    f.contact.tell(state(&baseline, &["/b", "/c"]));
    f.contact.talk().await;
    let ReportKind::Delta { base, set, cleared } = &f.reports()[1].kind else {
        panic!()
    };
    assert_eq!((*base, set.len(), cleared.len()), (first.state, 1, 1));
    f.contact.talk().await;
    assert_eq!(f.reports().len(), 2, "nothing new, nothing told");
    let sequences: Vec<_> = f.beats().iter().map(|beat| beat.sequence).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b));

    // An agent that starts again knows what the server knows.
    let again = contact("http://127.0.0.1:1", f.folder.path(), &f.keys);
    assert_eq!(
        again.acknowledged(),
        Some(&state(&baseline, &["/b", "/c"]).acknowledged())
    );
    assert_eq!(again.baseline().unwrap().0, baseline.digest);
}

#[tokio::test]
async fn a_server_that_lacks_the_base_or_the_state_gets_everything() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.reply(&[ReportReply::Accepted]);
    f.contact.tell(state(&baseline, &["/a"]));
    f.contact.talk().await;
    f.contact.tell(state(&baseline, &["/a"]));
    f.contact.talk().await;
    let reason = "restored from a backup".to_owned();
    f.reply(&[ReportReply::NeedFull { reason }, ReportReply::Accepted]);
    f.contact.tell(state(&baseline, &["/b"]));
    f.contact.talk().await;
    assert_eq!(f.reports().iter().map(is_full).collect::<Vec<_>>(), [false, true]);
    f.beat(baseline.digest, true, true);
    f.contact.scan_started();
    f.contact.talk().await;
    assert!(is_full(f.reports().last().unwrap()));
    assert!(f.contact.is_scan_wanted());
}

#[tokio::test]
async fn a_new_baseline_is_fetched_and_old_states_are_dropped() {
    let mut f = Fixture::new().await;
    let old = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    f.contact.scan_started();
    let new = f.offer("2", &f.keys[0]);
    f.contact.talk().await;
    assert_eq!(f.contact.baseline().unwrap().0, new.digest);
    assert!(f.contact.is_scan_wanted());
    f.reply(&[ReportReply::Stale {
        reason: "another baseline".to_owned(),
    }]);
    f.contact.tell(state(&old, &["/a"]));
    f.contact.talk().await;
    f.contact.talk().await;
    assert_eq!(f.reports().len(), 1, "a stale report is not sent again");
    assert_eq!(f.server.calls(paths::BASELINE), 1, "the baseline is asked for again");
    assert_eq!(f.contact.acknowledged(), None);
}

#[tokio::test]
async fn a_manifest_signed_by_somebody_else_is_never_looked_by() {
    let mut f = Fixture::new().await;
    // The release key does not sign images.
    f.offer("1", &f.keys[1]);
    f.contact.talk().await;
    assert!(f.contact.baseline().is_none() && !f.contact.is_ready());
    let good = f.offer("2", &f.keys[0]);
    f.contact.talk().await;
    f.offer("3", &KeyPair::generate().unwrap());
    f.contact.talk().await;
    assert_eq!(f.contact.baseline().unwrap().0, good.digest, "the one it has stays");
}

#[tokio::test]
async fn the_newest_state_waits_for_a_server_that_is_away() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    f.server.forget(paths::REPORTS);
    f.server.answer(paths::REPORTS, 503, "busy");
    for name in ["/a", "/b"] {
        f.contact.tell(state(&baseline, &[name]));
        let pause = f.contact.talk().await;
        assert!(pause.as_secs() >= 120, "the server asked for two minutes: {pause:?}");
        assert!(f.contact.earliest() > Instant::now() + Duration::from_secs(100));
    }
    f.reply(&[ReportReply::Accepted]);
    f.contact.talk().await;
    let ReportKind::Full { differences } = &f.reports()[0].kind else {
        panic!()
    };
    assert_eq!((f.reports().len(), differences[0].key.as_str()), (1, "/b"));
}
