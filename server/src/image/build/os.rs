//! Building an operating system root.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ::hardening::{Applied, Demands};
use manifest::{Header, Kernel, ManifestKind, Package, TreePath};

use super::super::recipe::{Base, OsRecipe, UnitName, UnitsRecipe, Word};
use super::command::{command_in, output, run};
use super::debian::Extent;
use super::import::ImportedTree;
use super::walk::Walk;
use super::{
    Build, BuildError, BuiltImage, accounts, clean, debian, facts, files, hardening, hooks, identity, import,
    module_signing, publish, sources,
};

/// Where the recipe's sysctls are written.
const SYSCTL_FILE: &str = "/etc/sysctl.d/60-plumbline.conf";
/// Boot loaders: name in the loaders folder, path in the image. Firmware finds shim by the fallback name; shim looks
/// for `grubx64.efi` beside itself, and for `mmx64.efi` when somebody wants a key enrolled; that GRUB reads `/EFI/debian/grub.cfg`, which is rendered for each node. GRUB for
/// BIOS reads the same file; its two parts are copied from here to places outside the filesystems by the deployer.
const LOADERS: [(&str, &str); 5] = [
    ("shimx64.efi", "/boot/efi/EFI/BOOT/BOOTX64.EFI"),
    ("grubx64.efi.signed", "/boot/efi/EFI/BOOT/grubx64.efi"),
    ("mmx64.efi", "/boot/efi/EFI/BOOT/mmx64.efi"),
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
    let demands = demands(build, recipe)?;
    let command_line = hardening::command_line(recipe.command_line.as_ref(), &demands);
    let brought = tree(build, recipe, &demands)?;
    let root = brought.root().to_owned();
    build.check_lock(&installed(&root)?)?;

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
    // Before the rules are: one about vfat depends on there being an EFI system partition.
    copy_loaders(&root, loaders_dir)?;
    let hardened = match &recipe.hardening {
        Some(hardening) => hardening::bring_about(build, &root, hardening)?,
        None => Applied::default(),
    };

    let kernel = kernel(build, &brought, command_line)?;

    files::remove(&root, &recipe.remove)?;
    clean::at_the_end(&root)?;
    create_what_boot_would(build, &root)?;
    // After everything that writes: the recipe has the last word on modes.
    files::apply_modes(&root, &recipe.modes)?;
    if let Some(hardening) = &recipe.hardening {
        hardening::look(build, &root, hardening, &kernel.command_line)?;
    }

    let walk = Walk {
        root: &root,
        classes: &recipe.classes,
        epoch: build.epoch,
        reporter: &build.reporter,
    };
    let entries = walk.entries()?;
    identity::check(&entries)?;
    let header = header(build, recipe, &root, kernel, hardened)?;
    publish::tree(build, header, entries, &root)
}

/// The packages that the recipe comes to.
pub(super) fn packages(build: &Build, recipe: &OsRecipe) -> Result<Vec<Package>, BuildError> {
    installed(tree(build, recipe, &demands(build, recipe)?)?.root())
}

fn demands(build: &Build, recipe: &OsRecipe) -> Result<Demands, BuildError> {
    let hardening = recipe.hardening.as_ref();
    let demands = hardening.map(|hardening| hardening::wanted(build, hardening, recipe.base.packages()));
    Ok(demands.transpose()?.unwrap_or_default())
}

/// What the recipe's base comes to, with nothing of the recipe's own.
enum Brought {
    Installed(PathBuf),
    Imported(Box<ImportedTree>),
}

impl Brought {
    fn root(&self) -> &Path {
        match self {
            Self::Installed(root) => root,
            Self::Imported(tree) => &tree.root,
        }
    }
}

fn tree(build: &Build, recipe: &OsRecipe, demands: &Demands) -> Result<Brought, BuildError> {
    match &recipe.base {
        Base::Packages(base) => {
            let mut base = base.clone();
            base.packages = hardening::packages(&base.packages, demands)?;
            Ok(Brought::Installed(debian::tree(build, &base, Extent::Install)?))
        }
        Base::Imported(base) => {
            let tree = import::tree(build, base, &recipe.remove)?;
            Ok(Brought::Imported(Box::new(tree)))
        }
    }
}

/// Signs modules, makes the initramfs, and says what the image boots.
fn kernel(build: &Build, brought: &Brought, command_line: String) -> Result<Kernel, BuildError> {
    let (release, image, initramfs) = match brought {
        Brought::Installed(root) => {
            let release = debian::kernel_release(root)?;
            module_signing::sign(build, root, &release)?;
            let mut update = command_in(root, "update-initramfs", build.epoch);
            update.args(["-c", "-k", &release]);
            run("update-initramfs", "initramfs", update, &build.reporter)?;
            let (image, initramfs) = (
                format!("/boot/vmlinuz-{release}"),
                format!("/boot/initrd.img-{release}"),
            );
            (release, image, initramfs)
        }
        Brought::Imported(tree) => {
            module_signing::sign(build, &tree.root, &tree.bootable.kernel_version)?;
            let initramfs = import::initramfs(build, tree)?;
            (
                tree.bootable.kernel_version.clone(),
                tree.bootable.kernel.clone(),
                initramfs,
            )
        }
    };
    Ok(Kernel {
        release,
        image: image.parse()?,
        initramfs: initramfs.parse()?,
        command_line,
    })
}

/// Installed packages by dpkg's or rpm's own records.
fn installed(root: &Path) -> Result<Vec<Package>, BuildError> {
    match std::fs::read_to_string(root.join("var/lib/dpkg/status")) {
        Ok(status) => facts::packages(&status),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(facts::rpm_packages(imports::rpm::packages(root)?))
        }
        Err(error) => Err(BuildError::io("reading dpkg's status")(error)),
    }
}

/// Writes the sources that nodes are to know, too.
fn keep_sources(root: &Path, recipe: &OsRecipe) -> Result<(), BuildError> {
    let Base::Packages(base) = &recipe.base else {
        return Ok(());
    };
    for (source, beside) in base.apt_sources.iter().filter(|(source, _)| source.keep) {
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

fn header(
    build: &Build,
    recipe: &OsRecipe,
    root: &Path,
    kernel: Kernel,
    hardened: Applied,
) -> Result<Header, BuildError> {
    let read = |path: &str| {
        let text = std::fs::read_to_string(root.join(path.trim_start_matches('/')));
        text.map_err(BuildError::io(format!("reading {path}")))
    };
    let mut header = Header::new(ManifestKind::Os, recipe.name.as_str(), build.version.as_str());
    header.description = facts::pretty_name(&read("/usr/lib/os-release")?);
    header.kernel = Some(kernel);
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
    // The recipe's own word on a key counts; whether it will do for the profile has been looked at.
    header.sysctls = hardened.sysctls;
    let sysctls = recipe.sysctls.iter();
    header
        .sysctls
        .extend(sysctls.map(|(key, value)| (key.to_string(), value.to_string())));
    header.modules_required = names(&recipe.modules_required).into_iter().collect();
    let mut forbidden = hardened.modules_forbidden;
    forbidden.extend(names(&recipe.modules_forbidden));
    header.modules_forbidden = forbidden.into_iter().collect();
    Ok(header)
}

fn names(words: &[Word]) -> BTreeSet<String> {
    words.iter().map(ToString::to_string).collect()
}
