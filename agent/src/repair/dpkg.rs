//! dpkg's own records: paragraphs of its status file, and its locks.

use std::fs::File;
use std::path::Path;

use manifest::Package;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// Locked by frontends and by dpkg itself, in this order.
const LOCKS: [&str; 2] = ["var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock"];

/// Paragraphs of a status file without the blank line after each.
fn paragraphs(text: &str) -> Vec<&str> {
    text.split("\n\n")
        .map(|part| part.trim_matches('\n'))
        .filter(|part| !part.is_empty())
        .collect()
}

fn field<'a>(paragraph: &'a str, name: &str) -> Option<&'a str> {
    paragraph
        .lines()
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// `name:architecture` of a paragraph.
fn key(paragraph: &str) -> Option<String> {
    Some(format!(
        "{}:{}",
        field(paragraph, "Package")?,
        field(paragraph, "Architecture")?
    ))
}

fn joined(paragraphs: &[&str]) -> String {
    paragraphs.iter().flat_map(|paragraph| [paragraph, "\n\n"]).collect()
}

/// The paragraph of a package in a status file.
pub(super) fn paragraph_of(status: &str, package: &str) -> Option<String> {
    paragraphs(status)
        .into_iter()
        .find(|part| key(part).as_deref() == Some(package))
        .map(str::to_owned)
}

/// A status file without a package.
pub(super) fn without(status: &str, package: &str) -> String {
    let mut kept = paragraphs(status);
    kept.retain(|part| key(part).as_deref() != Some(package));
    joined(&kept)
}

/// A status file with this paragraph for a package: in the place of the one it has, else behind the package that comes
/// before it in the image's own file.
pub(super) fn with(status: &str, package: &str, paragraph: &str, image_status: Option<&str>) -> String {
    let mut parts = paragraphs(status);
    let at = parts.iter().position(|part| key(part).as_deref() == Some(package));
    if let Some(at) = at {
        parts[at] = paragraph;
        return joined(&parts);
    }
    let keys: Vec<Option<String>> = parts.iter().map(|part| key(part)).collect();
    let order: Vec<Option<String>> = image_status
        .map(paragraphs)
        .unwrap_or_default()
        .iter()
        .map(|p| key(p))
        .collect();
    let here = order.iter().position(|key| key.as_deref() == Some(package));
    let before = here.map_or(&[][..], |here| &order[..here]);
    let after = before
        .iter()
        .rev()
        .find_map(|earlier| keys.iter().position(|key| key == earlier));
    let at = match (after, here) {
        (Some(after), _) => after + 1,
        (None, Some(_)) => 0,
        // dpkg sorts by name.
        (None, None) => keys
            .iter()
            .position(|key| key.as_deref() > Some(package))
            .unwrap_or(parts.len()),
    };
    parts.insert(at, paragraph);
    joined(&parts)
}

/// A paragraph from what the manifest says of a package, where the image's status file is not at hand: the rest is kept
/// as it was.
pub(super) fn made_up(package: &Package, current: Option<&str>) -> String {
    let fixed = [
        ("Package", package.name.as_str()),
        ("Status", "install ok installed"),
        ("Architecture", package.architecture.as_str()),
        ("Version", package.version.as_str()),
    ];
    let mut lines: Vec<String> = Vec::new();
    for line in current.unwrap_or_default().lines() {
        let name = line.split_once(':').map(|(name, _)| name);
        let value = fixed.iter().find(|(fixed, _)| Some(*fixed) == name);
        lines.push(value.map_or_else(|| line.to_owned(), |(name, value)| format!("{name}: {value}")));
    }
    for (name, value) in fixed {
        if !lines.iter().any(|line| line.starts_with(&format!("{name}:"))) {
            lines.push(format!("{name}: {value}"));
        }
    }
    lines.join("\n")
}

/// dpkg's locks, held until this is dropped.
#[derive(Debug)]
pub(super) struct Locks(#[expect(dead_code, reason = "closing them lets the locks go")] Vec<File>);

impl Locks {
    /// Takes the locks that are there (fcntl(2), as dpkg does).
    ///
    /// # Errors
    /// Who is in the way.
    pub fn take(base: &Path) -> Result<Self, String> {
        let mut held = Vec::new();
        for lock in LOCKS {
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::open(base.join(lock), flags, Mode::empty()) {
                Ok(file) => match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => held.push(File::from(file)),
                    Err(Errno::AGAIN | Errno::ACCESS) => {
                        return Err(format!(
                            "/{lock} is held by another program: packages are being changed"
                        ));
                    }
                    Err(error) => return Err(format!("/{lock}: {error}")),
                },
                // dpkg makes it when it first runs.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(format!("/{lock}: {error}")),
            }
        }
        Ok(Self(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2\nDescription: sh\n \
        Package: no\n\nPackage: less\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n\
        Package: zstd\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.5\n\n";

    #[test]
    fn one_paragraph_is_exchanged_and_the_rest_is_as_it_was() {
        let less = paragraph_of(IMAGE, "less:amd64").unwrap();
        let upgraded = IMAGE.replace("Version: 1\n", "Version: 2\nDepends: evil\n");
        assert_eq!(with(&upgraded, "less:amd64", &less, Some(IMAGE)), IMAGE);
        let removed = without(IMAGE, "less:amd64");
        assert!(!removed.contains("less"));
        assert_eq!(
            with(&removed, "less:amd64", &less, Some(IMAGE)),
            IMAGE,
            "it comes back to its place"
        );
        assert_eq!(with(&removed, "less:amd64", &less, None), IMAGE, "sorted by name");
        let first = paragraph_of(IMAGE, "bash:amd64").unwrap();
        assert_eq!(
            with(&without(IMAGE, "bash:amd64"), "bash:amd64", &first, Some(IMAGE)),
            IMAGE
        );
        assert_eq!(paragraph_of(IMAGE, "less:arm64"), None);
    }

    #[test]
    fn what_the_manifest_knows_makes_a_paragraph() {
        let package = Package {
            name: "less".into(),
            architecture: "amd64".into(),
            version: "1".into(),
        };
        let current =
            "Package: less\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2\nDescription: x\n y";
        assert_eq!(
            made_up(&package, Some(current)),
            current.replace("Version: 2", "Version: 1")
        );
        let new = made_up(&package, None);
        let read = crate::probe::parse_status(&new).unwrap();
        assert_eq!(read, [package]);
    }

    #[test]
    fn dpkg_at_work_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("var/lib/dpkg")).unwrap();
        assert!(Locks::take(base.path()).is_ok(), "nothing to lock");
        let lock = base.path().join(LOCKS[0]);
        std::fs::write(&lock, "").unwrap();
        // A lock of one's own process is no obstacle, so another one must hold it.
        let hold = "import fcntl,sys\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('held',flush=True)\n\
            sys.stdin.read()";
        let holder = std::process::Command::new("python3")
            .args(["-c", hold])
            .arg(&lock)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut holder) = holder else { return };
        let mut said = [0; 5];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).unwrap();
        let error = Locks::take(base.path()).unwrap_err();
        assert!(error.contains("lock-frontend is held"), "{error}");
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert!(Locks::take(base.path()).is_ok());
    }
}
