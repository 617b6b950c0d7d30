//! What a hostile peer, or somebody who sees no segment of the connection, may try; and what must come of it: nothing.

mod bench;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use bench::{Bench, DELAY, MAX_SND_WND, MSS, Sent, WINDOW};
use wireboot_tcp::{Duration, Error, Flags, InitialSequence, Instant, State};

const FULL: u32 = MSS as u32;

/// ESTABLISHED, text sent and taken both ways, `flight` octets on their way.
fn connection(flight: u32) -> Bench {
    let mut bench = Bench::established(0xffff_f000, 0x7fff_f000, true, false);
    bench.send(6000);
    bench.take(2000);
    bench.connection.queue(flight);
    bench.transmit();
    bench.settle();
    bench
}

/// The connection still takes text and acknowledgements.
fn works(bench: &mut Bench) {
    bench.transmit_within(1000);
    let taken = bench.receive_next(Flags::ACK, 100).expect("text is taken");
    assert_eq!(
        (taken.skip, taken.len, taken.at, taken.advance),
        (0, 100, 0, 100)
    );
    let sent = bench.transmit_within(DELAY);
    assert!(
        sent.iter().any(|sent| sent.ack == bench.peer_nxt),
        "text is acknowledged: {sent:?}"
    );
    bench.acknowledge();
    assert_eq!(bench.connection.snd_una(), bench.connection.snd_nxt());
}

/// Sequence numbers over the whole space, two in each window, but not RCV.NXT.
fn spray(bench: &Bench) -> impl Iterator<Item = u32> + use<> {
    let rcv_nxt = bench.connection.rcv_nxt();
    (0..u32::MAX / (WINDOW / 2)).map(move |step| rcv_nxt.wrapping_add(step * (WINDOW / 2) + 1))
}

// ---- Somebody who sees nothing (RFC 5961)

#[test]
fn a_blind_reset_finds_only_the_exact_number() {
    let mut bench = connection(1000);
    let before = bench.view();
    for seq in spray(&bench) {
        for flags in [Flags::RST, Flags::RST | Flags::ACK] {
            assert!(bench.receive(flags, seq, seq, 0, 0).is_none());
        }
    }
    bench.transmit();
    assert_eq!(bench.view(), before);
    // Around the exact number, one by one.
    let exact = bench.connection.rcv_nxt();
    for seq in
        (1..300).flat_map(|distance| [exact.wrapping_sub(distance), exact.wrapping_add(distance)])
    {
        bench.receive(Flags::RST, seq, 0, 0, 0);
    }
    bench.transmit();
    assert_eq!(bench.view(), before);
    works(&mut bench);
    bench.receive(Flags::RST, bench.connection.rcv_nxt(), 0, 0, 0);
    assert_eq!(
        (bench.connection.state(), bench.connection.error()),
        (State::Closed, Some(Error::Reset))
    );
}

#[test]
fn a_blind_syn_does_nothing() {
    let mut bench = connection(1000);
    let before = bench.view();
    for seq in spray(&bench).chain([bench.connection.rcv_nxt()]) {
        for flags in [Flags::SYN, Flags::SYN | Flags::ACK] {
            assert!(bench.receive(flags, seq, before.snd_nxt, 0, 100).is_none());
        }
    }
    bench.transmit();
    assert_eq!(bench.view(), before);
    works(&mut bench);
}

/// The sequence number is known; the acknowledgement is sprayed over the whole space, in steps below MAX.SND.WND.
#[test]
fn blind_text_needs_an_acknowledgement_in_range() {
    let mut bench = connection(1000);
    let before = bench.view();
    let (lowest, highest) = (before.snd_una.wrapping_sub(MAX_SND_WND), before.snd_nxt);
    let range = highest.wrapping_sub(lowest);
    let mut refused = 0;
    for step in 0..u32::MAX / 1000 {
        let ack = highest.wrapping_add(1 + step * 1000);
        if ack.wrapping_sub(lowest) <= range {
            continue;
        }
        for (flags, len) in [(Flags::ACK, 100), (Flags::ACK | Flags::FIN, 0)] {
            assert!(
                bench
                    .receive(flags, before.rcv_nxt, ack, len, 100)
                    .is_none()
            );
        }
        refused += 1;
    }
    assert!(refused > 4_000_000);
    for ack in [lowest.wrapping_sub(1), highest.wrapping_add(1)] {
        assert!(
            bench
                .receive(Flags::ACK, before.rcv_nxt, ack, 100, 100)
                .is_none()
        );
    }
    assert!(
        bench
            .receive(Flags::PSH, before.rcv_nxt, highest, 100, 100)
            .is_none(),
        "no ACK bit"
    );
    bench.transmit();
    assert_eq!(bench.view(), before);
    works(&mut bench);
}

/// The acknowledgement is known; the sequence number is sprayed.
#[test]
fn blind_text_outside_the_window_is_not_taken() {
    let mut bench = connection(1000);
    let before = bench.view();
    for seq in spray(&bench) {
        let place = seq.wrapping_sub(before.rcv_nxt);
        if place < WINDOW || place > u32::MAX - 200 {
            continue;
        }
        for flags in [Flags::ACK, Flags::ACK | Flags::FIN] {
            assert!(
                bench
                    .receive(flags, seq, before.snd_nxt, 100, 100)
                    .is_none()
            );
        }
    }
    bench.transmit();
    assert_eq!(bench.view(), before);
    works(&mut bench);
}

/// The window is what was told, not what could be stored: what the peer was never offered, it may not write.
#[test]
fn text_beyond_the_told_window_is_cut() {
    let mut bench = connection(0);
    let rcv_nxt = bench.connection.rcv_nxt();
    let told = bench.right_edge.wrapping_sub(rcv_nxt);
    assert!(
        bench
            .receive(
                Flags::ACK,
                bench.right_edge,
                bench.connection.snd_nxt(),
                100,
                100
            )
            .is_none()
    );
    let placement = bench
        .receive(
            Flags::ACK,
            rcv_nxt,
            bench.connection.snd_nxt(),
            told as usize + 700,
            100,
        )
        .expect("taken");
    assert_eq!(
        (
            placement.skip,
            placement.len,
            placement.at,
            placement.advance
        ),
        (0, told as usize, 0, told)
    );
}

/// Challenge ACKs and answers to what is not acceptable are few, however many segments ask for them (RFC 5961 section 7), and the first is not
/// missed; when the flood ends, they are given again.
#[test]
fn a_flood_of_challenges_is_answered_rarely() {
    type Forge = fn(&Bench) -> (Flags, u32, u32, usize);
    let forged: [(&str, Forge); 6] = [
        ("RST in the window", |b| {
            (Flags::RST, b.peer_nxt.wrapping_add(10), 0, 0)
        }),
        ("SYN", |b| (Flags::SYN, b.peer_nxt, 0, 0)),
        ("ACK too new", |b| {
            (
                Flags::ACK,
                b.peer_nxt,
                b.connection.snd_nxt().wrapping_add(1),
                0,
            )
        }),
        ("ACK too old", |b| {
            (
                Flags::ACK,
                b.peer_nxt,
                b.connection.snd_una().wrapping_sub(MAX_SND_WND + 1),
                10,
            )
        }),
        ("old text", |b| {
            (
                Flags::ACK,
                b.peer_nxt.wrapping_sub(500),
                b.connection.snd_una(),
                10,
            )
        }),
        ("beyond the window", |b| {
            (
                Flags::ACK,
                b.right_edge.wrapping_add(1),
                b.connection.snd_una(),
                10,
            )
        }),
    ];
    for (name, forge) in forged {
        let mut bench = connection(0);
        let mut answers = 0;
        // 10 s, one each millisecond.
        for turn in 0..10_000 {
            let (flags, seq, ack, len) = forge(&bench);
            bench.receive(flags, seq, ack, len, 100);
            answers += bench.transmit().len();
            assert!(turn > 0 || answers == 1, "{name}: the first is answered");
            bench.pass(1);
        }
        assert!(answers <= 120, "{name}: {answers} answers in 10 s");
        bench.pass(5000);
        let (flags, seq, ack, len) = forge(&bench);
        bench.receive(flags, seq, ack, len, 100);
        assert_eq!(
            bench.transmit().len(),
            1,
            "{name}: answered again after the flood"
        );
        works(&mut bench);
    }
}

/// Of two ends that challenge each other's segments none answers for ever.
#[test]
fn two_ends_out_of_step_fall_silent() {
    let mut one = connection(0);
    let mut other = connection(0);
    one.receive(
        Flags::ACK,
        one.peer_nxt.wrapping_sub(20_000),
        one.connection.snd_una().wrapping_sub(20_000),
        0,
        100,
    );
    let mut on_the_way = one.transmit();
    let mut segments = on_the_way.len();
    for _ in 0..1000 {
        std::mem::swap(&mut one, &mut other);
        one.pass(1);
        for sent in std::mem::take(&mut on_the_way) {
            one.receive(
                sent.flags,
                sent.seq.wrapping_add(77_000),
                sent.ack.wrapping_add(99_000),
                sent.len,
                100,
            );
        }
        on_the_way = one.transmit();
        segments += on_the_way.len();
    }
    assert!(segments < 50, "{segments} segments in a second");
}

// ---- A peer that lies about what it has received

/// An acknowledgement of what was never sent moves nothing and opens nothing.
#[test]
fn an_optimistic_acknowledgement_is_refused() {
    let mut bench = connection(1000);
    bench.connection.queue(100_000);
    bench.transmit();
    let before = bench.view();
    let in_flight = before.snd_nxt.wrapping_sub(before.snd_una);
    for ahead in [1, 2, FULL, 3 * FULL, 50_000, 100_000] {
        bench.receive(
            Flags::ACK,
            bench.peer_nxt,
            before.snd_nxt.wrapping_add(ahead),
            0,
            60_000,
        );
    }
    let sent = bench.transmit();
    assert!(
        sent.iter().all(|sent| sent.len == 0),
        "sends no more than before: {sent:?}"
    );
    assert_eq!(bench.view(), before);
    assert_eq!(bench.connection.acknowledged(), 0);
    assert!(in_flight <= MAX_SND_WND);
    bench.acknowledge();
    assert_eq!(bench.connection.snd_una(), before.snd_nxt);
}

/// What may be in flight after one full segment has been acknowledged, octet by octet or at once.
#[test]
fn an_acknowledgement_in_pieces_opens_no_more_than_a_whole_one() {
    let open_after = |pieces: u32| {
        let mut bench = Bench::established(1, 2, true, false);
        bench.connection.queue(1_000_000);
        // A window that does not limit: 65,535 << 3 would be far above any first congestion window.
        bench.receive(
            Flags::ACK,
            bench.peer_nxt,
            bench.connection.snd_una(),
            0,
            400_000,
        );
        bench.transmit();
        bench.pass(20);
        let una = bench.connection.snd_una();
        for piece in 1..=pieces {
            bench.receive(
                Flags::ACK,
                bench.peer_nxt,
                una.wrapping_add(piece * FULL / pieces),
                0,
                400_000,
            );
            bench.transmit();
        }
        assert_eq!(bench.connection.snd_una(), una.wrapping_add(FULL));
        bench
            .connection
            .snd_nxt()
            .wrapping_sub(bench.connection.snd_una())
    };
    let whole = open_after(1);
    assert!(whole > 2 * FULL);
    for pieces in [2, 10, 100, 500] {
        assert!(
            open_after(pieces) <= whole,
            "{pieces} pieces: {} octets in flight, {whole} by one",
            open_after(pieces)
        );
    }
}

/// Duplicate acknowledgements without end do not make the connection send more than the window takes.
#[test]
fn a_storm_of_duplicates_sends_no_more_than_the_window() {
    let mut bench = connection(0);
    bench.connection.queue(100_000);
    bench.transmit();
    let una = bench.connection.snd_una();
    let mut segments = 0;
    for _ in 0..10_000 {
        bench.receive(Flags::ACK, bench.peer_nxt, una, 0, MAX_SND_WND);
        segments += bench.transmit().len();
        assert!(bench.connection.snd_nxt().wrapping_sub(una) <= MAX_SND_WND);
    }
    assert!(
        segments <= 20,
        "{segments} segments for 10,000 duplicates at one moment"
    );
}

fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut options = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
    for (left, right) in blocks {
        options.extend(left.to_be_bytes());
        options.extend(right.to_be_bytes());
    }
    options
}

/// SACK blocks that lie, in any number: nothing is freed, nothing sent beyond the window, and what was lost is sent again.
#[test]
fn selective_acknowledgements_that_lie_lose_nothing() {
    type Lie = fn(u32, u32) -> Vec<(u32, u32)>;
    let lies: [(&str, Lie); 9] = [
        ("beyond SND.NXT", |_, nxt| {
            vec![(nxt.wrapping_add(1000), nxt.wrapping_add(2000))]
        }),
        ("across SND.NXT", |una, nxt| {
            vec![(una.wrapping_add(FULL), nxt.wrapping_add(1))]
        }),
        ("below SND.UNA", |una, _| {
            vec![(una.wrapping_sub(2000), una.wrapping_sub(1000))]
        }),
        ("across SND.UNA", |una, _| {
            vec![(una.wrapping_sub(1000), una.wrapping_add(1000))]
        }),
        ("inverted", |una, nxt| vec![(nxt, una)]),
        ("empty", |una, _| {
            vec![(una.wrapping_add(FULL), una.wrapping_add(FULL))]
        }),
        ("overlapping", |una, _| {
            let at = |octets: u32| una.wrapping_add(octets);
            vec![
                (at(500), at(2000)),
                (at(1000), at(2500)),
                (at(500), at(2500)),
                (at(1999), at(2001)),
            ]
        }),
        ("half the space away", |una, _| {
            vec![(una.wrapping_add(1 << 31), una.wrapping_add((1 << 31) + 500))]
        }),
        ("everything", |una, nxt| vec![(una, nxt)]),
    ];
    for (name, lie) in lies {
        let mut bench = connection(0);
        bench.connection.queue(4000);
        bench.transmit();
        let (una, nxt) = (bench.connection.snd_una(), bench.connection.snd_nxt());
        assert_eq!(nxt.wrapping_sub(una), 4000);
        for _ in 0..20 {
            bench.receive_with(
                Flags::ACK,
                bench.peer_nxt,
                una,
                0,
                MAX_SND_WND,
                &sack(&lie(una, nxt)),
            );
            let sent = bench.transmit();
            // What lies in [SND.UNA, SND.NXT] may be believed, and then something was lost.
            if !["overlapping", "everything"].contains(&name) {
                assert!(sent.is_empty(), "{name}: a loss is seen: {sent:?}");
            }
            for sent in sent {
                let right = sent.seq.wrapping_sub(una) + sent.seg_len();
                assert!(right <= MAX_SND_WND, "{name}: {sent:?}");
            }
        }
        assert_eq!(
            (bench.connection.snd_una(), bench.connection.acknowledged()),
            (una, 0),
            "{name}"
        );
        // The peer has received nothing of it; what it has said about it, it takes back (RFC 2018 section 8). It acknowledges what comes in order.
        let mut got = una;
        for _ in 0..400 {
            for sent in bench.transmit_within(DELAY) {
                if sent.seq == got {
                    got = got.wrapping_add(sent.seg_len());
                } else if sent.len > 0 && (got.wrapping_sub(sent.seq) as i32) > 0 {
                    got = got.max(sent.seq.wrapping_add(sent.seg_len()));
                }
            }
            if got != bench.connection.snd_una() {
                bench.acknowledge_to(got);
            }
        }
        assert_eq!(bench.connection.snd_una(), nxt, "{name}: all is sent again");
        works(&mut bench);
    }
}

/// Options of every length and kind, cut anywhere, are no reason to stop.
#[test]
fn options_of_any_shape_do_no_harm() {
    let mut bench = connection(1000);
    let before = bench.view();
    let mut random = Random(1);
    for _ in 0..100_000 {
        let mut options: Vec<u8> = (0..random.below(41))
            .map(|_| random.next() as u8 & 0x0f)
            .collect();
        if random.below(2) == 0 && options.len() > 2 {
            options[0] = 5;
        }
        bench.receive_with(
            Flags::ACK,
            bench.peer_nxt,
            before.snd_una,
            0,
            MAX_SND_WND,
            &options,
        );
        bench.transmit();
    }
    assert_eq!(bench.connection.snd_una(), before.snd_una);
    assert_eq!(bench.connection.rcv_nxt(), before.rcv_nxt);
    works(&mut bench);
}

// ---- A peer that plays with its window

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

/// Nor does this end tell of a window that opens octet by octet (3.8.6.2.2): neither by itself nor in what it sends anyhow.
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

/// A peer that fills whatever window it is told, before a reader of single octets, does not come to send tinygrams.
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

/// A caller that has less room than it told: the right edge stays where it was told (3.8.6, a receiver should not shrink its window), but for what the
/// scaled field cannot say.
#[test]
fn the_right_edge_is_not_taken_back() {
    for scale in [false, true] {
        let mut bench = Bench::established(1, 2, scale, false);
        let told = bench.right_edge;
        for (buffer, free) in [(WINDOW, 100), (WINDOW, 0), (100, 100), (1, 1), (0, 0)] {
            (bench.buffer, bench.free) = (buffer, free);
            bench.receive_next(Flags::ACK, 10);
            let sent = bench.transmit_within(DELAY);
            assert_eq!(sent.len(), 1);
            let back = told.wrapping_sub(sent[0].ack.wrapping_add(sent[0].wnd)) as i32;
            let lost = if scale { 255 } else { 0 };
            assert!((0..=lost).contains(&back), "taken back by {back}");
            assert_eq!(
                bench.connection.rcv_wnd(),
                told.wrapping_sub(bench.peer_nxt)
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
            "too little to tell of by itself"
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

// ---- A peer that is silent

/// Everything until CLOSED, without an answer: seconds, and the segments.
fn until_closed(bench: &mut Bench) -> (i64, Vec<(Instant, Sent)>) {
    let begin = bench.now;
    let mut all = Vec::new();
    while bench.connection.state() != State::Closed {
        for sent in bench.transmit() {
            all.push((bench.now, sent));
        }
        match bench.connection.poll_at() {
            Some(at) => bench.now = bench.now.max(at),
            None => break,
        }
        assert!(all.len() < 1000, "no end");
    }
    assert_eq!(
        bench.connection.state(),
        State::Closed,
        "nothing is due, and it is not over"
    );
    assert!(bench.transmit().is_empty());
    assert_eq!(bench.connection.poll_at(), None);
    (
        bench.now.total_millis() / 1000 - begin.total_millis() / 1000,
        all,
    )
}

/// Text that is never acknowledged is sent again ever more rarely, and the connection ends (3.8.3).
#[test]
fn a_peer_that_never_acknowledges_ends_the_connection() {
    let mut bench = connection(0);
    bench.connection.queue(2000);
    let (seconds, sent) = until_closed(&mut bench);
    assert_eq!(bench.connection.error(), Some(Error::TimedOut));
    assert!((20..=1000).contains(&seconds), "{seconds} s");
    let times: Vec<i64> = sent.iter().map(|(at, _)| at.total_millis()).collect();
    let gaps: Vec<i64> = times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .filter(|gap| *gap > 0)
        .collect();
    assert!(
        gaps.len() >= 3 && gaps.windows(2).all(|pair| pair[1] >= pair[0]),
        "{gaps:?} ms"
    );
    assert!(sent.len() < 40, "{} segments to a silent peer", sent.len());
}

#[test]
fn a_syn_and_a_fin_without_an_answer_end() {
    let mut bench = Bench::connect(u32::MAX, 7, false);
    until_closed(&mut bench);
    assert_eq!(bench.connection.error(), Some(Error::TimedOut));
    let mut bench = Bench::accept(u32::MAX, 7, false);
    until_closed(&mut bench);
    let mut bench = connection(0);
    bench.connection.close();
    until_closed(&mut bench);
}

// ---- Overlapping rewrites

/// Text at random places, overlapping what was delivered and what is held: each place is inside the window, no octet that was delivered is written
/// again, nor one that is held by text behind a gap, and an octet counts as delivered when it and all before it have been written.
#[test]
fn overlapping_text_never_rewrites_what_was_delivered() {
    let mut random = Random(9);
    for _ in 0..300 {
        let mut bench = connection(0);
        let begin = bench.connection.rcv_nxt();
        let mut written = HashSet::new();
        for _ in 0..200 {
            let rcv_nxt = bench.connection.rcv_nxt();
            let delivered = rcv_nxt.wrapping_sub(begin);
            let seq = rcv_nxt
                .wrapping_add(random.below(WINDOW + 2000))
                .wrapping_sub(1000);
            let len = 1 + random.below(1000);
            let window = bench.right_edge.wrapping_sub(rcv_nxt);
            let Some(placement) = bench.receive(
                Flags::ACK,
                seq,
                bench.connection.snd_nxt(),
                len as usize,
                MAX_SND_WND,
            ) else {
                assert_eq!(bench.connection.rcv_nxt(), rcv_nxt);
                continue;
            };
            assert_eq!(
                seq.wrapping_add(placement.skip as u32),
                rcv_nxt.wrapping_add(placement.at),
                "its own place"
            );
            assert!(placement.skip + placement.len <= len as usize && placement.len > 0);
            assert!(
                placement.at + placement.len as u32 <= window,
                "inside the window"
            );
            for octet in 0..placement.len as u32 {
                let place = delivered + placement.at + octet;
                let new = written.insert(place);
                assert!(new || placement.at == 0, "octet {place} is written again");
            }
            let new = bench.connection.rcv_nxt().wrapping_sub(begin);
            assert_eq!(new - delivered, placement.advance);
            assert!(
                (delivered..new).all(|octet| written.contains(&octet)),
                "delivered and never written"
            );
            bench.transmit();
        }
        // What is still missing comes, and there is nothing else.
        let highest = written.iter().max().map_or(0, |octet| octet + 1);
        while bench.connection.rcv_nxt().wrapping_sub(begin) < highest {
            let (seq, ack) = (bench.connection.rcv_nxt(), bench.connection.snd_nxt());
            bench
                .receive(Flags::ACK, seq, ack, 100, MAX_SND_WND)
                .expect("the next text is taken");
            bench.transmit();
        }
        bench.peer_nxt = bench.connection.rcv_nxt();
        works(&mut bench);
    }
}

/// Text that was delivered, sent again with other octets: none of it is taken, of text that goes on behind it the rest.
#[test]
fn text_before_the_window_moves_nothing() {
    let mut bench = connection(0);
    let rcv_nxt = bench.connection.rcv_nxt();
    // Wholly delivered text, with other octets.
    for back in [1, 10, 500, 1000] {
        let placement = bench.receive(
            Flags::ACK,
            rcv_nxt.wrapping_sub(back),
            bench.connection.snd_nxt(),
            back as usize,
            100,
        );
        assert!(placement.is_none());
    }
    // Partly delivered: only the rest.
    let placement = bench
        .receive(
            Flags::ACK,
            rcv_nxt.wrapping_sub(300),
            bench.connection.snd_nxt(),
            400,
            100,
        )
        .expect("taken");
    assert_eq!(
        (
            placement.skip,
            placement.len,
            placement.at,
            placement.advance
        ),
        (300, 100, 0, 100)
    );
    assert_eq!(bench.connection.rcv_nxt(), rcv_nxt.wrapping_add(100));
}

/// A gap behind every second octet: what is remembered stays bounded, and what was told is still right when the gaps are filled.
#[test]
fn a_thousand_gaps_are_bounded_and_right() {
    let mut bench = connection(0);
    let begin = bench.connection.rcv_nxt();
    let ack = bench.connection.snd_nxt();
    let mut held = HashSet::new();
    for octet in (1..WINDOW).step_by(2) {
        if let Some(placement) = bench.receive(Flags::ACK, begin.wrapping_add(octet), ack, 1, 100) {
            assert_eq!(
                (placement.at, placement.len, placement.advance),
                (octet, 1, 0)
            );
            held.insert(octet);
        }
        bench.transmit();
    }
    assert!(!held.is_empty());
    let mut delivered = 0;
    while delivered < WINDOW {
        let octet = delivered;
        let placement = bench
            .receive(Flags::ACK, begin.wrapping_add(octet), ack, 1, 100)
            .expect("the next octet is taken");
        let run = (octet + 1..WINDOW)
            .take_while(|next| held.contains(next))
            .count() as u32;
        assert!(
            placement.advance >= 1 && placement.advance <= 1 + run,
            "{} delivered, {run} held",
            placement.advance
        );
        delivered += placement.advance;
        bench.transmit();
    }
    assert_eq!(bench.connection.rcv_nxt(), begin.wrapping_add(delivered));
}

// ---- Initial sequence numbers (RFC 6528)

fn tuple(local_port: u16, remote: &str) -> (SocketAddr, SocketAddr) {
    (
        SocketAddr::new("192.0.2.7".parse().unwrap(), local_port),
        remote.parse().unwrap(),
    )
}

/// 1,000 connections to one server, port after port, one each 10 ms, as an attacker who owns the server sees them. Each rule that has foretold
/// numbers of other stacks is tried on each successor, and finds none, nor comes within a window of it.
#[test]
fn no_rule_foretells_the_next_initial_sequence_number() {
    let generator = InitialSequence::new(*b"sixteen octets..");
    let mut now = Instant::from_micros(0);
    let mut numbers = Vec::new();
    for index in 0..1000_u16 {
        let (local, remote) = tuple(49_152 + index, "198.51.100.1:80");
        numbers.push(generator.iss(local, remote, now));
        now = now + Duration::from_millis(10);
    }
    assert_eq!(
        numbers.iter().collect::<HashSet<_>>().len(),
        1000,
        "all differ"
    );
    let tick = 2500;
    let mut hits: HashMap<&str, usize> = HashMap::new();
    for seen in numbers.windows(5) {
        let [a, b, c, d, next] = seen else {
            unreachable!()
        };
        let (ab, bc, cd) = (b.wrapping_sub(*a), c.wrapping_sub(*b), d.wrapping_sub(*c));
        let mut guess = |rule: &'static str, number: u32| {
            // A spoofed segment needs the number within a window.
            let near = number.wrapping_sub(*next).min(next.wrapping_sub(number)) < 1 << 16;
            *hits.entry(rule).or_default() += usize::from(near);
        };
        guess("the same", *d);
        guess("the clock alone", d.wrapping_add(tick));
        guess("constant difference", d.wrapping_add(cd));
        guess("the difference before", d.wrapping_add(bc));
        let times = |factor: u32, number: &u32| number.wrapping_mul(factor);
        guess(
            "second differences",
            times(3, d).wrapping_sub(times(3, c)).wrapping_add(*b),
        );
        let cubic = times(4, d)
            .wrapping_sub(times(6, c))
            .wrapping_add(times(4, b))
            .wrapping_sub(*a);
        guess("third differences", cubic);
        guess("the one before", *c);
        guess("the last exclusive or", d ^ (b ^ c));
        if let Some(multiplier) = inverse(ab).map(|inverse| bc.wrapping_mul(inverse)) {
            // LCG modulo 2^32: x' = m x + k, from three differences of an odd first.
            guess(
                "linear congruential",
                d.wrapping_add(cd.wrapping_mul(multiplier)),
            );
        }
        for (shift, rule) in [(13, "xorshift 13"), (17, "xorshift 17"), (5, "xorshift 5")] {
            guess(rule, d ^ (d << shift));
            guess(rule, d ^ (d >> shift));
        }
    }
    // A blind guess is within 2^16 on either side in 1 of 32,768 tries: of about 1,000 tries a rule, 3 would already be a finding.
    for (rule, hits) in &hits {
        assert!(*hits < 3, "{rule}: {hits} of 996 successors");
    }
    assert!(hits.len() >= 11, "{hits:?}");
}

/// The inverse of an odd number modulo 2^32.
fn inverse(odd: u32) -> Option<u32> {
    let mut x = odd;
    for _ in 0..5 {
        x = x.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(x)));
    }
    (odd & 1 == 1).then_some(x)
}

/// Each bit of the number, the low ones too, is set in half of the connections, and changes in half of the steps.
#[test]
fn every_bit_of_an_initial_sequence_number_is_even() {
    let generator = InitialSequence::new([7; 16]);
    let now = Instant::from_micros(123_456);
    let numbers: Vec<u32> = (0..4000)
        .map(|port| {
            let (local, remote) = tuple(port, "[2001:db8::1]:443");
            generator.iss(local, remote, now)
        })
        .collect();
    for bit in 0..32 {
        let set = numbers
            .iter()
            .filter(|number| *number >> bit & 1 == 1)
            .count();
        let changes = numbers
            .windows(2)
            .filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1)
            .count();
        // Of 4,000 coins, 5 standard deviations.
        assert!((1840..2160).contains(&set), "bit {bit}: {set} of 4,000");
        assert!(
            (1840..2160).contains(&changes),
            "bit {bit}: {changes} changes"
        );
    }
}

/// The secret and each part of the four-tuple count: with one changed, the number says nothing about the other, and between two tuples the difference
/// is another with another secret, so that one measured on one machine says nothing about the next.
#[test]
fn secret_and_every_part_of_the_tuple_count() {
    let now = Instant::from_micros(1_000_000);
    let tuples = [
        ("192.0.2.7:50000", "198.51.100.1:80"),
        ("192.0.2.8:50000", "198.51.100.1:80"),
        ("192.0.2.7:50001", "198.51.100.1:80"),
        ("192.0.2.7:50000", "198.51.100.2:80"),
        ("192.0.2.7:50000", "198.51.100.1:81"),
        ("198.51.100.1:80", "192.0.2.7:50000"),
        ("[2001:db8::7]:50000", "[2001:db8::1]:80"),
        ("[2001:db8::8]:50000", "[2001:db8::1]:80"),
        ("[2001:db8::7]:50000", "[2001:db8::2]:80"),
    ];
    let mut numbers = HashSet::new();
    let mut differences = HashSet::new();
    for secret in 0..50_u8 {
        let mut key = [0; 16];
        key[usize::from(secret % 16)] = secret + 1;
        let generator = InitialSequence::new(key);
        let iss: Vec<u32> = tuples
            .iter()
            .map(|(local, remote)| {
                generator.iss(local.parse().unwrap(), remote.parse().unwrap(), now)
            })
            .collect();
        differences.insert(iss[0].wrapping_sub(iss[1]));
        numbers.extend(iss);
    }
    assert_eq!(numbers.len(), 50 * tuples.len());
    assert_eq!(differences.len(), 50);
}

/// For the same four-tuple the number grows with a clock of 4 microseconds (3.4.1), so that an old connection's segments are not taken for the
/// new one's.
#[test]
fn the_same_tuple_goes_up_with_the_clock() {
    let generator = InitialSequence::new([9; 16]);
    let (local, remote) = tuple(50_000, "198.51.100.1:80");
    let at = |micros: i64| generator.iss(local, remote, Instant::from_micros(micros));
    for begin in [0_i64, 1 << 34, (1 << 34) - 2, 77_777_777] {
        for ticks in [1_i64, 2, 1000, 250_000] {
            assert_eq!(
                at(begin + 4 * ticks).wrapping_sub(at(begin)),
                ticks as u32,
                "{ticks} ticks from {begin}"
            );
        }
    }
}

/// xorshift, for places; no secret depends on it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.next() >> 16) as u32 % end
    }
}
