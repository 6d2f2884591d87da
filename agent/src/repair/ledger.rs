//! Which jobs were seen and what came of them, on disk.
//!
//! Invariant: a job's nonce is on the disk before its first step, so that no crash makes it run twice. What came of it
//! stays until the server has taken it. A ledger that cannot be read lets no job run until every job that it might have
//! held has expired.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::JobId;
use protocol::latest::{Job, JobOutcome};
use protocol::limits::JOB_SECS_MAX;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::state::write_file;

/// Nonces kept.
const NONCES_MAX: usize = 1_000;
/// Outcomes kept, told or not; the oldest go first.
const OUTCOMES_MAX: usize = 8;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Used {
    nonce: Uuid,
    job_id: JobId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    job_id: JobId,
    outcome: JobOutcome,
    is_told: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Record {
    used: VecDeque<Used>,
    running: Option<JobId>,
    outcomes: VecDeque<Kept>,
    after_job: Option<JobId>,
}

/// What is known of a job that comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: it may run.
    New,
    /// It ran, or was refused; what came of it is told again.
    ToldAgain,
    /// It must not run.
    Refused(String),
}

/// The jobs of one node.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    record: Record,
    /// Set where the kept record could not be read.
    closed_until: Option<Instant>,
}

impl Ledger {
    /// Reads the ledger kept in this folder. A job that was running when the agent ended has ended with it.
    #[must_use]
    pub fn open(folder: &Path) -> Self {
        let path = folder.join("jobs.json");
        let (record, closed_until) = match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(record) => (record, None),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "the record of jobs is damaged: none runs for a while");
                    (
                        Record::default(),
                        Instant::now().checked_add(Duration::from_secs(JOB_SECS_MAX)),
                    )
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Record::default(), None),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the record of jobs cannot be read: none runs for a while");
                (
                    Record::default(),
                    Instant::now().checked_add(Duration::from_secs(JOB_SECS_MAX)),
                )
            }
        };
        let mut ledger = Self {
            path,
            record,
            closed_until,
        };
        if let Some(job_id) = ledger.record.running {
            let reason = "the agent was stopped while it worked on the job; some of its steps may be done".to_owned();
            ledger.finish(job_id, JobOutcome::Refused { reason });
        }
        ledger
    }

    /// What is known of this job. An outcome that is kept will be told again.
    pub fn look_up(&mut self, job: &Job) -> Known {
        if self.closed_until.is_some_and(|until| Instant::now() < until) {
            return Known::Refused("the record of earlier jobs is damaged, so this one might have run".to_owned());
        }
        let Some(used) = self.record.used.iter().find(|used| used.nonce == job.nonce) else {
            return Known::New;
        };
        if used.job_id != job.job_id {
            return Known::Refused(format!("its nonce was used by job {}", used.job_id));
        }
        match self.record.outcomes.iter_mut().find(|kept| kept.job_id == job.job_id) {
            Some(kept) => {
                kept.is_told = false;
                Known::ToldAgain
            }
            None => Known::Refused("it was carried out before, and what came of it is no longer kept".to_owned()),
        }
    }

    /// The job is about to run. It is on the disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written: the job must not run.
    pub fn begin(&mut self, job: &Job) -> std::io::Result<()> {
        let before = self.record.clone();
        self.record.used.push_back(Used {
            nonce: job.nonce,
            job_id: job.job_id,
        });
        while self.record.used.len() > NONCES_MAX {
            self.record.used.pop_front();
        }
        self.record.running = Some(job.job_id);
        let written = self.write();
        if written.is_err() {
            self.record = before;
        }
        written
    }

    /// The job has ended, and this came of it.
    pub fn finish(&mut self, job_id: JobId, outcome: JobOutcome) {
        self.record.running = None;
        self.record.after_job = Some(job_id);
        self.keep(job_id, outcome);
    }

    /// The job was refused without touching anything.
    pub fn refuse(&mut self, job_id: JobId, reason: String) {
        self.keep(job_id, JobOutcome::Refused { reason });
    }

    fn keep(&mut self, job_id: JobId, outcome: JobOutcome) {
        self.record.outcomes.retain(|kept| kept.job_id != job_id);
        self.record.outcomes.push_back(Kept {
            job_id,
            outcome,
            is_told: false,
        });
        while self.record.outcomes.len() > OUTCOMES_MAX {
            self.record.outcomes.pop_front();
        }
        self.write_or_say();
    }

    /// The oldest outcome that the server has not taken yet.
    #[must_use]
    pub fn untold(&self) -> Option<(JobId, &JobOutcome)> {
        let kept = self.record.outcomes.iter().find(|kept| !kept.is_told)?;
        Some((kept.job_id, &kept.outcome))
    }

    /// The server has taken it, or wants to hear no more of it.
    pub fn told(&mut self, job_id: JobId) {
        for kept in self.record.outcomes.iter_mut().filter(|kept| kept.job_id == job_id) {
            kept.is_told = true;
        }
        self.write_or_say();
    }

    /// The last job that has ended: a scan that begins now proves it.
    #[must_use]
    pub const fn after_job(&self) -> Option<JobId> {
        self.record.after_job
    }

    fn write_or_say(&self) {
        if let Err(error) = self.write() {
            tracing::warn!(path = %self.path.display(), %error, "what came of a job is not kept");
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(&self.record).map_err(std::io::Error::other)?;
        write_file(&self.path, &bytes)?;
        // The name as well, before anything is touched.
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::File::open(folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use manifest::Digest;
    use protocol::NodeId;

    use super::*;

    fn job() -> Job {
        Job {
            job_id: JobId::new(),
            node_id: NodeId::new(),
            baseline: Digest::of(b"x"),
            nonce: Uuid::new_v4(),
            not_after_unix_ms: 0,
            steps: Vec::new(),
        }
    }

    const RAN: fn() -> JobOutcome = || JobOutcome::Ran { steps: Vec::new() };

    #[test]
    fn a_job_runs_once_and_its_outcome_is_told_until_it_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path());
        let job = job();
        assert_eq!(ledger.look_up(&job), Known::New);
        assert_eq!(ledger.after_job(), None);
        ledger.begin(&job).unwrap();
        ledger.finish(job.job_id, RAN());
        assert_eq!(ledger.untold(), Some((job.job_id, &RAN())));
        // A restart before the answer came.
        let mut ledger = Ledger::open(folder.path());
        assert_eq!(ledger.untold(), Some((job.job_id, &RAN())));
        assert_eq!(ledger.after_job(), Some(job.job_id));
        ledger.told(job.job_id);
        let mut ledger = Ledger::open(folder.path());
        assert_eq!(ledger.untold(), None);
        // The server asks once more: it hears the same and nothing runs.
        assert_eq!(ledger.look_up(&job), Known::ToldAgain);
        assert_eq!(ledger.untold(), Some((job.job_id, &RAN())));
        let stolen = Job {
            job_id: JobId::new(),
            ..job
        };
        assert!(matches!(ledger.look_up(&stolen), Known::Refused(reason) if reason.contains("nonce")));
    }

    #[test]
    fn a_crash_between_nonce_and_outcome_never_runs_a_job_twice() {
        let folder = tempfile::tempdir().unwrap();
        let job = job();
        Ledger::open(folder.path()).begin(&job).unwrap();
        let mut ledger = Ledger::open(folder.path());
        let (job_id, outcome) = ledger.untold().unwrap();
        assert_eq!(job_id, job.job_id);
        assert!(
            matches!(outcome, JobOutcome::Refused { reason } if reason.contains("was stopped")),
            "{outcome:?}"
        );
        assert_eq!(ledger.look_up(&job), Known::ToldAgain);
    }

    #[test]
    fn nonces_and_outcomes_are_bounded_and_nothing_is_forgotten_too_early() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path());
        let jobs: Vec<Job> = (0..OUTCOMES_MAX + 1).map(|_| job()).collect();
        for job in &jobs {
            ledger.begin(job).unwrap();
            ledger.finish(job.job_id, RAN());
        }
        assert_eq!(ledger.record.outcomes.len(), OUTCOMES_MAX);
        assert!(matches!(ledger.look_up(&jobs[0]), Known::Refused(reason) if reason.contains("no longer kept")));
        ledger.record.used = std::iter::repeat_n(ledger.record.used[0], NONCES_MAX).collect();
        ledger.begin(&job()).unwrap();
        assert_eq!(ledger.record.used.len(), NONCES_MAX);
    }

    #[test]
    fn a_damaged_ledger_lets_nothing_run() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("jobs.json"), "{").unwrap();
        let mut ledger = Ledger::open(folder.path());
        assert!(matches!(ledger.look_up(&job()), Known::Refused(_)));
        ledger.closed_until = Some(Instant::now());
        assert_eq!(ledger.look_up(&job()), Known::New);
    }
}
