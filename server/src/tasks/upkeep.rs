//! Deployments that went silent, and tables that must not grow for ever.

use lifecycle::AttemptEnd;

use crate::app::{App, AppError, boot};

/// A deployer reports every second; silent for this long, its attempt is over.
pub const SILENT_SECS: u32 = 180;
/// How long boot events are kept.
const EVENT_DAYS: i32 = 90;

/// Ends attempts whose deployer has gone silent.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn watch_deployments(app: App) -> Result<(), AppError> {
    for (deployment, node) in app.store.deployment_list_silent(SILENT_SECS.into()).await? {
        let why = format!("its deployer has said nothing for {SILENT_SECS} s");
        let end = app.store.deployment_attempt_lost(deployment, &why).await?;
        boot::event(&app, node, "", "attempt_lost", &why).await?;
        if end == AttemptEnd::GiveUp {
            boot::event(&app, node, "", "deployment_failed", &why).await?;
        }
    }
    Ok(())
}

/// Drops what is older than anybody asks for.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn prune(app: App) -> Result<(), AppError> {
    app.store.event_prune(EVENT_DAYS).await?;
    app.store.sighting_prune().await?;
    Ok(())
}
