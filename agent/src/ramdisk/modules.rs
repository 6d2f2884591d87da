//! Drivers: what udev's coldplug does, without udev.
//!
//! Every device the kernel knows says in `modalias` which driver it wants. Loading one driver makes new devices (a
//! controller its disks, a switch its ports), so the walk is repeated until it finds nothing new.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::deploy::program::run;

/// Names given to one `modprobe`.
const BATCH: usize = 64;
/// Different aliases ever looked at.
const ALIASES_MAX: usize = 20_000;
/// Time for one `modprobe`: some RAID controllers take a minute to start.
const LIMIT: Duration = Duration::from_secs(180);
/// Modules that no device asks for in time: filesystems, their tables, randomness, the volumes old disks may hold.
const ALWAYS: [&str; 9] = [
    "virtio_rng",
    "ext4",
    "vfat",
    "nls_ascii",
    "nls_cp437",
    "nls_utf8",
    "nls_iso8859-1",
    "dm_mod",
    "md_mod",
];

/// Which aliases have been tried.
#[derive(Debug, Default)]
pub struct Coldplug {
    seen: HashSet<String>,
}

impl Coldplug {
    /// Loads the modules that no device asks for. Blocks.
    pub fn always(&self) {
        load(&ALWAYS);
    }

    /// Looks at all devices once and loads drivers for those not seen before; returns how many new aliases there were.
    /// Blocks.
    pub fn round(&mut self) -> usize {
        let mut fresh = new_aliases(Path::new("/"), &self.seen);
        fresh.truncate(ALIASES_MAX.saturating_sub(self.seen.len()));
        let names: Vec<&str> = fresh.iter().map(String::as_str).collect();
        for batch in names.chunks(BATCH) {
            load(batch);
        }
        let count = fresh.len();
        self.seen.extend(fresh);
        count
    }

    /// Rounds until nothing new has come for `quiet`, at most `limit` in all. Blocks.
    pub fn settle(&mut self, quiet: Duration, limit: Duration) {
        let start = Instant::now();
        let mut last_new = start;
        while start.elapsed() < limit && last_new.elapsed() < quiet {
            if self.round() > 0 {
                last_new = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Aliases under `root`/sys/bus/*/devices/* that are not in `seen`, each once, sorted.
fn new_aliases(root: &Path, seen: &HashSet<String>) -> Vec<String> {
    let folders = |path: &Path| -> Vec<std::path::PathBuf> {
        let listed = std::fs::read_dir(path).into_iter().flatten();
        listed.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let devices = folders(&root.join("sys/bus"))
        .into_iter()
        .flat_map(|bus| folders(&bus.join("devices")));
    let aliases = devices.filter_map(|device| {
        let text = std::fs::read_to_string(device.join("modalias")).ok()?;
        let alias = text.trim();
        (!alias.is_empty() && !alias.starts_with('-') && !seen.contains(alias)).then(|| alias.to_owned())
    });
    aliases.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// Most aliases have no module of their own in the ramdisk (or it is built in): that modprobe says no is no news.
fn load(names: &[&str]) {
    let arguments: Vec<&str> = ["-a", "-b", "-q", "--"].iter().chain(names).copied().collect();
    if let Err(error) = run("modprobe", &arguments, LIMIT) {
        tracing::warn!(%error, "modprobe");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alias_is_tried_once() {
        let root = tempfile::tempdir().unwrap();
        for (device, alias) in [
            ("pci/devices/0000:00:01.0", "pci:v1AF4d1041\n"),
            ("pci/devices/0000:00:02.0", "pci:v1AF4d1041\n"),
            ("virtio/devices/virtio0", "virtio:d1\n"),
            ("usb/devices/1-1", "-rf\n"),
        ] {
            let folder = root.path().join("sys/bus").join(device);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("modalias"), alias).unwrap();
        }
        let first = new_aliases(root.path(), &HashSet::new());
        assert_eq!(first, ["pci:v1AF4d1041", "virtio:d1"]);
        assert!(new_aliases(root.path(), &first.into_iter().collect()).is_empty());
    }
}
