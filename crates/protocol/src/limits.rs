//! Bounds both sides keep to. A body over its bound is answered 413.

/// Largest report, in bytes of JSON.
pub const REPORT_BYTES_MAX: usize = 16 << 20;
/// Largest of all other bodies from a node, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Most differences in one report; beyond it the agent says how many it left out, which is never "no drift".
pub const DIFFERENCES_MAX: usize = 20_000;
/// Most places named that could not be looked at.
pub const NOT_LOOKED_AT_MAX: usize = 2_000;
/// Longest text of a reason or detail, in bytes.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// Longest wait for a task in one request, in seconds.
pub const TASK_WAIT_SECS_MAX: u64 = 25;
/// Shortest and longest pause between heartbeats that an agent obeys, in seconds.
pub const HEARTBEAT_SECS: std::ops::RangeInclusive<u64> = 1..=3_600;
/// Attempts of a deployment before the node is left alone.
pub const DEPLOYMENT_ATTEMPTS_MAX: u32 = 3;
/// Most root filesystems that a deployer is told of.
pub const KNOWN_ROOTS_MAX: usize = 16;
/// Most paths that a deployment keeps.
pub const KEEP_PATHS_MAX: usize = 32;
/// Largest text file whose content is kept for a diff, in bytes.
pub const TEXT_FILE_BYTES_MAX: usize = 64 << 10;
/// Most contents a server asks for in one answer to a report.
pub const CONTENTS_WANTED_MAX: usize = 64;
/// Longest that a burn-in may take, all of its tests together, in seconds: three days.
pub const BURN_IN_SECS_MAX: u32 = 3 * 86_400;
/// Bytes of one request that measures throughput.
pub const THROUGHPUT_BYTES_MAX: u64 = 1 << 30;
/// Most figures, and most ports, in one result of a test.
pub const FIGURES_MAX: usize = 1_024;
/// Most steps in one job.
pub const JOB_STEPS_MAX: usize = 2_000;
/// How long a job is good for after it was signed, in seconds.
pub const JOB_SECS_MAX: u64 = 15 * 60;
