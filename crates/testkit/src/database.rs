//! A database for one test.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

use crate::server::{Server, workspace_root};
use crate::template::template;

/// Connections of one test.
const CONNECTIONS_MAX: u32 = 10;

/// Databases of killed tests that one new test clears away at most.
const SWEEP_COUNT_MAX: usize = 4;

/// What a drop may cost a test that is over.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// A database of its own for one test, with the migrations applied; dropped with this value. One that a killed test
/// leaves is dropped by a later test.
#[derive(Debug)]
pub struct TestDatabase {
    /// Connected to it: at most 10 connections.
    pub pool: PgPool,
    /// Its address, for a program under test: `postgres:///name?host=/socket/folder&user=plumbline&sslmode=disable`.
    pub url: String,
    name: String,
    admin: PgConnectOptions,
}

impl TestDatabase {
    /// A new database with the migrations of the checkout.
    ///
    /// # Panics
    /// When there is none to be had: the message says why.
    #[track_caller]
    #[allow(clippy::panic, reason = "a test cannot go on without it")]
    pub fn create() -> impl Future<Output = Self> {
        let caller = std::panic::Location::caller();
        async move {
            let migrations = workspace_root().join("migrations");
            match Self::try_create(Some(&migrations)).await {
                Ok(database) => database,
                Err(error) => panic!("no database for the test at {caller}: {error:#}"),
            }
        }
    }

    /// A new database with the migrations of a folder, or empty.
    ///
    /// # Errors
    /// PostgreSQL cannot be started, or a migration fails.
    pub async fn try_create(migrations: Option<&Path>) -> anyhow::Result<Self> {
        let server = Server::shared().await?;
        let admin = server.admin_options()?;
        let source = match migrations {
            Some(folder) => template(&admin, folder).await?,
            None => "template1".to_owned(),
        };
        let name = format!("test_{}_{}", std::process::id(), uuid::Uuid::new_v4().simple());
        let mut connection = admin.connect().await.context("cannot connect to the test server")?;
        sweep(&mut connection).await?;
        connection
            .execute(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE {source}")))
            .await?;
        connection.close().await?;
        let url = server.database_url(&name);
        let options = PgConnectOptions::from_str(&url)?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .connect_lazy_with(options);
        Ok(Self { pool, url, name, admin })
    }

    /// How to connect to it.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.admin.clone().database(&self.name)
    }
}

impl Drop for TestDatabase {
    /// On a thread with a runtime of its own: the test's runtime is busy running this.
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        let thread = std::thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            // What does not work now is done by the sweep of a later test.
            let _ = runtime.block_on(async {
                let dropping = async {
                    let mut connection = admin.connect().await?;
                    drop_database(&mut connection, &name).await
                };
                tokio::time::timeout(DROP_LIMIT, dropping).await
            });
        });
        let _ = thread.join();
    }
}

async fn drop_database(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    connection
        .execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")))
        .await?;
    Ok(())
}

/// Drops some of the databases whose test process is gone.
async fn sweep(connection: &mut PgConnection) -> anyhow::Result<()> {
    let names: Vec<String> = sqlx::query_scalar(r"SELECT datname FROM pg_database WHERE datname LIKE 'test\_%'")
        .fetch_all(&mut *connection)
        .await?;
    let is_left = |name: &&String| {
        let pid = name.split('_').nth(1).and_then(|pid| pid.parse::<u32>().ok());
        pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    };
    for name in names.iter().filter(is_left).take(SWEEP_COUNT_MAX) {
        // Another test may be at the same one.
        let _ = drop_database(connection, name).await;
    }
    Ok(())
}
