//! A deployer that has just booted: clock, claim, task.

use serde::{Deserialize, Serialize};

use super::{BurnIn, DeploySpec};
use crate::NodeId;

/// The server's clock, read over plain HTTP before TLS: dead CMOS batteries are common on racking day. A wrong answer
/// from somebody else can only make the TLS handshake fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Milliseconds since 1970, UTC.
    pub unix_ms: u64,
}

/// Turns a one-shot token into a certificate for a key made on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The token from the kernel command line.
    pub token: String,
    /// MAC of the interface the machine booted from, lower case with colons.
    pub boot_mac: String,
    /// PKCS #10 request, PEM. Only its key is used; the server writes the names.
    pub certificate_request: String,
    /// Version of the deployer.
    pub agent_version: String,
}

/// Answer to a [`Claim`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimReply {
    /// The node's record.
    pub node_id: NodeId,
    /// The node's name, if it has one yet.
    pub node_name: Option<String>,
    /// Client certificate for this boot of the deployer, PEM. It outlasts a day of waiting and
    /// the longest burn-in after it.
    pub certificate: String,
}

/// The rescue system is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescueUp {
    /// The host key that it shows, in OpenSSH's one-line form; made for this boot and forgotten with it.
    pub ssh_host_key: String,
}

/// What a waiting deployer is to do next.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub enum Task {
    /// Nothing yet; ask again. The reason is shown on the console.
    Wait {
        /// For people: "waiting for approval".
        reason: String,
    },
    /// Install. No reboot is needed between approval and this.
    Deploy(Box<DeploySpec>),
    /// Let a person in: a shell on the consoles, and SSH for one key. Asked for again and again while it lasts.
    Rescue {
        /// One line of an authorized_keys file.
        authorized_key: String,
        /// For people: who ordered it, and why.
        reason: String,
    },
    /// Run tests in memory and tell what they find.
    BurnIn(BurnIn),
    /// Restart: the server has nothing for this machine to do in the ramdisk.
    Reboot {
        /// For people.
        reason: String,
    },
}
