//! `plumbline check-config`, `plumbline migrate`: what is done on the server's machine without serving.

use std::path::Path;

use anyhow::Context as _;
use store::Store;
use store::cluster::{self, ClusterConfig};

use crate::cli::output;
use crate::cli::{table, text};
use crate::config::Config;

/// Reads the configuration and says what it amounts to.
///
/// # Errors
/// What is wrong with it, and where.
pub fn check_config(path: Option<&Path>) -> anyhow::Result<()> {
    let config = Config::load(path)?;
    let database = match &config.database_url {
        // It may hold a password.
        Some(_) => "database.url".to_owned(),
        None => format!("a private cluster in {}", config.data_dir.join("postgres").display()),
    };
    let boot = config.boot.as_ref().map_or_else(
        || "off: no [boot]".to_owned(),
        |boot| {
            let mode = format!("{:?}", boot.dhcp).to_lowercase();
            format!(
                "{} on {}, DHCP {mode}, {}",
                boot.address,
                boot.interface,
                boot.http_url()
            )
        },
    );
    let rows = [
        ("configuration", "sound".to_owned()),
        ("data folder", config.data_dir.display().to_string()),
        ("database", database),
        ("people", format!("http://{}", config.people_listen)),
        ("agents", config.agents_url()),
        ("boot plane", boot),
    ];
    output::print(&text::lines(&table::pairs(&output::context(), rows)))
}

/// Brings the database up to date.
///
/// # Errors
/// The database does not answer, or a migration fails.
pub async fn migrate(path: Option<&Path>) -> anyhow::Result<()> {
    let config = Config::load(path)?;
    if let Some(url) = &config.database_url {
        let options = url.parse().context("database.url")?;
        Store::connect(options)
            .await
            .context("migrating the database of database.url")?
            .close()
            .await;
        return output::print("the database is up to date\n");
    }
    let cluster = cluster::start(&ClusterConfig::new(&config.data_dir)).await?;
    let migrated = Store::connect(cluster.connect_options()).await;
    if let Ok(store) = &migrated {
        store.close().await;
    }
    cluster.stop().await?;
    migrated.context("migrating the private database")?;
    output::print("the database is up to date\n")
}
