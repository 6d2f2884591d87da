//! The first line of a manifest: what the image is and what must hold beside its files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ClassRules, TreePath};

/// What a manifest describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManifestKind {
    /// An operating system root, installed on nodes.
    Os,
    /// The ramdisk that commissions and installs.
    Deployer,
    /// The agent layer, added at deployment and upgraded alone.
    Agent,
    /// Files rendered for one node.
    Overlay,
}

impl ManifestKind {
    /// The name used in manifests, the API and the CLI.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::Deployer => "deployer",
            Self::Agent => "agent",
            Self::Overlay => "overlay",
        }
    }
}

/// The kernel an image boots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// Where the kernel lies in the image.
    pub image: TreePath,
    /// Where its initramfs lies in the image.
    pub initramfs: TreePath,
    /// Command line of the image, without what is per node or per boot (root=, console of a SKU, tokens).
    pub command_line: String,
}

/// An installed package as dpkg names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Package name.
    pub name: String,
    /// Debian architecture.
    pub architecture: String,
    /// Version.
    pub version: String,
}

/// What systemd must say of a unit file (`UnitFileState`): `enabled`, `disabled`, `static`, `masked`, `alias`, ….
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// Unit name with suffix.
    pub name: String,
    /// Expected unit file state.
    pub state: String,
}

/// A local account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Home folder.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// A local group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Group name.
    pub name: String,
    /// Group id.
    pub gid: u32,
    /// Member names, sorted.
    pub members: Vec<String>,
}

/// A filesystem, for what it can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesystemKind {
    /// Keeps everything.
    Ext4,
    /// The EFI system partition: no modes, owners, links or xattrs; names fold case; times have 2 s steps.
    Vfat,
}

impl FilesystemKind {
    /// The name `mount` uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Vfat => "vfat",
        }
    }

    /// Whether mode, owner and xattrs mean anything on it.
    #[must_use]
    pub const fn keeps_metadata(self) -> bool {
        matches!(self, Self::Ext4)
    }
}

/// A filesystem of the installed node that the scan walks on its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// Mount point; `/` first.
    pub mount: TreePath,
    /// Filesystem, which decides what is compared.
    pub filesystem: FilesystemKind,
}

/// First line of a manifest. Lists are sorted; empty ones are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the canonical form; 1.
    pub format: u32,
    /// What this describes.
    pub kind: ManifestKind,
    /// Image name (`debian-12-lab`): `[a-z0-9][a-z0-9.-]*`, at most 64 bytes.
    pub name: String,
    /// Build version, made of the build instant (UTC) so that builds sort.
    pub version: String,
    /// Debian architecture.
    pub architecture: String,
    /// Operating system line for people (`PRETTY_NAME`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The kernel it boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Filesystems of an installed node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<Root>,
    /// Classes by pattern, also for paths that are not listed.
    #[serde(default, skip_serializing_if = "rules_are_empty")]
    pub classes: ClassRules,
    /// Installed packages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<Package>,
    /// Unit file states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<Unit>,
    /// Sysctls that must hold, running and persisted: dotted key to value, white space folded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Kernel modules that must be loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules_required: Vec<String>,
    /// Kernel modules that must not be loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules_forbidden: Vec<String>,
    /// Local accounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// Local groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
}

fn rules_are_empty(rules: &ClassRules) -> bool {
    rules.0.is_empty()
}

impl Header {
    /// The canonical form this code writes.
    pub const FORMAT: u32 = 1;

    /// A header with nothing but its name.
    #[must_use]
    pub fn new(kind: ManifestKind, name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            format: Self::FORMAT,
            kind,
            name: name.into(),
            version: version.into(),
            architecture: "amd64".to_owned(),
            description: None,
            kernel: None,
            roots: Vec::new(),
            classes: ClassRules::default(),
            packages: Vec::new(),
            units: Vec::new(),
            sysctls: BTreeMap::new(),
            modules_required: Vec::new(),
            modules_forbidden: Vec::new(),
            users: Vec::new(),
            groups: Vec::new(),
        }
    }
}
