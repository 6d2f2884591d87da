//! What the appliance does, apart from HTTP, DHCP and the command line.
//!
//! Handlers unpack, call a function of this module, and wrap its result. State is in PostgreSQL and the image store;
//! [`App`] holds the ways to them and nothing that would be missed after a crash.

pub mod agents;
pub mod auth;
pub mod authority;
pub mod boot;
pub mod boot_orders;
pub mod builds;
pub mod burn_ins;
pub mod channels;
pub mod collection;
pub mod contents;
pub mod deployments;
pub mod discovery;
pub mod drift;
pub mod enrol;
pub mod error;
pub mod foreign_lease;
pub mod image_diff;
pub mod image_facts;
pub mod images;
pub mod leases;
pub mod nodes;
pub mod notices;
pub mod overview;
pub mod packets;
pub mod policy;
pub mod rack_plan;
pub mod recipes;
pub mod remediation;
pub mod render;
pub mod reviews;
pub mod rules;
pub mod sign_in_limiter;
pub mod tokens;
pub mod trace;
pub mod trust;

use std::path::Path;
use std::sync::Arc;

use ::drift::Policy;
use anyhow::Context as _;
use store::Store;
use tokio::sync::Notify;

use crate::boot_plane::Loaders;
use crate::config::Config;
use crate::http::boot::admission::Bodies;
use crate::http::boot::pace::LoaderPace;
use crate::image::{ImageStore, Keys};
use crate::metrics::Metrics;
use crate::secret_file::{self, FileError};

pub use error::AppError;

/// Everything handlers and tasks need. Cheap to clone.
#[derive(Clone)]
pub struct App {
    /// PostgreSQL.
    pub store: Store,
    /// Image data.
    pub images: ImageStore,
    /// The configuration the server runs with.
    pub config: Arc<Config>,
    /// Signing keys of the appliance.
    pub keys: Arc<Keys>,
    /// What was found of signatures in the store.
    pub signatures: Arc<trust::SignaturesSeen>,
    /// The appliance's certificate authority.
    pub authority: Arc<authority::Authority>,
    /// Derives boot tokens.
    pub token_key: tokens::TokenKey,
    /// Boot loaders, in memory.
    pub loaders: Arc<Loaders>,
    /// How fast machines are sent loaders, kernel and initramfs.
    pub loader_pace: Arc<LoaderPace>,
    /// The places for large bodies of the boot listener.
    pub bodies: Arc<Bodies>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// How much a finding matters.
    pub policy: Arc<Policy>,
    /// Key of the keyed digests of secret files, hexadecimal.
    pub secret_digest_key: Arc<str>,
    /// Wakes the task that carries remediation on.
    pub remediation_nudge: Arc<Notify>,
    /// Wakes the task that runs builds.
    pub build_nudge: Arc<Notify>,
    /// The program that builds: this one.
    pub build_program: Arc<Path>,
    /// Notice of changes.
    pub notices: notices::Notices,
}

impl App {
    /// Opens the data folder: keys and certificate authority are made where there are none yet.
    ///
    /// # Errors
    /// What is unreadable or damaged, by name.
    pub fn open(config: Arc<Config>, store: Store) -> anyhow::Result<Self> {
        let keys_dir = config.data_dir.join("keys");
        let metrics = Metrics::default();
        let bodies_max = config.boot.as_ref().map_or(1, |boot| boot.http_bodies_max);
        let loaders = match &config.boot {
            Some(boot) => Loaders::load(&boot.loaders_dir)?,
            None => Loaders::default(),
        };
        Ok(Self {
            images: ImageStore::open(&config.data_dir).context("image store")?,
            keys: Arc::new(Keys::load_or_create(&keys_dir)?),
            signatures: Arc::default(),
            authority: Arc::new(authority::Authority::load_or_create(&keys_dir)?),
            token_key: tokens::TokenKey::load_or_create(&keys_dir)?,
            bodies: Bodies::new(bodies_max, metrics.bodies().clone()),
            metrics: Arc::new(metrics),
            loaders: Arc::new(loaders),
            loader_pace: Arc::new(LoaderPace::new(
                config.boot.as_ref().and_then(|boot| boot.loader_bytes_per_sec_max),
            )),
            policy: Arc::new(policy::load(config.policy.as_deref())?),
            secret_digest_key: secret_digest_key(&keys_dir)?.into(),
            remediation_nudge: Arc::default(),
            build_nudge: Arc::default(),
            build_program: std::env::current_exe().context("the path of this program")?.into(),
            notices: notices::Notices::default(),
            store,
            config,
        })
    }
}

fn secret_digest_key(keys_dir: &Path) -> Result<String, FileError> {
    let path = keys_dir.join("secret-digest.key");
    let text = secret_file::load_or_create(&path, || {
        Ok::<_, std::convert::Infallible>(hex::encode(rand::random::<[u8; 32]>()))
    })?;
    match ::drift::SecretKey::parse(&text) {
        Some(_) => Ok(text.trim().to_owned()),
        None => Err(FileError::Make {
            path,
            problem: "expected 64 hexadecimal digits".to_owned(),
        }),
    }
}
