//! The length of source files: a file tells one thing, and a long one tells more.

use crate::run::output_of;
use anyhow::{Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// More lines than this are an error.
const LINES_MAX: usize = 1000;
/// More than this deserve a second look.
const LINES_WARN: usize = 600;
/// What counts as source; text files for people, data and lock files may be as long as they are.
const EXTENSIONS: [&str; 8] = ["rs", "ts", "js", "svelte", "css", "sql", "sh", "toml"];
/// Generated from something else.
const GENERATED: [&str; 3] = [".d.ts", ".gen.ts", "/generated/"];

/// Checks every source file that git knows or would take.
///
/// # Errors
/// Lists the files over the limit.
pub fn check(root: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = output_of(&mut git)?;
    let mut lengths: Vec<(usize, &str)> = Vec::new();
    for path in listed.split('\0').filter(|path| is_source(path)) {
        // A file that was deleted and not yet committed has no length.
        let Ok(text) = fs::read(root.join(path)) else { continue };
        lengths.push((text.split(|byte| *byte == b'\n').count().saturating_sub(1), path));
    }
    let (errors, warnings) = judge(&lengths);
    for warning in warnings {
        eprintln!("  warning: {warning}");
    }
    if !errors.is_empty() {
        bail!("files too long to tell one thing:\n  {}", errors.join("\n  "));
    }
    Ok(())
}

fn is_source(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
        && !GENERATED.iter().any(|mark| path.contains(mark))
}

fn judge(lengths: &[(usize, &str)]) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for (lines, path) in lengths {
        match *lines {
            lines if lines > LINES_MAX => errors.push(format!("{path}: {lines} lines, at most {LINES_MAX}")),
            lines if lines > LINES_WARN => warnings.push(format!("{path}: {lines} lines; is there a second subject?")),
            _ => {}
        }
    }
    (errors, warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_themselves_are_allowed() {
        let (errors, warnings) = judge(&[(600, "a.rs"), (601, "b.rs"), (1000, "c.rs"), (1001, "d.rs")]);
        assert_eq!(errors, ["d.rs: 1001 lines, at most 1000"]);
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn generated_and_data_files_are_left_alone() {
        assert!(is_source("server/src/main.rs") && is_source("web/src/App.svelte"));
        for path in [
            "Cargo.lock",
            "docs/openapi.json",
            "web/src/api/schema.d.ts",
            "README.md",
        ] {
            assert!(!is_source(path), "{path}");
        }
    }
}
