//! What the appliance does, apart from HTTP, DHCP and the command line.
//!
//! Handlers unpack, call a function of this module, and wrap its result. State is in PostgreSQL and the image store;
//! [`App`] holds the ways to them and nothing that would be missed after a crash.

pub mod agents;
pub mod auth;
pub mod authority;
pub mod boot;
pub mod deployments;
pub mod discovery;
pub mod drift;
pub mod enrol;
pub mod error;
pub mod images;
pub mod nodes;
pub mod render;
pub mod sign_in_limiter;
pub mod tokens;

use std::sync::Arc;

use anyhow::Context as _;
use netboot::tftp::FileMap;
use store::Store;

use crate::boot_plane;
use crate::config::Config;
use crate::image::{ImageStore, Keys};
use crate::metrics::Metrics;

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
    /// The appliance's certificate authority.
    pub authority: Arc<authority::Authority>,
    /// Derives boot tokens.
    pub token_key: tokens::TokenKey,
    /// Boot loaders, in memory.
    pub loaders: Arc<FileMap>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl App {
    /// Opens the data folder: keys and certificate authority are made where there are none yet.
    ///
    /// # Errors
    /// What is unreadable or damaged, by name.
    pub fn open(config: Arc<Config>, store: Store) -> anyhow::Result<Self> {
        let keys_dir = config.data_dir.join("keys");
        let loaders = match &config.boot {
            Some(boot) => boot_plane::load_loaders(&boot.loaders_dir)?,
            None => FileMap::new(),
        };
        Ok(Self {
            images: ImageStore::open(&config.data_dir).context("image store")?,
            keys: Arc::new(Keys::load_or_create(&keys_dir)?),
            authority: Arc::new(authority::Authority::load_or_create(&keys_dir)?),
            token_key: tokens::TokenKey::load_or_create(&keys_dir)?,
            metrics: Arc::new(Metrics::default()),
            loaders: Arc::new(loaders),
            store,
            config,
        })
    }
}
