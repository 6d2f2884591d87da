//! PCI functions.

use std::path::Path;

use protocol::latest::PciDevice;

use super::nics::is_pci_address;
use super::{names, value};

/// All functions, by address. A machine without PCI has none, which is no problem.
pub fn functions(root: &Path, problems: &mut Vec<String>) -> Vec<PciDevice> {
    let folder = "sys/bus/pci/devices";
    if !root.join(folder).exists() {
        return Vec::new();
    }
    let read = |address: String, problems: &mut Vec<String>| {
        let place = root.join(folder).join(&address);
        let id = |file: &str, digits: usize| hexadecimal(&value(&place.join(file))?, digits);
        match (id("vendor", 4), id("device", 4), id("class", 6)) {
            (Some(vendor), Some(device), Some(class)) => Some(PciDevice {
                address,
                vendor,
                device,
                class,
            }),
            _ => {
                problems.push(format!("PCI {address}: ids cannot be read"));
                None
            }
        }
    };
    names(root, folder, problems)
        .into_iter()
        .filter(|address| is_pci_address(address))
        .filter_map(|address| read(address, problems))
        .collect()
}

/// `0x10de` as `10de`, when it has that many digits.
fn hexadecimal(text: &str, digits: usize) -> Option<String> {
    let text = text.strip_prefix("0x")?;
    (text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_a_fixed_number_of_digits() {
        assert_eq!(hexadecimal("0x10DE", 4).as_deref(), Some("10de"));
        assert_eq!(hexadecimal("0x10de", 6), None);
        assert_eq!(hexadecimal("10de", 4), None);
    }
}
