//! Cargo, spawned as if from a shell.

use std::env;
use std::path::Path;
use std::process::Command;

/// A cargo command in the workspace's root.
///
/// `cargo run` describes the running package in the environment. Build scripts that watch those variables would see
/// them change between a build started here and one started by hand, and build everything again each time.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(describes_the_package) {
            command.env_remove(name);
        }
    }
    command
}

fn describes_the_package(name: &str) -> bool {
    let exact = [
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_PATH",
        "CARGO_PRIMARY_PACKAGE",
        "CARGO_CRATE_NAME",
    ];
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_BIN_") || exact.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_person_stay() {
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "CARGO_BIN_NAME"] {
            assert!(describes_the_package(name), "{name}");
        }
        for name in [
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_TERM_COLOR",
            "CARGO_BUILD_JOBS",
            "RUSTFLAGS",
        ] {
            assert!(!describes_the_package(name), "{name}");
        }
    }
}
