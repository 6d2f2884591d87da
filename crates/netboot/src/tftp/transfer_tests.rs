//! The cases from the field, one by one, without a socket.

use super::*;
use crate::tftp::options::Limits;
use crate::tftp::packet::WireOption;

fn transfer(file_bytes: u64, asked: &[(&str, &str)]) -> Transfer {
    let asked: Vec<WireOption> = asked
        .iter()
        .map(|(name, value)| WireOption {
            name: (*name).into(),
            value: (*value).into(),
        })
        .collect();
    let agreed = Agreed::negotiate(&asked, file_bytes, &Limits::default());
    Transfer::new(file_bytes, &agreed, Rollover::Zero, 3)
}

fn blocks(first: u64, count: u64) -> Action {
    Action::SendBlocks { first, count }
}

#[test]
fn lock_step_sends_a_block_for_each_acknowledgement() {
    let mut transfer = transfer(1025, &[]);
    assert_eq!(transfer.step(Event::Started), blocks(1, 1));
    assert_eq!(transfer.step(Event::Acked(1)), blocks(2, 1));
    assert_eq!(transfer.step(Event::Acked(2)), blocks(3, 1));
    assert_eq!(transfer.block_range(3), 1024..1025);
    assert_eq!(transfer.step(Event::Acked(3)), Action::Finish(Outcome::Complete));
    assert_eq!(transfer.acked_bytes(), 1025);
}

#[test]
fn a_size_that_divides_evenly_ends_with_an_empty_block() {
    let mut transfer = transfer(1024, &[]);
    assert_eq!(transfer.last_block(), 3);
    assert_eq!(transfer.block_range(3), 1024..1024);
    transfer.step(Event::Started);
    transfer.step(Event::Acked(1));
    assert_eq!(transfer.step(Event::Acked(2)), blocks(3, 1));
    assert_eq!(transfer.step(Event::Acked(3)), Action::Finish(Outcome::Complete));
    let empty = self::transfer(0, &[]);
    assert_eq!((empty.last_block(), empty.block_range(1)), (1, 0..0));
}

#[test]
fn a_duplicate_acknowledgement_sends_nothing() {
    let mut transfer = transfer(10_000, &[]);
    transfer.step(Event::Started);
    assert_eq!(transfer.step(Event::Acked(1)), blocks(2, 1));
    assert_eq!(transfer.step(Event::Acked(1)), Action::Nothing);
    assert_eq!(transfer.step(Event::Acked(2)), blocks(3, 1));
    assert_eq!(transfer.step(Event::Acked(1)), Action::Nothing, "older than the last");
    assert_eq!(transfer.step(Event::Acked(9)), Action::Nothing, "never sent");
    assert_eq!(
        transfer.step(Event::TimedOut),
        blocks(3, 1),
        "the timer is what sends again"
    );
}

#[test]
fn a_window_acknowledged_in_part_rewinds_to_the_gap() {
    let mut transfer = transfer(100 * 512, &[("windowsize", "16")]);
    assert_eq!(transfer.step(Event::Started), Action::SendOptions);
    assert_eq!(transfer.step(Event::Acked(0)), blocks(1, 16));
    assert_eq!(transfer.step(Event::Acked(3)), blocks(4, 16));
    assert_eq!(transfer.step(Event::Acked(19)), blocks(20, 16));
    assert_eq!(
        transfer.step(Event::Acked(19)),
        blocks(20, 16),
        "the first block of the window was lost"
    );
    assert_eq!(transfer.step(Event::Acked(19)), Action::Nothing, "but not for ever");
    assert_eq!(transfer.step(Event::Acked(99)), Action::Nothing, "not sent yet");
}

/// rs-tftpd#49, PyPXE#98: doubled acknowledgements, with a window.
#[test]
fn rs_tftpd_49_a_stream_of_doubled_acknowledgements_does_not_double_the_data() {
    let mut transfer = transfer(1600 * 512 - 1, &[("windowsize", "16")]);
    transfer.step(Event::Started);
    let mut sent = 0;
    let mut acked = 0;
    loop {
        let mut finished = false;
        for _ in 0..2 {
            match transfer.step(Event::Acked(acked)) {
                Action::SendBlocks { count, .. } => sent += count,
                Action::Finish(outcome) => finished = outcome == Outcome::Complete,
                _ => {}
            }
            if finished {
                break;
            }
        }
        if finished {
            break;
        }
        acked += 16;
    }
    assert!(sent <= 1600 + 16, "{sent} blocks sent for a file of 1600");
}

#[test]
fn the_last_window_is_as_short_as_the_file() {
    let mut transfer = transfer(5 * 512, &[("windowsize", "4")]);
    transfer.step(Event::Started);
    assert_eq!(transfer.step(Event::Acked(0)), blocks(1, 4));
    assert_eq!(transfer.step(Event::Acked(4)), blocks(5, 2));
    assert_eq!(transfer.step(Event::Acked(6)), Action::Finish(Outcome::Complete));
}

/// uftpd#45: 65,537 blocks, on the state alone.
#[test]
fn uftpd_45_block_numbers_go_on_after_65535() {
    // 65,537 blocks of 8 bytes, the last of them with one.
    let mut transfer = transfer(524_289, &[("blksize", "8")]);
    transfer.step(Event::Started);
    assert_eq!(transfer.step(Event::Acked(0)), blocks(1, 1));
    for block in 1..=65_536_u64 {
        assert_eq!(
            transfer.step(Event::Acked((block % 65536) as u16)),
            blocks(block + 1, 1)
        );
    }
    assert_eq!(transfer.block_range(65_537), 524_288..524_289);
    assert_eq!(transfer.step(Event::Acked(1)), Action::Finish(Outcome::Complete));
}

/// uftpd#45: the few readers that go on at 1.
#[test]
fn uftpd_45_block_numbers_can_go_on_at_one() {
    let mut transfer = transfer(40 << 20, &[]);
    transfer.rollover = Rollover::One;
    let numbers: Vec<u16> = [0, 1, 65_535, 65_536, 131_070, 131_071]
        .map(|block| transfer.wire_number(block))
        .to_vec();
    assert_eq!(numbers, [0, 1, 65_535, 1, 65_535, 1]);
}

/// uftpd#45: no offset has 32 bits.
#[test]
fn uftpd_45_offsets_pass_four_gibibytes() {
    let transfer = transfer(5 << 30, &[]);
    let block = (5_u64 << 30) / 512;
    assert_eq!(transfer.block_range(block), ((5 << 30) - 512)..(5 << 30));
}

#[test]
fn a_size_probe_is_normal_and_another_abort_is_not() {
    for code in [ErrorCode::OptionsRefused, ErrorCode::Undefined] {
        let mut probe = transfer(9000, &[("tsize", "0"), ("blksize", "1468")]);
        assert_eq!(probe.step(Event::Started), Action::SendOptions);
        assert_eq!(probe.step(Event::PeerError(code)), Action::Finish(Outcome::Probed));
        assert!(!Outcome::Probed.is_failure());
    }
    let mut midway = transfer(9000, &[("tsize", "0")]);
    midway.step(Event::Started);
    midway.step(Event::Acked(0));
    let outcome = Outcome::Aborted(ErrorCode::Undefined);
    assert_eq!(
        midway.step(Event::PeerError(ErrorCode::Undefined)),
        Action::Finish(outcome)
    );
    assert!(outcome.is_failure());
}

#[test]
fn a_repeated_request_gets_the_same_answer_until_something_was_acknowledged() {
    let mut transfer = transfer(9000, &[("blksize", "1024")]);
    assert_eq!(transfer.step(Event::Started), Action::SendOptions);
    assert_eq!(transfer.step(Event::RequestRepeated), Action::SendOptions);
    assert_eq!(transfer.step(Event::Acked(0)), blocks(1, 1));
    assert_eq!(transfer.step(Event::Acked(1)), blocks(2, 1));
    assert_eq!(transfer.step(Event::RequestRepeated), Action::Nothing);
}

#[test]
fn silence_ends_the_transfer_and_progress_forgives_it() {
    let mut transfer = transfer(9000, &[("tsize", "0")]);
    transfer.step(Event::Started);
    for _ in 0..3 {
        assert_eq!(transfer.step(Event::TimedOut), Action::SendOptions);
    }
    let mut patient = transfer.clone();
    assert_eq!(transfer.step(Event::TimedOut), Action::Finish(Outcome::Silent));
    patient.step(Event::Acked(0));
    assert_eq!(patient.timeouts(), 0);
    assert_eq!(patient.step(Event::TimedOut), blocks(1, 1));
}
