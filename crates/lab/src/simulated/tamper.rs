//! Changes on simulated nodes, as somebody with a shell would make them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result};

/// One thing that somebody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A configuration file edited.
    Sshd,
    /// The same edit of another file on many nodes: as if the baseline were wrong.
    Timesync,
    /// A mode opened up.
    Mode,
    /// A file that belongs nowhere.
    Added,
    /// A file gone.
    Removed,
    /// A link turned elsewhere.
    Link,
    /// A sysctl set by hand.
    Sysctl,
    /// A unit masked.
    Unit,
    /// A package's files and record gone.
    Package,
    /// A password hash changed.
    Secret,
}

impl Change {
    /// Makes the change below `root`; `who` makes contents differ where people's would.
    ///
    /// # Errors
    /// When the node does not hold what is to be changed.
    pub fn make(self, root: &Path, who: &str) -> Result<()> {
        let at = |path: &str| root.join(path);
        match self {
            Self::Sshd => append(
                &at("etc/ssh/sshd_config"),
                "\n# until the storage vendor is done\nPermitRootLogin yes\nPasswordAuthentication yes\n",
            ),
            Self::Timesync => append(&at("etc/systemd/timesyncd.conf"), "NTP=time-old.example.net\n"),
            Self::Mode => {
                let path = at("etc/crontab");
                let path = if path.exists() { path } else { at("etc/profile") };
                Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?)
            }
            Self::Added => {
                let path = at("etc/cron.d/collect-metrics");
                fs::create_dir_all(path.parent().context("a folder")?)?;
                Ok(fs::write(&path, format!("*/5 * * * * root /opt/{who}/collect\n"))?)
            }
            Self::Removed => Ok(fs::remove_file(at("etc/issue.net"))?),
            Self::Link => {
                let path = at("etc/localtime");
                let path = if path.is_symlink() { path } else { at("etc/mtab") };
                fs::remove_file(&path)?;
                Ok(symlink("/usr/share/zoneinfo/America/New_York", &path)?)
            }
            Self::Sysctl => Ok(fs::write(at("proc/sys/kernel/kptr_restrict"), "0\n")?),
            Self::Unit => {
                let path = at("etc/systemd/system/systemd-timesyncd.service");
                let _absent = fs::remove_file(&path);
                Ok(symlink("/dev/null", &path)?)
            }
            Self::Package => remove_package(root, super::image::WHOLE_PACKAGE),
            Self::Secret => append(&at("etc/shadow"), &format!("{who}:$y$j9T$x:20000:0:99999:7:::\n")),
        }
    }
}

fn append(path: &Path, text: &str) -> Result<()> {
    let mut content = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    content.push_str(text);
    // In one step, as editors do.
    let draft = path.with_extension("draft");
    fs::copy(path, &draft)?;
    fs::write(&draft, content)?;
    Ok(fs::rename(&draft, path)?)
}

/// What `dpkg --purge` leaves: no files, no paragraph, no lists.
fn remove_package(root: &Path, name: &str) -> Result<()> {
    let info = root.join("var/lib/dpkg/info");
    let list = fs::read_to_string(info.join(format!("{name}.list")))?;
    for path in list.lines() {
        let path = root.join(path.trim_start_matches('/'));
        if path.is_file() || path.is_symlink() {
            fs::remove_file(path)?;
        }
    }
    for entry in fs::read_dir(&info)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{name}.")) {
            fs::remove_file(entry.path())?;
        }
    }
    let status = root.join("var/lib/dpkg/status");
    let text = fs::read_to_string(&status)?;
    let heading = format!("Package: {name}\n");
    let kept: Vec<&str> = text
        .split_inclusive("\n\n")
        .filter(|paragraph| !paragraph.starts_with(&heading))
        .collect();
    Ok(fs::write(status, kept.concat())?)
}
