//! A peer that lies about what it has received.

use crate::bench::{Bench, DELAY, MAX_SND_WND};
use crate::{FULL, Random, connection, sack, works};
use wireboot_tcp::Flags;

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

/// Blocks that are not in [SND.UNA, SND.NXT] are no sign of a loss: the congestion window is what it was.
#[test]
fn a_lie_about_what_has_come_costs_no_congestion_window() {
    let in_flight_after = |block: Option<(i64, i64)>| {
        let mut bench = Bench::established(0xffff_f000, 7, true, false);
        let una = bench.connection.snd_una();
        let wide = |bench: &mut Bench, ack: u32, options: &[u8]| {
            bench.receive_with(Flags::ACK, bench.peer_nxt, ack, 0, 400_000, options);
        };
        wide(&mut bench, una, &[]);
        bench.connection.queue(100_000);
        bench.transmit();
        let from = |octets: i64| una.wrapping_add(octets as u32);
        for _ in 0..5 {
            let options = block.map_or(Vec::new(), |(left, right)| {
                sack(&[(from(left), from(right))])
            });
            if !options.is_empty() {
                wide(&mut bench, una, &options);
            }
            assert!(bench.transmit().is_empty(), "{block:?}");
        }
        bench.pass(10);
        let nxt = bench.connection.snd_nxt();
        wide(&mut bench, nxt, &[]);
        bench.transmit();
        bench.connection.snd_nxt().wrapping_sub(nxt)
    };
    let honest = in_flight_after(None);
    assert!(honest > 10 * FULL);
    for block in [
        (-2000, 504),
        (-2000, -1000),
        (-1, 1),
        (504, 1 << 20),
        (1 << 31, (1 << 31) + 1),
    ] {
        assert_eq!(in_flight_after(Some(block)), honest, "{block:?}");
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
