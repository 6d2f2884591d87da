//! Sysctls: as the kernel has them, and as the files will set them at the next boot (sysctl.d(5)).
//!
//! Two different drifts: somebody ran `sysctl -w`, or somebody changed a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use drift::Observation;
use rustix::io::Errno;

use super::{read_text_or_absent, under};

/// Folders of sysctl.d(5), strongest first: a file masks one of the same name in a later folder.
pub(crate) const SYSCTL_FOLDERS: [&str; 4] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
];
/// Most files taken from one folder.
const FILES_MAX: usize = 10_000;

/// Values of `/proc/sys` for the keys that a baseline names. A key that the kernel does not have is `None`.
pub(crate) fn read_running<'a>(
    base: &Path,
    keys: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, Result<Option<String>, Observation>> {
    keys.map(|key| (key.clone(), read_key(base, key))).collect()
}

/// Where a key lies below `/proc/sys`; `None` for what is no key.
pub(crate) fn key_path(key: &str) -> Option<String> {
    let path = canonical(key);
    let is_odd = |part: &str| part.is_empty() || part == "." || part == "..";
    (!path.split('/').any(is_odd)).then_some(path)
}

fn read_key(base: &Path, key: &str) -> Result<Option<String>, Observation> {
    let Some(path) = key_path(key) else {
        return Err(Observation::Error {
            detail: format!("{key}: no sysctl key"),
        });
    };
    let file = under(base, "/proc/sys").join(path);
    match std::fs::read(&file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Ok(None),
            // Root is refused as well where nobody may read: the key is an action (`net.ipv4.route.flush`), not a value.
            Some(Errno::ACCESS | Errno::PERM) if is_write_only(&file) => Err(Observation::Unsupported),
            Some(Errno::ACCESS | Errno::PERM) => Err(Observation::Denied),
            _ => Err(Observation::Error {
                detail: format!("{key}: {error}"),
            }),
        },
    }
}

fn is_write_only(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o444 == 0)
}

/// The path of a key below `/proc/sys`: the first separator tells whether `.` or `/` separates; with `.` a `/` stands
/// for a dot within a name (`net.ipv4.conf.enp3s0/200.forwarding`).
fn canonical(key: &str) -> String {
    match key.find(['.', '/']) {
        Some(at) if key[at..].starts_with('.') => {
            let swap = |character| match character {
                '.' => '/',
                '/' => '.',
                other => other,
            };
            key.chars().map(swap).collect()
        }
        _ => key.to_owned(),
    }
}

/// What the lines of the files say, in the order in which they are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments {
    explicit: BTreeMap<String, Assigned>,
    patterns: Vec<(String, Assigned)>,
    excluded: Vec<String>,
    files: usize,
}

/// A value and the file it stands in, counted from 0 in the order of [`Assignments::add`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Assigned {
    value: String,
    file: usize,
}

impl Assignments {
    /// Adds a file; later files win.
    pub fn add(&mut self, text: &str) {
        let file = self.files;
        self.files += 1;
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            // A leading minus: do not complain when the kernel refuses the value.
            let (line, minus) = line.strip_prefix('-').map_or((line, false), |rest| (rest, true));
            match line.split_once('=') {
                Some((key, value)) => {
                    let value = value.trim().to_owned();
                    let (key, assigned) = (canonical(key.trim()), Assigned { value, file });
                    if key.contains(['*', '?', '[']) {
                        self.patterns.push((key, assigned));
                    } else {
                        self.explicit.insert(key, assigned);
                    }
                }
                // A minus and a key alone: patterns leave it out.
                None if minus => self.excluded.push(canonical(line.trim())),
                None => {}
            }
        }
    }

    /// What a key will be set to: by its own line, else by the last pattern that covers it and does not leave it out.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.assigned(key).map(|assigned| assigned.value.as_str())
    }

    /// The file that says so, counted from 0 in the order in which they were added.
    #[must_use]
    pub fn file_of(&self, key: &str) -> Option<usize> {
        self.assigned(key).map(|assigned| assigned.file)
    }

    fn assigned(&self, key: &str) -> Option<&Assigned> {
        let key = canonical(key);
        if let Some(assigned) = self.explicit.get(&key) {
            return Some(assigned);
        }
        if self.excluded.iter().any(|pattern| covers(pattern, &key)) {
            return None;
        }
        let last = self.patterns.iter().rev().find(|(pattern, _)| covers(pattern, &key));
        last.map(|(_, assigned)| assigned)
    }
}

/// Whether a pattern of path components, with `*` and `?` within a component, covers a key.
fn covers(pattern: &str, key: &str) -> bool {
    let pattern: Result<manifest::PathPattern, _> = format!("/{pattern}").parse();
    let key = manifest::TreePath::from_bytes(format!("/{key}").into_bytes());
    matches!((pattern, key), (Ok(pattern), Ok(key)) if pattern.matches(&key))
}

/// Persisted values of these keys by the texts of the files in the order in which they are applied.
#[must_use]
pub fn persisted_values<'text, 'key>(
    texts: impl IntoIterator<Item = &'text str>,
    keys: impl Iterator<Item = &'key String>,
) -> BTreeMap<String, String> {
    let mut assignments = Assignments::default();
    for text in texts {
        assignments.add(text);
    }
    keys.filter_map(|key| Some((key.clone(), assignments.get(key)?.to_owned())))
        .collect()
}

/// Reads the files of sysctl.d(5). A folder that cannot be read makes the answer unknown; a missing one is empty.
pub(super) fn read_persisted<'a>(
    base: &Path,
    keys: impl Iterator<Item = &'a String>,
) -> Result<BTreeMap<String, String>, Observation> {
    let (_, assignments) = persisted_sources(base)?;
    Ok(keys
        .filter_map(|key| Some((key.clone(), assignments.get(key)?.to_owned())))
        .collect())
}

/// The files of sysctl.d(5) in the order in which they are applied, as paths inside the tree and with links led to
/// where they end, and what they say.
///
/// # Errors
/// As [`read_persisted`].
pub(crate) fn persisted_sources(base: &Path) -> Result<(Vec<PathBuf>, Assignments), Observation> {
    let mut files: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for in_tree in SYSCTL_FOLDERS {
        let folder = under(base, in_tree);
        let listing = match std::fs::read_dir(&folder) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&folder, &error)),
        };
        for entry in listing.take(FILES_MAX) {
            let entry = entry.map_err(|error| failed(&folder, &error))?;
            let name = entry.file_name();
            if Path::new(&name)
                .extension()
                .is_some_and(|extension| extension == "conf")
            {
                let path = Path::new(in_tree).join(&name);
                files.entry(name).or_insert(path);
            }
        }
    }
    let (mut sources, mut assignments) = (Vec::new(), Assignments::default());
    for file in files.into_values() {
        if let Some(text) = read_file(base, &base.join(file.strip_prefix("/").unwrap_or(&file)))? {
            assignments.add(&text);
            sources.push(end_of_link(base, file));
        }
    }
    Ok((sources, assignments))
}

/// `/etc/sysctl.d/99-sysctl.conf` is a link to `../sysctl.conf` on Debian: the file that says something is that one.
fn end_of_link(base: &Path, file: PathBuf) -> PathBuf {
    let Ok(target) = std::fs::read_link(base.join(file.strip_prefix("/").unwrap_or(&file))) else {
        return file;
    };
    let mut path = if target.is_absolute() {
        PathBuf::from("/")
    } else {
        file.parent().map(Path::to_owned).unwrap_or_default()
    };
    for part in target.components() {
        match part {
            std::path::Component::Normal(name) => path.push(name),
            std::path::Component::ParentDir => {
                path.pop();
            }
            _ => {}
        }
    }
    path
}

/// A file of sysctl.d; a link to `/dev/null` masks, a link out of place (`99-sysctl.conf`) is followed.
fn read_file(base: &Path, file: &Path) -> Result<Option<String>, Observation> {
    match std::fs::read_link(file) {
        Ok(target) if target == Path::new("/dev/null") => Ok(None),
        Ok(target) if target.is_absolute() => read_text_or_absent(&under(base, &target.to_string_lossy())),
        _ => read_text_or_absent(file),
    }
}

fn failed(folder: &Path, error: &std::io::Error) -> Observation {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Observation::Denied,
        _ => Observation::Error {
            detail: format!("{}: {error}", folder.display()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn lines_are_read_as_systemd_reads_them() {
        let text = "# comment\n; comment\n\nkernel.a = 1 \nkernel/b=2\n-kernel.c= 3\nkernel.empty =\n\
            net.ipv4.conf.enp3s0/200.x = 5\nnonsense\nnet.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.all.rp_filter\n\
            net.ipv4.conf.lo.rp_filter = 0\n";
        let names = [
            "kernel.a",
            "kernel.b",
            "kernel.c",
            "kernel.empty",
            "net.ipv4.conf.enp3s0/200.x",
            "net.ipv4.conf.all.rp_filter",
            "net.ipv4.conf.eth0.rp_filter",
            "net.ipv4.conf.lo.rp_filter",
            "kernel.other",
        ];
        let keys = keys(&names);
        let values = persisted_values([text], keys.iter());
        let found: Vec<_> = names.iter().map(|name| values.get(*name).map(String::as_str)).collect();
        assert_eq!(
            found,
            [
                Some("1"),
                Some("2"),
                Some("3"),
                Some(""),
                Some("5"),
                None,
                Some("2"),
                Some("0"),
                None
            ]
        );
    }

    #[test]
    fn files_mask_and_follow_each_other() {
        let base = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = under(base.path(), path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("/usr/lib/sysctl.d/10-a.conf", "k.a=vendor\nk.b=vendor\n");
        write("/etc/sysctl.d/10-a.conf", "k.a=site\n");
        write("/usr/lib/sysctl.d/50-b.conf", "k.c=vendor\n");
        write("/run/sysctl.d/40-c.conf", "k.c=run\n");
        write("/usr/local/lib/sysctl.d/60-d.conf", "k.d=local\n");
        write("/usr/lib/sysctl.d/60-d.conf", "k.d=vendor\nk.e=vendor\n");
        write("/usr/lib/sysctl.d/70-e.conf", "k.f=masked\n");
        write("/etc/sysctl.d/readme.txt", "k.a=no\n");
        write("/etc/sysctl.conf", "k.a=last\n");
        std::os::unix::fs::symlink("/dev/null", under(base.path(), "/etc/sysctl.d/70-e.conf")).unwrap();
        let keys = keys(&["k.a", "k.b", "k.c", "k.d", "k.e", "k.f"]);
        let read = || read_persisted(base.path(), keys.iter()).unwrap();
        let expected = |a: &str| {
            BTreeMap::from([("k.a", a), ("k.c", "vendor"), ("k.d", "local")].map(|(k, v)| (k.to_owned(), v.to_owned())))
        };
        assert_eq!(read(), expected("site"));
        // Debian's way to the old file: absolute or relative.
        let link = under(base.path(), "/etc/sysctl.d/99-sysctl.conf");
        for target in ["../sysctl.conf", "/etc/sysctl.conf"] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(read(), expected("last"), "{target}");
            std::fs::remove_file(&link).unwrap();
        }
        std::fs::create_dir(under(base.path(), "/etc/sysctl.d/99-folder.conf")).unwrap();
        assert!(
            read_persisted(base.path(), keys.iter()).is_err(),
            "what cannot be read is unknown"
        );
    }

    /// thias/puppet-sysctl PR#72: the kernel lets nobody read these, and there is nothing to read.
    #[test]
    fn puppet_sysctl_72_a_key_that_is_only_written_to_has_no_value() {
        let keys = keys(&["net.ipv4.route.flush", "vm.compact_memory"]);
        let there: Vec<_> = keys
            .iter()
            .filter(|key| Path::new("/proc/sys").join(key_path(key).unwrap()).exists())
            .cloned()
            .collect();
        for (key, value) in read_running(Path::new("/"), there.iter()) {
            assert_eq!(value, Err(Observation::Unsupported), "{key}");
        }
    }

    /// ryran/xsos#96: missing is not empty.
    #[test]
    fn xsos_96_a_running_value_is_missing_empty_or_refused() {
        let base = tempfile::tempdir().unwrap();
        let folder = under(base.path(), "/proc/sys/net/ipv4/conf/enp3s0.200");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("x"), "1\t2\n").unwrap();
        std::fs::write(under(base.path(), "/proc/sys/empty"), "\n").unwrap();
        let keys = keys(&[
            "net.ipv4.conf.enp3s0/200.x",
            "empty",
            "missing",
            "net.ipv4",
            "../../etc/passwd",
            "a..b",
        ]);
        let mut values = read_running(base.path(), keys.iter()).into_values();
        let (up, twice, empty, missing, folder, value) = (
            values.next().unwrap(),
            values.next().unwrap(),
            values.next().unwrap(),
            values.next().unwrap(),
            values.next().unwrap(),
            values.next().unwrap(),
        );
        assert!(up.is_err() && twice.is_err() && folder.is_err());
        assert_eq!(empty, Ok(Some(String::new())));
        assert_eq!(missing, Ok(None));
        assert_eq!(value, Ok(Some("1\t2".to_owned())));
    }
}
