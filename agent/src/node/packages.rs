//! dpkg of the machine.

use std::time::Duration;

use super::PackageManager;
use crate::deploy::program::run_ok;

/// Time allowed to dpkg: removal scripts stop services.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The machine's dpkg. It takes its own locks and says so when somebody else holds them.
#[derive(Clone, Copy, Debug)]
pub struct Dpkg;

impl PackageManager for Dpkg {
    fn purge(&self, package: &str) -> Result<(), String> {
        // Packages for all architectures are named without one.
        let name = package.strip_suffix(":all").unwrap_or(package);
        if !is_package_name(name) {
            return Err(format!("{package:?} is no name of a package"));
        }
        run_ok("dpkg", &["--purge", name], TIMEOUT)
            .map(drop)
            .map_err(|error| crate::deploy::chain(&error))
    }
}

/// Debian Policy 5.6.1, with an architecture: nothing that could be an option or a path.
pub(crate) fn is_package_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.:".contains(&byte);
    name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_an_option_or_a_path() {
        for good in ["libc6:amd64", "g++", "python3.11-minimal"] {
            assert!(is_package_name(good), "{good}");
        }
        for bad in ["", "--force-all", "../x", "a b", "A", "a/b"] {
            assert!(!is_package_name(bad), "{bad}");
            assert!(Dpkg.purge(bad).is_err());
        }
    }
}
