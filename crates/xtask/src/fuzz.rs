//! Fuzzing for a bounded time: libFuzzer over the decoders of what comes from the network.
//!
//! Built with the workspace's own compiler: coverage needs no nightly, and memory errors are out of reach of code that
//! has no `unsafe`. New inputs stay in the target folder; what found something is kept there and named.
//! (`cargo fuzz`, with a nightly compiler, works on the same folders.)

use crate::builds::NODE_TARGET;
use crate::cargo::cargo;
use crate::run::run_announced;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Coverage as libFuzzer wants it, and checks that a release leaves out.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";
/// Longest time for one input, in seconds: beyond it something loops.
const INPUT_SECS_MAX: u32 = 10;
/// Most memory, in MB.
const MEMORY_MB_MAX: u32 = 1_024;

/// Fuzz targets of one crate.
#[derive(Debug, Clone, Copy)]
pub struct Fuzzed {
    /// The crate's folder, which holds `fuzz/`.
    folder: &'static str,
    targets: &'static [&'static str],
}

/// DHCP, TFTP and the texts of the boot plane: quick to build.
pub const NETBOOT: Fuzzed = Fuzzed {
    folder: "crates/netboot",
    targets: &["dhcp_decode", "tftp_decode", "boot_text"],
};
/// LLDP frames, as the deployer reads them.
pub const AGENT: Fuzzed = Fuzzed {
    folder: "agent",
    targets: &["lldp_frame"],
};

/// Fuzzes each target for so many seconds, from the corpus that is kept.
///
/// # Errors
/// When the build fails, or an input breaks what always holds; its file is named.
pub fn run(workspace: &Workspace, fuzzed: Fuzzed, secs: u32) -> Result<()> {
    let folder = workspace.root.join(fuzzed.folder).join("fuzz");
    let target = workspace.target.join("fuzz");
    let mut build = cargo(&folder);
    build
        .args([
            "build",
            "--release",
            "--locked",
            "--bins",
            "--target",
            NODE_TARGET,
            "--target-dir",
        ])
        .arg(&target)
        .env("RUSTFLAGS", RUSTFLAGS);
    run_announced(&format!("build the fuzz targets of {}", fuzzed.folder), &mut build)?;
    for name in fuzzed.targets {
        one(&target, &folder, name, secs)?;
    }
    Ok(())
}

fn one(target: &Path, folder: &Path, name: &str, secs: u32) -> Result<()> {
    let made = |what: &str| -> Result<_> {
        let path = target.join(what).join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    };
    let mut command = Command::new(target.join(NODE_TARGET).join("release").join(name));
    // The first folder is where new inputs go.
    command
        .arg(made("corpus")?)
        .arg(folder.join("corpus").join(name))
        .args([
            format!("-max_total_time={secs}"),
            format!("-timeout={INPUT_SECS_MAX}"),
            format!("-rss_limit_mb={MEMORY_MB_MAX}"),
            format!("-artifact_prefix={}/", made("found")?.display()),
            "-print_final_stats=1".to_owned(),
        ]);
    run_announced(&format!("fuzz {name} for {secs} s"), &mut command)
}
