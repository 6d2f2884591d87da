//! A cgroup for one build (cgroup v2, `Documentation/admin-guide/cgroup-v2.rst`), where the server may make one.
//!
//! It is made below the server's own cgroup, or below the root of the hierarchy: below its own only where that is
//! delegated and holds no process itself. Where neither has the memory controller (cgroup v1, a container), there is none,
//! and limits hold for each process instead.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::BuildLimits;

/// What the names of these cgroups begin with.
const NAME: &str = "plumbline-build-";
/// Most processes and threads of a build.
const PIDS_MAX: u32 = 8_192;
/// Length of a period of `cpu.max`, in microseconds.
const CPU_PERIOD_USEC: u64 = 100_000;
/// Share of the processors where others want them too; 100 is everybody's.
const CPU_WEIGHT: u32 = 20;
/// Tries to remove a cgroup whose last processes are ending, and the time between two.
const REMOVE_TRIES: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

/// A cgroup; it goes, with all that is in it, when dropped.
#[derive(Debug)]
pub struct BuildCgroup {
    dir: PathBuf,
}

impl BuildCgroup {
    /// Makes one with these limits.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub fn create(name: &str, limits: &BuildLimits) -> Result<Self, String> {
        let name = format!("{NAME}{name}");
        let mut why = String::new();
        for parent in parents()? {
            match Self::create_in(&parent, &name, limits) {
                Ok(made) => return Ok(made),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    fn create_in(parent: &Path, name: &str, limits: &BuildLimits) -> Result<Self, String> {
        // Refused where they are on already, or processes are in the parent itself: what counts is what comes of it.
        for controller in ["+memory", "+cpu", "+pids"] {
            let _ = set(&parent.join("cgroup.subtree_control"), controller);
        }
        let dir = parent.join(name);
        std::fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        // From here on it is removed on every way out.
        let made = Self { dir };
        if !made.dir.join("memory.max").exists() {
            return Err(format!("cgroup v2 at {} has no memory controller", parent.display()));
        }
        for (file, value, is_needed) in settings(limits) {
            let path = made.dir.join(file);
            if let (Err(error), true) = (set(&path, &value), is_needed) {
                return Err(format!("{}: {error}", path.display()));
            }
        }
        Ok(made)
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the kernel ended something in it for want of memory.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> bool {
        let events = std::fs::read_to_string(self.dir.join("memory.events"));
        events.is_ok_and(|events| oom_kills(&events) > 0)
    }

    /// Ends all that is in it.
    pub fn kill(&self) {
        let _ = set(&self.dir.join("cgroup.kill"), "1");
    }
}

impl Drop for BuildCgroup {
    fn drop(&mut self) {
        self.kill();
        for _ in 0..REMOVE_TRIES {
            if std::fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
        tracing::warn!(path = %self.dir.display(), "a build's cgroup is left behind");
    }
}

/// Removes what a server left that was killed. One with processes in it stays: the kernel refuses.
pub fn remove_left() {
    let parents = parents().unwrap_or_default();
    let items = parents
        .iter()
        .filter_map(|parent| std::fs::read_dir(parent).ok())
        .flatten();
    for item in items.flatten() {
        if item.file_name().as_encoded_bytes().starts_with(NAME.as_bytes()) {
            let _ = std::fs::remove_dir(item.path());
        }
    }
}

/// Where a build's cgroup may be made, the best place first.
fn parents() -> Result<Vec<PathBuf>, String> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let mount = mount_point(&read("/proc/self/mountinfo")?).ok_or("no cgroup v2 is mounted")?;
    let cgroup = read("/proc/self/cgroup")?;
    let own = own_path(&cgroup).ok_or("the server is in no cgroup v2")?;
    let below_own = mount.join(own.trim_start_matches('/'));
    Ok(match own {
        "/" => vec![mount],
        _ => vec![below_own, mount],
    })
}

/// Writes to a file that the kernel made.
fn set(path: &Path, value: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(value.as_bytes())
}

/// Files of a cgroup, what is written to them, and whether a cgroup without that is worth anything.
fn settings(limits: &BuildLimits) -> Vec<(&'static str, String, bool)> {
    let mut settings = vec![
        ("memory.max", limits.memory_bytes_max.to_string(), true),
        ("memory.swap.max", "0".to_owned(), false),
        // Half a build is of no use to anybody.
        ("memory.oom.group", "1".to_owned(), false),
        ("cpu.weight", CPU_WEIGHT.to_string(), false),
        ("pids.max", PIDS_MAX.to_string(), false),
    ];
    if let Some(percent) = limits.cpu_percent_max {
        let usec = u64::from(percent) * CPU_PERIOD_USEC / 100;
        settings.push(("cpu.max", format!("{usec} {CPU_PERIOD_USEC}"), true));
    }
    settings
}

/// Where cgroup v2 is mounted, from `/proc/self/mountinfo` (proc(5)).
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let is_cgroup2 = filesystem.split(' ').next() == Some("cgroup2");
        is_cgroup2.then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The path of a process in cgroup v2, from `/proc/self/cgroup` (cgroups(7)).
fn own_path(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::"))
}

/// `oom_kill` of `memory.events`.
fn oom_kills(events: &str) -> u64 {
    let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::child::Running;
    use super::*;

    fn limits() -> BuildLimits {
        BuildLimits {
            queued_max: 1,
            secs_max: 60,
            memory_bytes_max: 4 << 30,
            cpu_percent_max: Some(150),
            free_bytes_min: 0,
        }
    }

    #[test]
    fn the_kernels_files_are_read() {
        let mountinfo = "22 1 8:1 / / rw - ext4 /dev/vda rw\n\
            30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_point(mountinfo), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(mount_point("22 1 8:1 / / rw - ext4 /dev/vda rw\n"), None);
        let cgroup = "4:memory:/x\n0::/system.slice/plumbline.service\n";
        assert_eq!(own_path(cgroup), Some("/system.slice/plumbline.service"));
        assert_eq!(own_path("4:memory:/x\n"), None);
        assert_eq!(oom_kills("low 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 1\n"), 1);
        assert_eq!(oom_kills(""), 0);
    }

    #[test]
    fn limits_are_what_the_kernel_reads() {
        let settings = settings(&limits());
        let value = |name| {
            settings
                .iter()
                .find(|(file, ..)| *file == name)
                .map(|(_, value, _)| value.as_str())
        };
        assert_eq!(value("memory.max"), Some("4294967296"));
        assert_eq!(value("cpu.max"), Some("150000 100000"));
        assert_eq!(value("memory.oom.group"), Some("1"));
    }

    #[test]
    fn a_place_without_the_memory_controller_is_not_taken_and_left_as_it_was() {
        let parent = tempfile::tempdir().unwrap();
        let error = BuildCgroup::create_in(parent.path(), "x", &limits()).unwrap_err();
        assert!(error.contains("has no memory controller"), "{error}");
        assert!(!parent.path().join("x").exists());
    }

    /// As a build is started and ended, with something in the place of the build that takes all memory.
    #[tokio::test]
    #[ignore = "needs root and a cgroup v2 with the memory controller"]
    async fn a_cgroup_ends_what_takes_too_much_and_goes_with_all_in_it() {
        let limits = BuildLimits {
            memory_bytes_max: 64 << 20,
            ..limits()
        };
        let program = |script: &str, cgroup: &BuildCgroup| super::super::child::Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            cgroup: Some(cgroup.dir().to_owned()),
            memory_bytes_max: 0,
            has_namespace: true,
        };
        let cgroup = BuildCgroup::create("memory", &limits).unwrap();
        let dir = cgroup.dir().to_owned();
        let cpu = std::fs::read_to_string(dir.join("cpu.max"));
        assert_eq!(cpu.unwrap().trim(), "150000 100000");
        let mut greedy = Running::start(&program("tail /dev/zero; echo lives on", &cgroup)).unwrap();
        assert!(greedy.next().await.is_none(), "what is left of it ends, too");
        let status = greedy.end(Duration::from_secs(30)).await;
        assert!(cgroup.ran_out_of_memory(), "{status}");
        drop(cgroup);
        assert!(!dir.exists());

        let cgroup = BuildCgroup::create("kill", &limits).unwrap();
        let dir = cgroup.dir().to_owned();
        let mut waits = Running::start(&program("echo begun; setsid sleep 600", &cgroup)).unwrap();
        assert!(waits.next().await.is_some() && !cgroup.ran_out_of_memory());
        drop(cgroup);
        assert!(!dir.exists());
        assert!(waits.next().await.is_none());
        remove_left();
    }
}
