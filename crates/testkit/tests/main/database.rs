//! A database per test.

use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use testkit::{TestDatabase, wait_for, wait_for_some};

/// Makes the ignored test below leave a database behind.
const LEAVE: &str = "PLUMBLINE_TEST_LEAVE_DATABASE";

async fn database_exists(through: &TestDatabase, name: &str) -> bool {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(name)
        .fetch_one(&through.pool)
        .await
        .unwrap()
}

async fn name_of(database: &TestDatabase) -> String {
    sqlx::query_scalar("SELECT current_database()")
        .fetch_one(&database.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn two_databases_are_apart() {
    let (one, other) = tokio::join!(TestDatabase::create(), TestDatabase::create());
    sqlx::query("CREATE TABLE only_here (at int)")
        .execute(&one.pool)
        .await
        .unwrap();
    let count_in = async |database: &TestDatabase| -> i64 {
        let sql = "SELECT count(*) FROM pg_class WHERE relname = 'only_here'";
        sqlx::query_scalar(sql).fetch_one(&database.pool).await.unwrap()
    };
    assert_eq!(count_in(&one).await, 1);
    assert_eq!(count_in(&other).await, 0);
}

#[tokio::test]
async fn the_url_leads_to_the_same_database() {
    let database = TestDatabase::create().await;
    let mut connection = PgConnectOptions::from_str(&database.url)
        .unwrap()
        .connect()
        .await
        .unwrap();
    let name: String = sqlx::query_scalar("SELECT current_database()")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(name.starts_with("test_"), "{name}");
    assert_eq!(name, name_of(&database).await);
}

#[tokio::test]
async fn migrations_are_applied_and_a_change_gives_another_template() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("0001_one.sql"), "CREATE TABLE one (a int);").unwrap();
    let before = TestDatabase::try_create(Some(folder.path())).await.unwrap();
    sqlx::query("INSERT INTO one VALUES (1)")
        .execute(&before.pool)
        .await
        .unwrap();

    std::fs::write(folder.path().join("0002_two.sql"), "CREATE TABLE two (a int);").unwrap();
    let after = TestDatabase::try_create(Some(folder.path())).await.unwrap();
    sqlx::query("INSERT INTO two VALUES (1)")
        .execute(&after.pool)
        .await
        .unwrap();
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM one")
        .fetch_one(&after.pool)
        .await
        .unwrap();
    assert_eq!(count, 0, "rows of one test are in another's database");
    sqlx::query("INSERT INTO two VALUES (1)")
        .execute(&before.pool)
        .await
        .expect_err("made before the second");
}

#[tokio::test]
async fn a_broken_migration_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("0007_broken.sql"), "CREATE TABEL nodes (a int);").unwrap();
    let error = TestDatabase::try_create(Some(folder.path())).await.unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains("TABEL") && message.contains('7'), "{message}");
}

#[tokio::test]
async fn a_dropped_database_is_gone_though_connections_were_open() {
    let watcher = TestDatabase::create().await;
    let database = TestDatabase::create().await;
    let name = name_of(&database).await;
    let _open = database.pool.acquire().await.unwrap();
    assert!(database_exists(&watcher, &name).await);
    drop(database);
    assert!(!database_exists(&watcher, &name).await);
}

#[tokio::test]
async fn what_a_killed_test_left_is_swept_by_later_ones() {
    let watcher = TestDatabase::create().await;
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("name");
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "database::leaves_a_database", "--ignored"])
        .env(LEAVE, &note)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let read = async || std::fs::read_to_string(&note).ok().filter(|name| name.ends_with('\n'));
    let name = wait_for_some(Duration::from_secs(60), "the other test's database", read)
        .await
        .unwrap();
    let name = name.trim();
    test.kill().unwrap();
    test.wait().unwrap();
    assert!(database_exists(&watcher, name).await);

    wait_for(Duration::from_secs(30), "the sweep", async || {
        drop(TestDatabase::create().await);
        !database_exists(&watcher, name).await
    })
    .await
    .unwrap();
}

/// Not a test of its own: what the test above starts and kills.
#[tokio::test]
#[ignore = "the test that another test kills"]
async fn leaves_a_database() {
    let Some(note) = std::env::var_os(LEAVE) else { return };
    let database = TestDatabase::create().await;
    std::fs::write(note, format!("{}\n", name_of(&database).await)).unwrap();
    std::future::pending::<()>().await;
}
