//! The firmware's boot entries (UEFI 2.10, section 3.1.3), to start from the network once.
//!
//! Read and written where the kernel shows them (`efivarfs`): four bytes of attributes, then the value. Refused: calling
//! `efibootmgr`, which an image may lack.

use std::io;
use std::path::Path;

/// EFI_GLOBAL_VARIABLE.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Kept over restarts, and for firmware as well as the system (section 8.2).
const ATTRIBUTES: u32 = 0x7;
/// LOAD_OPTION_ACTIVE.
const ACTIVE: u32 = 0x1;
/// More entries than any firmware has.
const ENTRIES_MAX: usize = 1_000;

/// An entry of the firmware's boot menu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number: `Boot0003` is 3.
    pub number: u16,
    /// What the menu shows.
    pub description: String,
    /// Whether firmware uses it.
    pub is_active: bool,
    /// MAC of the interface that it boots from, lower case with colons; none: it boots from something else.
    pub mac: Option<String>,
}

/// Reads an entry from the value of its variable.
fn parse(number: u16, value: &[u8]) -> Option<Entry> {
    let attributes = u32::from_le_bytes(value.get(..4)?.try_into().ok()?);
    let path_bytes = usize::from(u16::from_le_bytes(value.get(4..6)?.try_into().ok()?));
    let mut words = value
        .get(6..)?
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let description: Vec<u16> = words.by_ref().take_while(|word| *word != 0).collect();
    let path_start = 6 + 2 * (description.len() + 1);
    let path = value.get(path_start..path_start.checked_add(path_bytes)?)?;
    Some(Entry {
        number,
        description: String::from_utf16_lossy(&description),
        is_active: attributes & ACTIVE != 0,
        mac: mac_of(path),
    })
}

/// The MAC address node of a device path (section 10.3.4.11): type 3, subtype 11.
fn mac_of(mut path: &[u8]) -> Option<String> {
    while let [kind, subtype, low, high, ..] = path {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let node = path.get(4..length)?;
        if (*kind, *subtype) == (3, 11) {
            let octets: Vec<String> = node.get(..6)?.iter().map(|octet| format!("{octet:02x}")).collect();
            return Some(octets.join(":"));
        }
        path = path.get(length..)?;
    }
    None
}

/// The entry to start from: active, of one of these interfaces, the first of them before the others, and in the firmware's
/// own order.
pub fn choose<'a>(entries: &'a [Entry], order: &[u16], macs: &[String]) -> Option<&'a Entry> {
    let place = |entry: &Entry| {
        let mac = entry.mac.as_ref()?;
        let nearest = macs.iter().position(|own| own == mac)?;
        let rank = order
            .iter()
            .position(|number| *number == entry.number)
            .unwrap_or(usize::MAX);
        entry.is_active.then_some((nearest, rank, entry.number))
    };
    let placed = entries.iter().filter_map(|entry| Some((place(entry)?, entry)));
    placed.min_by_key(|(place, _)| *place).map(|(_, entry)| entry)
}

/// All entries that firmware has, and its order. `variables` is the folder of efivarfs.
///
/// # Errors
/// When the folder cannot be read.
pub fn read(variables: &Path) -> io::Result<(Vec<Entry>, Vec<u16>)> {
    let mut entries = Vec::new();
    for item in std::fs::read_dir(variables)?.take(100 * ENTRIES_MAX) {
        let name = item?.file_name();
        let Some(number) = name.to_str().and_then(entry_number) else {
            continue;
        };
        let value = std::fs::read(variables.join(&name))?;
        entries.extend(value.get(4..).and_then(|value| parse(number, value)));
        if entries.len() > ENTRIES_MAX {
            break;
        }
    }
    entries.sort_by_key(|entry| entry.number);
    let order = std::fs::read(variables.join(format!("BootOrder-{GLOBAL}"))).unwrap_or_default();
    let order = order.get(4..).unwrap_or_default().chunks_exact(2);
    Ok((
        entries,
        order.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect(),
    ))
}

/// `Boot0003-8be4df61-…`: 3.
fn entry_number(name: &str) -> Option<u16> {
    let (name, vendor) = name.split_once('-')?;
    let digits = name
        .strip_prefix("Boot")
        .filter(|digits| digits.len() == 4 && vendor == GLOBAL)?;
    u16::from_str_radix(digits, 16).ok()
}

/// Has firmware start from this entry, once.
///
/// # Errors
/// When the variable cannot be written.
pub fn set(variables: &Path, number: u16) -> io::Result<()> {
    let value = [&ATTRIBUTES.to_le_bytes()[..], &number.to_le_bytes()].concat();
    // One write, or efivarfs takes the first part for the whole.
    std::fs::write(variables.join(format!("BootNext-{GLOBAL}")), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry as OVMF makes it: PCI root, PCI device, then MAC and IPv4, or a disk.
    fn value(description: &str, mac: Option<[u8; 6]>) -> Vec<u8> {
        let mut path = vec![2, 1, 12, 0, 0xd0, 0x41, 3, 0x0a, 0, 0, 0, 0, 1, 1, 6, 0, 0, 2];
        if let Some(mac) = mac {
            path.extend([3, 11, 37, 0]);
            path.extend(mac);
            path.extend([0; 27]);
        }
        path.extend([0x7f, 0xff, 4, 0]);
        let mut value = 1_u32.to_le_bytes().to_vec();
        value.extend(u16::try_from(path.len()).unwrap().to_le_bytes());
        value.extend(description.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        value.extend(path);
        value
    }

    fn variable(folder: &Path, name: &str, value: &[u8]) {
        let content = [&ATTRIBUTES.to_le_bytes()[..], value].concat();
        std::fs::write(folder.join(format!("{name}-{GLOBAL}")), content).unwrap();
    }

    #[test]
    fn the_entry_of_the_interface_that_booted_is_found_among_others() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = ([0x52, 0x54, 0, 0x77, 0, 1], [0x52, 0x54, 0, 0x77, 0, 2]);
        variable(folder.path(), "Boot0000", &value("UEFI Misc Device", None));
        variable(folder.path(), "Boot0002", &value("UEFI PXEv4", Some(other)));
        variable(folder.path(), "Boot0003", &value("UEFI HTTPv4", Some(own)));
        variable(folder.path(), "Boot000A", &value("UEFI PXEv4 (own)", Some(own)));
        variable(folder.path(), "BootOrder", &[0, 0, 0x0a, 0, 3, 0, 2, 0]);
        variable(folder.path(), "BootCurrent", &[0, 0]);
        let (entries, order) = read(folder.path()).unwrap();
        assert_eq!((entries.len(), &order[..]), (4, &[0, 10, 3, 2][..]));
        let macs = ["52:54:00:77:00:01".to_owned(), "52:54:00:77:00:02".to_owned()];
        let chosen = choose(&entries, &order, &macs).unwrap();
        assert_eq!((chosen.number, chosen.description.as_str()), (10, "UEFI PXEv4 (own)"));
        assert_eq!(choose(&entries, &order, &macs[1..]).unwrap().number, 2);
        assert_eq!(choose(&entries, &order, &["00:00:00:00:00:09".to_owned()]), None);
        let mut inactive = entries.clone();
        inactive[3].is_active = false;
        assert_eq!(choose(&inactive, &order, &macs).unwrap().number, 3);

        set(folder.path(), 10).unwrap();
        let written = std::fs::read(folder.path().join(format!("BootNext-{GLOBAL}"))).unwrap();
        assert_eq!(written, [7, 0, 0, 0, 10, 0]);
    }

    #[test]
    fn a_damaged_entry_is_left_out() {
        let whole = value("UEFI PXEv4", Some([1, 2, 3, 4, 5, 6]));
        assert!(parse(1, &whole).unwrap().mac.is_some());
        for length in 0..whole.len() {
            assert!(parse(1, &whole[..length]).is_none(), "{length} bytes");
        }
        let mut endless = whole;
        let at = endless.len() - 4 - 37 + 2;
        endless[at] = 0;
        assert_eq!(
            parse(1, &endless).unwrap().mac,
            None,
            "a node of no length ends the path"
        );
        assert_eq!(entry_number("BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c"), None);
        assert_eq!(entry_number("Boot0003-00000000-93ca-11d2-aa0d-00e098032b8c"), None);
    }
}
