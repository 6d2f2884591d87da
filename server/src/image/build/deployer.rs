//! Building the deployer: a kernel and one initramfs.
//!
//! Packages are only unpacked, never installed: programs, their libraries and the kernel modules of the recipe's list
//! are drawn from them into a tree that holds nothing else. Its manifest lists the two files that a loader fetches.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use manifest::{Digest, Entry, EntryKind, FileContent, Header, Kernel, ManifestKind, Package, PathClass, Xattrs};
use rustix::fs::{CWD, FileType, Mode};

use super::super::recipe::{DeployerRecipe, PackagesBase};
use super::super::store::ArtifactName;
use super::command::{command, output, require};
use super::debian::Extent;
use super::modules::{ModuleIndex, ModuleTexts};
use super::walk::Walk;
use super::{Build, BuildError, BuiltImage, debian, facts, files, identity, initramfs, programs, publish};

/// Most bytes of kernel and initramfs together: what firmware loads over a slow network and unpacks in 1 GiB.
const BOOT_BYTES_MAX: u64 = 80_000_000;
/// Folders of the tree beside those that files bring.
const FOLDERS: [&str; 13] = [
    "/dev",
    "/etc",
    "/mnt",
    "/proc",
    "/root",
    "/run",
    "/sys",
    "/tmp",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/sbin",
    "/var",
];
/// The links of a merged /usr.
const LINKS: [(&str, &str); 4] = [
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("sbin", "usr/sbin"),
];
/// Where the agent lies; the kernel starts it as `/init`.
const AGENT: &str = "/usr/bin/plumbline-agent";
/// The shell and everything small.
const BUSYBOX: &str = "/usr/bin/busybox";

pub(super) fn build(
    build: &Build,
    recipe: &DeployerRecipe,
    base: &PackagesBase,
    files_dir: &Path,
    agent_binary: Option<&Path>,
) -> Result<BuiltImage, BuildError> {
    let agent = agent_binary.unwrap_or(Path::new("plumbline-agent"));
    if !agent.is_file() {
        return Err(BuildError::InputMissing {
            what: "agent binary, which the deployer starts",
            path: agent.to_owned(),
        });
    }
    require(&[("depmod", "kmod")])?;
    let source = debian::tree(build, base, Extent::Unpack)?;
    let release = debian::kernel_release(&source)?;
    let packages = unpacked_packages(&source)?;
    build.check_lock(&packages)?;

    build.reporter.say("compose", "programs")?;
    let root = build.work.join("initramfs");
    skeleton(&root)?;
    for program in &recipe.programs {
        programs::copy(&source, &root, program)?;
    }
    copy_agent(agent, &root)?;
    link_applets(&root)?;
    copy_modules(build, recipe, &source, &root, &release)?;
    files::copy(files_dir, &root)?;
    files::apply_modes(&root, &recipe.modes)?;

    let classes = manifest::ClassRules::default();
    let walk = Walk {
        root: &root,
        classes: &classes,
        epoch: build.epoch,
        reporter: &build.reporter,
    };
    let entries = walk.entries()?;
    identity::check(&entries)?;
    check_interpreters(&root, &entries)?;
    let file = build.work.join("initrd.img");
    build.reporter.say("initramfs", format!("{} paths", entries.len()))?;
    initramfs::write(&root, &entries, &file, &build.reporter)?;

    let read = |path: &Path| fs::read(path).map_err(BuildError::io(format!("reading {}", path.display())));
    let kernel = read(&source.join("boot").join(format!("vmlinuz-{release}")))?;
    let archive = read(&file)?;
    check_boot_bytes(kernel.len() as u64, archive.len() as u64)?;
    let line = format!(
        "kernel {} KB, initramfs {} KB",
        kernel.len() / 1000,
        archive.len() / 1000
    );
    build.reporter.say("initramfs", line)?;
    store(build, recipe, release, packages, kernel, archive, &source)
}

/// The packages that the recipe draws from.
pub(super) fn packages(build: &Build, base: &PackagesBase) -> Result<Vec<Package>, BuildError> {
    unpacked_packages(&debian::tree(build, base, Extent::Unpack)?)
}

/// Loaders and the kernel's decompressor count in 32 bits, and BIOS machines have little memory below 4 GiB: what is
/// large is fetched by the deployer, never loaded with it.
fn check_boot_bytes(kernel: u64, archive: u64) -> Result<(), BuildError> {
    let found = kernel.saturating_add(archive);
    if found > BOOT_BYTES_MAX {
        return Err(BuildError::Size {
            what: "kernel and initramfs of a deployer",
            found,
            limit: BOOT_BYTES_MAX,
        });
    }
    Ok(())
}

fn store(
    build: &Build,
    recipe: &DeployerRecipe,
    release: String,
    packages: Vec<Package>,
    kernel: Vec<u8>,
    archive: Vec<u8>,
    source: &Path,
) -> Result<BuiltImage, BuildError> {
    let mut header = Header::new(ManifestKind::Deployer, recipe.name.as_str(), build.version.as_str());
    header.packages = packages;
    let (image, initramfs) = ("/boot/vmlinuz".parse()?, "/boot/initrd.img".parse()?);
    header.kernel = Some(Kernel {
        release,
        image,
        initramfs,
        command_line: recipe
            .kernel
            .command_line
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
    });
    let entry = |path: &str, content: &[u8]| -> Result<Entry, BuildError> {
        Ok(Entry {
            path: path.parse()?,
            class: PathClass::Pinned,
            kind: EntryKind::File(Some(FileContent {
                size: content.len() as u64,
                digest: Digest::of(content),
            })),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: build.epoch,
            xattrs: Xattrs::new(),
        })
    };
    let entries = vec![entry("/boot/vmlinuz", &kernel)?, entry("/boot/initrd.img", &archive)?];
    let artifacts = vec![
        (ArtifactName::Kernel, kernel.into()),
        (ArtifactName::Initramfs, archive.into()),
    ];
    let components = publish::bill_components(source, &header)?;
    publish::with_artifacts(build, header, entries, artifacts, components)
}

/// The packages that were unpacked, by their files in apt's cache.
fn unpacked_packages(source: &Path) -> Result<Vec<Package>, BuildError> {
    let failed = || BuildError::io("reading the package cache");
    let mut packages = Vec::new();
    for item in fs::read_dir(source.join("var/cache/apt/archives")).map_err(failed())? {
        let name = item.map_err(failed())?.file_name();
        packages.extend(name.to_str().and_then(facts::package_of_file));
    }
    packages.sort();
    Ok(packages)
}

fn skeleton(root: &Path) -> Result<(), BuildError> {
    let failed = |path: &str| BuildError::io(format!("making {path} of the initramfs"));
    fs::create_dir(root).map_err(failed("/"))?;
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).map_err(failed("/"))?;
    for folder in FOLDERS {
        files::create_folders(root, &folder.parse()?)?;
    }
    for (name, target) in LINKS {
        symlink(target, root.join(name)).map_err(failed(name))?;
    }
    // Until the agent mounts devtmpfs, the kernel opens the console and programs want somewhere to write.
    for (name, mode, (major, minor)) in [("dev/console", 0o600, (5, 1)), ("dev/null", 0o666, (1, 3))] {
        let path = root.join(name);
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(mode), device)
            .map_err(|error| failed(name)(error.into()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(failed(name))?;
    }
    Ok(())
}

fn copy_agent(agent: &Path, root: &Path) -> Result<(), BuildError> {
    let failed = || BuildError::io(format!("copying the agent {}", agent.display()));
    let target = root.join(AGENT.trim_start_matches('/'));
    fs::copy(agent, &target).map_err(failed())?;
    fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).map_err(failed())?;
    symlink(AGENT.trim_start_matches('/'), root.join("init")).map_err(failed())
}

/// Gives busybox its other names, except where a full program has the name already.
fn link_applets(root: &Path) -> Result<(), BuildError> {
    let mut busybox = command("chroot");
    busybox.arg(root).args([BUSYBOX, "--list"]);
    let names = output("busybox --list", busybox)?;
    for name in String::from_utf8_lossy(&names).lines() {
        let plain = !name.is_empty() && !name.contains('/');
        let taken = ["usr/bin", "usr/sbin"]
            .iter()
            .any(|folder| root.join(folder).join(name).symlink_metadata().is_ok());
        if plain && !taken {
            let link = root.join("usr/bin").join(name);
            symlink("busybox", link).map_err(BuildError::io(format!("linking {name} to busybox")))?;
        }
    }
    Ok(())
}

/// Copies the modules of the recipe with all they need, and the indexes over them.
fn copy_modules(
    build: &Build,
    recipe: &DeployerRecipe,
    source: &Path,
    root: &Path,
    release: &str,
) -> Result<(), BuildError> {
    depmod(source, release)?;
    let folder = format!("usr/lib/modules/{release}");
    let from = source.join(&folder);
    let text = |name: &str| {
        let path = from.join(name);
        fs::read_to_string(&path).map_err(BuildError::io(format!("reading {name} of the kernel")))
    };
    let (dep, builtin) = (text("modules.dep")?, text("modules.builtin")?);
    let (softdep, alias) = (text("modules.softdep")?, text("modules.alias")?);
    let texts = ModuleTexts {
        dep: &dep,
        builtin: &builtin,
        softdep: &softdep,
        alias: &alias,
    };
    let modules = ModuleIndex::parse(release, &texts)?.closure(&recipe.modules)?;
    let named: usize = recipe.modules.values().map(Vec::len).sum();
    let line = format!("{} kernel modules for the {named} named", modules.len());
    build.reporter.say("compose", line)?;
    let indexes = ["modules.builtin", "modules.builtin.modinfo", "modules.order"].map(str::to_owned);
    for file in modules.iter().chain(&indexes) {
        let path = format!("/{folder}/{file}").parse()?;
        let content = fs::read(from.join(file)).map_err(BuildError::io(format!("reading the kernel's {file}")))?;
        files::write(root, &path, &content)?;
    }
    depmod(root, release)
}

fn depmod(root: &Path, release: &str) -> Result<(), BuildError> {
    let mut depmod = command("depmod");
    depmod.arg("-b").arg(root).arg(release);
    output("depmod", depmod).map(|_| ())
}

/// Fails when a Perl or Python got in, or a script that wants one: they double the size, and what the agent needs of
/// them it should do itself.
fn check_interpreters(root: &Path, entries: &[Entry]) -> Result<(), BuildError> {
    let interpreter = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        ["perl", "python"].into_iter().find(|name| text.contains(name))
    };
    for entry in entries {
        let name = entry.path.name();
        let mut found = interpreter(name).filter(|found| name.starts_with(found.as_bytes()));
        if matches!(entry.kind, EntryKind::File(_)) && found.is_none() {
            found = first_line(&files::place(root, &entry.path))?.and_then(|line| interpreter(&line));
        }
        if let Some(found) = found {
            return Err(BuildError::Tree {
                path: entry.path.clone(),
                problem: format!("{found} has no place in a deployer"),
            });
        }
    }
    Ok(())
}

/// The `#!` line of a script.
fn first_line(path: &Path) -> Result<Option<Vec<u8>>, BuildError> {
    use std::io::Read;
    let failed = || BuildError::io(format!("reading {}", path.display()));
    let file = fs::File::open(path).map_err(failed())?;
    if file.metadata().map_err(failed())?.size() < 2 {
        return Ok(None);
    }
    let mut start = Vec::new();
    file.take(256).read_to_end(&mut start).map_err(failed())?;
    let script = start.starts_with(b"#!");
    Ok(script.then(|| start.split(|&b| b == b'\n').next().unwrap_or_default().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ipxe#526, warewulf#613, rhboot/grub2#102: what firmware and loaders could not hold is not built.
    #[test]
    fn ipxe_526_an_oversize_initramfs_is_refused() {
        let four_gib = 4_u64 << 30;
        assert!(check_boot_bytes(12 << 20, 50 << 20).is_ok());
        for (kernel, archive) in [
            (0, four_gib + 1),
            (four_gib, 1),
            (1, BOOT_BYTES_MAX),
            (u64::MAX, u64::MAX),
        ] {
            let error = check_boot_bytes(kernel, archive).unwrap_err();
            assert!(error.to_string().contains("kernel and initramfs"), "{error}");
        }
    }
    use crate::image::build::progress::Reporter;

    fn checked(path: &str, content: &str) -> Result<(), BuildError> {
        let tree = tempfile::tempdir().unwrap();
        let file = tree.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        let (reporter, _lines) = Reporter::channel();
        let classes = manifest::ClassRules::default();
        let walk = Walk {
            root: tree.path(),
            classes: &classes,
            epoch: 0,
            reporter: &reporter,
        };
        check_interpreters(tree.path(), &walk.entries().unwrap())
    }

    #[test]
    fn perl_and_python_are_found_by_name_and_by_script() {
        for (path, content) in [
            ("usr/bin/perl5.36", ""),
            ("usr/lib/python3/x", ""),
            ("usr/sbin/tool", "#!/usr/bin/env python3\nprint()\n"),
            ("usr/sbin/tool", "#! /usr/bin/perl -w\n"),
        ] {
            let error = checked(path, content).unwrap_err().to_string();
            assert!(error.contains("has no place"), "{error}");
        }
        checked("usr/bin/tool", "#!/bin/sh\n# written in perl once\n").unwrap();
        checked("usr/share/superlative", "perl").unwrap();
    }
}
