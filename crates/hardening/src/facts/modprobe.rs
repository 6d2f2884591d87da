//! modprobe.d(5): which modules cannot be loaded, and with which parameters others are.

use manifest::wildcard_matches;

use super::drop_ins;
use crate::place::{Place, Unlooked};

pub(crate) const FOLDERS: [&str; 4] = [
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
];

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// `install`, `blacklist`, `options`, …
    pub(crate) name: String,
    /// Module with `_` for `-`, maybe with wildcards.
    pub(crate) module: String,
    /// What follows.
    pub(crate) rest: String,
    /// Path and line.
    pub(crate) at: String,
}

/// All commands, in the order of the files' names.
pub(crate) fn commands(place: &dyn Place) -> Result<Vec<Command>, Unlooked> {
    let mut commands = Vec::new();
    for (path, text) in drop_ins(place, &FOLDERS, ".conf")? {
        let joined = text.replace("\\\n", " ");
        for (number, line) in super::lines(&joined) {
            let mut words = line.split_whitespace();
            let (Some(name), Some(module)) = (words.next(), words.next()) else {
                continue;
            };
            commands.push(Command {
                name: name.to_owned(),
                module: underscored(module),
                rest: words.collect::<Vec<_>>().join(" "),
                at: format!("{path}:{number}"),
            });
        }
    }
    Ok(commands)
}

/// The first `install` of a module, which is the one that modprobe runs.
pub(crate) fn install<'a>(commands: &'a [Command], module: &str) -> Option<&'a Command> {
    let module = underscored(module);
    commands
        .iter()
        .find(|one| one.name == "install" && wildcard_matches(one.module.as_bytes(), module.as_bytes()))
}

/// Whether an `install` refuses to load.
pub(crate) fn refuses(install: &Command) -> bool {
    matches!(
        install.rest.split_whitespace().next(),
        Some("/bin/false" | "/bin/true" | "/usr/bin/false" | "/usr/bin/true")
    )
}

/// Whether aliases of a module (its devices) do not load it.
pub(crate) fn is_blacklisted(commands: &[Command], module: &str) -> bool {
    let module = underscored(module);
    commands
        .iter()
        .any(|one| one.name == "blacklist" && one.module == module)
}

/// The value a parameter gets: the last one said for any of these names.
pub(crate) fn option<'a>(commands: &'a [Command], modules: &[String], option: &str) -> Option<(&'a str, &'a str)> {
    let modules: Vec<_> = modules.iter().map(|module| underscored(module)).collect();
    let mut found = None;
    for command in commands
        .iter()
        .filter(|one| one.name == "options" && modules.contains(&one.module))
    {
        for word in command.rest.split_whitespace() {
            if let Some((key, value)) = word.split_once('=').filter(|(key, _)| *key == option) {
                let _ = key;
                found = Some((value.trim_matches('"'), command.at.as_str()));
            }
        }
    }
    found
}

/// Modules by the kernel's own spelling.
pub(crate) fn underscored(module: &str) -> String {
    module.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn the_first_install_counts_and_the_last_option() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/modprobe.d");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("a.conf"),
            "install usb-storage /bin/false\nblacklist usb_storage\noptions x a=1\n",
        )
        .unwrap();
        std::fs::write(
            folder.join("b.conf"),
            "install usb_storage /sbin/modprobe --ignore-install \\\n usb_storage\ninstall hfs* /bin/true\noptions x a=2 b=3\n",
        )
        .unwrap();
        std::fs::write(folder.join("c.disabled"), "install dccp /bin/false\n").unwrap();
        let all = commands(&Tree::folder(root.path()).unwrap()).unwrap();
        assert!(refuses(install(&all, "usb-storage").unwrap()) && is_blacklisted(&all, "usb-storage"));
        assert!(refuses(install(&all, "hfsplus").unwrap()) && !is_blacklisted(&all, "hfsplus"));
        assert_eq!(install(&all, "dccp"), None);
        assert_eq!(option(&all, &["x".to_owned()], "a").unwrap().0, "2");
        assert_eq!(option(&all, &["x".to_owned()], "c"), None);
    }
}
