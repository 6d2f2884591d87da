//! Which loader a machine wants, and how it is handed over.
//!
//! Idea: three questions, answered from the request alone. Does it boot from the network (class, or iPXE evidence)?
//! Is it an iPXE that can already fetch our script? If not, which loader, and by TFTP or by URL?
//!
//! # The loop breaker
//! A loader we hand out asks DHCP again. If the second answer were the loader once more, the machine would load it for
//! ever. The chain ends at the *script stage*: a client that shows HTTP support in option 175, or names itself `iPXE`
//! and says nothing of its features, gets the URL of its script and never a loader. The loaders we hand out have
//! HTTP and start Linux, so they always end there. A vendor's iPXE without HTTP cannot fetch the script, and one that
//! lists the images it starts without a Linux kernel among them could not go on from it: both are given our loader.
//!
//! Refused: keying on the user class alone. FlexBoot is iPXE and sends none, and would loop.
//! Refused: a marker in a script of our own inside the loader. The loaders are a distribution's packages, unmodified.

use std::collections::BTreeMap;

use super::packet::Request;

/// x86 BIOS (RFC 4578 section 2.1, IANA "Processor Architecture Types").
pub const ARCH_BIOS: u16 = 0x0000;
/// x64 UEFI; 0x0009 is what early firmware sends for the same.
pub const ARCH_UEFI_X64: u16 = 0x0007;
/// x64 UEFI, called EFI BC in RFC 4578.
pub const ARCH_UEFI_BC: u16 = 0x0009;
/// 64-bit ARM UEFI.
pub const ARCH_UEFI_ARM64: u16 = 0x000b;
/// x64 UEFI booting over HTTP.
pub const ARCH_HTTP_X64: u16 = 0x0010;
/// 64-bit ARM UEFI booting over HTTP.
pub const ARCH_HTTP_ARM64: u16 = 0x0013;

/// iPXE feature number of HTTP in option 175.
const IPXE_FEATURE_HTTP: u8 = 0x13;
/// The images that hold a Linux kernel: bzImage for BIOS, EFI programs for UEFI.
const IPXE_LINUX_IMAGES: [u8; 2] = [0x18, 0x24];
/// All numbers that stand for a kind of image: the two above, Multiboot, NBI, PXE, ELF, COMBOOT, SDI.
const IPXE_IMAGES: [u8; 8] = [0x18, 0x24, 0x19, 0x20, 0x21, 0x22, 0x23, 0x28];

/// Path under the boot HTTP base where loaders are served.
pub const LOADER_PATH: &str = "/boot/v1/loaders/";
/// Path under the boot HTTP base where a node's script is served, for iPXE.
pub const SCRIPT_PATH: &str = "/boot/v1/script";
/// Folder under the boot HTTP base where GRUB's scripts are served: `MAC/CPU/grub.cfg`.
pub const GRUB_PATH: &str = "/boot/v1/grub";

/// The first loader of the chain that Secure Boot lets through; it asks for GRUB itself.
const SHIM: &str = "shimx64.efi";

/// Loader file names by architecture (option 93). Names are plain: no folders, no spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoaderTable {
    files: BTreeMap<u16, String>,
}

/// Which loaders a machine is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LoaderSet {
    /// iPXE for all.
    #[default]
    Ipxe,
    /// shim and GRUB for x64 UEFI, signed for Secure Boot; iPXE for the others.
    Grub,
    /// As [`LoaderSet::Grub`], for UEFI HTTP boot only: PXE attempts of UEFI firmware find no loader and end, so that
    /// firmware goes on to its HTTP boot entry.
    Http,
}

impl LoaderSet {
    /// All sets.
    pub const ALL: [Self; 3] = [Self::Ipxe, Self::Grub, Self::Http];

    /// Its loaders.
    #[must_use]
    pub fn table(self) -> LoaderTable {
        let mut table = LoaderTable::default();
        if self != Self::Ipxe {
            for arch in [ARCH_UEFI_X64, ARCH_UEFI_BC, ARCH_HTTP_X64] {
                table.set(arch, SHIM);
            }
        }
        if self == Self::Http {
            for arch in [ARCH_UEFI_X64, ARCH_UEFI_BC, ARCH_UEFI_ARM64] {
                table.files.remove(&arch);
            }
        }
        table
    }
}

impl Default for LoaderTable {
    /// iPXE for the architectures that servers have: BIOS, x64 and arm64, by PXE and by HTTP.
    fn default() -> Self {
        let mut table = Self { files: BTreeMap::new() };
        table.set(ARCH_BIOS, "undionly.kpxe");
        table.set(ARCH_UEFI_X64, "snponly.efi");
        table.set(ARCH_UEFI_BC, "snponly.efi");
        table.set(ARCH_HTTP_X64, "snponly.efi");
        table.set(ARCH_UEFI_ARM64, "ipxe-arm64.efi");
        table.set(ARCH_HTTP_ARM64, "ipxe-arm64.efi");
        table
    }
}

impl LoaderTable {
    /// Names the loader of an architecture, for example shim where Secure Boot is wanted.
    pub fn set(&mut self, arch: u16, file: &str) {
        self.files.insert(arch, file.to_owned());
    }

    /// The loader of an architecture; none for one that is not booted here.
    pub fn get(&self, arch: u16) -> Option<&str> {
        self.files.get(&arch).map(String::as_str)
    }

    /// All loader names, each once: what TFTP and HTTP must be able to serve.
    pub fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = self.files.values().map(String::as_str).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

/// What a reply tells a machine to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootAnswer {
    /// Nothing: an operating system that only wants an address.
    Address,
    /// A loader by TFTP, by name.
    Loader {
        /// Architecture it was chosen for.
        arch: u16,
        /// Name to ask TFTP for.
        file: String,
    },
    /// A loader by HTTP, for UEFI HTTP boot.
    HttpLoader {
        /// Architecture it was chosen for.
        arch: u16,
        /// Absolute URL.
        url: String,
    },
    /// The node's script, for an iPXE that can fetch it.
    Script {
        /// Absolute URL.
        url: String,
    },
}

impl BootAnswer {
    /// Lower-case name of the stage, for events and metrics.
    pub fn stage(&self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Loader { .. } => "loader",
            Self::HttpLoader { .. } => "http_loader",
            Self::Script { .. } => "script",
        }
    }
}

/// How a client describes itself, as far as booting goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// Neither class nor iPXE evidence: an operating system.
    Plain,
    /// Class `PXEClient`, or an iPXE that cannot go all the way.
    Pxe,
    /// Class `HTTPClient`.
    Http,
    /// An iPXE that can fetch its script.
    Ipxe,
}

/// Reads the class and the iPXE evidence. Pure; used by the policy and in events.
pub(crate) fn client_kind(request: &Request) -> ClientKind {
    let says_ipxe = request.user_classes().contains(&b"iPXE".as_slice());
    let class = request.vendor_class().unwrap_or_default();
    match request.ipxe_options() {
        Some(_) if request.has_ipxe_feature(IPXE_FEATURE_HTTP) && may_start_linux(request) => ClientKind::Ipxe,
        None if says_ipxe => ClientKind::Ipxe,
        _ if class.starts_with(b"HTTPClient") => ClientKind::Http,
        _ if says_ipxe || class.starts_with(b"PXEClient") => ClientKind::Pxe,
        _ => ClientKind::Plain,
    }
}

/// False only where the client lists images and none of them can be a kernel. FlexBoot lists none at all and is believed
/// to start what every iPXE starts.
fn may_start_linux(request: &Request) -> bool {
    let has = |feature: &u8| request.has_ipxe_feature(*feature);
    IPXE_LINUX_IMAGES.iter().any(has) || !IPXE_IMAGES.iter().any(has)
}

/// The architectures a client offers, best first: option 93, else the class text, else BIOS.
///
/// The text carries the number in *decimal* (`Arch:00016` is 0x0010), the option in binary.
fn arches(request: &Request) -> Vec<u16> {
    let listed = request.client_arches();
    if !listed.is_empty() {
        return listed;
    }
    let class = request.vendor_class().unwrap_or_default();
    let digits = class
        .windows(5)
        .position(|part| part == b"Arch:")
        .and_then(|at| class.get(at + 5..at + 10));
    let arch = digits
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok());
    vec![arch.unwrap_or(ARCH_BIOS)]
}

fn is_http_arch(arch: u16) -> bool {
    matches!(arch, ARCH_HTTP_X64 | ARCH_HTTP_ARM64)
}

/// What to boot, or none when no loader fits any architecture the client has.
pub(crate) fn boot_answer(request: &Request, loaders: &LoaderTable, http_base: &str) -> Option<BootAnswer> {
    let kind = client_kind(request);
    let arches = arches(request);
    let base = http_base.trim_end_matches('/');
    match kind {
        ClientKind::Plain => return Some(BootAnswer::Address),
        ClientKind::Ipxe => {
            let mac = request.identity().mac()?;
            let arch = arches.first().copied().unwrap_or(ARCH_BIOS);
            return Some(BootAnswer::Script {
                url: format!("{base}{SCRIPT_PATH}?mac={mac}&arch={arch}"),
            });
        }
        ClientKind::Pxe | ClientKind::Http => {}
    }
    let wants_http = kind == ClientKind::Http;
    // A list may hold a PXE and an HTTP architecture: the class says which of them this attempt is about.
    let fitting = arches.iter().filter(|arch| is_http_arch(**arch) == wants_http);
    let others = arches.iter().filter(|arch| is_http_arch(**arch) != wants_http);
    let (arch, file) = fitting
        .chain(others)
        .find_map(|arch| Some((*arch, loaders.get(*arch)?)))?;
    Some(if wants_http || is_http_arch(arch) {
        BootAnswer::HttpLoader {
            arch,
            url: format!("{base}{LOADER_PATH}{file}"),
        }
    } else {
        BootAnswer::Loader {
            arch,
            file: file.to_owned(),
        }
    })
}
