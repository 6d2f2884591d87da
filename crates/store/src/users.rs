//! People and their sessions.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::{Store, StoreError};

/// A person who may sign in.
#[derive(Clone, Debug)]
pub struct UserRecord {
    /// Id.
    pub id: Uuid,
    /// Sign-in name.
    pub name: String,
    /// Argon2 hash in PHC form.
    pub password_hash: String,
    /// `admin` or `viewer`.
    pub role: String,
}

/// Whoever a session token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionUser {
    /// Sign-in name.
    pub name: String,
    /// `admin` or `viewer`.
    pub role: String,
}

impl Store {
    /// How many users there are.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn user_count(&self) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM users"#)
            .fetch_one(&self.pool)
            .await?)
    }

    /// Adds a user.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the name is taken.
    pub async fn user_create(&self, name: &str, password_hash: &str, role: &str) -> Result<(), StoreError> {
        sqlx::query!(
            "INSERT INTO users (id, name, password_hash, role) VALUES ($1, $2, $3, $4)",
            Uuid::now_v7(),
            name,
            password_hash,
            role
        )
        .execute(&self.pool)
        .await
        .map_err(|error| match StoreError::is_unique_violation(&error) {
            true => StoreError::Conflict(format!("a user named {name} exists already")),
            false => error.into(),
        })?;
        Ok(())
    }

    /// Changes a password and ends the user's sessions.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such user.
    pub async fn user_set_password(&self, name: &str, password_hash: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let id = sqlx::query_scalar!(
            "UPDATE users SET password_hash = $2 WHERE name = $1 RETURNING id",
            name,
            password_hash
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("user", name))?;
        sqlx::query!("DELETE FROM sessions WHERE user_id = $1", id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The user of this name.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn user_find(&self, name: &str) -> Result<Option<UserRecord>, StoreError> {
        Ok(sqlx::query_as!(
            UserRecord,
            "SELECT id, name, password_hash, role FROM users WHERE name = $1",
            name
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Opens a session; expired ones go away at the same time.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn session_create(
        &self,
        user_id: Uuid,
        token_hash: &[u8],
        expires_at: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query!("DELETE FROM sessions WHERE expires_at < now()")
            .execute(&self.pool)
            .await?;
        sqlx::query!(
            "INSERT INTO sessions (token_hash, user_id, expires_at) VALUES ($1, $2, $3)",
            token_hash,
            user_id,
            expires_at
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Who a token belongs to, while it holds.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn session_find(&self, token_hash: &[u8]) -> Result<Option<SessionUser>, StoreError> {
        Ok(sqlx::query_as!(
            SessionUser,
            "SELECT u.name, u.role FROM sessions s JOIN users u ON u.id = s.user_id
             WHERE s.token_hash = $1 AND s.expires_at > now()",
            token_hash
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Ends a session.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn session_delete(&self, token_hash: &[u8]) -> Result<(), StoreError> {
        sqlx::query!("DELETE FROM sessions WHERE token_hash = $1", token_hash)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
