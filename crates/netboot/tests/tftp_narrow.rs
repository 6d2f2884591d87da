//! A path that takes no whole blocks, in a network namespace of its own. Needs root; without it no such path can be made.

use std::process::Command;
use std::time::Duration;

use crate::tftp_client::*;

const INSIDE: &str = "PLUMBLINE_TEST_IN_NAMESPACE";

/// Whether this process has a loopback device of `mtu`. If not, the test of this name runs once more in a namespace that
/// has, as far as there is root.
fn has_narrow_loopback(test: &str, mtu: u32) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if rustix::process::geteuid().is_root() {
        let script = format!("ip link set lo mtu {mtu} up && exec \"$@\"");
        let output = Command::new("unshare")
            .args(["--net", "sh", "-c", &script, "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &format!("tftp_narrow::{test}"), "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    false
}

/// The kernel cuts no window into packets that would have to be sent in fragments; they are sent one by one.
#[test]
fn a_window_goes_where_the_kernel_will_not_cut_it() {
    if !has_narrow_loopback("a_window_goes_where_the_kernel_will_not_cut_it", 1400) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        // A block that was lost would be waited for.
        let running = start(&[("a", content(100_000))], |config| {
            config.retransmit_first = Duration::from_secs(60);
        });
        let options = [("blksize", "1468"), ("windowsize", "16")];
        let (read, packets) = read(running.address, "a", &options, Trouble::default()).await.unwrap();
        assert!(read == content(100_000));
        assert_eq!((packets, running.counters.get("send_failed")), (69, 0));
        running.stop().await;
    });
}
