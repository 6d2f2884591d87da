//! The new filesystems while they are written.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use manifest::TreePath;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::target::Target;

/// Mounted filesystems; unmounted at the latest when this is dropped.
#[derive(Debug)]
pub struct Mounted {
    /// Innermost last.
    points: Vec<PathBuf>,
}

impl Mounted {
    /// Mounts the root at `at`. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be made or the filesystem cannot be mounted.
    pub fn root(target: &Target, at: &Path) -> anyhow::Result<Self> {
        let mut mounted = Self { points: Vec::new() };
        std::fs::create_dir_all(at).with_context(|| format!("making {}", at.display()))?;
        mounted.add(&target.partition_node(2), at, "ext4")?;
        Ok(mounted)
    }

    /// Mounts the ESP at `esp` below the root. Blocks.
    ///
    /// # Errors
    /// When a folder cannot be made or the filesystem cannot be mounted.
    pub fn add_esp(&mut self, target: &Target, esp: &TreePath) -> anyhow::Result<()> {
        let root = self.points.first().context("the root is not mounted")?;
        let at = root.join(std::str::from_utf8(esp.relative()).context("where the ESP is mounted")?);
        std::fs::create_dir_all(&at).with_context(|| format!("making {}", at.display()))?;
        self.add(&target.partition_node(1), &at, "vfat")
    }

    fn add(&mut self, node: &Path, at: &Path, kind: &str) -> anyhow::Result<()> {
        // Nothing of the new system is run from here.
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        mount(node, at, kind, flags, None)
            .with_context(|| format!("mounting {} at {}", node.display(), at.display()))?;
        self.points.push(at.to_owned());
        Ok(())
    }

    /// Unmounts both, which fails while anything is still open.
    ///
    /// # Errors
    /// Which one stays mounted, and why.
    pub fn unmount(mut self) -> anyhow::Result<()> {
        while let Some(point) = self.points.last() {
            unmount(point, UnmountFlags::empty()).with_context(|| format!("unmounting {}", point.display()))?;
            self.points.pop();
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for point in self.points.drain(..).rev() {
            if let Err(error) = unmount(&point, UnmountFlags::DETACH) {
                tracing::warn!(%error, point = %point.display(), "unmounting after a failure");
            }
        }
    }
}
