//! An image from a registry (OCI distribution specification 1.1, the pull part), into an OCI layout on disk.
//!
//! Blobs go to disk as they come; what had come when a connection broke stays, and the next attempt asks for the rest
//! (`Range`). The same folder given again takes up where an earlier pull ended, even one of another process. Nothing
//! counts until its size and digest have been checked, and `index.json` is written last: before that the folder is no
//! layout.
//!
//! A manifest's `urls`, from which a layer may be had elsewhere, are not followed: they would make this machine ask
//! any address that an image names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use oci_client::client::{
    BlobResponse, Certificate, CertificateEncoding, ClientConfig, ClientProtocol, LayerDescriptor,
};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use tokio::io::AsyncWriteExt;

use crate::image::{Descriptor, Index, Manifest, MediaKind, choose, digest_of, hash, parse};
use crate::progress::{Meter, Stage, Tell};
use crate::{ImportError, Limits, Source};

/// Manifests and indexes that are asked for.
const ACCEPTED: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
const NAME: &str = "org.opencontainers.image.ref.name";
const USER_AGENT: &str = concat!("plumbline/", env!("CARGO_PKG_VERSION"));
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// An account of the registry.
#[derive(Clone)]
pub struct Credentials {
    /// Its name.
    pub user: String,
    /// Its password or token. Goes to the registry, and to the token service that the registry names.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Credentials({}, …)", self.user)
    }
}

/// What to pull, and how.
#[derive(Clone, Debug)]
pub struct Pull {
    /// `registry.example/team/image:tag` or `…@sha256:…`. With both, the digest counts.
    pub reference: String,
    /// Where the layout goes; made if it is missing. Keep it to take up an interrupted pull.
    pub folder: PathBuf,
    /// Whether to speak plain HTTP. Anybody on the way can then exchange what a tag means; a digest holds all the same.
    pub plain_http: bool,
    /// The account; without one as anybody.
    pub credentials: Option<Credentials>,
    /// Certificates (PEM) of authorities to trust beside the system's.
    pub authorities: Vec<Vec<u8>>,
    /// How often in a row an attempt may bring nothing before the pull fails.
    pub attempts_max: u32,
    /// Pause after the first failed attempt; it doubles, up to 30 seconds.
    pub pause: Duration,
    /// Longest silence of the registry.
    pub silence_max: Duration,
}

impl Pull {
    /// A pull over HTTPS as anybody, with five attempts and silences of up to a minute.
    #[must_use]
    pub fn new(reference: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        Self {
            reference: reference.into(),
            folder: folder.into(),
            plain_http: false,
            credentials: None,
            authorities: Vec::new(),
            attempts_max: 5,
            pause: Duration::from_millis(500),
            silence_max: Duration::from_secs(60),
        }
    }
}

/// Pulls an image for linux/amd64. The layout in [`Pull::folder`] holds it alone, by the name of the reference.
///
/// # Errors
/// [`ImportError`], of documents as for any image; [`ImportError::Registry`] when the registry does not deliver. What
/// had come by then stays in the folder.
pub async fn pull<'a>(pull: &Pull, limits: &Limits, tell: &'a mut Tell<'a>) -> Result<Source, ImportError> {
    let mut puller = Puller::new(pull, limits, Meter::new(tell))?;
    let wrapped = |error| ImportError::io("create", pull.folder.display().to_string())(error);
    let blobs = pull.folder.join("blobs/sha256");
    tokio::fs::create_dir_all(&blobs).await.map_err(wrapped)?;
    // The folder is no layout until all of it is there.
    let index_file = pull.folder.join("index.json");
    match tokio::fs::remove_file(&index_file).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrapped(error)),
        _ => {}
    }

    puller.meter.stage(Stage::Pull, None)?;
    let mut wanted = puller.document(puller.reference.digest().map(str::to_owned)).await?;
    if MediaKind::of(&wanted.descriptor.media_type) == MediaKind::Index {
        let index: Index = parse(&format!("index {}", wanted.descriptor.digest), &wanted.bytes)?;
        let chosen = choose(index.manifests.iter(), &pull.reference)?.clone();
        chosen.check()?;
        wanted = puller.document(Some(chosen.digest)).await?;
    }
    let Document { mut descriptor, bytes } = wanted;
    if MediaKind::of(&descriptor.media_type) != MediaKind::Manifest {
        return Err(ImportError::MediaType {
            blob: descriptor.digest,
            media_type: descriptor.media_type,
            expected: "an image manifest (OCI, or Docker's schema 2)",
        });
    }
    let manifest: Manifest = parse(&format!("manifest {}", descriptor.digest), &bytes)?;
    manifest.check(&descriptor.digest)?;
    puller.bounds(&manifest)?;
    let all = || manifest.layers.iter().chain([&manifest.config]);
    let total = all().map(|blob| blob.size).sum();
    puller.meter.stage(Stage::Pull, Some(total))?;
    // The configuration first: it is small, and says early if this is the wrong image.
    for blob in std::iter::once(&manifest.config).chain(&manifest.layers) {
        puller.blob(blob).await?;
    }
    let manifest_file = pull.folder.join(descriptor.file());
    tokio::fs::write(&manifest_file, &bytes)
        .await
        .map_err(ImportError::io("write", manifest_file.display().to_string()))?;
    descriptor.annotations.insert(NAME.to_owned(), pull.reference.clone());
    puller.seal(descriptor).await?;
    Ok(Source::Layout {
        path: pull.folder.clone(),
        name: None,
    })
}

struct Document {
    descriptor: Descriptor,
    bytes: Vec<u8>,
}

struct Puller<'p, 'm> {
    pull: &'p Pull,
    limits: &'p Limits,
    meter: Meter<'m>,
    client: Client,
    auth: RegistryAuth,
    reference: Reference,
}

/// Why an attempt failed.
enum Failure {
    /// Another one may succeed.
    Passing(String),
    /// None will.
    Final(ImportError),
}

impl<'p, 'm> Puller<'p, 'm> {
    fn new(pull: &'p Pull, limits: &'p Limits, meter: Meter<'m>) -> Result<Self, ImportError> {
        let unusable = |problem: String| ImportError::Reference {
            reference: pull.reference.clone(),
            problem,
        };
        // Without a registry a name would mean one on the internet, by a habit that is not written anywhere.
        let named = pull
            .reference
            .split_once('/')
            .is_some_and(|(registry, _)| registry == "localhost" || registry.contains(['.', ':']));
        if !named {
            return Err(unusable(
                "expected registry/name:tag, the registry with a dot or a port".to_owned(),
            ));
        }
        let reference: Reference = pull
            .reference
            .parse()
            .map_err(|error: oci_client::ParseError| unusable(error.to_string()))?;
        if let Some(digest) = reference.digest()
            && !crate::image::is_digest(digest)
        {
            return Err(unusable("expected a digest sha256:<64 hexadecimal digits>".to_owned()));
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else may have installed one just now; then that one serves.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let authority = |data: &Vec<u8>| Certificate {
            encoding: CertificateEncoding::Pem,
            data: data.clone(),
        };
        let config = ClientConfig {
            protocol: if pull.plain_http {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            },
            extra_root_certificates: pull.authorities.iter().map(authority).collect(),
            read_timeout: Some(pull.silence_max),
            connect_timeout: Some(pull.silence_max),
            user_agent: USER_AGENT,
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(|error| unusable(chain(&error)))?;
        let auth = match &pull.credentials {
            Some(account) => RegistryAuth::Basic(account.user.clone(), account.password.clone()),
            None => RegistryAuth::Anonymous,
        };
        Ok(Self {
            pull,
            limits,
            meter,
            client,
            auth,
            reference,
        })
    }

    /// Bounds that hold before anything of the image is fetched.
    fn bounds(&self, manifest: &Manifest) -> Result<(), ImportError> {
        let over = |what, found, limit| ImportError::Limit {
            what,
            place: self.pull.reference.clone(),
            found,
            limit,
        };
        let layers = manifest.layers.len();
        if layers > self.limits.layers_max {
            return Err(over("layers", layers as u64, self.limits.layers_max as u64));
        }
        if manifest.config.size > self.limits.document_bytes_max {
            let limit = self.limits.document_bytes_max;
            return Err(over("bytes of the configuration", manifest.config.size, limit));
        }
        let bytes = manifest
            .layers
            .iter()
            .fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
        if bytes > self.limits.stream_bytes_max() {
            return Err(over("bytes of the layers", bytes, self.limits.stream_bytes_max()));
        }
        Ok(())
    }

    /// The manifest or index of the reference, or of a digest beside it; checked if a digest says what it must be.
    async fn document(&mut self, digest: Option<String>) -> Result<Document, ImportError> {
        let reference = match &digest {
            Some(digest) => self.reference.clone_with_digest(digest.clone()),
            None => self.reference.clone(),
        };
        let what = format!("manifest {}", digest.as_deref().or(reference.tag()).unwrap_or("latest"));
        let mut failures = 0;
        let bytes = loop {
            let answer = self.client.pull_manifest_raw(&reference, &self.auth, &ACCEPTED).await;
            match answer {
                Ok((bytes, _)) => break bytes.to_vec(),
                Err(error) => {
                    let failure = self.judge(&error);
                    self.failed(failure, &what, &mut failures).await?;
                }
            }
        };
        let size = bytes.len() as u64;
        if size > self.limits.document_bytes_max {
            return Err(ImportError::Limit {
                what: "bytes of a document",
                place: what,
                found: size,
                limit: self.limits.document_bytes_max,
            });
        }
        let found = digest_of(&bytes);
        if let Some(expected) = digest
            && expected != found
        {
            return Err(ImportError::Digest {
                blob: what,
                expected,
                found,
            });
        }
        let media_type = media_type_of(&what, &bytes)?;
        let descriptor = Descriptor {
            media_type,
            digest: found,
            size,
            platform: None,
            annotations: Default::default(),
        };
        Ok(Document { descriptor, bytes })
    }

    /// Brings one blob to disk.
    async fn blob(&mut self, descriptor: &Descriptor) -> Result<(), ImportError> {
        let file = self.pull.folder.join(descriptor.file());
        if size_of(&file).await == Some(descriptor.size) && self.check(descriptor, &file).await.is_ok() {
            return self.meter.bytes(descriptor.size);
        }
        let partial = file.with_extension("partial");
        let what = format!("blob {}", descriptor.digest);
        let mut failures = 0;
        // What an earlier pull left counts as done.
        let mut told = size_of(&partial).await.unwrap_or(0).min(descriptor.size);
        self.meter.bytes(told)?;
        loop {
            let before = size_of(&partial).await.unwrap_or(0);
            if before == descriptor.size {
                break;
            }
            let attempt = self.attempt(descriptor, &partial, &mut told).await;
            let Err(failure) = attempt else { continue };
            if size_of(&partial).await.unwrap_or(0) > before {
                // It brought something: as long as that goes on, the end comes nearer.
                failures = 0;
            }
            self.failed(failure, &what, &mut failures).await?;
        }
        if let Err(error) = self.check(descriptor, &partial).await {
            // It would be taken up again otherwise.
            let _ = tokio::fs::remove_file(&partial).await;
            return Err(error);
        }
        tokio::fs::rename(&partial, &file)
            .await
            .map_err(ImportError::io("rename", partial.display().to_string()))
    }

    /// One request for what is missing of a blob. An error leaves what came.
    async fn attempt(&mut self, descriptor: &Descriptor, partial: &Path, told: &mut u64) -> Result<(), Failure> {
        let local = |error| Failure::Final(ImportError::io("write", partial.display().to_string())(error));
        let mut options = tokio::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(partial).await.map_err(local)?;
        let mut done = file.metadata().await.map_err(local)?.len();
        if done > descriptor.size {
            file.set_len(0).await.map_err(local)?;
            done = 0;
        }
        let layer = LayerDescriptor {
            digest: &descriptor.digest,
            urls: &None,
        };
        let answer = self
            .client
            .pull_blob_stream_partial(&self.reference, &layer, done, None)
            .await;
        let mut stream = match answer {
            Ok(BlobResponse::Partial(stream)) => stream,
            Ok(BlobResponse::Full(stream)) => {
                // A registry that knows no ranges starts over.
                file.set_len(0).await.map_err(local)?;
                done = 0;
                stream
            }
            Err(error) => return Err(self.judge(&error)),
        };
        while done < descriptor.size {
            let chunk = match stream.next().await {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => {
                    file.flush().await.map_err(local)?;
                    return Err(Failure::Passing(format!(
                        "broke off after {done} of {} bytes: {}",
                        descriptor.size,
                        chain(&error)
                    )));
                }
                None => {
                    file.flush().await.map_err(local)?;
                    return Err(Failure::Passing(format!(
                        "ended after {done} of {} bytes",
                        descriptor.size
                    )));
                }
            };
            let found = done + chunk.len() as u64;
            if found > descriptor.size {
                return Err(Failure::Final(ImportError::Size {
                    blob: descriptor.digest.clone(),
                    expected: descriptor.size,
                    found,
                }));
            }
            file.write_all(&chunk).await.map_err(local)?;
            done = found;
            let more = done.saturating_sub(*told);
            *told = done.max(*told);
            if let Err(stopped) = self.meter.bytes(more) {
                file.flush().await.map_err(local)?;
                return Err(Failure::Final(stopped));
            }
        }
        file.flush().await.map_err(local)?;
        file.sync_all().await.map_err(local)
    }

    /// Size and digest of a file.
    async fn check(&mut self, descriptor: &Descriptor, file: &Path) -> Result<(), ImportError> {
        let (path, name) = (file.to_owned(), descriptor.digest.clone());
        let hashed = tokio::task::spawn_blocking(move || {
            let file = std::fs::File::open(&path).map_err(ImportError::io("open", path.display().to_string()))?;
            hash(file, &name, None)
        });
        let found = hashed.await.map_err(|error| {
            ImportError::io("read", file.display().to_string())(std::io::Error::other(error.to_string()))
        })??;
        if found != descriptor.digest {
            return Err(ImportError::Digest {
                blob: format!("blob from {}", self.pull.reference),
                expected: descriptor.digest.clone(),
                found,
            });
        }
        Ok(())
    }

    /// Counts a failed attempt and waits, or gives up.
    async fn failed(&mut self, failure: Failure, what: &str, failures: &mut u32) -> Result<(), ImportError> {
        let problem = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Passing(problem) => problem,
        };
        *failures += 1;
        if *failures >= self.pull.attempts_max.max(1) {
            return Err(ImportError::Registry {
                reference: self.pull.reference.clone(),
                what: what.to_owned(),
                attempts: *failures,
                problem,
            });
        }
        tracing::warn!(image.reference = %self.pull.reference, what, attempt = *failures, %problem, "asking the registry again");
        let pause = self.pull.pause.saturating_mul(1 << (*failures - 1).min(16));
        tokio::time::sleep(pause.min(PAUSE_MAX)).await;
        Ok(())
    }

    /// Whether asking again may help.
    fn judge(&self, error: &OciDistributionError) -> Failure {
        use OciDistributionError as Error;
        let reference = || self.pull.reference.clone();
        let passing = match error {
            Error::UnauthorizedError { .. } | Error::AuthenticationFailure(_) => {
                return Failure::Final(ImportError::Unauthorized { reference: reference() });
            }
            Error::RegistryError { envelope, .. } => envelope
                .errors
                .iter()
                .any(|error| error.code == OciErrorCode::Toomanyrequests),
            Error::ServerError { code, .. } => *code >= 500 || matches!(code, 408 | 429),
            Error::RequestError(_) | Error::IoError(_) => true,
            _ => false,
        };
        let problem = chain(error);
        if passing {
            return Failure::Passing(problem);
        }
        Failure::Final(ImportError::Registry {
            reference: reference(),
            what: "the pull".to_owned(),
            attempts: 1,
            problem,
        })
    }

    /// Makes the folder a layout.
    async fn seal(&mut self, descriptor: Descriptor) -> Result<(), ImportError> {
        let index = Index {
            schema_version: 2,
            media_type: Some("application/vnd.oci.image.index.v1+json".to_owned()),
            manifests: vec![descriptor],
        };
        let index = serde_json::to_vec(&index).map_err(|error| ImportError::Document {
            document: "index.json".to_owned(),
            problem: error.to_string(),
        })?;
        let layout = br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec();
        for (name, content) in [("oci-layout", layout), ("index.json", index)] {
            let (path, temporary) = (
                self.pull.folder.join(name),
                self.pull.folder.join(format!("{name}.partial")),
            );
            let failed = |error| ImportError::io("write", path.display().to_string())(error);
            tokio::fs::write(&temporary, content).await.map_err(failed)?;
            tokio::fs::rename(&temporary, &path).await.map_err(failed)?;
        }
        Ok(())
    }
}

/// What a document says it is; without a word, what it looks like.
fn media_type_of(what: &str, bytes: &[u8]) -> Result<String, ImportError> {
    let document: serde_json::Value = parse(what, bytes)?;
    if let Some(text) = document.get("mediaType").and_then(serde_json::Value::as_str) {
        return Ok(text.to_owned());
    }
    Ok(if document.get("manifests").is_some() {
        ACCEPTED[0].to_owned()
    } else if document.get("config").is_some() {
        ACCEPTED[2].to_owned()
    } else {
        "application/vnd.docker.distribution.manifest.v1+json".to_owned()
    })
}

async fn size_of(file: &Path) -> Option<u64> {
    tokio::fs::metadata(file).await.ok().map(|metadata| metadata.len())
}

/// An error with all that stands behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}
