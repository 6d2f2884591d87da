//! What must hold beside the files.

use std::collections::{BTreeMap, BTreeSet};

use manifest::{Digest, Group, Header, ManifestKind, Package, User};

/// Facts of all manifests, merged. What a baseline does not speak of (an empty list) is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedFacts {
    /// Installed packages, of the image.
    pub packages: Vec<Package>,
    /// Unit file states by unit name; later manifests win.
    pub units: BTreeMap<String, String>,
    /// Sysctls by dotted key; later manifests win.
    pub sysctls: BTreeMap<String, String>,
    /// Modules that must be there, `_` for `-`.
    pub modules_required: BTreeSet<String>,
    /// Modules that must not be loaded, `_` for `-`.
    pub modules_forbidden: BTreeSet<String>,
    /// Local accounts by name; later manifests win.
    pub users: BTreeMap<String, User>,
    /// Local groups by name; later manifests win.
    pub groups: BTreeMap<String, Group>,
    /// Release of the kernel that must run; later manifests win.
    pub kernel_release: Option<String>,
    /// Arguments the kernel must have been started with, without those of a boot; later manifests win, so an overlay
    /// that adds some says the image's as well.
    pub command_line: Option<String>,
    /// Digest of the hardening profile that the image carries; `None`: rules are not looked at.
    pub hardening_profile: Option<Digest>,
}

impl ExpectedFacts {
    pub(super) fn add(&mut self, header: Header) {
        if header.kind == ManifestKind::Os {
            self.packages = header.packages;
        }
        self.units
            .extend(header.units.into_iter().map(|unit| (unit.name, unit.state)));
        self.sysctls.extend(header.sysctls);
        let canonical = |name: String| name.replace('-', "_");
        self.modules_required
            .extend(header.modules_required.into_iter().map(canonical));
        self.modules_forbidden
            .extend(header.modules_forbidden.into_iter().map(canonical));
        self.users
            .extend(header.users.into_iter().map(|user| (user.name.clone(), user)));
        self.groups
            .extend(header.groups.into_iter().map(|group| (group.name.clone(), group)));
        if let Some(kernel) = header.kernel {
            self.kernel_release = Some(kernel.release);
            self.command_line = Some(kernel.command_line);
        }
    }
}
