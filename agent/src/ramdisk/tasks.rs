//! What to do next: the server decides, this asks, does it, and says how it went.

use std::time::{Duration, Instant};

use protocol::latest::{DeploySpec, Outcome, Stage, Task, paths};
use tokio::task::JoinHandle;

use super::backoff::Backoff;
use super::burn_in;
use super::lease::Lease;
use super::rescue::Rescue;
use super::supervise::READING_TIME;
use crate::api::{Api, ApiError};
use crate::deploy::{self, Context, Failure, Installed, chain};

/// A machine that still waits after a day starts over to get a new certificate: the one of its claim has then time left
/// for the longest burn-in, and not for another day of waiting.
const CLAIM_LIFE: Duration = Duration::from_secs(23 * 3600);
/// How long the outcome of a deployment is offered to a server that does not answer.
const OUTCOME_LIMIT: Duration = Duration::from_secs(600);
/// A waiting machine says again why it waits, for whoever comes to the rack later.
const REPEAT: Duration = Duration::from_secs(600);
/// Pause between two questions whether the rescue system is still wanted.
const RESCUE_PAUSE: Duration = Duration::from_secs(3);
/// Time the server may hold a request for a task.
const WAIT_SECS: u64 = protocol::limits::TASK_WAIT_SECS_MAX;

/// Why the machine is restarted.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It is installed.
    Installed,
    /// The server said so; its reason.
    Asked(String),
    /// It cannot go on; the reason.
    Stuck(String),
}

/// Asks the server what this machine is to do. It may hold the request for [`protocol::limits::TASK_WAIT_SECS_MAX`].
///
/// # Errors
/// [`ApiError`].
pub async fn next_task(api: &Api) -> Result<Task, ApiError> {
    api.get(&format!("{}?wait_secs={WAIT_SECS}", paths::TASK)).await
}

/// Tells how a deployment ended, again and again for ten minutes.
pub async fn tell_outcome(spec: &DeploySpec, context: &Context, outcome: &Outcome) {
    report(spec, context, outcome).await;
}

/// Asks for tasks and does them until the machine is to be restarted. `ports` listens for switches meanwhile.
pub async fn run(context: &Context, lease: &mut Lease, mut ports: JoinHandle<()>) -> End {
    let end = work(context, lease, &mut ports).await;
    ports.abort();
    end
}

async fn work(context: &Context, lease: &mut Lease, ports: &mut JoinHandle<()>) -> End {
    let console = &context.console;
    let claimed = Instant::now();
    let mut failed = false;
    let mut rescue: Option<Rescue> = None;
    // A server that goes on ordering what cannot work is not hammered.
    let mut failures = Backoff::default();
    let mut backoff = Backoff::default();
    let mut shown: Option<(String, Instant)> = None;
    let mut show = |text: String| {
        if shown
            .as_ref()
            .is_none_or(|(last, at)| *last != text || at.elapsed() > REPEAT)
        {
            console.say(&text);
            shown = Some((text, Instant::now()));
        }
    };
    loop {
        if claimed.elapsed() > CLAIM_LIFE {
            return End::Stuck("This boot has waited for a day; a restart gets a new certificate.".to_owned());
        }
        if let Err(error) = lease.keep() {
            show(error);
        }
        let asked = Instant::now();
        let task = next_task(&context.api).await;
        // A server that is away ends no rescue system: somebody may be working in it.
        if matches!(&task, Ok(task) if !matches!(task, Task::Rescue { .. })) && rescue.take().is_some() {
            console.stage("the rescue system has ended");
        }
        match task {
            Ok(Task::Rescue { authorized_key, reason }) => {
                backoff = Backoff::default();
                match let_in(&mut rescue, &authorized_key, &reason, context).await {
                    Ok(()) => tokio::time::sleep(RESCUE_PAUSE).await,
                    Err(error) => {
                        rescue = None;
                        show(format!("no rescue system: {error}; trying again"));
                        tokio::time::sleep(failures.pause()).await;
                    }
                }
            }
            Ok(Task::BurnIn(burn_in)) => {
                backoff = Backoff::default();
                // Both bring interfaces up and down.
                if !ports.is_finished() {
                    show("listening for switches before the burn-in".to_owned());
                    let _ended = (&mut *ports).await;
                }
                if let Err(error) = Box::pin(burn_in::run(&burn_in, context)).await {
                    show(format!("the burn-in ended early: {}", chain(&error)));
                    tokio::time::sleep(failures.pause()).await;
                }
            }
            Ok(Task::Wait { reason }) => {
                backoff = Backoff::default();
                show(format!("waiting: {reason}"));
                // A server that does not hold the request is not hammered.
                if asked.elapsed() < Duration::from_secs(1) {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
            }
            Ok(Task::Reboot { reason }) => {
                if failed {
                    console.say("restarting in 60 seconds");
                    tokio::time::sleep(READING_TIME).await;
                }
                return End::Asked(reason);
            }
            Ok(Task::Deploy(spec)) => {
                backoff = Backoff::default();
                if Box::pin(deploy(&spec, context)).await {
                    return End::Installed;
                }
                failed = true;
                tokio::time::sleep(failures.pause()).await;
            }
            Err(error) if error.is_temporary() => {
                let pause = backoff.pause();
                show(format!("the server does not answer ({}); asking again", chain(&error)));
                tokio::time::sleep(pause).await;
            }
            Err(error) => return End::Stuck(chain(&error)),
        }
    }
}

/// Starts the rescue system, or looks after the one that is up.
async fn let_in(
    rescue: &mut Option<Rescue>,
    authorized_key: &str,
    reason: &str,
    context: &Context,
) -> Result<(), String> {
    let console = &context.console;
    if !rescue.as_ref().is_some_and(|rescue| rescue.is_for(authorized_key)) {
        console.stage(format!("rescue system: {reason}"));
        *rescue = None;
        let (key, at) = (authorized_key.to_owned(), console.clone());
        let started = tokio::task::spawn_blocking(move || Rescue::start(&key, &at)).await;
        let started = started.map_err(|error| error.to_string())??;
        console.say(format!("root may sign in over SSH to {}", Lease::address()));
        console.say(format!("host key: {}", started.host_key()));
        console.say("Nothing on the disks is touched. It ends when the order is lifted, or with a restart.");
        *rescue = Some(started);
    }
    match rescue {
        Some(rescue) => rescue.keep(&context.api, console).await.map_err(|error| chain(&error)),
        None => Ok(()),
    }
}

/// Does one deployment; whether the machine is installed.
async fn deploy(spec: &DeploySpec, context: &Context) -> bool {
    let console = &context.console;
    console.stage(format!("installing {} (attempt {})", spec.node_name, spec.attempt));
    let start = Instant::now();
    let result = deploy::run(spec, context).await;
    let outcome = outcome(&result, start.elapsed());
    match &result {
        Ok(installed) => console.stage(format!(
            "installed: {} files, {} MB, {} s; {} files were there already, {} MB fetched",
            installed.files,
            installed.bytes / 1_000_000,
            start.elapsed().as_secs(),
            installed.work.files_kept,
            installed.work.bytes_fetched / 1_000_000
        )),
        Err(failure) => console.alarm(
            "INSTALLATION FAILED",
            &[
                &format!("Stage {}: {}", failure.stage.as_str(), failure.reason),
                "",
                aftermath(failure.stage),
            ],
        ),
    }
    report(spec, context, &outcome).await;
    result.is_ok()
}

/// What a failure leaves behind.
fn aftermath(stage: Stage) -> &'static str {
    if stage < Stage::Wipe {
        "No disk was touched. The server decides whether to try again."
    } else {
        "The disk holds no usable system. The server decides whether to try again."
    }
}

fn outcome(result: &Result<Installed, Failure>, duration: Duration) -> Outcome {
    match result {
        Ok(installed) => Outcome::Installed {
            files: installed.files,
            bytes: installed.bytes,
            requests: installed.requests,
            duration_secs: duration.as_secs(),
            work: Some(installed.work.clone()),
        },
        Err(failure) => Outcome::Failed {
            stage: failure.stage,
            reason: failure.reason.clone(),
        },
    }
}

async fn report(spec: &DeploySpec, context: &Context, outcome: &Outcome) {
    let path = format!("{}/{}/outcome", paths::DEPLOYMENTS, spec.deployment_id);
    let end = Instant::now() + OUTCOME_LIMIT;
    let mut backoff = Backoff::default();
    loop {
        let error: ApiError = match context.api.send(&path, outcome).await {
            Ok(()) => return,
            Err(error) => error,
        };
        let pause = backoff.pause();
        if !error.is_temporary() || Instant::now() + pause > end {
            context
                .console
                .say(format!("the server was not told how it ended: {}", chain(&error)));
            return;
        }
        context.console.say(format!(
            "telling the server how it ended: {}; trying again",
            chain(&error)
        ));
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use protocol::latest::{DeployMode, DiskWork};

    use super::*;

    #[test]
    fn a_person_is_told_whether_a_disk_was_touched() {
        assert!(aftermath(Stage::Verify).contains("No disk was touched"));
        assert!(aftermath(Stage::SelectDisk).contains("No disk was touched"));
        assert!(aftermath(Stage::Wipe).contains("no usable system"));
        assert!(aftermath(Stage::Finish).contains("no usable system"));
    }

    #[test]
    fn a_failure_is_never_told_as_installed() {
        let failure = Failure {
            stage: Stage::Wipe,
            reason: "busy".to_owned(),
        };
        let told = outcome(&Err(failure), Duration::from_secs(3));
        assert!(
            matches!(told, Outcome::Failed { stage: Stage::Wipe, ref reason } if reason == "busy"),
            "{told:?}"
        );
        let work = DiskWork {
            mode: DeployMode::InPlace,
            reason: "known".to_owned(),
            bytes_fetched: 4,
            bytes_kept: 5,
            files_kept: 2,
            files_written: 1,
            files_removed: 7,
        };
        let installed = Installed {
            files: 3,
            bytes: 9,
            requests: 5,
            work: work.clone(),
        };
        let told = outcome(&Ok(installed), Duration::from_secs(3));
        let expected = Outcome::Installed {
            files: 3,
            bytes: 9,
            requests: 5,
            duration_secs: 3,
            work: Some(work),
        };
        assert_eq!(told, expected);
    }
}
