//! The whole service on a folder, against a server that answers as prepared.

use std::path::Path;

use manifest::{
    ClassRule, ClassRules, Entry, EntryKind, FileContent, Header, KeyPair, Manifest, ManifestKind, PathClass, Xattrs,
};
use protocol::NodeId;
use protocol::latest::{
    Baseline, DriftReport, HeartbeatReply, Job, RepairStep, ReportKind, ReportReply, SignedJob, StepOutcome, Verb,
    paths,
};
use uuid::Uuid;

use super::*;
use crate::service::fake_server::{Server, contact};

struct Fleet {
    server: Arc<Server>,
    url: String,
    keys: [KeyPair; 3],
    base: tempfile::TempDir,
    baseline: Baseline,
}

impl Fleet {
    /// `/etc/motd` says "good", and nothing else is.
    async fn new() -> Self {
        let (server, url) = Server::start().await;
        let keys = [(); 3].map(|()| KeyPair::generate().unwrap());
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("etc")).unwrap();
        std::fs::write(base.path().join("etc/motd"), "good").unwrap();
        let mut header = Header::new(ManifestKind::Os, "x", "1");
        let volatile = |pattern: &str| ClassRule::new(pattern.parse().unwrap(), PathClass::Volatile);
        header.classes = ClassRules(vec![volatile("/var/**"), volatile("/proc/**")]);
        header.sysctls = [("kernel.x".to_owned(), "1".to_owned())].into();
        std::fs::create_dir_all(base.path().join("proc/sys/kernel")).unwrap();
        std::fs::write(base.path().join("proc/sys/kernel/x"), "1\n").unwrap();
        std::fs::write(base.path().join("etc/sysctl.conf"), "kernel.x=1\n").unwrap();
        std::fs::create_dir(base.path().join("etc/sysctl.d")).unwrap();
        std::os::unix::fs::symlink("../sysctl.conf", base.path().join("etc/sysctl.d/99-sysctl.conf")).unwrap();
        let entry = |path: &str, kind| {
            let metadata = std::fs::symlink_metadata(base.path().join(&path[1..])).unwrap();
            use std::os::unix::fs::MetadataExt;
            Entry {
                path: path.parse().unwrap(),
                class: PathClass::Pinned,
                kind,
                mode: metadata.mode() & 0o7777,
                uid: metadata.uid(),
                gid: metadata.gid(),
                mtime: 0,
                xattrs: Xattrs::new(),
            }
        };
        let content = FileContent {
            size: 4,
            digest: Digest::of(b"good"),
        };
        let entries = vec![
            entry("/", EntryKind::Directory),
            entry("/etc", EntryKind::Directory),
            entry("/etc/motd", EntryKind::File(Some(content))),
            entry(
                "/etc/sysctl.conf",
                EntryKind::File(Some(FileContent {
                    size: 11,
                    digest: Digest::of(b"kernel.x=1\n"),
                })),
            ),
            entry("/etc/sysctl.d", EntryKind::Directory),
            entry(
                "/etc/sysctl.d/99-sysctl.conf",
                EntryKind::Symlink(b"../sysctl.conf".to_vec()),
            ),
        ];
        std::fs::create_dir_all(base.path().join("var/state")).unwrap();
        let manifests = [
            Manifest::new(header, entries).unwrap(),
            Manifest::new(Header::new(ManifestKind::Agent, "x", "1"), Vec::new()).unwrap(),
            Manifest::new(Header::new(ManifestKind::Overlay, "x", "1"), Vec::new()).unwrap(),
        ];
        let digests = manifests.map(|manifest| {
            let bytes = manifest.encode().unwrap();
            let path = format!("{}/{}", paths::MANIFESTS, Digest::of(&bytes));
            let key = &keys[usize::from(manifest.header.kind == ManifestKind::Agent)];
            let signature = key.sign(&bytes, "x").unwrap();
            server.answer(&format!("{path}/signature"), 200, signature.as_str());
            server.answer(&path, 200, bytes.clone());
            Digest::of(&bytes)
        });
        let baseline = Baseline::new(NodeId::new(), digests[0], digests[1], digests[2]);
        server.answer(paths::BASELINE, 200, serde_json::to_vec(&baseline).unwrap());
        server.answer(&format!("{}/{}", paths::CONTENTS, content.digest), 200, "good");
        let accepted = ReportReply::Accepted {
            contents_wanted: Vec::new(),
        };
        server.answer(paths::REPORTS, 200, serde_json::to_vec(&accepted).unwrap());
        let fleet = Self {
            server,
            url,
            keys,
            base,
            baseline,
        };
        fleet.beat(false);
        fleet
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.base.path().join(name)
    }

    fn beat(&self, job_waiting: bool) {
        let reply = HeartbeatReply {
            baseline: self.baseline.digest,
            next_secs: 1,
            full_report: false,
            scan_now: false,
            job_waiting,
            restart: None,
            trust: None,
            unix_ms: super::super::process::unix_ms(),
        };
        self.server.forget_answer(paths::HEARTBEAT);
        self.server
            .answer(paths::HEARTBEAT, 200, serde_json::to_vec(&reply).unwrap());
    }

    fn service(&self) -> Service {
        let folder = self.path("var/state");
        let contact = contact(&self.url, &folder, &self.keys, self.base.path());
        let mut parts = NodeParts::of_folder(self.base.path());
        parts.watches_max = 100;
        let hour = Duration::from_secs(3_600);
        Service::new(contact, StateFolder::open(&folder).unwrap(), parts, hour)
    }

    fn reports(&self) -> Vec<DriftReport> {
        self.server.heard(paths::REPORTS)
    }

    /// Serves until this holds; a minute is more than anything here takes.
    async fn until(&self, service: &mut Service, what: &str, holds: impl Fn(&Self) -> bool) {
        let look = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = service.serve() => panic!("it ended"),
            () = look => {}
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("{what}: {:?}", self.reports()),
        }
    }
}

fn keys(report: &DriftReport) -> (Vec<String>, usize) {
    match &report.kind {
        ReportKind::Full { differences } => (differences.iter().map(|d| d.key.clone()).collect(), 0),
        ReportKind::Delta { set, cleared, .. } => (set.iter().map(|d| d.key.clone()).collect(), cleared.len()),
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn a_change_is_told_within_seconds_and_a_job_takes_it_back() {
    let fleet = Fleet::new().await;
    let mut service = fleet.service();
    fleet
        .until(&mut service, "the first scan", |fleet| fleet.reports().len() == 1)
        .await;
    let first = fleet.reports().remove(0);
    assert_eq!((keys(&first), first.scan.complete), ((Vec::new(), 0), true));

    let changed = Instant::now();
    std::fs::write(fleet.path("etc/motd.new"), "evil").unwrap();
    std::fs::rename(fleet.path("etc/motd.new"), fleet.path("etc/motd")).unwrap();
    fleet
        .until(&mut service, "the change", |fleet| fleet.reports().len() == 2)
        .await;
    assert!(
        changed.elapsed() < Duration::from_secs(10),
        "the next scan is an hour away"
    );
    let second = fleet.reports().remove(1);
    assert_eq!(keys(&second), (vec!["/etc/motd".to_owned()], 0));
    assert_eq!(
        second.scan.started_unix_ms, first.scan.started_unix_ms,
        "no scan was needed"
    );
    assert_eq!(second.scan.difference_count, 1);

    let ReportKind::Delta { set, .. } = &second.kind else {
        panic!()
    };
    let job = Job {
        job_id: JobId::new(),
        node_id: fleet.baseline.node_id,
        baseline: fleet.baseline.digest,
        nonce: Uuid::new_v4(),
        not_after_unix_ms: super::super::process::unix_ms() + 60_000,
        steps: vec![RepairStep {
            group: set[0].group(),
            variant: set[0].variant(),
            verb: Verb::RestoreFile {
                path: "/etc/motd".to_owned(),
            },
        }],
    };
    let text = serde_json::to_string(&job).unwrap();
    let signature = fleet.keys[2].sign(text.as_bytes(), "x").unwrap().as_str().to_owned();
    let signed = SignedJob { job: text, signature };
    fleet
        .server
        .answer(paths::JOBS, 200, serde_json::to_vec(&signed).unwrap());
    let outcome = format!("{}/{}/outcome", paths::JOBS, job.job_id);
    fleet.server.answer(&outcome, 200, "");
    fleet.beat(true);
    let is_proved = |fleet: &Fleet| {
        fleet
            .reports()
            .iter()
            .any(|report| report.after_job == Some(job.job_id))
    };
    fleet.until(&mut service, "the proof", is_proved).await;
    let outcomes: Vec<JobOutcome> = fleet.server.heard(&outcome);
    let JobOutcome::Ran { steps } = &outcomes[0] else {
        panic!("{outcomes:?}")
    };
    assert!(matches!(steps[0].outcome, StepOutcome::Done { .. }), "{steps:?}");
    let proof = fleet
        .reports()
        .into_iter()
        .find(|report| report.after_job == Some(job.job_id))
        .unwrap();
    assert_eq!(keys(&proof), (Vec::new(), 1));
    assert!(
        proof.scan.started_unix_ms > first.scan.started_unix_ms,
        "a scan of its own"
    );
    assert_eq!(read(&fleet.path("etc/motd")), "good");

    // The agent starts again: what proves the job is still said.
    drop(service);
    fleet.beat(false);
    let mut service = fleet.service();
    let before = fleet.reports().len();
    fleet
        .until(&mut service, "the scan after the start", |fleet| {
            fleet.reports().len() > before
        })
        .await;
    assert_eq!(fleet.reports().last().unwrap().after_job, Some(job.job_id));
}

/// keylime/keylime#1091: when watching ends, it begins anew, and a scan sees what was missed.
#[tokio::test]
async fn keylime_1091_a_watch_that_died_is_said_and_a_scan_sees_what_was_missed() {
    let fleet = Fleet::new().await;
    let mut service = fleet.service();
    fleet
        .until(&mut service, "the first scan", |fleet| fleet.reports().len() == 1)
        .await;
    assert!(service.watcher.is_some());
    service.hear(Err(WatchError::ended()));
    assert!(service.watcher.is_none());
    std::fs::write(fleet.path("etc/motd"), "evil").unwrap();
    // As though its last scan had been longer ago.
    service.last_scan_ended = None;
    // A report whose answer was lost comes again: what counts is a scan that began later.
    let first = fleet.reports()[0].scan.started_unix_ms;
    fleet
        .until(&mut service, "the scan", |fleet| {
            fleet.reports().last().unwrap().scan.started_unix_ms > first
        })
        .await;
    service.next_watch = Instant::now();
    service.watch();
    assert!(service.watcher.is_some(), "it begins anew");
}

#[tokio::test]
async fn a_scan_that_a_job_came_into_is_thrown_away() {
    let fleet = Fleet::new().await;
    let mut service = fleet.service();
    fleet
        .until(&mut service, "the first scan", |fleet| fleet.reports().len() == 1)
        .await;
    let (baseline, expected) = service.contact.baseline().unwrap();
    service.begin_scan(baseline, expected);
    let scan = service.working.as_mut().unwrap();
    scan.is_thrown_away = true;
    scan.stop.store(true, Ordering::Relaxed);
    let ended = join(&mut service.working).await;
    assert!(!service.end(ended), "it is no news");
    assert!(service.contact.is_scan_wanted() && service.found.is_none());
}

#[tokio::test]
async fn many_nodes_live_in_one_process() {
    let fleets = [Fleet::new().await, Fleet::new().await, Fleet::new().await];
    std::fs::write(fleets[1].path("etc/motd"), "evil").unwrap();
    let mut services: Vec<Service> = fleets.iter().map(Fleet::service).collect();
    for (fleet, service) in fleets.iter().zip(&mut services) {
        fleet
            .until(service, "the first scan", |fleet| fleet.reports().len() == 1)
            .await;
    }
    let counts = fleets.each_ref().map(|fleet| fleet.reports()[0].scan.difference_count);
    assert_eq!(counts, [0, 1, 0]);
}

#[tokio::test]
async fn a_running_value_that_somebody_set_is_seen_between_two_scans() {
    let fleet = Fleet::new().await;
    let mut service = fleet.service();
    fleet
        .until(&mut service, "the first scan", |fleet| fleet.reports().len() == 1)
        .await;
    assert_eq!(fleet.reports()[0].scan.difference_count, 0);
    std::fs::write(fleet.path("proc/sys/kernel/x"), "0\n").unwrap();
    // Its time has come.
    service.next_facts = Instant::now();
    fleet
        .until(&mut service, "the value", |fleet| fleet.reports().len() == 2)
        .await;
    let report = fleet.reports().remove(1);
    assert_eq!(keys(&report), (vec!["kernel.x".to_owned()], 0));
    assert_eq!(report.scan.started_unix_ms, fleet.reports()[0].scan.started_unix_ms);
}
