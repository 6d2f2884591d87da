//! The image description: one signed manifest serves boot, install, verification, drift and repair.
//!
//! A manifest is a canonical text: one JSON header line, then one JSON line per path in byte order of the paths. Its
//! SHA-256 over exactly those bytes names the image version, so `sha256sum` and `minisign` check an image without
//! Plumbline. There is one canonical form: [`Manifest::decode`] refuses anything that [`Manifest::encode`] would not
//! write, so two readers can never disagree on what a signature covers.
//!
//! Refused: a binary format (nobody can look into it), YAML (alias bombs, 400,000 entries), and a Merkle tree over
//! folders (drift is compared per path; a flat list streams).

mod class;
mod codec;
pub mod diff;
mod digest;
mod entry;
mod error;
mod glob;
mod header;
pub mod packs;
mod path;
mod sign;
mod squeeze;
mod trust;

/// Where a hardened image carries the profile with its waivers (JSON of the crate `hardening`).
pub const HARDENING_PROFILE_PATH: &str = "/usr/share/plumbline/hardening/profile.json";
/// Where it carries what was found when it was built.
pub const HARDENING_REPORT_PATH: &str = "/usr/share/plumbline/hardening/report.json";

pub use class::{ClassRule, ClassRules, PathClass};
pub use codec::{ENTRIES_MAX, LINE_BYTES_MAX, Manifest};
pub use digest::{Digest, Hasher};
pub use entry::{Entry, EntryKind, FileContent, Xattrs};
pub use error::ManifestError;
pub use glob::{PathPattern, wildcard_matches};
pub use header::{FilesystemKind, Group, Header, Kernel, ManifestKind, Package, Root, Unit, User};
pub use path::{TreePath, escape_bytes, unescape_bytes};
pub use sign::{KeyPair, PublicKey, Signature};
pub use squeeze::{squeeze, unsqueeze};
pub use trust::{KeyId, TRUSTED_KEYS_MAX, TrustedKeys, Untrusted};
