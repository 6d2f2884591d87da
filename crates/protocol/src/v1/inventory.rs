//! What a machine is made of, read in the deployer. Unknown values are `None`, never made up.

use serde::{Deserialize, Serialize};

/// Inventory of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Inventory {
    /// Processors.
    pub cpu: Cpu,
    /// Usable memory in bytes (`MemTotal`).
    pub memory_bytes: u64,
    /// Disks that could hold an installation; no partitions, loop, ram or optical devices.
    pub disks: Vec<Disk>,
    /// Network interfaces with hardware behind them.
    pub nics: Vec<Nic>,
    /// PCI functions.
    pub pci: Vec<PciDevice>,
    /// Firmware's identity tables.
    pub dmi: Dmi,
    /// Whether the machine was started by UEFI.
    pub uefi: bool,
    /// Whether Secure Boot was on; none: unknown, or no UEFI.
    #[serde(default)]
    pub secure_boot: Option<bool>,
    /// How long switches were listened for; a port that is not there then was not heard, which says nothing of the cable.
    #[serde(default)]
    pub lldp: LldpListening,
    /// What could not be read, as `what: why`.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Listening for what switches say of themselves (LLDP, IEEE 802.1AB).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LldpListening {
    /// Nobody listened: an older deployer.
    #[default]
    NotListened,
    /// It is under way; another inventory follows.
    Listening,
    /// It is over.
    Listened {
        /// For how long, in seconds.
        secs: u32,
    },
    /// It could not be done.
    Failed {
        /// Why.
        reason: String,
    },
}

/// What a switch said of the port at the other end of a cable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Neighbour {
    /// Chassis id: a MAC, or a name.
    pub chassis: String,
    /// Port id: a name such as `Ethernet1/1`, or a MAC.
    pub port: String,
    /// System name.
    pub system_name: Option<String>,
    /// What the switch calls the port for people.
    pub port_description: Option<String>,
}

impl Neighbour {
    /// `switch:port`, as the rack plan and discovery rules name it: the system name, else the chassis id.
    #[must_use]
    pub fn switch_port(&self) -> String {
        format!("{}:{}", self.system_name.as_deref().unwrap_or(&self.chassis), self.port)
    }
}

/// Processors, from /proc/cpuinfo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Cpu {
    /// Model name of the first processor.
    pub model: Option<String>,
    /// Physical packages.
    pub sockets: u32,
    /// Physical cores over all packages.
    pub cores: u32,
    /// Logical processors.
    pub threads: u32,
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Disk {
    /// Kernel name of this boot (`nvme0n1`); another one next time.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Logical sector size in bytes.
    pub sector_bytes: u32,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// World-wide name, EUI-64 or NGUID.
    pub wwn: Option<String>,
    /// Whether it spins.
    pub rotational: bool,
    /// Whether the kernel calls it removable (USB sticks, BMC virtual media).
    pub removable: bool,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Nic {
    /// Kernel name of this boot.
    pub name: String,
    /// Permanent link-layer address, lower case with colons.
    pub mac: String,
    /// Driver.
    pub driver: Option<String>,
    /// PCI address.
    pub pci_address: Option<String>,
    /// Speed in Mb/s; none without a link.
    pub speed_mbps: Option<u32>,
    /// Whether it has a carrier.
    pub link: bool,
    /// Whether the machine booted from it.
    pub boot: bool,
    /// The switch port it is plugged into; none: not heard.
    #[serde(default)]
    pub lldp: Option<Neighbour>,
}

/// A PCI function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PciDevice {
    /// Address (`0000:3b:00.0`).
    pub address: String,
    /// Vendor id, four hexadecimal digits.
    pub vendor: String,
    /// Device id, four hexadecimal digits.
    pub device: String,
    /// Class, six hexadecimal digits.
    pub class: String,
}

/// Identity from SMBIOS. Filler text of vendors ("To be filled by O.E.M.") is kept as it is; the server decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Dmi {
    /// System UUID as the firmware writes it, lower case.
    pub uuid: Option<String>,
    /// System serial number.
    pub serial: Option<String>,
    /// Chassis asset tag.
    pub asset_tag: Option<String>,
    /// Manufacturer.
    pub manufacturer: Option<String>,
    /// Product name.
    pub product: Option<String>,
    /// Product SKU: often the order number.
    #[serde(default)]
    pub sku: Option<String>,
    /// BIOS version.
    pub bios_version: Option<String>,
    /// BIOS date.
    pub bios_date: Option<String>,
}
