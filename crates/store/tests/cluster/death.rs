//! `kill -9` of the postmaster, and of the server that holds it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use store::cluster::{ClusterConfig, PreparedCluster, start};

use super::support::{config, data_dir, is_alive, kill_9, row_count, wait_until, write_row};

/// Names the data folder to the test that acts as a server.
const HOLD: &str = "PLUMBLINE_TEST_CLUSTER_HOLD";

#[tokio::test]
async fn a_killed_postmaster_is_noticed_and_started_again_with_its_rows() {
    let folder = data_dir();
    let mut cluster = start(&config(folder.path())).await.unwrap();
    write_row(&cluster).await;
    let first_pid = cluster.pid();

    kill_9(first_pid);
    let ending = tokio::time::timeout(Duration::from_secs(10), cluster.exited())
        .await
        .expect("the end is told");
    assert!(
        ending.status.contains("SIGKILL") || ending.status.contains('9'),
        "{ending:?}"
    );

    cluster.restart().await.unwrap();
    assert_ne!(cluster.pid(), first_pid);
    assert_eq!(row_count(&cluster).await, 1);

    // And the same for a server that starts anew.
    kill_9(cluster.pid());
    cluster.exited().await;
    drop(cluster);
    let cluster = start(&config(folder.path())).await.unwrap();
    assert_eq!(row_count(&cluster).await, 1);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_restart_of_a_running_cluster_keeps_its_rows() {
    let folder = data_dir();
    let mut cluster = start(&config(folder.path())).await.unwrap();
    write_row(&cluster).await;
    let first_pid = cluster.pid();
    cluster.restart().await.unwrap();
    assert!(!is_alive(first_pid));
    assert_eq!(row_count(&cluster).await, 1);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_dropped_cluster_stops() {
    let folder = data_dir();
    let cluster = start(&config(folder.path())).await.unwrap();
    let pid = cluster.pid();
    drop(cluster);
    wait_until(
        Duration::from_secs(10),
        "the postmaster of a dropped cluster to leave",
        || !is_alive(pid),
    );
}

#[tokio::test]
async fn the_kill_of_a_server_takes_its_postgres_along() {
    let folder = data_dir();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "cluster::death::acts_as_a_server",
            "--ignored",
            "--nocapture",
        ])
        .env(HOLD, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(server.stdout.take().unwrap());
    let pid: u32 = output
        .lines()
        .find_map(|line| {
            line.unwrap()
                .split_once("postmaster=")
                .map(|(_, pid)| pid.trim().parse().unwrap())
        })
        .expect("the server names its postmaster");
    assert!(is_alive(pid));

    server.kill().unwrap();
    server.wait().unwrap();
    wait_until(
        Duration::from_secs(10),
        "the postmaster of a killed server to leave",
        || !is_alive(pid),
    );

    let cluster = start(&config(folder.path())).await.unwrap();
    assert_eq!(row_count(&cluster).await, 1);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_new_server_need_not_wait_for_the_postgres_of_a_killed_one() {
    let folder = data_dir();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "cluster::death::acts_as_a_server",
            "--ignored",
            "--nocapture",
        ])
        .env(HOLD, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap().contains("postmaster=")));
    server.kill().unwrap();

    // At once, while the old postmaster still shuts down: it is waited for inside.
    let cluster = start(&config(folder.path())).await.unwrap();
    assert_eq!(row_count(&cluster).await, 1);
    cluster.stop().await.unwrap();
    server.wait().unwrap();
}

#[tokio::test]
async fn a_postgres_that_an_earlier_run_left_is_told_to_stop() {
    let folder = data_dir();
    let patient = config(folder.path());
    let cluster = start(&patient).await.unwrap();
    write_row(&cluster).await;
    cluster.stop().await.unwrap();
    // As a server leaves it whose signal of death was lost: the lock is free, the postmaster runs.
    let prepared = PreparedCluster::prepare(&patient).unwrap();
    let mut left = prepared.command().stderr(Stdio::null()).spawn().unwrap();
    let socket = prepared.socket_folder().join(".s.PGSQL.5432");
    wait_until(
        Duration::from_secs(30),
        "the socket of the postmaster that is left",
        || socket.exists(),
    );
    drop(prepared);

    let waiter = std::thread::spawn(move || left.wait().unwrap());
    let cluster = start(&ClusterConfig {
        leave_limit: Duration::from_secs(1),
        ..patient
    })
    .await
    .unwrap();
    assert!(waiter.join().unwrap().success(), "it was told to shut down, not killed");
    assert_eq!(row_count(&cluster).await, 1);
    cluster.stop().await.unwrap();
}

/// Not a test of its own: what the tests above start and kill.
#[tokio::test]
#[ignore = "the server that another test kills"]
async fn acts_as_a_server() {
    let Some(folder) = std::env::var_os(HOLD) else { return };
    let cluster = start(&config(folder.as_ref())).await.unwrap();
    write_row(&cluster).await;
    println!("postmaster={}", cluster.pid());
    std::io::stdout().flush().unwrap();
    cluster.exited().await;
}
