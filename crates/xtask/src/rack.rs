//! Starts the rack runner with everything it needs to know.

use crate::run::run_shown;
use crate::workspace::{Workspace, is_root};
use anyhow::{Result, ensure};
use std::process::Command;

/// Runs `plumbline-lab ARGUMENTS`. Its last line of standard output, one JSON object, is this program's too.
///
/// # Errors
/// Without root, and when the run fails.
pub fn run_lab(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    ensure!(
        is_root(),
        "a virtual rack needs root, for its network namespace and TAP devices: run this as root"
    );
    let mut command = Command::new(workspace.lab());
    command
        .args(arguments)
        .env("PLUMBLINE_LAB_ROOT", &workspace.root)
        .env("PLUMBLINE_LAB_SERVER", workspace.server())
        .env("PLUMBLINE_LAB_AGENT", workspace.node_agent())
        .env("PLUMBLINE_LAB_LOADERS", workspace.loaders())
        .env("PLUMBLINE_LAB_FIRMWARE", workspace.firmware());
    run_shown("play in the virtual rack", &mut command)
}
