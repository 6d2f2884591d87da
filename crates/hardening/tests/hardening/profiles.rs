//! Reading profiles: what is wrong is said with its place.

use hardening::{Profile, profile_read};

use crate::support::profiles;

const RULE: &str = "id: SITE-01
    title: t
    rationale: r
    severity: low
    checks: [{sshd: {key: Banner, expect: {set: true}}}]";

fn read(files: &[(&str, String)]) -> Result<Profile, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    profile_read(&folder.path().join(files[0].0)).map_err(|error| error.to_string())
}

#[test]
fn a_wrong_profile_says_where_and_what() {
    let rules = |more: &str| format!("title: x\nrules:\n  - {RULE}\n    {more}\n");
    for (text, expected) in [
        (rules("unfixed: report_only").replace("low", "mild"), "a.yaml:6:15: "),
        (rules("unfixed: report_only").replace("SITE-01", "SITE-1"), "SITE-1"),
        (rules("unfixed: report_only").replace("sshd:", "sshd_key:"), "a.yaml:7:"),
        (
            rules("unfixed: report_only").replace("set: true", "matches: '('"),
            "no regular expression",
        ),
        (rules("unfixd: report_only"), "unfixd"),
        (rules("severity: low"), "a.yaml:8:"),
        (rules("applies_when: []"), "SITE-01 has no fixes"),
        (
            rules("unfixed: report_only\n    fixes: [{sshd: [Banner, none]}]"),
            "SITE-01 has fixes and `unfixed`",
        ),
        (
            "title: x\nchanges: [{id: SSH-01, reason: r}]\n".to_owned(),
            "changes SSH-01, which is not there",
        ),
        (
            "title: x\noff: [{id: SSH-01, reason: r}]\n".to_owned(),
            "turns off SSH-01, which is not on",
        ),
        ("title: x\nextends: ../b\n".to_owned(), "expected the name of a profile"),
        ("title: x\nextends: a\n".to_owned(), "extend one another"),
        ("title: x\nparts: [none.yaml]\n".to_owned(), "none.yaml"),
    ] {
        let error = read(&[("a.yaml", text.clone())]).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn a_profile_changes_turns_off_and_adds() {
    let base = format!("title: x\nrules:\n  - {RULE}\n    unfixed: report_only\n");
    let second = base.replace("SITE-01", "SITE-02");
    let own = RULE.replace("SITE-01", "SITE-03");
    let profile = read(&[
        (
            "own.yaml",
            format!(
                "title: own\nextends: base\nchanges:\n  - {{id: SITE-01, reason: r, severity: high, fixes: [{{sshd: [Banner, a]}}]}}\n\
                 off: [{{id: SITE-02, reason: why}}]\nrules:\n  - {own}\n    unfixed: outside\n"
            ),
        ),
        ("base.yaml", format!("{base}parts: [part.yaml]\n")),
        ("part.yaml", second.replace("title: x\n", "")),
    ])
    .unwrap();
    let ids: Vec<_> = profile.rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids, ["SITE-01", "SITE-03"]);
    assert_eq!(profile.rules[0].severity.as_str(), "high");
    assert!(profile.rules[0].unfixed.is_none() && profile.rules[0].fixes.len() == 1);
    assert_eq!(
        (profile.off[0].title.as_str(), profile.off[0].reason.as_str()),
        ("t", "why")
    );
}

#[test]
fn a_profile_travels_as_json() {
    for profile in profiles() {
        let json = serde_json::to_string(&profile).unwrap();
        let back: Profile = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), json);
    }
}
