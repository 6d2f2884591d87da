//! A boot listener without a socket.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use manifest::{Digest, Header, Manifest, ManifestKind};
use plumbline::app::App;
use plumbline::config::Config;
use plumbline::image::{ArtifactName, ImageParts, ImageStore, Keys};
use store::{NewImage, Store};
use testkit::TestDatabase;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// A server with some loaders.
pub struct Listener {
    router: Router,
    pub app: App,
    _database: TestDatabase,
    folder: tempfile::TempDir,
}

/// A server that listens on a socket.
pub struct Served {
    pub listener: Listener,
    pub address: SocketAddr,
    /// Stops it.
    pub stop: CancellationToken,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Listener {
    /// `settings` are further lines of `[boot]`.
    pub async fn start(loaders: &[(&str, &[u8])], settings: &str) -> Self {
        let database = TestDatabase::create().await;
        let folder = tempfile::tempdir().unwrap();
        let loaders_dir = folder.path().join("loaders");
        std::fs::create_dir(&loaders_dir).unwrap();
        for (name, content) in loaders {
            std::fs::write(loaders_dir.join(name), content).unwrap();
        }
        let text = format!(
            "data_dir = {:?}\n[boot]\ninterface = \"lo\"\naddress = \"127.0.0.1/8\"\nloaders_dir = {loaders_dir:?}\n{settings}\n",
            folder.path().join("data")
        );
        let config = Config::parse(&text, Path::new("test.toml")).unwrap();
        let app = App::open(Arc::new(config), Store::new(database.pool.clone())).unwrap();
        Self {
            router: plumbline::http::boot::router(app.clone()),
            app,
            _database: database,
            folder,
        }
    }

    pub async fn ask(&self, method: Method, path: &str, range: Option<&str>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let peer: SocketAddr = "10.77.0.50:49152".parse().unwrap();
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    /// Puts a file into the image store.
    pub fn put_object(&self, path: &str, bytes: &[u8]) {
        let path = self.folder.path().join("data/images").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Listens on a socket.
    pub async fn serve(self) -> Served {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = plumbline::http::listener::plain(
            socket,
            plumbline::http::boot::CONNECTIONS,
            self.router.clone(),
            stop.clone(),
        );
        tokio::spawn(serving);
        Served {
            listener: self,
            address,
            stop,
        }
    }

    pub async fn get(&self, path: &str, range: Option<&str>) -> Answer {
        self.ask(Method::GET, path, range).await
    }
}

/// Puts a signed deployer into a data folder and makes it known, as far as a script needs it: a server that runs looks
/// whether it is there.
pub async fn deployer_put(data_dir: &Path, store: &Store) {
    let keys = Keys::load_or_create(&data_dir.join("keys")).unwrap();
    let header = Header::new(ManifestKind::Deployer, "deployer", "20260101T000000Z");
    let bytes = Manifest::new(header, Vec::new()).unwrap().encode().unwrap();
    let artifacts = [ArtifactName::Kernel, ArtifactName::Initramfs];
    let parts = ImageParts {
        signature: Some(keys.image_signer().unwrap().unwrap().sign(&bytes, "deployer").unwrap()),
        manifest: bytes.into(),
        packs: Default::default(),
        artifacts: artifacts.map(|name| (name, "content".into())).to_vec(),
    };
    let digest = ImageStore::open(data_dir).unwrap().put_image(parts).await.unwrap();
    register(store, digest).await;
}

/// Makes a deployer known for amd64, as far as a script needs it.
pub async fn deployer_register(store: &Store) {
    register(store, Digest::of(b"deployer")).await;
}

async fn register(store: &Store, digest: Digest) {
    let image = NewImage {
        digest,
        kind: "deployer".to_owned(),
        name: "deployer".to_owned(),
        version: "20260101T000000Z".to_owned(),
        description: None,
        architecture: "amd64".to_owned(),
        files: 1,
        content_bytes: 1,
        stored_bytes: 1,
        files_by_class: Default::default(),
        signer: None,
    };
    store.image_register(&image).await.unwrap();
}
