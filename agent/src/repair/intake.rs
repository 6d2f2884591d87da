//! Whether a job may run. Pure.

use manifest::{Digest, PublicKey, Signature};
use protocol::latest::{Job, SignedJob};
use protocol::limits::{JOB_SECS_MAX, JOB_STEPS_MAX};
use protocol::{JobId, NodeId};

/// A job may be signed by a server whose clock is this much ahead of its own answers, in milliseconds.
const TOLERANCE_MS: u64 = 60_000;

/// What the agent holds.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    /// Signs jobs.
    pub job_key: &'a PublicKey,
    /// This node.
    pub node_id: NodeId,
    /// The baseline it looks by.
    pub baseline: Digest,
    /// Milliseconds since 1970 by the server's clock.
    pub server_unix_ms: u64,
}

/// A job that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which, if that could be read; unproven where the signature is wrong.
    pub job_id: Option<JobId>,
    /// What was found and what was expected.
    pub reason: String,
}

/// The job, if it is signed, ours, for the baseline held, in time and within bounds. Whether it ran before is for the
/// ledger to say.
///
/// # Errors
/// [`Refusal`].
pub fn judge(signed: &SignedJob, holder: &Holder<'_>) -> Result<Job, Refusal> {
    let parsed: Result<Job, _> = serde_json::from_str(&signed.job);
    let job_id = parsed.as_ref().ok().map(|job| job.job_id);
    let refuse = |reason: String| Refusal { job_id, reason };
    let signature = Signature::from_text(signed.signature.as_str());
    holder
        .job_key
        .verify(signed.job.as_bytes(), &signature)
        .map_err(|error| refuse(format!("the signature does not hold: {error}")))?;
    let job = parsed.map_err(|error| refuse(format!("not a job: {error}")))?;
    if job.node_id != holder.node_id {
        return Err(refuse(format!(
            "it is for node {}, this is {}",
            job.node_id, holder.node_id
        )));
    }
    if job.baseline != holder.baseline {
        return Err(refuse(format!(
            "it is for baseline {}, this node holds {}",
            job.baseline, holder.baseline
        )));
    }
    let (now, end) = (holder.server_unix_ms, job.not_after_unix_ms);
    if now > end {
        return Err(refuse(format!("it expired {} s ago", (now - end) / 1_000)));
    }
    // Nonces are remembered for longer than any job is good for.
    if end - now > JOB_SECS_MAX * 1_000 + TOLERANCE_MS {
        return Err(refuse(format!(
            "it is good for {} s more, at most {JOB_SECS_MAX} are allowed",
            (end - now) / 1_000
        )));
    }
    if job.steps.len() > JOB_STEPS_MAX {
        return Err(refuse(format!(
            "it has {} steps, at most {JOB_STEPS_MAX} are allowed",
            job.steps.len()
        )));
    }
    Ok(job)
}

#[cfg(test)]
mod tests {
    use drift::FindingKind;
    use manifest::KeyPair;
    use protocol::latest::{RepairStep, Verb};
    use uuid::Uuid;

    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn job(node_id: NodeId) -> Job {
        Job {
            job_id: JobId::new(),
            node_id,
            baseline: Digest::of(b"baseline"),
            nonce: Uuid::new_v4(),
            not_after_unix_ms: NOW + 600_000,
            steps: vec![RepairStep {
                group: drift::group_hash(FindingKind::File, "/etc/motd"),
                variant: Digest::of(b"variant"),
                verb: Verb::RestoreFile {
                    path: "/etc/motd".to_owned(),
                },
            }],
        }
    }

    fn sign(job: &Job, key: &KeyPair) -> SignedJob {
        let job = serde_json::to_string(job).unwrap();
        let signature = key.sign(job.as_bytes(), "job").unwrap().as_str().to_owned();
        SignedJob { job, signature }
    }

    #[test]
    fn only_a_job_signed_for_this_node_and_baseline_and_time_runs() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let (node_id, public) = (NodeId::new(), key.public());
        let holder = Holder {
            job_key: &public,
            node_id,
            baseline: Digest::of(b"baseline"),
            server_unix_ms: NOW,
        };
        let good = job(node_id);
        assert_eq!(judge(&sign(&good, &key), &holder), Ok(good.clone()));

        let mut changed = sign(&good, &key);
        changed.job = changed.job.replace("/etc/motd", "/etc/pass");
        let with = |change: &dyn Fn(&mut Job)| {
            let mut job = good.clone();
            change(&mut job);
            sign(&job, &key)
        };
        let many = |job: &mut Job| job.steps = vec![job.steps[0].clone(); JOB_STEPS_MAX + 1];
        for (signed, expected) in [
            (sign(&good, &other), "signature"),
            (changed, "signature"),
            (with(&|job| job.node_id = NodeId::new()), "it is for node"),
            (with(&|job| job.baseline = Digest::of(b"other")), "it is for baseline"),
            (with(&|job| job.not_after_unix_ms = NOW - 5_000), "expired 5 s ago"),
            (with(&|job| job.not_after_unix_ms = NOW + 3_600_000), "at most 900"),
            (with(&many), "2001 steps"),
        ] {
            let refusal = judge(&signed, &holder).unwrap_err();
            assert!(
                refusal.reason.contains(expected),
                "{} should say {expected}",
                refusal.reason
            );
            assert_eq!(refusal.job_id, Some(good.job_id));
        }
        let garbage = SignedJob {
            job: "hello".to_owned(),
            signature: key.sign(b"hello", "x").unwrap().as_str().to_owned(),
        };
        let refusal = judge(&garbage, &holder).unwrap_err();
        assert_eq!((refusal.job_id, refusal.reason.contains("not a job")), (None, true));
    }
}
