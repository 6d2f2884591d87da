//! `docs/hardening.md` is what the profiles say; `UPDATE_GOLDEN=1` writes it.

use std::path::Path;

use hardening::{document, profile_read, waivers_parse};

#[test]
fn the_document_is_what_the_profiles_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hardening.md");
    let text = document(&crate::support::profiles());
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let diff = similar::TextDiff::from_lines(kept.as_str(), &text);
    let shown = diff.unified_diff().context_radius(1).to_string();
    assert!(
        kept == text,
        "docs/hardening.md differs; UPDATE_GOLDEN=1 writes it:\n{shown}"
    );
}

#[test]
fn the_examples_in_the_document_are_taken() {
    let profiles = crate::support::profiles();
    let text = document(&profiles);
    let examples: Vec<&str> = text
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let [waivers, own] = examples.as_slice() else {
        panic!("{} examples", examples.len());
    };
    waivers_parse(Path::new("example"), waivers, &profiles[0]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(crate::support::profiles_folder()).unwrap() {
        let entry = entry.unwrap();
        std::os::unix::fs::symlink(
            entry.path().canonicalize().unwrap(),
            folder.path().join(entry.file_name()),
        )
        .unwrap();
    }
    let path = folder.path().join("login.yaml");
    std::fs::write(&path, own).unwrap();
    let profile = profile_read(&path).unwrap();
    assert!(profile.rules.iter().any(|rule| rule.id.as_str() == "SITE-01"));
}
