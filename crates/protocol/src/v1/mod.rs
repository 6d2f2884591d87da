//! Version 1 of the wire types.

mod agent;
mod burn_in;
mod deploy;
mod inventory;
mod job;
mod ramdisk;
mod trust;

pub use agent::{
    Baseline, DriftReport, Heartbeat, HeartbeatReply, NotLookedAt, ReportKind, ReportReply, RestartAnswer,
    RestartOrder, RootSummary, ScanSummary,
};
pub use burn_in::{
    BurnIn, BurnInReply, Figure, LinkLayer, Port, TestKind, TestOrder, TestOutcome, TestProgress, TestResult,
};
pub use deploy::{
    Authority, DeployMode, DeploySpec, DiskRule, DiskWork, Layout, Outcome, Progress, RenderReply, RenderRequest,
    RenderedFile, Stage,
};
pub use inventory::{Cpu, Disk, Dmi, Inventory, LldpListening, Neighbour, Nic, PciDevice};
pub use job::{Job, JobOutcome, RepairStep, SecretDigestKey, SignedJob, StepOutcome, StepResult, Verb};
pub use ramdisk::{Claim, ClaimReply, Clock, RescueUp, Task};
pub use trust::{ImageTrust, RevokedImage, RevokedKey};

/// Paths on the agents' listener and the boot listener; the server routes and the agent calls by these names.
pub mod paths {
    /// GET over plain HTTP on the boot listener: [`super::Clock`].
    pub const CLOCK: &str = "/boot/v1/clock";
    /// GET over plain HTTP: `{IMAGES}/{digest}/manifest`, `…/signature`, `…/packs`; `…/manifest.zst` and `…/packs.zst` are
    /// the same in one zstd frame, which images from before they were made do not have.
    pub const IMAGES: &str = "/boot/v1/images";
    /// GET over plain HTTP, ranges allowed: `{PACKS}/{digest}`.
    pub const PACKS: &str = "/boot/v1/packs";
    /// POST [`super::Claim`] without a client certificate; answers [`super::ClaimReply`].
    pub const CLAIM: &str = "/agent/v1/claim";
    /// POST [`super::Inventory`].
    pub const INVENTORY: &str = "/agent/v1/inventory";
    /// GET `?wait_secs=N`: [`super::Task`].
    pub const TASK: &str = "/agent/v1/task";
    /// POST `{DEPLOYMENTS}/{id}/progress`, `/render`, `/outcome`.
    pub const DEPLOYMENTS: &str = "/agent/v1/deployments";
    /// POST [`super::RescueUp`].
    pub const RESCUE: &str = "/agent/v1/rescue";
    /// POST `{BURN_INS}/{id}/progress`: [`super::TestProgress`]; `…/results`: [`super::TestResult`]; both answer
    /// [`super::BurnInReply`].
    pub const BURN_INS: &str = "/agent/v1/burn-ins";
    /// On the boot listener, plain HTTP. GET `?bytes=N` sends so many zeros, POST takes a body and throws it away; both
    /// at most [`crate::limits::THROUGHPUT_BYTES_MAX`].
    pub const THROUGHPUT: &str = "/boot/v1/throughput";
    /// GET: [`super::Baseline`].
    pub const BASELINE: &str = "/agent/v1/baseline";
    /// GET `{MANIFESTS}/{digest}` and `{MANIFESTS}/{digest}/signature`: canonical bytes.
    pub const MANIFESTS: &str = "/agent/v1/manifests";
    /// GET: [`super::ImageTrust`] for the node's own image.
    pub const TRUST: &str = "/agent/v1/trust";
    /// POST [`super::Heartbeat`]; answers [`super::HeartbeatReply`].
    pub const HEARTBEAT: &str = "/agent/v1/heartbeat";
    /// POST [`super::DriftReport`]; answers [`super::ReportReply`].
    pub const REPORTS: &str = "/agent/v1/reports";
    /// GET: [`super::SignedJob`], or 204 when there is none. POST `{JOBS}/{id}/outcome`: [`super::JobOutcome`].
    pub const JOBS: &str = "/agent/v1/jobs";
    /// GET `{CONTENTS}/{digest}`: content of a file in the node's own baseline. PUT: content of a text file that
    /// differs, after [`super::ReportReply::Accepted`] asked for it; at most [`crate::limits::TEXT_FILE_BYTES_MAX`].
    pub const CONTENTS: &str = "/agent/v1/contents";
    /// GET: [`super::SecretDigestKey`].
    pub const SECRET_DIGEST_KEY: &str = "/agent/v1/secret-digest-key";
}
