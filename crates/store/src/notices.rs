//! Notice of changes: PostgreSQL's LISTEN, so that every server hears what any of them wrote.

use sqlx::postgres::PgListener;

use crate::{Store, StoreError};

/// Something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What: `node`, `event`, `deployment`, `drift`, `review`, `run`, `discovery`, `image`, `build`.
    pub topic: String,
    /// Which one, where that is known: a node's, a run's or a build's id.
    pub id: Option<String>,
}

/// Hears notices. After a lost connection it connects again; what happened meanwhile is not told, which
/// [`NoticeListener::next`] says.
#[derive(Debug)]
pub struct NoticeListener {
    listener: PgListener,
}

impl NoticeListener {
    /// The next notice; `None` after a gap in which anything may have changed.
    ///
    /// # Errors
    /// [`StoreError::Database`] when there is no connection to be had.
    pub async fn next(&mut self) -> Result<Option<Notice>, StoreError> {
        let Some(notification) = self.listener.try_recv().await? else {
            return Ok(None);
        };
        let payload = notification.payload();
        let (topic, id) = payload
            .split_once(' ')
            .map_or((payload, None), |(topic, id)| (topic, Some(id)));
        Ok(Some(Notice {
            topic: topic.to_owned(),
            id: id.map(str::to_owned),
        }))
    }
}

impl Store {
    /// Begins to listen, on a connection of its own.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn notice_listen(&self) -> Result<NoticeListener, StoreError> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen("plumbline").await?;
        Ok(NoticeListener { listener })
    }
}
