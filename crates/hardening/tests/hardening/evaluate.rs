//! Waivers, and what could not be looked at.

use std::os::unix::fs::symlink;
use std::path::Path;

use hardening::{
    FILE_BYTES_MAX, Metadata, Place, Profile, Report, RuleResult, Tree, Unlooked, Waiver, evaluate, waivers_parse,
};
use manifest::TreePath;

use crate::support::{day, profiles};

fn base() -> Profile {
    profiles().remove(0)
}

fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let place = root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, content).unwrap();
    }
    root
}

fn report(files: &[(&str, &str)], waivers: &[Waiver], today: &str) -> Report {
    let root = root(files);
    evaluate(&base(), &Tree::folder(root.path()).unwrap(), waivers, day(today))
}

fn waivers(value: &str) -> Vec<Waiver> {
    let text = format!(
        "waivers:\n  - {{rule: SSH-01, reason: an old tool, approver: a.kovacs, expires_at: 2026-06-30{value}}}\n"
    );
    waivers_parse(Path::new("waivers.yaml"), &text, &base()).unwrap()
}

const OPEN: [(&str, &str); 1] = [("/etc/ssh/sshd_config", "PermitRootLogin yes\n")];

#[test]
fn a_waiver_holds_through_its_last_day_and_then_the_failure_says_so() {
    let result = |today| {
        report(&OPEN, &waivers(""), today)
            .rule("SSH-01")
            .unwrap()
            .result
            .clone()
    };
    let held = result("2026-06-30");
    assert!(
        matches!(&held, RuleResult::Waived { problems, .. } if problems.len() == 1),
        "{held:?}"
    );
    assert_eq!(held.why(), "an old tool (a.kovacs, until 2026-06-30)");
    let expired = result("2026-07-01");
    assert!(
        matches!(
            &expired,
            RuleResult::Failed {
                waiver_expired: Some(_),
                ..
            }
        ),
        "{expired:?}"
    );
    assert!(
        expired
            .why()
            .ends_with("; the waiver by a.kovacs expired after 2026-06-30"),
        "{}",
        expired.why()
    );
    let counts = report(&OPEN, &waivers(""), "2026-06-30").counts;
    assert_eq!(counts.waived, 1);
}

#[test]
fn a_waiver_for_one_value_lets_no_other_through() {
    let result = |value| {
        report(&OPEN, &waivers(value), "2026-06-01")
            .rule("SSH-01")
            .unwrap()
            .result
            .clone()
    };
    assert!(matches!(result(", value: \"yes\""), RuleResult::Waived { .. }));
    assert!(matches!(result(", value: forced"), RuleResult::Failed { .. }));
}

#[test]
fn a_rule_that_holds_needs_no_waiver() {
    let kept = [("/etc/ssh/sshd_config", "PermitRootLogin no\n")];
    let report = report(&kept, &waivers(""), "2026-06-01");
    assert_eq!(report.rule("SSH-01").unwrap().result, RuleResult::Passed);
}

#[test]
fn a_wrong_waiver_is_an_error_with_its_place() {
    for (text, place, problem) in [
        (
            "waivers:\n  - rule: SSH-99\n    reason: r\n    approver: a\n    expires_at: 2026-06-30\n",
            "w.yaml:2:11: ",
            "waiver for SSH-99, which profile base does not check",
        ),
        (
            "waivers:\n  - rule: NET-11\n    reason: r\n    approver: a\n    expires_at: 2026-06-30\n",
            "w.yaml:2:11: ",
            "NET-11",
        ),
        (
            "waivers:\n  - {rule: SSH-01, reason: r, approver: a, expires_at: 2026-06-31}\n",
            "w.yaml:2:",
            "no day",
        ),
        (
            "waivers:\n  - {rule: SSH-01, reason: ' ', approver: a, expires_at: 2026-06-30}\n",
            "w.yaml:2:",
            "needs a reason",
        ),
        (
            "waivers:\n  - {rule: SSH-01, reason: r, approver: a, expires_at: 2026-06-30}\n  - {rule: SSH-01, reason: r, approver: a, expires_at: 2026-06-30}\n",
            "w.yaml:3:",
            "second waiver",
        ),
        (
            "waivers:\n  - {rule: SSH-01, until: 2026-06-30}\n",
            "w.yaml:2:",
            "until",
        ),
    ] {
        let error = waivers_parse(Path::new("w.yaml"), text, &base())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(place) && error.contains(problem), "{error}");
    }
}

/// A place of which one path cannot be read.
struct Closed<'a>(&'a Tree, &'a str);

impl Closed<'_> {
    fn look(&self, path: &TreePath) -> Result<(), Unlooked> {
        if path.to_string().starts_with(self.1) {
            return Err(Unlooked::Unreadable {
                path: path.to_string(),
                problem: "Input/output error".to_owned(),
            });
        }
        Ok(())
    }
}

impl Place for Closed<'_> {
    fn read(&self, path: &TreePath) -> Result<Option<Vec<u8>>, Unlooked> {
        self.look(path).and_then(|()| self.0.read(path))
    }
    fn list(&self, path: &TreePath) -> Result<Option<Vec<Vec<u8>>>, Unlooked> {
        self.look(path).and_then(|()| self.0.list(path))
    }
    fn metadata(&self, path: &TreePath) -> Result<Option<Metadata>, Unlooked> {
        self.look(path).and_then(|()| self.0.metadata(path))
    }
    fn read_link(&self, path: &TreePath) -> Result<Option<Vec<u8>>, Unlooked> {
        self.look(path).and_then(|()| self.0.read_link(path))
    }
    fn walk(&self, _: &mut dyn FnMut(&TreePath, &Metadata)) -> Result<(), Unlooked> {
        self.look(&TreePath::root().join(b"etc").unwrap())
    }
    fn is_running(&self) -> bool {
        self.0.is_running()
    }
    fn command_line(&self) -> Result<String, Unlooked> {
        self.look(&"/proc/cmdline".parse().unwrap())
            .and_then(|()| self.0.command_line())
    }
}

#[test]
fn where_nothing_can_be_read_no_rule_passes() {
    let root = root(&[]);
    for tree in [
        Tree::folder(root.path()).unwrap(),
        Tree::running_at(root.path()).unwrap(),
    ] {
        for profile in profiles() {
            let report = evaluate(&profile, &Closed(&tree, "/"), &waivers(""), day("2026-06-01"));
            assert_eq!(report.counts.passed, 0, "{}", report.to_text());
            // All but the rules that are off.
            assert_eq!(report.counts.not_looked_at, profile.rules.len(), "{}", report.to_text());
        }
    }
}

#[test]
fn one_file_that_cannot_be_read_is_no_pass_of_what_it_could_break() {
    let files = [
        (
            "/etc/ssh/sshd_config",
            "Include /etc/ssh/sshd_config.d/*.conf\nPasswordAuthentication no\n",
        ),
        ("/etc/ssh/sshd_config.d/a.conf", "PasswordAuthentication yes\n"),
        ("/etc/sysctl.d/a.conf", "kernel.dmesg_restrict = 1\n"),
        ("/etc/sysctl.d/z.conf", "kernel.dmesg_restrict = 0\n"),
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"),
        ("/etc/shadow", "root::1::::::\n"),
    ];
    let root = root(&files);
    let tree = Tree::folder(root.path()).unwrap();
    for (closed, rule) in [
        ("/etc/ssh/sshd_config.d/a.conf", "SSH-02"),
        ("/etc/ssh/sshd_config.d", "SSH-02"),
        ("/etc/sysctl.d/z.conf", "KRN-03"),
        ("/etc/shadow", "ACC-03"),
        ("/etc/hosts.equiv", "ACC-11"),
        ("/etc", "FS-09"),
    ] {
        let report = evaluate(&base(), &Closed(&tree, closed), &[], day("2026-06-01"));
        let result = &report.rule(rule).unwrap().result;
        assert!(
            matches!(result, RuleResult::NotLookedAt { .. }),
            "{closed} {rule} {result:?}"
        );
        assert!(report.could_not_look().iter().any(|one| one.id.as_str() == rule));
    }
}

#[test]
fn a_file_over_the_bound_or_of_another_kind_is_no_pass() {
    let root = root(&[]);
    std::fs::create_dir_all(root.path().join("etc/ssh")).unwrap();
    std::fs::create_dir_all(root.path().join("etc/shadow")).unwrap();
    std::fs::write(root.path().join("etc/passwd"), "root:x:0:0:root:/root:/bin/bash\n").unwrap();
    let large = std::fs::File::create(root.path().join("etc/ssh/sshd_config")).unwrap();
    large.set_len(FILE_BYTES_MAX + 1).unwrap();
    let report = evaluate(&base(), &Tree::folder(root.path()).unwrap(), &[], day("2026-06-01"));
    for (rule, kind) in [("SSH-02", "is over"), ("ACC-01", "cannot be read")] {
        let result = &report.rule(rule).unwrap().result;
        assert!(
            matches!(result, RuleResult::NotLookedAt { .. }) && result.why().contains(kind),
            "{result:?}"
        );
    }
}

#[test]
fn a_link_in_a_root_never_reads_the_files_of_this_machine() {
    let outside = root(&[
        ("/sshd_config", "PasswordAuthentication no\n"),
        ("/d/a.conf", "kernel.dmesg_restrict = 1\n"),
    ]);
    let root = root(&[("/usr/sbin/sshd", "")]);
    std::fs::create_dir_all(root.path().join("etc/ssh")).unwrap();
    symlink(
        outside.path().join("sshd_config"),
        root.path().join("etc/ssh/sshd_config"),
    )
    .unwrap();
    symlink(outside.path().join("d"), root.path().join("etc/sysctl.d")).unwrap();
    let report = evaluate(&base(), &Tree::folder(root.path()).unwrap(), &[], day("2026-06-01"));
    for rule in ["SSH-02", "KRN-03"] {
        let result = &report.rule(rule).unwrap().result;
        assert!(matches!(result, RuleResult::Failed { .. }), "{rule} {result:?}");
    }
}

#[test]
fn a_report_is_in_order_and_says_what_was_found() {
    let files = [("/etc/ssh/sshd_config", "PermitRootLogin yes\x1b[2K\n")];
    let report = report(&files, &[], "2026-06-01");
    let ids: Vec<_> = report.rules.iter().map(|rule| rule.id.to_string()).collect();
    assert!(ids.is_sorted() && ids.len() == 92);
    let text = report.to_text();
    // What a file holds cannot write on the reader's terminal.
    assert!(
        text.contains("/etc/ssh/sshd_config:1: yes\\x1b[2K, expected PermitRootLogin no or"),
        "{text}"
    );
    assert!(text.contains("Built root of profile base on 2026-06-01: "), "{text}");
    let counts = &report.counts;
    let sum = counts.passed + counts.failed + counts.waived + counts.not_applicable + counts.not_looked_at;
    assert_eq!(sum, report.rules.len());
    let json = serde_json::to_string(&report).unwrap();
    assert!(
        json.contains(
            r#""id":"SSH-01","title":"root does not sign in by password","severity":"high","result":"failed""#
        ),
        "{json}"
    );
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn a_failure_in_the_files_stands_where_the_kernel_cannot_be_asked() {
    let root = root(&[("/etc/fstab", "tmpfs /tmp tmpfs nodev 0 0\n")]);
    let tree = Tree::running_at(root.path()).unwrap();
    let report = evaluate(&base(), &Closed(&tree, "/proc"), &[], day("2026-06-01"));
    for rule in ["FS-06", "MOD-01", "KRN-01"] {
        let result = &report.rule(rule).unwrap().result;
        assert!(matches!(result, RuleResult::Failed { .. }), "{rule} {result:?}");
    }
    let walks: Vec<_> = base()
        .rules
        .iter()
        .filter(|rule| rule.needs_walk())
        .map(|rule| rule.id.to_string())
        .collect();
    assert_eq!(walks, ["FS-09", "FS-10"]);
}
