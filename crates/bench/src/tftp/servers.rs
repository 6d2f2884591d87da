//! The servers that are measured, each started for one measurement and stopped after it.
//!
//! Idea: all listen on the same address, 127.0.0.1:69, of a network namespace of their own, one at a time, so that
//! nothing but the program differs. Each serves the same folder.
//!
//! Invariant: a server dies with this program: its parent's death is its own (`setpriv --pdeathsig`), and processes that
//! it started are in its group, which is ended as a whole.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// Where the one server of the moment listens.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 69);
/// How long a server may take to answer its first request, or to stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A TFTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// This project's.
    Plumbline,
    /// Another build of this project's: what a change does is measured beside what was there before.
    Before,
    /// `in.tftpd`: a process for each transfer.
    TftpdHpa,
    /// dnsmasq: one process for everything, as here.
    Dnsmasq,
}

impl Server {
    /// Its name, for tables and keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plumbline => "plumbline",
            Self::Before => "before",
            Self::TftpdHpa => "tftpd-hpa",
            Self::Dnsmasq => "dnsmasq",
        }
    }
}

/// Where the programs are. One that is not there is not measured.
#[derive(Debug, Clone)]
pub struct Programs {
    /// This program, which serves with the project's engine.
    pub own: PathBuf,
    /// Another build of this program.
    pub before: Option<PathBuf>,
    /// `in.tftpd` of tftpd-hpa.
    pub tftpd: Option<PathBuf>,
    /// `dnsmasq`.
    pub dnsmasq: Option<PathBuf>,
}

impl Programs {
    /// The command that serves `folder`; none where there is no such program.
    fn command(&self, server: Server, folder: &Path) -> Option<(PathBuf, Vec<String>)> {
        let (folder, address) = (folder.display().to_string(), ADDRESS.to_string());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match server {
            Server::Plumbline => Some((
                self.own.clone(),
                words(&["serve-tftp", "--listen", &address, "--folder", &folder]),
            )),
            Server::Before => Some((
                self.before.clone()?,
                words(&["serve-tftp", "--listen", &address, "--folder", &folder]),
            )),
            Server::TftpdHpa => Some((
                self.tftpd.clone()?,
                words(&[
                    "--foreground",
                    "--address",
                    &address,
                    "--user",
                    "root",
                    "--secure",
                    &folder,
                ]),
            )),
            Server::Dnsmasq => Some((
                self.dnsmasq.clone()?,
                words(&[
                    "--conf-file=/dev/null",
                    "--keep-in-foreground",
                    "--user=root",
                    "--pid-file=",
                    "--log-facility=/dev/null",
                    "--port=0",
                    "--interface=lo",
                    "--bind-interfaces",
                    "--enable-tftp",
                    "--tftp-max=2000",
                    "--quiet-tftp",
                    &format!("--tftp-root={folder}"),
                ]),
            )),
        }
    }

    /// Whether `server` can be measured.
    pub fn has(&self, server: Server) -> bool {
        self.command(server, Path::new("/"))
            .is_some_and(|(program, _)| program.is_file())
    }
}

/// A server that runs.
pub struct Running {
    child: Child,
    group: Pid,
}

impl Running {
    /// Starts `server` on `folder` and waits until it serves the file `probe` there.
    ///
    /// # Errors
    /// When it cannot be started, ends at once, or does not answer.
    pub fn start(programs: &Programs, server: Server, folder: &Path, probe: &str) -> Result<Self> {
        let (program, arguments) = programs
            .command(server, folder)
            .with_context(|| format!("{} is not here", server.name()))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let group = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process without a number")?;
        let mut running = Self { child, group };
        running
            .await_answer(probe)
            .with_context(|| format!("{} does not serve", server.name()))?;
        Ok(running)
    }

    fn await_answer(&mut self, probe: &str) -> Result<()> {
        let limit = Instant::now() + PATIENCE;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let request = [b"\0\x01", probe.as_bytes(), b"\0octet\0"].concat();
        let mut answer = [0; 1024];
        while Instant::now() < limit {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended at once: {status}");
            }
            socket.send_to(&request, ADDRESS)?;
            if let Ok((_, server)) = socket.recv_from(&mut answer) {
                if answer.starts_with(&[0, 3, 0, 1]) {
                    // The probe's file is one block; this ends the transfer.
                    socket.send_to(&[0, 4, 0, 1], server)?;
                    return Ok(());
                }
                bail!("it answers {:?}", String::from_utf8_lossy(&answer[..40]));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        bail!("no answer within {} s", PATIENCE.as_secs())
    }

    /// The most memory its first process has held so far, in bytes (`VmHWM`): all of it, where there is one process.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory_peak_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        peak_bytes(&status).with_context(|| format!("{path} has no VmHWM"))
    }

    /// Processor time it has used so far, in seconds: its first process's, and that of children it has waited for. Counted
    /// in hundredths.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn processor_secs(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        processor_ticks(&stat)
            .map(|ticks| ticks as f64 / 100.0)
            .with_context(|| format!("{path} has no times"))
    }

    /// Ends it and what it started.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        // A group that is gone is as good as ended.
        let _ended = kill_process_group(self.group, Signal::KILL);
        self.child.wait().context("cannot wait for a server")?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ended = self.end();
        }
    }
}

/// `VmHWM` of `/proc/PID/status`, which counts in KiB.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The sum of utime, stime, cutime and cstime of `/proc/PID/stat`: fields 14 to 17, counted after the name, which may hold
/// anything. On every Linux for people's machines, a tick is a hundredth of a second.
fn processor_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let times: Vec<u64> = after_name
        .split_whitespace()
        .skip(11)
        .take(4)
        .map_while(|field| field.parse().ok())
        .collect();
    (times.len() == 4).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_found_after_any_name() {
        let stat = "7 (in.tftpd (x) 1 2) S 1 7 7 0 -1 4194560 130 0 0 0 3 4 10 20 20 0 1 0 100 0 0";
        assert_eq!(processor_ticks(stat), Some(37));
        assert_eq!(processor_ticks("7 (in.tftpd) S 1 7"), None);
    }

    #[test]
    fn the_peak_is_read_from_what_the_kernel_writes() {
        let status = "Name:\tplumbline\nVmPeak:\t  999 kB\nVmHWM:\t    5120 kB\nVmRSS:\t 100 kB\n";
        assert_eq!(peak_bytes(status), Some(5 << 20));
        assert_eq!(peak_bytes("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn what_is_not_installed_is_not_measured() {
        let programs = Programs {
            own: "/proc/self/exe".into(),
            before: None,
            tftpd: None,
            dnsmasq: Some("/nonexistent/dnsmasq".into()),
        };
        assert!(programs.has(Server::Plumbline));
        assert!(!programs.has(Server::TftpdHpa) && !programs.has(Server::Dnsmasq));
    }
}
