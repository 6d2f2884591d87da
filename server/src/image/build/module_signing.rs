//! Signing the kernel modules of a tree that its distribution did not sign.
//!
//! Under Secure Boot the kernel loads no other. Whatever DKMS or a vendor's package put below `updates` or `extra` gets
//! the site's signature, also in the place of one that DKMS made with a throwaway key; so does any plain module elsewhere
//! that has none. Compressed modules elsewhere are the distribution's, which signs before it compresses.

use std::path::{Path, PathBuf};

use super::super::MODULE_CERTIFICATE_PATH;
use super::super::module_key::{ModuleKey, is_signed};
use super::command::{command_in, output, require};
use super::{Build, BuildError, files};

/// Folders in each other below the modules of one kernel.
const DEPTH_MAX: usize = 16;
/// Modules of one kernel; Debian's has 4,500.
const MODULES_MAX: usize = 50_000;
/// Folders of a kernel's modules that are not the distribution's (depmod.d(5)).
const FOREIGN: [&str; 3] = ["updates", "extra", "weak-updates"];
/// The key pair that DKMS makes when it finds none.
const DKMS_KEYS: &str = "/var/lib/dkms/mok.*";
/// Endings of compressed modules, and the programs that undo it.
const COMPRESSED: [(&str, &str); 3] = [(".xz", "unxz"), (".gz", "gunzip"), (".zst", "unzstd")];

/// Signs what has to be signed, and lays the certificate beside it. Gives the number of modules.
pub(super) fn sign(build: &Build, root: &Path, release: &str) -> Result<usize, BuildError> {
    // What DKMS made for itself, also in a hook.
    files::remove(root, &[DKMS_KEYS.parse()?])?;
    let Some(folder) = modules_folder(root, release) else {
        return Ok(0);
    };
    let mut found = Vec::new();
    collect(&folder, false, 0, &mut found)?;
    if found.is_empty() {
        return Ok(0);
    }
    require(&[("openssl", "openssl")])?;
    let key = ModuleKey::load_or_create(&build.data_dir.join("keys"))?;
    for module in &found {
        let module = uncompressed(build, root, module)?;
        key.sign(&module)?;
    }
    // Names may have changed with the compression.
    let mut depmod = command_in(root, "depmod", build.epoch);
    depmod.arg(release);
    output("depmod", depmod)?;
    files::write(root, &MODULE_CERTIFICATE_PATH.parse()?, &key.certificate_der()?)?;
    build
        .reporter
        .say("modules", format!("{} signed with the site's key", found.len()))?;
    Ok(found.len())
}

/// Where the modules lie, with no link on the way.
fn modules_folder(root: &Path, release: &str) -> Option<PathBuf> {
    let places = ["usr/lib/modules", "lib/modules"].map(|place| root.join(place));
    let real = places.into_iter().find(|place| {
        let way = [place.parent(), Some(place)];
        way.into_iter()
            .flatten()
            .all(|path| path.symlink_metadata().is_ok_and(|found| found.is_dir()))
    })?;
    Some(real.join(release)).filter(|folder| folder.is_dir())
}

/// Modules to sign, in order of their paths.
fn collect(folder: &Path, foreign: bool, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), BuildError> {
    let failed = || BuildError::io(format!("reading {}", folder.display()));
    let mut items = Vec::new();
    for item in std::fs::read_dir(folder).map_err(failed())? {
        items.push(item.map_err(failed())?);
    }
    items.sort_by_key(std::fs::DirEntry::file_name);
    for item in items {
        let (path, name) = (item.path(), item.file_name());
        let name = name.to_string_lossy();
        let kind = item.file_type().map_err(failed())?;
        if kind.is_dir() {
            if depth >= DEPTH_MAX {
                return Err(failed()(std::io::Error::other("too many folders in each other")));
            }
            let foreign = foreign || (depth == 0 && FOREIGN.contains(&name.as_ref()));
            collect(&path, foreign, depth + 1, found)?;
        } else if kind.is_file() {
            let is_plain = name.ends_with(".ko");
            let is_compressed = COMPRESSED
                .iter()
                .any(|(ending, _)| name.ends_with(&format!(".ko{ending}")));
            let unsigned = |path: &Path| is_signed(path).map(|signed| !signed).map_err(failed());
            if foreign && (is_plain || is_compressed) || is_plain && unsigned(&path)? {
                found.push(path);
            }
        }
        if found.len() > MODULES_MAX {
            return Err(failed()(std::io::Error::other(format!(
                "more than {MODULES_MAX} modules to sign"
            ))));
        }
    }
    Ok(())
}

/// The module without its compression, undone by the tree's own program: a signature is on what is inside.
fn uncompressed(build: &Build, root: &Path, module: &Path) -> Result<PathBuf, BuildError> {
    let name = module.to_string_lossy();
    let Some((ending, program)) = COMPRESSED.iter().find(|(ending, _)| name.ends_with(ending)) else {
        return Ok(module.to_owned());
    };
    let inside = Path::new("/").join(module.strip_prefix(root).unwrap_or(module));
    let mut command = command_in(root, program, build.epoch);
    if *program == "unzstd" {
        command.args(["--quiet", "--rm"]);
    }
    command.arg(inside);
    output(program, command)?;
    Ok(PathBuf::from(name.trim_end_matches(ending)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_distribution_did_not_sign_is_found() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("usr/lib/modules/6.1");
        std::os::unix::fs::symlink("usr/lib", root.path().join("lib")).unwrap();
        let write = |path: &str, signed: bool| {
            let path = modules.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut content = b"ELF".to_vec();
            if signed {
                content.extend([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
                content.extend(b"~Module signature appended~\n");
            }
            std::fs::write(path, content).unwrap();
        };
        write("kernel/fs/ext4/ext4.ko", true);
        write("kernel/fs/xfs/xfs.ko.xz", false);
        write("kernel/own/forgotten.ko", false);
        write("updates/dkms/nvidia.ko", true);
        write("updates/dkms/nvidia-uvm.ko.xz", false);
        write("extra/readme.txt", false);
        let folder = modules_folder(root.path(), "6.1").unwrap();
        let mut found = Vec::new();
        collect(&folder, false, 0, &mut found).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|path| path.strip_prefix(&modules).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "kernel/own/forgotten.ko",
                "updates/dkms/nvidia-uvm.ko.xz",
                "updates/dkms/nvidia.ko"
            ]
        );
        assert_eq!(modules_folder(root.path(), "6.2"), None);
    }
}
