//! Whether a root can become an image of a bare-metal node, and what to add if not.
//!
//! Images of containers have no kernel, no init and no network tools, and many hold what belongs to one machine. Each
//! of these would show up hours later as a node that does not boot, or as a hundred nodes with one identity; here it
//! is a list with the packages to add. What could not be looked at is on the list too: it never reads as "in order".

mod hints;
mod identity;

mod os_release;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use os_release::{Family, OsRelease};

use crate::error::escape;
use crate::inside::Inside;
use hints::Need;

/// What is missing, or is there and must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingKind {
    /// No `/etc/os-release`, or one without an id.
    OsRelease,
    /// No kernel.
    Kernel,
    /// More than one kernel: which one boots would be chance.
    SeveralKernels,
    /// The kernel's modules are not there, or `depmod` never ran.
    Modules,
    /// No initramfs, and no tool to make one.
    Initramfs,
    /// No init, or one that is not systemd.
    Init,
    /// Programs are for another processor.
    Architecture,
    /// Something that belongs to one machine or person: an identity, a key, a password.
    Identity,
    /// An account that anybody may enter without a password.
    EmptyPassword,
    /// No SSH server (a warning: Plumbline can repair such a node only while its agent lives).
    SshServer,
    /// Nothing that brings up the network (a warning).
    Network,
    /// It could not be looked at.
    Unreadable,
}

/// One thing to add or to remove before the root can be an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What it is.
    pub kind: MissingKind,
    /// What was looked for and what was found, in words.
    pub problem: String,
    /// What to do: the packages of this distribution, or the file to remove.
    pub remedy: String,
}

/// How the kernel gets its initramfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initramfs {
    /// It is there, at this path.
    Present(String),
    /// It can be made by this program of the root.
    MadeBy(String),
}

/// What a root that can boot boots with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootable {
    /// Path of the kernel.
    pub kernel: String,
    /// Its version, which is also the name of its modules folder.
    pub kernel_version: String,
    /// Where the initramfs comes from.
    pub initramfs: Initramfs,
    /// Path of the init program, links followed.
    pub init: String,
    /// The distribution.
    pub os: OsRelease,
    /// What is not needed to boot and will be missed later.
    pub warnings: Vec<Missing>,
}

/// Looks at a root.
///
/// # Errors
/// All that is missing or must not be there, not only the first.
pub fn bootable(root: &Path) -> Result<Bootable, Vec<Missing>> {
    let inside = match Inside::open(root) {
        Ok(inside) => inside,
        Err(error) => return Err(vec![unreadable(&root.display().to_string(), &error)]),
    };
    let mut look = Look {
        inside,
        family: Family::Other,
        missing: Vec::new(),
    };
    let os = look.os_release();
    if let Some(os) = &os {
        look.family = os.family();
    }
    let kernel = look.kernel();
    let initramfs = kernel.as_ref().and_then(|(version, _)| look.initramfs(version));
    let init = look.init();
    identity::check(&mut look);
    let warnings = look.warnings();
    match (os, kernel, initramfs, init) {
        (Some(os), Some((kernel_version, kernel)), Some(initramfs), Some(init)) if look.missing.is_empty() => {
            Ok(Bootable {
                kernel,
                kernel_version,
                initramfs,
                init,
                os,
                warnings,
            })
        }
        _ => Err(look.missing),
    }
}

fn unreadable(path: &str, error: &std::io::Error) -> Missing {
    Missing {
        kind: MissingKind::Unreadable,
        problem: format!("{path} could not be looked at: {error}"),
        remedy: "look at it by hand".to_owned(),
    }
}

struct Look {
    inside: Inside,
    family: Family,
    missing: Vec<Missing>,
}

impl Look {
    fn add(&mut self, kind: MissingKind, problem: impl Into<String>, remedy: impl Into<String>) {
        self.missing.push(Missing {
            kind,
            problem: problem.into(),
            remedy: remedy.into(),
        });
    }

    /// What a look gave, or a line on the list.
    fn seen<T: Default>(&mut self, path: &str, result: std::io::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            self.missing.push(unreadable(path, &error));
            T::default()
        })
    }

    fn text(&mut self, path: &str, bytes_max: u64) -> Option<String> {
        let bytes = self.inside.read(path, bytes_max);
        self.seen(path, bytes)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn exists(&mut self, path: &str) -> bool {
        let found = self.inside.find(path);
        self.seen(path, found).is_some()
    }

    fn names(&mut self, path: &str) -> Vec<String> {
        let names = self.inside.names(path);
        self.seen(path, names).iter().map(|name| escape(name)).collect()
    }

    fn os_release(&mut self) -> Option<OsRelease> {
        let mut text = self.text("etc/os-release", 64 << 10);
        if text.is_none() {
            text = self.text("usr/lib/os-release", 64 << 10);
        }
        let os = text.as_deref().and_then(OsRelease::parse);
        if os.is_none() {
            self.add(
                MissingKind::OsRelease,
                "/etc/os-release is not there or has no ID; expected the file that names the distribution",
                "install base-files (Debian, Ubuntu) or the distribution's release package (rocky-release, redhat-release)",
            );
        }
        os
    }

    /// Version and path of the one kernel.
    fn kernel(&mut self) -> Option<(String, String)> {
        let mut kernels = BTreeMap::new();
        for version in self
            .names("usr/lib/modules")
            .into_iter()
            .chain(self.names("lib/modules"))
        {
            let path = format!("usr/lib/modules/{version}/vmlinuz");
            if self.exists(&path) {
                kernels.insert(version, format!("/{path}"));
            }
        }
        for name in self.names("boot") {
            if let Some(version) = name.strip_prefix("vmlinuz-")
                && self.exists(&format!("boot/{name}"))
            {
                // Made on one machine, for it, with its machine id in the name.
                if version.starts_with("0-rescue") {
                    let problem = format!("/boot/{name} is a rescue kernel of one machine");
                    self.add(MissingKind::Identity, problem, "remove it, and its initramfs");
                } else {
                    kernels.insert(version.to_owned(), format!("/boot/{name}"));
                }
            }
        }
        let mut kernels: Vec<(String, String)> = kernels.into_iter().collect();
        if kernels.len() > 1 {
            let versions: Vec<&str> = kernels.iter().map(|(version, _)| version.as_str()).collect();
            let problem = format!(
                "{} kernels ({}); expected exactly one",
                versions.len(),
                versions.join(", ")
            );
            self.add(
                MissingKind::SeveralKernels,
                problem,
                "remove the packages of all but one",
            );
            return None;
        }
        let Some((version, path)) = kernels.pop() else {
            let problem = "no kernel: neither /boot/vmlinuz-* nor /usr/lib/modules/*/vmlinuz is there";
            self.add(MissingKind::Kernel, problem, hints::install(self.family, Need::Kernel));
            return None;
        };
        let modules = format!("lib/modules/{version}");
        if !self.exists(&modules) {
            let problem = format!("/{modules} is not there; expected the modules of {path}");
            self.add(
                MissingKind::Modules,
                problem,
                hints::install(self.family, Need::Modules),
            );
        } else if !self.exists(&format!("{modules}/modules.dep")) {
            let problem = format!("/{modules}/modules.dep is not there: no module would be found");
            let remedy = format!("run `depmod {version}` in the root");
            self.add(MissingKind::Modules, problem, remedy);
        }
        Some((version, path))
    }

    fn initramfs(&mut self, version: &str) -> Option<Initramfs> {
        for path in [
            format!("boot/initrd.img-{version}"),
            format!("boot/initramfs-{version}.img"),
            format!("usr/lib/modules/{version}/initrd"),
            format!("usr/lib/modules/{version}/initramfs.img"),
        ] {
            if self.exists(&path) {
                return Some(Initramfs::Present(format!("/{path}")));
            }
        }
        for path in ["usr/sbin/mkinitramfs", "usr/bin/dracut", "usr/sbin/dracut"] {
            if self.exists(path) {
                return Some(Initramfs::MadeBy(format!("/{path}")));
            }
        }
        let problem =
            format!("no initramfs for {version} in /boot, and neither initramfs-tools nor dracut to make one");
        self.add(
            MissingKind::Initramfs,
            problem,
            hints::install(self.family, Need::Initramfs),
        );
        None
    }

    fn init(&mut self) -> Option<String> {
        let mut found = self.inside.find("sbin/init");
        // Without the link of systemd-sysv; a folder `sbin` that is no link to `usr/sbin` may have it alone.
        if matches!(found, Ok(None)) {
            found = self.inside.find("usr/sbin/init");
        }
        let path = self.seen("/sbin/init", found).map(|path| escape(&path));
        let is_systemd = |path: &&String| path.ends_with("/systemd");
        let Some(path) = path.as_ref().filter(is_systemd) else {
            let problem = match &path {
                None => "/sbin/init is not there; expected systemd".to_owned(),
                Some(path) => format!("/sbin/init is {path}; expected systemd"),
            };
            self.add(MissingKind::Init, problem, hints::install(self.family, Need::Init));
            return None;
        };
        let head = self.inside.head(path, 20);
        let head = self.seen(path, head).unwrap_or_default();
        // ELF, and EM_X86_64 in e_machine (elf.h).
        if !head.starts_with(b"\x7fELF") || head.get(18..20) != Some(&[62, 0]) {
            self.add(
                MissingKind::Architecture,
                format!("{path} is no program for x86-64"),
                "bring the root of the distribution for amd64 (x86_64)",
            );
        }
        Some(path.clone())
    }

    fn warnings(&mut self) -> Vec<Missing> {
        let mut warnings = Vec::new();
        let mut warn = |kind, problem: &str, need| {
            warnings.push(Missing {
                kind,
                problem: problem.to_owned(),
                remedy: hints::install(self.family, need),
            });
        };
        let there = |path: &&str| !matches!(self.inside.find(path), Ok(None));
        if !["usr/sbin/sshd", "usr/bin/sshd"].iter().any(&there) {
            let problem = "no SSH server: a node whose agent is dead cannot be reached";
            warn(MissingKind::SshServer, problem, Need::SshServer);
        }
        let tools = [
            "usr/lib/systemd/systemd-networkd",
            "lib/systemd/systemd-networkd",
            "usr/sbin/NetworkManager",
            "usr/bin/NetworkManager",
        ];
        if !tools.iter().any(there) {
            let problem = "neither systemd-networkd nor NetworkManager: nothing brings up the network";
            warn(MissingKind::Network, problem, Need::Network);
        }
        warnings
    }
}

#[cfg(test)]
mod tests;
