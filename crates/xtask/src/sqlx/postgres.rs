//! A throw-away PostgreSQL: a cluster in a temporary folder, reached by a unix socket only.

use crate::run::output_of;
use crate::workspace::is_root;
use anyhow::{Context as _, Result};
use std::env;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's account for the package; PostgreSQL refuses to run as root.
const SERVICE_USER: &str = "postgres";
/// The folder's name up to the id of the process that owns it.
const FOLDER_PREFIX: &str = "plumb-sqlx-";

/// A running cluster. Dropping it stops it and removes its folder.
#[derive(Debug)]
pub struct Postgres {
    folder: PathBuf,
    binaries: PathBuf,
}

impl Postgres {
    /// Makes and starts a cluster.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start.
    pub fn start() -> Result<Self> {
        let binaries = find_binaries(Path::new("/usr/lib/postgresql")).context("PostgreSQL is not installed")?;
        clear_abandoned(&env::temp_dir(), &binaries);
        // Short, since the socket's path has a limit of 107 bytes.
        let folder = env::temp_dir().join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let postgres = Self { folder, binaries };
        postgres.initialise()?;
        Ok(postgres)
    }

    /// For `DATABASE_URL`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@localhost/postgres?host={}", self.folder.display())
    }

    /// Runs the statements of a migration, all of them or none.
    ///
    /// # Errors
    /// PostgreSQL's own words, with the line in the file.
    pub fn apply(&self, migration: &Path) -> Result<()> {
        let mut psql = Command::new(self.binaries.join("psql"));
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--single-transaction",
            "--set",
            "ON_ERROR_STOP=1",
        ]);
        psql.arg("--host")
            .arg(&self.folder)
            .args(["--username", "postgres", "--dbname", "postgres"]);
        output_of(psql.arg("--file").arg(migration))
            .map(drop)
            .with_context(|| format!("cannot apply {}", migration.display()))
    }

    fn initialise(&self) -> Result<()> {
        if is_root() {
            let user = output_of(Command::new("id").args(["--user", SERVICE_USER]))?;
            let user = user.trim().parse().context("id gave no number")?;
            chown(&self.folder, Some(user), None)?;
        }
        let data = self.folder.join("data");
        let mut initdb = self.as_service_user("initdb");
        initdb.args([
            "--auth",
            "trust",
            "--username",
            "postgres",
            "--encoding",
            "UTF8",
            "--no-sync",
            "--pgdata",
        ]);
        output_of(initdb.arg(&data))?;
        let options = format!("-c listen_addresses='' -c fsync=off -k {}", self.folder.display());
        let mut start = self.as_service_user("pg_ctl");
        // With a log file the server keeps none of this program's pipes open.
        start
            .arg("--log")
            .arg(self.folder.join("log"))
            .args(["--wait", "--options", &options, "--pgdata"]);
        output_of(start.arg(&data).arg("start")).map(drop)
    }

    fn as_service_user(&self, program: &str) -> Command {
        let path = self.binaries.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["--user", SERVICE_USER, "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir(&self.folder);
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.folder.join("data");
        if data.join("postmaster.pid").exists() {
            let mut stop = self.as_service_user("pg_ctl");
            if let Err(error) = output_of(stop.args(["--mode", "immediate", "--pgdata"]).arg(&data).arg("stop")) {
                eprintln!("note: {error:#}");
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("note: {} stays: {error}", self.folder.display());
        }
    }
}

/// Stops and removes the clusters below `folder` whose owner has died, for example of Ctrl-C: the server is a session
/// of its own and lives on.
fn clear_abandoned(folder: &Path, binaries: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            drop(Postgres {
                folder: entry.path(),
                binaries: binaries.to_owned(),
            });
        }
    }
}

/// The programs of the newest version below `folder`, such as `/usr/lib/postgresql/15/bin`.
fn find_binaries(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let versions = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let newest = versions
        .filter(|version| folder.join(format!("{version}/bin/initdb")).exists())
        .max()?;
    Some(folder.join(format!("{newest}/bin")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_takes_migrations_and_leaves_nothing() {
        let postgres = Postgres::start().unwrap();
        let folder = postgres.folder.clone();
        let migration = env::temp_dir().join(format!("plumb-migration-{}.sql", std::process::id()));
        fs::write(&migration, "CREATE TABLE rack (name text PRIMARY KEY);").unwrap();
        postgres.apply(&migration).unwrap();
        let error = postgres.apply(&migration).unwrap_err();
        assert!(format!("{error:#}").contains("already exists"), "{error:#}");
        fs::remove_file(&migration).unwrap();
        // A killed owner drops nothing.
        std::mem::forget(postgres);
        let abandoned = folder.with_file_name(format!("{FOLDER_PREFIX}{}", u32::MAX));
        fs::rename(&folder, &abandoned).unwrap();
        let postgres = Postgres::start().unwrap();
        assert!(!abandoned.exists(), "the next one clears it away");
        let folder = postgres.folder.clone();
        drop(postgres);
        assert!(!folder.exists());
    }
}
