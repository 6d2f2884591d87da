//! sysctl.d(5): what the files set at boot.
//!
//! Files go by name over all folders, a name in /etc standing before the same one in /run and /usr; a later file wins.
//! A key with a wildcard sets what no line names outright; `-key` without a value takes it out of such.

use manifest::wildcard_matches;

use super::{drop_ins, lines};
use crate::place::{Place, Unlooked};

pub(crate) const FOLDERS: [&str; 4] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
];

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Dotted name, maybe with wildcards.
    pub(crate) key: String,
    /// `None`: taken out of wildcards.
    pub(crate) value: Option<String>,
    /// Path and line.
    pub(crate) at: String,
    /// Name of the file it stands in.
    pub(crate) file: String,
}

/// All lines of all files, in the order in which they are applied.
pub(crate) fn assignments(place: &dyn Place) -> Result<Vec<Assignment>, Unlooked> {
    let mut assignments = Vec::new();
    for (path, text) in drop_ins(place, &FOLDERS, ".conf")? {
        let file = String::from_utf8_lossy(path.name()).into_owned();
        for (number, line) in lines(&text).filter(|(_, line)| !line.starts_with(';')) {
            let (key, value) = match line.split_once('=') {
                Some((key, value)) => (key.trim().trim_start_matches('-'), Some(words(value))),
                None => match line.strip_prefix('-') {
                    Some(key) => (key.trim(), None),
                    None => continue,
                },
            };
            assignments.push(Assignment {
                key: dotted(key),
                value,
                at: format!("{path}:{number}"),
                file: file.clone(),
            });
        }
    }
    Ok(assignments)
}

/// What the key will be at boot, and where that is said.
pub(crate) fn effective<'a>(assignments: &'a [Assignment], key: &str) -> Option<(&'a str, &'a str)> {
    let named = assignments.iter().rev().find(|one| one.key == key);
    if let Some(named) = named {
        return named.value.as_deref().map(|value| (value, named.at.as_str()));
    }
    let matches = |pattern: &str| {
        let (pattern, key) = (pattern.split('.'), key.split('.'));
        pattern.clone().count() == key.clone().count()
            && pattern
                .zip(key)
                .all(|(pattern, part)| wildcard_matches(pattern.as_bytes(), part.as_bytes()))
    };
    assignments
        .iter()
        .rev()
        .filter(|one| one.key.contains('*') || one.key.contains('?'))
        .find(|one| matches(&one.key))
        .and_then(|one| one.value.as_deref().map(|value| (value, one.at.as_str())))
}

/// Where the kernel shows a key.
pub(crate) fn running_path(key: &str) -> String {
    // In the dotted form a slash stands for a dot of a name (a VLAN interface).
    let swapped: String = key
        .chars()
        .map(|character| match character {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect();
    format!("/proc/sys/{swapped}")
}

/// White space as one space.
pub(crate) fn words(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The dotted form: when the first separator is a slash, slashes separate and dots belong to names.
fn dotted(key: &str) -> String {
    if key.find(['.', '/']).is_some_and(|at| key[at..].starts_with('/')) {
        key.chars()
            .map(|character| match character {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect()
    } else {
        key.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_go_by_name_and_etc_stands_before_usr() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| {
            let place = root.path().join(name);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, content).unwrap();
        };
        write(
            "usr/lib/sysctl.d/50-default.conf",
            "a.b = 1\nc.d = 1\nnet.ipv4.conf.*.rp_filter = 2\n",
        );
        write(
            "etc/sysctl.d/60-site.conf",
            "; comment\n-a.b=2\nnet/ipv4/conf/eth0.5/forwarding = 1\n-net.ipv4.conf.lo.rp_filter\n",
        );
        write("usr/lib/sysctl.d/99-protect.conf", "c.d = 3\n");
        write("usr/lib/sysctl.d/70-masked.conf", "a.b = 9\n");
        write("etc/sysctl.d/99-protect.conf", "c.d = 4  5\n");
        symlink("/dev/null", root.path().join("etc/sysctl.d/70-masked.conf")).unwrap();
        let all = assignments(&Tree::folder(root.path()).unwrap()).unwrap();
        assert_eq!(effective(&all, "a.b"), Some(("2", "/etc/sysctl.d/60-site.conf:2")));
        assert_eq!(effective(&all, "c.d").unwrap().0, "4 5");
        assert_eq!(effective(&all, "net.ipv4.conf.eth0/5.forwarding").unwrap().0, "1");
        assert_eq!(
            running_path("net.ipv4.conf.eth0/5.forwarding"),
            "/proc/sys/net/ipv4/conf/eth0.5/forwarding"
        );
        assert_eq!(effective(&all, "net.ipv4.conf.all.rp_filter").unwrap().0, "2");
        assert_eq!(effective(&all, "net.ipv4.conf.lo.rp_filter"), None);
        assert_eq!(effective(&all, "x.y"), None);
    }
}
