//! Expected against observed.
//!
//! Invariants: what could not be looked at yields an [`crate::Unknown`], never nothing; "removed" is only concluded
//! where the folder was read to its end; one cause gives one finding (a folder that appeared or went stands for what is
//! in it, a changed package for its files).

mod entry;
mod facts;
mod fold;
mod hardening;
mod sysctls;
mod tree;
mod units;

pub use entry::{Outcome, compare_entry};
pub use facts::{FactFindings, compare_facts};
pub use fold::{DPKG_SHARED, Ownership, fold_findings, unit_of_link};
pub use tree::{Content, Kind, Limits, Look, Sight, Step, TreeComparison, TreeFindings};
pub(crate) use units::is_drop_in_folder;

/// Longest attribute value, in bytes; longer ones are named by their digest.
const VALUE_BYTES_MAX: usize = 4_096;

/// Untrusted text as an attribute value: escaped, and replaced by its digest where it is too long.
fn value_text(bytes: &[u8]) -> String {
    if bytes.len() <= VALUE_BYTES_MAX {
        manifest::escape_bytes(bytes)
    } else {
        format!("sha256:{}", manifest::Digest::of(bytes))
    }
}
