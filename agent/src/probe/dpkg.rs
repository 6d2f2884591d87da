//! Installed packages from dpkg's own record (`/var/lib/dpkg/status`, deb822), without running dpkg.

use manifest::Package;

/// Packages that are installed and in order, sorted. A package on hold counts as installed: what it is held at is its
/// version.
///
/// # Errors
/// The first installed package without a name, architecture or version.
pub fn parse_status(text: &str) -> Result<Vec<Package>, String> {
    let mut packages = Vec::new();
    for paragraph in text.split("\n\n") {
        let field = |name: &str| {
            let value = |line: &'_ str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
            paragraph.lines().find_map(value)
        };
        let status = field("Status").unwrap_or_default();
        if !status.ends_with(" ok installed") {
            continue;
        }
        let name = field("Package").unwrap_or_default();
        let (Some(architecture), Some(version), false) = (field("Architecture"), field("Version"), name.is_empty())
        else {
            return Err(format!(
                "/var/lib/dpkg/status: package {name:?} lacks a name, an architecture or a version"
            ));
        };
        packages.push(Package {
            name,
            architecture,
            version,
        });
    }
    packages.sort();
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let text = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\nDescription: x\n \
            Package: fake\n .\n\nPackage: perl\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 5\n\n\
            Package: half\nStatus: install reinstreq half-installed\nArchitecture: all\nVersion: 1\n\n\
            Package: bash\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 1:5.2-1\n";
        let found: Vec<_> = parse_status(text)
            .unwrap()
            .into_iter()
            .map(|p| format!("{} {} {}", p.name, p.architecture, p.version))
            .collect();
        assert_eq!(found, ["bash amd64 1:5.2-1", "libc6 amd64 2.36-9"]);
        let broken = text.replace("Version: 1:5.2-1\n", "");
        assert!(parse_status(&broken).unwrap_err().contains("bash"));
    }
}
