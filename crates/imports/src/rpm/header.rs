//! A header blob (rpm manual, "Header format"): a number of index entries and of data bytes, both big-endian, the
//! entries (tag, type, offset, count), then the data they point into.

use super::{HEADER_BYTES_MAX, RpmPackage};

/// A header's number in the database, and what it says.
pub(super) type Parsed = (u64, Result<RpmPackage, String>);

/// rpm's own bound on the entries of a header.
const ENTRIES_MAX: usize = 0xffff;
const ENTRY_BYTES: usize = 16;

const NAME: u32 = 1000;
const VERSION: u32 = 1001;
const RELEASE: u32 = 1002;
const EPOCH: u32 = 1003;
const ARCHITECTURE: u32 = 1022;

const INT32: u32 = 4;
const STRING: u32 = 6;
const I18N_STRING: u32 = 9;
/// Longest text that is taken.
const TEXT_BYTES_MAX: usize = 4096;

/// Reads what identifies a package.
pub(super) fn parse(blob: &[u8]) -> Result<RpmPackage, String> {
    if blob.len() > HEADER_BYTES_MAX {
        return Err(format!("{} bytes; expected at most {HEADER_BYTES_MAX}", blob.len()));
    }
    let entries = number(blob, 0).ok_or("shorter than its two lengths")? as usize;
    let bytes = number(blob, 4).ok_or("shorter than its two lengths")? as usize;
    if entries == 0 || entries > ENTRIES_MAX {
        return Err(format!("{entries} entries; expected 1 to {ENTRIES_MAX}"));
    }
    let data_at = 8 + entries * ENTRY_BYTES;
    let data = data_at
        .checked_add(bytes)
        .and_then(|end| blob.get(data_at..end))
        .ok_or_else(|| {
            format!(
                "{} bytes; its lengths say {entries} entries and {bytes} bytes",
                blob.len()
            )
        })?;
    let find = |tag: u32| {
        (0..entries).find_map(|entry| {
            let at = 8 + entry * ENTRY_BYTES;
            (number(blob, at)? == tag).then_some((number(blob, at + 4)?, number(blob, at + 8)? as usize))
        })
    };
    let text = |tag: u32, what: &str| -> Result<Option<String>, String> {
        let Some((kind, offset)) = find(tag) else {
            return Ok(None);
        };
        if kind != STRING && kind != I18N_STRING {
            return Err(format!("{what} has type {kind}; expected a string"));
        }
        let rest = data
            .get(offset..)
            .ok_or_else(|| format!("{what} lies outside of the data"))?;
        let rest = &rest[..rest.len().min(TEXT_BYTES_MAX)];
        let end = rest.iter().position(|&byte| byte == 0);
        let end = end.ok_or_else(|| format!("{what} has no end"))?;
        let text = std::str::from_utf8(&rest[..end]).map_err(|_| format!("{what} is not UTF-8"))?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(format!("{what} is {text:?}; expected printable text"));
        }
        Ok(Some(text.to_owned()))
    };
    let needed = |tag, what| text(tag, what)?.ok_or_else(|| format!("it has no {what}"));
    let epoch = match find(EPOCH) {
        None => None,
        Some((INT32, offset)) => Some(number(data, offset).ok_or("the epoch lies outside of the data")?),
        Some((kind, _)) => return Err(format!("the epoch has type {kind}; expected a number")),
    };
    Ok(RpmPackage {
        name: needed(NAME, "name")?,
        epoch,
        version: needed(VERSION, "version")?,
        release: needed(RELEASE, "release")?,
        architecture: text(ARCHITECTURE, "architecture")?,
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}
