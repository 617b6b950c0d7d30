//! A peer that plays with its window or with the size of segments, and a caller that reads slowly.

use crate::bench::{Bench, DELAY, MAX_SND_WND, MSS, WINDOW};
use crate::{FULL, connection, until_closed, works};
use wireboot_tcp::{Duration, Error, Flags, State};

/// The window shrinks below what is in flight (3.8.6: a sender must bear it): no new text, nothing lost, and on when it opens.
#[test]
fn a_window_that_shrinks_is_borne() {
    for shrunk in [0, 1, 700, 2000] {
        let mut bench = connection(0);
        bench.connection.queue(20_000);
        bench.transmit();
        let (una, nxt) = (bench.connection.snd_una(), bench.connection.snd_nxt());
        let end = una.wrapping_add(20_000);
        assert!(nxt.wrapping_sub(una) > 2000);
        bench.receive(Flags::ACK, bench.peer_nxt, una, 1, shrunk);
        bench.peer_nxt = bench.peer_nxt.wrapping_add(1);
        for _ in 0..20 {
            for sent in bench.transmit_within(DELAY) {
                let right = sent.seq.wrapping_add(sent.seg_len()).wrapping_sub(una);
                assert!(
                    right <= nxt.wrapping_sub(una),
                    "window {shrunk}: new text to {right}"
                );
            }
        }
        assert_eq!(bench.connection.state(), State::Established);
        let mut got = una;
        for _ in 0..200 {
            bench.receive(Flags::ACK, bench.peer_nxt, got, 0, MAX_SND_WND);
            for sent in bench.transmit_within(1000) {
                if sent.seq.wrapping_sub(got) as i32 <= 0
                    && (sent.seq.wrapping_add(sent.seg_len()).wrapping_sub(got) as i32) > 0
                {
                    got = sent.seq.wrapping_add(sent.seg_len());
                }
            }
        }
        assert_eq!(got, end, "window {shrunk}: all arrives");
    }
}

/// A peer that answers each probe with a zero window may keep the connection (MUST-37), for a day; the probes become rare.
#[test]
fn a_zero_window_for_a_day_is_probed_rarely() {
    let mut bench = connection(0);
    bench.receive(Flags::ACK, bench.peer_nxt, bench.connection.snd_una(), 0, 0);
    bench.connection.queue(5000);
    let una = bench.connection.snd_una();
    assert!(bench.transmit().is_empty());
    let mut probes = 0;
    let end = bench.now + Duration::from_secs(86_400);
    while bench.now < end {
        let at = bench.connection.poll_at().expect("a probe will be due");
        assert!(
            at <= bench.now + Duration::from_secs(130),
            "the next probe within two minutes"
        );
        bench.now = bench.now.max(at);
        let sent = bench.transmit();
        assert!(
            sent.iter().map(|sent| sent.len).sum::<usize>() <= 1,
            "{sent:?}"
        );
        probes += sent.len();
        if !sent.is_empty() {
            bench.receive(Flags::ACK, bench.peer_nxt, una, 0, 0);
        }
        assert_eq!(bench.connection.state(), State::Established);
    }
    assert!(
        (86_400 / 130..10_000).contains(&probes),
        "{probes} probes in a day"
    );
    bench.receive(Flags::ACK, bench.peer_nxt, una, 0, MAX_SND_WND);
    assert!(
        bench.transmit().iter().map(|sent| sent.len).sum::<usize>() > 3 * usize::from(MSS),
        "and on"
    );
}

/// The same without an answer to the probes ends.
#[test]
fn a_zero_window_and_silence_ends() {
    let mut bench = connection(0);
    bench.receive(Flags::ACK, bench.peer_nxt, bench.connection.snd_una(), 0, 0);
    bench.connection.queue(5000);
    let (seconds, _) = until_closed(&mut bench);
    assert!((20..=1000).contains(&seconds), "{seconds} s");
    assert_eq!(bench.connection.error(), Some(Error::TimedOut));
}

/// A window that opens octet by octet gets no tinygrams (3.8.6.2.1).
#[test]
fn a_silly_window_is_not_filled_with_small_segments() {
    let mut bench = connection(0);
    bench.receive(Flags::ACK, bench.peer_nxt, bench.connection.snd_una(), 0, 0);
    bench.connection.queue(20_000);
    bench.transmit();
    let una = bench.connection.snd_una();
    let mut small = 0;
    for open in 0..FULL - 1 {
        // With a shift of 3 the window moves by 8.
        bench.receive(Flags::ACK, bench.peer_nxt, una, 0, open);
        small += bench.transmit().iter().filter(|sent| sent.len > 0).count();
    }
    assert!(small <= 1, "{small} small segments");
    bench.receive(Flags::ACK, bench.peer_nxt, una, 0, MAX_SND_WND);
    let sent = bench.transmit();
    assert!(
        sent.iter()
            .filter(|sent| sent.len == usize::from(MSS))
            .count()
            >= 3,
        "{sent:?}"
    );
}

/// Nor does this end advertise a window that opens octet by octet (3.8.6.2.2): neither by itself nor in what it sends anyhow.
#[test]
fn a_reader_of_single_octets_opens_no_silly_window() {
    for scale in [false, true] {
        let mut bench = Bench::established(1, 2, scale, false);
        bench.take_unread(WINDOW);
        let mut edge = bench.right_edge;
        assert_eq!(edge, bench.connection.rcv_nxt());
        let mut opened = 0;
        for turn in 0..WINDOW {
            bench.free += 1;
            if turn % 3 == 0 {
                // Any answer would carry the window.
                bench.connection.queue(1);
            }
            for sent in bench.transmit() {
                let grown = sent.ack.wrapping_add(sent.wnd).wrapping_sub(edge);
                assert!(
                    grown == 0 || grown >= FULL.min(WINDOW / 2),
                    "scale {scale}: opened by {grown}"
                );
                edge = edge.wrapping_add(grown);
                opened += u32::from(grown > 0);
            }
            bench.pass(1);
            bench.acknowledge();
        }
        assert!(opened >= 1, "scale {scale}: the window opens");
    }
}

/// A peer that fills whatever window is advertised, before a reader of single octets, does not come to send tinygrams.
#[test]
fn a_greedy_peer_and_a_slow_reader_exchange_full_segments() {
    let mut bench = Bench::established(1, 2, false, false);
    bench.take_unread(WINDOW);
    let (mut segments, mut octets) = (0, 0);
    for _ in 0..20_000 {
        bench.free += 1;
        bench.transmit();
        let open = bench.right_edge.wrapping_sub(bench.connection.rcv_nxt());
        if open > 0 {
            let len = open.min(FULL);
            bench
                .receive_next(Flags::ACK, len as usize)
                .expect("in the window");
            bench.free -= len;
            segments += 1;
            octets += len;
        }
        bench.pass(1);
    }
    assert!(octets > 10_000, "{octets} octets came");
    assert!(
        octets / segments >= FULL / 2,
        "{octets} octets in {segments} segments"
    );
}

/// A caller that has less room than it advertised: the right edge stays where it is (3.8.6, a receiver should not shrink its window), but
/// for what the scaled field cannot say.
#[test]
fn the_right_edge_is_not_taken_back() {
    for scale in [false, true] {
        let mut bench = Bench::established(1, 2, scale, false);
        let edge = bench.right_edge;
        for (buffer, free) in [(WINDOW, 100), (WINDOW, 0), (100, 100), (1, 1), (0, 0)] {
            (bench.buffer, bench.free) = (buffer, free);
            bench.receive_next(Flags::ACK, 10);
            let sent = bench.transmit_within(DELAY);
            assert_eq!(sent.len(), 1);
            let back = edge.wrapping_sub(sent[0].ack.wrapping_add(sent[0].wnd)) as i32;
            let lost = if scale { 255 } else { 0 };
            assert!((0..=lost).contains(&back), "taken back by {back}");
            assert_eq!(
                bench.connection.rcv_wnd(),
                edge.wrapping_sub(bench.peer_nxt)
            );
        }
    }
}

/// The last octets of the caller's memory, less than a segment: a peer that probes the closed window gets them.
#[test]
fn a_probe_of_a_closed_window_gets_what_there_is() {
    for scale in [false, true] {
        let mut bench = Bench::established(1, 2, scale, false);
        bench.take_unread(WINDOW);
        bench.free = 300;
        assert!(
            bench.transmit_within(DELAY).is_empty(),
            "too little to advertise by itself"
        );
        let una = bench.connection.snd_una();
        assert!(
            bench
                .receive(Flags::ACK, bench.peer_nxt, una, 1, MAX_SND_WND)
                .is_none()
        );
        let sent = bench.transmit();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].wnd, if scale { 256 } else { 300 });
    }
}

/// A peer, or a forged ICMP message, that tells of tiny segments does not get them.
#[test]
fn no_one_makes_the_segments_tiny() {
    for mss in [0, 1, 47] {
        let mut bench = Bench::connect(1, 2, false);
        let options = [2, 4, 0, mss];
        bench.receive_with(Flags::SYN | Flags::ACK, 2, 2, 0, MAX_SND_WND, &options);
        bench.peer_nxt = 3;
        bench.transmit();
        bench.connection.queue(4000);
        let sent = bench.transmit();
        assert!(
            sent.len() > 1 && sent.iter().all(|sent| sent.len >= 48),
            "MSS {mss}: {sent:?}"
        );
    }
    let mut bench = connection(0);
    bench.connection.queue(4000);
    bench.transmit();
    let (una, nxt) = (bench.connection.snd_una(), bench.connection.snd_nxt());
    for seq in [una.wrapping_sub(1), nxt, una.wrapping_add(1 << 31)] {
        bench.connection.too_big(seq, 100);
        assert_eq!(bench.connection.mss(), MSS, "no segment under way");
    }
    bench.connection.too_big(una, MSS + 1);
    assert_eq!(bench.connection.mss(), MSS, "never larger");
    for mss in [100, 0] {
        bench.connection.too_big(una, mss);
    }
    assert!((48..=100).contains(&bench.connection.mss()));
    works(&mut bench);
}
