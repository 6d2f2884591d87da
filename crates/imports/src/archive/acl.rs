//! POSIX ACLs as text (`SCHILY.acl.access`, as GNU tar and star write them) into the kernel's form
//! (`system.posix_acl_access`, linux/posix_acl_xattr.h).
//!
//! Only numeric users and groups can be carried: a name means another id on another machine. GNU tar writes numbers
//! with `--numeric-owner`; bsdtar and star add the number as a fourth field.

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
const ENTRIES_MAX: usize = 1024;

/// The kernel's form of an ACL, its entries sorted as the kernel wants them.
pub(crate) fn to_kernel(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty()) {
        entries.push(entry_of(entry)?);
        if entries.len() > ENTRIES_MAX {
            return Err(format!("it has more than {ENTRIES_MAX} entries"));
        }
    }
    entries.sort_unstable_by_key(|&(tag, _, id)| (tag, id));
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    Ok(bytes)
}

fn entry_of(entry: &str) -> Result<(u16, u16, u32), String> {
    let unreadable = || format!("entry {entry:?} is not tag:qualifier:rwx");
    let mut fields = entry.split(':');
    let (tag, qualifier) = (fields.next().unwrap_or(""), fields.next().ok_or_else(unreadable)?);
    // mask and other may stand without their empty qualifier.
    let (qualifier, permissions) = match fields.next() {
        Some(permissions) => (qualifier, permissions),
        None => ("", qualifier),
    };
    let number = fields.next();
    let mut bits = 0;
    for character in permissions.split('#').next().unwrap_or("").trim().chars() {
        bits |= match character {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return Err(unreadable()),
        };
    }
    let id = match (qualifier, number) {
        ("", _) => NO_ID,
        (_, Some(number)) | (number, None) => number
            .parse()
            .map_err(|_| format!("{entry:?} names an account; only numeric ids can be carried"))?,
    };
    let named = id != NO_ID;
    let tag = match (tag, named) {
        ("user" | "u", false) => 0x01,
        ("user" | "u", true) => 0x02,
        ("group" | "g", false) => 0x04,
        ("group" | "g", true) => 0x08,
        ("mask" | "m", false) => 0x10,
        ("other" | "o", false) => 0x20,
        _ => return Err(unreadable()),
    };
    Ok((tag, bits, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_entries_become_the_kernels_form() {
        let expected = concat!(
            "02000000",
            "01000700ffffffff",
            "02000600e8030000",
            "04000500ffffffff",
            "10000700ffffffff",
            "20000400ffffffff"
        );
        for text in [
            "user::rwx,user:1000:rw-,group::r-x,mask::rwx,other::r--",
            "user::rwx\nother::r--\ngroup::r-x\nmask::rwx\nuser:alice:rw-:1000\n",
        ] {
            assert_eq!(hex::encode(to_kernel(text.as_bytes()).unwrap()), expected, "{text}");
        }
        for text in ["user:alice:rwx", "user::rwz", "gadget::rwx", "user", "mask:3:rwx"] {
            assert!(to_kernel(text.as_bytes()).is_err(), "{text}");
        }
    }
}
