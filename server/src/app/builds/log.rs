//! What builds said: a file each, `<data folder>/build-logs/<id>.log`.
//!
//! A log comes at hundreds of lines a second and nobody asks for anything but what follows a place in it, which is what
//! a file can do. In the database every line would be a row, and go through its log and into every backup.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use protocol::BuildId;

/// Most bytes of one log; what comes after them is not kept.
pub const LOG_BYTES_MAX: u64 = 8 << 20;
/// Room for what the server itself says at the end.
const END_BYTES: u64 = 64 << 10;
/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Most bytes read at once.
const PIECE_BYTES: u64 = 64 << 10;

/// The file of a build.
#[must_use]
pub fn path(data_dir: &Path, build: BuildId) -> PathBuf {
    folder(data_dir).join(format!("{build}.log"))
}

fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("build-logs")
}

/// The log of a build that runs.
#[derive(Debug)]
pub struct BuildLog {
    file: File,
    bytes: u64,
    is_full: bool,
}

impl BuildLog {
    /// Begins a log.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(data_dir: &Path, build: BuildId) -> std::io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder(data_dir))?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path(data_dir, build))?;
        Ok(Self {
            file,
            bytes: 0,
            is_full: false,
        })
    }

    /// Bytes that it has.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a line, at this time of the build. One that does not fit any more is left out, which is said once.
    ///
    /// # Errors
    /// The system's error.
    pub fn add(&mut self, secs: u64, stage: &str, line: &str) -> std::io::Result<()> {
        if self.is_full {
            return Ok(());
        }
        let text = format_line(secs, stage, line);
        if self.bytes + text.len() as u64 > LOG_BYTES_MAX - END_BYTES {
            self.is_full = true;
            let limit = format!(
                "the log has {} MB and is full: what follows is not kept",
                LOG_BYTES_MAX >> 20
            );
            return self.write(&format_line(secs, "log", &limit));
        }
        self.write(&text)
    }

    /// Adds what the server says of the end.
    ///
    /// # Errors
    /// The system's error.
    pub fn end(&mut self, secs: u64, text: &str) -> std::io::Result<()> {
        // At most a hundred lines of a few KB stand behind the limit.
        for line in text.lines().take(END_BYTES as usize / LINE_BYTES_MAX) {
            self.write(&format_line(secs, "end", line))?;
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

/// A line as it is kept: nothing in it moves a terminal's cursor.
fn format_line(secs: u64, stage: &str, line: &str) -> String {
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let mut end = line.len().min(LINE_BYTES_MAX - 64);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    let stage: String = stage.chars().filter(|c| !c.is_control()).take(16).collect();
    format!("{secs:>5} s  {stage:<10} {}\n", &line[..end])
}

/// Whole lines of a build's log after so many bytes, at most 64 KiB, and where the next ones begin. A log that is not
/// there has none.
///
/// # Errors
/// The system's error.
pub fn read(data_dir: &Path, build: BuildId, after: u64) -> std::io::Result<(String, u64)> {
    let mut file = match File::open(path(data_dir, build)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((String::new(), after)),
        file => file?,
    };
    file.seek(SeekFrom::Start(after))?;
    let mut piece = Vec::new();
    file.take(PIECE_BYTES).read_to_end(&mut piece)?;
    // A line that is being written, or goes on in the next piece, comes with that.
    let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    piece.truncate(whole);
    Ok((String::from_utf8_lossy(&piece).into_owned(), after + whole as u64))
}

/// Removes the logs of builds that are not among these. Gives how many.
///
/// # Errors
/// The system's error.
pub fn prune(data_dir: &Path, kept: &[BuildId]) -> std::io::Result<usize> {
    let mut removed = 0;
    let items = match std::fs::read_dir(folder(data_dir)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        items => items?,
    };
    for item in items {
        let path = item?.path();
        let build = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".log")?.parse().ok());
        if build.is_some_and(|build: BuildId| !kept.contains(&build)) {
            std::fs::remove_file(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_followed_from_where_one_stopped_reading() {
        let data = tempfile::tempdir().unwrap();
        let build = BuildId::new();
        assert_eq!(read(data.path(), build, 0).unwrap(), (String::new(), 0));
        let mut log = BuildLog::create(data.path(), build).unwrap();
        log.add(3, "packages", "Get:1 a\u{1b}[2J\r").unwrap();
        let (text, next) = read(data.path(), build, 0).unwrap();
        assert_eq!(text, "    3 s  packages   Get:1 a[2J\n");
        assert_eq!(next, log.bytes());
        assert_eq!(read(data.path(), build, next).unwrap(), (String::new(), next));
        log.add(4, "pack", "ü").unwrap();
        assert_eq!(read(data.path(), build, next).unwrap().0, "    4 s  pack       ü\n");
        // Half a line is none yet.
        log.file.write_all(b"half").unwrap();
        assert_eq!(read(data.path(), build, log.bytes()).unwrap().0, "");
        // Somewhere behind the end.
        assert_eq!(read(data.path(), build, 1 << 40).unwrap(), (String::new(), 1 << 40));
    }

    #[test]
    fn a_log_that_is_full_says_so_once_and_still_takes_the_end() {
        let data = tempfile::tempdir().unwrap();
        let build = BuildId::new();
        let mut log = BuildLog::create(data.path(), build).unwrap();
        let long = "x".repeat(10_000);
        for _ in 0..3_000 {
            log.add(1, "packages", &long).unwrap();
        }
        let error = format!("it failed\n{long}\n").repeat(100);
        log.end(9, &error).unwrap();
        assert!(log.bytes() <= LOG_BYTES_MAX, "{} bytes", log.bytes());
        assert_eq!(std::fs::metadata(path(data.path(), build)).unwrap().len(), log.bytes());
        let mut text = String::new();
        let mut at = 0;
        loop {
            let (piece, next) = read(data.path(), build, at).unwrap();
            if piece.is_empty() {
                break;
            }
            assert!(piece.len() <= 64 << 10 && piece.ends_with('\n'));
            (text, at) = (text + &piece, next);
        }
        assert_eq!(text.matches("the log has 8 MB and is full").count(), 1);
        assert!(text.contains("    9 s  end        it failed\n"));
    }

    #[test]
    fn logs_go_with_their_builds() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(prune(data.path(), &[]).unwrap(), 0);
        let (kept, gone) = (BuildId::new(), BuildId::new());
        for build in [kept, gone] {
            BuildLog::create(data.path(), build).unwrap();
        }
        std::fs::write(data.path().join("build-logs/notes.txt"), "").unwrap();
        assert_eq!(prune(data.path(), &[kept]).unwrap(), 1);
        assert!(path(data.path(), kept).exists() && !path(data.path(), gone).exists());
        assert!(data.path().join("build-logs/notes.txt").exists());
    }
}
