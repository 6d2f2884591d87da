//! Mount options: as fstab and units set them, and as the kernel has them.
//!
//! systemd takes, for one place: a mount unit in /etc, then fstab, then a mount unit of a package. What it mounts by
//! itself (/dev/shm, /proc) has options only from fstab; a node's fstab is rendered, so an enabled unit in /etc that runs
//! `mount -o remount,…` on the place counts as well, after all others.

use manifest::TreePath;

use super::systemd::keys;
use super::units::{self, UnitState};
use super::{join, lines, path, text_at};
use crate::place::{Place, Unlooked};

/// Options of one mount and where they are said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// One by one.
    pub(crate) options: Vec<String>,
    /// Path and line.
    pub(crate) at: String,
}

/// What is set for a place. `None`: nothing mounts it with options of its own.
pub(crate) fn configured(place: &dyn Place, mount: &TreePath) -> Result<Option<Options>, Unlooked> {
    let unit = format!("{}.mount", unit_stem(mount.as_bytes()));
    let found = match units::state(place, &unit)? {
        UnitState::Enabled(_) => unit_options(place, &unit)?,
        _ => None,
    };
    let own = found.as_ref().filter(|found| found.at.starts_with("/etc/")).cloned();
    if own.is_some() {
        return Ok(own);
    }
    if let Some(options) = fstab(place, mount)? {
        return Ok(Some(options));
    }
    match found {
        Some(found) => Ok(Some(found)),
        None => remounted(place, mount),
    }
}

/// What the kernel says. `None`: not mounted.
pub(crate) fn running(place: &dyn Place, mount: &TreePath) -> Result<Option<Options>, Unlooked> {
    const MOUNTS: &str = "/proc/self/mountinfo";
    let Some(text) = text_at(place, MOUNTS)? else {
        return Err(Unlooked::unreadable(&path(MOUNTS)?, "not there"));
    };
    let mut found = None;
    for (number, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split(' ').collect();
        let Some(separator) = fields.iter().position(|field| *field == "-") else {
            continue;
        };
        if fields.get(4).map(|point| unescaped(point)).as_deref() != Some(mount.as_bytes()) {
            continue;
        }
        let of_mount = fields.get(5).copied().unwrap_or_default();
        let of_filesystem = fields.get(separator + 3).copied().unwrap_or_default();
        // The last one lies on top.
        found = Some(Options {
            options: split(&format!("{of_mount},{of_filesystem}")),
            at: format!("{MOUNTS}:{}", number + 1),
        });
    }
    Ok(found)
}

/// Whether an option is among those; `size=` stands for any size.
pub(crate) fn has(options: &[String], wanted: &str) -> bool {
    if wanted.ends_with('=') {
        return options.iter().any(|option| option.starts_with(wanted));
    }
    options.iter().any(|option| option == wanted)
}

fn split(options: &str) -> Vec<String> {
    options
        .split(',')
        .filter(|option| !option.is_empty())
        .map(canonical)
        .collect()
}

/// The kernel shows hidepid by name since 5.8.
fn canonical(option: &str) -> String {
    match option {
        "hidepid=noaccess" => "hidepid=1",
        "hidepid=invisible" => "hidepid=2",
        "hidepid=ptraceable" => "hidepid=4",
        other => other,
    }
    .to_owned()
}

fn fstab(place: &dyn Place, mount: &TreePath) -> Result<Option<Options>, Unlooked> {
    let Some(text) = text_at(place, "/etc/fstab")? else {
        return Ok(None);
    };
    let found = lines(&text).find_map(|(number, line)| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let point = unescaped(fields.get(1)?);
        let point = if point.len() > 1 {
            point.strip_suffix(b"/").unwrap_or(&point)
        } else {
            &point
        };
        (point == mount.as_bytes()).then(|| Options {
            options: split(fields.get(3).copied().unwrap_or("defaults")),
            at: format!("/etc/fstab:{number}"),
        })
    });
    Ok(found)
}

fn unit_options(place: &dyn Place, unit: &str) -> Result<Option<Options>, Unlooked> {
    let Some(file) = units::file(place, unit)? else {
        return Ok(None);
    };
    let Some(text) = super::text(place, &file)? else {
        return Ok(None);
    };
    let keys = keys(&file, &text);
    let options = keys.iter().rfind(|key| key.section == "Mount" && key.name == "Options");
    Ok(Some(Options {
        options: split(options.map_or("", |key| key.value.as_str())),
        at: options.map_or_else(|| file.to_string(), |key| key.at.clone()),
    }))
}

/// An enabled service in /etc that runs `mount -o remount,OPTIONS PLACE`.
fn remounted(place: &dyn Place, mount: &TreePath) -> Result<Option<Options>, Unlooked> {
    let folder = path(units::FOLDERS[0])?;
    for name in place.list(&folder)?.unwrap_or_default() {
        let Some(name) = std::str::from_utf8(&name)
            .ok()
            .filter(|name| name.ends_with(".service"))
        else {
            continue;
        };
        let file = join(&folder, name.as_bytes())?;
        let Some(text) = super::text(place, &file)? else {
            continue;
        };
        for key in keys(&file, &text).into_iter().filter(|key| key.name == "ExecStart") {
            let words: Vec<&str> = key.value.split_whitespace().collect();
            let options = match words.as_slice() {
                [program, "-o", options, point]
                    if program.ends_with("/mount") && point.as_bytes() == mount.as_bytes() =>
                {
                    options.strip_prefix("remount,")
                }
                _ => None,
            };
            if let (Some(options), UnitState::Enabled(_)) = (options, units::state(place, name)?) {
                return Ok(Some(Options {
                    options: split(options),
                    at: key.at,
                }));
            }
        }
    }
    Ok(None)
}

/// A path as systemd names units after it: `/var/tmp` is `var-tmp`.
pub(crate) fn unit_stem(path: &[u8]) -> String {
    let inner = path.strip_prefix(b"/").unwrap_or(path);
    if inner.is_empty() {
        return "-".to_owned();
    }
    let mut stem = String::new();
    for (at, &byte) in inner.iter().enumerate() {
        match byte {
            b'/' => stem.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' => stem.push(char::from(byte)),
            b'.' if at > 0 => stem.push('.'),
            other => stem.push_str(&format!("\\x{other:02x}")),
        }
    }
    stem
}

/// Octal escapes of fstab and mountinfo (`\040` for a space).
fn unescaped(field: &str) -> Vec<u8> {
    let raw = field.as_bytes();
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let code = raw
            .get(at + 1..at + 4)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if raw[at] == b'\\' => {
                bytes.push(byte);
                at += 4;
            }
            _ => {
                bytes.push(raw[at]);
                at += 1;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_unit_in_etc_stands_before_fstab_and_that_before_a_package() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| {
            let place = root.path().join(name);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, content).unwrap();
        };
        let options = || {
            let tree = Tree::folder(root.path()).unwrap();
            configured(&tree, &"/tmp".parse().unwrap())
                .unwrap()
                .map(|found| found.options.join(","))
        };
        assert_eq!(options(), None);
        write(
            "usr/lib/systemd/system/tmp.mount",
            "[Mount]\nOptions=mode=1777,nosuid\n",
        );
        assert_eq!(options(), None);
        std::fs::create_dir_all(root.path().join("usr/lib/systemd/system/local-fs.target.wants")).unwrap();
        symlink(
            "../tmp.mount",
            root.path()
                .join("usr/lib/systemd/system/local-fs.target.wants/tmp.mount"),
        )
        .unwrap();
        assert_eq!(options().unwrap(), "mode=1777,nosuid");
        write("etc/fstab", "tmpfs /tmp/ tmpfs nodev,noexec 0 0\n");
        assert_eq!(options().unwrap(), "nodev,noexec");
        write("etc/systemd/system/tmp.mount", "[Mount]\nOptions=nosuid\n");
        assert_eq!(options().unwrap(), "nosuid");
    }

    #[test]
    fn the_kernels_own_view_is_read() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(
            root.path().join("proc/self/mountinfo"),
            "21 1 0:20 / /proc rw,nosuid shared:1 - proc proc rw,hidepid=invisible\n\
             22 1 0:21 / /a\\040b rw - tmpfs tmpfs rw,size=5k\n",
        )
        .unwrap();
        let tree = Tree::running_at(root.path()).unwrap();
        let options = running(&tree, &"/proc".parse().unwrap()).unwrap().unwrap().options;
        assert!(has(&options, "hidepid=2") && has(&options, "nosuid") && !has(&options, "size="));
        assert!(has(
            &running(&tree, &"/a b".parse().unwrap()).unwrap().unwrap().options,
            "size="
        ));
        assert_eq!(unit_stem(b"/dev/shm"), "dev-shm");
    }
}
