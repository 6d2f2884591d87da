//! Golden files: text that a person reads, kept beside the tests, compared whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use similar::TextDiff;

/// Set to `1` to rewrite golden files instead of comparing.
const UPDATE_VARIABLE: &str = "UPDATE_GOLDEN";

/// Why a text and its golden file do not agree.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// They differ.
    #[error(
        "{} differs (- is the file, + is what the test got); UPDATE_GOLDEN=1 rewrites it:\n{diff}",
        path.display()
    )]
    Differs {
        /// The golden file.
        path: PathBuf,
        /// The differing lines with three lines around them.
        diff: String,
    },
    /// There is no such file yet.
    #[error("{} does not exist; UPDATE_GOLDEN=1 writes it with:\n{actual}", path.display())]
    Missing {
        /// The golden file.
        path: PathBuf,
        /// What it would hold.
        actual: String,
    },
    /// The file could not be read or written.
    #[error("cannot read or write {}", path.display())]
    File {
        /// The golden file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Compares a text with a golden file; with `UPDATE_GOLDEN=1` writes it instead. A relative path starts at the package
/// of the test, where cargo runs it.
///
/// # Panics
/// When they differ, with the diff.
#[track_caller]
#[allow(clippy::panic, reason = "it is an assertion")]
pub fn golden(path: impl AsRef<Path>, actual: &str) {
    let is_update = std::env::var_os(UPDATE_VARIABLE).is_some_and(|value| value == "1");
    let result = if is_update {
        write(path.as_ref(), actual)
    } else {
        golden_compare(path.as_ref(), actual)
    };
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Compares a text with a golden file, and never writes.
///
/// # Errors
/// [`GoldenError`], with the diff in its message.
pub fn golden_compare(path: &Path, actual: &str) -> Result<(), GoldenError> {
    let expected = match fs::read_to_string(path) {
        Ok(expected) => expected,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(GoldenError::Missing {
                path: path.to_owned(),
                actual: actual.to_owned(),
            });
        }
        Err(source) => {
            return Err(GoldenError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    if expected == actual {
        return Ok(());
    }
    let diff = TextDiff::from_lines(expected.as_str(), actual)
        .unified_diff()
        .context_radius(3)
        .to_string();
    Err(GoldenError::Differs {
        path: path.to_owned(),
        diff,
    })
}

/// Writes when the text differs, so that an unchanged file keeps its time.
fn write(path: &Path, actual: &str) -> Result<(), GoldenError> {
    if golden_compare(path, actual).is_ok() {
        return Ok(());
    }
    let write_all = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, actual)
    };
    write_all().map_err(|source| GoldenError::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_makes_the_file_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/text.txt");
        for text in ["first\n", "second\n"] {
            assert!(golden_compare(&path, text).is_err());
            write(&path, text).unwrap();
            golden_compare(&path, text).unwrap();
        }
    }
}
