//! What a request can end in, other than its result.

/// An error of the application, as the caller should understand it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// There is no such thing.
    #[error("no {what} {key}")]
    NotFound {
        /// What was looked for.
        what: String,
        /// By which key.
        key: String,
    },
    /// The request contradicts what is there.
    #[error("{0}")]
    Conflict(String),
    /// The request itself is wrong: what, where, what was expected.
    #[error("{0}")]
    Invalid(String),
    /// Nobody is signed in, or the credentials are wrong.
    #[error("{0}")]
    Unauthorized(String),
    /// Whoever asks may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// Too many attempts; the message says how long to wait.
    #[error("{0}")]
    Limited(String),
    /// Not now; try again.
    #[error("{0}")]
    Unavailable(String),
    /// The server failed; the cause is logged, not told.
    #[error("internal error")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl AppError {
    /// Wraps an error the caller cannot do anything about.
    pub fn internal(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Internal(Box::new(error))
    }
}

impl From<store::StoreError> for AppError {
    fn from(error: store::StoreError) -> Self {
        match error {
            store::StoreError::NotFound { what, key } => Self::NotFound {
                what: what.to_owned(),
                key,
            },
            store::StoreError::Conflict(reason) => Self::Conflict(reason),
            other => Self::internal(other),
        }
    }
}

impl From<crate::image::StoreError> for AppError {
    fn from(error: crate::image::StoreError) -> Self {
        match error {
            crate::image::StoreError::NotFound { what } => Self::NotFound {
                what: "stored".to_owned(),
                key: what,
            },
            other => Self::internal(other),
        }
    }
}

impl From<manifest::ManifestError> for AppError {
    fn from(error: manifest::ManifestError) -> Self {
        Self::internal(error)
    }
}
