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
                                 stored_bytes, files_by_class)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (digest) DO NOTHING",
            image.digest.as_bytes().as_slice(),
            image.kind,
            image.name,
            image.version,
            image.description,
            image.architecture,
            image.files,
            image.content_bytes,
            image.stored_bytes,
            to_json(&image.files_by_class)
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

    /// The newest image version of a kind, optionally of one name.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn image_newest(&self, kind: &str) -> Result<Option<ImageRecord>, StoreError> {
        sqlx::query_as!(
            ImageRow,
            "SELECT * FROM images WHERE kind = $1 ORDER BY registered_at DESC, version DESC LIMIT 1",
            kind
        )
        .fetch_optional(&self.pool)
        .await?
        .map(TryInto::try_into)
        .transpose()
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
