//! Registered image versions. The image data themselves are blobs, kept elsewhere.

use std::collections::BTreeMap;

use manifest::Digest;
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::audit::{NewAudit, insert_audit};
use crate::error::{digest, json, to_json};
use crate::{Store, StoreError};

/// What is registered of an image version.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// Manifest digest.
    pub digest: Digest,
    /// `os`, `deployer` or `agent`.
    pub kind: String,
    /// Image name.
    pub name: String,
    /// Build version.
    pub version: String,
    /// Line for people.
    pub description: Option<String>,
    /// Debian architecture.
    pub architecture: String,
    /// Paths in the manifest.
    pub files: i64,
    /// Uncompressed bytes.
    pub content_bytes: i64,
    /// Bytes in the store.
    pub stored_bytes: i64,
    /// Regular files by path class.
    pub files_by_class: BTreeMap<String, u64>,
    /// Id of the key that signed it.
    pub signer: Option<String>,
}

/// A registered image version.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageRecord {
    /// Manifest digest, 64 hexadecimal digits.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// `os`, `deployer` or `agent`.
    pub kind: String,
    /// Image name.
    pub name: String,
    /// Build version.
    pub version: String,
    /// Line for people.
    pub description: Option<String>,
    /// Debian architecture.
    pub architecture: String,
    /// Paths in the manifest.
    pub files: i64,
    /// Uncompressed bytes.
    pub content_bytes: i64,
    /// Bytes in the store.
    pub stored_bytes: i64,
    /// Regular files by path class.
    pub files_by_class: BTreeMap<String, u64>,
    /// When the appliance first saw it.
    #[serde(with = "time::serde::rfc3339")]
    pub registered_at: OffsetDateTime,
    /// minisign's id of the key that signed it; none: not looked at yet.
    pub signer: Option<String>,
    /// Why it must not be used any more, in a sentence; none: it may be.
    pub unusable: Option<String>,
}

impl ImageRecord {
    /// Name and version, as people write them.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// A node that has something to do with an image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageUser {
    /// Its name, or its id.
    pub node: String,
    /// `runs`: it was installed from it; `waits`: a deployment of it is open; `proposed`: the discovery rule that placed
    /// the node proposes images of this name.
    pub how: String,
}

struct ImageRow {
    digest: Vec<u8>,
    kind: String,
    name: String,
    version: String,
    description: Option<String>,
    architecture: String,
    files: i64,
    content_bytes: i64,
    stored_bytes: i64,
    files_by_class: serde_json::Value,
    registered_at: OffsetDateTime,
    signer: Option<String>,
    unusable: Option<String>,
}

impl TryFrom<ImageRow> for ImageRecord {
    type Error = StoreError;

    fn try_from(row: ImageRow) -> Result<Self, StoreError> {
        Ok(Self {
            digest: digest(&row.digest)?,
            kind: row.kind,
            name: row.name,
            version: row.version,
            description: row.description,
            architecture: row.architecture,
            files: row.files,
            content_bytes: row.content_bytes,
            stored_bytes: row.stored_bytes,
            files_by_class: json("files_by_class", row.files_by_class)?,
            registered_at: row.registered_at,
            signer: row.signer,
            unusable: row.unusable,
        })
    }
}

impl Store {
    /// Registers an image version, also one that was removed and has come back; `false` when it was there.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_register(&self, image: &NewImage) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "INSERT INTO images (digest, kind, name, version, description, architecture, files, content_bytes,
                                 stored_bytes, files_by_class, signer)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (digest) DO UPDATE SET removed_at = NULL, registered_at = now(), signer = EXCLUDED.signer
             WHERE images.removed_at IS NOT NULL",
            image.digest.as_bytes().as_slice(),
            image.kind,
            image.name,
            image.version,
            image.description,
            image.architecture,
            image.files,
            image.content_bytes,
            image.stored_bytes,
            to_json(&image.files_by_class),
            image.signer
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// All image versions, newest first within a name.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_list(&self) -> Result<Vec<ImageRecord>, StoreError> {
        sqlx::query_as!(
            ImageRow,
            "SELECT digest, kind, name, version, description, architecture, files, content_bytes, stored_bytes,
                    files_by_class, registered_at, signer, unusable
             FROM images WHERE removed_at IS NULL ORDER BY kind, name, registered_at DESC, version DESC LIMIT 10000"
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// The image version a person means: a digest or at least 8 digits of its beginning, `name` (the newest build),
    /// `name@version`, or a channel (`name/stable`).
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or [`StoreError::Conflict`] when a beginning fits several.
    pub async fn image_find(&self, reference: &str) -> Result<ImageRecord, StoreError> {
        if reference.contains('/') {
            return self.image_find_by_channel(reference).await;
        }
        let hexadecimal = reference.len() >= 8 && reference.bytes().all(|b| b.is_ascii_hexdigit());
        let (name, version) = reference
            .split_once('@')
            .map_or((reference, None), |(n, v)| (n, Some(v)));
        let rows = sqlx::query_as!(
            ImageRow,
            "SELECT digest, kind, name, version, description, architecture, files, content_bytes, stored_bytes,
                    files_by_class, registered_at, signer, unusable
             FROM images
             WHERE removed_at IS NULL
               AND ((name = $1 AND ($2::text IS NULL OR version = $2))
                    OR ($3 AND starts_with(encode(digest, 'hex'), lower($4))))
             ORDER BY registered_at DESC, version DESC LIMIT 100",
            name,
            version,
            hexadecimal,
            reference
        )
        .fetch_all(&self.pool)
        .await?;
        let mut found: Vec<ImageRecord> = rows.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        let by_digest = found.iter().filter(|image| image.name != name).count();
        if by_digest > 1 {
            return Err(StoreError::Conflict(format!(
                "{reference}: {by_digest} image versions begin like this"
            )));
        }
        if found.is_empty() {
            return Err(StoreError::not_found("image", reference));
        }
        Ok(found.remove(0))
    }

    /// The newest image version of a kind that may be used.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_newest(&self, kind: &str) -> Result<Option<ImageRecord>, StoreError> {
        sqlx::query_as!(
            ImageRow,
            "SELECT digest, kind, name, version, description, architecture, files, content_bytes, stored_bytes,
                    files_by_class, registered_at, signer, unusable
             FROM images WHERE kind = $1 AND removed_at IS NULL AND unusable IS NULL
             ORDER BY registered_at DESC, version DESC LIMIT 1",
            kind
        )
        .fetch_optional(&self.pool)
        .await?
        .map(TryInto::try_into)
        .transpose()
    }

    /// Keeps whose signature an image bears and why it must not be used; `false` when that is known already, or the image
    /// is not registered.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_set_trust(
        &self,
        image: Digest,
        signer: Option<&str>,
        unusable: Option<&str>,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "UPDATE images SET signer = $2, unusable = $3
             WHERE digest = $1 AND (signer IS DISTINCT FROM $2 OR unusable IS DISTINCT FROM $3)",
            image.as_bytes().as_slice(),
            signer,
            unusable
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Those of these images that must not be used any more.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_list_unusable(&self, images: &[Digest]) -> Result<Vec<ImageRecord>, StoreError> {
        let digests: Vec<Vec<u8>> = images.iter().map(|image| image.as_bytes().to_vec()).collect();
        sqlx::query_as!(
            ImageRow,
            "SELECT digest, kind, name, version, description, architecture, files, content_bytes, stored_bytes,
                    files_by_class, registered_at, signer, unusable
             FROM images WHERE digest = ANY($1) AND unusable IS NOT NULL AND removed_at IS NULL ORDER BY digest",
            &digests
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// Nodes that have something to do with an image, at most 10,000.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_users(&self, image: Digest) -> Result<Vec<ImageUser>, StoreError> {
        Ok(sqlx::query_as!(
            ImageUser,
            r#"SELECT coalesce(n.name, n.id::text) AS "node!", used.how AS "how!"
               FROM (SELECT node_id, 'runs' AS how FROM baselines WHERE image = $1 OR agent_layer = $1
                     UNION
                     SELECT node_id, 'waits' FROM deployments
                     WHERE (image = $1 OR agent_layer = $1) AND state IN ('waiting', 'running')
                     UNION
                     SELECT p.id, 'proposed' FROM nodes p JOIN images i ON i.digest = $1 AND i.kind = 'os'
                     WHERE p.image_channel IN (i.name, i.name || '@' || i.version)) used
                 JOIN nodes n ON n.id = used.node_id
               ORDER BY 1, 2 LIMIT 10000"#,
            image.as_bytes().as_slice()
        )
        .fetch_all(&self.pool)
        .await?)
    }

    async fn image_find_by_channel(&self, channel: &str) -> Result<ImageRecord, StoreError> {
        sqlx::query_as!(
            ImageRow,
            "SELECT i.digest, i.kind, i.name, i.version, i.description, i.architecture, i.files, i.content_bytes,
                    i.stored_bytes, i.files_by_class, i.registered_at, i.signer, i.unusable
             FROM channels c JOIN images i ON i.digest = c.image WHERE c.name = $1 AND i.removed_at IS NULL",
            channel
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| StoreError::not_found("channel", channel))?
        .try_into()
    }

    /// What needs image versions: nodes, open deployments, the remediation that runs, channels. A report needs its node's
    /// baseline and is dropped with it, so nodes speak for reports.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_uses(&self, only: Option<Digest>) -> Result<Vec<ImageUse>, StoreError> {
        let mut connection = self.pool.acquire().await?;
        image_uses(&mut connection, only).await
    }

    /// Keeps how many bytes an image version takes in the store, after its packs were repacked.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_set_stored_bytes(&self, image: Digest, bytes: i64) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE images SET stored_bytes = $2 WHERE digest = $1",
            image.as_bytes().as_slice(),
            bytes
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// What people and rules want in words: for whom, and the image reference as it was written.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_references(&self) -> Result<Vec<(String, String)>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT 'what group ' || node_group || ' is to have' AS "why!", image AS "image!" FROM group_images
               UNION
               SELECT 'what discovery rule ' || n.discovery_rule || ' proposes', n.image_channel FROM nodes n
               WHERE n.image_channel IS NOT NULL AND n.discovery_rule IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM baselines b WHERE b.node_id = n.id)
               LIMIT 10000"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.why, row.image)).collect())
    }

    /// Forgets an image version that nothing needs. Old deployments keep its name; nobody finds it any more.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Conflict`] when something needs it, which is named.
    pub async fn image_delete(&self, image: Digest, why: &str, by: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        // Whoever takes an image into use holds this row as well: what is asked next stays true.
        let row = sqlx::query!(
            "SELECT name, version FROM images WHERE digest = $1 AND removed_at IS NULL FOR UPDATE",
            image.as_bytes().as_slice()
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("image", image))?;
        let uses = image_uses(&mut transaction, Some(image)).await?;
        if let Some(used) = uses.first() {
            return Err(StoreError::Conflict(format!(
                "image {}@{} ({}) is used: {used}",
                row.name,
                row.version,
                image.short()
            )));
        }
        let bytes = image.as_bytes().as_slice();
        let done = sqlx::query!(
            "DELETE FROM images WHERE digest = $1
               AND NOT EXISTS (SELECT 1 FROM deployments WHERE image = $1 OR agent_layer = $1)",
            bytes
        )
        .execute(&mut *transaction)
        .await?;
        if done.rows_affected() == 0 {
            sqlx::query!("UPDATE images SET removed_at = now() WHERE digest = $1", bytes)
                .execute(&mut *transaction)
                .await?;
        }
        let audit = NewAudit {
            actor: by,
            action: "image_removed",
            object: &format!("{}@{}", row.name, row.version),
            detail: &format!("{}: {why}", image.short()),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Forgets an image version whose data are gone and that was registered all the same, by a look at the store that
    /// came a moment too late. What is in use stays: somebody must hear of it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_unregister(&self, image: Digest) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE images i SET removed_at = now() WHERE digest = $1 AND removed_at IS NULL
               AND NOT EXISTS (SELECT 1 FROM baselines WHERE image = $1 OR agent_layer = $1)
               AND NOT EXISTS (SELECT 1 FROM channels WHERE image = $1 OR previous = $1)
               AND NOT EXISTS (SELECT 1 FROM deployments WHERE (image = $1 OR agent_layer = $1)
                               AND state IN ('waiting', 'running'))",
            image.as_bytes().as_slice()
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

/// What needs an image version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageUseKind {
    /// It is the baseline of nodes, or their agent layer.
    Node,
    /// Deployments that wait or run.
    Deployment,
    /// Nodes of the remediation that runs: their files are restored from it.
    Remediation,
    /// Channels name it.
    Channel,
    /// Channels named it before and may go back.
    ChannelBefore,
}

/// One kind of need for one image version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageUse {
    /// The image version.
    pub image: Digest,
    /// What needs it.
    pub kind: ImageUseKind,
    /// How many of them.
    pub count: i64,
    /// The first of them by name.
    pub example: String,
}

impl std::fmt::Display for ImageUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.kind {
            ImageUseKind::Node => "installed on",
            ImageUseKind::Deployment => "being installed on",
            ImageUseKind::Remediation => "needed to repair",
            ImageUseKind::Channel => "named by channel",
            ImageUseKind::ChannelBefore => "named before by channel",
        };
        write!(f, "{what} {}", self.example)?;
        match self.count {
            0 | 1 => Ok(()),
            count => write!(f, " and {} more", count - 1),
        }
    }
}

async fn image_uses(connection: &mut PgConnection, only: Option<Digest>) -> Result<Vec<ImageUse>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT u.image AS "image!", u.kind AS "kind!", count(*) AS "count!", min(u.name) AS "example!" FROM (
             SELECT unnest(ARRAY[b.image, b.agent_layer]) AS image, 1 AS kind, coalesce(n.name, n.id::text) AS name
               FROM baselines b JOIN nodes n ON n.id = b.node_id
             UNION ALL
             SELECT unnest(ARRAY[d.image, d.agent_layer]), 2, coalesce(n.name, n.id::text)
               FROM deployments d JOIN nodes n ON n.id = d.node_id WHERE d.state IN ('waiting', 'running')
             UNION ALL
             SELECT unnest(ARRAY[b.image, b.agent_layer]), 3, coalesce(n.name, n.id::text)
               FROM remediation_runs r JOIN remediation_jobs j ON j.run_id = r.id
                 JOIN baselines b ON b.node_id = j.node_id JOIN nodes n ON n.id = j.node_id WHERE r.state = 'running'
             UNION ALL SELECT c.image, 4, c.name FROM channels c
             UNION ALL SELECT c.previous, 5, c.name FROM channels c WHERE c.previous IS NOT NULL
           ) u WHERE $1::bytea IS NULL OR u.image = $1
           GROUP BY u.image, u.kind ORDER BY u.image, u.kind"#,
        only.as_ref().map(|image| image.as_bytes().as_slice())
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(ImageUse {
                image: digest(&row.image)?,
                kind: match row.kind {
                    1 => ImageUseKind::Node,
                    2 => ImageUseKind::Deployment,
                    3 => ImageUseKind::Remediation,
                    4 => ImageUseKind::Channel,
                    _ => ImageUseKind::ChannelBefore,
                },
                count: row.count,
                example: row.example,
            })
        })
        .collect()
}

/// Holds image versions that are being taken into use until the transaction ends: nobody removes them meanwhile.
pub(crate) async fn lock_images(connection: &mut PgConnection, images: &[Digest]) -> Result<(), StoreError> {
    for image in images {
        sqlx::query_scalar!(
            "SELECT digest FROM images WHERE digest = $1 AND removed_at IS NULL FOR SHARE",
            image.as_bytes().as_slice()
        )
        .fetch_optional(&mut *connection)
        .await?
        .ok_or_else(|| StoreError::Conflict(format!("image {} is removed: its data are gone", image.short())))?;
    }
    Ok(())
}
