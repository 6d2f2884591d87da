//! `plumbline key …` as it is typed.

use std::path::PathBuf;

use clap::Subcommand;

/// On the keys that sign images.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// List the keys and what their signatures are worth
    List,
    /// Take a public key: images that it signs count from now on
    Add {
        /// minisign's .pub file
        file: PathBuf,
    },
    /// Make a new key on the server that signs from now on, and retire the one before
    Rotate {
        /// Sign the images that may be used with it, too
        #[arg(long)]
        resign: bool,
    },
    /// Let a key sign no more; what it has signed goes on to count
    Retire {
        /// Its id, or the beginning of it
        key: String,
    },
    /// Take all worth from what a key has signed, for good
    Revoke {
        /// Its id, or the beginning of it
        key: String,
        /// Why, for whoever meets it later
        #[arg(long)]
        reason: String,
    },
}
