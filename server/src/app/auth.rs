//! People: passwords, sign-in, sessions.
//!
//! A session is a random token; the database holds only its SHA-256, so that a copy of the database opens no session.
//! A wrong name and a wrong password take the same time and get the same answer, and each failure for a name makes the
//! next try wait longer ([`SignInLimiter`]).
//!
//! Refused: signed tokens (JWT). They cannot be ended before they expire, and a change of role would not reach them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use manifest::Digest;
use serde::{Deserialize, Serialize};
use store::{Store, UserRecord};
use time::OffsetDateTime;
use tokio::sync::Semaphore;

use super::AppError;
use super::sign_in_limiter::SignInLimiter;

/// How long a session lasts.
pub const SESSION_SECS: i64 = 12 * 3_600;
/// Longest life of a program's token, in days.
const TOKEN_DAYS_MAX: i64 = 366;
/// Length of a password, in characters, and most bytes that are hashed.
const PASSWORD_CHARS_MIN: usize = 12;
const PASSWORD_BYTES_MAX: usize = 256;
/// Longest sign-in name in bytes.
const NAME_BYTES_MAX: usize = 32;
/// Hashes at the same time: each takes 19 MiB and tens of milliseconds.
const HASHES_MAX: usize = 2;
/// How long a sign-in waits for its turn.
const TURN_LIMIT: Duration = Duration::from_secs(10);
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// Verified when there is no such user, so that this takes as long. No password is known to have this hash.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$cGx1bWJsaW5lLW5vYm9keQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// What a person may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads and changes.
    Admin,
    /// Reads.
    Viewer,
}

impl Role {
    /// The name in the database and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Viewer => "viewer",
        }
    }

    /// A stored role. What is not understood may only read.
    fn from_stored(name: &str) -> Self {
        if name == "admin" { Self::Admin } else { Self::Viewer }
    }
}

/// Whoever is signed in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct User {
    /// Sign-in name.
    pub name: String,
    /// What they may do.
    pub role: Role,
}

/// A session that was just opened.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct SignedIn {
    /// For `Authorization: Bearer`; shown this once.
    pub token: String,
    /// Sign-in name.
    pub name: String,
    /// What the session may do.
    pub role: Role,
    /// When it ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// What stands between the sign-in route and the work of a hash: failures by name, and turns.
#[derive(Debug)]
pub struct SignInGuard {
    limiter: Mutex<SignInLimiter>,
    turns: Semaphore,
}

impl Default for SignInGuard {
    fn default() -> Self {
        Self {
            limiter: Mutex::default(),
            turns: Semaphore::new(HASHES_MAX),
        }
    }
}

impl SignInGuard {
    fn limiter(&self) -> std::sync::MutexGuard<'_, SignInLimiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, AppError> {
        match tokio::time::timeout(TURN_LIMIT, self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(AppError::Unavailable("too many people sign in at once".to_owned())),
        }
    }
}

/// Opens a session.
///
/// # Errors
/// [`AppError::Unauthorized`] without saying whether the name or the password is wrong, [`AppError::Limited`] while
/// the name has to wait after failures.
pub async fn sign_in(store: &Store, guard: &SignInGuard, name: &str, password: &str) -> Result<SignedIn, AppError> {
    let wrong = || AppError::Unauthorized("wrong name or password".to_owned());
    if name_check(name).is_err() || password.len() > PASSWORD_BYTES_MAX {
        return Err(wrong());
    }
    if let Err(wait) = guard.limiter().begin(name, Instant::now()) {
        let secs = wait.as_secs() + 1;
        return Err(AppError::Limited(format!(
            "too many failed sign-ins as {name}: try again in {secs} s"
        )));
    }
    let user = store.user_find(name).await?;
    let hash = user.as_ref().map_or(NOBODY, |user| user.password_hash.as_str());
    let _turn = guard.turn().await?;
    let holds = password_verify(password.to_owned(), hash.to_owned()).await?;
    let Some(user) = user.filter(|_| holds) else {
        tracing::warn!(user.name = name, "a sign-in failed");
        return Err(wrong());
    };
    guard.limiter().succeeded(name);
    session_open(store, user, time::Duration::seconds(SESSION_SECS)).await
}

async fn session_open(store: &Store, user: UserRecord, life: time::Duration) -> Result<SignedIn, AppError> {
    let token = hex::encode(rand::random::<[u8; TOKEN_BYTES]>());
    let expires_at = OffsetDateTime::now_utc() + life;
    store
        .session_create(user.id, token_hash(&token).as_bytes(), expires_at)
        .await?;
    Ok(SignedIn {
        token,
        name: user.name,
        role: Role::from_stored(&user.role),
        expires_at,
    })
}

/// Makes a token for a program that signs in as this user: it holds for `days` and ends with the user's password.
///
/// # Errors
/// [`AppError::NotFound`], [`AppError::Invalid`] for more than a year.
pub async fn token_create(store: &Store, name: &str, days: i64, made_by: &User) -> Result<SignedIn, AppError> {
    if !(1..=TOKEN_DAYS_MAX).contains(&days) {
        return Err(AppError::Invalid(format!(
            "days = {days}: expected 1 to {TOKEN_DAYS_MAX}"
        )));
    }
    let user = store.user_find(name).await?.ok_or_else(|| AppError::NotFound {
        what: "user".to_owned(),
        key: name.to_owned(),
    })?;
    store
        .audit_add(&made_by.name, "token_made", name, &format!("for {days} days"))
        .await?;
    session_open(store, user, time::Duration::days(days)).await
}

/// Whose token this is.
///
/// # Errors
/// [`AppError::Unauthorized`] when it is nobody's, or has expired.
pub async fn session_user(store: &Store, token: &str) -> Result<User, AppError> {
    let user = match is_token(token) {
        true => store.session_find(token_hash(token).as_bytes()).await?,
        false => None,
    };
    let user = user.ok_or_else(|| AppError::Unauthorized("the session is over: sign in again".to_owned()))?;
    Ok(User {
        role: Role::from_stored(&user.role),
        name: user.name,
    })
}

/// Ends a session.
///
/// # Errors
/// [`AppError::Internal`] when the database fails.
pub async fn sign_out(store: &Store, token: &str) -> Result<(), AppError> {
    Ok(store.session_delete(token_hash(token).as_bytes()).await?)
}

/// Adds a user.
///
/// # Errors
/// [`AppError::Invalid`] for a name or password that does not do, [`AppError::Conflict`] when the name is taken.
pub async fn user_add(
    store: &Store,
    guard: &SignInGuard,
    name: &str,
    password: &str,
    role: Role,
) -> Result<(), AppError> {
    name_check(name)?;
    password_check(password)?;
    let _turn = guard.turn().await?;
    let hash = password_hash(password.to_owned()).await?;
    Ok(store.user_create(name, &hash, role.as_str()).await?)
}

/// Changes a password; the user's sessions end.
///
/// # Errors
/// [`AppError::Invalid`] for a password that does not do, [`AppError::NotFound`].
pub async fn user_set_password(store: &Store, guard: &SignInGuard, name: &str, password: &str) -> Result<(), AppError> {
    password_check(password)?;
    let _turn = guard.turn().await?;
    let hash = password_hash(password.to_owned()).await?;
    Ok(store.user_set_password(name, &hash).await?)
}

/// Makes the user `admin` when there is no user at all, and gives the password: once, for whoever starts the server.
///
/// # Errors
/// [`AppError::Internal`] when the database fails.
pub async fn first_admin(store: &Store) -> Result<Option<String>, AppError> {
    if store.user_count().await? > 0 {
        return Ok(None);
    }
    let password = password_generate();
    let hash = password_hash(password.clone()).await?;
    match store.user_create("admin", &hash, Role::Admin.as_str()).await {
        Ok(()) => Ok(Some(password)),
        // Another server of the same database was first.
        Err(store::StoreError::Conflict(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Four groups of five characters that nobody mistakes for each other: 96 bits.
fn password_generate() -> String {
    const LETTERS: &[u8; 28] = b"abcdefghjkmnpqrstuvwxyz23456";
    let groups: Vec<String> = (0..4)
        .map(|_| {
            (0..5)
                .map(|_| char::from(LETTERS[rand::random_range(0..LETTERS.len())]))
                .collect()
        })
        .collect();
    groups.join("-")
}

fn name_check(name: &str) -> Result<(), AppError> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts_well && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(AppError::Invalid(format!(
        "name: expected 1 to {NAME_BYTES_MAX} of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
    )))
}

fn password_check(password: &str) -> Result<(), AppError> {
    let chars = password.chars().count();
    if chars >= PASSWORD_CHARS_MIN && password.len() <= PASSWORD_BYTES_MAX {
        return Ok(());
    }
    Err(AppError::Invalid(format!(
        "password: {chars} characters, expected at least {PASSWORD_CHARS_MIN} and at most {PASSWORD_BYTES_MAX} bytes"
    )))
}

fn is_token(text: &str) -> bool {
    text.len() == 2 * TOKEN_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn token_hash(token: &str) -> Digest {
    Digest::of(token.as_bytes())
}

async fn password_hash(password: String) -> Result<String, AppError> {
    let hash = move || {
        Argon2::default()
            .hash_password(password.as_bytes())
            .map(|h| h.to_string())
    };
    let hash = tokio::task::spawn_blocking(hash).await.map_err(AppError::internal)?;
    hash.map_err(AppError::internal)
}

async fn password_verify(password: String, hash: String) -> Result<bool, AppError> {
    let verify = move || -> Result<bool, argon2::password_hash::phc::Error> {
        let hash = PasswordHash::new(&hash)?;
        Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
    };
    let holds = tokio::task::spawn_blocking(verify).await.map_err(AppError::internal)?;
    holds.map_err(AppError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobodys_hash_costs_what_a_users_does_and_fits_no_password() {
        let fresh = password_hash("correct horse battery".to_owned()).await.unwrap();
        let parameters = |hash: &str| hash.split('$').nth(3).map(str::to_owned);
        assert_eq!(parameters(&fresh), parameters(NOBODY));
        assert!(
            password_verify("correct horse battery".to_owned(), fresh)
                .await
                .unwrap()
        );
        assert!(!password_verify(String::new(), NOBODY.to_owned()).await.unwrap());
    }

    #[test]
    fn generated_passwords_pass_the_own_check_and_differ() {
        let (one, other) = (password_generate(), password_generate());
        assert_ne!(one, other);
        assert_eq!(one.len(), 23);
        password_check(&one).unwrap();
    }

    #[test]
    fn names_are_what_a_log_line_can_hold() {
        for good in ["admin", "a.b-c_d", "0day"] {
            name_check(good).unwrap();
        }
        for bad in ["", "Admin", ".x", "a b", "a\nb", "ä", &"x".repeat(33)] {
            assert!(name_check(bad).is_err(), "{bad:?}");
        }
    }
}
