//! A new data folder: made under another name, completed, made durable, renamed.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::account::{Account, OnParentDeath};
use super::layout::{Layout, check_owner, make_folder};
use super::locate::Programs;
use super::{ClusterError, DATABASE, ROLE, settings};

/// What stands where the data folder should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataFolder {
    /// Nothing, or an empty folder.
    Absent,
    /// A cluster that this major version wrote.
    WrittenBy(u32),
}

/// Looks at the data folder without starting anything.
pub(super) fn look(data: &Path, account: &Account) -> Result<DataFolder, ClusterError> {
    let mut entries = match fs::read_dir(data) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DataFolder::Absent),
        Err(source) => return Err(ClusterError::file("read", data)(source)),
    };
    if entries.next().is_none() {
        return Ok(DataFolder::Absent);
    }
    let version_file = data.join("PG_VERSION");
    let incomplete = || ClusterError::NotACluster { data: data.to_owned() };
    let text = match fs::read_to_string(&version_file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(incomplete()),
        Err(source) => return Err(ClusterError::file("read", &version_file)(source)),
    };
    // Before version 10 the file said "9.6".
    let major = text
        .trim()
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .ok_or_else(incomplete)?;
    if !data.join("global/pg_control").is_file() {
        return Err(incomplete());
    }
    check_owner(data, account)?;
    Ok(DataFolder::WrittenBy(major))
}

/// Makes a data folder with its role and database. The caller holds the lock of the cluster.
pub(super) fn initialise(layout: &Layout, programs: &Programs, account: &Account) -> Result<(), ClusterError> {
    let partial = &layout.partial;
    match fs::remove_dir_all(partial) {
        Ok(()) => tracing::info!(folder = %partial.display(), "removed a half-made cluster"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(ClusterError::file("remove", partial)(source)),
    }
    make_folder(partial, account)?;

    let mut initdb = account.command(&programs.initdb(), OnParentDeath::Terminate);
    initdb
        .arg("--pgdata")
        .arg(partial)
        .arg(format!("--username={ROLE}"))
        .args(["--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums"])
        .args(["--auth=peer", "--no-instructions"]);
    run("initdb", &mut initdb, "")?;

    write_as(
        account,
        Write::Append,
        &partial.join("postgresql.conf"),
        settings::INCLUDE_LINE,
    )?;
    write_settings(layout, partial, account)?;

    // In single-user mode: the folder has its database before it has its name.
    let mut single = account.command(&programs.postgres(), OnParentDeath::Terminate);
    single
        .arg("--single")
        .arg("-D")
        .arg(partial)
        .args(["-c", "exit_on_error=true", "template1"]);
    run(
        "postgres --single",
        &mut single,
        &format!("CREATE DATABASE {DATABASE};\n"),
    )?;

    fs::rename(partial, &layout.data).map_err(ClusterError::file("name", &layout.data))?;
    fs::File::open(&layout.root)
        .and_then(|folder| folder.sync_all())
        .map_err(ClusterError::file("sync", &layout.root))
}

/// Writes our three configuration files into a data folder, each in one step.
pub(super) fn write_settings(layout: &Layout, data: &Path, account: &Account) -> Result<(), ClusterError> {
    write_as(
        account,
        Write::Replace,
        &data.join(settings::SETTINGS_FILE),
        &settings::settings(&layout.run),
    )?;
    write_as(
        account,
        Write::Replace,
        &data.join("pg_hba.conf"),
        settings::host_based_authentication(),
    )?;
    write_as(
        account,
        Write::Replace,
        &data.join("pg_ident.conf"),
        &settings::identities(&account.name),
    )
}

#[derive(Clone, Copy)]
enum Write {
    Append,
    Replace,
}

/// Writes as the account that owns the data folder, never as root: a link planted there leads to nothing that the
/// account could not write anyway.
fn write_as(account: &Account, how: Write, path: &Path, text: &str) -> Result<(), ClusterError> {
    let script = match how {
        Write::Append => r#"cat >>"$1" && sync "$1""#,
        Write::Replace => r#"umask 077 && cat >"$1.new" && sync "$1.new" && mv -f "$1.new" "$1""#,
    };
    let mut command = account.command(Path::new("sh"), OnParentDeath::Terminate);
    command.args(["-c", script, "sh"]).arg(path);
    run("sh", &mut command, text)
}

/// Runs a program to its end; on failure the error holds the end of what it said.
fn run(name: &str, command: &mut Command, input: &str) -> Result<(), ClusterError> {
    let output = feed(command, input).map_err(|source| ClusterError::Spawn {
        program: name.to_owned(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let end = said.get(said.len().saturating_sub(2048)..).unwrap_or_default();
    Err(ClusterError::Failed {
        program: name.to_owned(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(end).trim().to_owned(),
    })
}

fn feed(command: &mut Command, input: &str) -> io::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ended early does not read; its status tells more than the broken pipe.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}
