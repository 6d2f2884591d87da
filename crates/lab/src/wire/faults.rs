//! What a bad cable does to a line of frames: values in, values out.
//!
//! Each frame draws one lot: it is lost, doubled, held back until the next one has passed, or passed on as it is.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

/// Of 100 frames, how many are lost, how many doubled and how many swapped with the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rates {
    /// Frames lost.
    pub dropped_percent: u32,
    /// Frames that arrive twice.
    pub doubled_percent: u32,
    /// Frames that arrive after the one behind them.
    pub swapped_percent: u32,
}

/// What became of the frames of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Fates {
    /// Frames that came in.
    pub frames: u64,
    /// Of those: lost.
    pub dropped: u64,
    /// Of those: sent twice.
    pub doubled: u64,
    /// Of those: overtaken by another.
    pub swapped: u64,
}

/// One direction of a cable.
#[derive(Debug)]
pub struct Line {
    rates: Rates,
    random: SmallRng,
    held: Option<Vec<u8>>,
    fates: Fates,
}

impl Line {
    /// A line whose lots follow from `seed`.
    pub fn new(rates: Rates, seed: u64) -> Self {
        Self {
            rates,
            random: SmallRng::seed_from_u64(seed),
            held: None,
            fates: Fates::default(),
        }
    }

    /// What comes out when this frame goes in.
    pub fn pass(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        self.fates.frames += 1;
        let Rates {
            dropped_percent: dropped,
            doubled_percent: doubled,
            swapped_percent: swapped,
        } = self.rates;
        let lot = self.random.random_range(0..100);
        let mut out = Vec::new();
        if lot < dropped {
            self.fates.dropped += 1;
        } else if lot < dropped + doubled {
            self.fates.doubled += 1;
            out.extend([frame.clone(), frame]);
        } else if lot < dropped + doubled + swapped && self.held.is_none() {
            self.held = Some(frame);
            return out;
        } else {
            out.push(frame);
        }
        if !out.is_empty() && self.held.is_some() {
            self.fates.swapped += 1;
            out.extend(self.held.take());
        }
        out
    }

    /// A frame that waits for another to overtake it, when none has come for a while.
    pub fn release(&mut self) -> Option<Vec<u8>> {
        self.held.take()
    }

    /// Counts a frame that passed the line and was lost behind it.
    pub fn lose(&mut self) {
        self.fates.dropped += 1;
    }

    /// What has become of all frames so far.
    pub fn fates(&self) -> Fates {
        self.fates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_loses_doubles_and_swaps_as_much_as_it_should_and_no_more() {
        let rates = Rates {
            dropped_percent: 5,
            doubled_percent: 5,
            swapped_percent: 5,
        };
        let mut line = Line::new(rates, 7);
        let mut out: Vec<u32> = Vec::new();
        for number in 0..10_000_u32 {
            let came = line.pass(number.to_be_bytes().to_vec());
            out.extend(
                came.iter()
                    .map(|frame| u32::from_be_bytes(frame[..].try_into().unwrap())),
            );
        }
        out.extend(
            line.release()
                .map(|frame| u32::from_be_bytes(frame[..].try_into().unwrap())),
        );
        let fates = line.fates();
        for (what, count) in [
            ("dropped", fates.dropped),
            ("doubled", fates.doubled),
            ("swapped", fates.swapped),
        ] {
            assert!((350..650).contains(&count), "{what}: {count} of 10000");
        }
        assert_eq!(out.len() as u64, 10_000 - fates.dropped + fates.doubled);
        let backwards = out.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        assert_eq!(backwards, fates.swapped, "a frame is overtaken once, by its neighbour");
    }

    #[test]
    fn a_good_line_changes_nothing_and_a_seed_gives_the_same_lots_again() {
        let good = Rates {
            dropped_percent: 0,
            doubled_percent: 0,
            swapped_percent: 0,
        };
        let mut line = Line::new(good, 1);
        assert_eq!(line.pass(vec![1, 2]), [[1, 2]]);
        let bad = Rates {
            dropped_percent: 50,
            ..good
        };
        let (mut one, mut other) = (Line::new(bad, 3), Line::new(bad, 3));
        for byte in 0..100 {
            assert_eq!(one.pass(vec![byte]), other.pass(vec![byte]));
        }
    }
}
