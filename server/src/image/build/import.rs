//! A tree from a root that was made elsewhere.
//!
//! The root is taken as it is, without what the recipe removes, and must be able to boot then: what is missing, and what
//! belongs to one machine, is told as one list. An image in a registry is pulled into a folder of the data folder that
//! outlives a pull which broke off, so that the next build goes on where that one stood.

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use imports::registry::{Credentials, Pull, pull};
use imports::{Bootable, Import, Initramfs, Limits, Missing, Source, Stage, bootable};
use manifest::{Digest, PathPattern};

use super::super::recipe::ImportedBase;
use super::command::{command_in, run};
use super::{Build, BuildError, files};

/// What is pulled from registries, while it is incomplete; in the data folder.
const PULLS_FOLDER: &str = "pulls";
/// Largest file with an account, in bytes.
const CREDENTIALS_BYTES_MAX: u64 = 4 << 10;
/// Lines of progress are this far apart.
const SAY_BYTES: u64 = 64 << 20;

/// A tree that can boot, and what it boots with.
pub(super) struct ImportedTree {
    pub(super) root: PathBuf,
    pub(super) bootable: Bootable,
}

/// Brings the root, and looks whether it can boot.
pub(super) fn tree(build: &Build, base: &ImportedBase, remove: &[PathPattern]) -> Result<ImportedTree, BuildError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BuildError::NotRoot);
    }
    let limits = Limits::default();
    let (source, pulled) = match base {
        ImportedBase::Path { path, tag } => (named(Source::detect(path, &limits)?, tag.as_deref()), None),
        ImportedBase::Registry { reference, .. } => {
            let folder = build
                .data_dir
                .join(PULLS_FOLDER)
                .join(Digest::of(reference.as_bytes()).to_string());
            (from_registry(build, base, &folder, &limits)?, Some(folder))
        }
    };
    let import = Import::open(source, &limits)?;
    if let Some(image) = import.image() {
        build.reporter.say("import", format!("image {}", image.digest))?;
    }
    let root = build.work.join("root");
    let imported = import.unpack_into(&root, &mut tell(build))?;
    if let Some(folder) = pulled {
        std::fs::remove_dir_all(&folder).map_err(BuildError::io(format!("removing {}", folder.display())))?;
    }
    for note in &imported.notes {
        build
            .reporter
            .say("import", format!("{}: {}", note.path, note.detail))?;
    }
    files::remove(&root, remove)?;
    let bootable = bootable(&root).map_err(|missing| BuildError::NotBootable(list(&missing)))?;
    for warning in &bootable.warnings {
        let line = format!("later missed: {}; {}", warning.problem, warning.remedy);
        build.reporter.say("import", line)?;
    }
    let line = format!(
        "{} {}, kernel {}",
        bootable.os.id,
        bootable.os.version_id.as_deref().unwrap_or_default(),
        bootable.kernel_version
    );
    build.reporter.say("import", line)?;
    Ok(ImportedTree { root, bootable })
}

fn named(source: Source, tag: Option<&str>) -> Source {
    let tag = tag.map(str::to_owned);
    match source {
        Source::Layout { path, .. } => Source::Layout { path, name: tag },
        Source::ImageArchive { path, .. } => Source::ImageArchive { path, name: tag },
        other => other,
    }
}

fn from_registry(build: &Build, base: &ImportedBase, folder: &Path, limits: &Limits) -> Result<Source, BuildError> {
    let ImportedBase::Registry {
        reference,
        plain_http,
        authority,
        credentials: account,
    } = base
    else {
        return Ok(Source::Folder {
            path: folder.to_owned(),
        });
    };
    let mut wanted = Pull::new(reference.clone(), folder);
    wanted.plain_http = *plain_http;
    if let Some(beside) = authority {
        let path = beside.path();
        let content = std::fs::read(&path).map_err(BuildError::io(format!("reading {}", path.display())))?;
        wanted.authorities.push(content);
    }
    wanted.credentials = account.as_deref().map(credentials).transpose()?;
    build.reporter.say("import", format!("pulling {reference}"))?;
    let mut tell = tell(build);
    Ok(build.runtime.block_on(pull(&wanted, limits, &mut tell))?)
}

/// One line `USER:PASSWORD` in a file that nobody else reads.
fn credentials(path: &Path) -> Result<Credentials, BuildError> {
    let failed = || BuildError::io(format!("reading the credentials {}", path.display()));
    let found = std::fs::metadata(path).map_err(failed())?;
    let wrong = |problem: &str| failed()(std::io::Error::other(problem.to_owned()));
    if found.permissions().mode() & 0o077 != 0 {
        return Err(wrong("others may read it, expected mode 0600"));
    }
    if found.len() > CREDENTIALS_BYTES_MAX {
        return Err(wrong("too large, expected one line USER:PASSWORD"));
    }
    let text = std::fs::read_to_string(path).map_err(failed())?;
    match text.trim_end().split_once(':') {
        Some((user, password)) if !user.is_empty() && !password.contains('\n') => Ok(Credentials {
            user: user.to_owned(),
            password: password.to_owned(),
        }),
        _ => Err(wrong("expected one line USER:PASSWORD")),
    }
}

/// Says how far an import is; stops it when nobody listens.
fn tell(build: &Build) -> impl FnMut(imports::Progress) -> ControlFlow<()> + Send + '_ {
    let mut said: Option<(Stage, u64)> = None;
    move |progress| {
        let is_due = said.is_none_or(|(stage, bytes)| {
            stage != progress.stage || progress.bytes_done >= bytes.saturating_add(SAY_BYTES)
        });
        if !is_due {
            return ControlFlow::Continue(());
        }
        said = Some((progress.stage, progress.bytes_done));
        let done = progress.bytes_done / 1_000_000;
        let line = match progress.bytes_total {
            Some(total) => format!("{done} of {} MB", total / 1_000_000),
            None => format!("{done} MB, {} entries", progress.entries),
        };
        let stage = match progress.stage {
            Stage::Pull => "pull",
            _ => "unpack",
        };
        match build.reporter.say(stage, line) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

fn list(missing: &[Missing]) -> String {
    let lines: Vec<_> = missing
        .iter()
        .map(|missing| format!("\n  {}\n    {}", missing.problem, missing.remedy))
        .collect();
    lines.concat()
}

/// Makes the initramfs anew with the root's own tool, so that what the recipe laid over the root is in it; keeps the one
/// that is there where the root has no tool. Gives its path.
pub(super) fn initramfs(build: &Build, tree: &ImportedTree) -> Result<String, BuildError> {
    let version = &tree.bootable.kernel_version;
    let has = |program: &str| tree.root.join("usr").join(program).exists() || tree.root.join(program).exists();
    if has("sbin/update-initramfs") {
        let mut update = command_in(&tree.root, "update-initramfs", build.epoch);
        update.args(["-c", "-k", version]);
        run("update-initramfs", "initramfs", update, &build.reporter)?;
        return Ok(format!("/boot/initrd.img-{version}"));
    }
    if has("bin/dracut") || has("sbin/dracut") {
        let path = format!("/boot/initramfs-{version}.img");
        let mut dracut = command_in(&tree.root, "dracut", build.epoch);
        // Nothing of the build machine's hardware decides what is in it.
        dracut.args(["--force", "--no-hostonly", "--reproducible", "--kver", version, &path]);
        run("dracut", "initramfs", dracut, &build.reporter)?;
        return Ok(path);
    }
    match &tree.bootable.initramfs {
        Initramfs::Present(path) => Ok(path.clone()),
        Initramfs::MadeBy(program) => Err(BuildError::Tree {
            path: program.parse()?,
            problem: "expected update-initramfs or dracut to make the initramfs".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_one_line_that_nobody_else_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("account");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            credentials(&path)
        };
        let account = write("builder:s3:cret\n", 0o600).unwrap();
        assert_eq!(
            (account.user.as_str(), account.password.as_str()),
            ("builder", "s3:cret")
        );
        let error = |result: Result<Credentials, BuildError>| {
            let error = result.unwrap_err();
            std::error::Error::source(&error)
                .map(ToString::to_string)
                .unwrap_or_default()
        };
        assert!(error(write("builder:s3cret\n", 0o644)).contains("expected mode 0600"));
        assert!(error(write("builder\n", 0o600)).contains("USER:PASSWORD"));
        assert!(error(write(":x\n", 0o600)).contains("USER:PASSWORD"));
    }
}
