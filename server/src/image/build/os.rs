//! Building an operating system root.

use std::path::Path;

use manifest::{Header, Kernel, ManifestKind, TreePath};

use super::super::recipe::{OsRecipe, UnitsRecipe};
use super::command::{command_in, output, run};
use super::debian::Extent;
use super::walk::Walk;
use super::{Build, BuildError, BuiltImage, clean, debian, facts, files, identity, publish};

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

pub(super) fn build(
    build: &Build,
    recipe: &OsRecipe,
    files_dir: &Path,
    loaders_dir: &Path,
) -> Result<BuiltImage, BuildError> {
    // What would fail at the end fails now.
    for (name, _) in LOADERS {
        let path = loaders_dir.join(name);
        if !path.is_file() {
            let what = "boot loader";
            return Err(BuildError::InputMissing { what, path });
        }
    }
    let root = debian::tree(
        build,
        &recipe.distribution,
        &recipe.kernel,
        &recipe.packages,
        Extent::Install,
    )?;
    let release = debian::kernel_release(&root)?;

    build.reporter.say("configure", "files, units, modes")?;
    clean::after_packages(&root)?;
    files::copy(files_dir, &root)?;
    if !recipe.sysctls.is_empty() {
        files::write(&root, &SYSCTL_FILE.parse()?, sysctl_text(recipe).as_bytes())?;
    }
    set_units(build, &root, &recipe.units)?;

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
            systemctl.args(["--root=/", verb, "--"]).args(units);
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
        command_line: recipe.kernel.command_line.clone(),
    });
    header.roots.clone_from(&recipe.roots);
    header.classes = recipe.classes.clone();
    header.packages = facts::packages(&read("/var/lib/dpkg/status")?)?;
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
    header.sysctls = recipe.sysctls.clone();
    header.modules_required = sorted(&recipe.modules_required);
    header.modules_forbidden = sorted(&recipe.modules_forbidden);
    Ok(header)
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    names
}
