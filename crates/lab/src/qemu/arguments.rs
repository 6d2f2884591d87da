//! From a machine's specification to QEMU's arguments: values in, values out.

use crate::wire;
use crate::wire::faults::Rates;
use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The id of the machine's only network backend.
pub(crate) const NETDEV_ID: &str = "n0";

/// `virtio-blk`'s serial field; NVMe and SMBIOS would take more.
const DISK_SERIAL_BYTES_MAX: usize = 20;

/// What the machine starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Firmware {
    /// OVMF, Secure Boot off.
    Uefi,
    /// OVMF with Microsoft's keys enrolled, Secure Boot on.
    UefiSecureBoot,
    /// SeaBIOS with the NIC's iPXE option ROM.
    Bios,
    /// AAVMF, on an arm64 machine.
    UefiArm64,
}

impl Firmware {
    /// The emulator of the machine that has it.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Uefi | Self::UefiSecureBoot | Self::Bios => "qemu-system-x86_64",
            Self::UefiArm64 => "qemu-system-aarch64",
        }
    }
}

/// How UEFI firmware boots from the network; BIOS knows PXE only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootProtocol {
    /// DHCP and TFTP.
    Pxe,
    /// UEFI HTTP boot.
    Http,
}

/// What firmware tries first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootOrder {
    /// The network, then the disks.
    Network,
    /// The disks, then the network.
    Disks,
}

/// How a disk is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBus {
    /// Paravirtual: `/dev/vdX`.
    Virtio,
    /// NVMe: `/dev/nvmeXn1`.
    Nvme,
}

/// One disk.
#[derive(Debug, Clone, Serialize)]
pub struct DiskSpec {
    /// The raw image, made sparse when it is not there.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// How it is attached.
    pub bus: DiskBus,
    /// The serial number that the node sees; at most 20 bytes.
    pub serial: String,
}

/// Who the machine says it is (SMBIOS type 1).
#[derive(Debug, Clone, Serialize)]
pub struct Smbios {
    /// Serial number.
    pub serial: String,
    /// UUID in the usual text form.
    pub uuid: String,
    /// Manufacturer.
    pub manufacturer: String,
    /// Product name.
    pub product: String,
}

/// A machine's description.
#[derive(Debug, Clone, Serialize)]
pub struct MachineSpec {
    /// What people and logs call it.
    pub name: String,
    /// The name of its TAP on the rack's bridge; at most 15 bytes.
    pub tap: String,
    /// MAC address, colon-separated hex.
    pub mac: String,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u32,
    /// Firmware.
    pub firmware: Firmware,
    /// The folder with OVMF's files, for UEFI.
    pub ovmf: PathBuf,
    /// Network boot protocol.
    pub boot_protocol: BootProtocol,
    /// Disks, in boot order.
    pub disks: Vec<DiskSpec>,
    /// What firmware tries first.
    pub boot_order: BootOrder,
    /// Identity.
    pub smbios: Smbios,
    /// What its network cable does to frames; none: a good one.
    pub cable: Option<Rates>,
    /// Whether every frame of its network interface is written to `frames.pcap` in its folder.
    pub is_recorded: bool,
}

impl MachineSpec {
    /// A machine numbered `number` (1 to 255) of a rack: UEFI by PXE, 1 GiB, two processors, no disk yet, and an identity
    /// that follows from the number. `ovmf` is the folder with OVMF's files.
    pub fn numbered(number: u8, ovmf: &Path) -> Self {
        Self {
            name: format!("node{number}"),
            tap: format!("tap{number}"),
            mac: format!("52:54:00:77:00:{number:02x}"),
            memory_mib: 1024,
            cpus: 2,
            firmware: Firmware::Uefi,
            ovmf: ovmf.to_owned(),
            boot_protocol: BootProtocol::Pxe,
            disks: Vec::new(),
            boot_order: BootOrder::Network,
            smbios: Smbios {
                serial: format!("LAB{number:04}"),
                uuid: format!("7fb5d2f0-77aa-4e1c-9d10-0000000000{number:02x}"),
                manufacturer: "Plumbline".to_owned(),
                product: "Virtual GPU node".to_owned(),
            },
            cable: None,
            is_recorded: false,
        }
    }

    /// Adds a disk whose image lies in `folder`.
    #[must_use]
    pub fn with_disk(mut self, folder: &Path, size_bytes: u64, bus: DiskBus) -> Self {
        let number = self.disks.len();
        self.disks.push(DiskSpec {
            path: folder.join(format!("disk{number}.img")),
            size_bytes,
            bus,
            serial: format!("{}D{number}", self.smbios.serial),
        });
        self
    }

    /// Refuses what QEMU or the guest would silently cut or misread.
    ///
    /// # Errors
    /// Names the value and its bound.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.cpus >= 1 && self.memory_mib >= 64,
            "{}: at least one processor and 64 MiB",
            self.name
        );
        for disk in &self.disks {
            let serial = &disk.serial;
            ensure!(
                !serial.is_empty() && serial.len() <= DISK_SERIAL_BYTES_MAX,
                "{}: a disk's serial has 1 to {DISK_SERIAL_BYTES_MAX} bytes, not `{serial}`",
                self.name
            );
            ensure!(
                disk.size_bytes % 512 == 0,
                "{}: a disk is whole sectors of 512 bytes",
                self.name
            );
        }
        Ok(())
    }
}

/// The files of one machine.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) firmware_variables: PathBuf,
    pub(crate) serial_log: PathBuf,
    pub(crate) qemu_log: PathBuf,
    pub(crate) pid: PathBuf,
    pub(crate) qmp_socket: PathBuf,
    /// A folder for the sockets of a bad cable; its path is short enough for them.
    pub(crate) wire: PathBuf,
    pub(crate) frames: PathBuf,
}

/// The file of the variables that a machine's own copy starts from, in OVMF's folder; none for BIOS.
pub(crate) fn firmware_variables_template(firmware: Firmware) -> Option<&'static str> {
    match firmware {
        Firmware::Uefi => Some("OVMF_VARS_4M.fd"),
        Firmware::UefiSecureBoot => Some("OVMF_VARS_4M.ms.fd"),
        Firmware::UefiArm64 => Some("AAVMF_VARS.fd"),
        Firmware::Bios => None,
    }
}

/// QEMU's arguments for a machine.
pub(crate) fn machine_arguments(spec: &MachineSpec, files: &Files) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    arguments.option("-name", escaped(&spec.name));
    // Hardware virtualisation is left out on purpose: racks must behave the same where it is absent or broken.
    // graphics=off makes SeaBIOS speak on the serial console.
    let (machine, processor) = match spec.firmware {
        Firmware::Uefi | Firmware::Bios => ("q35,accel=tcg,graphics=off", "max"),
        Firmware::UefiSecureBoot => ("q35,accel=tcg,graphics=off,smm=on", "max"),
        // Without the instruction for random numbers, which older processors lack, this firmware has no network. Pointer
        // authentication in full would take half of the time.
        Firmware::UefiArm64 => ("virt,accel=tcg", "max,pauth-impdef=on"),
    };
    arguments.option("-machine", machine);
    arguments.option("-cpu", processor);
    arguments.option("-smp", spec.cpus.to_string());
    arguments.option("-m", spec.memory_mib.to_string());
    arguments.flag("-nodefaults");
    arguments.option("-display", "none");
    arguments.option("-monitor", "none");
    arguments.option(
        "-chardev",
        path_option("file,id=serial0,append=on,path=", &files.serial_log),
    );
    arguments.option("-serial", "chardev:serial0");
    arguments.option(
        "-chardev",
        path_option("socket,id=qmp0,server=on,wait=off,path=", &files.qmp_socket),
    );
    arguments.option("-qmp", "chardev:qmp0");
    add_firmware(&mut arguments, spec, files);
    add_identity(&mut arguments, &spec.smbios);
    // A guest that waits for entropy at its first boot would look like a slow deployment.
    arguments.option("-object", "rng-random,id=rng0,filename=/dev/urandom");
    arguments.option("-device", "virtio-rng-pci,rng=rng0");
    add_network(&mut arguments, spec, files);
    for (number, disk) in spec.disks.iter().enumerate() {
        let place = match spec.boot_order {
            BootOrder::Network => number + 2,
            BootOrder::Disks => number + 1,
        };
        add_disk(&mut arguments, number, place, disk);
    }
    arguments.0
}

fn add_firmware(arguments: &mut Arguments, spec: &MachineSpec, files: &Files) {
    let code = match spec.firmware {
        Firmware::Uefi => "OVMF_CODE_4M.fd",
        Firmware::UefiSecureBoot => "OVMF_CODE_4M.secboot.fd",
        Firmware::UefiArm64 => "AAVMF_CODE.fd",
        Firmware::Bios => return,
    };
    if spec.firmware == Firmware::UefiSecureBoot {
        // The variables may be written from system management mode only, as on metal.
        arguments.option("-global", "driver=cfi.pflash01,property=secure,value=on");
    }
    arguments.option(
        "-drive",
        path_option("if=pflash,format=raw,readonly=on,file=", &spec.ovmf.join(code)),
    );
    arguments.option(
        "-drive",
        path_option("if=pflash,format=raw,file=", &files.firmware_variables),
    );
    // OVMF tries every protocol for half a minute each; the rack's wire speaks IPv4 only.
    let mut skipped = vec!["IPv6PXESupport"];
    if spec.boot_protocol == BootProtocol::Http {
        skipped.push("IPv4PXESupport");
    }
    for name in skipped {
        arguments.option("-fw_cfg", format!("name=opt/org.tianocore/{name},string=no"));
    }
}

fn add_identity(arguments: &mut Arguments, smbios: &Smbios) {
    let Smbios {
        serial,
        uuid,
        manufacturer,
        product,
    } = smbios;
    let fields = format!("type=1,serial={},uuid={}", escaped(serial), escaped(uuid));
    let names = format!("manufacturer={},product={}", escaped(manufacturer), escaped(product));
    arguments.option("-smbios", format!("{fields},{names}"));
    arguments.option("-uuid", uuid.as_str());
}

fn add_network(arguments: &mut Arguments, spec: &MachineSpec, files: &Files) {
    // What crosses the cable's sockets, or is recorded, is whole frames: without offloads.
    let plain = spec.cable.is_some() || spec.is_recorded;
    let offloads = if plain { ",vnet_hdr=off" } else { "" };
    let tap = format!(
        "tap,id={NETDEV_ID},ifname={},script=no,downscript=no{offloads}",
        spec.tap
    );
    arguments.option("-netdev", tap);
    if spec.is_recorded {
        let dump = format!("filter-dump,id=frames,netdev={NETDEV_ID},file=");
        arguments.option("-object", path_option(&dump, &files.frames));
    }
    if spec.cable.is_some() {
        for (number, (out, back)) in wire::DIRECTIONS.into_iter().enumerate() {
            let queue = if number == 0 { "tx" } else { "rx" };
            for name in [out, back] {
                let socket = path_option(&format!("socket,id={name},path="), &files.wire.join(name));
                arguments.option("-chardev", socket);
            }
            arguments.option(
                "-object",
                format!(
                    "filter-redirector,id=cable-{queue},netdev={NETDEV_ID},queue={queue},outdev={out},indev={back}"
                ),
            );
        }
    }
    // Under UEFI the option ROM would put iPXE's network stack in front of the firmware's own, which is not what
    // metal has, and which confuses shim's TFTP. SeaBIOS has no network stack but the ROM.
    let rom = if spec.firmware == Firmware::Bios {
        ""
    } else {
        ",romfile="
    };
    let place = match spec.boot_order {
        BootOrder::Network => 1,
        BootOrder::Disks => spec.disks.len() + 1,
    };
    arguments.option(
        "-device",
        format!(
            "virtio-net-pci,netdev={NETDEV_ID},mac={},bootindex={place}{rom}",
            spec.mac
        ),
    );
}

fn add_disk(arguments: &mut Arguments, number: usize, place: usize, disk: &DiskSpec) {
    let device = match disk.bus {
        DiskBus::Virtio => "virtio-blk-pci",
        DiskBus::Nvme => "nvme",
    };
    // Host caching without flushes: a rack lives as long as its host does.
    let drive = format!("if=none,id=d{number},format=raw,cache=unsafe,discard=unmap,file=");
    arguments.option("-drive", path_option(&drive, &disk.path));
    let serial = escaped(&disk.serial);
    arguments.option(
        "-device",
        format!("{device},drive=d{number},serial={serial},bootindex={place}"),
    );
}

/// In QEMU's option lists a comma inside a value is written twice.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

/// `prefix` and a path, whose commas are doubled; bytes that are not UTF-8 pass as they are.
fn path_option(prefix: &str, path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let mut bytes = prefix.as_bytes().to_vec();
    for byte in path.as_os_str().as_bytes() {
        bytes.extend(std::iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 }));
    }
    OsString::from_vec(bytes)
}

#[derive(Debug, Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn flag(&mut self, name: &str) {
        self.0.push(name.into());
    }

    fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.extend([OsString::from(name), value.into()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(spec: &MachineSpec) -> String {
        let folder = Path::new("/lab/node1");
        let files = Files {
            firmware_variables: folder.join("firmware-vars.fd"),
            serial_log: folder.join("serial.log"),
            qemu_log: folder.join("qemu.log"),
            pid: folder.join("pid"),
            qmp_socket: folder.join("qmp"),
            wire: folder.join("wire"),
            frames: folder.join("frames.pcap"),
        };
        let mut text = String::new();
        for word in machine_arguments(spec, &files) {
            let separator = if word.to_string_lossy().starts_with('-') {
                '\n'
            } else {
                ' '
            };
            text.push(separator);
            text.push_str(&word.to_string_lossy());
        }
        text
    }

    #[test]
    fn a_uefi_machine_with_two_disks() {
        let folder = Path::new("/lab/node1");
        let spec = MachineSpec::numbered(1, Path::new("/lab/ovmf")).with_disk(folder, 8 << 30, DiskBus::Virtio);
        let spec = spec.with_disk(folder, 4 << 30, DiskBus::Nvme);
        assert!(spec.check().is_ok());
        assert_eq!(text(&spec), include_str!("../../testdata/qemu-uefi.txt").trim_end());
    }

    #[test]
    fn a_bios_machine_keeps_the_option_rom_and_has_no_flash() {
        let text = text(&MachineSpec {
            firmware: Firmware::Bios,
            ..MachineSpec::numbered(1, Path::new("/lab/ovmf"))
        });
        assert!(
            !text.contains("romfile") && !text.contains("pflash") && !text.contains("fw_cfg"),
            "{text}"
        );
    }

    #[test]
    fn secure_boot_guards_the_variables_and_http_boot_skips_pxe() {
        let firmware = Firmware::UefiSecureBoot;
        let spec = MachineSpec {
            firmware,
            boot_protocol: BootProtocol::Http,
            ..MachineSpec::numbered(1, Path::new("/lab/ovmf"))
        };
        let text = text(&spec);
        for words in [
            "-machine q35,accel=tcg,graphics=off,smm=on",
            "driver=cfi.pflash01,property=secure,value=on",
            "OVMF_CODE_4M.secboot.fd",
            "opt/org.tianocore/IPv4PXESupport,string=no",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn a_bad_cable_carries_whole_frames_in_both_directions() {
        let mut spec = MachineSpec::numbered(1, Path::new("/lab/ovmf"));
        assert!(!text(&spec).contains("filter-"));
        spec.cable = Some(Rates {
            dropped_percent: 5,
            doubled_percent: 0,
            swapped_percent: 0,
        });
        let text = text(&spec);
        for words in [
            "script=no,downscript=no,vnet_hdr=off",
            "-chardev socket,id=tx-out,path=/lab/node1/wire/tx-out",
            "filter-redirector,id=cable-tx,netdev=n0,queue=tx,outdev=tx-out,indev=tx-in",
            "filter-redirector,id=cable-rx,netdev=n0,queue=rx,outdev=rx-out,indev=rx-in",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn an_arm64_machine_is_emulated_as_one() {
        let spec = MachineSpec {
            firmware: Firmware::UefiArm64,
            ..MachineSpec::numbered(1, Path::new("/lab/ovmf"))
        };
        assert_eq!(spec.firmware.program(), "qemu-system-aarch64");
        let text = text(&spec);
        for words in [
            "-machine virt,accel=tcg",
            "-cpu max,pauth-impdef=on",
            "/lab/ovmf/AAVMF_CODE.fd",
            "romfile=",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert!(!text.contains("q35") && !text.contains("OVMF_CODE_4M"), "{text}");
    }

    #[test]
    fn a_comma_cannot_add_an_option() {
        let mut spec = MachineSpec::numbered(1, Path::new("/lab/ovmf"));
        spec.smbios.product = "GPU node, 8x".to_owned();
        assert!(text(&spec).contains("product=GPU node,, 8x"));
        let spec = MachineSpec::numbered(1, Path::new("/lab/ovmf")).with_disk(
            Path::new("/lab/a,snapshot=on"),
            512,
            DiskBus::Virtio,
        );
        assert!(text(&spec).contains("file=/lab/a,,snapshot=on/disk0.img"));
    }

    #[test]
    fn a_serial_that_the_guest_would_see_cut_is_refused() {
        let mut spec =
            MachineSpec::numbered(1, Path::new("/lab/ovmf")).with_disk(Path::new("/lab"), 512, DiskBus::Virtio);
        spec.disks[0].serial = "x".repeat(21);
        assert!(spec.check().unwrap_err().to_string().contains("1 to 20 bytes"));
    }
}
