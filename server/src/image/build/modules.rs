//! Which kernel modules a list of names needs.
//!
//! Reads what depmod wrote: `modules.dep` (every module with all it depends on), `modules.builtin`, `modules.softdep`
//! and `modules.alias`. A soft dependency is what a driver asks for by name at run time: ext4 without a crc32c module
//! loads and then cannot mount, so they count as dependencies here.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::super::recipe::Word;
use super::BuildError;

/// The modules of one kernel.
#[derive(Debug, Default)]
pub(super) struct ModuleIndex {
    release: String,
    /// Module name to its file, relative to the module folder.
    paths: HashMap<String, String>,
    /// Module name to the names it depends on.
    dependencies: HashMap<String, Vec<String>>,
    builtin: HashSet<String>,
    soft: HashMap<String, Vec<String>>,
    /// Plain aliases (without wildcards) to module names.
    aliases: HashMap<String, Vec<String>>,
}

/// The texts that depmod writes.
pub(super) struct ModuleTexts<'a> {
    pub dep: &'a str,
    pub builtin: &'a str,
    pub softdep: &'a str,
    pub alias: &'a str,
}

/// The kernel takes `-` and `_` for the same in module names.
fn name_of(text: &str) -> String {
    text.replace('-', "_")
}

/// The module name of a file: `kernel/fs/ext4/ext4.ko`, also compressed.
fn name_of_path(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, _) = file.split_once(".ko")?;
    Some(name_of(name))
}

impl ModuleIndex {
    pub fn parse(release: &str, texts: &ModuleTexts<'_>) -> Result<Self, BuildError> {
        let mut index = Self {
            release: release.to_owned(),
            ..Self::default()
        };
        for (at, line) in texts.dep.lines().enumerate() {
            let wrong = |problem: &str| BuildError::Facts {
                file: "modules.dep",
                line: at + 1,
                problem: problem.to_owned(),
            };
            let (path, needs) = line
                .split_once(':')
                .ok_or_else(|| wrong("expected a module and a colon"))?;
            let name = name_of_path(path).ok_or_else(|| wrong("expected the path of a .ko file"))?;
            let needs = needs.split_ascii_whitespace().filter_map(name_of_path).collect();
            index.dependencies.insert(name.clone(), needs);
            index.paths.insert(name, path.to_owned());
        }
        index.builtin = texts.builtin.lines().filter_map(name_of_path).collect();
        for line in texts.softdep.lines() {
            let mut words = line.split_ascii_whitespace();
            if words.next() == Some("softdep")
                && let Some(module) = words.next()
            {
                let needs = words.filter(|word| !word.ends_with(':')).map(name_of);
                index.soft.entry(name_of(module)).or_default().extend(needs);
            }
        }
        for line in texts.alias.lines() {
            let mut words = line.split_ascii_whitespace();
            if let (Some("alias"), Some(alias), Some(module)) = (words.next(), words.next(), words.next())
                && !alias.contains(['*', '?', '['])
            {
                index.aliases.entry(name_of(alias)).or_default().push(name_of(module));
            }
        }
        Ok(index)
    }

    /// The files, relative to the module folder, of the modules in these groups and all they need.
    ///
    /// # Errors
    /// [`BuildError::ModuleUnknown`] for a name that is neither a module nor built in.
    pub fn closure(&self, groups: &BTreeMap<String, Vec<Word>>) -> Result<BTreeSet<String>, BuildError> {
        let mut pending = Vec::new();
        for (group, names) in groups {
            for name in names {
                let found = self.resolve(&name_of(name.as_str()));
                if found.is_empty() && !self.builtin.contains(&name_of(name.as_str())) {
                    return Err(BuildError::ModuleUnknown {
                        module: name.to_string(),
                        group: group.clone(),
                        release: self.release.clone(),
                    });
                }
                pending.extend(found);
            }
        }
        let mut files = BTreeSet::new();
        while let Some(name) = pending.pop() {
            let Some(path) = self.paths.get(&name) else {
                continue;
            };
            if files.insert(path.clone()) {
                pending.extend(self.dependencies.get(&name).into_iter().flatten().cloned());
                // A soft dependency that this kernel does not have is passed over, as modprobe does.
                let soft = self.soft.get(&name).into_iter().flatten();
                pending.extend(soft.flat_map(|name| self.resolve(name)));
            }
        }
        Ok(files)
    }

    /// The modules behind a name: the module itself, or all that have it as an alias.
    fn resolve(&self, name: &str) -> Vec<String> {
        if self.paths.contains_key(name) {
            return vec![name.to_owned()];
        }
        self.aliases.get(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: ModuleTexts<'_> = ModuleTexts {
        dep: "kernel/fs/ext4/ext4.ko: kernel/fs/mbcache.ko kernel/fs/jbd2/jbd2.ko\n\
              kernel/fs/mbcache.ko:\n\
              kernel/fs/jbd2/jbd2.ko:\n\
              kernel/crypto/crc32c_generic.ko:\n\
              kernel/arch/x86/crypto/crc32c-intel.ko.xz: kernel/lib/helper.ko\n\
              kernel/lib/helper.ko:\n\
              kernel/drivers/usb/storage/usb-storage.ko:\n\
              kernel/a.ko: kernel/b.ko\n\
              kernel/b.ko:\n",
        builtin: "kernel/drivers/virtio/virtio_pci.ko\n",
        softdep: "# comment\nsoftdep ext4 pre: crc32c post: gone\nsoftdep b pre: a\n",
        alias: "alias crc32c crc32c_intel\nalias crc32c crc32c_generic\nalias pci:v0000* a\n",
    };

    fn closure(names: &[&str]) -> Result<Vec<String>, BuildError> {
        let index = ModuleIndex::parse("6.1.0-1-amd64", &TEXTS).unwrap();
        let names = names
            .iter()
            .map(|&name| Word::try_from(name.to_owned()).unwrap())
            .collect();
        let groups = BTreeMap::from([("storage".to_owned(), names)]);
        Ok(index.closure(&groups)?.into_iter().collect())
    }

    #[test]
    fn dependencies_hard_and_soft_come_along() {
        assert_eq!(
            closure(&["ext4"]).unwrap(),
            [
                "kernel/arch/x86/crypto/crc32c-intel.ko.xz",
                "kernel/crypto/crc32c_generic.ko",
                "kernel/fs/ext4/ext4.ko",
                "kernel/fs/jbd2/jbd2.ko",
                "kernel/fs/mbcache.ko",
                "kernel/lib/helper.ko",
            ]
        );
    }

    #[test]
    fn dashes_aliases_builtins_and_circles_are_understood() {
        assert_eq!(
            closure(&["usb_storage"]).unwrap(),
            ["kernel/drivers/usb/storage/usb-storage.ko"]
        );
        assert_eq!(closure(&["virtio-pci"]).unwrap(), [""; 0]);
        assert_eq!(closure(&["a"]).unwrap(), ["kernel/a.ko", "kernel/b.ko"]);
        assert_eq!(closure(&["crc32c"]).unwrap().len(), 3);
    }

    #[test]
    fn an_unknown_module_is_named_with_its_group() {
        let error = closure(&["ext4", "megaraid"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "kernel module megaraid (group storage): the kernel 6.1.0-1-amd64 has no module of that name"
        );
    }
}
