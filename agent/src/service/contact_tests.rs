use drift::{Attributes, Difference, FindingKind};
use manifest::{Header, KeyPair, Manifest, ManifestKind};
use protocol::NodeId;
use protocol::latest::{DriftReport, RepairStep, ReportKind, ScanSummary, Verb};
use uuid::Uuid;

use super::*;
use crate::service::fake_server::{Server, contact};

#[test]
fn sequences_rise_even_when_the_agent_restarts_or_hurries() {
    let mut last = 0;
    let at = Duration::from_millis;
    assert_eq!(next_sequence(&mut last, at(5000)), 5000);
    assert_eq!(next_sequence(&mut last, at(5000)), 5001);
    assert_eq!(next_sequence(&mut last, at(5000)), 5002);
    let mut restarted = 0;
    assert!(next_sequence(&mut restarted, at(9000)) > last);
}

/// wazuh/wazuh#38439: a clock that is wrong is no key that was revoked.
#[test]
fn wazuh_38439_a_wrong_clock_is_told_from_other_trouble() {
    let wrong = rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidYet);
    assert!(is_clock_problem(&wrong.to_string()), "{wrong}");
    let wrong = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
    assert!(is_clock_problem(&wrong.to_string()), "{wrong}");
    let other = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    assert!(!is_clock_problem(&other.to_string()), "{other}");
}

struct Fixture {
    server: Arc<Server>,
    keys: [KeyPair; 3],
    node: NodeId,
    folder: tempfile::TempDir,
    url: String,
    contact: Contact,
}

impl Fixture {
    async fn new() -> Self {
        let (server, url) = Server::start().await;
        let keys = [(); 3].map(|()| KeyPair::generate().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let contact = contact(&url, folder.path(), &keys, folder.path());
        Self {
            server,
            keys,
            node: NodeId::new(),
            folder,
            url,
            contact,
        }
    }

    /// Serves a baseline whose image has this version, signed by this key.
    fn offer(&self, version: &str, signer: &KeyPair) -> Baseline {
        let kinds = [ManifestKind::Os, ManifestKind::Agent, ManifestKind::Overlay];
        let digests = kinds.map(|kind| {
            let manifest = Manifest::new(Header::new(kind, "x", version), Vec::new()).unwrap();
            let bytes = manifest.encode().unwrap();
            let path = format!("{}/{}", paths::MANIFESTS, Digest::of(&bytes));
            let signer = if kind == ManifestKind::Os {
                signer
            } else {
                &self.keys[1]
            };
            let signature = signer.sign(&bytes, "x").unwrap();
            self.server.answer(&path, 200, bytes.clone());
            if kind != ManifestKind::Overlay {
                self.server
                    .answer(&format!("{path}/signature"), 200, signature.as_str());
            }
            Digest::of(&bytes)
        });
        let baseline = Baseline::new(self.node, digests[0], digests[1], digests[2]);
        self.server.forget(paths::BASELINE);
        self.server
            .answer(paths::BASELINE, 200, serde_json::to_vec(&baseline).unwrap());
        self.beat(baseline.digest, false, false);
        baseline
    }

    /// What heartbeats are answered from now on.
    fn beat(&self, baseline: Digest, full_report: bool, scan_now: bool) {
        self.answer_beat(baseline, full_report, scan_now, false);
    }

    fn answer_beat(&self, baseline: Digest, full_report: bool, scan_now: bool, job_waiting: bool) {
        let reply = HeartbeatReply {
            baseline,
            next_secs: 60,
            full_report,
            scan_now,
            job_waiting,
            restart: None,
            trust: None,
            unix_ms: process::unix_ms(),
        };
        self.server.forget(paths::HEARTBEAT);
        self.server
            .answer(paths::HEARTBEAT, 200, serde_json::to_vec(&reply).unwrap());
    }

    fn reply(&self, replies: &[ReportReply]) {
        self.server.forget(paths::REPORTS);
        for reply in replies {
            self.server
                .answer(paths::REPORTS, 200, serde_json::to_vec(reply).unwrap());
        }
    }

    fn reports(&self) -> Vec<DriftReport> {
        self.server.heard(paths::REPORTS)
    }

    fn beats(&self) -> Vec<Heartbeat> {
        self.server.heard(paths::HEARTBEAT)
    }
}

fn state(baseline: &Baseline, keys: &[&str]) -> NodeState {
    let differences: Vec<_> = keys
        .iter()
        .map(|&key| Difference {
            kind: FindingKind::File,
            key: key.to_owned(),
            expected: None,
            actual: Some(Attributes::default()),
        })
        .collect();
    NodeState {
        baseline: baseline.digest,
        state: drift::state_digest(&differences),
        differences,
        not_looked_at: Vec::new(),
        scan: ScanSummary::default(),
        after_job: None,
    }
}

fn accepted() -> ReportReply {
    ReportReply::Accepted {
        contents_wanted: Vec::new(),
    }
}

fn is_full(report: &DriftReport) -> bool {
    matches!(report.kind, ReportKind::Full { .. })
}

#[tokio::test]
async fn first_everything_is_told_then_what_changed_then_only_the_digest() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.reply(&[accepted()]);
    f.contact.talk().await;
    assert_eq!(f.contact.baseline().unwrap().0, baseline.digest);
    assert!(f.contact.is_ready() && f.contact.is_scan_wanted());
    assert_eq!(f.beats()[0].state, None);

    let first = state(&baseline, &["/a", "/b"]);
    f.contact.tell(first.clone());
    let pause = f.contact.talk().await;
    assert!((54..=66).contains(&pause.as_secs()), "{pause:?}");
    assert!(is_full(&f.reports()[0]));
    assert_eq!(f.beats()[1].state, Some(first.state));

    f.contact.tell(state(&baseline, &["/b", "/c"]));
    f.contact.talk().await;
    let ReportKind::Delta { base, set, cleared } = &f.reports()[1].kind else {
        panic!()
    };
    assert_eq!((*base, set.len(), cleared.len()), (first.state, 1, 1));
    f.contact.talk().await;
    assert_eq!(f.reports().len(), 2, "nothing new, nothing told");
    let sequences: Vec<_> = f.beats().iter().map(|beat| beat.sequence).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b));

    // An agent that starts again knows what the server knows.
    let again = contact("http://127.0.0.1:1", f.folder.path(), &f.keys, f.folder.path());
    assert_eq!(
        again.acknowledged(),
        Some(&state(&baseline, &["/b", "/c"]).acknowledged())
    );
    assert_eq!(again.baseline().unwrap().0, baseline.digest);
}

/// osquery/osquery#5299, #7945, #7799, #3378: a stream of changes that lost its base begins anew with everything.
#[tokio::test]
async fn osquery_5299_a_server_that_lacks_the_base_or_the_state_gets_everything() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.reply(&[accepted()]);
    f.contact.tell(state(&baseline, &["/a"]));
    f.contact.talk().await;
    f.contact.tell(state(&baseline, &["/a"]));
    f.contact.talk().await;
    let reason = "restored from a backup".to_owned();
    f.reply(&[ReportReply::NeedFull { reason }, accepted()]);
    f.contact.tell(state(&baseline, &["/b"]));
    f.contact.talk().await;
    assert_eq!(f.reports().iter().map(is_full).collect::<Vec<_>>(), [false, true]);
    f.beat(baseline.digest, true, true);
    f.contact.scan_started();
    f.contact.talk().await;
    assert!(is_full(f.reports().last().unwrap()));
    assert!(f.contact.is_scan_wanted());
}

#[tokio::test]
async fn a_new_baseline_is_fetched_and_old_states_are_dropped() {
    let mut f = Fixture::new().await;
    let old = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    f.contact.scan_started();
    let new = f.offer("2", &f.keys[0]);
    f.contact.talk().await;
    assert_eq!(f.contact.baseline().unwrap().0, new.digest);
    assert!(f.contact.is_scan_wanted());
    f.reply(&[ReportReply::Stale {
        reason: "another baseline".to_owned(),
    }]);
    f.contact.tell(state(&old, &["/a"]));
    f.contact.talk().await;
    f.contact.talk().await;
    assert_eq!(f.reports().len(), 1, "a stale report is not sent again");
    assert_eq!(f.server.calls(paths::BASELINE), 1, "the baseline is asked for again");
    assert_eq!(f.contact.acknowledged(), None);
}

/// openshift/file-integrity-operator PR#388: a new baseline takes the place of the old one whole or not at all, and the
/// same one again changes nothing.
#[tokio::test]
async fn fio_388_a_baseline_is_exchanged_whole_once_and_never_half() {
    let mut f = Fixture::new().await;
    let old = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    f.contact.scan_started();
    let new = f.offer("2", &f.keys[0]);
    // The last of its manifests does not come.
    let overlay = format!("{}/{}", paths::MANIFESTS, new.overlay);
    f.server.forget(&overlay);
    f.contact.talk().await;
    let held = |contact: &Contact| contact.baseline().map(|(digest, _)| digest);
    assert_eq!(held(&f.contact), Some(old.digest));
    // A crash in between: what was held is held again.
    f.contact = contact(&f.url, f.folder.path(), &f.keys, f.folder.path());
    assert_eq!(held(&f.contact), Some(old.digest));
    f.offer("2", &f.keys[0]);
    f.contact.talk().await;
    assert_eq!(held(&f.contact), Some(new.digest));
    f.contact = contact(&f.url, f.folder.path(), &f.keys, f.folder.path());
    assert_eq!(held(&f.contact), Some(new.digest));
    f.contact.talk().await;
    f.contact.scan_started();
    // Asked for several times, the same one is no news.
    for _ in 0..3 {
        f.contact.is_baseline_confirmed = false;
        f.contact.talk().await;
    }
    assert_eq!(held(&f.contact), Some(new.digest));
    assert!(!f.contact.is_scan_wanted());
}

#[tokio::test]
async fn a_manifest_signed_by_somebody_else_is_never_looked_by() {
    let mut f = Fixture::new().await;
    // The release key does not sign images.
    f.offer("1", &f.keys[1]);
    f.contact.talk().await;
    assert!(f.contact.baseline().is_none() && !f.contact.is_ready());
    let good = f.offer("2", &f.keys[0]);
    f.contact.talk().await;
    f.offer("3", &KeyPair::generate().unwrap());
    f.contact.talk().await;
    assert_eq!(f.contact.baseline().unwrap().0, good.digest, "the one it has stays");
}

/// fleetdm/fleet#3271: what the server asks for by `Retry-After` holds for news as well.
#[tokio::test]
async fn fleet_3271_the_newest_state_waits_for_a_server_that_is_away() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    f.server.forget(paths::REPORTS);
    f.server.answer(paths::REPORTS, 503, "busy");
    for name in ["/a", "/b"] {
        f.contact.tell(state(&baseline, &[name]));
        let pause = f.contact.talk().await;
        assert!(pause.as_secs() >= 120, "the server asked for two minutes: {pause:?}");
        assert!(f.contact.earliest() > Instant::now() + Duration::from_secs(100));
    }
    f.reply(&[accepted()]);
    f.contact.talk().await;
    let ReportKind::Full { differences } = &f.reports()[0].kind else {
        panic!()
    };
    assert_eq!((f.reports().len(), differences[0].key.as_str()), (1, "/b"));
}

impl Fixture {
    /// Signs a job for this node and has it wait.
    fn order(&self, baseline: &Baseline, signer: &KeyPair, change: impl FnOnce(&mut Job)) -> Job {
        let mut job = Job {
            job_id: JobId::new(),
            node_id: self.node,
            baseline: baseline.digest,
            nonce: Uuid::new_v4(),
            not_after_unix_ms: process::unix_ms() + 60_000,
            steps: vec![RepairStep {
                group: drift::group_hash(FindingKind::File, "/a"),
                variant: Digest::of(b"x"),
                verb: Verb::RestoreFile { path: "/a".to_owned() },
            }],
        };
        change(&mut job);
        let text = serde_json::to_string(&job).unwrap();
        let signature = signer.sign(text.as_bytes(), "job").unwrap().as_str().to_owned();
        let signed = SignedJob { job: text, signature };
        self.server.forget(paths::JOBS);
        self.server
            .answer(paths::JOBS, 200, serde_json::to_vec(&signed).unwrap());
        self.server
            .answer(&format!("{}/{}/outcome", paths::JOBS, job.job_id), 200, "");
        self.answer_beat(baseline.digest, false, false, true);
        job
    }

    fn outcomes(&self, job: &Job) -> Vec<JobOutcome> {
        self.server.heard(&format!("{}/{}/outcome", paths::JOBS, job.job_id))
    }
}

#[tokio::test]
async fn a_job_is_pulled_once_and_its_outcome_told_until_it_is_heard() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    let job = f.order(&baseline, &f.keys[2], |_| {});
    f.contact.talk().await;
    assert!(f.contact.has_job());
    let (pulled, mend, _) = f.contact.take_job().unwrap();
    assert_eq!((pulled, mend.baseline), (job.clone(), baseline.clone()));
    f.contact.talk().await;
    assert_eq!(
        f.server.calls(paths::JOBS),
        1,
        "none is pulled while one is carried out"
    );
    assert!(f.outcomes(&job).is_empty());

    f.contact.scan_started();
    let ran = JobOutcome::Ran { steps: Vec::new() };
    let path = format!("{}/{}/outcome", paths::JOBS, job.job_id);
    f.server.forget(&path);
    f.server.answer(&path, 503, "busy");
    f.contact.job_ended(job.job_id, ran.clone());
    assert!(f.contact.is_scan_wanted(), "the scan that proves it");
    f.contact.talk().await;
    // The agent starts again before the server has heard it.
    f.contact = contact(&f.url, f.folder.path(), &f.keys, f.folder.path());
    assert_eq!(f.contact.after_job(), Some(job.job_id));
    f.server.forget(&path);
    f.server.answer(&path, 200, "");
    f.beat(baseline.digest, false, false);
    f.contact.talk().await;
    f.contact.talk().await;
    assert_eq!(f.outcomes(&job), std::slice::from_ref(&ran), "once, when it is heard");
    // The server lost it: the same job again is answered and not carried out.
    f.answer_beat(baseline.digest, false, false, true);
    f.contact.talk().await;
    assert!(!f.contact.has_job());
    assert_eq!(f.outcomes(&job), [ran]);
}

#[tokio::test]
async fn a_job_that_must_not_run_is_answered_with_the_reason() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    type Case = (usize, fn(&mut Job), &'static str);
    let cases: [Case; 4] = [
        (0, |_| {}, "signature"),
        (2, |job| job.node_id = NodeId::new(), "for node"),
        (2, |job| job.baseline = Digest::of(b"other"), "for baseline"),
        (2, |job| job.not_after_unix_ms = 1, "expired"),
    ];
    for (signer, change, expected) in cases {
        let job = f.order(&baseline, &f.keys[signer], change);
        f.contact.talk().await;
        assert!(f.contact.take_job().is_none(), "{expected}");
        let outcomes = f.outcomes(&job);
        let [JobOutcome::Refused { reason }] = outcomes.as_slice() else {
            panic!("{outcomes:?}")
        };
        assert!(reason.contains(expected), "{reason} should say {expected}");
    }
    assert_eq!(
        f.contact.after_job(),
        None,
        "nothing was touched, so that no scan proves it"
    );
}

/// wazuh/wazuh#38439: with a clock that is two years slow a job is judged by the server's.
#[tokio::test]
async fn wazuh_38439_a_job_expires_by_the_servers_clock() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    let two_years = 2 * 365 * 24 * 3_600_000;
    let of_server = process::unix_ms() + two_years;
    let job = f.order(&baseline, &f.keys[2], |job| job.not_after_unix_ms = of_server + 60_000);
    let reply = HeartbeatReply {
        baseline: baseline.digest,
        next_secs: 60,
        full_report: false,
        scan_now: false,
        job_waiting: true,
        restart: None,
        trust: None,
        unix_ms: of_server,
    };
    f.server.forget_answer(paths::HEARTBEAT);
    f.server
        .answer(paths::HEARTBEAT, 200, serde_json::to_vec(&reply).unwrap());
    f.contact.talk().await;
    assert_eq!(f.contact.take_job().map(|(job, ..)| job), Some(job));
}

#[tokio::test]
async fn secrets_are_keyed_with_the_servers_key_and_a_server_without_one_holds_nothing_up() {
    let mut f = Fixture::new().await;
    f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    assert!(f.contact.secret_key().is_none() && f.contact.is_ready());
    let key = SecretDigestKey { key: "0b".repeat(32) };
    f.server
        .answer(paths::SECRET_DIGEST_KEY, 200, serde_json::to_vec(&key).unwrap());
    f.offer("2", &f.keys[0]);
    f.contact.talk().await;
    f.contact.scan_started();
    f.contact.talk().await;
    assert_eq!(f.contact.secret_key(), Some(&SecretKey::new([0x0b; 32])));
    let again = contact(&f.url, f.folder.path(), &f.keys, f.folder.path());
    assert_eq!(again.secret_key(), f.contact.secret_key());
}

#[tokio::test]
async fn a_text_that_the_server_wants_is_sent_by_its_digest() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    // The folder of the state is the node's root here.
    std::fs::write(f.folder.path().join("motd"), "hello\n").unwrap();
    let mut told = state(&baseline, &["/motd"]);
    let digest = Digest::of(b"hello\n");
    told.differences[0].actual = Some(Attributes::from_pairs([("digest", digest.to_string())]));
    told.state = drift::state_digest(&told.differences);
    f.reply(&[ReportReply::Accepted {
        contents_wanted: vec!["/motd".to_owned(), "/jobs.json".to_owned()],
    }]);
    f.server.answer(&format!("{}/{digest}", paths::CONTENTS), 200, "");
    f.contact.tell(told);
    f.contact.talk().await;
    assert_eq!(
        f.server.raw(&format!("{}/{digest}", paths::CONTENTS)),
        [b"hello\n".to_vec()]
    );
}

/// What the server says of signatures, under this name.
fn say_trust(f: &Fixture, trust: &ImageTrust, name: &[u8]) -> Digest {
    f.server.forget_answer(paths::TRUST);
    f.server.answer(paths::TRUST, 200, serde_json::to_vec(trust).unwrap());
    Digest::of(name)
}

fn beat_with_trust(f: &Fixture, baseline: Digest, name: Digest, job_waiting: bool) {
    let reply = HeartbeatReply {
        baseline,
        next_secs: 60,
        full_report: false,
        scan_now: false,
        job_waiting,
        restart: None,
        trust: Some(name),
        unix_ms: process::unix_ms(),
    };
    f.server.forget_answer(paths::HEARTBEAT);
    f.server
        .answer(paths::HEARTBEAT, 200, serde_json::to_vec(&reply).unwrap());
}

fn trusting(keys: &[&KeyPair]) -> ImageTrust {
    ImageTrust {
        image_keys: keys.iter().map(|key| key.public().as_str().to_owned()).collect(),
        ..ImageTrust::default()
    }
}

#[tokio::test]
async fn an_image_by_a_key_that_does_not_count_is_refused_and_told() {
    let mut f = Fixture::new().await;
    let [foreign, stolen] = [(); 2].map(|()| KeyPair::generate().unwrap());
    f.offer("1", &foreign);
    f.contact.talk().await;
    assert!(f.contact.baseline().is_none());
    let told = f.beats()[0].refused.clone().unwrap();
    assert!(told.contains("not trusted here"), "{told}");

    // The same for a key that was revoked, by what the server said a moment ago.
    let baseline = f.offer("2", &stolen);
    let mut trust = trusting(&[&f.keys[0]]);
    trust.revoked_keys.push(protocol::latest::RevokedKey {
        id: stolen.public().id().unwrap().to_string(),
        reason: "the laptop was stolen".to_owned(),
    });
    say_trust(&f, &trust, b"1");
    f.contact.talk().await;
    assert!(f.contact.baseline().is_none());
    let told = f.beats().last().unwrap().refused.clone().unwrap();
    assert!(told.contains("revoked: the laptop was stolen"), "{told}");

    // Signed by another key it is taken, and nothing is told any more.
    f.server
        .forget_answer(&format!("{}/{}/signature", paths::MANIFESTS, baseline.image));
    let again = f.offer("2", &f.keys[0]);
    assert_eq!(again, baseline);
    say_trust(&f, &trust, b"1");
    f.contact.talk().await;
    assert_eq!(f.contact.baseline().unwrap().0, baseline.digest);
    assert_eq!(f.beats().last().unwrap().refused, None);
}

#[tokio::test]
async fn an_unsigned_image_is_refused_and_told() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.server
        .forget_answer(&format!("{}/{}/signature", paths::MANIFESTS, baseline.image));
    f.contact.talk().await;
    let told = f.beats()[0].refused.clone().unwrap();
    assert!(told.contains("it is not signed"), "{told}");
}

/// The image was signed again by a new key while this agent was away, and its copy of the manifest is gone.
#[tokio::test]
async fn a_new_key_is_asked_for_before_an_image_is_refused() {
    let mut f = Fixture::new().await;
    let new = KeyPair::generate().unwrap();
    let baseline = f.offer("1", &new);
    say_trust(&f, &trusting(&[&f.keys[0], &new]), b"1");
    f.contact.talk().await;
    assert_eq!(f.contact.baseline().unwrap().0, baseline.digest);
    assert_eq!(f.beats()[0].refused, None);
}

#[tokio::test]
async fn nothing_is_repaired_from_a_revoked_image() {
    let mut f = Fixture::new().await;
    let baseline = f.offer("1", &f.keys[0]);
    f.contact.talk().await;
    let mut trust = trusting(&[&f.keys[0]]);
    trust.revoked_image = Some(protocol::latest::RevokedImage {
        image: baseline.image,
        reason: "it was revoked on 2026-01-02, by admin: a hole".to_owned(),
    });
    let name = say_trust(&f, &trust, b"1");
    let job = f.order(&baseline, &f.keys[2], |_| {});
    beat_with_trust(&f, baseline.digest, name, true);
    f.contact.talk().await;
    assert!(!f.contact.has_job());
    let outcomes = f.outcomes(&job);
    let JobOutcome::Refused { reason } = &outcomes[0] else {
        panic!("{outcomes:?}")
    };
    assert!(
        reason.contains("it was revoked on 2026-01-02, by admin: a hole"),
        "{reason}"
    );
    assert_eq!(f.contact.baseline().unwrap().0, baseline.digest, "it goes on to look");

    // Told once, it is known after a restart, too, and asked for again only under another name.
    f.contact.talk().await;
    assert_eq!(f.server.calls(paths::TRUST), 1);
    let again = contact("http://127.0.0.1:1", f.folder.path(), &f.keys, f.folder.path());
    assert!(again.against(&baseline).unwrap().contains("a hole"));
}
