//! `docs/hardening.md` is what the profiles say; `UPDATE_GOLDEN=1` writes it.

use std::path::Path;

use hardening::document;

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
