//! Keys that sign images, and what was revoked.

use jiff::Timestamp;
use serde::Deserialize;

use super::Image;

/// A key that signs images.
#[derive(Debug, Deserialize)]
pub struct Key {
    pub id: String,
    pub public_key: String,
    pub state: String,
    pub signs_here: bool,
    pub made_at: Timestamp,
    pub retired_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub revoked: Option<String>,
    pub images: u64,
}

/// A node that has something to do with an image.
#[derive(Debug, Deserialize)]
pub struct ImageUser {
    pub node: String,
    pub how: String,
}

/// What the revocation of a key took away.
#[derive(Debug, Deserialize)]
pub struct KeyRevoked {
    pub key: Key,
    pub images: Vec<String>,
    pub images_count: usize,
    pub users: Vec<ImageUser>,
    pub users_count: usize,
    pub can_sign: bool,
}

/// What a rotation did.
#[derive(Debug, Deserialize)]
pub struct KeyRotated {
    pub key: Key,
    pub before: Option<String>,
    pub resigned: Vec<String>,
    pub resigned_count: usize,
    pub left: Vec<String>,
    pub left_count: usize,
}

/// What the revocation of an image means.
#[derive(Debug, Deserialize)]
pub struct ImageRevoked {
    pub digest: String,
    pub image: Option<Image>,
    pub reason: String,
    pub users: Vec<ImageUser>,
    pub users_count: usize,
}
