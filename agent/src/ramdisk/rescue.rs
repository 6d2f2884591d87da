//! The rescue system: the deployer with a shell on its console, and SSH for one key.
//!
//! Invariant: nothing on a disk is touched but by the person who signed in, and nothing is kept: host key, home and
//! history are in memory and go with this boot.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use protocol::latest::{RescueUp, paths};

use super::console::Console;
use super::supervise;
use crate::api::{Api, ApiError};
use crate::deploy::program::run_ok;

const SSH_FOLDER: &str = "/root/.ssh";
const HOST_KEY: &str = "/run/plumbline/rescue-host-key";
const PROGRAM_LIMIT: Duration = Duration::from_secs(30);

/// A rescue system that is up. Dropping it ends the sign-ins and the shell.
#[derive(Debug)]
pub struct Rescue {
    authorized_key: String,
    host_key: String,
    ssh: Child,
    shell: Option<Child>,
    is_told: bool,
}

impl Rescue {
    /// Starts SSH and the shell. Blocks.
    ///
    /// # Errors
    /// What could not be started, for a person.
    pub fn start(authorized_key: &str, console: &Console) -> Result<Self, String> {
        prepare_home(authorized_key)?;
        let _absent = fs::remove_file(HOST_KEY);
        run_ok("dropbearkey", &["-t", "ed25519", "-f", HOST_KEY], PROGRAM_LIMIT).map_err(|error| error.to_string())?;
        let shown = run_ok("dropbearkey", &["-y", "-f", HOST_KEY], PROGRAM_LIMIT).map_err(|error| error.to_string())?;
        let host_key = host_key_of(&shown).ok_or("dropbearkey shows no public key")?;
        // -F: in the foreground; -E: errors to the console; -s: no passwords; -j, -k: nothing is forwarded.
        let ssh = Command::new("dropbear")
            .args(["-F", "-E", "-s", "-j", "-k", "-r", HOST_KEY, "-p", "22"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("dropbear does not start: {error}"))?;
        Ok(Self {
            authorized_key: authorized_key.to_owned(),
            host_key,
            ssh,
            shell: supervise::start_shell(console),
            is_told: false,
        })
    }

    /// Whether it was started for this key.
    #[must_use]
    pub fn is_for(&self, authorized_key: &str) -> bool {
        self.authorized_key == authorized_key
    }

    /// Starts a shell again that was left, and tells the server once where one can sign in.
    ///
    /// # Errors
    /// When SSH has ended, or the server does not take it.
    pub async fn keep(&mut self, api: &Api, console: &Console) -> Result<(), RescueError> {
        if let Ok(Some(status)) = self.ssh.try_wait() {
            return Err(RescueError::Ended(format!("dropbear ended: {status}")));
        }
        if self
            .shell
            .as_mut()
            .is_none_or(|shell| !matches!(shell.try_wait(), Ok(None)))
        {
            self.shell = supervise::start_shell(console);
        }
        if !self.is_told {
            let up = RescueUp {
                ssh_host_key: self.host_key.clone(),
            };
            api.send(paths::RESCUE, &up).await?;
            self.is_told = true;
        }
        Ok(())
    }

    /// The key that it shows.
    #[must_use]
    pub fn host_key(&self) -> &str {
        &self.host_key
    }
}

impl Drop for Rescue {
    fn drop(&mut self) {
        for child in [Some(&mut self.ssh), self.shell.as_mut()].into_iter().flatten() {
            // It may have ended by itself.
            let _ended = child.kill();
            let _reaped = child.wait();
        }
        let _absent = fs::remove_file(Path::new(SSH_FOLDER).join("authorized_keys"));
    }
}

/// Why a rescue system is not up.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// It ended by itself.
    #[error("{0}")]
    Ended(String),
    /// The server was not told.
    #[error("telling the server where to sign in")]
    Api(#[from] ApiError),
}

/// The ramdisk knows no accounts before.
const ACCOUNTS: [(&str, &str); 3] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("/etc/group", "root:x:0:\n"),
    ("/etc/shells", "/bin/sh\n"),
];

/// Dropbear wants an account, and refuses a home that others may write to.
fn prepare_home(authorized_key: &str) -> Result<(), String> {
    for (path, content) in ACCOUNTS {
        if !Path::new(path).exists() {
            fs::write(path, content).map_err(|error| format!("{path}: {error}"))?;
        }
    }
    let wrong = |error: std::io::Error| format!("{SSH_FOLDER}: {error}");
    fs::create_dir_all(SSH_FOLDER).map_err(wrong)?;
    for folder in ["/root", SSH_FOLDER] {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(wrong)?;
    }
    let keys = Path::new(SSH_FOLDER).join("authorized_keys");
    fs::write(&keys, format!("{authorized_key}\n")).map_err(wrong)?;
    fs::set_permissions(keys, Permissions::from_mode(0o600)).map_err(wrong)
}

/// The public key in what `dropbearkey -y` prints, without its comment.
fn host_key_of(shown: &str) -> Option<String> {
    let line = shown.lines().find(|line| line.starts_with("ssh-"))?;
    let mut words = line.split_whitespace();
    Some(format!("{} {}", words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_key_is_read_from_what_is_printed_around_it() {
        let shown = "Public key portion is:\nssh-ed25519 AAAAC3Nza root@(none)\nFingerprint: SHA256:abc\n";
        assert_eq!(host_key_of(shown).as_deref(), Some("ssh-ed25519 AAAAC3Nza"));
        assert_eq!(host_key_of("Exited: String too long\n"), None);
    }
}
