//! Agents of running nodes: baseline, heartbeat, report.

use drift::Difference;
use manifest::Digest;
use protocol::NodeId;
use protocol::latest::{Baseline, DriftReport, Heartbeat, HeartbeatReply, ReportKind, ReportReply};
use store::{BootSeen, HeartbeatStored, ReportStored};
use time::OffsetDateTime;

use super::boot::event;
use super::drift::count_text;
use super::{App, AppError, boot_orders, contents, trust};

/// Seconds between heartbeats.
const HEARTBEAT_SECS: u64 = 30;
/// The same for a node whose repair is under way or will come: a job is pulled, not pushed.
const HEARTBEAT_SECS_REPAIR: u64 = 10;

/// The event of an agent that does not take its baseline.
pub(super) const REFUSED: &str = "image_refused";

/// A node's baseline.
///
/// # Errors
/// [`AppError::NotFound`] for a node that was never installed.
pub async fn baseline(app: &App, node: NodeId) -> Result<Baseline, AppError> {
    let baseline = app.store.baseline_find(node).await?;
    baseline.ok_or_else(|| AppError::NotFound {
        what: "baseline of node".to_owned(),
        key: node.to_string(),
    })
}

/// A manifest of the node's own baseline: canonical bytes. Nobody reads another node's overlay.
///
/// # Errors
/// [`AppError::NotFound`].
pub async fn manifest(app: &App, node: NodeId, digest: Digest) -> Result<Vec<u8>, AppError> {
    let baseline = baseline(app, node).await?;
    if digest == baseline.overlay {
        let text = app.store.overlay_find(digest).await?;
        return text.map(String::into_bytes).ok_or_else(|| not_found(digest));
    }
    check_is_of_baseline(&baseline, digest)?;
    Ok(app.images.manifest_bytes(digest).await?.to_vec())
}

/// The signature of a manifest of the node's own baseline.
///
/// # Errors
/// [`AppError::NotFound`]; the overlay has none, it comes over an authenticated connection.
pub async fn signature(app: &App, node: NodeId, digest: Digest) -> Result<String, AppError> {
    check_is_of_baseline(&baseline(app, node).await?, digest)?;
    Ok(app.images.signature(digest).await?.as_str().to_owned())
}

fn check_is_of_baseline(baseline: &Baseline, digest: Digest) -> Result<(), AppError> {
    match digest == baseline.image || digest == baseline.agent_layer {
        true => Ok(()),
        false => Err(not_found(digest)),
    }
}

fn not_found(digest: Digest) -> AppError {
    AppError::NotFound {
        what: "manifest in this node's baseline".to_owned(),
        key: digest.to_string(),
    }
}

/// Keeps a heartbeat and says what the agent should do.
///
/// # Errors
/// [`AppError`].
pub async fn heartbeat(app: &App, node: NodeId, heartbeat: &Heartbeat) -> Result<HeartbeatReply, AppError> {
    let baseline = baseline(app, node).await?;
    let now_ms = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
    let skew_ms = i64::try_from(i128::from(heartbeat.unix_ms) - now_ms).unwrap_or(i64::MAX);
    let HeartbeatStored { state: held, boot } = app.store.heartbeat_record(node, heartbeat, skew_ms).await?;
    match boot {
        BootSeen::Same => {}
        BootSeen::First => {
            let detail = format!(
                "agent {} is up, {} s after the start",
                heartbeat.agent_version, heartbeat.uptime_secs
            );
            event(app, node, "", "agent_up", &detail).await?;
            if let Some(detail) = clock_words(skew_ms) {
                event(app, node, "", "clock", &detail).await?;
            }
        }
        BootSeen::Returned { other } => {
            let detail = format!(
                "two machines have this node's identity: boot {} speaks again after boot {other}",
                heartbeat.boot_id
            );
            if app.store.node_quarantine(node, &detail).await? {
                tracing::warn!(node.id = %node, boot.id = %heartbeat.boot_id, boot.other = %other, "a clone");
                event(app, node, "", "clone", &detail).await?;
            }
        }
    }
    if let Some(reason) = &heartbeat.refused {
        refused(app, node, reason).await?;
    }
    let is_clone = matches!(boot, BootSeen::Returned { .. });
    let (job_waiting, job_expected) = app.store.job_outlook(node).await?;
    let mut reply = HeartbeatReply {
        baseline: baseline.digest,
        next_secs: if job_expected {
            HEARTBEAT_SECS_REPAIR
        } else {
            HEARTBEAT_SECS
        },
        full_report: !is_clone && heartbeat.state.is_some() && held != heartbeat.state,
        scan_now: false,
        job_waiting: job_waiting && !is_clone,
        restart: None,
        trust: Some(trust::name_of(&trust::of_baseline(app, &baseline).await?)?),
        unix_ms: u64::try_from(now_ms).unwrap_or(0),
    };
    if !is_clone {
        boot_orders::at_heartbeat(app, node, heartbeat.restart.as_ref(), &mut reply).await?;
    }
    Ok(reply)
}

/// Tells on the node's timeline that its agent does not take its baseline; once for each reason.
async fn refused(app: &App, node: NodeId, reason: &str) -> Result<(), AppError> {
    // As much as an event keeps, so that the next one is known again.
    let reason: String = reason.chars().filter(|c| *c != '\0').take(900).collect();
    let detail = format!("the agent does not take its baseline: {reason}");
    if app.store.event_newest(node, REFUSED).await?.as_deref() != Some(detail.as_str()) {
        event(app, node, "", REFUSED, &detail).await?;
        tracing::warn!(node.id = %node, reason, "an agent does not take its baseline");
    }
    Ok(())
}

/// A clock that is wrong by more than anybody's patience, in words; the server's own time is in its answer.
fn clock_words(skew_ms: i64) -> Option<String> {
    const SKEW_SECS_MAX: u64 = 60;
    let secs = skew_ms.unsigned_abs() / 1_000;
    let way = if skew_ms < 0 { "behind" } else { "ahead of" };
    if secs <= SKEW_SECS_MAX {
        return None;
    }
    let words = match secs {
        0..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} days", secs / 86_400),
    };
    Some(format!("the node's clock is {words} {way} the server's"))
}

/// Keeps a report.
///
/// # Errors
/// [`AppError::Invalid`] when the report contradicts itself.
pub async fn report(app: &App, node: NodeId, report: &DriftReport) -> Result<ReportReply, AppError> {
    check_report(report)?;
    let earlier = app.store.report_newest(node).await?;
    let is_same_scan = earlier.is_some_and(|earlier| {
        earlier.boot_id == report.boot_id && earlier.scan.started_unix_ms == report.scan.started_unix_ms
    });
    let policy = app.policy.clone();
    match app
        .store
        .report_store(node, report, |difference| policy.severity(difference))
        .await?
    {
        ReportStored::Stale { reason } => Ok(ReportReply::Stale { reason }),
        ReportStored::NeedFull { reason } => Ok(ReportReply::NeedFull { reason }),
        ReportStored::Stored {
            opened,
            changed,
            closed,
        } => {
            let scan = &report.scan;
            let changes = format!(
                "{} ({opened} new, {changed} changed, {closed} gone)",
                count_text(scan.difference_count, "difference")
            );
            if is_same_scan {
                // Laid over the last scan: only what changed was looked at.
                event(app, node, "", "changes", &format!("seen between scans: {changes}")).await?;
            } else {
                let end = if scan.complete { "complete" } else { "incomplete" };
                let detail = format!(
                    "{end} scan of {} paths, {changes}, {} not looked at, {} ms",
                    scan.entries(),
                    scan.not_looked_at_count,
                    scan.duration_ms
                );
                event(app, node, "", "scan", &detail).await?;
            }
            if scan.complete
                && app
                    .store
                    .deployment_verify(node, scan.difference_count, scan.not_looked_at_count)
                    .await?
            {
                event(app, node, "", "deployed", "the first full scan has arrived").await?;
            }
            if report.after_job.is_some() {
                app.remediation_nudge.notify_one();
            }
            let listed: &[Difference] = match &report.kind {
                ReportKind::Full { differences } => differences,
                ReportKind::Delta { set, .. } => set,
            };
            Ok(ReportReply::Accepted {
                contents_wanted: contents::wanted(app, listed).await?,
            })
        }
    }
}

/// A full report says everything: its state digest and its count must follow from it, or something is lost on the way.
fn check_report(report: &DriftReport) -> Result<(), AppError> {
    use protocol::limits::{DIFFERENCES_MAX, NOT_LOOKED_AT_MAX};
    let listed = match &report.kind {
        ReportKind::Full { differences } => differences.len(),
        ReportKind::Delta { set, cleared, .. } => set.len().max(cleared.len()),
    };
    if listed > DIFFERENCES_MAX || report.not_looked_at.len() > NOT_LOOKED_AT_MAX {
        return Err(AppError::Invalid(format!(
            "{listed} differences and {} places not looked at; expected at most {DIFFERENCES_MAX} and {NOT_LOOKED_AT_MAX}",
            report.not_looked_at.len()
        )));
    }
    if let ReportKind::Full { differences } = &report.kind
        && differences.len() as u64 == report.scan.difference_count
        && drift::state_digest(differences) != report.state
    {
        return Err(AppError::Invalid(
            "the state digest does not follow from the differences".to_owned(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// wazuh/wazuh#38439: a wrong clock is said to be one.
    #[test]
    fn wazuh_38439_a_wrong_clock_is_told_with_its_way() {
        let hour = 3_600_000;
        assert_eq!(clock_words(59_000), None);
        assert_eq!(
            clock_words(2 * hour).unwrap(),
            "the node's clock is 2 h ahead of the server's"
        );
        assert_eq!(
            clock_words(-2 * 365 * 24 * hour).unwrap(),
            "the node's clock is 730 days behind the server's"
        );
        assert!(clock_words(i64::MIN).is_some());
    }
}
