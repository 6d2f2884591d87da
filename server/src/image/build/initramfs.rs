//! Writing an initramfs: a cpio archive in the kernel's "newc" form, compressed with zstd.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use cpio::newc::{self, Builder};
use manifest::{Entry, EntryKind};

use super::progress::{Count, Reporter};
use super::{BuildError, files};

/// zstd's highest ordinary level. The kernel refuses the windows of the higher ones, and of long-distance matching.
const LEVEL: i32 = 19;

/// Writes the entries of a tree, in their order; gives the size of the file.
pub(super) fn write(root: &Path, entries: &[Entry], file: &Path, reporter: &Reporter) -> Result<u64, BuildError> {
    let failed = || BuildError::io(format!("writing {}", file.display()));
    let output = File::create(file).map_err(failed())?;
    let mut compressor = zstd::stream::write::Encoder::new(output, LEVEL).map_err(failed())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    compressor
        .multithread(u32::try_from(threads).unwrap_or(1))
        .map_err(failed())?;
    let mut said_at = std::time::Instant::now();
    for (number, entry) in entries.iter().enumerate() {
        if said_at.elapsed().as_secs() >= 2 {
            said_at = std::time::Instant::now();
            reporter.show("initramfs", format!("{number} of {} paths", entries.len()))?;
            let count = Count {
                done: number as u64,
                total: Some(entries.len() as u64),
                unit: "paths",
            };
            reporter.count("initramfs", count)?;
        }
        compressor = write_entry(compressor, root, entry, number).map_err(BuildError::io(format!("{}", entry.path)))?;
    }
    let compressor = newc::trailer(compressor).map_err(failed())?;
    let output = compressor.finish().map_err(failed())?;
    Ok(output.metadata().map_err(failed())?.len())
}

fn write_entry<W: Write>(to: W, root: &Path, entry: &Entry, number: usize) -> io::Result<W> {
    let (file_type, size) = match &entry.kind {
        EntryKind::Directory => (0o040_000, 0),
        EntryKind::File(content) => (0o100_000, content.map_or(0, |content| content.size)),
        EntryKind::Symlink(target) => (0o120_000, target.len() as u64),
        EntryKind::CharacterDevice(..) => (0o020_000, 0),
        EntryKind::BlockDevice(..) => (0o060_000, 0),
        EntryKind::Fifo => (0o010_000, 0),
        EntryKind::Socket => return Err(io::Error::other("a socket")),
    };
    let name = std::str::from_utf8(entry.path.relative()).map_err(io::Error::other)?;
    let size = u32::try_from(size).map_err(|_| io::Error::other("over 4 GiB: newc cannot hold it"))?;
    let mut header = Builder::new(name)
        // The kernel joins entries with links by inode number: each gets its own, and one link.
        .ino(u32::try_from(number + 1).unwrap_or(u32::MAX))
        .nlink(1)
        .mode(file_type | entry.mode)
        .uid(entry.uid)
        .gid(entry.gid)
        .mtime(u32::try_from(entry.mtime.max(0)).unwrap_or(u32::MAX));
    if let EntryKind::CharacterDevice(major, minor) | EntryKind::BlockDevice(major, minor) = entry.kind {
        header = header.rdev_major(major).rdev_minor(minor);
    }
    let mut writer = header.write(to, size);
    match &entry.kind {
        EntryKind::File(Some(_)) => {
            io::copy(&mut File::open(files::place(root, &entry.path))?, &mut writer)?;
        }
        EntryKind::Symlink(target) => writer.write_all(target)?,
        _ => {}
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use manifest::ClassRules;

    use super::super::walk::Walk;
    use super::*;

    #[test]
    fn the_archive_holds_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("bin")).unwrap();
        std::fs::write(tree.path().join("bin/agent"), "program").unwrap();
        symlink("bin/agent", tree.path().join("init")).unwrap();
        let (reporter, _lines) = Reporter::channel();
        let classes = ClassRules::default();
        let walk = Walk {
            root: tree.path(),
            classes: &classes,
            epoch: 7,
            reporter: &reporter,
        };
        let entries = walk.entries().unwrap();
        let file = tree.path().join("initrd.img");
        let size = write(tree.path(), &entries, &file, &reporter).unwrap();
        assert_eq!(size, std::fs::metadata(&file).unwrap().len());

        let mut archive = zstd::stream::read::Decoder::new(File::open(&file).unwrap()).unwrap();
        let mut found = Vec::new();
        let mut plain = Vec::new();
        io::copy(&mut archive, &mut plain).unwrap();
        let mut rest = plain.as_slice();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let mut content = String::new();
            io::Read::read_to_string(&mut reader, &mut content).unwrap();
            let entry = reader.entry();
            found.push((
                entry.name().to_owned(),
                entry.mode() & 0o170_000,
                entry.mtime(),
                content,
            ));
            rest = reader.finish().unwrap();
        }
        let entry = |name: &str, kind, content: &str| (name.to_owned(), kind, 7, content.to_owned());
        assert_eq!(
            found,
            [
                entry(".", 0o040_000, ""),
                entry("bin", 0o040_000, ""),
                entry("bin/agent", 0o100_000, "program"),
                entry("init", 0o120_000, "bin/agent"),
            ]
        );
    }
}
