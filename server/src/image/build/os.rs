//! Building an operating system root.

use std::path::Path;

use manifest::{Header, Kernel, ManifestKind, Package, TreePath};

use super::super::recipe::{OsRecipe, UnitName, UnitsRecipe, Word};
use super::command::{command_in, output, run};
use super::debian::Extent;
use super::walk::Walk;
use super::{Build, BuildError, BuiltImage, accounts, clean, debian, facts, files, hooks, identity, publish, sources};

/// Where the recipe's sysctls are written.
const SYSCTL_FILE: &str = "/etc/sysctl.d/60-plumbline.conf";
/// Boot loaders: name in the loaders folder, path in the image. Firmware finds shim by the fallback name; shim looks
/// for `grubx64.efi` beside itself; that GRUB reads `/EFI/debian/grub.cfg`, which is rendered for each node. GRUB for
/// BIOS reads the same file; its two parts are copied from here to places outside the filesystems by the deployer.
const LOADERS: [(&str, &str); 4] = [
    ("shimx64.efi", "/boot/efi/EFI/BOOT/BOOTX64.EFI"),
    ("grubx64.efi.signed", "/boot/efi/EFI/BOOT/grubx64.efi"),
    ("grub-pc-boot.img", "/boot/grub/i386-pc/boot.img"),
    ("grub-pc-core.img", super::super::BIOS_CORE_PATH),
];

pub(super) fn build(build: &Build, recipe: &OsRecipe, loaders_dir: &Path) -> Result<BuiltImage, BuildError> {
    // What would fail at the end fails now.
    for (name, _) in LOADERS {
        let path = loaders_dir.join(name);
        if !path.is_file() {
            let what = "boot loader";
            return Err(BuildError::InputMissing { what, path });
        }
    }
    let root = debian::tree(build, &wanted(recipe), Extent::Install)?;
    build.check_lock(&installed(&root)?)?;
    let release = debian::kernel_release(&root)?;

    build.reporter.say("configure", "files, units, modes")?;
    clean::after_packages(&root)?;
    for folder in recipe.files_folders() {
        files::copy(&folder, &root)?;
    }
    for file in &recipe.files {
        files::write(&root, &file.path, file.content.as_bytes())?;
        let mode = file.mode.map_or(0o644, |mode| mode.0);
        files::set_owner_mode(&root, &file.path, file.uid, file.gid, mode)?;
    }
    keep_sources(&root, recipe)?;
    accounts::create(build, &root, recipe)?;
    if !recipe.sysctls.is_empty() {
        files::write(&root, &SYSCTL_FILE.parse()?, sysctl_text(recipe).as_bytes())?;
    }
    set_units(build, &root, &recipe.units)?;
    for hook in &recipe.hooks {
        hooks::run(build, &root, hook, recipe.hook_secs_max)?;
    }

    let mut update = command_in(&root, "update-initramfs", build.epoch);
    update.args(["-c", "-k", &release]);
    run("update-initramfs", "initramfs", update, &build.reporter)?;

    copy_loaders(&root, loaders_dir)?;
    files::remove(&root, &recipe.remove)?;
    clean::at_the_end(&root)?;
    create_what_boot_would(build, &root)?;
    // After everything that writes: the recipe has the last word on modes.
    files::apply_modes(&root, &recipe.modes)?;

    let walk = Walk {
        root: &root,
        classes: &recipe.classes,
        epoch: build.epoch,
        reporter: &build.reporter,
    };
    let entries = walk.entries()?;
    identity::check(&entries)?;
    let header = header(build, recipe, &root, &release)?;
    publish::tree(build, header, entries, &root)
}

/// The packages that the recipe comes to.
pub(super) fn packages(build: &Build, recipe: &OsRecipe) -> Result<Vec<Package>, BuildError> {
    installed(&debian::tree(build, &wanted(recipe), Extent::Install)?)
}

fn wanted(recipe: &OsRecipe) -> debian::Wanted<'_> {
    debian::Wanted {
        distribution: &recipe.distribution,
        keyring: recipe.distribution_keyring.as_ref(),
        apt_sources: &recipe.apt_sources,
        kernel: &recipe.kernel,
        packages: &recipe.packages,
    }
}

fn installed(root: &Path) -> Result<Vec<Package>, BuildError> {
    let status = std::fs::read_to_string(root.join("var/lib/dpkg/status"));
    facts::packages(&status.map_err(BuildError::io("reading dpkg's status"))?)
}

/// Writes the sources that nodes are to know, too.
fn keep_sources(root: &Path, recipe: &OsRecipe) -> Result<(), BuildError> {
    for (source, beside) in recipe.apt_sources.iter().filter(|(source, _)| source.keep) {
        let (content, extension) = sources::keyring(beside)?;
        let keyring = format!("/etc/apt/keyrings/{}.{extension}", source.name);
        files::write(root, &keyring.parse()?, &content)?;
        let list = format!("/etc/apt/sources.list.d/{}.sources", source.name);
        let text = sources::of_source(source, Path::new(&keyring));
        files::write(root, &list.parse()?, text.as_bytes())?;
    }
    Ok(())
}

fn sysctl_text(recipe: &OsRecipe) -> String {
    let mut text = "# Written when the image was built.\n".to_owned();
    for (key, value) in &recipe.sysctls {
        text.push_str(&format!("{key} = {value}\n"));
    }
    text
}

/// Enables, disables and masks units with the image's own systemctl, in that order: a mask wins.
fn set_units(build: &Build, root: &Path, units: &UnitsRecipe) -> Result<(), BuildError> {
    let verbs = [
        ("enable", &units.enable),
        ("disable", &units.disable),
        ("mask", &units.mask),
    ];
    for (verb, units) in verbs {
        if !units.is_empty() {
            let mut systemctl = command_in(root, "systemctl", build.epoch);
            systemctl
                .args(["--root=/", verb, "--"])
                .args(units.iter().map(UnitName::as_str));
            output(&format!("systemctl {verb}"), systemctl)?;
        }
    }
    Ok(())
}

fn copy_loaders(root: &Path, loaders_dir: &Path) -> Result<(), BuildError> {
    for (name, path) in LOADERS {
        let loader = loaders_dir.join(name);
        let content = std::fs::read(&loader).map_err(BuildError::io(format!("reading {}", loader.display())))?;
        files::write(root, &path.parse()?, &content)?;
    }
    files::create_folders(root, &"/boot/efi/EFI/debian".parse::<TreePath>()?)
}

/// Makes the folders, links and empty files that systemd-tmpfiles would make at every node's first boot, so that they
/// are in the manifest and no drift. Those that need the machine's id are passed over.
fn create_what_boot_would(build: &Build, root: &Path) -> Result<(), BuildError> {
    let mut tmpfiles = command_in(root, "systemd-tmpfiles", build.epoch);
    tmpfiles.arg("--create");
    for prefix in ["/etc", "/home", "/opt", "/root", "/srv", "/usr", "/var"] {
        tmpfiles.arg(format!("--prefix={prefix}"));
    }
    match output("systemd-tmpfiles", tmpfiles) {
        // 65 and 73 say that single lines could not be carried out, which is so for lines that name %m.
        Err(BuildError::Program { status, .. }) if status.ends_with(": 65") || status.ends_with(": 73") => Ok(()),
        result => result.map(|_| ()),
    }
}

fn header(build: &Build, recipe: &OsRecipe, root: &Path, release: &str) -> Result<Header, BuildError> {
    let read = |path: &str| {
        let text = std::fs::read_to_string(root.join(path.trim_start_matches('/')));
        text.map_err(BuildError::io(format!("reading {path}")))
    };
    let mut header = Header::new(ManifestKind::Os, recipe.name.as_str(), build.version.as_str());
    header.description = facts::pretty_name(&read("/usr/lib/os-release")?);
    header.kernel = Some(Kernel {
        release: release.to_owned(),
        image: format!("/boot/vmlinuz-{release}").parse()?,
        initramfs: format!("/boot/initrd.img-{release}").parse()?,
        command_line: recipe
            .kernel
            .command_line
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
    });
    header.roots.clone_from(&recipe.roots);
    header.classes = recipe.classes.clone();
    header.packages = installed(root)?;
    let mut systemctl = command_in(root, "systemctl", build.epoch);
    systemctl.args([
        "--root=/",
        "list-unit-files",
        "--no-legend",
        "--no-pager",
        "--plain",
        "--full",
    ]);
    let listing = output("systemctl list-unit-files", systemctl)?;
    header.units = facts::units(&String::from_utf8_lossy(&listing));
    header.users = facts::users(&read("/etc/passwd")?)?;
    header.groups = facts::groups(&read("/etc/group")?)?;
    let sysctls = recipe.sysctls.iter();
    header.sysctls = sysctls
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    header.modules_required = sorted(&recipe.modules_required);
    header.modules_forbidden = sorted(&recipe.modules_forbidden);
    Ok(header)
}

fn sorted(names: &[Word]) -> Vec<String> {
    let mut names: Vec<_> = names.iter().map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    names
}
