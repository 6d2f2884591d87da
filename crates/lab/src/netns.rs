//! A network namespace with one bridge: the provisioning wire of a virtual rack.
//!
//! The invariant: a namespace belongs to exactly one living runner, which holds a lock on a file beside it. Who gets
//! the lock may therefore clear away whatever carries that name, processes included: its owner is dead.
//!
//! Refused: asking `ip netns list` alone whether a name is free, because a runner that was killed leaves its namespace
//! and its machines behind, and one that is alive must not lose them.

use crate::command::run_checked;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Every namespace of this crate starts so; nothing else is ever removed.
pub const NAME_PREFIX: &str = "plumb-";
/// The bridge that the machines' TAPs join.
pub const BRIDGE: &str = "br0";
/// The interface by which another host is on a rack's wire.
pub const UPLINK: &str = "up0";
/// The appliance's address on the bridge, with a prefix length of [`BRIDGE_PREFIX`].
pub const BRIDGE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The prefix length of the bridge's network.
pub const BRIDGE_PREFIX: u8 = 24;

/// Longer than any real name; the kernel's file name limit is far away.
const NAME_BYTES_MAX: usize = 64;
/// IFNAMSIZ less the terminating NUL.
const TAP_NAME_BYTES_MAX: usize = 15;
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A lock is lost to a holder that is just leaving at most about once.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_FOLDER: &str = "/run/plumbline-lab";

/// A namespace with loopback and a bridge up. Dropping it ends the processes left inside and removes it.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
    /// Held while this value lives, and let go after the namespace is gone; see the module's invariant.
    _lock: Lock,
}

impl NetworkNamespace {
    /// Makes the namespace `name` (which starts with [`NAME_PREFIX`]) with `lo` and [`BRIDGE`] up, after clearing away
    /// a stale one of that name.
    ///
    /// # Errors
    /// When the name is not one of ours, a living runner holds it, or the kernel refuses (root is needed).
    pub fn create(name: &str) -> Result<Self> {
        let namespace = Self::create_bare(name)?;
        namespace.add_bridge(&format!("{BRIDGE_ADDRESS}/{BRIDGE_PREFIX}"))?;
        Ok(namespace)
    }

    /// As [`Self::create`], with `lo` alone.
    fn create_bare(name: &str) -> Result<Self> {
        check_name(name)?;
        ensure!(rustix::process::geteuid().is_root(), "a network namespace needs root");
        let lock = Lock::take(name)?;
        lock.clear()?;
        ip(["netns", "add", name])?;
        let namespace = Self {
            name: name.to_owned(),
            _lock: lock,
        };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Another host on this rack's wire: a namespace `NAME-PURPOSE` with the interface [`UPLINK`] and this address, with
    /// its prefix length, on this bridge.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn add_host(&self, purpose: &str, address: &str) -> Result<Self> {
        let host = Self::create_bare(&format!("{}-{purpose}", self.name))?;
        let port: String = purpose.chars().take(TAP_NAME_BYTES_MAX).collect();
        self.ip(&[
            "link", "add", &port, "type", "veth", "peer", "name", UPLINK, "netns", &host.name,
        ])?;
        self.ip(&["link", "set", &port, "master", BRIDGE, "up"])?;
        host.ip(&["address", "add", address, "dev", UPLINK])?;
        host.ip(&["link", "set", UPLINK, "up"])?;
        Ok(host)
    }

    /// Sends what goes to `network` through `router`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_route(&self, network: &str, router: &str) -> Result<()> {
        self.ip(&["route", "add", network, "via", router])
    }

    /// As [`Self::create`] with a name that no other living process uses: `plumb-PURPOSE-PID`. Since nobody will ask
    /// for a dead process's name again, what dead owners left behind is cleared away too.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_unique(purpose: &str) -> Result<Self> {
        clear_abandoned();
        Self::create(&format!("{NAME_PREFIX}{purpose}-{}", std::process::id()))
    }

    /// The name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes a TAP on the bridge, for one machine. At most 15 bytes of name.
    ///
    /// # Errors
    /// When the name is too long or taken, or the kernel refuses.
    pub fn add_tap(&self, tap: &str) -> Result<()> {
        ensure!(
            !tap.is_empty() && tap.len() <= TAP_NAME_BYTES_MAX,
            "a TAP's name has 1 to 15 bytes, not `{tap}`"
        );
        self.ip(&["tuntap", "add", tap, "mode", "tap"])?;
        self.ip(&["link", "set", tap, "master", BRIDGE, "up"])
    }

    /// A command that runs `program` inside. The process keeps the id of the spawned one: `ip netns exec` becomes it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `work` on a thread inside the namespace and returns its result: sockets made there belong to the rack's
    /// wire and stay usable outside.
    ///
    /// # Errors
    /// When the namespace cannot be entered, when `work` fails or panics.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        enter(&self.name, work)
    }

    /// A TCP connection made inside the namespace, within 5 s.
    ///
    /// # Errors
    /// When nothing answers.
    pub fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        connect(&self.name, address)
    }

    /// Adds [`BRIDGE`] with this address and prefix length.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_bridge(&self, address: &str) -> Result<()> {
        // Firmware asks for an address within its first seconds: a bridge that listens and learns first would eat that.
        self.ip(&[
            "link",
            "add",
            BRIDGE,
            "type",
            "bridge",
            "stp_state",
            "0",
            "forward_delay",
            "0",
        ])?;
        self.ip(&["address", "add", address, "dev", BRIDGE])?;
        self.ip(&["link", "set", BRIDGE, "up"])
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        ip(["-n", self.name.as_str()].into_iter().chain(arguments.iter().copied()))
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.name) {
            tracing::warn!(netns.name = self.name, error = %format!("{error:#}"), "namespace left behind");
        }
    }
}

/// The right to a name. Dropping it gives the right back.
#[derive(Debug)]
struct Lock {
    name: String,
    path: PathBuf,
    /// The lock itself goes with this descriptor.
    _file: File,
}

impl Lock {
    fn take(name: &str) -> Result<Self> {
        fs::create_dir_all(LOCK_FOLDER).with_context(|| format!("cannot make {LOCK_FOLDER}"))?;
        let path = Path::new(LOCK_FOLDER).join(format!("{name}.lock"));
        for _ in 0..LOCK_ATTEMPTS {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)
                .with_context(|| format!("another run holds the namespace {name}"))?;
            // Its holder may have removed the file between the two lines above; then this lock guards nothing.
            let still_there =
                fs::metadata(&path).is_ok_and(|found| file.metadata().is_ok_and(|own| own.ino() == found.ino()));
            if still_there {
                return Ok(Self {
                    name: name.to_owned(),
                    path,
                    _file: file,
                });
            }
        }
        bail!("the lock of {name} keeps changing hands")
    }

    /// Removes what an earlier holder left.
    fn clear(&self) -> Result<()> {
        if namespace_path(&self.name).exists() {
            tracing::info!(netns.name = self.name, "clearing away a stale namespace");
            remove(&self.name)?;
        }
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A file that stays is harmless.
        let _harmless = fs::remove_file(&self.path);
    }
}

/// Clears away every namespace whose lock file nobody holds. What cannot be removed stays for the next time.
fn clear_abandoned() {
    for entry in fs::read_dir(LOCK_FOLDER).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let name = file_name.to_str().and_then(|name| name.strip_suffix(".lock"));
        let Some(name) = name.filter(|name| check_name(name).is_ok()) else {
            continue;
        };
        let Ok(lock) = Lock::take(name) else { continue };
        if let Err(error) = lock.clear() {
            tracing::warn!(netns.name = name, error = %format!("{error:#}"), "abandoned namespace not removed");
        }
    }
}

/// As [`NetworkNamespace::connect`], for a thread that holds only the name.
pub(crate) fn connect(name: &str, address: SocketAddr) -> Result<TcpStream> {
    enter(name, || {
        TcpStream::connect_timeout(&address, CONNECT_LIMIT).with_context(|| format!("nothing answers at {address}"))
    })
}

fn enter<T: Send>(name: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let file = File::open(namespace_path(name)).with_context(|| format!("no namespace {name}"))?;
    // A namespace is a property of a thread: a thread of its own keeps the caller's as it is.
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot enter the namespace {name}"))?;
            work()
        });
        inside
            .join()
            .unwrap_or_else(|_panic| bail!("the work inside {name} panicked"))
    })
}

fn namespace_path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// Refuses every name that is not plainly ours, before it reaches a command that removes things.
fn check_name(name: &str) -> Result<()> {
    let rest = name.strip_prefix(NAME_PREFIX).unwrap_or_default();
    let plain = rest
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    ensure!(
        !rest.is_empty() && plain && name.len() <= NAME_BYTES_MAX,
        "`{name}` is no name for a rack: {NAME_PREFIX} and then lower-case letters, digits and dashes"
    );
    Ok(())
}

/// Removes a namespace whose lock the caller holds, ending what still runs inside.
fn remove(name: &str) -> Result<()> {
    let listed = run_checked(Command::new("ip").args(["netns", "pids", name]), COMMAND_LIMIT)?;
    for pid in listed
        .lines()
        .filter_map(|line| Pid::from_raw(line.trim().parse().ok()?))
    {
        tracing::debug!(
            netns.name = name,
            process.id = pid.as_raw_nonzero().get(),
            "ending a process left inside"
        );
        // It may end by itself between the list and here.
        let _already_ended = kill_process(pid, Signal::KILL);
    }
    ip(["netns", "delete", name])
}

fn ip<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<()> {
    run_checked(Command::new("ip").args(arguments), COMMAND_LIMIT).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_with_the_prefix_are_taken() {
        for name in ["plumb-e2e-12", "plumb-a"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = format!("plumb-{}", "a".repeat(60));
        for name in [
            "",
            "plumb-",
            "lab",
            "production",
            "plumb-../x",
            "plumb-a b",
            "plumb-A",
            long.as_str(),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
