//! The direction of dependencies: protocol, manifest, drift ← lifecycle ← store ← server.
//!
//! Each member names the members it may use; one that is not in the table fails, so that a new crate gets its place
//! by decision. The agent must never link SQL, and the boot plane must stay usable without the rest.

use anyhow::{Result, bail};
use serde_json::Value;

/// What a member may depend on, in the workspace. Everything else there is refused.
const ALLOWED: [(&str, &[&str]); 15] = [
    ("manifest", &[]),
    ("yaml", &[]),
    ("drift", &["manifest"]),
    ("hardening", &["manifest", "yaml"]),
    ("protocol", &["manifest", "drift"]),
    ("netboot", &[]),
    ("imports", &[]),
    ("lifecycle", &["manifest", "drift", "protocol"]),
    ("store", &["manifest", "drift", "protocol", "lifecycle"]),
    (
        "plumbline",
        &[
            "manifest",
            "drift",
            "protocol",
            "lifecycle",
            "store",
            "netboot",
            "hardening",
            "imports",
            "yaml",
        ],
    ),
    ("plumbline-agent", &["manifest", "drift", "protocol", "hardening"]),
    (
        "testkit",
        &["manifest", "drift", "protocol", "lifecycle", "store", "netboot"],
    ),
    ("lab", &["manifest", "drift", "protocol", "netboot", "plumbline-agent"]),
    ("bench", &["manifest", "netboot", "store", "plumbline"]),
    ("xtask", &[]),
];

/// Who may use [`TEST_ONLY`] members in tests.
const TESTS_WITH_DATABASE: [&str; 3] = ["store", "plumbline", "lab"];
/// Members for tests alone.
const TEST_ONLY: [&str; 2] = ["testkit", "lab"];

/// Checks the workspace as `cargo metadata --no-deps` describes it.
///
/// # Errors
/// Lists every dependency that points the wrong way.
pub fn check(metadata: &Value) -> Result<()> {
    let wrong = wrong_dependencies(metadata);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("dependencies in the wrong direction:\n  {}", wrong.join("\n  "))
}

fn wrong_dependencies(metadata: &Value) -> Vec<String> {
    let packages = list(metadata, "packages");
    let members: Vec<&str> = packages.iter().filter_map(|package| text(package, "name")).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let Some(name) = text(package, "name") else { continue };
        let Some((_, allowed)) = ALLOWED.iter().find(|(member, _)| *member == name) else {
            wrong.push(format!(
                "{name} has no place in the table of crates/xtask/src/checks/dependencies.rs"
            ));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let Some(used) = text(dependency, "name").filter(|used| members.contains(used)) else {
                continue;
            };
            let for_tests = text(dependency, "kind") == Some("dev");
            let test_use = for_tests && TEST_ONLY.contains(&used) && TESTS_WITH_DATABASE.contains(&name);
            if !allowed.contains(&used) && !test_use {
                let kind = if for_tests { " (in tests)" } else { "" };
                wrong.push(format!("{name} → {used}{kind}"));
            }
        }
    }
    wrong
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A dependency's name and kind, as cargo writes it.
    type Dependency = (&'static str, Option<&'static str>);

    fn metadata(packages: &[(&str, &[Dependency])]) -> Value {
        let packages: Vec<Value> = packages
            .iter()
            .map(|(name, dependencies)| {
                let dependencies: Vec<Value> = dependencies
                    .iter()
                    .map(|(name, kind)| json!({ "name": name, "kind": kind }))
                    .collect();
                json!({ "name": name, "dependencies": dependencies })
            })
            .collect();
        json!({ "packages": packages })
    }

    #[test]
    fn the_planned_direction_passes() {
        let metadata = metadata(&[
            ("manifest", &[("serde", None)]),
            ("store", &[("manifest", None), ("sqlx", None), ("testkit", Some("dev"))]),
            ("plumbline", &[("store", None)]),
            ("testkit", &[("store", None)]),
        ]);
        assert_eq!(wrong_dependencies(&metadata), Vec::<String>::new());
    }

    #[test]
    fn each_wrong_direction_is_named() {
        let metadata = metadata(&[
            ("store", &[]),
            ("testkit", &[]),
            ("manifest", &[("store", None)]),
            ("netboot", &[("manifest", Some("dev"))]),
            ("plumbline-agent", &[("store", Some("build")), ("testkit", Some("dev"))]),
            ("plumbline", &[("testkit", None)]),
        ]);
        assert_eq!(
            wrong_dependencies(&metadata),
            [
                "manifest → store",
                "netboot → manifest (in tests)",
                "plumbline-agent → store",
                "plumbline-agent → testkit (in tests)",
                "plumbline → testkit",
            ]
        );
    }

    #[test]
    fn a_new_member_needs_a_place() {
        assert_eq!(wrong_dependencies(&metadata(&[("gadget", &[])])).len(), 1);
    }

    #[test]
    fn this_workspace_passes() {
        let workspace = crate::workspace::Workspace::find().unwrap();
        check(&workspace.metadata).unwrap();
    }
}
