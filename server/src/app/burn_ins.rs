//! Burn-ins: when a machine is given one, what its results come to, and whether it may be installed.

use lifecycle::NodeState;
use lifecycle::burn_in::{Standing, judge};
use protocol::latest::{BurnIn, BurnInReply, Figure, Task, TestOrder, TestOutcome, TestProgress, TestResult};
use protocol::limits::{FIGURES_MAX, TEXT_BYTES_MAX};
use protocol::{BurnInId, NodeId};
use store::{BurnInRecord, NewBurnIn, NodeRecord};
use time::OffsetDateTime;

use super::boot::event;
use super::enrol::Ramdisk;
use super::{App, AppError, nodes, reviews};

/// Who orders what the configuration says.
const SITE: &str = "the site";

/// A node's burn-ins, newest first.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn list(app: &App, node: NodeId) -> Result<Vec<BurnInRecord>, AppError> {
    Ok(app.store.burn_in_list(node).await?)
}

/// The burn-in that a new machine is to do before it may be approved; none: it did it, or the site wants none.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn task_of_new(app: &App, ramdisk: &Ramdisk, node: &NodeRecord) -> Result<Option<Task>, AppError> {
    let commissioning = &app.config.commissioning;
    if node.state != NodeState::WaitingApproval || !commissioning.is_for_new_nodes {
        return Ok(None);
    }
    let wanted = Wanted {
        by: SITE,
        reason: "every new machine is burned in",
        tests: &commissioning.tests,
        since: None,
    };
    task(app, ramdisk, &wanted).await
}

/// A burn-in that somebody wants of this boot.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Who.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// What.
    pub tests: &'a [TestOrder],
    /// One that began before does not count; none: any one counts.
    pub since: Option<OffsetDateTime>,
}

/// What this boot is still to test; begins a burn-in where it has none yet.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn task(app: &App, ramdisk: &Ramdisk, wanted: &Wanted<'_>) -> Result<Option<Task>, AppError> {
    let last = app.store.burn_in_find(ramdisk.node).await?;
    if let Some(last) = &last
        && last.ended_at.is_none()
        && last.token_id != ramdisk.token
    {
        restarted(app, ramdisk.node, last).await?;
    }
    let counts = |last: &BurnInRecord| wanted.since.is_none_or(|since| last.started_at >= since);
    let (id, tests) = match last.filter(counts) {
        // Its worker was started anew, or an answer was lost: the tests that have no result yet.
        Some(last) if last.token_id == ramdisk.token && last.ended_at.is_none() => (last.id, last.tests_left()),
        Some(_) => return Ok(None),
        None if wanted.tests.is_empty() => return Ok(None),
        None => (begin(app, ramdisk, wanted).await?, wanted.tests.to_vec()),
    };
    let reason = format!("{}, by {}", wanted.reason, wanted.by);
    Ok(Some(Task::BurnIn(BurnIn { id, reason, tests })))
}

async fn begin(app: &App, ramdisk: &Ramdisk, wanted: &Wanted<'_>) -> Result<BurnInId, AppError> {
    let new = NewBurnIn {
        node_id: ramdisk.node,
        token_id: ramdisk.token,
        ordered_by: wanted.by,
        reason: wanted.reason,
        tests: wanted.tests,
    };
    let id = app.store.burn_in_start(&new).await?;
    let tests: Vec<String> = wanted
        .tests
        .iter()
        .map(|test| format!("{} up to {} s", test.kind.as_str(), test.limit_secs))
        .collect();
    event(app, ramdisk.node, "", "burn_in_started", &tests.join(", ")).await?;
    Ok(id)
}

/// A machine that starts anew in the middle of a burn-in was brought down by it, or lost its power: a person has to know.
async fn restarted(app: &App, node: NodeId, last: &BurnInRecord) -> Result<(), AppError> {
    let during = last.progress.as_deref().unwrap_or("its beginning");
    end(app, node, &format!("the machine restarted during {during}")).await
}

/// Ends a burn-in before its end.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn end(app: &App, node: NodeId, problem: &str) -> Result<(), AppError> {
    if app.store.burn_in_end(node, problem).await?.is_some() {
        event(app, node, "", "burn_in_failed", problem).await?;
    }
    Ok(())
}

/// Ends burn-ins whose deployer has gone silent.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn watch(app: &App, silent_secs: u32) -> Result<(), AppError> {
    for (node, progress) in app.store.burn_in_list_silent(silent_secs.into()).await? {
        let during = progress.as_deref().unwrap_or(
            "its beginning: a deployer image that was built before there were burn-ins knows none, build it again",
        );
        let problem = format!("the machine said nothing for {silent_secs} s, during {during}");
        end(app, node, &problem).await?;
    }
    Ok(())
}

/// Keeps how far a test is.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn progress(
    app: &App,
    ramdisk: &Ramdisk,
    id: BurnInId,
    progress: &TestProgress,
) -> Result<BurnInReply, AppError> {
    let text = format!("{}: {}", progress.kind.as_str(), progress.detail);
    let text: String = text.chars().take(TEXT_BYTES_MAX / 4).collect();
    let runs = app.store.burn_in_heard(id, ramdisk.node, ramdisk.token, &text).await?;
    Ok(BurnInReply { go_on: runs })
}

/// Judges a result and keeps it.
///
/// # Errors
/// [`AppError::Invalid`] for one that cannot be, [`AppError`] when the database does not answer.
pub async fn result(app: &App, ramdisk: &Ramdisk, id: BurnInId, result: TestResult) -> Result<BurnInReply, AppError> {
    check(&result)?;
    let kind = result.kind;
    let text = format!("the pause after {}", kind.as_str());
    if !app.store.burn_in_heard(id, ramdisk.node, ramdisk.token, &text).await? {
        return Ok(BurnInReply { go_on: false });
    }
    let node = app.store.node_get(ramdisk.node).await?;
    let told = result;
    let result = judge(told.clone(), &node.group, &app.config.commissioning.expectations);
    if app.store.burn_in_result(id, &told, &result).await? {
        let word = match result.outcome {
            TestOutcome::Passed => "passed",
            TestOutcome::Failed => "failed",
            TestOutcome::NotRun => "could not be tested",
        };
        let detail = format!("{} {word} in {} s: {}", kind.as_str(), result.secs, result.detail);
        event(app, ramdisk.node, "", "burn_in_test", &detail).await?;
        ended(app, ramdisk.node).await?;
    }
    Ok(BurnInReply { go_on: true })
}

/// Tells how it ended, if it has.
async fn ended(app: &App, node: NodeId) -> Result<(), AppError> {
    let Some(last) = app.store.burn_in_find(node).await? else {
        return Ok(());
    };
    match last.standing {
        Standing::Passed => event(app, node, "", "burn_in_passed", &last.standing_reason).await,
        Standing::Failed => event(app, node, "", "burn_in_failed", &last.standing_reason).await,
        Standing::None | Standing::Running | Standing::Waived => Ok(()),
    }
}

fn check(result: &TestResult) -> Result<(), AppError> {
    let fits = |text: &str| text.len() <= TEXT_BYTES_MAX;
    let figure_fits = |figure: &Figure| figure.value.is_finite() && fits(&figure.name) && fits(&figure.unit);
    if result.figures.len() > FIGURES_MAX || result.ports.len() > FIGURES_MAX {
        return Err(AppError::Invalid(format!(
            "figures, ports: expected at most {FIGURES_MAX} of each"
        )));
    }
    if !fits(&result.detail) || !result.figures.iter().all(figure_fits) {
        return Err(AppError::Invalid(format!(
            "detail, figures: expected texts of up to {TEXT_BYTES_MAX} bytes, and numbers"
        )));
    }
    Ok(())
}

/// Holds the results of a node's newest burn-in against what is expected of its group now.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn rejudge(app: &App, node: NodeId, group: &str) -> Result<(), AppError> {
    let expectations = &app.config.commissioning.expectations;
    let judged = app.store.burn_in_rejudge(node, |told| judge(told, group, expectations));
    Ok(judged.await?)
}

/// Whether a node may be installed; with a reason a person lets it be installed all the same.
///
/// # Errors
/// [`AppError::Conflict`] that says what holds it back, [`AppError::Invalid`] for a reason that is none.
pub async fn gate(app: &App, node: &NodeRecord, despite: Option<&str>, by: &str) -> Result<(), AppError> {
    rejudge(app, node.id, &node.group).await?;
    let (standing, detail) = match app.store.burn_in_find(node.id).await? {
        Some(last) => (last.standing, last.standing_reason),
        None => Standing::of(None),
    };
    let is_new = matches!(
        node.state,
        NodeState::Listed | NodeState::Discovering | NodeState::WaitingApproval
    );
    let is_required = is_new && app.config.commissioning.is_for_new_nodes;
    let Some(held) = standing.holds_back(&detail, is_required) else {
        return Ok(());
    };
    let Some(reason) = despite else {
        return Err(AppError::Conflict(format!(
            "{held}; order another one (plumbline node boot NODE --commission), or say why it is to be installed all the \
             same (--despite-burn-in REASON)"
        )));
    };
    reviews::reason_check(reason)?;
    app.store.burn_in_waive(node.id, by, reason.trim()).await?;
    let detail = format!("{}, by {by}; {held}", reason.trim());
    nodes::event(app, node.id, "burn_in_waived", &detail).await;
    Ok(())
}
