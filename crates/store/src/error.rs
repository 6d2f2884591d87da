//! What can go wrong with the database.

use manifest::Digest;

/// An error from the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// PostgreSQL or the connection to it failed.
    #[error("database")]
    Database(#[from] sqlx::Error),
    /// A migration failed.
    #[error("migrating the database")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// There is no such thing.
    #[error("no {what} {key}")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// By which key.
        key: String,
    },
    /// It is there already, or is used.
    #[error("{0}")]
    Conflict(String),
    /// A stored value is not what the code writes: a newer version wrote it, or somebody changed it by hand.
    #[error("stored {what} {value:?} is not understood")]
    Stored {
        /// Column or field.
        what: &'static str,
        /// What stands there.
        value: String,
    },
}

impl StoreError {
    /// Whether PostgreSQL refused a second row of the same key.
    pub(crate) fn is_unique_violation(error: &sqlx::Error) -> bool {
        error
            .as_database_error()
            .is_some_and(sqlx::error::DatabaseError::is_unique_violation)
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers pass ids, digests and text alike")]
    pub(crate) fn not_found(what: &'static str, key: impl ToString) -> Self {
        Self::NotFound {
            what,
            key: key.to_string(),
        }
    }
}

/// A stored digest.
pub(crate) fn digest(bytes: &[u8]) -> Result<Digest, StoreError> {
    let bytes: [u8; 32] = bytes.try_into().map_err(|_| StoreError::Stored {
        what: "digest",
        value: hex::encode(bytes),
    })?;
    Ok(Digest::from_bytes(bytes))
}

/// A stored JSON value.
pub(crate) fn json<T: serde::de::DeserializeOwned>(
    what: &'static str,
    value: serde_json::Value,
) -> Result<T, StoreError> {
    serde_json::from_value(value).map_err(|error| StoreError::Stored {
        what,
        value: error.to_string(),
    })
}

/// A value as JSON for the database; the types stored this way always have a JSON form.
pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or(serde_json::Value::Null)
}
