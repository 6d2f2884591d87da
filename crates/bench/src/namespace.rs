//! A network namespace of its own: its loopback is nobody else's, and port 69 of it is free.

use std::env;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sockets of the clients and of the server, in two processes that have the same limit.
const OPEN_FILES_WANTED: u64 = 16_384;

/// Runs this program once more with the same arguments and `flag`, inside; gives its exit code.
///
/// # Errors
/// When `unshare` cannot be started.
pub fn run_inside(flag: &str) -> Result<ExitCode> {
    let own = env::current_exe().context("cannot find this program")?;
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let status = command
        .arg("--")
        .arg(own)
        .args(env::args_os().skip(1))
        .arg(flag)
        .status()
        .context("cannot start unshare, of util-linux")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Makes the inside ready: loopback up, and as many open files as a load needs.
///
/// # Errors
/// When `ip` fails, or the hard limit of open files is too low.
pub fn prepare() -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    // Without an address beside loopback's own, the C library resolves none, and tftpd-hpa does not start.
    ip(&["address", "add", "192.0.2.1/32", "dev", "lo"])?;
    raise_open_files()
}

fn ip(arguments: &[&str]) -> Result<()> {
    let status = Command::new("ip")
        .args(arguments)
        .status()
        .context("cannot start ip, of iproute2")?;
    if !status.success() {
        bail!("ip {}: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Raises the soft limit of open files; children inherit it.
///
/// # Errors
/// When the hard limit is too low.
pub fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = OPEN_FILES_WANTED.max(limit.current.unwrap_or(u64::MAX));
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    ensure!(
        wanted <= maximum,
        "{wanted} open files are needed, {maximum} allowed: see `ulimit -Hn`"
    );
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        },
    )
    .context("cannot raise the limit of open files")
}
