//! Small secret files of the data folder: mode 0600, written whole or not at all.

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A secret file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Reading or writing failed.
    #[error("{path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Its content could not be made.
    #[error("{path}: {problem}")]
    Make {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
}

/// The file's text; if there is none, `make`'s, after it is safely on the disk.
///
/// # Errors
/// [`FileError`].
pub fn load_or_create<E: Display>(path: &Path, make: impl FnOnce() -> Result<String, E>) -> Result<String, FileError> {
    let failed = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    match fs::read_to_string(path) {
        Ok(text) => return Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let text = make().map_err(|error| FileError::Make {
        path: path.to_owned(),
        problem: error.to_string(),
    })?;
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let draft = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .map_err(failed)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    fs::rename(&draft, path).map_err(failed)?;
    Ok(text)
}
