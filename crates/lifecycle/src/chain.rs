//! Which boot loader takes a machine from its firmware to its script.

use serde::{Deserialize, Serialize};

/// A choice of boot loaders, for a node, a node group or the site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chain {
    /// Left to the next wider choice; at its end to what the node's inventory says of Secure Boot.
    #[default]
    Auto,
    /// iPXE, which Secure Boot refuses.
    Ipxe,
    /// shim and GRUB, signed for Secure Boot; BIOS machines get iPXE all the same.
    Grub,
    /// As `grub`, and only by UEFI HTTP boot: PXE attempts of UEFI firmware are told of no loader.
    Http,
}

impl Chain {
    /// All choices.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Ipxe, Self::Grub, Self::Http];

    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ipxe => "ipxe",
            Self::Grub => "grub",
            Self::Http => "http",
        }
    }

    /// Reads the name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|chain| chain.as_str() == name)
    }

    /// The first of `choices` (the narrowest first) that is one; none left: GRUB where the machine was seen with Secure
    /// Boot on, else iPXE. Never [`Chain::Auto`].
    #[must_use]
    pub fn resolve(choices: &[Self], secure_boot: Option<bool>) -> Self {
        let chosen = choices.iter().copied().find(|chain| *chain != Self::Auto);
        chosen.unwrap_or(match secure_boot {
            Some(true) => Self::Grub,
            Some(false) | None => Self::Ipxe,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_choice_holds_and_secure_boot_decides_the_rest() {
        use Chain::{Auto, Grub, Http, Ipxe};
        assert_eq!(Chain::resolve(&[Auto, Http, Ipxe], Some(true)), Http);
        assert_eq!(Chain::resolve(&[Ipxe, Grub, Grub], Some(true)), Ipxe);
        assert_eq!(Chain::resolve(&[Auto, Auto, Auto], Some(true)), Grub);
        for unknown in [Some(false), None] {
            assert_eq!(Chain::resolve(&[Auto, Auto], unknown), Ipxe);
        }
        assert!(
            Chain::ALL
                .iter()
                .all(|chain| Chain::parse(chain.as_str()) == Some(*chain))
        );
    }
}
