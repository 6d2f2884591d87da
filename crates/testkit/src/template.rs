//! The database that tests are copied from: the migrations applied once for each content they had.

use std::fs;
use std::path::Path;

use anyhow::Context;
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

/// The advisory lock under which templates are made: any number that nobody else on this server takes.
const LOCK_KEY: i64 = 0x0074_6573_746b_6974;

/// The name of the template for the migrations in `folder`, made when it does not exist.
pub(crate) async fn template(admin: &PgConnectOptions, folder: &Path) -> anyhow::Result<String> {
    let name = format!("template_{}", content_hash(folder)?);
    let mut connection = admin.connect().await?;
    // Released with the connection, whatever happens.
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(LOCK_KEY)
        .execute(&mut connection)
        .await?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(&name)
        .fetch_one(&mut connection)
        .await?;
    if !exists {
        make(&mut connection, admin, folder, &name)
            .await
            .with_context(|| format!("cannot make {name}"))?;
    }
    connection.close().await?;
    Ok(name)
}

/// Under another name until it is complete.
async fn make(
    connection: &mut PgConnection,
    admin: &PgConnectOptions,
    folder: &Path,
    name: &str,
) -> anyhow::Result<()> {
    connection
        .execute("DROP DATABASE IF EXISTS template_building WITH (FORCE)")
        .await?;
    connection.execute("CREATE DATABASE template_building").await?;
    let migrator = sqlx::migrate::Migrator::new(folder.to_owned())
        .await
        .context("cannot read the migrations")?;
    let mut building = admin.clone().database("template_building").connect().await?;
    migrator
        .run(&mut building)
        .await
        .context("cannot apply the migrations")?;
    building.close().await?;
    // A template that somebody is connected to cannot be copied.
    connection
        .execute("ALTER DATABASE template_building ALLOW_CONNECTIONS false")
        .await?;
    connection
        .execute(AssertSqlSafe(format!(
            "ALTER DATABASE template_building RENAME TO {name}"
        )))
        .await?;
    Ok(())
}

/// Names and contents of the files, in order of their names.
fn content_hash(folder: &Path) -> anyhow::Result<String> {
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.path()))
                .collect::<std::io::Result<Vec<_>>>()
        })
        .with_context(|| format!("cannot read {}", folder.display()))?;
    paths.retain(|path| path.is_file());
    paths.sort();
    let mut hasher = Sha256::new();
    for path in paths {
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for part in [path.file_name().unwrap_or_default().as_encoded_bytes(), &content] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    let hash = hex::encode(hasher.finalize());
    Ok(hash.get(..16).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_names_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        let mut hashes = vec![content_hash(folder.path()).unwrap()];
        for (name, text) in [
            ("0001_a.sql", "SELECT 1"),
            ("0001_a.sql", "SELECT 2"),
            ("0002_b.sql", ""),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
            hashes.push(content_hash(folder.path()).unwrap());
        }
        fs::rename(folder.path().join("0002_b.sql"), folder.path().join("0003_b.sql")).unwrap();
        hashes.push(content_hash(folder.path()).unwrap());
        let distinct: std::collections::HashSet<_> = hashes.iter().collect();
        assert_eq!(distinct.len(), hashes.len(), "{hashes:?}");
    }
}
