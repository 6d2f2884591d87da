//! Hardening profiles as data: rules with their reasons, how each is checked, and how each is brought about.
//!
//! A [`Profile`] is read from YAML (`images/profiles`). [`apply`] writes what files can bring about into a root folder,
//! [`evaluate`] looks at a root folder or at the running node through one trait, [`Place`], and answers per rule. The
//! same rules so serve the image build, which refuses an image that fails one, and the agent, which makes a finding of
//! each that fails on a node.
//!
//! Invariant: what could not be looked at is [`RuleResult::NotLookedAt`] all the way, and never a pass. A rule that only
//! a running node can answer says so on a built root. Links in a root are taken inside that root, never in the
//! machine's own files.
//!
//! Refused: running tools (`sshd -T`, `sysctl -a`, `systemctl`), which need a booted system and answer for the machine
//! that runs them; and a rule language, since the few dozen kinds of check are better said in Rust and tested once.

mod apply;
mod carried;
mod check;
mod document;
mod evaluate;
mod expect;
mod facts;
mod fix;
mod place;
mod profile;
mod report;
mod rule;
mod tree;
mod waiver;
mod words;

pub use apply::{Applied, ApplyError, Demands, Written, apply, demands};
pub use carried::Carried;
pub use check::{
    Accounts, AptSources, AuditRules, Check, CommandLine, FileCheck, Inventory, KubeletCheck, LimitsCheck, Live,
    LoginDefs, ModuleOption, Mount, PackageCheck, PackageState, PamCheck, Presence, SshdCheck, SysctlCheck,
    SystemdSetting, TreeCheck, UnitCheck, UnitExpected,
};
pub use document::document;
pub use evaluate::evaluate;
pub use expect::{Expect, Pattern};
pub use fix::{AccountsFix, FileFix, Fix, ModeFix, MountFix, OctalMode, PamFix, Unfixed, UnitFix, UnitWanted};
pub use place::{FILE_BYTES_MAX, FOLDER_NAMES_MAX, FileKind, Metadata, Place, Unlooked, WALK_ENTRIES_MAX};
pub use profile::{Change, Note, Profile, ProfileError, RuleOff, profile_read, profiles_read};
pub use report::{Counts, Problem, Report, RuleReport, RuleResult, WaiverExpired};
pub use rule::{Condition, GpuConflict, Rule, RuleId, Severity};
pub use tree::Tree;
pub use waiver::{Day, Waiver, waiver_problem, waivers_parse, waivers_read};
pub use yaml::{YAML_BYTES_MAX, YamlError};
