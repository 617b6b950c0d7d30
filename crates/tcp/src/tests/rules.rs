//! One connection, segment by segment: what the RFCs ask of it.

use super::*;

const LIMITS: Limits = Limits {
    window: 70_000,
    room: 70_000,
    unit: 0,
};

/// A segment without payload or options.
fn bare(seq: u32, ack: u32, flags: Flags) -> Segment<'static> {
    Segment {
        seq,
        ack,
        flags,
        wnd: 60_000,
        options: &[],
        len: 0,
    }
}

/// A client whose ISS is 1000, of a peer whose ISS is 7.
fn established(now: Instant) -> Connection {
    let mut connection = Connection::connect(MSS, 1000, now);
    connection.transmit(now, &LIMITS).unwrap();
    let syn = bare(7, 1001, Flags::SYN | Flags::ACK);
    connection.receive(now, &syn, LIMITS.room);
    assert_eq!(connection.state(), State::Established);
    let ack = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!((ack.flags, ack.ack), (Flags::ACK, 8));
    connection
}

#[test]
fn the_next_data_goes_the_short_way_and_nothing_else_does() {
    let now = Instant::ZERO;
    let mut connection = established(now);
    let data = |seq| Segment {
        len: 100,
        ..bare(seq, 1001, Flags::ACK | Flags::PSH)
    };
    for other in [
        data(9),
        bare(8, 1001, Flags::ACK),
        Segment {
            flags: Flags::ACK | Flags::FIN,
            ..data(8)
        },
        Segment {
            ack: 1002,
            ..data(8)
        },
        Segment {
            options: &[1, 1, 1, 1],
            ..data(8)
        },
    ] {
        assert!(!connection.receive_next(now, &other), "{other:?}");
    }
    assert!(connection.receive_next(now, &data(8)));
    assert!(!connection.receive_next(now, &data(8)), "it came before");
    assert!(connection.receive_next(now, &data(108)));
    let late = connection.poll_at().unwrap();
    let ack = connection.transmit(late, &LIMITS).unwrap();
    assert_eq!(ack.ack, 208);
}

/// Whatever window was advertised: the caller has no place for more.
#[test]
fn of_text_is_taken_what_there_is_room_for() {
    let now = Instant::ZERO;
    let mut connection = established(now);
    let text = Segment {
        len: 100,
        ..bare(8, 1001, Flags::ACK | Flags::PSH)
    };
    let range = connection.receive(now, &text, 40);
    let taken = |skip, len| PayloadRange {
        skip,
        len,
        at: 0,
        advance: len as u32,
    };
    assert_eq!(range, Some(taken(0, 40)));
    assert_eq!(connection.receive(now, &text, 60), Some(taken(40, 60)));
    assert_eq!(connection.rcv_nxt(), 108);
}

/// RFC 9293, sections 3.10.2 to 3.10.4.
#[test]
fn each_state_says_what_may_come_and_go() {
    let mut now = Instant::ZERO;
    let says = |connection: &Connection| {
        (
            connection.state(),
            connection.may_receive(),
            connection.may_send(),
        )
    };
    let fin = Flags::FIN | Flags::ACK;

    let mut connection = Connection::connect(MSS, 1000, now);
    assert_eq!(says(&connection), (State::SynSent, true, true));
    connection.transmit(now, &LIMITS).unwrap();
    connection.receive(now, &bare(7, 0, Flags::SYN), LIMITS.room);
    assert_eq!(says(&connection), (State::SynReceived, true, true));

    let mut connection = established(now);
    assert_eq!(says(&connection), (State::Established, true, true));
    connection.close();
    assert_eq!(says(&connection), (State::FinWait1, true, false));
    connection.queue(100);
    assert_eq!(connection.transmit(now, &LIMITS).unwrap().len, 0);
    connection.receive(now, &bare(8, 1002, Flags::ACK), LIMITS.room);
    assert_eq!(says(&connection), (State::FinWait2, true, false));
    connection.receive(now, &bare(8, 1002, fin), LIMITS.room);
    assert_eq!(says(&connection), (State::TimeWait, false, false));
    assert_eq!(connection.transmit(now, &LIMITS).unwrap().ack, 9);
    assert!(!connection.is_over());
    now = connection.poll_at().unwrap();
    assert_eq!(now, Instant::ZERO + Duration::from_secs(60));
    assert_eq!(connection.transmit(now, &LIMITS), None);
    assert_eq!(says(&connection), (State::Closed, false, false));
    assert!(connection.is_over());
    assert_eq!(connection.poll_at(), None);

    let mut connection = established(now);
    connection.close();
    connection.transmit(now, &LIMITS).unwrap();
    connection.receive(now, &bare(8, 1001, fin), LIMITS.room);
    assert_eq!(says(&connection), (State::Closing, false, false));

    let mut connection = established(now);
    connection.receive(now, &bare(8, 1001, fin), LIMITS.room);
    assert_eq!(says(&connection), (State::CloseWait, false, true));
    connection.close();
    assert_eq!(says(&connection), (State::LastAck, false, false));
}

/// RFC 9293, section 3.10.4: in SYN-RECEIVED a CLOSE waits for ESTABLISHED.
#[test]
fn a_close_before_the_handshake_is_done_follows_it() {
    let now = Instant::ZERO;
    let mut connection = Connection::accept(MSS, 1000, now, &bare(7, 0, Flags::SYN));
    let answer = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!((answer.flags, answer.ack), (Flags::SYN | Flags::ACK, 8));
    connection.close();
    assert_eq!(connection.state(), State::SynReceived);
    assert_eq!(connection.transmit(now, &LIMITS), None);
    connection.receive(now, &bare(8, 1001, Flags::ACK), LIMITS.room);
    assert_eq!(connection.state(), State::FinWait1);
    let fin = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!((fin.flags, fin.seq), (Flags::FIN | Flags::ACK, 1001));
}

/// RFC 9293, section 3.9.1.2.
#[test]
fn the_last_segment_is_pushed() {
    let now = Instant::ZERO;
    let mut connection = established(now);
    connection.queue(1100);
    let out = core::iter::from_fn(|| connection.transmit(now, &LIMITS));
    let sent: Vec<_> = out.map(|out| (out.len, out.flags)).collect();
    let pushed = Flags::ACK | Flags::PSH;
    assert_eq!(sent, [(536, Flags::ACK), (536, Flags::ACK), (28, pushed)]);
    // A FIN alone has nothing to push.
    connection.close();
    let fin = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!((fin.len, fin.flags), (0, Flags::ACK | Flags::FIN));
}

/// RFC 9293, section 3.10.5.
#[test]
fn an_abort_tells_a_peer_that_knows_of_the_connection() {
    let now = Instant::ZERO;
    let mut connection = Connection::connect(MSS, 1000, now);
    connection.transmit(now, &LIMITS).unwrap();
    connection.abort();
    assert!(connection.is_over());
    assert_eq!(connection.transmit(now, &LIMITS), None);

    let mut connection = established(now);
    connection.abort();
    assert_eq!(connection.state(), State::Closed);
    assert!(!connection.is_over(), "the reset has not left");
    let reset = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!(reset.flags, Flags::RST | Flags::ACK);
    assert_eq!((reset.seq, reset.ack), (1001, 8));
    assert!(connection.is_over());
    connection.abort();
    assert!(connection.is_over(), "there is nobody to tell");
}

/// RFC 9293, section 3.10.5: who waits for more hears that it is cut off. What has ended it before stays.
#[test]
fn an_abort_is_no_end_of_what_the_peer_sends() {
    let now = Instant::ZERO;
    let mut connection = established(now);
    connection.abort();
    connection.abort();
    assert_eq!(connection.error(), Some(Error::Reset));

    let mut connection = established(now);
    let fin = bare(8, 1001, Flags::FIN | Flags::ACK);
    connection.receive(now, &fin, LIMITS.room);
    connection.abort();
    assert_eq!(connection.state(), State::Closed);
    assert_eq!(connection.error(), None);

    let mut connection = Connection::connect(MSS, 1000, now);
    connection.transmit(now, &LIMITS).unwrap();
    let refusal = bare(0, 1001, Flags::RST | Flags::ACK);
    connection.receive(now, &refusal, LIMITS.room);
    connection.abort();
    assert_eq!(connection.error(), Some(Error::Refused));
}

#[test]
fn what_the_peer_has_told_can_be_asked() {
    let mut now = Instant::ZERO;
    let mut connection = Connection::connect(MSS, 1000, now);
    assert_eq!(connection.round_trip(), None);
    connection.transmit(now, &LIMITS).unwrap();
    now += Duration::from_millis(30);
    let syn = bare(7, 1001, Flags::SYN | Flags::ACK);
    connection.receive(now, &syn, LIMITS.room);
    assert_eq!(connection.round_trip(), Some(Duration::from_millis(30)));
    assert_eq!(connection.snd_wnd(), 60_000);
    let update = Segment {
        wnd: 50_000,
        ..bare(8, 1001, Flags::ACK)
    };
    connection.receive(now, &update, LIMITS.room);
    assert_eq!(connection.snd_wnd(), 50_000);
}

/// RFC 9293, section 3.10.7.4: SND.WL1 < SEG.SEQ, or SND.WL1 = SEG.SEQ and SND.WL2 =< SEG.ACK.
#[test]
fn an_older_segment_does_not_say_what_the_window_is() {
    let now = Instant::ZERO;
    let mut connection = established(now);
    for (seq, wnd, window) in [
        (1008, 50_000, 50_000),
        (1007, 40_000, 50_000),
        (8, 40_000, 50_000),
        (1008, 40_000, 40_000),
        (1009, 30_000, 30_000),
    ] {
        let segment = Segment {
            wnd,
            len: 1,
            ..bare(seq, 1001, Flags::ACK)
        };
        connection.receive(now, &segment, LIMITS.room);
        assert_eq!(connection.snd_wnd(), window, "{seq}");
    }
}

/// RFC 5927, section 4.1, and RFC 8201, section 5.4.
#[test]
fn what_was_too_large_for_the_path_leaves_again_in_smaller_segments() {
    let now = Instant::ZERO;
    let mut connection = established(now);
    assert!(!connection.too_big(1001, 500), "nothing is under way");
    connection.queue(1100);
    let sizes = |connection: &mut Connection| -> Vec<_> {
        let out = core::iter::from_fn(|| connection.transmit(now, &LIMITS));
        out.map(|out| (out.seq, out.len)).collect()
    };
    assert_eq!(
        sizes(&mut connection),
        [(1001, 536), (1537, 536), (2073, 28)]
    );
    for seq in [1000, 2101, 2102] {
        assert!(!connection.too_big(seq, 500), "{seq}");
    }
    assert_eq!((connection.mss(), sizes(&mut connection)), (536, vec![]));
    assert!(connection.clone().too_big(2100, 500));
    assert!(connection.too_big(1001, 500));
    assert_eq!(connection.mss(), 500);
    assert_eq!(
        sizes(&mut connection),
        [(1001, 500), (1501, 500), (2001, 100)]
    );
    assert!(connection.too_big(1001, 500));
    assert_eq!(sizes(&mut connection), [], "it is known");
}

/// RFC 2018, section 8.
#[test]
fn what_lay_behind_a_gap_and_was_lost_comes_again() {
    let now = Instant::ZERO;
    let text = |seq, len| Segment {
        len,
        ..bare(seq, 1001, Flags::ACK | Flags::PSH)
    };
    let mut connection = established(now);
    assert_eq!(connection.out_of_order(), 0);
    let range = connection.receive(now, &text(1008, 100), LIMITS.room);
    let range = range.unwrap();
    assert_eq!((range.at, range.advance), (1000, 0));
    assert_eq!(connection.out_of_order(), 1100);
    let mut lost = connection.clone();
    lost.renege();
    assert_eq!(lost.out_of_order(), 0);
    for (mut connection, advance) in [(connection, 1100), (lost, 1000)] {
        let range = connection.receive(now, &text(8, 1000), LIMITS.room);
        assert_eq!(range.unwrap().advance, advance);
        assert_eq!(connection.rcv_nxt(), 8 + advance);
    }
}

/// RFC 9293, section 3.10.7.1.
#[test]
fn a_closed_connection_answers_by_resets() {
    let now = Instant::ZERO;
    let answer = |segment: &Segment<'_>| {
        let mut connection = established(now);
        connection.abort();
        let reset = connection.transmit(now, &LIMITS).unwrap();
        assert_eq!((reset.seq, reset.flags), (1001, Flags::RST | Flags::ACK));
        assert_eq!(connection.receive(now, segment, LIMITS.room), None);
        let answer = connection.transmit(now, &LIMITS);
        answer.map(|answer| (answer.seq, answer.ack, answer.flags))
    };
    let reset = Flags::RST | Flags::ACK;
    assert_eq!(
        answer(&bare(8, 1001, Flags::ACK)),
        Some((1001, 0, Flags::RST))
    );
    assert_eq!(answer(&bare(8, 0, Flags::SYN)), Some((0, 9, reset)));
    assert_eq!(answer(&bare(8, 1001, reset)), None);
}

/// RFC 9293, section 3.10.4.
#[test]
fn a_close_before_the_peer_answers_deletes_the_connection() {
    let now = Instant::ZERO;
    let mut connection = Connection::connect(MSS, 1000, now);
    connection.transmit(now, &LIMITS).unwrap();
    connection.close();
    assert_eq!(
        (connection.state(), connection.error()),
        (State::Closed, None)
    );
    assert!(connection.is_over());
}

/// Both ends have asked at the same time: the SYN that leaves then acknowledges the peer's, and no acknowledgement follows it.
#[test]
fn a_syn_is_acknowledged_once() {
    let now = Instant::ZERO;
    let mut connection = Connection::connect(MSS, 1000, now);
    connection.transmit(now, &LIMITS).unwrap();
    // Theirs comes twice before ours leaves.
    connection.receive(now, &bare(7, 0, Flags::SYN), LIMITS.room);
    connection.receive(now, &bare(7, 0, Flags::SYN), LIMITS.room);
    let answer = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!((answer.flags, answer.ack), (Flags::SYN | Flags::ACK, 8));
    assert_eq!(connection.transmit(now, &LIMITS), None);
    connection.receive(now, &bare(8, 1001, Flags::ACK), LIMITS.room);
    assert_eq!(connection.state(), State::Established);
    assert_eq!(connection.transmit(now, &LIMITS), None);
}

/// RFC 9293, section 3.8.3: R2 is 100 s, and what is acknowledged begins it anew.
#[test]
fn the_wait_for_a_silent_peer_begins_with_its_last_acknowledgement() {
    let mut now = Instant::ZERO;
    let mut connection = Connection::connect(MSS, 1000, now);
    connection.transmit(now, &LIMITS).unwrap();
    // With such round trips the time-out is 0.79 s (RFC 6298), and expires 100.33 s after the last acknowledgement for the seventh time.
    now += Duration::from_millis(316);
    connection.receive(now, &bare(7, 1001, Flags::SYN | Flags::ACK), LIMITS.room);
    connection.queue(2000);
    while connection.transmit(now, &LIMITS).is_some() {}
    now += Duration::from_millis(316);
    connection.receive(now, &bare(8, 1537, Flags::ACK), LIMITS.room);
    let acknowledged = now;
    for _ in 0..7 {
        assert_eq!(connection.error(), None);
        now = connection.poll_at().unwrap();
        while connection.transmit(now, &LIMITS).is_some() {}
    }
    assert_eq!(connection.error(), Some(Error::TimedOut));
    assert_eq!(now - acknowledged, Duration::from_millis(127 * 790));
}

#[test]
fn a_pause_in_which_nothing_is_under_way_is_no_wait_for_the_peer() {
    let mut now = Instant::ZERO;
    let mut connection = established(now);
    connection.queue(100);
    connection.transmit(now, &LIMITS).unwrap();
    connection.receive(now, &bare(8, 1101, Flags::ACK), LIMITS.room);
    now += Duration::from_secs(1000);
    connection.queue(100);
    connection.transmit(now, &LIMITS).unwrap();
    now = connection.poll_at().unwrap();
    assert_eq!(connection.transmit(now, &LIMITS).unwrap().len, 100);
    assert_eq!(connection.error(), None);
}

/// RFC 5681, section 3.1: ssthresh is half of what was under way at the first expiry, and held at the ones after it.
#[test]
fn the_first_time_out_halves_what_slow_start_reaches() {
    let mut now = Instant::ZERO;
    let mut connection = established(now);
    connection.queue(400_000);
    let sent = |connection: &mut Connection, now| {
        let out = core::iter::from_fn(|| connection.transmit(now, &LIMITS));
        out.map(|out| out.len).sum::<usize>() as u32
    };
    let flight = sent(&mut connection, now);
    // The peer has not said what it takes (RFC 9293, section 3.7.1), so that segments are of 536 bytes.
    assert_eq!(flight, 5360);
    // Once, and everything has come after all.
    now = connection.poll_at().unwrap();
    assert_eq!(sent(&mut connection, now), 536);
    let mut ack = 1001 + flight;
    let mut windows = Vec::new();
    for _ in 0..6 {
        now += Duration::from_millis(10);
        connection.receive(now, &bare(8, ack, Flags::ACK), LIMITS.room);
        let window = sent(&mut connection, now);
        windows.push(window / 536);
        ack = ack.wrapping_add(window);
    }
    // From ssthresh on, 5 segments, the window grows by one segment each round trip.
    assert!(windows.windows(2).all(|w| w[1] <= w[0] + 1), "{windows:?}");
}

/// A client of a peer with SACK, or of one without, that has sent 10 segments of 536 bytes and has 20 more.
struct Sender {
    connection: Connection,
    now: Instant,
}

impl Sender {
    fn new(sack: bool) -> Self {
        let now = Instant::ZERO;
        let mut connection = Connection::connect(MSS, 1000, now);
        connection.transmit(now, &LIMITS).unwrap();
        let syn = Segment {
            options: if sack { &[4, 2, 1, 1] } else { &[] },
            ..bare(7, 1001, Flags::SYN | Flags::ACK)
        };
        connection.receive(now, &syn, LIMITS.room);
        connection.transmit(now, &LIMITS).unwrap();
        connection.queue(30 * 536);
        let mut sender = Self { connection, now };
        assert_eq!(sender.sent(), (0..10).collect::<Vec<_>>());
        sender
    }

    /// The numbers of the segments that leave now.
    fn sent(&mut self) -> Vec<u32> {
        let out = core::iter::from_fn(|| self.connection.transmit(self.now, &LIMITS));
        out.map(|out| {
            assert_eq!(out.len, 536);
            (out.seq - 1001) / 536
        })
        .collect()
    }

    /// The peer expects this segment next, and has these behind it: first, and the one behind the
    /// last. Returns what leaves.
    fn hears(&mut self, next: u32, blocks: &[(u32, u32)]) -> Vec<u32> {
        let at = |number: u32| 1001 + number * 536;
        let blocks: Vec<_> = blocks.iter().map(|&(a, b)| (at(a), at(b))).collect();
        self.hears_of(at(next), &blocks)
    }

    /// The same by sequence numbers.
    fn hears_of(&mut self, ack: u32, blocks: &[(u32, u32)]) -> Vec<u32> {
        let mut options = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
        for (left, right) in blocks {
            options.extend(left.to_be_bytes());
            options.extend(right.to_be_bytes());
        }
        let segment = Segment {
            options: if blocks.is_empty() { &[] } else { &options },
            ..bare(8, ack, Flags::ACK)
        };
        self.connection.receive(self.now, &segment, LIMITS.room);
        self.sent()
    }
}

/// Without SACK (RFC 5681, section 3.2, RFC 3042, RFC 6582). The segments 0 and 3 are lost.
#[test]
fn three_equal_acknowledgements_repair_a_loss_and_partial_ones_the_next() {
    let mut sender = Sender::new(false);
    assert_eq!(sender.hears(0, &[]), [10], "limited transmit");
    assert_eq!(sender.hears(0, &[]), [11]);
    // From now on 6 may be under way, half of what was.
    assert_eq!(sender.hears(0, &[]), [0], "fast retransmit");
    for _ in 4..7 {
        assert_eq!(sender.hears(0, &[]), []);
    }
    for new in 12..16 {
        assert_eq!(sender.hears(0, &[]), [new], "for each that has left");
    }
    // Of 16, 7 have come behind the gap; with the one that leaves again 6 are under way.
    assert_eq!(sender.hears(3, &[]), [3], "the next gap");
    assert_eq!(sender.hears(3, &[]), [16]);
    assert_eq!(sender.hears(3, &[]), [17]);
    // All that was under way when the loss was seen has come: equal acknowledgements are counted anew.
    let new = sender.hears(18, &[]);
    assert!((6..=7).contains(&new.len()) && new[0] == 18, "{new:?}");
    for _ in 0..2 {
        assert!(!sender.hears(18, &[]).contains(&18));
    }
    assert_eq!(sender.hears(18, &[])[..1], [18]);
}

/// RFC 6675: what has three ranges, or more than two segments, above it was lost. The segments 0, 1, 3 and 5 are
/// lost.
#[test]
fn selective_acknowledgements_tell_what_leaves_again() {
    let mut sender = Sender::new(true);
    for _ in 0..5 {
        assert_eq!(sender.hears(0, &[]), [], "no news");
    }
    assert_eq!(sender.hears(0, &[(2, 3)]), [10]);
    assert_eq!(sender.hears(0, &[(4, 5), (2, 3)]), [11]);
    assert_eq!(sender.hears(0, &[(4, 5), (2, 3)]), [], "no news");
    // 12 were under way, so that 6 may be. The first leaves in any case.
    assert_eq!(sender.hears(0, &[(6, 7), (4, 5), (2, 3)]), [0]);
    // Of 12, 4 have come, and 1 and 3 are lost. With the next one, 5 is lost, too.
    assert_eq!(sender.hears(0, &[(6, 8), (4, 5), (2, 3)]), []);
    assert_eq!(sender.hears(0, &[(6, 9), (4, 5), (2, 3)]), [1, 3]);
    assert_eq!(sender.hears(0, &[(6, 10), (4, 5), (2, 3)]), [5]);
    assert_eq!(sender.hears(0, &[(6, 11), (4, 5), (2, 3)]), [12]);
    assert_eq!(sender.hears(1, &[(6, 11), (4, 5), (2, 3)]), [13]);
}

/// RFC 2018, section 2: nobody tells what was not agreed on.
#[test]
fn selective_acknowledgements_of_a_peer_without_them_mean_nothing() {
    let mut sender = Sender::new(false);
    let blocks = [(6, 7), (4, 5), (2, 3)];
    assert_eq!(sender.hears(0, &blocks), [10], "one equal acknowledgement");
}

#[test]
fn selective_acknowledgements_of_what_is_not_under_way_are_no_news() {
    let mut sender = Sender::new(true);
    let (una, nxt) = (sender.connection.snd_una(), sender.connection.snd_nxt());
    for (left, right) in [
        (una - 536, una),
        (una - 536, una + 1072),
        (una + 536, una + 536),
        (una + 1072, una + 536),
        (una + 536, nxt + 1),
        (nxt, nxt + 536),
    ] {
        assert_eq!(sender.hears_of(una, &[(left, right)]), [], "{left} {right}");
    }
    assert_eq!(sender.hears_of(una, &[(nxt - 536, nxt)]), [10]);
}

/// RFC 5681, section 3.1: after a time-out all that was under way leaves again, in slow start.
#[test]
fn after_a_time_out_slow_start_begins_anew() {
    let mut sender = Sender::new(false);
    sender.now = sender.connection.poll_at().unwrap();
    assert_eq!(sender.sent(), [0]);
    for first in 1..5 {
        let second = 2 * first;
        assert_eq!(sender.hears(first, &[]), [second - 1, second]);
    }
    // Half of what was under way are: from now on one more each round trip.
    for next in 5..9 {
        assert_eq!(sender.hears(next, &[]), [next + 4]);
    }
    assert_eq!(sender.hears(9, &[]), [13, 14]);
}

/// A client of a peer whose SYN says so.
fn of_peer(wnd: u16, options: &[u8]) -> Connection {
    let now = Instant::ZERO;
    let mut connection = Connection::connect(MSS, 1000, now);
    connection.transmit(now, &LIMITS).unwrap();
    let syn = Segment {
        wnd,
        options,
        ..bare(7, 1001, Flags::SYN | Flags::ACK)
    };
    connection.receive(now, &syn, LIMITS.room);
    connection.transmit(now, &LIMITS).unwrap();
    connection
}

/// RFC 9293, section 3.8.6.2.1: a segment, or half of the largest window, or all there is.
#[test]
fn a_small_window_is_filled_by_no_small_segments() {
    let now = Instant::ZERO;
    for (window, queued, expected) in [
        (1070, 5000, vec![536]),
        (1071, 5000, vec![536, 535]),
        (1072, 5000, vec![536, 536]),
        (1000, 600, vec![536, 64]),
        (500, 5000, vec![500]),
    ] {
        let mut connection = of_peer(window, &[]);
        connection.queue(queued);
        let out = core::iter::from_fn(|| connection.transmit(now, &LIMITS));
        let sizes: Vec<_> = out.map(|out| out.len).collect();
        assert_eq!(sizes, expected, "{window} {queued}");
    }
    // After a time-out one segment may be under way. Of that no part leaves, though the window takes it.
    let late = |connection: &mut Connection| {
        connection.queue(100);
        connection.transmit(now, &LIMITS).unwrap();
        let late = connection.poll_at().unwrap();
        assert_eq!(connection.transmit(late, &LIMITS).unwrap().len, 100);
        late
    };
    let mut connection = of_peer(800, &[]);
    let then = late(&mut connection);
    connection.queue(5000);
    assert_eq!(connection.transmit(then, &LIMITS), None);
    let mut connection = of_peer(500, &[]);
    let then = late(&mut connection);
    let ack = Segment {
        wnd: 500,
        ..bare(8, 1101, Flags::ACK)
    };
    connection.receive(then, &ack, LIMITS.room);
    connection.queue(5000);
    assert_eq!(connection.transmit(then, &LIMITS).unwrap().len, 500);
    // What the device cuts is whole segments, too.
    let limits = Limits {
        unit: 3000,
        ..LIMITS
    };
    let mut connection = of_peer(60_000, &[]);
    connection.queue(5000);
    let out = core::iter::from_fn(|| connection.transmit(now, &limits));
    let sizes: Vec<_> = out.map(|out| out.len).collect();
    assert_eq!(sizes, [5 * 536, 5000 - 5 * 536]);
}

/// RFC 9293, section 3.8.6.1: a closed window is probed by one byte, after a while; a FIN needs none.
#[test]
fn what_a_closed_window_and_what_is_under_way_let_leave() {
    let mut now = Instant::ZERO;
    let mut connection = of_peer(0, &[]);
    connection.queue(5000);
    assert_eq!(connection.transmit(now, &LIMITS), None);
    now = connection.poll_at().unwrap();
    assert_eq!(connection.transmit(now, &LIMITS).unwrap().len, 1);
    assert_eq!(connection.transmit(now, &LIMITS), None);

    let mut connection = of_peer(60_000, &[]);
    connection.queue(100);
    connection.transmit(now, &LIMITS).unwrap();
    connection.close();
    let fin = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!((fin.len, fin.flags), (0, Flags::FIN | Flags::ACK));
    assert_eq!(connection.transmit(now, &LIMITS), None);
}

/// That a probe is not taken says nothing of congestion.
#[test]
fn a_window_that_was_closed_is_filled_when_it_opens() {
    let mut now = Instant::ZERO;
    let mut connection = of_peer(60_000, &[]);
    connection.queue(5360);
    let sent = |connection: &mut Connection, now| -> usize {
        let out = core::iter::from_fn(|| connection.transmit(now, &LIMITS));
        out.map(|out| out.len).sum()
    };
    assert_eq!(sent(&mut connection, now), 5360);
    let window = |ack, wnd| Segment {
        wnd,
        ..bare(8, ack, Flags::ACK)
    };
    connection.receive(now, &window(6361, 0), LIMITS.room);
    connection.queue(5361);
    for _ in 0..4 {
        assert_eq!(sent(&mut connection, now), 0);
        now = connection.poll_at().unwrap();
        assert_eq!(sent(&mut connection, now), 1);
        connection.receive(now, &window(6361, 0), LIMITS.room);
    }
    connection.receive(now, &window(6362, 60_000), LIMITS.room);
    assert_eq!(sent(&mut connection, now), 5360);
}

/// The byte of a probe that was not taken leaves again with what follows it, not when the wait for the window would have ended.
#[test]
fn a_probe_that_was_not_taken_leaves_again_when_the_window_opens() {
    let mut now = Instant::ZERO;
    let mut connection = of_peer(60_000, &[]);
    connection.queue(536);
    assert_eq!(connection.transmit(now, &LIMITS).unwrap().len, 536);
    let window = |wnd| Segment {
        wnd,
        ..bare(8, 1537, Flags::ACK)
    };
    connection.receive(now, &window(0), LIMITS.room);
    connection.queue(536);
    for _ in 0..4 {
        assert_eq!(connection.transmit(now, &LIMITS), None);
        now = connection.poll_at().unwrap();
        let probe = connection.transmit(now, &LIMITS).unwrap();
        assert_eq!((probe.seq, probe.len), (1537, 1));
        connection.receive(now, &window(0), LIMITS.room);
    }
    connection.receive(now, &window(60_000), LIMITS.room);
    let out = core::iter::from_fn(|| connection.transmit(now, &LIMITS));
    let out: Vec<_> = out.map(|out| (out.seq, out.len)).collect();
    assert_eq!(out, [(1537, 1), (1538, 535)]);
}

/// Of what leaves when a window opens, the time-out begins then.
#[test]
fn the_wait_for_a_window_ends_with_it() {
    let at = Instant::from_millis;
    let mut connection = of_peer(0, &[]);
    connection.queue(100);
    assert_eq!(connection.transmit(at(0), &LIMITS), None);
    assert_eq!(connection.poll_at(), Some(at(300)));
    connection.receive(at(250), &bare(8, 1001, Flags::ACK), LIMITS.room);
    assert_eq!(connection.transmit(at(250), &LIMITS).unwrap().len, 100);
    assert_eq!(connection.poll_at(), Some(at(550)));
}

/// RFC 9293, section 3.8.6.2.2: half of the buffer, where that is less than a segment.
#[test]
fn a_small_buffer_is_advertised_when_half_of_it_is_free() {
    let now = Instant::ZERO;
    let mut connection = of_peer(60_000, &[]);
    let text = Segment {
        len: 2048,
        ..bare(8, 1001, Flags::ACK)
    };
    let free = |room| Limits {
        window: 2048,
        room,
        unit: 0,
    };
    // The window that was advertised before is used up.
    let rest = connection.rcv_wnd() - 2048;
    for (seq, len) in [(8, rest as usize), (8 + rest, 2048)] {
        let text = Segment { seq, len, ..text };
        assert!(connection.receive_next(now, &text));
        assert!(connection.transmit(now, &free(0)).is_some());
    }
    assert_eq!(connection.rcv_wnd(), 0);
    assert_eq!(connection.transmit(now, &free(1023)), None);
    assert_eq!(connection.transmit(now, &free(1024)).unwrap().wnd, 1024);
}

#[test]
fn what_was_acknowledged_is_not_taken_back() {
    let now = Instant::ZERO;
    let mut connection = of_peer(60_000, &[]);
    connection.queue(1100);
    let limits = Limits {
        unit: 10_000,
        ..LIMITS
    };
    let first = connection.transmit(now, &limits).unwrap();
    assert_eq!(first.len, 1100);
    connection.receive(now, &bare(8, 1537, Flags::ACK), LIMITS.room);
    connection.take_back(&first, 0);
    assert_eq!(connection.snd_nxt(), 2101);
    connection.take_back(&first, 536);
    assert_eq!(connection.snd_nxt(), 1537);
    assert_eq!(connection.transmit(now, &limits).unwrap().seq, 1537);
}

/// RFC 4821, section 7.7: what is swallowed again and again may be too large for the path.
#[test]
fn every_second_time_out_makes_large_segments_smaller() {
    let sizes = |queued| -> Vec<u16> {
        let mut connection = of_peer(60_000, &[2, 4, 5, 0xb4]);
        connection.queue(queued);
        let mut now = Instant::ZERO;
        (0..7)
            .map(|_| {
                while connection.transmit(now, &LIMITS).is_some() {}
                now = connection.poll_at().unwrap();
                connection.mss()
            })
            .collect()
    };
    assert_eq!(sizes(5000), [1460, 1460, 1220, 1220, 536, 536, 536]);
    assert_eq!(sizes(500), [1460; 7]);
}

#[test]
fn what_did_not_leave_is_returned_again() {
    let now = Instant::ZERO;
    let mut connection = Connection::connect(MSS, 1000, now);
    let limits = Limits {
        window: 70_000,
        room: 70_000,
        unit: 10_000,
    };
    let segment = |seq, ack, flags| Segment {
        seq,
        ack,
        flags,
        wnd: 60_000,
        options: &[],
        len: 0,
    };
    connection.transmit(now, &limits).unwrap();
    let syn = segment(7, 1001, Flags::SYN | Flags::ACK);
    connection.receive(now, &syn, 70_000);
    connection.queue(4000);
    connection.close();
    let sizes = |connection: &mut Connection| -> Vec<_> {
        let out = core::iter::from_fn(|| connection.transmit(now, &limits));
        out.map(|out| (out.seq, out.len, out.flags)).collect()
    };
    let first = connection.transmit(now, &limits).unwrap();
    connection.take_back(&first, 0);
    assert_eq!(connection.snd_nxt(), 1001);
    assert_eq!(
        connection.poll_at(),
        None,
        "no timer runs for what did not leave"
    );
    let mut all = vec![(first.seq, first.len, first.flags)];
    assert_eq!(first.seq, 1001);
    let again = connection.transmit(now, &limits).unwrap();
    assert_eq!(again, first);
    // A part of it has left.
    connection.take_back(&again, 1460);
    assert_eq!(connection.snd_nxt(), 1001 + 1460);
    all[0].1 = 1460;
    let rest = connection.transmit(now, &limits).unwrap();
    assert_eq!((rest.seq, rest.offset), (1001 + 1460, 1460));
    all.push((rest.seq, rest.len, rest.flags));
    // A single segment is lost: it may have been sent before.
    let single = Transmit {
        len: rest.mss.into(),
        ..rest
    };
    let before = connection.snd_nxt();
    connection.take_back(&single, 0);
    assert_eq!(connection.snd_nxt(), before);
    all.extend(sizes(&mut connection));
    let bytes: usize = all.iter().map(|one| one.1).sum();
    assert_eq!(bytes, 4000);
    assert!(all.last().unwrap().2.contains(Flags::FIN));
    // Nothing was lost: an acknowledgement of all ends it.
    let ack = segment(8, connection.snd_nxt(), Flags::ACK);
    connection.receive(now, &ack, 70_000);
    assert_eq!(connection.acknowledged(), 4000);
    assert_eq!(connection.state(), State::FinWait2);
}

/// RFC 9293, section 3.8.4.
#[test]
fn a_silent_peer_is_probed_in_even_steps() {
    let seconds = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let probing = |interval| {
        let mut connection = Connection::connect(MSS, 1000, Instant::ZERO);
        connection.set_keep_alive(Some(interval));
        connection.transmit(Instant::ZERO, &LIMITS).unwrap();
        let syn = bare(7, 1001, Flags::SYN | Flags::ACK);
        connection.receive(Instant::ZERO, &syn, LIMITS.room);
        connection.transmit(Instant::ZERO, &LIMITS).unwrap();
        connection
    };
    // What is under way is sent again, which probes as well.
    let mut busy = probing(Duration::from_millis(100));
    busy.queue(100);
    busy.transmit(Instant::ZERO, &LIMITS).unwrap();
    let again = Instant::ZERO + Duration::from_millis(300);
    assert_eq!(busy.poll_at(), Some(again));

    let mut connection = probing(Duration::from_secs(5));
    let mut closed = connection.clone();
    closed.close();
    closed.transmit(Instant::ZERO, &LIMITS).unwrap();
    closed.receive(Instant::ZERO, &bare(8, 1002, Flags::ACK), LIMITS.room);
    assert_eq!((closed.state(), closed.poll_at()), (State::FinWait2, None));

    let mut probe = |at: u64| {
        assert_eq!(connection.poll_at(), Some(seconds(at)));
        let early = Instant::from_micros((at as i64 * 1_000_000) - 1_000);
        assert_eq!(connection.transmit(early, &LIMITS), None);
        let probe = connection.transmit(seconds(at), &LIMITS)?;
        assert_eq!((probe.seq, probe.ack, probe.len), (1000, 8, 0));
        assert_eq!(probe.flags, Flags::ACK);
        assert_eq!(connection.transmit(seconds(at), &LIMITS), None);
        if at == 10 {
            // It answers at last.
            connection.receive(seconds(12), &bare(8, 1001, Flags::ACK), LIMITS.room);
        }
        Some(())
    };
    for at in [5, 10, 17, 22, 27, 32, 37] {
        assert!(probe(at).is_some(), "{at}");
    }
    assert!(probe(42).is_none());
    assert_eq!(connection.error(), Some(Error::TimedOut));
}

/// RFC 9293, section 3.7.1, RFC 7323, section 2, and RFC 2018, section 2.
#[test]
fn a_syn_tells_what_the_peer_may_use() {
    let now = Instant::ZERO;
    let limits = Limits {
        window: 70_000,
        room: 66_000,
        unit: 0,
    };
    let little = Limits {
        room: 5000,
        ..limits
    };
    let syn = |limits| Connection::connect(MSS, 1000, now).transmit(now, limits);
    let [mss, scale, sack] = [&[2, 4, 5, 0xb4][..], &[3, 3, 8], &[4, 2]];
    let has = |sent: &Transmit, option: &[u8]| {
        let options = sent.options.as_slice();
        assert_eq!(options.len() % 4, 0);
        options.windows(option.len()).any(|part| part == option)
    };
    let sent = syn(&limits).unwrap();
    assert_eq!((sent.seq, sent.flags, sent.wnd), (1000, Flags::SYN, 65_535));
    assert_eq!(
        [mss, scale, sack].map(|option| has(&sent, option)),
        [true; 3]
    );
    assert_eq!(syn(&little).unwrap().wnd, 5000);

    for (options, expected) in [
        (&[][..], [true, false, false]),
        (&[4, 2, 1, 1], [true, false, true]),
        (&[1, 3, 3, 2], [true, true, false]),
    ] {
        let syn = Segment {
            options,
            ..bare(7, 0, Flags::SYN)
        };
        let mut connection = Connection::accept(MSS, 1000, now, &syn);
        let sent = connection.transmit(now, &limits).unwrap();
        assert_eq!((sent.seq, sent.ack), (1000, 8));
        assert_eq!(sent.flags, Flags::SYN | Flags::ACK);
        let told = [mss, scale, sack].map(|option| has(&sent, option));
        assert_eq!(told, expected, "{options:?}");
        assert_eq!(connection.rcv_wnd(), 65_535);
        // The same again when nothing comes.
        let again = connection.poll_at().unwrap();
        assert_eq!(again, now + Duration::from_secs(1));
        assert_eq!(connection.transmit(again, &limits), Some(sent));
    }
}

#[test]
fn what_lies_behind_a_gap_is_told_to_a_peer_that_understands_it() {
    let now = Instant::ZERO;
    for sack in [false, true] {
        let mut connection = of_peer(60_000, if sack { &[4, 2, 1, 1] } else { &[] });
        let text = Segment {
            len: 256,
            ..bare(0x0108, 1001, Flags::ACK)
        };
        connection.receive(now, &text, LIMITS.room);
        let ack = connection.transmit(now, &LIMITS).unwrap();
        let block = [5, 10, 0, 0, 1, 8, 0, 0, 2, 8];
        let options = ack.options.as_slice();
        assert_eq!(options.ends_with(&block), sack, "{options:?}");
        assert_eq!(options.is_empty(), !sack);
    }
}

/// Where payload begins in the send buffer, of which the caller drops what was acknowledged.
#[test]
fn payload_is_found_behind_what_is_acknowledged() {
    let now = Instant::ZERO;
    let mut connection = of_peer(1000, &[]);
    connection.queue(3000);
    let first = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!((first.seq, first.offset, first.mss), (1001, 0, 536));
    connection.receive(now, &bare(8, 1401, Flags::ACK), LIMITS.room);
    assert_eq!(connection.acknowledged(), 400);
    assert_eq!(connection.acknowledged(), 0);
    let second = connection.transmit(now, &LIMITS).unwrap();
    assert_eq!((second.seq, second.offset), (1537, 136));
}

#[test]
fn a_syn_is_refused_by_a_reset_that_acknowledges_it_alone() {
    let now = Instant::ZERO;
    let mut connection = Connection::connect(MSS, 1000, now);
    let limits = Limits {
        window: 1000,
        room: 1000,
        unit: 0,
    };
    connection.transmit(now, &limits).unwrap();
    let mut reset = Segment {
        seq: 0,
        ack: 1002,
        flags: Flags::RST | Flags::ACK,
        wnd: 0,
        options: &[],
        len: 0,
    };
    connection.receive(now, &reset, 1000);
    assert_eq!(connection.state(), State::SynSent);
    reset.ack = 1001;
    connection.receive(now, &reset, 1000);
    assert_eq!(connection.error(), Some(Error::Refused));
    assert_eq!(connection.transmit(now, &limits), None);
}

/// RFC 6675, section 5: a loss above the recovery point is repaired as soon as that recovery ends, by an acknowledgement without options too.
#[test]
fn the_end_of_a_recovery_may_be_the_begin_of_another() {
    let now = Instant::ZERO;
    let mut connection = of_peer(60_000, &[4, 2, 0, 0]);
    connection.queue(60_000);
    let sent = |connection: &mut Connection| -> Vec<u32> {
        let out = core::iter::from_fn(|| connection.transmit(now, &LIMITS));
        out.filter(|out| out.len > 0).map(|out| out.seq).collect()
    };
    sent(&mut connection);
    let point = connection.snd_nxt();
    let told = |ranges: &[(u32, u32)]| {
        let mut options = vec![1, 1, 5, 2 + 8 * ranges.len() as u8];
        for (left, right) in ranges {
            options.extend(left.to_be_bytes());
            options.extend(right.to_be_bytes());
        }
        options
    };
    let hear = |connection: &mut Connection, ack, options: &[u8]| {
        let segment = Segment {
            options,
            ..bare(8, ack, Flags::ACK)
        };
        connection.receive(now, &segment, LIMITS.room);
    };
    // All but the first segment has come: what leaves then lies above the recovery point.
    hear(&mut connection, 1001, &told(&[(1537, point)]));
    sent(&mut connection);
    let more = connection.snd_nxt();
    assert!(
        more.wrapping_sub(point) >= 4 * 536,
        "{}",
        more.wrapping_sub(point)
    );
    hear(&mut connection, 1001, &told(&[(point + 536, more)]));
    sent(&mut connection);
    hear(&mut connection, point, &[]);
    assert!(sent(&mut connection).contains(&point));
}
