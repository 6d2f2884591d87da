//! Channels: names that move from one image version to another. Moving one changes no node.

use manifest::Digest;
use protocol::NodeId;
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::audit::{NewAudit, insert_audit};
use crate::error::digest;
use crate::images::lock_images;
use crate::{Store, StoreError};

/// Most moves of one channel that are given.
const MOVES_MAX: i64 = 1_000;
/// Most nodes of one channel that are given.
const NODES_MAX: i64 = 20_000;

/// A channel as it stands.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ChannelRecord {
    /// `debian-12-gpu/stable`: the image's name and the channel's.
    pub name: String,
    /// Image version it names.
    #[schema(value_type = String)]
    pub image: Digest,
    /// That one's version.
    pub version: String,
    /// Image version that `back` leads to; none when there is none, or its data are removed.
    #[schema(value_type = Option<String>)]
    pub previous: Option<Digest>,
    /// That one's version.
    pub previous_version: Option<String>,
    /// Who moved it last.
    pub moved_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub moved_at: OffsetDateTime,
    /// Why.
    pub reason: String,
    /// Installed nodes that follow it: installed by it, or of a group that is to have it.
    pub nodes: i64,
    /// Nodes among them that hold another image version.
    pub behind: i64,
}

/// A move of a channel.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ChannelMove {
    /// Counts up, over all channels.
    pub id: i64,
    /// `set`, `back` or `removed`.
    pub kind: String,
    /// What it named before; none for its first image.
    #[schema(value_type = Option<String>)]
    pub from_image: Option<Digest>,
    /// That one's version.
    pub from_version: Option<String>,
    /// What it names since; none when it was removed.
    #[schema(value_type = Option<String>)]
    pub to_image: Option<Digest>,
    /// That one's version.
    pub to_version: Option<String>,
    /// Why.
    pub reason: String,
    /// Who.
    pub moved_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub moved_at: OffsetDateTime,
}

/// An installed node that follows a channel.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ChannelNode {
    /// The node.
    pub node_id: NodeId,
    /// Its name, or its id.
    pub name: String,
    /// Its group.
    pub group: String,
    /// The image version it holds.
    #[schema(value_type = String)]
    pub image: Digest,
    /// That one's version.
    pub version: String,
    /// It is not the one that the channel names.
    pub behind: bool,
}

/// What a group of nodes is to have.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct GroupImage {
    /// The group.
    pub group: String,
    /// A channel, `name`, `name@version`, or a digest's beginning.
    pub image: String,
    /// Who said so.
    pub set_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub set_at: OffsetDateTime,
}

struct ChannelRow {
    name: String,
    image: Vec<u8>,
    version: String,
    previous: Option<Vec<u8>>,
    previous_version: Option<String>,
    moved_by: String,
    moved_at: OffsetDateTime,
    reason: String,
    nodes: i64,
    behind: i64,
}

impl TryFrom<ChannelRow> for ChannelRecord {
    type Error = StoreError;

    fn try_from(row: ChannelRow) -> Result<Self, StoreError> {
        Ok(Self {
            name: row.name,
            image: digest(&row.image)?,
            version: row.version,
            previous: row.previous.as_deref().map(digest).transpose()?,
            previous_version: row.previous_version,
            moved_by: row.moved_by,
            moved_at: row.moved_at,
            reason: row.reason,
            nodes: row.nodes,
            behind: row.behind,
        })
    }
}

/// Where a channel stands, under its lock.
struct Standing {
    image: Vec<u8>,
    version: String,
    set_by_move: i64,
    earlier: Option<i64>,
}

impl Store {
    /// All channels by name, or one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn channel_list(&self, only: Option<&str>) -> Result<Vec<ChannelRecord>, StoreError> {
        sqlx::query_as!(
            ChannelRow,
            r#"SELECT c.name, c.image, i.version, c.previous, p.version AS "previous_version?", m.moved_by, m.moved_at,
                 m.reason, coalesce(f.nodes, 0) AS "nodes!", coalesce(f.behind, 0) AS "behind!"
               FROM channels c JOIN images i ON i.digest = c.image JOIN channel_moves m ON m.id = c.last_move
                 LEFT JOIN images p ON p.digest = c.previous
                 LEFT JOIN (SELECT n.channel, count(*) AS nodes, count(*) FILTER (WHERE n.image <> k.image) AS behind
                            FROM node_channels n JOIN channels k ON k.name = n.channel GROUP BY n.channel) f
                   ON f.channel = c.name
               WHERE $1::text IS NULL OR c.name = $1 ORDER BY c.name LIMIT 10000"#,
            only
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// One channel.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn channel_get(&self, name: &str) -> Result<ChannelRecord, StoreError> {
        let found = self.channel_list(Some(name)).await?.pop();
        found.ok_or_else(|| StoreError::not_found("channel", name))
    }

    /// The nodes that follow a channel, those that are behind first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn channel_nodes(&self, name: &str) -> Result<Vec<ChannelNode>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT n.node_id AS "node_id!", n.node_name AS "node_name!", n.node_group AS "node_group!",
                 n.image AS "image!", i.version, n.image <> c.image AS "behind!"
               FROM node_channels n JOIN channels c ON c.name = n.channel JOIN images i ON i.digest = n.image
               WHERE c.name = $1 ORDER BY 6 DESC, 2 LIMIT $2"#,
            name,
            NODES_MAX
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(ChannelNode {
                    node_id: NodeId(row.node_id),
                    name: row.node_name,
                    group: row.node_group,
                    image: digest(&row.image)?,
                    version: row.version,
                    behind: row.behind,
                })
            })
            .collect()
    }

    /// The moves of a channel, newest first, also of one that is removed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there never was such a channel.
    pub async fn channel_history(&self, name: &str) -> Result<Vec<ChannelMove>, StoreError> {
        let rows = sqlx::query!(
            "SELECT id, kind, from_image, from_version, to_image, to_version, reason, moved_by, moved_at
             FROM channel_moves WHERE channel = $1 ORDER BY id DESC LIMIT $2",
            name,
            MOVES_MAX
        )
        .fetch_all(&self.pool)
        .await?;
        if rows.is_empty() {
            return Err(StoreError::not_found("channel", name));
        }
        rows.into_iter()
            .map(|row| {
                Ok(ChannelMove {
                    id: row.id,
                    kind: row.kind,
                    from_image: row.from_image.as_deref().map(digest).transpose()?,
                    from_version: row.from_version,
                    to_image: row.to_image.as_deref().map(digest).transpose()?,
                    to_version: row.to_version,
                    reason: row.reason,
                    moved_by: row.moved_by,
                    moved_at: row.moved_at,
                })
            })
            .collect()
    }

    /// Has a channel name this image version from now on; `false` when it does already.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the image's data are removed.
    pub async fn channel_set(&self, name: &str, image: Digest, reason: &str, by: &str) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_channel(&mut transaction, name).await?;
        let now = standing(&mut transaction, name).await?;
        if now.as_ref().is_some_and(|now| now.image == image.as_bytes()) {
            return Ok(false);
        }
        lock_images(&mut transaction, &[image]).await?;
        let version = version_of(&mut transaction, image.as_bytes()).await?;
        let (from_image, from_version, earlier) = match &now {
            Some(now) => (Some(&now.image), Some(&now.version), Some(now.set_by_move)),
            None => (None, None, None),
        };
        let id = sqlx::query_scalar!(
            "INSERT INTO channel_moves (channel, kind, from_image, from_version, to_image, to_version, earlier, reason,
                                        moved_by)
             VALUES ($1, 'set', $2, $3, $4, $5, $6, $7, $8) RETURNING id",
            name,
            from_image,
            from_version,
            image.as_bytes().as_slice(),
            version,
            earlier,
            reason,
            by
        )
        .fetch_one(&mut *transaction)
        .await?;
        sqlx::query!(
            "INSERT INTO channels (name, image, previous, set_by_move, last_move) VALUES ($1, $2, $3, $4, $4)
             ON CONFLICT (name) DO UPDATE SET image = excluded.image, previous = excluded.previous,
                 set_by_move = excluded.set_by_move, last_move = excluded.last_move",
            name,
            image.as_bytes().as_slice(),
            from_image,
            id
        )
        .execute(&mut *transaction)
        .await?;
        let from = now.as_ref().map(|now| (now.version.as_str(), now.image.as_slice()));
        let detail = detail(from, Some((&version, image.as_bytes())), reason);
        audit(&mut transaction, by, "channel_set", name, &detail).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Has a channel name again what it named before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Conflict`] when there is nothing before, or its data are removed.
    pub async fn channel_back(&self, name: &str, reason: &str, by: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_channel(&mut transaction, name).await?;
        let now = standing(&mut transaction, name)
            .await?
            .ok_or_else(|| StoreError::not_found("channel", name))?;
        let nothing = || StoreError::Conflict(format!("{name} has named no other image before {}", now.version));
        let target = now.earlier.ok_or_else(nothing)?;
        let target = sqlx::query!(
            r#"SELECT m.id, m.to_image AS "to_image!", m.to_version AS "to_version!", e.to_image AS "before?"
               FROM channel_moves m LEFT JOIN channel_moves e ON e.id = m.earlier
               WHERE m.id = $1 AND m.to_image IS NOT NULL"#,
            target
        )
        .fetch_one(&mut *transaction)
        .await?;
        let image = digest(&target.to_image)?;
        lock_images(&mut transaction, &[image]).await?;
        let id = sqlx::query_scalar!(
            "INSERT INTO channel_moves (channel, kind, from_image, from_version, to_image, to_version, reason, moved_by)
             VALUES ($1, 'back', $2, $3, $4, $5, $6, $7) RETURNING id",
            name,
            now.image,
            now.version,
            target.to_image,
            target.to_version,
            reason,
            by
        )
        .fetch_one(&mut *transaction)
        .await?;
        // What came before may be removed long since: then it is not there to be kept.
        let previous = sqlx::query_scalar!(
            "SELECT digest FROM images WHERE digest = $1 AND removed_at IS NULL FOR SHARE",
            target.before
        )
        .fetch_optional(&mut *transaction)
        .await?;
        sqlx::query!(
            "UPDATE channels SET image = $2, previous = $3, set_by_move = $4, last_move = $5 WHERE name = $1",
            name,
            target.to_image,
            previous,
            target.id,
            id
        )
        .execute(&mut *transaction)
        .await?;
        let detail = detail(
            Some((&now.version, &now.image)),
            Some((&target.to_version, &target.to_image)),
            reason,
        );
        audit(&mut transaction, by, "channel_back", name, &detail).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Forgets a channel; its history stays. Nodes that followed it follow none.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn channel_remove(&self, name: &str, reason: &str, by: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_channel(&mut transaction, name).await?;
        let now = standing(&mut transaction, name)
            .await?
            .ok_or_else(|| StoreError::not_found("channel", name))?;
        sqlx::query!("DELETE FROM channels WHERE name = $1", name)
            .execute(&mut *transaction)
            .await?;
        sqlx::query!(
            "INSERT INTO channel_moves (channel, kind, from_image, from_version, reason, moved_by)
             VALUES ($1, 'removed', $2, $3, $4, $5)",
            name,
            now.image,
            now.version,
            reason,
            by
        )
        .execute(&mut *transaction)
        .await?;
        let detail = detail(Some((&now.version, &now.image)), None, reason);
        audit(&mut transaction, by, "channel_removed", name, &detail).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// What groups of nodes are to have, by group.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn group_image_list(&self) -> Result<Vec<GroupImage>, StoreError> {
        Ok(sqlx::query_as!(
            GroupImage,
            r#"SELECT node_group AS "group!", image, set_by, set_at FROM group_images ORDER BY node_group LIMIT 10000"#
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Says what nodes of a group are to have, or (`None`) that nothing is said. Changes no node.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn group_image_set(&self, group: &str, image: Option<&str>, by: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        match image {
            Some(image) => sqlx::query!(
                "INSERT INTO group_images (node_group, image, set_by) VALUES ($1, $2, $3)
                 ON CONFLICT (node_group) DO UPDATE SET image = excluded.image, set_by = excluded.set_by, set_at = now()",
                group,
                image,
                by
            )
            .execute(&mut *transaction)
            .await?,
            None => {
                sqlx::query!("DELETE FROM group_images WHERE node_group = $1", group)
                    .execute(&mut *transaction)
                    .await?
            }
        };
        audit(&mut transaction, by, "group_image_set", group, image.unwrap_or("none")).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The image proposed for a node that nobody names one for: the channel it was installed by, else what its discovery
    /// rule says, else what its group is to have.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the node.
    pub async fn node_image_proposed(&self, node: NodeId) -> Result<Option<String>, StoreError> {
        let row = sqlx::query!(
            r#"SELECT coalesce(
                 (SELECT d.channel FROM deployments d WHERE d.node_id = n.id AND d.state IN ('installed', 'verified')
                  ORDER BY d.created_at DESC LIMIT 1),
                 n.image_channel,
                 (SELECT g.image FROM group_images g WHERE g.node_group = n.node_group)) AS image
               FROM nodes n WHERE n.id = $1"#,
            node.0
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.ok_or_else(|| StoreError::not_found("node", node))?.image)
    }
}

/// One mover of a channel at a time, also of one that is not there yet, over all servers of this database.
async fn lock_channel(connection: &mut PgConnection, name: &str) -> Result<(), StoreError> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended('channel ' || $1, 0))",
        name
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn standing(connection: &mut PgConnection, name: &str) -> Result<Option<Standing>, StoreError> {
    Ok(sqlx::query_as!(
        Standing,
        "SELECT c.image, i.version, c.set_by_move, m.earlier
         FROM channels c JOIN images i ON i.digest = c.image JOIN channel_moves m ON m.id = c.set_by_move
         WHERE c.name = $1",
        name
    )
    .fetch_optional(connection)
    .await?)
}

async fn version_of(connection: &mut PgConnection, image: &[u8]) -> Result<String, StoreError> {
    Ok(
        sqlx::query_scalar!("SELECT version FROM images WHERE digest = $1", image)
            .fetch_one(connection)
            .await?,
    )
}

/// `20260101T000000Z (0123456789ab) to 20260201T000000Z (ab…): why`.
fn detail(from: Option<(&str, &[u8])>, to: Option<(&str, &[u8])>, reason: &str) -> String {
    let name = |one: Option<(&str, &[u8])>| match one {
        Some((version, image)) => format!(
            "{version} ({})",
            digest(image).map(|image| image.short()).unwrap_or_default()
        ),
        None => "nothing".to_owned(),
    };
    format!("{} to {}: {reason}", name(from), name(to))
}

async fn audit(
    connection: &mut PgConnection,
    actor: &str,
    action: &str,
    object: &str,
    detail: &str,
) -> Result<(), StoreError> {
    let new = NewAudit {
        actor,
        action,
        object,
        detail,
    };
    insert_audit(connection, &new).await
}
