//! A people's interface without a socket, and one with.

use std::path::Path;
use std::sync::Arc;

use argon2::password_hash::PasswordHasher as _;
use argon2::{Algorithm, Argon2, Params, Version};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use manifest::packs::{PackWriter, StoredPack};
use manifest::{Digest, Entry, EntryKind, FileContent, Header, Manifest, ManifestKind, PathClass, Xattrs};
use plumbline::app::App;
use plumbline::config::Config;
use plumbline::image::ImageParts;
use protocol::latest::{Baseline, DriftReport, Outcome, ReportKind, ScanSummary};
use protocol::{DeploymentId, NodeId};
use serde_json::{Value, json};
use store::{NewImage, Store};
use testkit::TestDatabase;
use tower::ServiceExt as _;

/// The password of every user in these tests.
pub const PASSWORD: &str = "correct horse battery";

/// A server with the users `admin` and `viewer`.
pub struct Server {
    pub app: App,
    pub router: Router,
    pub admin: String,
    pub viewer: String,
    _database: TestDatabase,
    _data: tempfile::TempDir,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The reason in an error's body.
    pub fn error(&self) -> &str {
        self.body["error"]
            .as_str()
            .unwrap_or_else(|| panic!("no reason in {self:?}"))
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::start_as(|_| {}, None).await
    }

    /// A server with another configuration, and with a program that builds in the place of its own.
    pub async fn start_as(change: impl FnOnce(&mut Config), build_program: Option<&Path>) -> Self {
        let database = TestDatabase::create().await;
        let data = tempfile::tempdir().unwrap();
        let text = format!("data_dir = {:?}", data.path());
        let mut config = Config::parse(&text, Path::new("test.toml")).unwrap();
        change(&mut config);
        let store = Store::new(database.pool.clone());
        let mut app = App::open(Arc::new(config), store).unwrap();
        if let Some(program) = build_program {
            app.build_program = program.into();
        }
        for name in ["admin", "viewer"] {
            app.store.user_create(name, &cheap_hash(), name).await.unwrap();
        }
        let router = plumbline::http::people::router(app.clone());
        let mut server = Self {
            app,
            router,
            admin: String::new(),
            viewer: String::new(),
            _database: database,
            _data: data,
        };
        server.admin = server.sign_in("admin").await;
        server.viewer = server.sign_in("viewer").await;
        server
    }

    pub async fn sign_in(&self, name: &str) -> String {
        let body = json!({ "name": name, "password": PASSWORD });
        let answer = self.ask(Method::POST, "/api/v1/session", None, Some(&body)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.body["token"].as_str().unwrap().to_owned()
    }

    /// Asks with a token.
    pub async fn ask(&self, method: Method, path: &str, token: Option<&str>, body: Option<&Value>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = match body {
            None => request.body(Body::empty()),
            Some(body) => request
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(body.to_string())),
        };
        self.request(request.unwrap()).await
    }

    /// Asks anything.
    pub async fn request(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let is_endless = parts
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let body = if is_endless { Body::empty() } else { body };
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("no JSON: {bytes:?}"))
        };
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// Reads as the viewer.
    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, Some(&self.viewer), None).await
    }

    /// Changes as the admin.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, Some(&self.admin), Some(&body)).await
    }

    /// Waits until a background task has done its part: `advance` is run until this holds.
    pub async fn advance_until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        for _ in 0..50 {
            plumbline::app::remediation::advance(self.app.clone()).await.unwrap();
            if holds().await {
                return;
            }
        }
        panic!("{what} did not come about");
    }

    /// A heartbeat, so that the node's agent counts as speaking.
    pub async fn heartbeat(&self, baseline: &Baseline) -> protocol::latest::HeartbeatReply {
        let heartbeat = protocol::latest::Heartbeat {
            boot_id: uuid::Uuid::nil(),
            sequence: 1,
            baseline: Some(baseline.digest),
            state: None,
            agent_version: "0".to_owned(),
            uptime_secs: 60,
            rss_max_bytes: 1,
            unix_ms: 0,
            restart: None,
            refused: None,
        };
        plumbline::app::agents::heartbeat(&self.app, baseline.node_id, &heartbeat)
            .await
            .unwrap()
    }

    /// Registers an image of this kind, with nothing in it.
    pub async fn image(&self, kind: &str, name: &str, version: &str) -> Digest {
        let manifest_kind = match kind {
            "os" => ManifestKind::Os,
            "agent" => ManifestKind::Agent,
            _ => ManifestKind::Deployer,
        };
        self.image_of(Header::new(manifest_kind, name, version), &[]).await
    }

    /// Registers an image of these files: path, permission bits, content.
    pub async fn image_of(&self, header: Header, files: &[(&str, u32, &str)]) -> Digest {
        let (name, version, kind) = (header.name.clone(), header.version.clone(), header.kind);
        let entry = |path: &str, mode, kind| Entry {
            path: path.parse().unwrap(),
            class: PathClass::Pinned,
            kind,
            mode,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs: Xattrs::new(),
        };
        let mut entries: Vec<Entry> = files
            .iter()
            .map(|(path, mode, content)| {
                let content = FileContent {
                    size: content.len() as u64,
                    digest: Digest::of(content.as_bytes()),
                };
                entry(path, *mode, EntryKind::File(Some(content)))
            })
            .collect();
        let mut folders: Vec<_> = entries.iter().filter_map(|entry| entry.path.parent()).collect();
        folders.sort();
        folders.dedup();
        entries.extend(
            folders
                .iter()
                .map(|path| entry(&path.to_string(), 0o755, EntryKind::Directory)),
        );
        let manifest = Manifest::new(header, entries).unwrap();
        let bytes = manifest.encode().unwrap();

        let mut packs = Vec::new();
        let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
            packs.push((pack.digest, pack.bytes.to_vec()));
            Ok(())
        });
        for (_, _, content) in files.iter().filter(|(_, _, content)| !content.is_empty()) {
            let digest = Digest::of(content.as_bytes());
            writer.add(digest, content.len() as u64, content.as_bytes()).unwrap();
        }
        let index = writer.finish().unwrap();
        for (digest, bytes) in packs {
            self.app.images.put_pack(digest, bytes.into()).await.unwrap();
        }
        let parts = ImageParts {
            signature: Some(match kind {
                ManifestKind::Agent => self.app.keys.agent_release.sign(&bytes, &name).unwrap(),
                _ => self
                    .app
                    .keys
                    .image_signer()
                    .unwrap()
                    .unwrap()
                    .sign(&bytes, &name)
                    .unwrap(),
            }),
            manifest: bytes.into(),
            packs: index,
            artifacts: Vec::new(),
        };
        let digest = self.app.images.put_image(parts).await.unwrap();
        let image = NewImage {
            digest,
            kind: kind.as_str().to_owned(),
            name,
            version,
            description: None,
            architecture: "amd64".to_owned(),
            files: 3,
            content_bytes: 1_000,
            stored_bytes: 500,
            files_by_class: [("pinned".to_owned(), 3)].into(),
            signer: None,
        };
        self.app.store.image_register(&image).await.unwrap();
        digest
    }

    /// A node of the rack plan.
    pub async fn node(&self, name: &str, mac: &str) -> NodeId {
        let answer = self.post("/api/v1/nodes", json!({ "name": name, "mac": mac })).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.body["id"].as_str().unwrap().parse().unwrap()
    }

    /// A node that was installed, and the baseline it should be.
    pub async fn installed_node(&self, name: &str, mac: &str) -> (NodeId, Baseline) {
        self.image("os", "debian-12-lab", "20260101T000000Z").await;
        self.image("agent", "plumbline-agent", "20260101T000000Z").await;
        let node = self.node(name, mac).await;
        let path = format!("/api/v1/nodes/{node}/deployments");
        let answer = self.post(&path, json!({ "image": "debian-12-lab" })).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        let deployment: DeploymentId = answer.body["id"].as_str().unwrap().parse().unwrap();
        let store = &self.app.store;
        let token = store
            .token_issue(node, Some((deployment, 1)), mac, "10.0.0.9")
            .await
            .unwrap();
        assert!(store.deployment_start(deployment, token).await.unwrap());
        let overlay = format!("overlay of {name}");
        store
            .deployment_set_overlay(deployment, Digest::of(overlay.as_bytes()), &overlay, &[])
            .await
            .unwrap();
        let outcome = Outcome::Installed {
            files: 3,
            bytes: 1_000,
            requests: 1,
            duration_secs: 10,
            work: None,
        };
        store.deployment_finish(deployment, &outcome).await.unwrap();
        let baseline = store.baseline_find(node).await.unwrap().unwrap();
        (node, baseline)
    }
}

/// A hash of [`PASSWORD`] with the least work there is: a test that signs in waits for nothing.
fn cheap_hash() -> String {
    let parameters = Params::new(Params::MIN_M_COST, 1, 1, None).unwrap();
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters);
    argon2.hash_password(PASSWORD.as_bytes()).unwrap().to_string()
}

/// A full report of a complete scan with these differences.
pub fn report(baseline: &Baseline, sequence: u64, differences: Vec<drift::Difference>) -> DriftReport {
    DriftReport {
        boot_id: uuid::Uuid::nil(),
        sequence,
        baseline: baseline.digest,
        state: drift::state_digest(&differences),
        scan: ScanSummary {
            complete: true,
            difference_count: u64::try_from(differences.len()).unwrap(),
            ..ScanSummary::default()
        },
        not_looked_at: Vec::new(),
        after_job: None,
        kind: ReportKind::Full { differences },
    }
}
