//! The ndb container (`Packages.db`; rpm's `lib/backend/ndb/rpmpkg.c`): little-endian; a header, pages of slots that
//! say where each blob lies in units of 16 bytes, the blobs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::header::{self, Parsed};
use super::{HEADER_BYTES_MAX, PACKAGES_MAX, RpmError, length, too_many};

const MAGIC: &[u8] = b"RpmP";
const SLOT_MAGIC: &[u8] = b"Slot";
const BLOB_MAGIC: &[u8] = b"BlbS";
const HEADER_BYTES: usize = 32;
const SLOT_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;
const BLOCK_BYTES: u64 = 16;
/// Slots for more packages than are taken anyway.
const SLOT_PAGES_MAX: usize = 2 * PACKAGES_MAX * SLOT_BYTES / PAGE_BYTES;

pub(super) fn headers(file: &File, path: &str) -> Result<Vec<Parsed>, RpmError> {
    let length = length(file, path)?;
    let damaged = |problem: String| RpmError::Damaged {
        path: path.to_owned(),
        problem,
    };
    let read = |at: u64, bytes: usize| -> Result<Vec<u8>, RpmError> {
        let mut buffer = vec![0; bytes];
        file.read_exact_at(&mut buffer, at)
            .map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => damaged(format!("it ends before byte {}", at + bytes as u64)),
                _ => RpmError::Io {
                    path: path.to_owned(),
                    source,
                },
            })?;
        Ok(buffer)
    };
    let head = read(0, HEADER_BYTES)?;
    if !head.starts_with(MAGIC) || number(&head, 4) != 0 {
        return Err(damaged("expected an ndb database of version 0".to_owned()));
    }
    let pages = number(&head, 12) as usize;
    if pages == 0 || pages > SLOT_PAGES_MAX {
        return Err(damaged(format!(
            "{pages} pages of slots; expected 1 to {SLOT_PAGES_MAX}"
        )));
    }
    let slots = read(0, pages * PAGE_BYTES)?;
    let mut headers = Vec::new();
    for slot in slots[HEADER_BYTES..].chunks_exact(SLOT_BYTES) {
        if !slot.starts_with(SLOT_MAGIC) {
            return Err(damaged("a slot without its mark".to_owned()));
        }
        let package = number(slot, 4);
        let (at, bytes) = (
            u64::from(number(slot, 8)) * BLOCK_BYTES,
            u64::from(number(slot, 12)) * BLOCK_BYTES,
        );
        if package == 0 || bytes == 0 {
            continue;
        }
        if headers.len() >= PACKAGES_MAX {
            return Err(too_many(path));
        }
        if at + bytes > length {
            return Err(damaged(format!("blob {package} lies outside of the file")));
        }
        let blob = read(at, 16)?;
        let blob_bytes = number(&blob, 12) as usize;
        let fits = blob_bytes <= HEADER_BYTES_MAX && blob_bytes as u64 + 16 <= bytes;
        if !blob.starts_with(BLOB_MAGIC) || number(&blob, 4) != package || !fits {
            return Err(damaged(format!("blob {package} does not fit its slot")));
        }
        headers.push((u64::from(package), header::parse(&read(at + 16, blob_bytes)?)));
    }
    Ok(headers)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_le_bytes)
}
