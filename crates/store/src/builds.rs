//! Builds of images: the queue, the one that runs, and what became of the others.
//!
//! At most one runs, which an index sees to. People queue and cancel; only the server's builder changes the state of one
//! that runs, so a cancel of it is a wish that the builder reads.

use manifest::Digest;
use protocol::BuildId;
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::{NewAudit, insert_audit};
use crate::error::digest;
use crate::{Store, StoreError};

/// Where a build stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BuildState {
    /// It waits for those before it.
    Queued,
    /// It runs.
    Running,
    /// Its image is in the store.
    Done,
    /// It came to no image.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

impl BuildState {
    /// The name in the database and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing will change any more.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    fn from_stored(name: String) -> Result<Self, StoreError> {
        [Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Cancelled]
            .into_iter()
            .find(|state| state.as_str() == name)
            .ok_or(StoreError::Stored {
                what: "build state",
                value: name,
            })
    }
}

/// How far something is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct BuildCount {
    /// So many are done.
    pub done: i64,
    /// Of so many, where that is known.
    pub total: Option<i64>,
    /// Of what: `packages`, `bytes`.
    pub unit: String,
}

/// What a build is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildProgress {
    /// One word (`packages`, `pack`).
    pub stage: String,
    /// One line.
    pub detail: String,
    /// How far that is.
    pub count: Option<BuildCount>,
    /// Bytes in its log.
    pub log_bytes: i64,
}

/// How a build ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildEnd {
    /// With this image.
    Done(Digest),
    /// Without one, for this reason.
    Failed(String),
    /// As somebody wished.
    Cancelled,
}

/// A build.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct BuildRecord {
    /// Id; later ones sort later.
    pub id: BuildId,
    /// The recipe's folder below the configured one.
    pub recipe: String,
    /// Where it stands.
    pub state: BuildState,
    /// Who asked for it.
    pub requested_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub requested_at: OffsetDateTime,
    /// When it began.
    #[serde(with = "time::serde::rfc3339::option")]
    pub started_at: Option<OffsetDateTime>,
    /// When it was over.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
    /// What it does, or did last, in one word: `packages`, `configure`, `hooks`, `walk`, `pack`, …; empty before it begins.
    pub stage: String,
    /// The same in a line; of one that waits, what for, where that is no other build of the queue.
    pub detail: String,
    /// How far that is.
    pub count: Option<BuildCount>,
    /// Bytes that its log has.
    pub log_bytes: i64,
    /// Who wanted it to end.
    pub cancelled_by: Option<String>,
    /// Digest of the image that came of it, 64 hexadecimal digits. The image may have been removed since.
    #[schema(value_type = Option<String>)]
    pub image: Option<Digest>,
    /// Why it failed, as the build said it; may be several lines.
    pub error: Option<String>,
}

struct BuildRow {
    id: Uuid,
    recipe: String,
    state: String,
    requested_by: String,
    requested_at: OffsetDateTime,
    started_at: Option<OffsetDateTime>,
    finished_at: Option<OffsetDateTime>,
    stage: String,
    detail: String,
    done: Option<i64>,
    total: Option<i64>,
    unit: Option<String>,
    log_bytes: i64,
    cancelled_by: Option<String>,
    image: Option<Vec<u8>>,
    error: Option<String>,
}

impl TryFrom<BuildRow> for BuildRecord {
    type Error = StoreError;

    fn try_from(row: BuildRow) -> Result<Self, StoreError> {
        let count = row.done.zip(row.unit).map(|(done, unit)| BuildCount {
            done,
            total: row.total,
            unit,
        });
        Ok(Self {
            id: BuildId(row.id),
            recipe: row.recipe,
            state: BuildState::from_stored(row.state)?,
            requested_by: row.requested_by,
            requested_at: row.requested_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            stage: row.stage,
            detail: row.detail,
            count,
            log_bytes: row.log_bytes,
            cancelled_by: row.cancelled_by,
            image: row.image.as_deref().map(digest).transpose()?,
            error: row.error,
        })
    }
}

/// Text that PostgreSQL takes: without NUL.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

impl Store {
    /// Queues a build, unless `queued_max` wait already.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the queue is full.
    pub async fn build_create(
        &self,
        recipe: &str,
        requested_by: &str,
        queued_max: i64,
    ) -> Result<BuildRecord, StoreError> {
        let id = BuildId::new();
        let mut transaction = self.pool.begin().await?;
        // Two at once would both find the last place free.
        sqlx::query!("LOCK TABLE image_builds IN SHARE ROW EXCLUSIVE MODE")
            .execute(&mut *transaction)
            .await?;
        let done = sqlx::query!(
            "INSERT INTO image_builds (id, recipe, state, requested_by)
             SELECT $1, $2, 'queued', $3
             WHERE (SELECT count(*) FROM image_builds WHERE state = 'queued') < $4",
            id.0,
            recipe,
            requested_by,
            queued_max
        )
        .execute(&mut *transaction)
        .await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::Conflict(format!(
                "{queued_max} builds wait already: cancel one, or try again later"
            )));
        }
        let audit = NewAudit {
            actor: requested_by,
            action: "build_requested",
            object: recipe,
            detail: &format!("build {id}"),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        self.build_get(id).await
    }

    /// Builds, newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn build_list(&self, limit: i64) -> Result<Vec<BuildRecord>, StoreError> {
        self.build_select(None, limit).await
    }

    /// One build.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn build_get(&self, id: BuildId) -> Result<BuildRecord, StoreError> {
        let found = self.build_select(Some(id), 1).await?.pop();
        found.ok_or_else(|| StoreError::not_found("build", id))
    }

    async fn build_select(&self, id: Option<BuildId>, limit: i64) -> Result<Vec<BuildRecord>, StoreError> {
        sqlx::query_as!(
            BuildRow,
            "SELECT * FROM image_builds WHERE $1::uuid IS NULL OR id = $1 ORDER BY id DESC LIMIT $2",
            id.map(|id| id.0),
            limit
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// Begins the build that has waited longest; none when none waits, or one runs.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn build_take_next(&self) -> Result<Option<BuildRecord>, StoreError> {
        let taken = sqlx::query_scalar!(
            "UPDATE image_builds SET state = 'running', started_at = now(), detail = ''
             WHERE id = (SELECT id FROM image_builds WHERE state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING id"
        )
        .fetch_optional(&self.pool)
        .await;
        match taken {
            Ok(None) => Ok(None),
            Ok(Some(id)) => Ok(Some(self.build_get(BuildId(id)).await?)),
            Err(error) if StoreError::is_unique_violation(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Says what the build waits for that is next.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn build_waits(&self, detail: &str) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE image_builds SET detail = $1
             WHERE id = (SELECT id FROM image_builds WHERE state = 'queued' ORDER BY id LIMIT 1) AND detail <> $1",
            detail
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Whether one waits.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn build_is_queued(&self) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(r#"SELECT 1 AS "one!" FROM image_builds WHERE state = 'queued' LIMIT 1"#)
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.is_some())
    }

    /// Keeps what the running build does, and gives who wants it to end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when it does not run any more.
    pub async fn build_progress(&self, id: BuildId, progress: &BuildProgress) -> Result<Option<String>, StoreError> {
        let count = progress.count.as_ref();
        let cancelled_by = sqlx::query_scalar!(
            "UPDATE image_builds SET stage = $2, detail = $3, done = $4, total = $5, unit = $6, log_bytes = $7
             WHERE id = $1 AND state = 'running' RETURNING cancelled_by",
            id.0,
            plain(&progress.stage),
            plain(&progress.detail),
            count.map(|count| count.done),
            count.and_then(|count| count.total),
            count.map(|count| count.unit.clone()),
            progress.log_bytes
        )
        .fetch_optional(&self.pool)
        .await?;
        cancelled_by.ok_or_else(|| StoreError::not_found("running build", id))
    }

    /// Who wants the running build to end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when it does not run any more.
    pub async fn build_cancel_wish(&self, id: BuildId) -> Result<Option<String>, StoreError> {
        let wish = sqlx::query_scalar!(
            "SELECT cancelled_by FROM image_builds WHERE id = $1 AND state = 'running'",
            id.0
        )
        .fetch_optional(&self.pool)
        .await?;
        wish.ok_or_else(|| StoreError::not_found("running build", id))
    }

    /// Ends the running build; nothing when it does not run any more.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn build_finish(&self, id: BuildId, end: &BuildEnd, log_bytes: i64) -> Result<(), StoreError> {
        let (state, image, error) = match end {
            BuildEnd::Done(image) => (BuildState::Done, Some(image.as_bytes().to_vec()), None),
            BuildEnd::Failed(error) => (BuildState::Failed, None, Some(plain(error))),
            BuildEnd::Cancelled => (BuildState::Cancelled, None, None),
        };
        sqlx::query!(
            "UPDATE image_builds SET state = $2, image = $3, error = $4, log_bytes = $5, finished_at = now()
             WHERE id = $1 AND state = 'running'",
            id.0,
            state.as_str(),
            image,
            error,
            log_bytes
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Cancels a build that waits, or says that the one that runs is to end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Conflict`] when it is over.
    pub async fn build_cancel(&self, id: BuildId, cancelled_by: &str) -> Result<BuildRecord, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let build = sqlx::query!(
            "SELECT recipe, state, cancelled_by FROM image_builds WHERE id = $1 FOR UPDATE",
            id.0
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("build", id))?;
        let state = BuildState::from_stored(build.state)?;
        if state.is_over() {
            return Err(StoreError::Conflict(format!("build {id} is {}", state.as_str())));
        }
        if build.cancelled_by.is_none() {
            sqlx::query!(
                "UPDATE image_builds SET cancelled_by = $2,
                   state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END,
                   finished_at = CASE state WHEN 'queued' THEN now() END
                 WHERE id = $1",
                id.0,
                cancelled_by
            )
            .execute(&mut *transaction)
            .await?;
            let audit = NewAudit {
                actor: cancelled_by,
                action: "build_cancelled",
                object: &build.recipe,
                detail: &format!("build {id}, {}", state.as_str()),
            };
            insert_audit(&mut transaction, &audit).await?;
        }
        transaction.commit().await?;
        self.build_get(id).await
    }

    /// Ends what still counts as running: for a server that starts, since builds end with the server that runs them.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn build_interrupt(&self, error: &str) -> Result<Vec<BuildId>, StoreError> {
        let ended = sqlx::query_scalar!(
            "UPDATE image_builds SET finished_at = now(),
               state = CASE WHEN cancelled_by IS NULL THEN 'failed' ELSE 'cancelled' END,
               error = CASE WHEN cancelled_by IS NULL THEN $1 END
             WHERE state = 'running' RETURNING id",
            error
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ended.into_iter().map(BuildId).collect())
    }

    /// Forgets builds that were over so many days ago, and gives those that are left, for their logs.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn build_prune(&self, days: i32) -> Result<Vec<BuildId>, StoreError> {
        sqlx::query!(
            "DELETE FROM image_builds WHERE finished_at < now() - make_interval(days => $1)",
            days
        )
        .execute(&self.pool)
        .await?;
        let left = sqlx::query_scalar!("SELECT id FROM image_builds")
            .fetch_all(&self.pool)
            .await?;
        Ok(left.into_iter().map(BuildId).collect())
    }
}
