//! Somebody who sees nothing and guesses (RFC 5961).

use crate::bench::Bench;
use crate::bench::{DELAY, MAX_SND_WND, WINDOW};
use crate::{connection, spray, works};
use wireboot_tcp::{Error, Flags, State};

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
        if !(WINDOW..=u32::MAX - 200).contains(&place) {
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

/// The window is what was advertised, not what could be stored: what the peer was never offered, it may not write.
#[test]
fn text_beyond_the_advertised_window_is_cut() {
    let mut bench = connection(0);
    let rcv_nxt = bench.connection.rcv_nxt();
    let advertised = bench.right_edge.wrapping_sub(rcv_nxt);
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
    let range = bench
        .receive(
            Flags::ACK,
            rcv_nxt,
            bench.connection.snd_nxt(),
            advertised as usize + 700,
            100,
        )
        .expect("taken");
    assert_eq!(
        (range.skip, range.len, range.at, range.advance),
        (0, advertised as usize, 0, advertised)
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
        ("old, without text", |b| {
            (
                Flags::ACK,
                b.peer_nxt.wrapping_sub(500),
                b.connection.snd_una(),
                0,
            )
        }),
        ("beyond the window, without text", |b| {
            (
                Flags::ACK,
                b.right_edge.wrapping_add(1),
                b.connection.snd_una(),
                0,
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

/// A flood that asks for challenge ACKs does not silence the answer to a peer whose text has come and whose acknowledgement was lost.
#[test]
fn a_flood_does_not_silence_the_answer_to_a_retransmission() {
    let mut bench = connection(0);
    bench.receive_next(Flags::ACK, 100);
    bench.transmit_within(DELAY);
    for _ in 0..1000 {
        bench.receive(Flags::SYN, bench.peer_nxt, 0, 0, 100);
        bench.transmit();
    }
    let (seq, una) = (bench.peer_nxt.wrapping_sub(100), bench.connection.snd_una());
    for _ in 0..3 {
        assert!(bench.receive(Flags::ACK, seq, una, 100, 4000).is_none());
        let sent = bench.transmit();
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert_eq!((sent[0].flags, sent[0].ack), (Flags::ACK, bench.peer_nxt));
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
