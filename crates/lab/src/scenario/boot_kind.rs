//! How the nodes of a run start: firmware, protocol, and the boot loaders that go with both.

use crate::qemu::{BootProtocol, Firmware};
use clap::ValueEnum;
use serde::Serialize;

/// What `--firmware` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BootKind {
    /// OVMF by PXE, iPXE
    Uefi,
    /// OVMF by UEFI HTTP boot, with shim and GRUB
    #[value(name = "uefi-http")]
    #[serde(rename = "uefi-http")]
    UefiHttp,
    /// OVMF by PXE with Microsoft's keys and Secure Boot on, with shim and GRUB
    #[value(name = "secureboot")]
    SecureBoot,
    /// SeaBIOS, iPXE
    Bios,
}

impl BootKind {
    /// The firmware.
    pub const fn firmware(self) -> Firmware {
        match self {
            Self::Uefi | Self::UefiHttp => Firmware::Uefi,
            Self::SecureBoot => Firmware::UefiSecureBoot,
            Self::Bios => Firmware::Bios,
        }
    }

    /// How it boots from the network.
    pub const fn protocol(self) -> BootProtocol {
        match self {
            Self::UefiHttp => BootProtocol::Http,
            Self::Uefi | Self::SecureBoot | Self::Bios => BootProtocol::Pxe,
        }
    }

    /// The site's choice of boot loaders (`boot.chain`).
    pub const fn chain(self) -> &'static str {
        match self {
            Self::Uefi | Self::Bios => "auto",
            Self::UefiHttp => "http",
            Self::SecureBoot => "grub",
        }
    }

    /// What firmware says when no DHCP server answers; none: nothing that could be waited for.
    pub const fn no_answer_text(self) -> Option<&'static str> {
        match self {
            Self::Uefi | Self::SecureBoot => Some("PXE-E18"),
            Self::UefiHttp => None,
            // "No configuration methods succeeded", cut by the console's width.
            Self::Bios => Some("ipxe.org/040ee1"),
        }
    }
}
