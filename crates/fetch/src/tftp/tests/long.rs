//! Blocks longer than the MTU, by a card that puts datagrams together.

use super::*;

fn joining(nic: &mut NicConfig) {
    nic.joins_datagrams = true;
}

/// The sizes of the transfer that brought the file.
fn granted(outcome: &Outcome, script: &TftpServerScript) -> (u16, u16) {
    assert_eq!(outcome.bytes(), script.file);
    let granted = outcome.result.as_ref().unwrap().granted;
    (granted.block, granted.window)
}

#[test]
fn a_card_that_joins_datagrams_gets_the_largest_blocks() {
    for v6 in [false, true] {
        for slides in [false, true] {
            let script = TftpServerScript {
                v6,
                ..TftpServerScript {
                    slides,
                    ..sliding()
                }
            };
            let outcome = fetch_with(&script, LinkConfig::default(), 1, joining);
            assert_eq!(granted(&outcome, &script), (65_464, 8));
            assert_eq!(outcome.log.borrow().requests, 1);
            assert_eq!(outcome.result.as_ref().unwrap().retransmissions, 0);
        }
    }
}

#[test]
fn blocks_of_a_given_size_are_no_longer() {
    let script = TftpServerScript {
        sizes: Sizes {
            block: Some(1000),
            window: Window::Own,
        },
        ..TftpServerScript::default()
    };
    let outcome = fetch_with(&script, LinkConfig::default(), 1, joining);
    assert_eq!(granted(&outcome, &script), (1000, 256));
}

/// What the receive buffers hold counts in bytes, for all that run at the same time.
#[test]
fn windows_of_long_blocks_fit_the_receive_buffers() {
    let script = TftpServerScript::default();
    let window = |receive_frames| {
        let outcome = fetch_with(&script, LinkConfig::default(), 1, |nic| {
            joining(nic);
            nic.receive_frames = receive_frames;
        });
        granted(&outcome, &script)
    };
    // Each frame has 1514 bytes.
    assert_eq!(window(44), (65_464, 1));
    assert_eq!(window(3 * 44), (65_464, 3));
}

#[test]
fn a_server_with_short_blocks_is_asked_for_a_larger_window() {
    let script = TftpServerScript {
        block_limit: 1400,
        ..TftpServerScript::default()
    };
    let outcome = fetch_with(&script, LinkConfig::default(), 1, joining);
    assert_eq!(granted(&outcome, &script), (1400, 256));
    let log = outcome.log.borrow();
    assert_eq!(log.requests, 2);
    assert_eq!(log.data, script.file.len() as u64 / 1400 + 1);
    assert_eq!(log.errors, ["short blocks: asking for a larger window"]);
}

/// Nothing would be gained by a second request.
#[test]
fn a_server_with_short_blocks_and_no_need_for_a_larger_window_is_not_asked_again() {
    let few = TftpServerScript {
        block_limit: 1400,
        file: vec![5; 8 * 1400],
        ..TftpServerScript::default()
    };
    let single = TftpServerScript {
        block_limit: 1400,
        windows: false,
        ..TftpServerScript::default()
    };
    for (script, window) in [(few, 8), (single, 1)] {
        let outcome = fetch_with(&script, LinkConfig::default(), 1, joining);
        assert_eq!(granted(&outcome, &script), (1400, window));
        assert_eq!(outcome.log.borrow().requests, 1);
    }
}

#[test]
fn where_fragments_are_lost_blocks_are_short() {
    let script = sliding();
    let outcome = fetch_with(&script, lossy(0.01), 3, joining);
    assert_eq!(granted(&outcome, &script), (1468, 256));
    // They are no reason to trust the receive buffers less.
    assert_eq!(outcome.log.borrow().requests, 2);
}

/// As behind a firewall that lets none through.
#[test]
fn where_no_fragment_arrives_blocks_are_short() {
    let script = TftpServerScript::default();
    let outcome = fetch_with(&script, LinkConfig::default(), 3, |nic| {
        joining(nic);
        nic.receive_frames = 40;
    });
    assert_eq!(granted(&outcome, &script), (1468, 40));
    assert_eq!(outcome.log.borrow().requests, 2);
    assert!(outcome.micros < 5_000_000, "{} us", outcome.micros);
}

/// A block takes half a second, and the next is waited for three times as long as the first took.
#[test]
fn a_slow_line_brings_the_file_all_the_same() {
    let script = TftpServerScript {
        file: vec![7; 400_000],
        ..TftpServerScript::default()
    };
    let slow = LinkConfig {
        bits_per_second: 1_000_000,
        ..LinkConfig::default()
    };
    let outcome = fetch_with(&script, slow, 3, joining);
    assert_eq!(granted(&outcome, &script), (65_464, 8));
    assert_eq!(outcome.log.borrow().requests, 1);
    // The file alone takes 3.2 s.
    assert!(outcome.micros < 4_000_000, "{} us", outcome.micros);
}
