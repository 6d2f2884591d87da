//! What the agent knows of its own process.

use std::time::{SystemTime, UNIX_EPOCH};

/// Leaves the processor to everybody else. The unit file adds the idle classes for CPU and disk.
pub(super) fn lower_priority() {
    if let Err(error) = rustix::process::nice(19) {
        tracing::warn!(%error, "the priority could not be lowered");
    }
}

/// Milliseconds since 1970 by this node's clock; 0 before that.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Highest resident memory of this process, in bytes; 0 where the kernel does not tell.
pub(super) fn rss_max_bytes() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| parse_rss_max_bytes(&status))
}

/// `VmHWM` of `/proc/<pid>/status` (proc_pid_status(5)).
fn parse_rss_max_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_words() {
        assert_eq!(
            parse_rss_max_bytes("Name:\tx\nVmHWM:\t    6448 kB\nVmRSS:\t 1 kB\n"),
            6448 * 1024
        );
        assert_eq!(parse_rss_max_bytes("Name:\tx\n"), 0);
        assert!(rss_max_bytes() > 0);
    }
}
