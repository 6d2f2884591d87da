//! The servers that are measured, each started for one measurement and stopped after it.
//!
//! Idea: all listen on the same address, 127.0.0.1:69, of a network namespace of their own, one at a time, so that
//! nothing but the program differs. Each serves the same folder.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process::Running;

/// Where the one server of the moment listens.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 69);

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

/// Starts `server` on `folder` and waits until it serves the file `probe` there.
///
/// # Errors
/// When it cannot be started, ends at once, or does not answer.
pub fn start(programs: &Programs, server: Server, folder: &Path, probe: &str) -> Result<Running> {
    let (program, arguments) = programs
        .command(server, folder)
        .with_context(|| format!("{} is not here", server.name()))?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let request = [b"\0\x01", probe.as_bytes(), b"\0octet\0"].concat();
    let answers = || {
        let mut answer = [0; 1024];
        socket.send_to(&request, ADDRESS)?;
        let Ok((_, server)) = socket.recv_from(&mut answer) else {
            return Ok(false);
        };
        if answer.starts_with(&[0, 3, 0, 1]) {
            // The probe's file is one block; this ends the transfer.
            socket.send_to(&[0, 4, 0, 1], server)?;
            return Ok(true);
        }
        bail!("it answers {:?}", String::from_utf8_lossy(&answer[..40]))
    };
    Running::start(&program, &arguments, answers).with_context(|| format!("{} does not serve", server.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
