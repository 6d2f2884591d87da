//! Which machine a loader runs on: DHCP, iPXE and GRUB each have names of their own for it.
//!
//! Invariant: a name that is not known is none, never a guess: what is said of an architecture decides whether a kernel is
//! started on it.

use crate::dhcp::boot::{ARCH_BIOS, ARCH_HTTP_ARM64, ARCH_HTTP_X64, ARCH_UEFI_ARM64, ARCH_UEFI_BC, ARCH_UEFI_X64};

/// A machine's architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// x86-64. A BIOS loader is a 32-bit program on the same machines.
    Amd64,
    /// 64-bit ARM.
    Arm64,
    /// 32-bit ARM.
    Armhf,
    /// 64-bit LoongArch.
    Loong64,
    /// 64-bit RISC-V.
    Riscv64,
}

impl Architecture {
    /// Debian's name, which images carry too.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::Armhf => "armhf",
            Self::Loong64 => "loong64",
            Self::Riscv64 => "riscv64",
        }
    }

    /// That of a DHCP client (option 93; IANA "Processor Architecture Types"); none for what is never given a loader here.
    #[must_use]
    pub const fn of_dhcp(number: u16) -> Option<Self> {
        match number {
            ARCH_BIOS | ARCH_UEFI_X64 | ARCH_UEFI_BC | ARCH_HTTP_X64 => Some(Self::Amd64),
            ARCH_UEFI_ARM64 | ARCH_HTTP_ARM64 => Some(Self::Arm64),
            _ => None,
        }
    }

    /// That of a loader by its own name: iPXE's `${buildarch}`, GRUB's `$grub_cpu`.
    #[must_use]
    pub fn of_loader(name: &str) -> Option<Self> {
        match name {
            "i386" | "x86_64" => Some(Self::Amd64),
            "arm64" => Some(Self::Arm64),
            "arm" | "arm32" => Some(Self::Armhf),
            "loong64" | "loongarch64" => Some(Self::Loong64),
            "riscv64" => Some(Self::Riscv64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_has_one_architecture_by_all_its_names() {
        for (dhcp, loaders, architecture) in [
            (&[0x0000, 0x0007, 0x0009, 0x0010][..], &["i386", "x86_64"][..], "amd64"),
            (&[0x000b, 0x0013], &["arm64"], "arm64"),
            (&[], &["riscv64"], "riscv64"),
        ] {
            for number in dhcp {
                let found = Architecture::of_dhcp(*number).map(Architecture::as_str);
                assert_eq!(found, Some(architecture), "{number:#06x}");
            }
            for name in loaders {
                let found = Architecture::of_loader(name).map(Architecture::as_str);
                assert_eq!(found, Some(architecture), "{name}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(
            Architecture::of_dhcp(0x0006),
            None,
            "32-bit UEFI starts no 64-bit kernel"
        );
        for name in ["", "${buildarch}", "X86_64", "x86"] {
            assert_eq!(Architecture::of_loader(name), None, "{name:?}");
        }
    }
}
