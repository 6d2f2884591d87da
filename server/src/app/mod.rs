//! What the appliance does, apart from HTTP, DHCP and the command line.
//!
//! Handlers unpack, call a function of this module, and wrap its result. State is in PostgreSQL and the image store;
//! [`App`] holds the ways to them and nothing that would be missed after a crash.

pub mod error;

use std::sync::Arc;

use store::Store;

use crate::config::Config;
use crate::image::{ImageStore, Keys};

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
}
