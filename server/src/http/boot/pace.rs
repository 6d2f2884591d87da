//! How fast one machine is sent what its firmware and loader read.
//!
//! Some UEFI network drivers lose segments that come too fast, and then hang. Where `boot.loader_bytes_per_sec_max` is
//! set, all downloads of one machine together keep to it; what an operating system reads has no such trouble and is not
//! held back.
//!
//! Invariant: the table has a bound. A machine without a place in it is held back by each download alone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::image::StoreError;

/// Machines that read at a time.
const MACHINES_MAX: usize = 4096;
/// Pieces that are sent at a pace, in bytes: the pause between two stays short.
pub(super) const PIECE_BYTES: usize = 16 << 10;

/// The rate, and when each machine may be sent the next piece.
#[derive(Debug)]
pub struct LoaderPace {
    bytes_per_sec_max: Option<u32>,
    free_at: Mutex<HashMap<IpAddr, Instant>>,
}

impl LoaderPace {
    /// No rate: as fast as machines take it.
    #[must_use]
    pub fn new(bytes_per_sec_max: Option<u32>) -> Self {
        Self {
            bytes_per_sec_max,
            free_at: Mutex::default(),
        }
    }

    /// Books a piece for a machine at `now`: how long it has to wait before it is sent.
    fn book(&self, machine: IpAddr, bytes: usize, now: Instant) -> Duration {
        let Some(rate) = self.bytes_per_sec_max else {
            return Duration::ZERO;
        };
        let nanos = (bytes as u128) * 1_000_000_000 / u128::from(rate.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        if free_at.len() >= MACHINES_MAX && !free_at.contains_key(&machine) {
            free_at.retain(|_, at| *at > now);
            if free_at.len() >= MACHINES_MAX {
                return takes;
            }
        }
        let at = free_at.entry(machine).or_insert(now);
        let start = (*at).max(now);
        *at = start.checked_add(takes).unwrap_or(start);
        start - now
    }

    /// Whether there is a rate.
    pub(super) const fn is_set(&self) -> bool {
        self.bytes_per_sec_max.is_some()
    }

    /// The pieces at this machine's pace.
    pub(super) fn apply(
        self: &Arc<Self>,
        machine: IpAddr,
        pieces: BoxStream<'static, Result<Bytes, StoreError>>,
    ) -> BoxStream<'static, Result<Bytes, StoreError>> {
        let pace = Arc::clone(self);
        let paced = pieces.then(move |piece| {
            let bytes = piece.as_ref().map_or(0, Bytes::len);
            let wait = pace.book(machine, bytes, Instant::now());
            async move {
                tokio::time::sleep(wait).await;
                piece
            }
        });
        paced.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 50));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 51));

    /// ipxe#1023: all that one machine reads keeps to the rate, however many downloads it is; others are not held back.
    #[test]
    fn ipxe_1023_one_machine_is_sent_no_more_than_its_rate() {
        let (pace, now) = (LoaderPace::new(Some(1_000_000)), Instant::now());
        let waits: Vec<u128> = (0..5).map(|_| pace.book(ONE, 100_000, now).as_millis()).collect();
        assert_eq!(waits, [0, 100, 200, 300, 400]);
        assert_eq!(pace.book(TWO, 100_000, now), Duration::ZERO);
        // What was not used is not saved up.
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.book(ONE, 100_000, later), Duration::ZERO);
        assert_eq!(pace.book(ONE, 100_000, later).as_millis(), 100);
        assert_eq!(LoaderPace::new(None).book(ONE, usize::MAX, now), Duration::ZERO);
    }

    #[test]
    fn ipxe_1023_the_table_of_paces_is_bounded() {
        let (pace, now) = (LoaderPace::new(Some(1_000)), Instant::now());
        for index in 0..10_000_u32 {
            pace.book(IpAddr::V4(index.into()), 1_000, now);
        }
        assert_eq!(pace.free_at.lock().unwrap().len(), MACHINES_MAX);
        assert_eq!(pace.book(ONE, 1_000, now).as_secs(), 1, "held back all the same");
        pace.book(ONE, 1_000, now + Duration::from_secs(2));
        assert_eq!(pace.free_at.lock().unwrap().len(), 1);
    }
}
