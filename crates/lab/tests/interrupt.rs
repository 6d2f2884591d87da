//! Being asked to stop. Alone in its file, because the flag belongs to the whole process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use lab::command::{run_captured, run_checked};
use lab::process::Supervised;
use lab::wait::wait_until;
use rustix::process::{Signal, getpid, kill_process};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_request_to_stop_ends_waits_and_lets_the_tear_down_finish() {
    lab::interrupt::install().unwrap();
    assert!(!lab::interrupt::requested());
    let folder = tempfile::tempdir().unwrap();
    // Ends in order when asked, but takes its time: the tear-down must not kill it.
    let mut script = Command::new("sh");
    script.args([
        "-c",
        "trap 'sleep 1; exit 7' TERM; echo ready; while :; do sleep 0.1; done",
    ]);
    let mut server = Supervised::spawn("server", script, &folder.path().join("log")).unwrap();
    server.wait_line("ready", Duration::from_secs(20)).unwrap();

    kill_process(getpid(), Signal::TERM).unwrap();
    let started = Instant::now();
    let error = wait_until::<()>(Duration::from_secs(60), "the moon", || Ok(None)).unwrap_err();
    assert_eq!(error.to_string(), "asked to stop while waiting for the moon");
    assert!(run_captured(Command::new("sleep").arg("60"), Duration::from_secs(60)).is_err());
    assert!(started.elapsed() < Duration::from_secs(30));

    let status = server.terminate(Duration::from_secs(20)).unwrap();
    assert_eq!(status.code(), Some(7), "ended by itself");
    run_checked(Command::new("sleep").arg("0.3"), Duration::from_secs(20)).unwrap();
}
