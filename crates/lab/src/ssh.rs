//! Commands on a node through the real OpenSSH client, from inside the rack's namespace.
//!
//! The host key is always checked against a file that the caller gives: a rack in which any key would do could not
//! show that the keys of a deployed node are the published ones.

use crate::command::{Captured, run_captured};
use crate::netns::NetworkNamespace;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long the connection itself may take, in seconds.
const CONNECT_SECS: u32 = 10;

/// Whom to log in as, where, and with what.
#[derive(Debug, Clone)]
pub struct SshTarget {
    /// The account on the node.
    pub user: String,
    /// The node's address on the rack's wire.
    pub address: IpAddr,
    /// The private key file; mode 0600, or the client refuses it.
    pub key: PathBuf,
    /// The known_hosts file with the node's published key.
    pub known_hosts: PathBuf,
}

impl SshTarget {
    /// Runs one shell command on the node, at most for `limit`.
    ///
    /// Exit status 255 is the client's own: the node was not reached, or its key or ours was refused.
    ///
    /// # Errors
    /// When the client cannot be started or the limit passes. The command's own failure is in the status.
    pub fn run(&self, namespace: &NetworkNamespace, command: &str, limit: Duration) -> Result<Captured> {
        run_captured(namespace.command("ssh").args(self.arguments(command)), limit)
            .with_context(|| format!("`{command}` on {}", self.address))
    }

    /// The client's arguments. Nothing of this machine's own configuration, keys or agents takes part.
    pub fn arguments(&self, command: &str) -> Vec<OsString> {
        let mut known_hosts = OsString::from("UserKnownHostsFile=");
        known_hosts.push(&self.known_hosts);
        let mut arguments: Vec<OsString> = vec!["-F".into(), "/dev/null".into(), "-i".into(), self.key.clone().into()];
        let options: [OsString; 7] = [
            known_hosts,
            "GlobalKnownHostsFile=/dev/null".into(),
            "StrictHostKeyChecking=yes".into(),
            "IdentitiesOnly=yes".into(),
            "BatchMode=yes".into(),
            "LogLevel=ERROR".into(),
            format!("ConnectTimeout={CONNECT_SECS}").into(),
        ];
        arguments.extend(options.into_iter().flat_map(|option| [OsString::from("-o"), option]));
        arguments.extend(["-l".into(), self.user.clone().into(), self.address.to_string().into()]);
        // Everything after `--` is the command, even one that starts with a dash.
        arguments.extend(["--".into(), command.into()]);
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_key_is_always_checked_against_the_given_file() {
        let target = SshTarget {
            user: "root".to_owned(),
            address: IpAddr::from([10, 77, 0, 20]),
            key: "/lab/key".into(),
            known_hosts: "/lab/known_hosts".into(),
        };
        let arguments = target.arguments("uname -r");
        let text: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        assert_eq!(
            text.join(" "),
            "-F /dev/null -i /lab/key -o UserKnownHostsFile=/lab/known_hosts -o GlobalKnownHostsFile=/dev/null \
             -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes -o BatchMode=yes -o LogLevel=ERROR \
             -o ConnectTimeout=10 -l root 10.77.0.20 -- uname -r"
        );
    }
}
