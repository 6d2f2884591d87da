//! Decisions about findings. None of them changes what agents hold or report.

use manifest::Digest;
use protocol::ReviewId;
use store::{NewReview, ReviewKind, ReviewScope};
use time::OffsetDateTime;

use super::auth::User;
use super::{App, AppError, nodes};

/// Longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1_000;
/// Longest waiver, in days: what lasts longer is an acceptance.
const WAIVER_DAYS_MAX: i64 = 366;

/// What somebody decides.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What is decided.
    pub kind: ReviewKind,
    /// One variant; none: all of them.
    pub variant: Option<Digest>,
    /// Where it holds.
    pub scope: ReviewScope,
    /// A node (id, name or MAC) or a node group.
    pub scope_value: Option<String>,
    /// Why.
    pub reason: String,
    /// Until when, of a waiver.
    pub expires_at: Option<OffsetDateTime>,
}

/// Keeps a decision.
///
/// # Errors
/// [`AppError::Invalid`] says what was expected; [`AppError::NotFound`] when there is no such finding or node.
pub async fn decide(app: &App, group: Digest, decision: Decision, user: &User) -> Result<ReviewId, AppError> {
    check(&decision, OffsetDateTime::now_utc())?;
    let scope_value = match (decision.scope, decision.scope_value) {
        (ReviewScope::Everywhere, None) => String::new(),
        (ReviewScope::Everywhere, Some(_)) => {
            return Err(AppError::Invalid(
                "scope everywhere names neither node nor group".to_owned(),
            ));
        }
        (ReviewScope::Node, Some(node)) => nodes::node_find(app, &node).await?.to_string(),
        (ReviewScope::Node, None) => return Err(AppError::Invalid("scope node: expected the node".to_owned())),
        (ReviewScope::Group, Some(group)) => {
            nodes::label_check("group", &group)?;
            group
        }
        (ReviewScope::Group, None) => return Err(AppError::Invalid("scope group: expected the node group".to_owned())),
    };
    let new = NewReview {
        kind: decision.kind,
        group,
        variant: decision.variant,
        scope: decision.scope,
        scope_value,
        reason: decision.reason.trim().to_owned(),
        made_by: user.name.clone(),
        expires_at: decision.expires_at,
    };
    Ok(app.store.review_create(&new).await?)
}

fn check(decision: &Decision, now: OffsetDateTime) -> Result<(), AppError> {
    let invalid = |text: &str| Err(AppError::Invalid(text.to_owned()));
    reason_check(&decision.reason)?;
    match (decision.kind, decision.expires_at) {
        (ReviewKind::Waiver, None) => invalid("expires_at: a waiver needs the instant (UTC) until which it holds"),
        (ReviewKind::Waiver, Some(at)) if at <= now => invalid("expires_at: expected an instant in the future"),
        (ReviewKind::Waiver, Some(at)) if at > now + time::Duration::days(WAIVER_DAYS_MAX) => {
            invalid("expires_at: expected at most a year; what lasts longer is an acceptance")
        }
        (ReviewKind::Waiver, Some(_)) => Ok(()),
        (_, Some(_)) => invalid("expires_at: only a waiver ends by itself"),
        (ReviewKind::Acceptance, None) if decision.variant.is_none() => {
            invalid("variant: an acceptance is of one variant; with another the finding opens again")
        }
        (_, None) => Ok(()),
    }
}

/// A reason that somebody can read later.
///
/// # Errors
/// [`AppError::Invalid`].
pub fn reason_check(reason: &str) -> Result<(), AppError> {
    let reason = reason.trim();
    if reason.is_empty() || reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        return Err(AppError::Invalid(format!(
            "reason: expected a line of text of at most {REASON_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn decision(kind: ReviewKind) -> Decision {
        Decision {
            kind,
            variant: None,
            scope: ReviewScope::Everywhere,
            scope_value: None,
            reason: "the vendor says so".into(),
            expires_at: None,
        }
    }

    #[test]
    fn a_waiver_ends_and_everything_has_a_reason() {
        let problem = |change: &dyn Fn(&mut Decision)| {
            let mut decision = decision(ReviewKind::Waiver);
            decision.expires_at = Some(NOW + time::Duration::days(1));
            change(&mut decision);
            check(&decision, NOW)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert_eq!(problem(&|_| {}), "");
        assert!(problem(&|d| d.expires_at = None).contains("expires_at"));
        assert!(problem(&|d| d.expires_at = Some(NOW)).contains("future"));
        assert!(problem(&|d| d.expires_at = Some(NOW + time::Duration::days(400))).contains("a year"));
        assert!(problem(&|d| d.reason = " ".into()).contains("reason"));
        assert!(problem(&|d| d.reason = "a\nb".into()).contains("reason"));
        assert!(problem(&|d| d.kind = ReviewKind::Acknowledgement).contains("only a waiver"));
    }

    #[test]
    fn an_acceptance_is_of_one_variant() {
        let mut acceptance = decision(ReviewKind::Acceptance);
        assert!(check(&acceptance, NOW).is_err());
        acceptance.variant = Some(Digest::of(b"x"));
        assert!(check(&acceptance, NOW).is_ok());
        assert!(check(&decision(ReviewKind::Acknowledgement), NOW).is_ok());
    }
}
