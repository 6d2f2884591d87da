//! Which machine speaks from which address, as its own requests said.
//!
//! Packs are fetched without a name; the script and the deployer's files before them name the machine. What is known
//! here is for people to read, so a machine may say it of itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use netboot::MacAddr;

/// Machines that are known; the next ones are not.
const MACHINES_MAX: usize = 16_384;

/// Addresses and machines.
#[derive(Debug, Default)]
pub struct Machines(Mutex<HashMap<IpAddr, MacAddr>>);

impl Machines {
    /// A machine spoke from this address.
    pub fn learn(&self, address: IpAddr, mac: MacAddr) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(&address) == Some(&mac) {
            return;
        }
        if known.len() < MACHINES_MAX || known.contains_key(&address) {
            // A machine has moved when it speaks from elsewhere.
            known.retain(|other, known| *other == address || *known != mac);
            known.insert(address, mac);
        }
    }

    /// The machine at this address.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Option<MacAddr> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&address)
            .copied()
    }

    /// The machine's address.
    #[must_use]
    pub fn address_of(&self, mac: MacAddr) -> Option<IpAddr> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .iter()
            .find(|(_, known)| **known == mac)
            .map(|(address, _)| *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_where_it_spoke_last() {
        let machines = Machines::default();
        let (one, two) = (IpAddr::from([10, 77, 0, 50]), IpAddr::from([10, 77, 0, 51]));
        let mac: MacAddr = "52:54:00:12:34:56".parse().unwrap();
        machines.learn(one, mac);
        machines.learn(two, mac);
        assert_eq!((machines.at(one), machines.at(two)), (None, Some(mac)));
        assert_eq!(machines.address_of(mac), Some(two));
    }
}
