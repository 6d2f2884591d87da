//! Runs what people asked for, one build after the other.

use std::path::Path;
use std::time::Duration;

use store::{BuildEnd, BuildProgress, BuildRecord, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cgroup::{self, BuildCgroup};
use super::child::{self, Program, Running};
use super::log::BuildLog;
use super::state::{Heard, Stop, ended};
use crate::app::{App, AppError, recipes};
use crate::http::error::chain;
use crate::image;

/// Between two looks for a build that waits, beside nudges.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// Between two times that what a build does is written down.
const TELL_PAUSE: Duration = Duration::from_secs(1);
/// How long a build may take to end by itself when it is asked to; then it is killed.
const END_LIMIT: Duration = Duration::from_secs(8);
/// Tries to remove what a killed build left, while its last processes are ending, and the time between two.
const CLEAN_TRIES: u32 = 20;
const CLEAN_PAUSE: Duration = Duration::from_millis(250);
/// What the queue waits for while a build runs that is none of the queue.
const BUSY: &str = "somebody builds in the data folder by hand; waits for that to end";
/// What became of a build whose server is gone.
const INTERRUPTED: &str = "interrupted: the server ended while it ran";

/// Runs builds until cancelled.
pub async fn run(app: App, cancel: CancellationToken) {
    // Of this server, nothing runs yet.
    loop {
        match app.store.build_interrupt(INTERRUPTED).await {
            Ok(builds) => {
                for build in builds {
                    tracing::warn!(build.id = %build, "a build was interrupted: the server ended while it ran");
                }
                break;
            }
            Err(error) => tracing::warn!(error = %chain(&error), "builds cannot be looked up; trying again"),
        }
        if pause(&app, &cancel).await {
            return;
        }
    }
    cgroup::remove_left();
    remove_leftovers(&app.config.data_dir).await;
    loop {
        let is_more = match next(&app).await {
            Ok(Some(build)) => {
                if let Err(error) = build_one(&app, &build, &cancel).await {
                    tracing::warn!(build.id = %build.id, error = %chain(&error), "what became of a build is not kept");
                }
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "builds cannot be looked up; trying again");
                false
            }
        };
        if cancel.is_cancelled() || (!is_more && pause(&app, &cancel).await) {
            return;
        }
    }
}

/// Waits for a nudge, or a while. Whether the server ends.
async fn pause(app: &App, cancel: &CancellationToken) -> bool {
    tokio::select! {
        () = cancel.cancelled() => true,
        () = app.build_nudge.notified() => false,
        () = tokio::time::sleep(IDLE_PAUSE) => false,
    }
}

/// The build that is to run now. While somebody builds in the same data folder by hand, it waits.
async fn next(app: &App) -> Result<Option<BuildRecord>, StoreError> {
    if !app.store.build_is_queued().await? {
        return Ok(None);
    }
    if image::build::is_running(&app.config.data_dir) {
        app.store.build_waits(BUSY).await?;
        return Ok(None);
    }
    app.store.build_take_next().await
}

/// Runs one build to its end and keeps what became of it.
async fn build_one(app: &App, build: &BuildRecord, cancel: &CancellationToken) -> Result<(), AppError> {
    tracing::info!(build.id = %build.id, recipe = build.recipe, "a build begins");
    let started = Instant::now();
    let secs = || started.elapsed().as_secs();
    let mut log = match BuildLog::create(&app.config.data_dir, build.id) {
        Ok(log) => log,
        Err(error) => {
            let end = BuildEnd::Failed(format!("its log cannot be written: {error}"));
            return Ok(app.store.build_finish(build.id, &end, 0).await?);
        }
    };
    let mut end = match prepared(app, build).await {
        Ok(program) => attended(app, build, program, &mut log, started, cancel).await,
        Err(reason) => BuildEnd::Failed(reason),
    };
    if let BuildEnd::Done(image) = end {
        // Known before the build counts as done, so that whoever waits for it can use it.
        end = match registered(app, image).await {
            Ok(()) => end,
            Err(reason) => BuildEnd::Failed(reason),
        };
    }
    let last = match &end {
        BuildEnd::Done(image) => format!("done: {image}"),
        BuildEnd::Failed(reason) => format!("failed: {reason}"),
        BuildEnd::Cancelled => "cancelled".to_owned(),
    };
    if let Err(error) = log.end(secs(), &last) {
        tracing::warn!(build.id = %build.id, %error, "the end of a build is not in its log");
    }
    tracing::info!(build.id = %build.id, recipe = build.recipe, duration_s = secs(), end = last.lines().next(), "a build is over");
    app.store.build_finish(build.id, &end, size(log.bytes())).await?;
    Ok(())
}

/// A program with the cgroup that it runs in.
struct Prepared {
    program: Program,
    cgroup: Option<BuildCgroup>,
    /// How its limits are kept, for the log.
    limits: String,
}

/// Makes everything ready; or says why the build cannot begin.
async fn prepared(app: &App, build: &BuildRecord) -> Result<Prepared, String> {
    let config = &app.config;
    let limits = config.images.builds;
    let recipe_dir = recipes::recipe_folder(app, &build.recipe)
        .await
        .map_err(|error| chain(&error))?;
    let free = rustix::fs::statvfs(&config.data_dir)
        .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
        .map_err(|error| format!("{}: {error}", config.data_dir.display()))?;
    if free < limits.free_bytes_min {
        return Err(format!(
            "{} has {free} bytes free, expected at least {} (images.builds.free_bytes_min)",
            config.data_dir.display(),
            limits.free_bytes_min
        ));
    }
    let (cgroup, how) = match BuildCgroup::create(&build.id.to_string(), &limits) {
        Ok(cgroup) => (Some(cgroup), "of all its processes together, by cgroup".to_owned()),
        Err(why) => (None, format!("of each process, not of all together ({why})")),
    };
    let agent = Some(config.images.agent_binary.as_path()).filter(|agent| agent.is_file());
    let program = Program {
        path: app.build_program.to_path_buf(),
        arguments: child::arguments(&recipe_dir, &config.data_dir, config.image_loaders_dir(), agent),
        cgroup: cgroup.as_ref().map(|cgroup| cgroup.dir().to_owned()),
        memory_bytes_max: limits.memory_bytes_max,
        has_namespace: rustix::process::geteuid().is_root(),
    };
    let limits = format!(
        "at most {} s, {} bytes of memory {how}",
        limits.secs_max, limits.memory_bytes_max
    );
    Ok(Prepared {
        program,
        cgroup,
        limits,
    })
}

/// Runs the program to its end: keeps what it says, and ends it when somebody wants that or it takes too long.
async fn attended(
    app: &App,
    build: &BuildRecord,
    prepared: Prepared,
    log: &mut BuildLog,
    started: Instant,
    cancel: &CancellationToken,
) -> BuildEnd {
    let limits = app.config.images.builds;
    let mut running = match Running::start(&prepared.program) {
        Ok(running) => running,
        Err(error) => return BuildEnd::Failed(format!("the build's process cannot be started: {error}")),
    };
    let mut heard = Heard::default();
    let mut told = BuildProgress::default();
    let mut unwritten: Option<std::io::Error> = None;
    let mut keep = |log: &mut BuildLog, stage: &str, text: &str| {
        if let Err(error) = log.add(started.elapsed().as_secs(), stage, text) {
            unwritten.get_or_insert(error);
        }
    };
    keep(log, "start", &prepared.limits);
    let overdue = started + Duration::from_secs(limits.secs_max.into());
    let mut tick = tokio::time::interval(TELL_PAUSE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut stop: Option<(Stop, Instant)> = None;
    loop {
        let wanted = tokio::select! {
            spoken = running.next() => match spoken {
                Some(spoken) => {
                    if let Some(line) = heard.take(spoken) {
                        keep(log, &line.stage, &line.text);
                    }
                    None
                }
                None => break,
            },
            _ = tick.tick() => tell(app, build, &mut heard, &mut told, log).await,
            () = app.build_nudge.notified() => tell(app, build, &mut heard, &mut told, log).await,
            () = tokio::time::sleep_until(overdue), if stop.is_none() => Some(Stop::TimedOut),
            () = cancel.cancelled(), if stop.is_none() => Some(Stop::ServerEnds),
        };
        match (wanted, stop) {
            (Some(wanted), None) => {
                stop = Some((wanted, Instant::now() + END_LIMIT));
                running.ask_to_end();
            }
            // It had its time, and something of it still holds its output.
            (_, Some((_, until))) if Instant::now() >= until => break,
            _ => {}
        }
    }
    if stop.is_some() && heard.result.is_none() {
        running.kill();
    }
    // It closed its outputs, or was killed.
    let status = running.end(END_LIMIT).await;
    let ran_out_of_memory = prepared.cgroup.as_ref().is_some_and(BuildCgroup::ran_out_of_memory);
    if let Some(cgroup) = prepared.cgroup {
        // Waits for its last processes.
        let _ = tokio::task::spawn_blocking(move || drop(cgroup)).await;
    }
    remove_leftovers(&app.config.data_dir).await;
    if let Some(error) = unwritten {
        tracing::warn!(build.id = %build.id, %error, "a build's log has gaps");
    }
    ended(&heard, stop.map(|(stop, _)| stop), &status, ran_out_of_memory, &limits)
}

/// Writes down what the build does, where that is news; whether somebody wants it to end. A database that is away does
/// not end it.
async fn tell(
    app: &App,
    build: &BuildRecord,
    heard: &mut Heard,
    told: &mut BuildProgress,
    log: &BuildLog,
) -> Option<Stop> {
    heard.progress.log_bytes = size(log.bytes());
    let wish = match heard.progress == *told {
        true => app.store.build_cancel_wish(build.id).await,
        false => app.store.build_progress(build.id, &heard.progress).await,
    };
    match wish {
        Ok(wish) => {
            told.clone_from(&heard.progress);
            wish.map(|_| Stop::Cancelled)
        }
        // Somebody took it out of the table, or another server calls it interrupted.
        Err(StoreError::NotFound { .. }) => Some(Stop::Cancelled),
        Err(error) => {
            tracing::debug!(build.id = %build.id, error = %chain(&error), "what a build does is not kept");
            None
        }
    }
}

/// Makes the image known; or says why it is none.
async fn registered(app: &App, image: manifest::Digest) -> Result<(), String> {
    crate::tasks::register_images(app.clone())
        .await
        .map_err(|error| chain(&error))?;
    match app.store.image_find(&image.to_string()).await {
        Ok(_) => Ok(()),
        Err(StoreError::NotFound { .. }) => Err(format!(
            "the build named image {image}, which is not in the store with a signature of this appliance"
        )),
        Err(error) => Err(chain(&error)),
    }
}

/// Removes what a killed build left in the data folder. What cannot be removed is logged; the next build tries again.
async fn remove_leftovers(data_dir: &Path) {
    for _ in 0..CLEAN_TRIES {
        let data_dir = data_dir.to_owned();
        match tokio::task::spawn_blocking(move || image::build::remove_leftovers(&data_dir)).await {
            Ok(Ok(())) => return,
            // Another build has begun, by hand, and removes them itself; or processes of this one still end.
            Ok(Err(error)) => tracing::debug!(error = %chain(&error), "leftovers of a build are not removed yet"),
            Err(error) => tracing::warn!(%error, "removing leftovers of a build"),
        }
        tokio::time::sleep(CLEAN_PAUSE).await;
    }
    tracing::warn!("what a build left in the data folder is not removed: the next one will");
}

fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
