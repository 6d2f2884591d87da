//! Waits.

use std::cell::Cell;
use std::time::{Duration, Instant};

use testkit::{wait_for, wait_for_some};

#[tokio::test]
async fn a_condition_that_becomes_true_ends_the_wait() {
    let looks = Cell::new(0);
    let look = async || {
        looks.set(looks.get() + 1);
        (looks.get() == 3).then(|| looks.get())
    };
    assert_eq!(
        wait_for_some(Duration::from_secs(10), "the third look", look)
            .await
            .unwrap(),
        3
    );
}

#[tokio::test]
async fn the_error_says_what_was_awaited() {
    let error = wait_for(Duration::from_millis(30), "node rack1-07 to report", async || false)
        .await
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("node rack1-07 to report") && message.contains("30ms"),
        "{message}"
    );
    assert!(error.looks > 1, "{message}");
}

#[tokio::test]
async fn a_look_that_hangs_ends_at_the_limit() {
    let started = Instant::now();
    let hang = async || std::future::pending::<bool>().await;
    let error = wait_for(Duration::from_millis(50), "an answer", hang)
        .await
        .unwrap_err();
    assert_eq!(error.looks, 1);
    assert!(started.elapsed() < Duration::from_secs(5));
}
