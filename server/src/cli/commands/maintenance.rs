//! `plumbline check-config`, `plumbline migrate`: what is done on the server's machine without serving.

use std::path::Path;

use anyhow::Context as _;
use store::Store;
use store::cluster::{self, ClusterConfig};

use crate::cli::output;
use crate::cli::{table, text};
use crate::config::{BootConfig, BootInterface, Config};

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
    let mut rows = vec![
        ("configuration", "sound".to_owned()),
        ("data folder", config.data_dir.display().to_string()),
        ("database", database),
        ("people", format!("http://{}", config.people_listen)),
    ];
    match &config.boot {
        None => rows.extend([
            ("agents", config.agents_url(None)),
            ("boot plane", "off: no [boot]".to_owned()),
        ]),
        Some(boot) => {
            for interface in &boot.interfaces {
                let local = interface.address.addr();
                rows.push(("boot plane", boot_plane(boot, interface)));
                rows.push(("  agents", config.agents_url(Some(local.into()))));
            }
            let relayed = boot.subnets.iter().filter(|subnet| subnet.interface.is_none());
            rows.extend(relayed.map(|subnet| {
                let dhcp = subnet.dhcp.as_str();
                ("behind a relay", format!("{}, DHCP {dhcp}", subnet.network))
            }));
        }
    }
    output::print(&text::lines(&table::pairs(&output::context(), rows)))
}

fn boot_plane(boot: &BootConfig, interface: &BootInterface) -> String {
    format!(
        "{} on {}, DHCP {}, {}",
        interface.address,
        interface.name,
        interface.dhcp.as_str(),
        boot.http_url(interface)
    )
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
