//! The chosen disk: its nodes in /dev and its folder in /sys.

use std::path::{Path, PathBuf};

use protocol::latest::Disk;

use super::disk_choice;

/// A disk that may be overwritten. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Target {
    disk: Disk,
}

impl Target {
    /// The disk with this kernel name, which belongs to this boot only.
    #[must_use]
    pub fn of_machine(disk: &Disk) -> Self {
        Self { disk: disk.clone() }
    }

    /// What it is.
    #[must_use]
    pub const fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Its device node.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.disk.name)
    }

    /// The device node of partition `number`, from 1.
    #[must_use]
    pub fn partition_node(&self, number: u32) -> PathBuf {
        Path::new("/dev").join(partition_name(&self.disk.name, number))
    }

    /// Names of the partitions the kernel knows now, sorted.
    #[must_use]
    pub fn partitions(&self) -> Vec<String> {
        let folder = Path::new("/sys/block").join(&self.disk.name);
        let listed = std::fs::read_dir(&folder).into_iter().flatten();
        let mut names: Vec<String> = listed
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| folder.join(name).join("partition").exists())
            .collect();
        names.sort();
        names
    }

    /// For people.
    #[must_use]
    pub fn describe(&self) -> String {
        disk_choice::describe(&self.disk)
    }
}

/// The kernel puts a `p` between a name that ends in a digit and the number (`nvme0n1p1`, `vda1`).
fn partition_name(disk: &str, number: u32) -> String {
    let gap = if disk.ends_with(|c: char| c.is_ascii_digit()) {
        "p"
    } else {
        ""
    };
    format!("{disk}{gap}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_as_the_kernel_names_them() {
        assert_eq!(partition_name("nvme0n1", 2), "nvme0n1p2");
        assert_eq!(partition_name("vda", 1), "vda1");
        assert_eq!(partition_name("mmcblk0", 1), "mmcblk0p1");
    }
}
