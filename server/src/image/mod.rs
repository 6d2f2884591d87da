//! Golden images: from a recipe to a signed manifest with its packs, and the store that keeps them.
//!
//! A recipe (`images/<name>/image.yaml` and the folder `files/` beside it) says what a node should be. Building it
//! yields a [`manifest::Manifest`] whose digest names the version, packs that hold the file contents, and a signature.
//! Whatever comes after (boot, installation, drift, repair) reads these and never the recipe.
//!
//! An image is the same for every node: it holds no machine id, no host key and no agent identity, and a build that
//! would keep one fails. What differs per node is rendered later and has the class `rendered` here.
//!
//! Refused: editing an installed disk into an image (nobody can say what is in it), and container layers (they lose
//! extended attributes on the way and leave deletions to be interpreted).

/// Where an image keeps the core of GRUB for BIOS. An image without it starts by UEFI only.
pub const BIOS_CORE_PATH: &str = "/boot/grub/i386-pc/core.img";

/// Where an image keeps the certificate (DER) of the key that signed its own kernel modules, for people to enrol.
pub const MODULE_CERTIFICATE_PATH: &str = "/usr/share/plumbline/module-signing.der";

mod blob;
pub mod build;
pub mod bundle;
mod class_lists;
mod download;
pub mod exclusive;
pub mod keys;
pub mod lock;
pub mod module_key;
pub mod recipe;
pub mod sbom;
pub mod store;
pub mod sweep;
pub mod trust;
pub mod verify;

pub use build::{
    BuildError, BuildEvent, BuildRequest, BuiltImage, Count, LockUpdate, Progress, ToSign, build, build_agent_layer,
    lock_update,
};
pub use download::{Download, PIECE_BYTES};
pub use exclusive::{Exclusive, ExclusiveError};
pub use keys::{KeyError, Keys, Signers};
pub use module_key::{ModuleKey, ModuleKeyError};
pub use recipe::{Recipe, RecipeError};
pub use sbom::SbomFormat;
pub use store::{ArtifactName, Document, ImageParts, ImageStore, StoreError};
pub use sweep::{Sweeping, Swept};
pub use verify::VerifyReport;
