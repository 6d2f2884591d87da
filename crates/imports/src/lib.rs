//! Bringing a root filesystem from elsewhere: an OCI image, a `docker save` archive, a root tarball, a folder.
//!
//! The idea: whatever the source, the result is the same: a folder on disk that holds the root with owners, modes,
//! extended attributes and hard links as the source says, and a description of where it came from. What the image
//! build does with a root that it made itself, it can do with one of these.
//!
//! The invariants: nothing outside the target folder is read or written through a name or a link of the source (each
//! path is opened from a directory handle); a folder appears under its name only when it is complete; a bound stops
//! every loop, and "too much" is known from the apparent size, before anything is written.
//!
//! Refused: running `tar`, `skopeo` or `umoci` (their wording would be our error messages, and neither has bounds); the
//! unpacking of the `tar` crate (it follows links in parents and splits PAX records at line feeds, which breaks binary
//! attribute values); mounting layers with overlayfs (needs mounts in the server's namespace, and opaque folders would
//! have to be made by hand all the same).
//!
//! - [`Source`], [`Import`]: what is brought, and unpacking it.
//! - [`registry`]: an image from a registry becomes an OCI layout on disk first, which can be taken up again.
//! - [`bootable`]: whether the root can become an image at all, and what to add if not.
//! - [`rpm`]: installed packages of an rpm distribution, without rpm.

mod archive;
mod bootable;
mod compression;
mod error;
mod folder;
mod image;
mod import;
mod imported;
mod inside;
mod limits;
mod name;
mod notes;
mod progress;
pub mod registry;
pub mod rpm;
mod staging;
mod tree;
mod unpack;

pub use bootable::{Bootable, Family, Initramfs, Missing, MissingKind, OsRelease, bootable};
pub use error::{EntryProblem, ImportError};
pub use import::{Import, Source};
pub use imported::{ImageDescription, Imported, LayerDescription, Note, NoteKind, Origin, OriginKind};
pub use limits::Limits;
pub use progress::{Progress, Stage, Tell};
