//! `cargo xtask bench`: builds what is measured, optimised as a release is, and measures it.

use crate::cargo::cargo;
use crate::run::{run_announced, run_shown};
use crate::workspace::Workspace;
use anyhow::Result;
use std::process::Command;

/// Runs `plumbline-bench ARGUMENTS`. With `--json`, its one line is all there is on standard output.
///
/// # Errors
/// When the build fails, and when something cannot be measured.
pub fn run(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    let mut build = cargo(&workspace.root);
    build.args(["build", "--release", "--package", "bench"]);
    run_announced("build the benchmarks", &mut build)?;
    let mut command = Command::new(workspace.target.join("release/plumbline-bench"));
    command
        .args(arguments)
        .env("PLUMBLINE_BENCH_TFTPD", workspace.tftpd())
        .env("PLUMBLINE_BENCH_NGINX", workspace.nginx())
        .env("PLUMBLINE_BENCH_AGENT", workspace.node_agent());
    run_shown("measure", &mut command)
}
