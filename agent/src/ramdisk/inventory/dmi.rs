//! The firmware's identity tables.

use std::path::Path;

use protocol::latest::Dmi;

use super::value;

/// What SMBIOS says, as it says it.
pub fn read(root: &Path, problems: &mut Vec<String>) -> Dmi {
    let folder = root.join("sys/class/dmi/id");
    if !folder.is_dir() {
        problems.push("/sys/class/dmi/id: the firmware has no SMBIOS tables".to_owned());
        return Dmi::default();
    }
    let of = |file: &str| value(&folder.join(file));
    Dmi {
        uuid: of("product_uuid").map(|uuid| uuid.to_ascii_lowercase()),
        serial: of("product_serial"),
        asset_tag: of("chassis_asset_tag"),
        manufacturer: of("sys_vendor"),
        product: of("product_name"),
        sku: of("product_sku"),
        bios_version: of("bios_version"),
        bios_date: of("bios_date"),
    }
}
