//! What an image says of itself beside its files: packages, units, accounts, the kernel. Pure parsers, each over the
//! text of one file or one tool.

use manifest::{Group, Package, Unit, User};

use super::BuildError;

/// A field of a paragraph (deb822): continuation lines stay in the value, each after a line feed.
pub(super) struct Field<'a> {
    pub name: &'a str,
    pub value: String,
}

/// The fields of one paragraph; lines before the first field are passed over.
pub(super) fn paragraph_fields(paragraph: &str) -> Vec<Field<'_>> {
    let mut fields: Vec<Field<'_>> = Vec::new();
    for line in paragraph.lines() {
        if line.starts_with([' ', '\t']) {
            if let Some(field) = fields.last_mut() {
                field.value.push('\n');
                field.value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            let value = value.trim().to_owned();
            fields.push(Field { name, value });
        }
    }
    fields
}

/// Packages of dpkg's `status` file that are installed and in order, sorted.
pub(super) fn packages(status: &str) -> Result<Vec<Package>, BuildError> {
    let mut packages = Vec::new();
    let mut line = 1;
    for paragraph in status.split("\n\n") {
        let fields = paragraph_fields(paragraph);
        let value = |name: &str| {
            fields
                .iter()
                .find(|field| field.name == name)
                .map(|field| field.value.clone())
        };
        if value("Status").as_deref() == Some("install ok installed") {
            let (Some(name), Some(architecture), Some(version)) =
                (value("Package"), value("Architecture"), value("Version"))
            else {
                return Err(BuildError::Facts {
                    file: "/var/lib/dpkg/status",
                    line,
                    problem: "expected Package, Architecture and Version".to_owned(),
                });
            };
            packages.push(Package {
                name,
                architecture,
                version,
            });
        }
        line += paragraph.lines().count() + 1;
    }
    packages.sort();
    Ok(packages)
}

/// Packages of rpm's database as a manifest names them, sorted: epoch, version and release are the version.
pub(super) fn rpm_packages(packages: Vec<imports::rpm::RpmPackage>) -> Vec<Package> {
    let mut packages: Vec<_> = packages
        .into_iter()
        .map(|package| Package {
            version: package.evr(),
            name: package.name,
            architecture: package.architecture.unwrap_or_else(|| "none".to_owned()),
        })
        .collect();
    packages.sort();
    packages
}

/// A package named by its file, `name_version_architecture.deb`, with `%3a` for the colon of an epoch.
pub(super) fn package_of_file(name: &str) -> Option<Package> {
    let mut parts = name.strip_suffix(".deb")?.split('_');
    let (name, version, architecture) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || name.is_empty() {
        return None;
    }
    Some(Package {
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        version: version.replace("%3a", ":"),
    })
}

/// Accounts of `/etc/passwd`, sorted by name.
pub(super) fn users(passwd: &str) -> Result<Vec<User>, BuildError> {
    let mut users = Vec::new();
    for (at, line) in passwd.lines().enumerate() {
        let fields: Vec<_> = line.split(':').collect();
        let &[name, _, uid, gid, _, home, shell] = fields.as_slice() else {
            return Err(account_error("/etc/passwd", at, "expected seven fields"));
        };
        users.push(User {
            name: name.to_owned(),
            uid: number("/etc/passwd", at, uid)?,
            gid: number("/etc/passwd", at, gid)?,
            home: home.to_owned(),
            shell: shell.to_owned(),
        });
    }
    users.sort();
    Ok(users)
}

/// Groups of `/etc/group`, sorted by name.
pub(super) fn groups(group: &str) -> Result<Vec<Group>, BuildError> {
    let mut groups = Vec::new();
    for (at, line) in group.lines().enumerate() {
        let fields: Vec<_> = line.split(':').collect();
        let &[name, _, gid, members] = fields.as_slice() else {
            return Err(account_error("/etc/group", at, "expected four fields"));
        };
        let mut members: Vec<_> = members
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        members.sort();
        groups.push(Group {
            name: name.to_owned(),
            gid: number("/etc/group", at, gid)?,
            members,
        });
    }
    groups.sort();
    Ok(groups)
}

fn account_error(file: &'static str, at: usize, problem: &str) -> BuildError {
    BuildError::Facts {
        file,
        line: at + 1,
        problem: problem.to_owned(),
    }
}

fn number(file: &'static str, at: usize, text: &str) -> Result<u32, BuildError> {
    text.parse()
        .map_err(|_| account_error(file, at, &format!("{text:?}: expected a number")))
}

/// Unit file states from `systemctl list-unit-files --plain --no-legend`, sorted: those that somebody decides, which
/// are `enabled`, `disabled` and `masked`.
///
/// Left out are the states that follow from a unit's own file (`static`, `alias`, …) and templates: on a running node
/// systemd's generators turn some of them into `enabled-runtime` or `indirect`, each on the hardware it finds. Who
/// masks or enables one leaves a link below `/etc/systemd`, which is a path of its own.
pub(super) fn units(listing: &str) -> Vec<Unit> {
    let mut units: Vec<_> = listing
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (name, state) = (words.next()?, words.next()?);
            let decided = matches!(state, "enabled" | "disabled" | "masked");
            (decided && !name.contains('@')).then(|| Unit {
                name: name.to_owned(),
                state: state.to_owned(),
            })
        })
        .collect();
    units.sort();
    units
}

/// `PRETTY_NAME` of `os-release`.
pub(super) fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    let value = value.trim();
    let value = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .unwrap_or(value);
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: openssh-server\nStatus: install ok installed\nPriority: optional\nArchitecture: amd64\n\
        Source: openssh\nVersion: 1:9.2p1-2+deb12u7\nDescription: secure shell (SSH) server\n This is\n .\n Package: fake\n\n\
        Package: perl\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 5.36.0-7\n\n\
        Package: half\nStatus: install reinstreq half-installed\nArchitecture: all\nVersion: 1\n\n\
        Package: adduser\nStatus: install ok installed\nArchitecture: all\nVersion: 3.134\n";

    #[test]
    fn only_installed_packages_count() {
        let found: Vec<_> = packages(STATUS)
            .unwrap()
            .into_iter()
            .map(|p| format!("{} {} {}", p.name, p.architecture, p.version))
            .collect();
        assert_eq!(found, ["adduser all 3.134", "openssh-server amd64 1:9.2p1-2+deb12u7"]);
        let broken = STATUS.replace("Version: 3.134", "");
        let error = packages(&broken).unwrap_err().to_string();
        assert!(error.contains("/var/lib/dpkg/status line 22"), "{error}");
    }

    #[test]
    fn a_package_file_names_its_package() {
        let package = package_of_file("dmsetup_2%3a1.02.185-2_amd64.deb").unwrap();
        assert_eq!(
            (package.name.as_str(), package.version.as_str()),
            ("dmsetup", "2:1.02.185-2")
        );
        assert!(package_of_file("partial").is_none());
        assert!(package_of_file("a_b.deb").is_none());
    }

    #[test]
    fn accounts_are_read_and_sorted() {
        let users = users("root:x:0:0:root:/root:/bin/bash\nbin:*:2:2:bin:/bin:/usr/sbin/nologin\n").unwrap();
        assert_eq!(users[0].name, "bin");
        assert_eq!((users[1].uid, users[1].shell.as_str()), (0, "/bin/bash"));
        let groups = groups("sudo:x:27:zoe,adam\nroot:x:0:\n").unwrap();
        assert_eq!(groups[1].members, ["adam", "zoe"]);
        assert!(groups[0].members.is_empty());
        let error = super::users("root:x:0:0:root:/root:/bin/sh\nroot:x:zero:0::/:/\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("/etc/passwd line 2: \"zero\""), "{error}");
        assert!(
            super::groups("+:::extra:\n").is_err(),
            "NIS lines have no place in an image"
        );
    }

    #[test]
    fn units_and_names_are_read_from_what_the_tools_say() {
        let listing = "ssh.service       enabled  enabled\ngetty@.service enabled enabled\n\n\
            rescue.target static -\nsshd.service alias -\napt.timer masked enabled\nx.socket disabled enabled\n";
        let units: Vec<_> = units(listing)
            .into_iter()
            .map(|u| format!("{}={}", u.name, u.state))
            .collect();
        assert_eq!(units, ["apt.timer=masked", "ssh.service=enabled", "x.socket=disabled"]);
        let name = "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(pretty_name(name).unwrap(), "Debian GNU/Linux 12 (bookworm)");
    }
}
