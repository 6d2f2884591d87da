//! What is built for a rack: the server, the runner, and the agent as it runs on nodes.

use crate::cargo::cargo;
use crate::run::run_announced;
use crate::workspace::Workspace;
use anyhow::Result;

/// The nodes' target. Named explicitly, so that the static linking below reaches no build script or macro.
pub const NODE_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the server and the rack runner, in the development profile.
///
/// # Errors
/// When the build fails; its output has been printed then.
pub fn build_server_and_lab(workspace: &Workspace) -> Result<()> {
    let mut command = cargo(&workspace.root);
    // All of the workspace's programs, not these two: with the same features chosen as for the tests, dependencies are
    // compiled once.
    command.args(["build", "--workspace", "--bins"]);
    run_announced("build the server and the rack runner", &mut command)
}

/// Builds the agent for nodes: optimised and statically linked, since a deployer ramdisk and a golden image share no
/// libraries with this machine.
///
/// # Errors
/// As [`build_server_and_lab`].
pub fn build_node_agent(workspace: &Workspace) -> Result<()> {
    let mut command = cargo(&workspace.root);
    command.args([
        "build",
        "--profile",
        "node",
        "--package",
        "plumbline-agent",
        "--target",
        NODE_TARGET,
    ]);
    command.env(
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
        "-C target-feature=+crt-static",
    );
    run_announced("build the agent for nodes (static)", &mut command)
}
