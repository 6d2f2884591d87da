//! Installing: what to put where, how it goes, how it ended.

use std::collections::BTreeMap;

use manifest::Digest;
use serde::{Deserialize, Serialize};

use crate::DeploymentId;

/// Everything a deployer needs to install. Nothing in it is secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeploySpec {
    /// The deployment.
    pub deployment_id: DeploymentId,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The node's name (its hostname).
    pub node_name: String,
    /// Image version: manifest digest, signed by the image key.
    pub image: Digest,
    /// Agent layer: manifest digest, signed by the agent-release key.
    pub agent_layer: Digest,
    /// Which disk.
    pub disk: DiskRule,
    /// How it is divided.
    pub layout: Layout,
    /// What signatures are worth now. None from a server before there was such a thing: then the keys of the authority
    /// file count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<super::ImageTrust>,
    /// What becomes of what is on the disk. Servers from before it was said mean [`DeployMode::Wipe`].
    #[serde(default = "DeployMode::of_old_servers")]
    pub mode: DeployMode,
    /// Root filesystems that this node was given so far, at most [`crate::limits::KNOWN_ROOTS_MAX`], this deployment's own
    /// among them: only these are installed over.
    #[serde(default)]
    pub known_roots: Vec<uuid::Uuid>,
    /// Paths that stay with all below them, as far as the image allows something unlisted there; at most
    /// [`crate::limits::KEEP_PATHS_MAX`]. With any, the disk is never wiped instead.
    #[serde(default)]
    pub keep: Vec<manifest::TreePath>,
}

/// What becomes of what is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeployMode {
    /// What is right on an installation of this node stays, and everything else goes; any other disk is wiped.
    #[default]
    InPlace,
    /// The disk is wiped.
    Wipe,
}

impl DeployMode {
    /// The name used in the database, in the API and in the CLI.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InPlace => "in_place",
            Self::Wipe => "wipe",
        }
    }

    /// The mode with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::InPlace, Self::Wipe]
            .into_iter()
            .find(|mode| mode.as_str() == name)
    }

    const fn of_old_servers() -> Self {
        Self::Wipe
    }
}

/// Which disk to install on. All given conditions must hold, and exactly one disk must fulfil them: none or several is
/// an error that lists what was there. With nothing given, the machine must have exactly one candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskRule {
    /// Serial number, exactly.
    pub serial: Option<String>,
    /// World-wide name, exactly.
    pub wwn: Option<String>,
    /// Model contains this.
    pub model: Option<String>,
    /// Least size in bytes.
    pub size_min_bytes: Option<u64>,
    /// Greatest size in bytes.
    pub size_max_bytes: Option<u64>,
}

/// Partitions and filesystems. The ids are chosen by the server so that rendered files can name them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Size of the EFI system partition in MiB.
    pub esp_mib: u32,
    /// Volume id of the ESP's FAT: eight upper-case hexadecimal digits.
    pub esp_volume_id: String,
    /// Volume label of the ESP's FAT, by which the boot script finds the disk: one to eleven of `A-Z`, `0-9`. The node's
    /// own, so that a disk from another node is not taken for it.
    #[serde(default = "esp_label_default")]
    pub esp_label: String,
    /// UUID of the root filesystem (ext4), which takes the rest of the disk.
    pub root_uuid: uuid::Uuid,
}

/// What every ESP was called before it had a label of its node.
fn esp_label_default() -> String {
    "ESP".to_owned()
}

/// What a deployment is doing. The order is the order of the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Manifests are fetched and their signatures checked.
    Verify,
    /// The disk is chosen.
    SelectDisk,
    /// Old partition tables, RAID, LVM and filesystem signatures are cleared.
    Wipe,
    /// The partition table is written and filesystems are made.
    Partition,
    /// Files are written and checked against the manifest.
    Write,
    /// Node configuration is rendered and written.
    Configure,
    /// Everything is flushed, unmounted and read back where needed.
    Finish,
}

impl Stage {
    /// The name used on consoles, in the API and in the CLI.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::SelectDisk => "select_disk",
            Self::Wipe => "wipe",
            Self::Partition => "partition",
            Self::Write => "write",
            Self::Configure => "configure",
            Self::Finish => "finish",
        }
    }
}

/// Sent at least every second while a deployment runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Progress {
    /// Current stage.
    pub stage: Stage,
    /// For people: what exactly.
    pub detail: String,
    /// Content bytes written and checked so far.
    pub bytes_done: u64,
    /// Content bytes in all; 0 until known.
    pub bytes_total: u64,
    /// Files written and checked so far.
    pub files_done: u64,
    /// Files in all; 0 until known.
    pub files_total: u64,
}

/// Asks for the node's configuration, once the deployer knows the disk and has made the node's keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenderRequest {
    /// MAC of the interface the machine booted from.
    pub boot_mac: String,
    /// SSH host public keys made on the node, in OpenSSH's one-line form.
    pub ssh_host_keys: Vec<String>,
    /// PKCS #10 request of the agent's own key, PEM.
    pub agent_certificate_request: String,
    /// The disk chosen: serial, WWN or name, for the record.
    pub disk: super::Disk,
    /// The root filesystem that is installed over; none when the one of the deployment's layout was made.
    #[serde(default)]
    pub root_uuid: Option<uuid::Uuid>,
}

/// The node's layer above the image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenderReply {
    /// The overlay's manifest: canonical text. Files of class `rendered` have their content in `files`; files without
    /// content (class `seeded`) are made by the deployer: keys.
    pub overlay_manifest: String,
    /// Contents by digest.
    pub files: BTreeMap<Digest, RenderedFile>,
    /// The agent's certificate, PEM.
    pub agent_certificate: String,
}

/// Content of a rendered file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenderedFile {
    /// The bytes, base64.
    pub base64: String,
}

/// How a deployment ended on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Written, checked, flushed; the machine restarts now.
    Installed {
        /// Regular files written and checked.
        files: u64,
        /// Bytes of content.
        bytes: u64,
        /// HTTP requests made for image data.
        requests: u64,
        /// Seconds from the task to now.
        duration_secs: u64,
        /// What became of what was on the disk; deployers from before it was told say nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        work: Option<DiskWork>,
    },
    /// Given up; the disk does not hold a usable system.
    Failed {
        /// Where.
        stage: Stage,
        /// Why, with what was found and expected.
        reason: String,
    },
}

/// How an image came to be on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DiskWork {
    /// What was done, which may not be what was asked for.
    pub mode: DeployMode,
    /// Why, in words.
    pub reason: String,
    /// Bytes of image data from the server as they travelled: manifests, indexes, packs.
    pub bytes_fetched: u64,
    /// Bytes of content that were on the disk already.
    pub bytes_kept: u64,
    /// Regular files that were there already, at their path or at another.
    pub files_kept: u64,
    /// Regular files that were written, this node's own configuration among them.
    pub files_written: u64,
    /// Files, links and devices that were removed.
    pub files_removed: u64,
}

/// What the deployer trusts, put into its ramdisk by the boot plane as `/etc/plumbline/authority.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The appliance's CA certificate, PEM.
    pub ca_certificate: String,
    /// Public key that signs images (minisign); for deployers that know only one.
    pub image_key: String,
    /// All public keys whose signatures of images count; empty from a server that knows only one.
    #[serde(default)]
    pub image_keys: Vec<String>,
    /// Public key that signs agent layers (minisign).
    pub agent_release_key: String,
    /// Base URL of the agents' listener (`https://10.77.0.1:8443`).
    pub agent_url: String,
    /// Base URL of the boot listener (`http://10.77.0.1:8081`).
    pub boot_url: String,
}

impl Authority {
    /// What signatures of images are worth, as far as this file says.
    #[must_use]
    pub fn trust(&self) -> super::ImageTrust {
        let image_keys = match self.image_keys.is_empty() {
            true => vec![self.image_key.clone()],
            false => self.image_keys.clone(),
        };
        super::ImageTrust {
            image_keys,
            ..super::ImageTrust::default()
        }
    }
}
