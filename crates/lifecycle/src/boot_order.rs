//! What a person wants a node to boot, once.

use serde::{Deserialize, Serialize};

/// The order; without one a node boots what its state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootOrder {
    /// The deployer with a shell on its consoles and SSH for one key. Nothing on a disk is touched but by the person.
    Rescue,
    /// The deployer, in memory only: inventory again, and wait for a person.
    Commission,
    /// Nothing: the machine stops in its loader until the order is lifted.
    Hold,
}

impl BootOrder {
    /// The name in the database, the API and the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rescue => "rescue",
            Self::Commission => "commission",
            Self::Hold => "hold",
        }
    }

    /// The order of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Rescue, Self::Commission, Self::Hold]
            .into_iter()
            .find(|order| order.as_str() == name)
    }

    /// Whether one boot carries it out: the boot after that is an ordinary one.
    #[must_use]
    pub const fn is_once(self) -> bool {
        matches!(self, Self::Rescue | Self::Commission)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_only_a_hold_lasts() {
        for order in [BootOrder::Rescue, BootOrder::Commission, BootOrder::Hold] {
            assert_eq!(BootOrder::parse(order.as_str()), Some(order));
            assert_eq!(order.is_once(), order != BootOrder::Hold);
        }
        assert_eq!(BootOrder::parse("normal"), None);
    }
}
