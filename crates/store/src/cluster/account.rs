//! Who PostgreSQL runs as: itself refuses root, so a root server gives it the package's service account.

use std::path::Path;
use std::process::Command;

use super::ClusterError;

/// The account that PostgreSQL's packages make.
const SERVICE_ACCOUNT: &str = "postgres";

/// What the kernel does to a program when the thread that started it ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnParentDeath {
    /// SIGINT: PostgreSQL's fast shutdown.
    Interrupt,
    /// SIGTERM: `initdb` removes what it made.
    Terminate,
}

/// The account of the cluster's processes and files.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Whether we are root and must become that account.
    pub switches: bool,
}

impl Account {
    /// The service account under root, else our own.
    pub fn current() -> Result<Self, ClusterError> {
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            let number = |option| {
                let text = ask_id(&[option, SERVICE_ACCOUNT])?;
                text.parse::<u32>()
                    .map_err(|error| unknown(SERVICE_ACCOUNT, error.to_string()))
            };
            return Ok(Self {
                name: SERVICE_ACCOUNT.to_owned(),
                uid: number("-u")?,
                gid: number("-g")?,
                switches: true,
            });
        }
        let gid = rustix::process::getegid().as_raw();
        Ok(Self {
            name: ask_id(&["-un"])?,
            uid: uid.as_raw(),
            gid,
            switches: false,
        })
    }

    /// The account of this process, for what only the server itself writes.
    pub fn ourselves() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self {
            name: "the server".to_owned(),
            uid,
            gid,
            switches: false,
        }
    }

    /// A command that runs `program` as this account, with a clean environment, and does not outlive the thread that
    /// spawns it.
    pub fn command(&self, program: &Path, on_parent_death: OnParentDeath) -> Command {
        let mut command = Command::new("setpriv");
        if self.switches {
            command
                .arg(format!("--reuid={}", self.uid))
                .arg(format!("--regid={}", self.gid))
                .arg("--init-groups");
        }
        command.arg(match on_parent_death {
            OnParentDeath::Interrupt => "--pdeathsig=INT",
            OnParentDeath::Terminate => "--pdeathsig=TERM",
        });
        command.arg("--").arg(program);
        // PGDATA, PGPORT and others of whoever started the server mean another cluster; LC_ALL keeps messages stable.
        command.env_clear().env("LC_ALL", "C");
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.current_dir("/");
        command
    }
}

fn ask_id(arguments: &[&str]) -> Result<String, ClusterError> {
    let output = Command::new("id")
        .args(arguments)
        .output()
        .map_err(|source| ClusterError::Spawn {
            program: "id".to_owned(),
            source,
        })?;
    if !output.status.success() {
        let name = arguments.get(1).copied().unwrap_or("(ours)");
        return Err(unknown(name, String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn unknown(name: &str, reason: String) -> ClusterError {
    ClusterError::Account {
        name: name.to_owned(),
        reason,
    }
}
