//! The only SQL. Functions are `noun_verb`; queries are checked at compile time.
//!
//! A transaction holds writes and the row locks they need, and nothing else is awaited inside it. PostgreSQL is the only
//! state beside blobs: nothing here is cached.

mod adopt;
mod audit;
mod baselines;
mod boot_orders;
mod boot_packets;
mod builds;
mod burn_ins;
mod certificates;
mod channels;
pub mod cluster;
mod contents;
mod deployment_disks;
mod deployments;
mod dhcp_servers;
mod discovery;
mod error;
mod events;
mod findings;
mod images;
mod inventories;
mod jobs;
mod leases;
mod nodes;
mod notices;
mod placement;
mod rack_plan;
mod reports;
mod reviews;
mod rules;
mod runs;
mod tokens;
mod users;

pub use audit::AuditEvent;
pub use boot_orders::{BootOrderRecord, NewBootOrder, RestartRecord};
pub use boot_packets::{BootPacket, PACKETS_MAX};
pub use builds::{BuildCount, BuildEnd, BuildProgress, BuildRecord, BuildState};
pub use burn_ins::{BurnInRecord, NewBurnIn};
pub use certificates::CertificateRecord;
pub use channels::{ChannelMove, ChannelNode, ChannelRecord, GroupImage};
pub use deployments::{DeploymentRecord, NewDeployment};
pub use dhcp_servers::OtherDhcpServer;
pub use discovery::{DiscoveryWindow, RelaySeen, Sighting, WindowPlace};
pub use error::StoreError;
pub use events::{BootEvent, NewEvent};
pub use findings::{FindingEvent, FindingGroup, FindingOnNode, FindingVariant};
pub use images::{ImageRecord, ImageUse, ImageUseKind, ImageUser, NewImage};
pub use inventories::InventoryTaken;
pub use jobs::{JobFilter, JobRecord};
pub use leases::Lease;
pub use nodes::{AgentRecord, NodeChange, NodeHold, NodeRecord, StepTaken};
pub use notices::{Notice, NoticeListener};
pub use rack_plan::PlanImport;
pub use reports::{BootSeen, HeartbeatStored, ReportRecord, ReportStored};
pub use reviews::{NewReview, ReviewKind, ReviewRecord, ReviewScope};
pub use rules::{PlacedByRule, RulesRecord};
pub use runs::{HeldFinding, NewRun, ReleaseRecord, RunRecord};
pub use tokens::BootToken;
pub use users::{SessionUser, UserRecord};

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

/// Connections a server keeps at most.
const CONNECTIONS_MAX: u32 = 16;

/// The migrations, forward only.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// All access to PostgreSQL. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: PgPool,
}

impl Store {
    /// Connects and brings the schema up to date.
    ///
    /// # Errors
    /// [`StoreError`] when the database does not answer, or a migration fails.
    pub async fn connect(options: PgConnectOptions) -> Result<Self, StoreError> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(std::time::Duration::from_secs(10))
            .connect_with(options)
            .await?;
        MIGRATIONS.run(&pool).await?;
        Ok(Self { pool })
    }

    /// A store over a pool whose schema is up to date already.
    #[must_use]
    pub const fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// [`StoreError`] when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query_scalar!("SELECT 1 AS one").fetch_one(&self.pool).await?;
        Ok(())
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
