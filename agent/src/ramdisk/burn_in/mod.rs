//! Burning a machine in: tests in memory, one after another, each with a limit.
//!
//! Idea: a test is told how long it may take and asked by [`Watch`] to stop; it says in words what it found. What is
//! found goes to the server at once, so that a machine that a test brings down has told the tests before it.
//!
//! Invariants: afterwards every disk holds what it held before (`scratch`). A test that does not end is left behind and
//! told as not run; it keeps nothing else from being tested. What could not be read is said, and never counts as good.

mod counters;
mod cpu;
mod disk;
mod links;
mod memory;
mod network;
mod scratch;
mod watch;

use std::path::Path;
use std::time::{Duration, Instant};

use protocol::latest::{
    BurnIn, BurnInReply, Figure, Port, TestKind, TestOrder, TestOutcome, TestProgress, TestResult, paths,
};
use protocol::limits::{BURN_IN_SECS_MAX, FIGURES_MAX, TEXT_BYTES_MAX};
use serde::Serialize;

use super::backoff::Backoff;
use crate::api::ApiError;
use crate::deploy::{Context, chain};
use watch::Watch;

/// Pause between two words to the server.
const TELL_PAUSE: Duration = Duration::from_secs(5);
/// How long after its limit a test is waited for: a disk may take a minute to give up.
const GRACE: Duration = Duration::from_secs(90);
/// Longest detail that is sent, in characters.
const DETAIL_CHARS_MAX: usize = TEXT_BYTES_MAX / 4;

/// What a test found.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    outcome: TestOutcome,
    detail: String,
    figures: Vec<Figure>,
    ports: Vec<Port>,
}

impl Found {
    /// Passed without problems, else failed; the problems come first.
    fn of(problems: &[String], detail: impl Into<String>, figures: Vec<Figure>) -> Self {
        let detail = detail.into();
        Self {
            outcome: match problems.is_empty() {
                true => TestOutcome::Passed,
                false => TestOutcome::Failed,
            },
            detail: match problems.is_empty() {
                true => detail,
                false => format!("{}. {detail}", problems.join("; ")),
            },
            figures,
            ports: Vec::new(),
        }
    }

    fn not_run(detail: impl Into<String>) -> Self {
        Self {
            outcome: TestOutcome::NotRun,
            detail: detail.into(),
            figures: Vec::new(),
            ports: Vec::new(),
        }
    }
}

fn figure(name: impl Into<String>, value: f64, unit: &str) -> Figure {
    Figure {
        name: name.into(),
        value,
        unit: unit.to_owned(),
    }
}

/// Runs the tests and tells what they find. Ends early when the server says so.
///
/// # Errors
/// The server's refusal of a result.
pub async fn run(burn_in: &BurnIn, context: &Context) -> Result<(), ApiError> {
    let console = &context.console;
    console.stage(format!("burn-in: {}", burn_in.reason));
    for order in &burn_in.tests {
        let limit = Duration::from_secs(u64::from(order.limit_secs.clamp(1, BURN_IN_SECS_MAX)));
        console.say(format!("{}: up to {} s", order.kind.as_str(), limit.as_secs()));
        let Some(result) = test(burn_in, *order, limit, context).await else {
            console.say("the server has broken the burn-in off");
            return Ok(());
        };
        let word = match result.outcome {
            TestOutcome::Passed => "passed",
            TestOutcome::Failed => "FAILED",
            TestOutcome::NotRun => "could not be tested",
        };
        console.say(format!("{}: {word}: {}", order.kind.as_str(), result.detail));
        if !tell_result(burn_in, &result, context).await?.go_on {
            return Ok(());
        }
    }
    console.stage("burn-in: all tests are done");
    Ok(())
}

/// One test; `None` when the server has broken it off.
async fn test(burn_in: &BurnIn, order: TestOrder, limit: Duration, context: &Context) -> Option<TestResult> {
    let start = Instant::now();
    let watch = Watch::new(start + limit);
    let mut work = tokio::spawn(found(order.kind, watch.clone(), context.clone()));
    let mut go_on = true;
    let found = loop {
        tokio::select! {
            found = &mut work => break found.unwrap_or_else(|error| Found::not_run(format!("the test is broken: {error}"))),
            () = tokio::time::sleep(TELL_PAUSE) => {}
        }
        if start.elapsed() > limit + GRACE {
            work.abort();
            break Found::not_run(format!(
                "it did not end within its {} s ({})",
                limit.as_secs(),
                watch.said()
            ));
        }
        let progress = TestProgress {
            kind: order.kind,
            detail: cut(&watch.said()),
        };
        // A server that is away stops no test; one that does not know this burn-in any more does.
        go_on = match tell(burn_in, "progress", &progress, context).await {
            Ok(reply) => reply.go_on,
            Err(error) => error.is_temporary(),
        };
        if !go_on {
            watch.cancel();
        }
    };
    let Found {
        outcome,
        detail,
        mut figures,
        mut ports,
    } = found;
    figures.truncate(FIGURES_MAX);
    ports.truncate(FIGURES_MAX);
    go_on.then(|| TestResult {
        kind: order.kind,
        outcome,
        detail: cut(&detail),
        figures,
        ports,
        secs: u32::try_from(start.elapsed().as_secs()).unwrap_or(u32::MAX),
    })
}

fn cut(text: &str) -> String {
    text.chars().take(DETAIL_CHARS_MAX).collect()
}

async fn found(kind: TestKind, watch: Watch, context: Context) -> Found {
    let root = Path::new("/");
    let blocking = match kind {
        TestKind::Network => return network::run(&context, root, &watch).await,
        TestKind::Links => tokio::task::spawn_blocking(move || links::run(root, &watch)),
        TestKind::Memory => tokio::task::spawn_blocking(move || memory::run(root, &watch)),
        TestKind::Cpu => tokio::task::spawn_blocking(move || cpu::run(root, &watch)),
        TestKind::Disk => tokio::task::spawn_blocking(move || disk::run(root, &watch)),
    };
    blocking
        .await
        .unwrap_or_else(|error| Found::not_run(format!("the test is broken: {error}")))
}

async fn tell<B: Serialize>(
    burn_in: &BurnIn,
    what: &str,
    body: &B,
    context: &Context,
) -> Result<BurnInReply, ApiError> {
    let path = format!("{}/{}/{what}", paths::BURN_INS, burn_in.id);
    context.api.post(&path, body).await
}

/// Tells a result until the server has taken it: without it the node would count as not tested.
async fn tell_result(burn_in: &BurnIn, result: &TestResult, context: &Context) -> Result<BurnInReply, ApiError> {
    let mut backoff = Backoff::default();
    loop {
        match tell(burn_in, "results", result, context).await {
            Err(error) if error.is_temporary() => {
                let pause = backoff.pause();
                context
                    .console
                    .say(format!("telling the result: {}; trying again", chain(&error)));
                tokio::time::sleep(pause).await;
            }
            other => return other,
        }
    }
}
