//! What a root filesystem on disk says of its packages.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use manifest::Package;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Component, Distribution, copyright, dpkg};

/// Largest file that is read, in bytes: dpkg's status of a large system is a few MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The components of a root; those of `packages` that the root says nothing of are in it by name and version alone.
///
/// Links are followed inside the root only: a package's copyright file is often a link to another's.
///
/// # Errors
/// The system's, with the path in it.
pub fn components(root: &Path, packages: &[Package]) -> std::io::Result<Vec<Component>> {
    let folder = rustix::fs::openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let read =
        |path: &str| read(&folder, path).map_err(|error| std::io::Error::new(error.kind(), format!("{path}: {error}")));
    let mut os_release = read("usr/lib/os-release")?;
    if os_release.is_none() {
        os_release = read("etc/os-release")?;
    }
    let distribution = Distribution::parse(&os_release.unwrap_or_default());
    let status = read("var/lib/dpkg/status")?.unwrap_or_default();
    let found = dpkg::components(&status, &distribution, |_| None);
    let known = |package: &Package| {
        let is_it = |one: &&Component| {
            one.name == package.name && one.architecture == package.architecture && one.version == package.version
        };
        found.iter().find(is_it).cloned()
    };
    let mut components = Vec::with_capacity(packages.len());
    for package in packages {
        let mut component = known(package).unwrap_or_else(|| Component::of_deb(package, &distribution));
        if component.license.is_none() {
            // Packages that were unpacked and not installed brought their files all the same.
            component.license = license_of(&read, &package.name)?;
        }
        components.push(component);
    }
    Ok(components)
}

fn license_of(read: &impl Fn(&str) -> std::io::Result<Option<String>>, name: &str) -> std::io::Result<Option<String>> {
    let text = read(&format!("usr/share/doc/{name}/copyright"))?;
    Ok(text.and_then(|text| copyright::license(&text)))
}

/// A file's text; none when there is no such file, or it is none.
fn read(root: &OwnedFd, path: &str) -> std::io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
    let file = match opened {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
