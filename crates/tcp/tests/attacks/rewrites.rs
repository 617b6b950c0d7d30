//! Text and FINs that overlap what was delivered and what is held.

use crate::bench::MAX_SND_WND;
use crate::bench::WINDOW;
use crate::{Random, connection, works};
use std::collections::HashSet;
use wireboot_tcp::{Flags, State};

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
            let Some(range) = bench.receive(
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
                seq.wrapping_add(range.skip as u32),
                rcv_nxt.wrapping_add(range.at),
                "its own place"
            );
            assert!(range.skip + range.len <= len as usize && range.len > 0);
            assert!(range.at + range.len as u32 <= window, "inside the window");
            for octet in 0..range.len as u32 {
                let place = delivered + range.at + octet;
                let new = written.insert(place);
                assert!(new || range.at == 0, "octet {place} is written again");
            }
            let new = bench.connection.rcv_nxt().wrapping_sub(begin);
            assert_eq!(new - delivered, range.advance);
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
        let range = bench.receive(
            Flags::ACK,
            rcv_nxt.wrapping_sub(back),
            bench.connection.snd_nxt(),
            back as usize,
            100,
        );
        assert!(range.is_none());
    }
    // Partly delivered: only the rest.
    let range = bench
        .receive(
            Flags::ACK,
            rcv_nxt.wrapping_sub(300),
            bench.connection.snd_nxt(),
            400,
            100,
        )
        .expect("taken");
    assert_eq!(
        (range.skip, range.len, range.at, range.advance),
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
        if let Some(range) = bench.receive(Flags::ACK, begin.wrapping_add(octet), ack, 1, 100) {
            assert_eq!((range.at, range.len, range.advance), (octet, 1, 0));
            held.insert(octet);
        }
        bench.transmit();
    }
    assert!(
        (100..1000).contains(&held.len()),
        "{} gaps are remembered",
        held.len()
    );
    let mut delivered = 0;
    while delivered < WINDOW {
        let octet = delivered;
        let range = bench
            .receive(Flags::ACK, begin.wrapping_add(octet), ack, 1, 100)
            .expect("the next octet is taken");
        let run = (octet + 1..WINDOW)
            .take_while(|next| held.contains(next))
            .count() as u32;
        assert!(
            range.advance >= 1 && range.advance <= 1 + run,
            "{} delivered, {run} held",
            range.advance
        );
        delivered += range.advance;
        bench.transmit();
    }
    assert_eq!(bench.connection.rcv_nxt(), begin.wrapping_add(delivered));
}

/// A FIN in the window below text that is held: there is text behind it, so that it is none, and the text is delivered.
#[test]
fn a_forged_fin_does_not_cut_what_is_held() {
    let mut bench = connection(0);
    let (begin, ack) = (bench.connection.rcv_nxt(), bench.connection.snd_nxt());
    let at = |octets: u32| begin.wrapping_add(octets);
    bench
        .receive(Flags::ACK, at(1000), ack, 500, 4000)
        .expect("held");
    for fin in [500, 999, 1000, 1499] {
        bench.receive(Flags::ACK | Flags::FIN, at(fin), ack, 0, 4000);
    }
    bench
        .receive(Flags::ACK, begin, ack, 1000, 4000)
        .expect("the gap");
    assert_eq!(bench.connection.rcv_nxt(), at(1500));
    assert_eq!(bench.connection.state(), State::Established);
    bench.peer_nxt = at(1500);
    works(&mut bench);
}

/// Text behind a FIN that waits for a gap to be filled is not taken: the FIN was the last octet.
#[test]
fn nothing_comes_behind_a_fin() {
    let mut bench = connection(0);
    let (begin, ack) = (bench.connection.rcv_nxt(), bench.connection.snd_nxt());
    let at = |octets: u32| begin.wrapping_add(octets);
    bench.receive(Flags::ACK | Flags::FIN, at(1000), ack, 0, 4000);
    assert!(
        bench
            .receive(Flags::ACK, at(1001), ack, 100, 4000)
            .is_none()
    );
    let range = bench
        .receive(Flags::ACK, at(900), ack, 200, 4000)
        .expect("before the FIN");
    assert_eq!((range.at, range.len), (900, 100));
    // Another FIN, elsewhere, changes nothing.
    bench.receive(Flags::ACK | Flags::FIN, at(2000), ack, 0, 4000);
    bench
        .receive(Flags::ACK, begin, ack, 900, 4000)
        .expect("the gap");
    assert_eq!(bench.connection.rcv_nxt(), at(1001));
    assert_eq!(bench.connection.state(), State::CloseWait);
}

/// Ten thousand segments behind a gap at one moment are not ten thousand acknowledgements.
#[test]
fn a_burst_behind_a_gap_is_answered_in_bounds() {
    let mut bench = connection(0);
    let ack = bench.connection.snd_nxt();
    for _ in 0..10_000 {
        bench.receive(
            Flags::ACK,
            bench.peer_nxt.wrapping_add(1000),
            ack,
            100,
            4000,
        );
    }
    let sent = bench.transmit();
    assert!(
        (3..=100).contains(&sent.len()),
        "{} acknowledgements",
        sent.len()
    );
    works(&mut bench);
}
