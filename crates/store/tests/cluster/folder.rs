//! What stands in the data folder before the start.

use std::os::unix::fs::PermissionsExt;

use store::cluster::{ClusterError, start};

use super::support::{config, data_dir, data_folder, row_count, write_row};

#[tokio::test]
async fn a_folder_of_another_major_version_is_refused_with_the_way_out() {
    let folder = data_dir();
    let cluster = start(&config(folder.path())).await.unwrap();
    write_row(&cluster).await;
    cluster.stop().await.unwrap();
    let version_file = data_folder(folder.path()).join("PG_VERSION");
    let version = std::fs::read_to_string(&version_file).unwrap();

    std::fs::write(&version_file, "97\n").unwrap();
    let error = start(&config(folder.path()))
        .await
        .expect_err("no PostgreSQL 97 exists");
    assert!(
        matches!(error, ClusterError::VersionMissing { found: 97, .. }),
        "{error}"
    );
    let message = error.to_string();
    for part in [
        "PostgreSQL 97",
        "apt-get install postgresql-97",
        "pg_upgrade",
        "pg_dump",
        version.trim(),
    ] {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }

    std::fs::write(&version_file, version).unwrap();
    let cluster = start(&config(folder.path())).await.unwrap();
    assert_eq!(row_count(&cluster).await, 1, "the refusal touched nothing");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_half_made_cluster_is_not_taken_for_one() {
    let folder = data_dir();
    let partial = folder.path().join("postgres/data.partial");
    std::fs::create_dir_all(partial.join("base")).unwrap();
    std::fs::write(partial.join("PG_VERSION"), "15\n").unwrap();

    let cluster = start(&config(folder.path())).await.unwrap();
    write_row(&cluster).await;
    cluster.stop().await.unwrap();
    assert!(!partial.exists());
}

#[tokio::test]
async fn something_else_in_the_folder_is_left_alone() {
    for (name, text) in [("notes.txt", "mine"), ("PG_VERSION", "15\n")] {
        let folder = data_dir();
        let data = data_folder(folder.path());
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join(name), text).unwrap();
        let error = start(&config(folder.path())).await.expect_err(name);
        assert!(matches!(error, ClusterError::NotACluster { .. }), "{name}: {error}");
        assert_eq!(std::fs::read_to_string(data.join(name)).unwrap(), text);
    }
}

#[tokio::test]
async fn the_log_says_why_it_does_not_start() {
    let folder = data_dir();
    start(&config(folder.path())).await.unwrap().stop().await.unwrap();
    let automatic = data_folder(folder.path()).join("postgresql.auto.conf");
    std::fs::write(&automatic, "shared_buffers = 'plenty'\n").unwrap();

    let error = start(&config(folder.path())).await.expect_err("a broken setting");
    assert!(matches!(error, ClusterError::EndedEarly { .. }), "{error}");
    assert!(error.to_string().contains("shared_buffers"), "{error}");
    let log = std::fs::read_to_string(folder.path().join("postgres/log/postgres.log")).unwrap();
    assert!(log.contains("plenty"), "{log}");
}

#[tokio::test]
async fn a_closed_folder_on_the_way_is_named() {
    if !rustix::process::geteuid().is_root() {
        // Another account is only used under root.
        return;
    }
    let folder = data_dir();
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = start(&config(&closed.join("inside")))
        .await
        .expect_err("a closed folder");
    let ClusterError::FolderClosed { folder: named, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(named, &closed.canonicalize().unwrap());
}

#[tokio::test]
async fn nothing_a_link_in_the_data_folder_names_is_written() {
    let folder = data_dir();
    start(&config(folder.path())).await.unwrap().stop().await.unwrap();
    let outside = folder.path().join("outside");
    std::fs::write(&outside, "untouched").unwrap();
    std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o600)).unwrap();
    let planted = data_folder(folder.path()).join("pg_hba.conf.new");
    std::os::unix::fs::symlink(&outside, &planted).unwrap();

    let result = start(&config(folder.path())).await;
    if rustix::process::geteuid().is_root() {
        assert!(matches!(result, Err(ClusterError::Failed { .. })), "{result:?}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "untouched");
    }
}
