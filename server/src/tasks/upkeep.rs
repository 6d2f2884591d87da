//! Deployments that went silent, and tables that must not grow for ever.

use lifecycle::AttemptEnd;

use crate::app::{App, AppError, boot, builds, burn_ins};

/// A deployer reports every second; silent for this long, its attempt is over.
pub const SILENT_SECS: u32 = 180;
/// How long boot events are kept, and the messages they tell of.
const EVENT_DAYS: i32 = 90;
/// How long texts of files are kept after the last finding that names them.
const CONTENT_DAYS: i32 = 7;
/// How long is kept what became of findings.
const HISTORY_DAYS: i32 = 365;
/// How long remediation runs are kept.
const RUN_DAYS: i32 = 365;
/// How long builds are kept, with their logs.
const BUILD_DAYS: i32 = 90;

/// Ends attempts and burn-ins whose deployer has gone silent.
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
    burn_ins::watch(&app, SILENT_SECS).await
}

/// Drops what is older than anybody asks for.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn prune(app: App) -> Result<(), AppError> {
    app.store.event_prune(EVENT_DAYS).await?;
    app.store.packet_prune(EVENT_DAYS).await?;
    app.store.sighting_prune().await?;
    app.store.dhcp_server_prune(EVENT_DAYS).await?;
    app.store.content_prune(CONTENT_DAYS).await?;
    app.store.finding_history_prune(HISTORY_DAYS).await?;
    app.store.run_prune(RUN_DAYS).await?;
    app.store.burn_in_prune(HISTORY_DAYS).await?;
    builds::prune(&app, BUILD_DAYS).await?;
    Ok(())
}

/// Brings all findings to the severity that the policy says now: it may be another one since the last start.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn rejudge(app: App) -> Result<(), AppError> {
    let policy = app.policy.clone();
    let changed = app
        .store
        .finding_rejudge(|difference| policy.severity(difference))
        .await?;
    if changed > 0 {
        tracing::info!(findings = changed, "severities follow the policy");
    }
    Ok(())
}
