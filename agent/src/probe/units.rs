//! Unit file states, as `systemctl list-unit-files` reads them from the files.
//!
//! A program that hangs or fails has not looked, and no state is concluded.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use drift::Observation;

use crate::deploy::program::{ProgramError, run_bounded};

/// Time allowed to systemctl: it runs at idle priority, on nodes that have other work.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Where enabling a unit leaves its links.
const LINKS_FOLDER: &str = "/etc/systemd/system";
/// Ends of the folders in it whose links pull units in.
const DEPENDENCIES: [&str; 3] = [".wants", ".requires", ".upholds"];
/// Most names read from one folder.
const NAMES_MAX: usize = 10_000;
/// Largest listing, in bytes.
const LISTING_BYTES_MAX: u64 = 8 << 20;

/// States by unit name, from `list-unit-files --plain --no-legend --full`.
#[must_use]
pub fn parse_units(listing: &str) -> BTreeMap<String, String> {
    let unit = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    listing.lines().filter_map(unit).collect()
}

/// Has systemctl read the unit files below `folder`, and adds the instances of templates that links enable. Blocks.
///
/// # Errors
/// Why there is no answer.
pub fn list_units(folder: &Path) -> Result<BTreeMap<String, String>, Observation> {
    // `--root` evaluates the files itself, as the image builder did: the manager is not asked, which is busy right
    // after a start and answers a listing only within D-Bus's own 25 s.
    let root = format!("--root={}", folder.display());
    let arguments = [
        root.as_str(),
        "list-unit-files",
        "--no-legend",
        "--no-pager",
        "--plain",
        "--full",
    ];
    let listing = output("systemctl", &arguments, TIMEOUT)?;
    let mut units = parse_units(&listing);
    if units.is_empty() {
        return Err(error("systemctl listed no units".to_owned()));
    }
    for instance in enabled_instances(folder)? {
        // What has a file of its own under this name was listed.
        if template_of(&instance).is_some_and(|template| units.contains_key(&template)) {
            units.entry(instance).or_insert_with(|| "enabled".to_owned());
        }
    }
    Ok(units)
}

/// `getty@tty1.service` is made of `getty@.service`.
fn template_of(unit: &str) -> Option<String> {
    let (prefix, rest) = unit.split_once('@')?;
    let (instance, suffix) = rest.rsplit_once('.')?;
    (!instance.is_empty()).then(|| format!("{prefix}@.{suffix}"))
}

/// Instances that something is set to pull in. `list-unit-files` names files, and an instance that is enabled has none:
/// only a link in a folder of dependencies says so.
fn enabled_instances(root: &Path) -> Result<Vec<String>, Observation> {
    let mut instances = Vec::new();
    for folder in names_in(&super::under(root, LINKS_FOLDER))? {
        if !DEPENDENCIES.iter().any(|end| folder.ends_with(end)) {
            continue;
        }
        let names = names_in(&super::under(root, LINKS_FOLDER).join(&folder))?;
        instances.extend(names.into_iter().filter(|name| template_of(name).is_some()));
    }
    Ok(instances)
}

/// Names in a folder, as far as they are text; none where there is no such folder. More than are read are an error: an
/// instance among the rest would read as not enabled.
fn names_in(folder: &Path) -> Result<Vec<String>, Observation> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::PermissionDenied => Observation::Denied,
        _ => error(format!("{}: {source}", folder.display())),
    };
    let listing = match std::fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(source)
            if matches!(
                source.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(source) => return Err(failed(source)),
    };
    let mut names = Vec::new();
    for (index, entry) in listing.enumerate() {
        if index == NAMES_MAX {
            return Err(error(format!("{}: more than {NAMES_MAX} names", folder.display())));
        }
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    Ok(names)
}

fn output(program: &str, arguments: &[&str], timeout: Duration) -> Result<String, Observation> {
    let finished = run_bounded(program, arguments, timeout, LISTING_BYTES_MAX + 1).map_err(|failed| match failed {
        ProgramError::TimedOut { .. } => Observation::TimedOut,
        other => error(crate::deploy::chain(&other)),
    })?;
    if finished.output.len() as u64 > LISTING_BYTES_MAX {
        return Err(error(format!(
            "{program}: more than {LISTING_BYTES_MAX} bytes of output"
        )));
    }
    match finished.code {
        Some(0) => Ok(finished.output),
        Some(code) => Err(error(format!("{program}: exit code {code}"))),
        None => Err(error(format!("{program}: ended by a signal"))),
    }
}

fn error(detail: String) -> Observation {
    Observation::Error { detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_the_second_column() {
        let units = parse_units(
            "ssh.service        enabled  enabled\ngetty@.service enabled enabled\n\nproc-x.mount static -\nboot.mount generated -\n",
        );
        assert_eq!(units["getty@.service"], "enabled");
        assert_eq!(units["proc-x.mount"], "static");
        assert_eq!(units.len(), 4);
    }

    /// A tree with unit files and links, as systemctl reads it.
    fn states(files: &[(&str, &str)], links: &[(&str, &str)]) -> BTreeMap<String, String> {
        let base = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let path = base.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        for (path, text) in files {
            std::fs::write(place(path), text).unwrap();
        }
        for (path, target) in links {
            std::os::unix::fs::symlink(target, place(path)).unwrap();
        }
        list_units(base.path()).unwrap()
    }

    const INSTALL: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    const NO_INSTALL: &str = "[Service]\nExecStart=/bin/true\n";

    fn state<'a>(units: &'a BTreeMap<String, String>, unit: &str) -> Option<&'a str> {
        units.get(unit).map(String::as_str)
    }

    /// mondoohq/mql PR#8465: a link that leads nowhere enables nothing.
    #[test]
    fn mql_8465_a_dangling_link_is_no_enabled_unit() {
        let wants = "etc/systemd/system/multi-user.target.wants";
        let units = states(
            &[("usr/lib/systemd/system/there.service", INSTALL)],
            &["there.service", "gone.service", "gone@1.service"]
                .map(|name| (format!("{wants}/{name}"), format!("/usr/lib/systemd/system/{name}")))
                .each_ref()
                .map(|(path, target)| (path.as_str(), target.as_str())),
        );
        assert_eq!(state(&units, "there.service"), Some("enabled"));
        assert_eq!(state(&units, "gone.service"), None);
        assert_eq!(state(&units, "gone@1.service"), None);
    }

    #[test]
    fn a_folder_that_is_not_read_to_its_end_is_no_answer() {
        let base = tempfile::tempdir().unwrap();
        let wants = base.path().join("etc/systemd/system/x.target.wants");
        std::fs::create_dir_all(&wants).unwrap();
        for number in 0..=NAMES_MAX {
            std::os::unix::fs::symlink("/x", wants.join(format!("x@{number}.service"))).unwrap();
        }
        assert!(matches!(enabled_instances(base.path()), Err(Observation::Error { .. })));
        std::fs::remove_file(wants.join("x@0.service")).unwrap();
        assert_eq!(enabled_instances(base.path()).unwrap().len(), NAMES_MAX);
    }

    /// systemd/systemd#8328: a mask holds whatever drop-ins lie beside it, and a unit that is masked and was enabled
    /// before is masked.
    #[test]
    fn systemd_8328_masked_with_a_drop_in_is_masked() {
        let units = states(
            &[
                ("usr/lib/systemd/system/x.service", INSTALL),
                ("etc/systemd/system/x.service.d/limits.conf", "[Service]\nNice=1\n"),
                ("usr/lib/systemd/system/y.service", INSTALL),
                ("etc/systemd/system/y.service.d/limits.conf", "[Service]\nNice=1\n"),
            ],
            &[
                ("etc/systemd/system/x.service", "/dev/null"),
                (
                    "etc/systemd/system/multi-user.target.wants/x.service",
                    "/usr/lib/systemd/system/x.service",
                ),
            ],
        );
        assert_eq!(state(&units, "x.service"), Some("masked"));
        assert_eq!(state(&units, "y.service"), Some("disabled"));
    }

    /// ansible/ansible-modules-core PR#1877: an instance of a template is a unit of its own.
    #[test]
    fn ansible_1877_instances_have_states_of_their_own() {
        let template = "/usr/lib/systemd/system/x@.service";
        let units = states(
            &[("usr/lib/systemd/system/x@.service", INSTALL)],
            &[
                ("etc/systemd/system/multi-user.target.wants/x@1.service", template),
                ("etc/systemd/system/x@2.service", "/dev/null"),
                ("etc/systemd/system/multi-user.target.wants/x@2.service", template),
            ],
        );
        assert_eq!(state(&units, "x@1.service"), Some("enabled"));
        assert_eq!(
            state(&units, "x@2.service"),
            Some("masked"),
            "a mask is stronger than a link"
        );
        assert_eq!(state(&units, "x@3.service"), None);
    }

    /// inspec/inspec PR#637: a unit that cannot be enabled is `static`, which is not `disabled`.
    #[test]
    fn inspec_637_a_unit_without_install_is_static() {
        let units = states(
            &[
                ("usr/lib/systemd/system/x.service", NO_INSTALL),
                ("usr/lib/systemd/system/y.service", INSTALL),
            ],
            &[],
        );
        assert_eq!(state(&units, "x.service"), Some("static"));
        assert_eq!(state(&units, "y.service"), Some("disabled"));
    }

    #[test]
    fn no_answer_is_an_observation() {
        let short = Duration::from_millis(50);
        assert_eq!(output("sleep", &["100"], short), Err(Observation::TimedOut));
        assert!(matches!(output("false", &[], TIMEOUT), Err(Observation::Error { .. })));
        assert!(matches!(
            output("/no/such/program", &[], TIMEOUT),
            Err(Observation::Error { .. })
        ));
        assert_eq!(output("echo", &["x"], TIMEOUT), Ok("x\n".to_owned()));
    }
}
