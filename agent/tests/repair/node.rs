//! A node in a folder with a server's knowledge beside it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use drift::{Difference, Expected, FindingKind, Observation, SecretKey};
use manifest::{Digest, EntryKind, Header, Manifest, ManifestKind, Unit};
use plumbline_agent::baseline::ManifestStore;
use plumbline_agent::node::{NodeParts, UnitManager};
use plumbline_agent::repair::{ContentSource, Mend, run};
use plumbline_agent::report::{Found, NodeState};
use plumbline_agent::service::{Look, told};
use plumbline_agent::state::StateFolder;
use protocol::latest::{Baseline, Job, JobOutcome, RepairStep, StepOutcome, Verb};
use protocol::{JobId, NodeId};
use uuid::Uuid;

use crate::scan::tree::Tree;

/// Units that live in memory.
#[derive(Debug, Default)]
pub struct FakeUnits(pub Mutex<BTreeMap<String, String>>);

impl UnitManager for FakeUnits {
    fn list(&self) -> Result<BTreeMap<String, String>, Observation> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn set_state(&self, unit: &str, from: Option<&str>, to: &str) -> Result<String, String> {
        let mut units = self.0.lock().unwrap();
        assert_eq!(units.get(unit).map(String::as_str), from);
        if unit == "stubborn.service" {
            return Ok("asked".to_owned());
        }
        units.insert(unit.to_owned(), to.to_owned());
        Ok("switched".to_owned())
    }
}

/// What the server holds of the image.
#[derive(Clone, Debug, Default)]
pub struct Contents(pub BTreeMap<Digest, Vec<u8>>);

impl ContentSource for Contents {
    fn fetch(&self, digest: &Digest, to: &mut dyn Write) -> Result<(), String> {
        let bytes = self.0.get(digest).ok_or("the server does not have it")?;
        to.write_all(bytes).map_err(|error| error.to_string())
    }
}

pub struct Node {
    pub tree: Tree,
    pub contents: Contents,
    pub expected: Arc<Expected>,
    pub units: Arc<FakeUnits>,
    pub parts: NodeParts,
    folder: tempfile::TempDir,
    baseline: Baseline,
}

pub const KEY: fn() -> SecretKey = || SecretKey::new([7; 32]);

impl Node {
    /// The tree as it is now is how it should be, with what `change` says beside the files.
    pub fn new(tree: Tree, change: impl FnOnce(&mut Manifest)) -> Self {
        Self::made(tree, change, &[])
    }

    /// With units that are as they should be.
    pub fn with_units(tree: Tree, states: &[(&str, &str)]) -> Self {
        let unit = |(name, state): &(&str, &str)| Unit {
            name: (*name).to_owned(),
            state: (*state).to_owned(),
        };
        Self::made(
            tree,
            |manifest| manifest.header.units = states.iter().map(unit).collect(),
            states,
        )
    }

    fn made(tree: Tree, change: impl FnOnce(&mut Manifest), states: &[(&str, &str)]) -> Self {
        let mut manifest = tree.manifest();
        change(&mut manifest);
        let mut contents = Contents::default();
        for entry in &manifest.entries {
            if let EntryKind::File(Some(content)) = entry.kind {
                let bytes = std::fs::read(tree.raw_path(entry.path.relative())).unwrap();
                contents.0.insert(content.digest, bytes);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(folder.path()).unwrap();
        let store = ManifestStore::new(&state.manifests());
        let put = |manifest: Manifest| {
            let digest = manifest.digest().unwrap();
            store.put(&digest, &manifest.encode().unwrap()).unwrap();
            digest
        };
        let empty = |kind| Manifest::new(Header::new(kind, "x", "1"), Vec::new()).unwrap();
        let layers = [manifest, empty(ManifestKind::Agent), empty(ManifestKind::Overlay)].map(put);
        let baseline = Baseline::new(NodeId::new(), layers[0], layers[1], layers[2]);
        let states = states
            .iter()
            .map(|(name, state)| ((*name).to_owned(), (*state).to_owned()));
        let units = Arc::new(FakeUnits(Mutex::new(states.collect())));
        let mut parts = NodeParts::of_folder(tree.base());
        parts.units = units.clone();
        let node = Self {
            expected: Arc::new(store.load(&baseline).unwrap()),
            tree,
            contents,
            units,
            parts,
            folder,
            baseline,
        };
        assert_eq!(node.scan().1.differences, [], "it begins as it should be");
        node
    }

    /// The usual tree.
    pub fn plain() -> Self {
        Self::new(Tree::new(), |_| {})
    }

    pub fn look(&self) -> Look {
        Look {
            parts: self.parts.clone(),
            state: StateFolder::open(self.folder.path()).unwrap(),
            baseline: self.baseline.digest,
            expected: self.expected.clone(),
            stop: Arc::default(),
        }
    }

    /// What a scan finds, and what is told of it.
    pub fn scan(&self) -> (Found, NodeState) {
        let found = self.look().scan(None);
        (found.clone(), told(found, Some(&KEY()), None))
    }

    /// The kinds and keys of all findings.
    pub fn findings(&self) -> Vec<String> {
        let line = |difference: &Difference| format!("{} {}", difference.kind.as_str(), difference.key);
        self.scan().1.differences.iter().map(line).collect()
    }

    /// The step that a server makes of the finding that stands now.
    pub fn step(&self, verb: Verb) -> RepairStep {
        let kinds = match &verb {
            Verb::RestoreFile { .. } | Verb::RemoveAddedFile { .. } => FindingKind::File,
            Verb::SetSysctl { .. } => FindingKind::SysctlRunning,
            Verb::PersistSysctl { .. } => FindingKind::SysctlPersisted,
            Verb::SetUnit { .. } => FindingKind::Unit,
            Verb::ReinstallPackage { .. } | Verb::RemovePackage { .. } => FindingKind::Package,
        };
        let is_it = |difference: &&Difference| difference.kind == kinds && difference.key == verb.object();
        let (_, state) = self.scan();
        let difference = state.differences.iter().find(is_it);
        RepairStep {
            group: drift::group_hash(kinds, verb.object()),
            variant: difference.map_or(Digest::of(b"no finding"), Difference::variant),
            verb,
        }
    }

    /// Carries out these steps.
    pub fn run(&self, steps: Vec<RepairStep>) -> Vec<StepOutcome> {
        let job = Job {
            job_id: JobId::new(),
            node_id: self.baseline.node_id,
            baseline: self.baseline.digest,
            nonce: Uuid::new_v4(),
            not_after_unix_ms: 0,
            steps,
        };
        let state = StateFolder::open(self.folder.path()).unwrap();
        let mend = Mend {
            parts: self.parts.clone(),
            expected: self.expected.clone(),
            baseline: self.baseline.clone(),
            manifests: ManifestStore::new(&state.manifests()),
            secret_key: Some(KEY()),
            state_folder: self.folder.path().to_owned(),
            package_lists: state.package_lists(),
        };
        match run(&job, &mend, &self.contents, &AtomicBool::new(false)) {
            JobOutcome::Ran { steps } => steps.into_iter().map(|step| step.outcome).collect(),
            JobOutcome::Refused { reason } => panic!("{reason}"),
        }
    }

    /// Repairs one finding as it stands.
    pub fn repair(&self, verb: Verb) -> StepOutcome {
        self.run(vec![self.step(verb)]).remove(0)
    }

    /// What the undo folders hold, by the paths that their indexes name.
    pub fn undone(&self) -> BTreeMap<String, PathBuf> {
        let mut undone = BTreeMap::new();
        for job in std::fs::read_dir(self.folder.path().join("undo"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let index = std::fs::read_to_string(job.path().join("index.jsonl")).unwrap_or_default();
            for line in index.lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let path = line["path"].as_str().unwrap().to_owned();
                undone.insert(path, job.path().join(line["name"].as_str().unwrap()));
            }
        }
        undone
    }
}

pub fn restore(path: &str) -> Verb {
    Verb::RestoreFile { path: path.to_owned() }
}

pub fn remove(path: &str) -> Verb {
    Verb::RemoveAddedFile { path: path.to_owned() }
}

pub fn is_done(outcome: &StepOutcome) -> bool {
    matches!(outcome, StepOutcome::Done { .. })
}

/// The reason of a step that was refused or failed, with which of both.
pub fn reason(outcome: &StepOutcome) -> String {
    match outcome {
        StepOutcome::Refused { reason } => format!("refused: {reason}"),
        StepOutcome::Failed { reason } => format!("failed: {reason}"),
        other => format!("{other:?}"),
    }
}
