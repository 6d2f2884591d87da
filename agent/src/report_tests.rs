use drift::{Attributes, Observation, TreeFindings};

use super::*;

fn difference(kind: FindingKind, key: &str, actual: &str) -> Difference {
    Difference {
        kind,
        key: key.to_owned(),
        expected: None,
        actual: Some(Attributes::from_pairs([("x", actual)])),
    }
}

fn file(key: &str, actual: &str) -> Difference {
    difference(FindingKind::File, key, actual)
}

fn unknown(kind: FindingKind, key: &str) -> Unknown {
    Unknown {
        kind,
        key: key.to_owned(),
        observation: Observation::Denied,
    }
}

fn state(
    files: Vec<Difference>,
    facts: Vec<Difference>,
    unknowns: Vec<Unknown>,
    earlier: Option<&Acknowledged>,
) -> NodeState {
    let (file_unknowns, fact_unknowns): (Vec<_>, Vec<_>) = unknowns
        .into_iter()
        .partition(|unknown| unknown.kind == FindingKind::File);
    let tree = TreeScan {
        findings: TreeFindings {
            difference_count: files.len() as u64,
            unknown_count: file_unknowns.len() as u64,
            differences: files,
            unknown: file_unknowns,
            ..TreeFindings::default()
        },
        roots: Vec::new(),
        hashed_bytes: 0,
    };
    let facts = FactFindings {
        differences: facts,
        unknown: fact_unknowns,
        facts_by_kind: BTreeMap::new(),
    };
    let time = ScanTime {
        started_unix_ms: 1,
        duration_ms: 2,
    };
    let found = Found {
        baseline: Digest::of(b"baseline"),
        tree,
        facts,
        ownership: Ownership::default(),
        time,
        after_job: None,
    };
    found.state(Some(&SecretKey::new([7; 32])), earlier)
}

fn keys(differences: &[Difference]) -> Vec<&str> {
    differences.iter().map(|difference| difference.key.as_str()).collect()
}

/// The server's side: what it holds after a report.
fn applied(held: &[Difference], report: &DriftReport) -> Vec<Difference> {
    match &report.kind {
        ReportKind::Full { differences } => differences.clone(),
        ReportKind::Delta { base, set, cleared } => {
            assert_eq!(*base, state_digest(held));
            let replaced: BTreeSet<Digest> = set
                .iter()
                .map(Difference::group)
                .chain(cleared.iter().copied())
                .collect();
            held.iter()
                .filter(|d| !replaced.contains(&d.group()))
                .chain(set)
                .cloned()
                .collect()
        }
    }
}

#[test]
fn a_delta_leads_from_the_acknowledged_state_to_the_new_one() {
    let first = state(
        vec![file("/a", "1"), file("/b", "1"), file("/c", "1")],
        Vec::new(),
        Vec::new(),
        None,
    );
    let full = first.report(Uuid::nil(), 1, None);
    let held = applied(&[], &full);
    assert_eq!(held, first.differences);
    let second = state(
        vec![file("/a", "1"), file("/b", "2"), file("/d", "1")],
        vec![difference(FindingKind::Unit, "ssh.service", "masked")],
        Vec::new(),
        None,
    );
    let report = second.report(Uuid::nil(), 2, Some(&first.acknowledged()));
    let ReportKind::Delta { set, cleared, .. } = &report.kind else {
        panic!("{report:?}")
    };
    assert_eq!(keys(set), ["/b", "/d", "ssh.service"]);
    assert_eq!(cleared.len(), 1);
    let held = applied(&held, &report);
    assert_eq!(state_digest(&held), report.state);
    // Nothing changed: an empty delta, which still tells when the node was looked at.
    let report = second.report(Uuid::nil(), 3, Some(&second.acknowledged()));
    let ReportKind::Delta { set, cleared, .. } = &report.kind else {
        panic!("{report:?}")
    };
    assert!(set.is_empty() && cleared.is_empty());
}

#[test]
fn another_baseline_needs_a_full_report() {
    let now = state(vec![file("/a", "1")], Vec::new(), Vec::new(), None);
    let other = Acknowledged {
        baseline: Digest::of(b"other"),
        ..now.acknowledged()
    };
    let report = now.report(Uuid::nil(), 1, Some(&other));
    assert!(matches!(report.kind, ReportKind::Full { .. }));
}

#[test]
fn what_nobody_could_look_at_stays_as_it_was() {
    let earlier = state(
        vec![
            file("/etc/x", "1"),
            file("/etc/y/z", "1"),
            file("/etc-z", "1"),
            file("/opt/a", "1"),
        ],
        vec![
            difference(FindingKind::Unit, "ssh.service", "masked"),
            difference(FindingKind::SysctlRunning, "k.a", "1"),
            difference(FindingKind::SysctlRunning, "k.b", "1"),
        ],
        Vec::new(),
        None,
    )
    .acknowledged();
    let unknowns = vec![
        unknown(FindingKind::File, "/etc"),
        unknown(FindingKind::Unit, Unknown::ALL),
        unknown(FindingKind::SysctlRunning, "k.a"),
    ];
    let now = state(vec![file("/etc/x", "2")], Vec::new(), unknowns, Some(&earlier));
    assert_eq!(keys(&now.differences), ["/etc/x", "/etc/y/z", "ssh.service", "k.a"]);
    assert_eq!(now.differences[0].actual, file("", "2").actual, "what was seen wins");
    assert_eq!(now.scan.difference_count, 4);
    assert_eq!((now.scan.not_looked_at_count, now.not_looked_at.len()), (3, 3));
    let looked = state(Vec::new(), Vec::new(), Vec::new(), Some(&earlier));
    assert_eq!(keys(&looked.differences), [""; 0]);
    let other = Acknowledged {
        baseline: Digest::of(b"other"),
        ..earlier
    };
    let now = state(
        Vec::new(),
        Vec::new(),
        vec![unknown(FindingKind::File, "/")],
        Some(&other),
    );
    assert_eq!(keys(&now.differences), [""; 0], "another baseline, other expectations");
}

#[test]
fn limits_cut_files_off_before_facts_and_everything_stays_counted() {
    let files = (0..limits::DIFFERENCES_MAX + 10)
        .map(|at| file(&format!("/{at:06}"), "1"))
        .collect();
    let facts = vec![difference(FindingKind::Unit, "ssh.service", "masked")];
    let mut now = state(files, facts, Vec::new(), None);
    assert_eq!(now.differences.len(), limits::DIFFERENCES_MAX);
    assert!(keys(&now.differences).contains(&"ssh.service"));
    assert_eq!(now.scan.difference_count, limits::DIFFERENCES_MAX as u64 + 11);
    now.shrink(1 << 20);
    let report = now.report(Uuid::nil(), 1, None);
    let size = serde_json::to_vec(&report).unwrap().len();
    assert!((500_000..1 << 20).contains(&size), "{size}");
    assert_eq!(report.state, state_digest(&now.differences));
    assert_eq!(report.scan.difference_count, limits::DIFFERENCES_MAX as u64 + 11);
}

#[test]
fn no_plain_digest_of_a_secret_is_ever_told_and_a_keyed_one_is_kept() {
    let of = |key: &str| {
        let mut difference = file(key, "1");
        let digest = Digest::of(b"password").to_string();
        difference.actual = Some(Attributes::from_pairs([("digest", digest)]));
        difference
    };
    let first = state(vec![of("/etc/shadow"), of("/etc/motd")], Vec::new(), Vec::new(), None);
    let text = serde_json::to_string(&first.report(Uuid::nil(), 1, None)).unwrap();
    assert_eq!(text.matches(&Digest::of(b"password").to_string()).count(), 1, "{text}");
    assert!(text.contains("hmac-sha256:"), "{text}");
    // Carried over where nobody could look, it is not keyed a second time.
    let unknowns = vec![unknown(FindingKind::File, "/etc")];
    let again = state(Vec::new(), Vec::new(), unknowns, Some(&first.acknowledged()));
    assert_eq!(again.differences, first.differences);
}
