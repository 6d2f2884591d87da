//! The kinds of check, as data. What each looks at, and how, is in `evaluate`.

use manifest::{PathPattern, TreePath};
use serde::{Deserialize, Serialize};

use crate::expect::{Expect, Pattern};
use crate::fix::OctalMode;

/// One thing to look at.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// One of these groups holds as a whole.
    AnyOf(Vec<Vec<Check>>),
    /// A key of sshd_config(5) as the server will use it: includes, first match wins, no match block says otherwise.
    Sshd(SshdCheck),
    /// A sysctl as sysctl.d(5) sets it at boot and, on a running node, as the kernel has it.
    Sysctl(SysctlCheck),
    /// Files: whether they are there, whose they are, what they say.
    File(FileCheck),
    /// This module cannot be loaded by name or alias and, on a running node, is not loaded.
    ModuleDisabled(String),
    /// A parameter in modprobe.d.
    ModuleOption(ModuleOption),
    /// Mount options, as fstab or a unit sets them and, on a running node, as the kernel has them.
    Mount(Mount),
    /// The state of a unit by its files and links.
    Unit(UnitCheck),
    /// Exactly one of these units is enabled.
    OneUnit(Vec<String>),
    /// Packages by dpkg's status.
    Package(PackageCheck),
    /// A key of /etc/login.defs.
    LoginDefs(LoginDefs),
    /// A line of a PAM service, its includes followed.
    Pam(PamCheck),
    /// Arguments of the kernel command line.
    CommandLine(CommandLine),
    /// Users and groups of the root's own files.
    Accounts(Accounts),
    /// Rules of /etc/audit/rules.d.
    AuditRules(AuditRules),
    /// Programs that run with more rights than their caller, against a list.
    Inventory(Inventory),
    /// Something about every file of the root's filesystem.
    Tree(TreeCheck),
    /// A line of limits.conf(5).
    Limits(LimitsCheck),
    /// A setting of a systemd configuration file, its drop-ins included.
    SystemdSetting(SystemdSetting),
    /// Where packages may come from.
    AptSources(AptSources),
    /// A key of the kubelet's configuration.
    Kubelet(KubeletCheck),
    /// What only a running node, or nothing inside it, can answer.
    Live(Live),
}

impl Check {
    /// Whether it looks at every file of the filesystem.
    pub(crate) fn needs_walk(&self) -> bool {
        match self {
            Self::AnyOf(groups) => groups.iter().flatten().any(Self::needs_walk),
            Self::Inventory(_) | Self::Tree(_) => true,
            _ => false,
        }
    }
}

/// See [`Check::Sshd`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshdCheck {
    /// Keyword; letter case does not count.
    pub key: String,
    /// What it must be.
    pub expect: Expect,
}

/// See [`Check::Sysctl`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SysctlCheck {
    /// Dotted name.
    pub key: String,
    /// What it must be.
    pub expect: Expect,
    /// The kernel's own value where no file sets one; without it, not being set fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Not every kernel knows it: absent in the running kernel is then not applicable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// Whether something must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// Looked at where it is there; not applicable where not.
    #[default]
    Optional,
    /// Must be there.
    Present,
    /// Must not be there.
    Absent,
}

/// See [`Check::File`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCheck {
    /// Paths; `*` and `?` within one component.
    pub paths: Vec<PathPattern>,
    /// Whether they must be there.
    #[serde(default)]
    pub state: Presence,
    /// No permission bit beyond these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_at_most: Option<OctalMode>,
    /// Owner by name, in the root's own passwd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group by name, in the root's own group file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Each is found in some line of these files taken together; lines that start with `#` do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contains: Vec<Pattern>,
    /// None is found in any line; lines that start with `#` do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<Pattern>,
}

/// See [`Check::ModuleOption`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleOption {
    /// Names the module goes by; one of them carries the option.
    pub modules: Vec<String>,
    /// Parameter.
    pub option: String,
    /// What it must be.
    pub expect: Expect,
}

/// See [`Check::Mount`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where it is mounted.
    pub path: TreePath,
    /// Options it needs; one that ends in `=` stands for any value.
    pub options: Vec<String>,
    /// Options it must not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// What a unit must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitExpected {
    /// Something starts it at boot.
    Enabled,
    /// Linked to /dev/null, or not there.
    Masked,
    /// Nothing starts it at boot: not there, masked, or not enabled.
    Off,
}

/// See [`Check::Unit`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitCheck {
    /// Unit name with its suffix.
    pub name: String,
    /// What it must be.
    pub state: UnitExpected,
}

/// What packages must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageState {
    /// Each installed.
    Present,
    /// None installed.
    Absent,
}

/// See [`Check::Package`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageCheck {
    /// Names without architecture; `*` stands for anything.
    pub names: Vec<String>,
    /// What they must be.
    pub state: PackageState,
}

/// See [`Check::LoginDefs`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginDefs {
    /// Key.
    pub key: String,
    /// What it must be.
    pub expect: Expect,
}

/// See [`Check::Pam`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PamCheck {
    /// File name in /etc/pam.d.
    pub service: String,
    /// `auth`, `account`, `password` or `session`.
    pub kind: String,
    /// Module file name.
    pub module: String,
    /// Arguments it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// See [`Check::CommandLine`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandLine {
    /// One of these is there; empty asks for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any: Vec<String>,
    /// None of these is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub none: Vec<String>,
}

/// See [`Check::Accounts`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Accounts {
    /// No password opens root.
    RootLocked,
    /// Only root has UID 0.
    OneUidZero,
    /// No account is open without a password.
    NoEmptyPasswords,
    /// No account has a password at all.
    NoPasswords,
    /// No name and no number twice, among users and among groups.
    Unique,
    /// Accounts with a UID below 1000 cannot log in, but for root, sync and these.
    SystemNologin(Vec<String>),
    /// No account's home folder holds these names.
    HomesWithout(Vec<String>),
}

/// See [`Check::AuditRules`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRules {
    /// Each matches some rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contains: Vec<Pattern>,
    /// None matches any rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<Pattern>,
    /// The last rule of all, word for word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

/// See [`Check::Inventory`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// Programs that may have setuid, setgid or file capabilities.
    pub allowed: Vec<PathPattern>,
}

/// See [`Check::Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeCheck {
    /// Folders that everybody may write have the sticky bit, and no file is for everybody to write.
    WorldWritable,
    /// Every file belongs to a user and a group that exist.
    Owned,
}

/// See [`Check::Limits`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsCheck {
    /// `*`, a user, or `@group`.
    pub domain: String,
    /// `hard` or `soft`; a line with `-` sets both.
    pub kind: String,
    /// `core`, `memlock`, …
    pub item: String,
    /// What it must be.
    pub expect: Expect,
}

/// See [`Check::SystemdSetting`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemdSetting {
    /// File name below /etc/systemd, such as `journald.conf`.
    pub file: String,
    /// Section without brackets.
    pub section: String,
    /// Key.
    pub key: String,
    /// What it must be.
    pub expect: Expect,
    /// systemd's own value where nothing is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// See [`Check::AptSources`]. Every source must be tied to a keyring, and none may be trusted without one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AptSources {
    /// Hosts that sources may name; empty allows all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// See [`Check::Kubelet`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubeletCheck {
    /// Names from the top, with dots between.
    pub key: String,
    /// What it must be.
    pub expect: Expect,
    /// The kubelet's own value where its file says nothing.
    pub default: String,
}

/// See [`Check::Live`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Live {
    /// Firmware verified what it started.
    SecureBoot,
    /// The kernel takes no module without a signature.
    ModuleSignatures,
    /// AppArmor confines with at least so many profiles in enforce mode.
    ApparmorEnforced(u32),
    /// TCP ports that listen beyond loopback, at most these.
    Listening(Vec<u16>),
    /// Nothing inside the node answers it; says who does.
    Outside(String),
}
