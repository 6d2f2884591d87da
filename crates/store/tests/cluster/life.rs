//! Make, start, stop, start.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::Row;
use store::cluster::{ClusterConfig, ClusterError, start};

use super::support::{config, connect, data_dir, is_alive, row_count, write_row};

#[tokio::test]
async fn rows_survive_a_stop_and_a_start() {
    let folder = data_dir();
    let cluster = start(&config(folder.path())).await.unwrap();
    let pid = cluster.pid();
    write_row(&cluster).await;
    cluster.stop().await.unwrap();
    assert!(!is_alive(pid), "stop() returned while the postmaster ran");

    let cluster = start(&config(folder.path())).await.unwrap();
    assert_eq!(row_count(&cluster).await, 1);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn settings_are_the_durable_ones() {
    let folder = data_dir();
    let cluster = start(&config(folder.path())).await.unwrap();
    let mut connection = connect(&cluster).await;
    for (name, expected) in [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("data_checksums", "on"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
        ("max_connections", "50"),
    ] {
        let row = sqlx::query("SELECT current_setting($1)")
            .bind(name)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(row.get::<String, _>(0), expected, "{name}");
    }
    let locale: String = sqlx::query_scalar("SELECT datcollate FROM pg_database WHERE datname = current_database()")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(locale, "C.UTF-8");
    drop(connection);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn it_listens_on_a_unix_socket_alone() {
    let folder = data_dir();
    let cluster = start(&config(folder.path())).await.unwrap();
    let held: HashSet<String> = std::fs::read_dir(format!("/proc/{}/fd", cluster.pid()))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let in_table = |table: &str, inode_column: usize| {
        let text = std::fs::read_to_string(format!("/proc/{}/net/{table}", cluster.pid())).unwrap_or_default();
        text.lines()
            .filter(|line| {
                line.split_whitespace()
                    .nth(inode_column)
                    .is_some_and(|inode| held.contains(inode))
            })
            .count()
    };
    assert_eq!(in_table("unix", 6), 1, "{held:?}");
    for table in ["tcp", "tcp6"] {
        assert_eq!(in_table(table, 9), 0, "{table}: {held:?}");
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_path_with_blanks_works() {
    let folder = data_dir();
    let data_dir = folder
        .path()
        .join("it's a long, \"quoted\" path ".repeat(4))
        .join("x".repeat(100));
    let cluster = start(&config(&data_dir)).await.unwrap();
    write_row(&cluster).await;
    cluster.stop().await.unwrap();
    let cluster = start(&config(&data_dir)).await.unwrap();
    assert_eq!(row_count(&cluster).await, 1);
    let socket_folder = cluster.connect_options().get_socket().unwrap().clone();
    cluster.stop().await.unwrap();
    std::fs::remove_dir_all(socket_folder).unwrap();
}

#[tokio::test]
async fn a_second_server_waits_for_the_first_and_leaves_it_alone() {
    let folder = data_dir();
    let first = start(&config(folder.path())).await.unwrap();
    write_row(&first).await;

    let second = ClusterConfig {
        leave_limit: Duration::from_millis(500),
        ..config(folder.path())
    };
    let error = start(&second).await.expect_err("two servers on one folder");
    assert!(matches!(error, ClusterError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("another Plumbline server"), "{error}");

    assert_eq!(row_count(&first).await, 1);
    first.stop().await.unwrap();
}
