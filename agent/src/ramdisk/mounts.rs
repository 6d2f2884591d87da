//! The kernel's own filesystems.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

/// Mounts what everything else needs. Returns what could not be mounted, as `where: why`; already mounted is fine.
pub fn mount_all() -> Vec<String> {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mut wanted = vec![
        ("proc", "/proc", "proc", safe),
        ("sysfs", "/sys", "sysfs", safe),
        ("devtmpfs", "/dev", "devtmpfs", MountFlags::NOSUID),
        // Terminals of those who sign in to the rescue system.
        ("devpts", "/dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC),
        ("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV),
        ("tmpfs", "/tmp", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV),
    ];
    let mut problems = mount_each(&wanted);
    // This folder is there only when UEFI started the machine, and only now visible.
    if Path::new("/sys/firmware/efi/efivars").is_dir() {
        wanted = vec![("efivarfs", "/sys/firmware/efi/efivars", "efivarfs", safe)];
        problems.extend(mount_each(&wanted));
    }
    problems
}

fn mount_each(wanted: &[(&str, &str, &str, MountFlags)]) -> Vec<String> {
    let mut problems = Vec::new();
    for &(source, target, kind, flags) in wanted {
        let made = std::fs::create_dir_all(target);
        match mount(source, target, kind, flags, None) {
            Ok(()) | Err(Errno::BUSY) => {}
            Err(error) => problems.push(match made {
                Ok(()) => format!("{target}: {error}"),
                Err(missing) => format!("{target}: {error} ({missing})"),
            }),
        }
    }
    problems
}
