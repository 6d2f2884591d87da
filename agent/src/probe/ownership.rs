//! Which files belong to the packages that differ.
//!
//! dpkg forgets the files of a package that was removed, and knows only the new ones of one that was upgraded. So the
//! lists are kept, as one file, whenever a scan finds the packages as they should be.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use drift::{Difference, FindingKind, Ownership};

use super::under;

/// Folder of dpkg's records of single packages.
pub(crate) const INFO: &str = "/var/lib/dpkg/info";
/// Largest list of one package, in bytes.
pub(crate) const LIST_BYTES_MAX: u64 = 32 << 20;
/// Most packages.
const PACKAGES_MAX: usize = 100_000;
/// Begins the part of one package; a list has only absolute paths.
const PACKAGE_MARK: &str = "package ";

/// Keeps all lists in `kept`, in one file. A failure only costs folding.
///
/// # Errors
/// When the lists cannot be read or written.
pub fn keep_package_lists(base: &Path, kept: &Path) -> std::io::Result<()> {
    let mut names: Vec<_> = std::fs::read_dir(under(base, INFO))?
        .take(PACKAGES_MAX * 16)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "list"))
        .collect();
    names.sort();
    let next = kept.with_extension("new");
    let mut writer = BufWriter::new(std::fs::File::create(&next)?);
    for path in names {
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        writeln!(writer, "{PACKAGE_MARK}{stem}")?;
        let list = std::fs::File::open(&path)?;
        std::io::copy(&mut list.take(LIST_BYTES_MAX), &mut writer)?;
        writeln!(writer)?;
    }
    writer.flush()?;
    std::fs::rename(&next, kept)
}

/// The files of the packages that these differences name: as they were kept, and as dpkg lists them now.
#[must_use]
pub fn ownership_of(differences: &[Difference], base: &Path, kept: &Path) -> Ownership {
    let of_packages = differences
        .iter()
        .filter(|difference| difference.kind == FindingKind::Package);
    let mut stems = BTreeSet::new();
    for difference in of_packages {
        stems.extend(list_stems(&difference.key));
    }
    let mut ownership = Ownership::default();
    if stems.is_empty() {
        return ownership;
    }
    for stem in stems.iter().filter(|stem| !stem.contains(['/', '\\'])) {
        if let Ok(list) = std::fs::File::open(under(base, INFO).join(format!("{stem}.list"))) {
            let mut bytes = Vec::new();
            if list.take(LIST_BYTES_MAX).read_to_end(&mut bytes).is_ok() {
                ownership.add_now(&bytes);
            }
        }
    }
    if let Err(error) = add_kept(&mut ownership, &stems, kept) {
        tracing::info!(path = %kept.display(), %error, "files of changed packages are shown one by one");
    }
    ownership
}

fn add_kept(ownership: &mut Ownership, stems: &BTreeSet<String>, kept: &Path) -> std::io::Result<()> {
    kept_list(kept, stems, |line| ownership.add_before(line))
}

/// The names under which dpkg may keep the records of `name:architecture`: by the package, with its architecture where
/// several may be installed side by side.
pub(crate) fn list_stems(package: &str) -> BTreeSet<String> {
    let name = package.split(':').next().unwrap_or_default();
    [package, name].map(str::to_owned).into()
}

/// Each line of the lists kept under these names.
///
/// # Errors
/// When the lists cannot be read.
pub(crate) fn kept_list(kept: &Path, stems: &BTreeSet<String>, mut line_of: impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut wanted = false;
    for line in BufReader::new(std::fs::File::open(kept)?).split(b'\n') {
        let line = line?;
        if let Some(stem) = line.strip_prefix(PACKAGE_MARK.as_bytes()) {
            wanted = str::from_utf8(stem).is_ok_and(|stem| stems.contains(stem));
        } else if wanted {
            line_of(&line);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use drift::{Attributes, fold_findings};

    use super::*;

    #[test]
    fn a_removed_package_still_stands_for_its_files() {
        let base = tempfile::tempdir().unwrap();
        let info = under(base.path(), INFO);
        std::fs::create_dir_all(&info).unwrap();
        std::fs::write(info.join("nginx.list"), "/.\n/usr/sbin/nginx\n/usr/share/nginx\n").unwrap();
        std::fs::write(info.join("libc6:amd64.list"), "/lib/libc.so\n").unwrap();
        let kept = base.path().join("package-files");
        keep_package_lists(base.path(), &kept).unwrap();
        std::fs::remove_file(info.join("nginx.list")).unwrap();
        let removed = |kind, key: &str| Difference {
            kind,
            key: key.to_owned(),
            expected: Some(Attributes::default()),
            actual: None,
        };
        let found = vec![
            removed(FindingKind::File, "/usr/lib/libc.so"),
            removed(FindingKind::File, "/usr/sbin/nginx"),
            removed(FindingKind::Package, "nginx:amd64"),
        ];
        let folded = fold_findings(found.clone(), &ownership_of(&found, base.path(), &kept));
        assert_eq!(
            folded.iter().map(|d| d.key.as_str()).collect::<Vec<_>>(),
            ["/usr/lib/libc.so", "nginx:amd64"]
        );
        let without = fold_findings(
            found.clone(),
            &ownership_of(&found, base.path(), &base.path().join("none")),
        );
        assert_eq!(without, found);
    }
}
