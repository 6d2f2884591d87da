//! Registered image versions. The image data themselves are blobs, kept elsewhere.

use std::collections::BTreeMap;

use manifest::Digest;
use serde::Serialize;
use time::OffsetDateTime;

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
    /// Registers an image version; `false` when it was there.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_register(&self, image: &NewImage) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "INSERT INTO images (digest, kind, name, version, description, architecture, files, content_bytes,
                                 stored_bytes, files_by_class, signer)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (digest) DO NOTHING",
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
            "SELECT * FROM images ORDER BY kind, name, registered_at DESC, version DESC LIMIT 10000"
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// The image version a person means: a digest or at least 8 digits of its beginning, `name` (the newest build) or
    /// `name@version`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or [`StoreError::Conflict`] when a beginning fits several.
    pub async fn image_find(&self, reference: &str) -> Result<ImageRecord, StoreError> {
        let hexadecimal = reference.len() >= 8 && reference.bytes().all(|b| b.is_ascii_hexdigit());
        let (name, version) = reference
            .split_once('@')
            .map_or((reference, None), |(n, v)| (n, Some(v)));
        let rows = sqlx::query_as!(
            ImageRow,
            "SELECT * FROM images
             WHERE (name = $1 AND ($2::text IS NULL OR version = $2))
                OR ($3 AND starts_with(encode(digest, 'hex'), lower($4)))
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
            "SELECT * FROM images WHERE kind = $1 AND unusable IS NULL
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
            "SELECT * FROM images WHERE digest = ANY($1) AND unusable IS NOT NULL ORDER BY digest",
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

    /// Forgets an image version that nothing refers to.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when a node or a deployment refers to it.
    pub async fn image_delete(&self, image: Digest) -> Result<(), StoreError> {
        let deleted = sqlx::query!("DELETE FROM images WHERE digest = $1", image.as_bytes().as_slice())
            .execute(&self.pool)
            .await
            .map_err(|error| {
                match error
                    .as_database_error()
                    .is_some_and(sqlx::error::DatabaseError::is_foreign_key_violation)
                {
                    true => StoreError::Conflict(format!("image {} is used by nodes or deployments", image.short())),
                    false => error.into(),
                }
            })?;
        match deleted.rows_affected() {
            0 => Err(StoreError::not_found("image", image)),
            _ => Ok(()),
        }
    }
}
