//! The one place that reads YAML.
//!
//! People write YAML, so an error must say where and what was expected. The parser stands behind this crate alone so
//! that it can be exchanged: the one that was common for years is no longer maintained.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

pub use serde_saphyr::Spanned;

/// Largest YAML file, in bytes. Recipes and configuration are a few KB; manifests are never YAML.
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
    #[error("{}:{line}:{column}: {problem}{snippet}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1; 0 when unknown.
        line: u64,
        /// Column, counted from 1; 0 when unknown.
        column: u64,
        /// What was found and what was expected.
        problem: String,
        /// The line with the column marked, on lines of its own; empty where the place is unknown.
        snippet: String,
    },
}

impl YamlError {
    /// An error at a place of this text, counted from 1 (0 when unknown), for what only makes no sense.
    #[must_use]
    pub fn at(path: &Path, text: &str, (line, column): (u64, u64), problem: String) -> Self {
        Self::Content {
            path: path.to_owned(),
            line,
            column,
            problem,
            snippet: snippet(text, line, column),
        }
    }
}

/// Characters of a line that a snippet shows.
const SNIPPET_CHARS: usize = 160;

/// Reads a YAML file.
///
/// # Errors
/// [`YamlError`], with file, line and column.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, YamlError> {
    parse(path, &read_text(path)?)
}

/// Reads the text of a YAML file, bounded by [`YAML_BYTES_MAX`].
///
/// # Errors
/// [`YamlError::Read`] or [`YamlError::Size`].
pub fn read_text(path: &Path) -> Result<String, YamlError> {
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

/// Parses YAML text; `path` only names it in errors. Unknown and repeated keys are errors when `T` denies them.
///
/// # Errors
/// [`YamlError::Content`].
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        // The parser appends the place to its message; it stands in front here.
        let problem = error.without_snippet().to_string();
        let problem = problem.split(" at line ").next().unwrap_or(&problem).to_owned();
        YamlError::at(path, text, (line, column), problem)
    })
}

/// The line of an error with its column marked.
fn snippet(text: &str, line: u64, column: u64) -> String {
    let (Ok(number), Ok(column)) = (usize::try_from(line), usize::try_from(column)) else {
        return String::new();
    };
    let Some(content) = number.checked_sub(1).and_then(|index| text.lines().nth(index)) else {
        return String::new();
    };
    let shown: String = content
        .chars()
        .take(SNIPPET_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let margin = " ".repeat(line.to_string().len());
    let mark = column.saturating_sub(1);
    if mark >= SNIPPET_CHARS {
        return format!("\n{margin} |\n{line} | {shown}");
    }
    format!("\n{margin} |\n{line} | {shown}\n{margin} | {}^", " ".repeat(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[allow(dead_code)]
        name: String,
        #[allow(dead_code)]
        count: u32,
    }

    #[test]
    fn an_error_says_where_and_what_was_expected() {
        for (text, place, expected) in [
            ("name: a\ncount: many\n", "x.yaml:2:8: ", "u32"),
            ("name: a\nnumber: 1\n", "x.yaml:2:1: ", "expected one of name, count"),
            ("name: [a\n", "x.yaml:", ""),
            ("name: a\n", "x.yaml:1:1: ", "count"),
            ("name: a\nname: b\ncount: 1\n", "x.yaml:2:1: ", "name"),
        ] {
            let error = parse::<Sample>(Path::new("x.yaml"), text).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error} should start with {place}");
            assert!(error.contains(expected), "{error} should say {expected}");
        }
    }

    #[test]
    fn an_error_shows_the_line() {
        let text = "name: a\ncount: many\n";
        let error = parse::<Sample>(Path::new("x.yaml"), text).unwrap_err().to_string();
        assert!(error.ends_with("\n  |\n2 | count: many\n  |        ^"), "{error}");
    }
}
