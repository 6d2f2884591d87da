//! Machines that have read shim and not yet what comes after it.
//!
//! shim takes the name of the next loader from the boot entry that started it, and some firmware writes the entry's
//! label there: the name it then asks for is garbage. What a machine means is known all the same: nothing else asks
//! between shim and GRUB.
//!
//! Invariant: the table has a bound, and an entry does not outlive a start. A machine that finds no place asks as every
//! other does, by names.
//!
//! Refused: GRUB for every name that nothing has. GRUB itself looks for files that need not be there, and would take
//! the program for one of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netboot::tftp::FileName;

/// Machines between shim and GRUB at a time.
const MACHINES_MAX: usize = 4096;
/// shim asks within seconds.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The table.
#[derive(Debug, Default)]
pub(super) struct AfterShim {
    machines: HashMap<IpAddr, Instant>,
}

impl AfterShim {
    /// A machine has read `name` to its end.
    pub(super) fn read(&mut self, machine: IpAddr, name: &FileName, now: Instant) {
        let base = name.basename().to_ascii_lowercase();
        if base.starts_with("shim") && !is_optional(name) {
            if self.machines.len() >= MACHINES_MAX {
                self.machines.retain(|_, read_at| is_recent(*read_at, now));
            }
            if self.machines.len() < MACHINES_MAX {
                self.machines.insert(machine, now);
            }
        } else if base.starts_with("grub") {
            self.machines.remove(&machine);
        }
    }

    /// Whether a machine that asks for a name nothing has means the loader after shim. No name: garbage.
    pub(super) fn is_next_meant(&self, machine: IpAddr, name: Option<&FileName>, now: Instant) -> bool {
        let is_recent = |read_at: &Instant| is_recent(*read_at, now);
        self.machines.get(&machine).is_some_and(is_recent) && !name.is_some_and(is_optional)
    }
}

fn is_recent(read_at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(read_at) < WAIT_MAX
}

/// Files that loaders ask for at each start and go on without: iPXE its `autoexec.ipxe`, shim its revocations and
/// certificates, GRUB its lists of modules.
pub(crate) fn is_optional(name: &FileName) -> bool {
    let base = name.basename().to_ascii_lowercase();
    base == "autoexec.ipxe"
        || base.starts_with("revocations")
        || base.starts_with("shim_certificate")
        || base.ends_with(".lst")
        || name.as_str().contains("x86_64-efi/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 50));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 51));

    fn name(text: &str) -> FileName {
        FileName::parse(text.as_bytes()).unwrap()
    }

    /// shim#696: after shim, garbage means GRUB, for this machine, until it has read GRUB.
    #[test]
    fn shim_696_garbage_means_grub_between_shim_and_grub() {
        let (mut after, now) = (AfterShim::default(), Instant::now());
        let garbage = name("grub/Onboard NIC (IPv4)");
        assert!(!after.is_next_meant(ONE, Some(&garbage), now));
        after.read(ONE, &name("shimx64.efi"), now);
        assert!(after.is_next_meant(ONE, Some(&garbage), now));
        assert!(after.is_next_meant(ONE, None, now));
        assert!(!after.is_next_meant(TWO, None, now), "another machine");
        // Asked for by shim before that, and rightly absent.
        for absent in ["grub/revocations.efi", "shim_certificate_0.efi", "revocations_sbat.efi"] {
            assert!(!after.is_next_meant(ONE, Some(&name(absent)), now), "{absent}");
        }
        assert!(!after.is_next_meant(ONE, None, now + WAIT_MAX), "another start");
        after.read(ONE, &name("grubx64.efi"), now);
        assert!(
            !after.is_next_meant(ONE, Some(&garbage), now),
            "what GRUB asks for is no loader"
        );
    }

    #[test]
    fn the_table_is_bounded_and_forgets_old_starts() {
        let (mut after, now) = (AfterShim::default(), Instant::now());
        let machine = |index: u32| IpAddr::V4(index.into());
        for index in 0..10_000 {
            after.read(machine(index), &name("shimx64.efi"), now);
        }
        assert_eq!(after.machines.len(), MACHINES_MAX);
        let later = now + WAIT_MAX;
        after.read(ONE, &name("shimx64.efi"), later);
        assert!(after.is_next_meant(ONE, None, later));
        assert_eq!(after.machines.len(), 1);
    }

    #[test]
    fn what_loaders_do_without_is_known() {
        for optional in [
            "autoexec.ipxe",
            "AUTOEXEC.IPXE",
            "ipxe/autoexec.ipxe",
            "revocations.efi",
            "grub/x86_64-efi/command.lst",
        ] {
            assert!(is_optional(&name(optional)), "{optional}");
        }
        for needed in [
            "shimx64.efi",
            "grubx64.efi",
            "grub/grub.cfg",
            "snponly.efi",
            "mmx64.efi",
        ] {
            assert!(!is_optional(&name(needed)), "{needed}");
        }
    }
}
