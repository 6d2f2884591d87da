//! The offline query data in `.sqlx`: made by compiling the store against a throw-away PostgreSQL with the migrations
//! applied, so that everybody else builds without a database.
//!
//! The data is made in a scratch folder first: a check then changes nothing, and queries that are gone leave no data.

use crate::cargo::cargo;
use crate::run::run_announced;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

mod postgres;

use postgres::Postgres;

/// Rewrites `.sqlx`.
///
/// # Errors
/// When PostgreSQL, a migration or the build fails.
pub fn rewrite(workspace: &Workspace) -> Result<()> {
    let fresh = make_data(workspace, &["--package", "store"])?;
    ensure!(
        !fresh.is_empty(),
        "the build wrote no query data: was the store compiled by somebody else in between? Try again"
    );
    let folder = workspace.root.join(".sqlx");
    fs::create_dir_all(&folder)?;
    let committed = read_data(&folder)?;
    for name in committed.keys().filter(|name| !fresh.contains_key(*name)) {
        fs::remove_file(folder.join(name))?;
    }
    for (name, bytes) in &fresh {
        if committed.get(name) != Some(bytes) {
            fs::write(folder.join(name), bytes)?;
        }
    }
    eprintln!("  .sqlx holds the data of {} queries", fresh.len());
    Ok(())
}

/// Checks that `.sqlx` is what the queries and migrations give.
///
/// # Errors
/// As [`rewrite`], and when the data differs.
pub fn check(workspace: &Workspace) -> Result<()> {
    let folder = workspace.root.join(".sqlx");
    if migrations(&workspace.root)?.is_empty() && !folder.exists() {
        return Ok(());
    }
    let differences = differences(&read_data(&folder)?, &make_data(workspace, &["--workspace"])?);
    ensure!(
        differences.is_empty(),
        "the query data in .sqlx is not that of the queries; run `cargo xtask sqlx` and commit it:\n  {}",
        differences.join("\n  ")
    );
    Ok(())
}

/// `scope` is what cargo compiles. The store alone, so that the data can be made while what uses it does not compile
/// yet; or the whole workspace, because after the lints its dependencies are there with the very features it needs.
fn make_data(workspace: &Workspace, scope: &[&str]) -> Result<BTreeMap<String, Vec<u8>>> {
    let postgres = Postgres::start()?;
    for migration in migrations(&workspace.root)? {
        postgres.apply(&migration)?;
    }
    let scratch = workspace.work_folder().join("sqlx.tmp");
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    fs::create_dir_all(&scratch)?;
    compile_queries(&workspace.root, scope, &postgres.url(), &scratch)?;
    let data = read_data(&scratch)?;
    fs::remove_dir_all(&scratch)?;
    Ok(data)
}

/// Compiles the store's queries, which writes their data into `folder`.
fn compile_queries(root: &Path, scope: &[&str], url: &str, folder: &Path) -> Result<()> {
    // Cargo must think that the library has changed, and afterwards that it has not: other builds stay fresh.
    let library = root.join("crates/store/src/lib.rs");
    let file = File::options()
        .append(true)
        .open(&library)
        .with_context(|| format!("no {}", library.display()))?;
    let modified = file.metadata()?.modified()?;
    file.set_modified(SystemTime::now())?;
    let mut build = cargo(root);
    build.arg("check").args(scope);
    build
        .env("DATABASE_URL", url)
        .env("SQLX_OFFLINE", "false")
        .env("SQLX_OFFLINE_DIR", folder);
    let compiled = run_announced("compile the queries against a database", &mut build);
    file.set_modified(modified)?;
    compiled
}

/// The migrations in the order of their names.
fn migrations(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join("migrations");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The query files of a folder by name; nothing when there is no folder.
fn read_data(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut data = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(data),
        Err(error) => bail!("cannot read {}: {error}", folder.display()),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("query-") && name.ends_with(".json") {
            data.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(data)
}

fn differences(committed: &BTreeMap<String, Vec<u8>>, fresh: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let gone = committed
        .keys()
        .filter(|name| !fresh.contains_key(*name))
        .map(|name| format!("{name}: no such query"));
    let other = fresh.iter().filter_map(|(name, bytes)| match committed.get(name) {
        None => Some(format!("{name}: missing")),
        Some(committed) if committed != bytes => Some(format!("{name}: differs")),
        Some(_) => None,
    });
    gone.chain(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_changed_and_forgotten_queries_are_told_apart() {
        let data = |entries: &[(&str, &str)]| {
            entries
                .iter()
                .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
                .collect()
        };
        let committed = data(&[("query-a.json", "1"), ("query-b.json", "1"), ("query-c.json", "1")]);
        let fresh = data(&[("query-b.json", "1"), ("query-c.json", "2"), ("query-d.json", "1")]);
        assert_eq!(
            differences(&committed, &fresh),
            [
                "query-a.json: no such query",
                "query-c.json: differs",
                "query-d.json: missing"
            ]
        );
        assert_eq!(differences(&fresh, &fresh), Vec::<String>::new());
    }
}
