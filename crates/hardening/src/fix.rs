//! What brings a rule about, as data. How it is written is in `apply`.

use std::fmt;

use manifest::{PathPattern, TreePath};
use serde::{Deserialize, Serialize};

/// Why a rule has no fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unfixed {
    /// A person decides.
    ReportOnly,
    /// A new image version brings it about.
    ReImageOnly,
    /// It is set outside the node: firmware or BMC.
    Outside,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fix {
    /// A key of the sshd drop-in: keyword and value.
    Sshd(String, String),
    /// A key of the sysctl drop-in: dotted name and value.
    Sysctl(String, String),
    /// A module that is not to be loaded.
    ModuleDisabled(String),
    /// Module, parameter and value.
    ModuleOption(String, String, String),
    /// A whole file.
    File(FileFix),
    /// Mode and owner of what is there.
    Mode(ModeFix),
    /// Files that go.
    Remove(Vec<PathPattern>),
    /// A key of /etc/login.defs and its value.
    LoginDefs(String, String),
    /// A line of a PAM service.
    Pam(PamFix),
    /// A unit's links.
    Unit(UnitFix),
    /// The first of these units whose file is there is enabled, the others are masked where they are there.
    OneUnit(Vec<String>),
    /// Mount options, by a unit.
    Mount(MountFix),
    /// Users of the root's own files.
    Accounts(AccountsFix),
    /// Sources that name no keyring get this one.
    AptSignedBy(TreePath),
    /// A package the image needs.
    PackageInstall(String),
    /// Packages the image must not hold.
    PackageRemove(Vec<String>),
    /// An argument of the kernel command line.
    CommandLine(String),
}

/// See [`Fix::File`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileFix {
    /// Where.
    pub path: TreePath,
    /// Permission bits.
    pub mode: OctalMode,
    /// The whole content.
    pub content: String,
}

/// See [`Fix::Mode`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeFix {
    /// Paths; those that are not there are passed over.
    pub paths: Vec<PathPattern>,
    /// Permission bits beyond these are taken away.
    pub mode: OctalMode,
    /// Owner by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// See [`Fix::Pam`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PamFix {
    /// File name in /etc/pam.d; passed over where it is not there.
    pub service: String,
    /// The line.
    pub line: String,
    /// Module after whose line it goes; at the end where there is none.
    pub after: String,
}

/// What a unit becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitWanted {
    /// Linked as its own file asks; passed over where the unit's file is not there.
    Enabled,
    /// Linked to /dev/null.
    Masked,
}

/// See [`Fix::Unit`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitFix {
    /// Unit name with its suffix.
    pub name: String,
    /// What it becomes.
    pub state: UnitWanted,
}

/// See [`Fix::Mount`]. A mount unit or, for what systemd itself mounts (/dev/shm, /proc), a unit that remounts: fstab is
/// rendered for each node and would lose it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountFix {
    /// Where it is mounted.
    pub path: TreePath,
    /// Options.
    pub options: Vec<String>,
    /// What is mounted: `tmpfs` or `bind`; nothing for what systemd itself mounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
}

/// See [`Fix::Accounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountsFix {
    /// root's password opens nothing.
    LockRoot,
    /// Accounts that open without a password are locked.
    LockEmptyPasswords,
    /// System accounts get nologin for a shell.
    SystemNologin,
}

/// Permission bits, written in octal: `"0640"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OctalMode(pub u32);

impl TryFrom<String> for OctalMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match u32::from_str_radix(&text, 8) {
            Ok(mode) if mode <= 0o7777 && text.len() == 4 => Ok(Self(mode)),
            _ => Err(format!("{text:?} is no mode, expected four octal digits like \"0640\"")),
        }
    }
}

impl From<OctalMode> for String {
    fn from(mode: OctalMode) -> Self {
        mode.to_string()
    }
}

impl fmt::Display for OctalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}
