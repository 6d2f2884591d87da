//! Deployments: one image version onto one node.

use lifecycle::{AttemptEnd, DeploymentState, NodeState, Observed, Step};
use manifest::{Digest, TreePath};
use protocol::latest::{DeployMode, DiskRule, Layout, Outcome, Progress};
use protocol::{DeploymentId, NodeId};
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::deployment_disks::installed_text;
use crate::error::{digest, json, to_json};
use crate::images::lock_images;
use crate::nodes::step_node;
use crate::{Store, StoreError};

/// A deployment somebody asked for.
#[derive(Clone, Debug)]
pub struct NewDeployment {
    /// The node.
    pub node_id: NodeId,
    /// Image version.
    pub image: Digest,
    /// The channel that named it, when it was asked for by one.
    pub channel: Option<String>,
    /// Agent layer.
    pub agent_layer: Digest,
    /// Which disk.
    pub disk_rule: DiskRule,
    /// How it is divided.
    pub layout: Layout,
    /// What becomes of what is on it.
    pub mode: DeployMode,
    /// Paths that stay, with all below them.
    pub keep: Vec<TreePath>,
    /// Attempts before it is given up.
    pub attempts_max: u32,
    /// Who asked.
    pub requested_by: String,
}

/// A deployment as people see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct DeploymentRecord {
    /// Id.
    pub id: DeploymentId,
    /// The node.
    pub node_id: NodeId,
    /// Image version.
    #[schema(value_type = String)]
    pub image: Digest,
    /// The channel that named it then, when it was asked for by one.
    pub channel: Option<String>,
    /// Agent layer.
    #[schema(value_type = String)]
    pub agent_layer: Digest,
    /// Which disk.
    pub disk_rule: DiskRule,
    /// How it is divided.
    #[serde(skip)]
    pub layout: Layout,
    /// What is asked for, of what is on the disk.
    pub mode: DeployMode,
    /// Paths that stay, with all below them.
    #[schema(value_type = Vec<String>)]
    pub keep: Vec<TreePath>,
    /// Where it stands.
    #[schema(value_type = String)]
    pub state: DeploymentState,
    /// Why it stands there.
    pub reason: String,
    /// Current attempt, from 1; 0 before the first.
    pub attempt: i32,
    /// Attempts before it is given up.
    pub attempts_max: i32,
    /// What the deployer said last.
    pub progress: Option<Progress>,
    /// When it said so.
    #[serde(with = "time::serde::rfc3339::option")]
    pub progress_at: Option<OffsetDateTime>,
    /// How it ended on the node.
    #[schema(value_type = Option<Object>)]
    pub outcome: Option<serde_json::Value>,
    /// Who asked.
    pub requested_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When a deployer took it up first.
    #[serde(with = "time::serde::rfc3339::option")]
    pub started_at: Option<OffsetDateTime>,
    /// When it was over.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

struct DeploymentRow {
    id: Uuid,
    node_id: Uuid,
    image: Vec<u8>,
    channel: Option<String>,
    agent_layer: Vec<u8>,
    disk_rule: serde_json::Value,
    layout: serde_json::Value,
    mode: String,
    keep: serde_json::Value,
    state: String,
    reason: String,
    attempt: i32,
    attempts_max: i32,
    progress: Option<serde_json::Value>,
    progress_at: Option<OffsetDateTime>,
    outcome: Option<serde_json::Value>,
    requested_by: String,
    created_at: OffsetDateTime,
    started_at: Option<OffsetDateTime>,
    finished_at: Option<OffsetDateTime>,
}

impl TryFrom<DeploymentRow> for DeploymentRecord {
    type Error = StoreError;

    fn try_from(row: DeploymentRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: DeploymentId(row.id),
            node_id: NodeId(row.node_id),
            image: digest(&row.image)?,
            channel: row.channel,
            agent_layer: digest(&row.agent_layer)?,
            disk_rule: json("disk_rule", row.disk_rule)?,
            layout: json("layout", row.layout)?,
            mode: DeployMode::parse(&row.mode).ok_or(StoreError::Stored {
                what: "deployment mode",
                value: row.mode,
            })?,
            keep: json("keep", row.keep)?,
            state: DeploymentState::parse(&row.state).ok_or(StoreError::Stored {
                what: "deployment state",
                value: row.state,
            })?,
            reason: row.reason,
            attempt: row.attempt,
            attempts_max: row.attempts_max,
            progress: row.progress.map(|value| json("progress", value)).transpose()?,
            progress_at: row.progress_at,
            outcome: row.outcome,
            requested_by: row.requested_by,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
        })
    }
}

impl Store {
    /// Asks for a deployment; the node's step is part of it.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] with the reason when the node's state does not allow it, or the image is removed.
    pub async fn deployment_create(&self, new: &NewDeployment) -> Result<DeploymentId, StoreError> {
        let id = DeploymentId::new();
        let mut transaction = self.pool.begin().await?;
        let taken = step_node(&mut transaction, new.node_id, &Observed::DeploymentRequested).await?;
        if let Step::Refused { reason } = taken.step {
            return Err(StoreError::Conflict(reason));
        }
        lock_images(&mut transaction, &[new.image, new.agent_layer]).await?;
        let attempts_max = i32::try_from(new.attempts_max).unwrap_or(i32::MAX);
        sqlx::query!(
            "INSERT INTO deployments (id, node_id, image, agent_layer, disk_rule, layout, state, reason, attempts_max,
                                      requested_by, mode, keep, channel)
             VALUES ($1, $2, $3, $4, $5, $6, 'waiting', 'waiting for a deployer', $7, $8, $9, $10, $11)",
            id.0,
            new.node_id.0,
            new.image.as_bytes().as_slice(),
            new.agent_layer.as_bytes().as_slice(),
            to_json(&new.disk_rule),
            to_json(&new.layout),
            attempts_max,
            new.requested_by,
            new.mode.as_str(),
            to_json(&new.keep),
            new.channel
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// One deployment.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn deployment_get(&self, id: DeploymentId) -> Result<DeploymentRecord, StoreError> {
        sqlx::query_as!(
            DeploymentRow,
            "SELECT id, node_id, image, channel, agent_layer, disk_rule, layout, mode, keep, state, reason, attempt, attempts_max,
                    progress, progress_at, outcome, requested_by, created_at, started_at, finished_at
             FROM deployments WHERE id = $1",
            id.0
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| StoreError::not_found("deployment", id))?
        .try_into()
    }

    /// A node's deployments, newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_list(&self, node: NodeId) -> Result<Vec<DeploymentRecord>, StoreError> {
        sqlx::query_as!(
            DeploymentRow,
            "SELECT id, node_id, image, channel, agent_layer, disk_rule, layout, mode, keep, state, reason, attempt, attempts_max,
                    progress, progress_at, outcome, requested_by, created_at, started_at, finished_at
             FROM deployments WHERE node_id = $1 ORDER BY created_at DESC LIMIT 100",
            node.0
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// A node's deployment that is waiting or runs.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_find_open(&self, node: NodeId) -> Result<Option<DeploymentRecord>, StoreError> {
        let open = self
            .deployment_list(node)
            .await?
            .into_iter()
            .find(|deployment| deployment.state.is_open());
        Ok(open)
    }

    /// Hands a waiting deployment to the deployer that holds this token: the token becomes the attempt's.
    ///
    /// `false` when another deployer has it or it is over. Asked again with the same token: `true`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_start(&self, id: DeploymentId, token: Uuid) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let row = sqlx::query!(
            "SELECT d.state, d.attempt, t.deployment_id, t.attempt AS token_attempt
             FROM deployments d JOIN boot_tokens t ON t.node_id = d.node_id AND t.id = $2
             WHERE d.id = $1 FOR UPDATE OF d",
            id.0,
            token
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(row) = row else { return Ok(false) };
        let for_this = |attempt: i32| row.deployment_id == Some(id.0) && row.token_attempt == Some(attempt);
        if row.state == "running" {
            return Ok(for_this(row.attempt));
        }
        // A deployer that waited holds a token for no deployment; one that booted for this attempt, a token for it.
        let attempt = row.attempt + 1;
        if row.state != "waiting" || (row.deployment_id.is_some() && !for_this(attempt)) {
            return Ok(false);
        }
        sqlx::query!(
            "UPDATE boot_tokens SET deployment_id = $2, attempt = $3 WHERE id = $1",
            token,
            id.0,
            attempt
        )
        .execute(&mut *transaction)
        .await?;
        sqlx::query!(
            "UPDATE deployments SET state = 'running', reason = 'a deployer works on it', attempt = $2,
                    started_at = coalesce(started_at, now()), progress_at = now() WHERE id = $1",
            id.0,
            attempt
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Keeps what the deployer says of a running deployment; returns whether the stage is a new one.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when it does not run any more.
    pub async fn deployment_progress(&self, id: DeploymentId, progress: &Progress) -> Result<bool, StoreError> {
        let new_stage = sqlx::query_scalar!(
            r#"UPDATE deployments d SET progress = $2, progress_at = now() FROM deployments old
               WHERE d.id = $1 AND old.id = d.id AND d.state = 'running'
               RETURNING coalesce(old.progress->>'stage', '') <> $3 AS "new_stage!""#,
            id.0,
            to_json(progress),
            progress.stage.as_str()
        )
        .fetch_optional(&self.pool)
        .await?;
        new_stage.ok_or_else(|| StoreError::Conflict("the deployment does not run any more".to_owned()))
    }

    /// Keeps the overlay a deployment rendered.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_set_overlay(
        &self,
        id: DeploymentId,
        overlay: Digest,
        manifest: &str,
        host_keys: &[String],
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!(
            "INSERT INTO overlays (digest, manifest) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING",
            overlay.as_bytes().as_slice(),
            manifest
        )
        .execute(&mut *transaction)
        .await?;
        let node = sqlx::query_scalar!(
            "UPDATE deployments SET overlay = $2 WHERE id = $1 RETURNING node_id",
            id.0,
            overlay.as_bytes().as_slice()
        )
        .fetch_one(&mut *transaction)
        .await?;
        sqlx::query!("DELETE FROM ssh_host_keys WHERE node_id = $1", node)
            .execute(&mut *transaction)
            .await?;
        for key in host_keys {
            sqlx::query!(
                "INSERT INTO ssh_host_keys (node_id, public_key) VALUES ($1, $2)",
                node,
                key
            )
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Ends a deployment as its deployer reports. Installed sets the node's baseline and drops what was known of the
    /// old system; both are one transaction with the node's step, so it is never half-marked.
    ///
    /// Told twice, the second time changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when it is over already with another end, or nothing was rendered.
    pub async fn deployment_finish(&self, id: DeploymentId, outcome: &Outcome) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let row = sqlx::query!(
            "SELECT node_id, state, image, agent_layer, overlay FROM deployments WHERE id = $1 FOR UPDATE",
            id.0
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("deployment", id))?;
        let (state, reason, observed) = match outcome {
            Outcome::Installed { files, bytes, work, .. } => {
                let reason = installed_text(*files, *bytes, work.as_ref());
                (DeploymentState::Installed, reason, Observed::Installed)
            }
            Outcome::Failed { stage, reason } => {
                let reason = format!("{}: {reason}", stage.as_str());
                (
                    DeploymentState::Failed,
                    reason.clone(),
                    Observed::DeploymentFailed { reason },
                )
            }
        };
        if row.state != "running" {
            return match row.state == state.as_str() || row.state == "verified" {
                true => Ok(()),
                false => Err(StoreError::Conflict(format!("the deployment is {} already", row.state))),
            };
        }
        let node = NodeId(row.node_id);
        if state == DeploymentState::Installed {
            let overlay = row
                .overlay
                .ok_or_else(|| StoreError::Conflict("the deployment has not asked for its configuration".to_owned()))?;
            let overlay = digest(&overlay)?;
            let (image, layer) = (digest(&row.image)?, digest(&row.agent_layer)?);
            let baseline = protocol::latest::Baseline::new(node, image, layer, overlay);
            set_baseline(&mut transaction, &baseline).await?;
        }
        end_deployment(&mut transaction, id, state, &reason, Some(to_json(outcome))).await?;
        step_node(&mut transaction, node, &observed).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Ends an attempt that will not report any more (the node booted again in the middle, or went silent).
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn deployment_attempt_lost(&self, id: DeploymentId, why: &str) -> Result<AttemptEnd, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let row = sqlx::query!(
            "SELECT node_id, state, attempt, attempts_max FROM deployments WHERE id = $1 FOR UPDATE",
            id.0
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("deployment", id))?;
        if row.state != "running" && row.state != "waiting" {
            return Ok(AttemptEnd::GiveUp);
        }
        let attempt = u32::try_from(row.attempt).unwrap_or(0);
        let attempts_max = u32::try_from(row.attempts_max).unwrap_or(0);
        let end = lifecycle::attempt_failed(attempt, attempts_max, false);
        match end {
            AttemptEnd::TryAgain => {
                let reason = format!("attempt {attempt} of {attempts_max}: {why}; trying again");
                sqlx::query!(
                    "UPDATE deployments SET state = 'waiting', reason = $2, progress = NULL WHERE id = $1",
                    id.0,
                    reason
                )
                .execute(&mut *transaction)
                .await?;
            }
            AttemptEnd::GiveUp => {
                let reason = format!("attempt {attempt} of {attempts_max}: {why}");
                end_deployment(&mut transaction, id, DeploymentState::Failed, &reason, None).await?;
                let observed = Observed::DeploymentFailed { reason };
                step_node(&mut transaction, NodeId(row.node_id), &observed).await?;
            }
        }
        transaction.commit().await?;
        Ok(end)
    }

    /// Stops a deployment for a reason of the server's (a misused token, a person).
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_stop(&self, node: NodeId, observed: &Observed, reason: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let open = sqlx::query_scalar!(
            "SELECT id FROM deployments WHERE node_id = $1 AND state IN ('waiting', 'running') FOR UPDATE",
            node.0
        )
        .fetch_optional(&mut *transaction)
        .await?;
        if let Some(id) = open {
            // Whoever runs this deployment may have enrolled an agent already; the installed system's own stays.
            sqlx::query!(
                "UPDATE certificates c SET revoked_at = now() FROM deployments d
                 WHERE d.id = $1 AND c.node_id = d.node_id AND c.purpose = 'agent' AND c.revoked_at IS NULL
                   AND c.issued_at >= d.started_at",
                id
            )
            .execute(&mut *transaction)
            .await?;
            end_deployment(
                &mut transaction,
                DeploymentId(id),
                DeploymentState::Failed,
                reason,
                None,
            )
            .await?;
        }
        sqlx::query!(
            "UPDATE certificates SET revoked_at = now() WHERE node_id = $1 AND purpose = 'ramdisk' AND revoked_at IS NULL",
            node.0
        )
        .execute(&mut *transaction)
        .await?;
        step_node(&mut transaction, node, observed).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Running deployments whose deployer has said nothing for this long.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_list_silent(&self, silent_secs: i64) -> Result<Vec<(DeploymentId, NodeId)>, StoreError> {
        let rows = sqlx::query!(
            "SELECT id, node_id FROM deployments
             WHERE state = 'running' AND progress_at < now() - make_interval(secs => $1) LIMIT 1000",
            silent_secs as f64
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| (DeploymentId(row.id), NodeId(row.node_id)))
            .collect())
    }

    /// Marks the newest installed deployment of a node as verified by its first full scan, with the node's step.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_verify(
        &self,
        node: NodeId,
        differences: u64,
        not_looked_at: u64,
    ) -> Result<bool, StoreError> {
        let observed = Observed::FullScan {
            differences,
            not_looked_at,
        };
        let mut transaction = self.pool.begin().await?;
        let Step::Transition {
            next: NodeState::Deployed,
            reason,
        } = step_node(&mut transaction, node, &observed).await?.step
        else {
            return Ok(false);
        };
        sqlx::query!(
            "UPDATE deployments SET state = 'verified', reason = $2 WHERE node_id = $1 AND state = 'installed'",
            node.0,
            reason
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }
}

async fn end_deployment(
    connection: &mut PgConnection,
    id: DeploymentId,
    state: DeploymentState,
    reason: &str,
    outcome: Option<serde_json::Value>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE deployments SET state = $2, reason = $3, outcome = $4, finished_at = now() WHERE id = $1",
        id.0,
        state.as_str(),
        reason,
        outcome
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A new baseline: what was known of the old system no longer says anything about this one.
async fn set_baseline(connection: &mut PgConnection, baseline: &protocol::latest::Baseline) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO baselines (node_id, image, agent_layer, overlay, digest) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (node_id) DO UPDATE SET image = excluded.image, agent_layer = excluded.agent_layer,
             overlay = excluded.overlay, digest = excluded.digest, since = now()",
        baseline.node_id.0,
        baseline.image.as_bytes().as_slice(),
        baseline.agent_layer.as_bytes().as_slice(),
        baseline.overlay.as_bytes().as_slice(),
        baseline.digest.as_bytes().as_slice()
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!("DELETE FROM findings WHERE node_id = $1", baseline.node_id.0)
        .execute(&mut *connection)
        .await?;
    sqlx::query!("DELETE FROM reports WHERE node_id = $1", baseline.node_id.0)
        .execute(&mut *connection)
        .await?;
    sqlx::query!("DELETE FROM agents WHERE node_id = $1", baseline.node_id.0)
        .execute(&mut *connection)
        .await?;
    // Only the agent that this deployment enrolled speaks for the node from now on.
    sqlx::query!(
        "UPDATE certificates SET revoked_at = now()
         WHERE node_id = $1 AND revoked_at IS NULL AND purpose = 'agent' AND fingerprint <>
             (SELECT fingerprint FROM certificates WHERE node_id = $1 AND purpose = 'agent'
              ORDER BY issued_at DESC LIMIT 1)",
        baseline.node_id.0
    )
    .execute(connection)
    .await?;
    Ok(())
}
