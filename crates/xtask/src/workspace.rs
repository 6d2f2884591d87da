//! Where things stand in the workspace.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's folders. Made once and passed on.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The root folder.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// What `cargo metadata --no-deps` says.
    pub metadata: Value,
}

impl Workspace {
    /// Asks cargo.
    ///
    /// # Errors
    /// When cargo cannot read the workspace.
    pub fn find() -> Result<Self> {
        let crate_folder = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&crate_folder)
            .join("../..")
            .canonicalize()
            .context("cannot find the workspace")?;
        let mut command = crate::cargo::cargo(&root);
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        let output = command
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        anyhow::ensure!(output.status.success(), "cargo metadata failed");
        let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
        let target = metadata
            .get("target_directory")
            .and_then(Value::as_str)
            .context("no target_directory")?;
        Ok(Self {
            root,
            target: PathBuf::from(target),
            metadata,
        })
    }

    /// What setup fetches and racks make: git-ignored.
    pub fn work_folder(&self) -> PathBuf {
        self.root.join(".plumbline")
    }

    /// The boot loaders.
    pub fn loaders(&self) -> PathBuf {
        self.work_folder().join("loaders")
    }

    /// The UEFI firmware of virtual machines.
    pub fn firmware(&self) -> PathBuf {
        self.work_folder().join("firmware")
    }

    /// tftpd-hpa's program.
    pub fn tftpd(&self) -> PathBuf {
        self.work_folder().join("in.tftpd")
    }

    /// nginx's program.
    pub fn nginx(&self) -> PathBuf {
        self.work_folder().join("nginx")
    }

    /// The DHCP relay of virtual racks.
    pub fn dhcrelay(&self) -> PathBuf {
        self.work_folder().join("dhcrelay")
    }

    /// A site's own DHCP server in virtual racks: ISC's.
    pub fn dhcpd(&self) -> PathBuf {
        self.work_folder().join("dhcpd")
    }

    /// A registry for images of containers, which racks import from.
    pub fn registry(&self) -> PathBuf {
        self.work_folder().join("docker-registry")
    }

    /// The folder of a site's own DHCP server in virtual racks: Kea, with its libraries.
    pub fn kea(&self) -> PathBuf {
        self.work_folder().join("kea")
    }

    /// The server binary.
    pub fn server(&self) -> PathBuf {
        self.target.join("debug/plumbline")
    }

    /// The rack runner.
    pub fn lab(&self) -> PathBuf {
        self.target.join("debug/plumbline-lab")
    }

    /// The node's statically linked agent.
    pub fn node_agent(&self) -> PathBuf {
        self.target
            .join(crate::builds::NODE_TARGET)
            .join("node/plumbline-agent")
    }
}

/// Whether this program may do what needs root.
pub fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| effective_user_is_root(&status))
}

fn effective_user_is_root(status: &str) -> bool {
    // Uid: real, effective, saved, filesystem.
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

/// Whether a program is on the PATH.
pub fn program_exists(name: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_decides() {
        assert!(effective_user_is_root("Name:\txtask\nUid:\t1000\t0\t0\t0\n"));
        assert!(!effective_user_is_root("Name:\txtask\nUid:\t0\t1000\t0\t0\n"));
        assert!(!effective_user_is_root(""));
    }
}
