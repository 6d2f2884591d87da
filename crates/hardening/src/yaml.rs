//! Reading YAML that people wrote: an error says file, line, column and what was expected.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Largest profile or waiver file, in bytes; the ones of this project are a few ten KB.
pub const YAML_BYTES_MAX: u64 = 1 << 20;

/// A YAML file that could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum YamlError {
    /// The file cannot be read.
    #[error("reading {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is over [`YAML_BYTES_MAX`].
    #[error("{}: {bytes} bytes, expected at most {YAML_BYTES_MAX}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The text is no YAML, or not what was expected there.
    #[error("{}:{line}:{column}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1; 0 when unknown.
        line: u64,
        /// Column, counted from 1; 0 when unknown.
        column: u64,
        /// What was found and what was expected.
        problem: String,
    },
}

/// Reads a YAML file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, YamlError> {
    parse(path, &read_text(path)?)
}

/// Reads the text of a YAML file, bounded by [`YAML_BYTES_MAX`].
pub(crate) fn read_text(path: &Path) -> Result<String, YamlError> {
    let failed = |source| YamlError::Read {
        path: path.to_owned(),
        source,
    };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > YAML_BYTES_MAX {
        let path = path.to_owned();
        return Err(YamlError::Size { path, bytes });
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Parses YAML text; `path` only names it in errors.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        // The parser appends the place to its message; it stands in front here.
        let problem = error.without_snippet().to_string();
        let problem = problem.split(" at line ").next().unwrap_or(&problem).to_owned();
        YamlError::Content {
            path: path.to_owned(),
            line,
            column,
            problem,
        }
    })
}
