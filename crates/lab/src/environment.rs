//! Where the things stand that a rack is made of: the built binaries, the boot loaders, the workspace.

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Paths that `cargo xtask` knows and passes on. The variables have names of their own: what a rack starts inherits them.
#[derive(Debug, Clone, Args, Serialize)]
pub struct LabEnvironment {
    /// The workspace's root folder
    #[arg(long, env = "PLUMBLINE_LAB_ROOT", value_name = "FOLDER")]
    pub root: PathBuf,
    /// The server binary, `plumbline`
    #[arg(long, env = "PLUMBLINE_LAB_SERVER", value_name = "FILE")]
    pub server: PathBuf,
    /// The statically linked `plumbline-agent` that runs on nodes
    #[arg(long, env = "PLUMBLINE_LAB_AGENT", value_name = "FILE")]
    pub agent: PathBuf,
    /// The folder with the boot loaders that `cargo xtask setup` fetched
    #[arg(long, env = "PLUMBLINE_LAB_LOADERS", value_name = "FOLDER")]
    pub loaders: PathBuf,
    /// The folder with the UEFI firmware that `cargo xtask setup` fetched
    #[arg(long, env = "PLUMBLINE_LAB_FIRMWARE", value_name = "FOLDER")]
    pub firmware_files: PathBuf,
}

impl LabEnvironment {
    /// Checks that everything is there, before a rack is put up for minutes only to fail on it.
    ///
    /// # Errors
    /// Names the first thing missing and what makes it.
    pub fn check(&self) -> Result<()> {
        for (path, what) in [
            (&self.root, "the workspace"),
            (&self.server, "the server binary"),
            (&self.agent, "the node's agent"),
            (&self.loaders, "the boot loaders"),
            (&self.firmware_files, "the UEFI firmware"),
        ] {
            ensure!(
                path.exists(),
                "{what} is not at {}: run this through `cargo xtask e2e`, which makes it",
                path.display()
            );
        }
        Ok(())
    }

    /// The DHCP relay that `cargo xtask setup` fetched.
    pub fn relay(&self) -> PathBuf {
        self.root.join(".plumbline").join("dhcrelay")
    }

    /// ISC's DHCP server that `cargo xtask setup` fetched.
    pub fn dhcpd(&self) -> PathBuf {
        self.root.join(".plumbline").join("dhcpd")
    }

    /// A registry for images of containers that `cargo xtask setup` fetched.
    pub fn registry(&self) -> PathBuf {
        self.root.join(".plumbline").join("docker-registry")
    }

    /// The folder with Kea and its libraries that `cargo xtask setup` fetched.
    pub fn kea(&self) -> PathBuf {
        self.root.join(".plumbline").join("kea")
    }

    /// The folder for what racks make and keep between runs, git-ignored.
    pub fn work_folder(&self) -> PathBuf {
        self.root.join(".plumbline").join("lab")
    }
}
