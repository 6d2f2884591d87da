//! The SQLite container: table `Packages`, a header blob a row.
//!
//! The file is opened by its handle, read-only and immutable: nothing beside it is read or made. The one exception is a
//! write-ahead log that was never folded in (a root copied from a running system): then both files are copied to a
//! folder of ours and opened there, since a reader that ignores the log sees an old state.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::header::{self, Parsed};
use super::{DATABASE_BYTES_MAX, HEADER_BYTES_MAX, PACKAGES_MAX, RpmError, length, too_many};

pub(super) fn headers(file: &File, log: Option<&File>, path: &str) -> Result<Vec<Parsed>, RpmError> {
    length(file, path)?;
    let log_bytes = log.map(|log| length(log, path)).transpose()?.unwrap_or(0);
    match log {
        Some(log) if log_bytes > 0 => {
            let fail = |source| RpmError::Io {
                path: path.to_owned(),
                source,
            };
            let folder = tempfile::tempdir().map_err(fail)?;
            let copy = folder.path().join("rpmdb.sqlite");
            duplicate(file, &copy).map_err(fail)?;
            duplicate(log, &folder.path().join("rpmdb.sqlite-wal")).map_err(fail)?;
            read(&copy.to_string_lossy(), OpenFlags::SQLITE_OPEN_READ_WRITE, path)
        }
        _ => {
            let uri = format!("file:/proc/self/fd/{}?mode=ro&immutable=1", file.as_raw_fd());
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            read(&uri, flags, path)
        }
    }
}

fn duplicate(from: &File, to: &std::path::Path) -> io::Result<()> {
    io::copy(&mut from.take(DATABASE_BYTES_MAX), &mut File::create(to)?).map(|_| ())
}

fn read(database: &str, flags: OpenFlags, path: &str) -> Result<Vec<Parsed>, RpmError> {
    let damaged = |error: rusqlite::Error| RpmError::Damaged {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let connection = Connection::open_with_flags(database, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(damaged)?;
    let longest = i32::try_from(HEADER_BYTES_MAX).unwrap_or(i32::MAX);
    connection
        .set_limit(Limit::SQLITE_LIMIT_LENGTH, longest)
        .map_err(damaged)?;
    // The file is somebody else's: no functions of its schema run, and every page is checked before it is used.
    connection
        .pragma_update(None, "trusted_schema", false)
        .map_err(damaged)?;
    connection
        .pragma_update(None, "cell_size_check", true)
        .map_err(damaged)?;
    let is_table: bool = connection
        .query_row(
            "SELECT EXISTS (SELECT 1 FROM sqlite_master
                            WHERE type = 'table' AND name = 'Packages' AND sql LIKE 'CREATE TABLE%')",
            [],
            |row| row.get(0),
        )
        .map_err(damaged)?;
    if !is_table {
        return Err(RpmError::Damaged {
            path: path.to_owned(),
            problem: "no table Packages; expected rpm's database".to_owned(),
        });
    }
    let mut statement = connection.prepare("SELECT hnum, blob FROM Packages").map_err(damaged)?;
    let mut rows = statement.query([]).map_err(damaged)?;
    let mut headers = Vec::new();
    while let Some(row) = rows.next().map_err(damaged)? {
        if headers.len() >= PACKAGES_MAX {
            return Err(too_many(path));
        }
        let number: i64 = row.get(0).map_err(damaged)?;
        let blob = row.get_ref(1).map_err(damaged)?;
        let parsed = match blob.as_blob() {
            Ok(blob) => header::parse(blob),
            Err(error) => Err(error.to_string()),
        };
        headers.push((u64::try_from(number).unwrap_or(0), parsed));
    }
    Ok(headers)
}
