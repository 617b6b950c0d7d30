//! Segments of any content, in any state.

use crate::bench::{Bench, MSS, ROOM_BEYOND, WINDOW};
use crate::{Random, sack};
use wireboot_tcp::{Flags, Instant, State};

/// Segments of any content, most of them near what is expected, in any state: no panic, no endless answer, and what must never go back does not.
#[test]
fn segments_of_any_content_break_nothing() {
    let mut random = Random(77);
    for turn in 0..4000_u32 {
        let origin = [1, u32::MAX - 300, 0x7fff_ff00][turn as usize % 3];
        let mut bench = match turn % 4 {
            0 => Bench::connect(origin, origin, turn % 8 < 4),
            1 => Bench::accept(origin, origin, turn % 8 < 4),
            _ => Bench::established(origin, origin, turn % 8 < 4, turn % 16 < 8),
        };
        let mut synchronized = false;
        for _ in 0..60 {
            let before = bench.view();
            let near = |random: &mut Random, number: u32| match random.below(4) {
                0 => number,
                1 => number.wrapping_add(random.below(3)).wrapping_sub(1),
                2 => number
                    .wrapping_add(random.below(20_000))
                    .wrapping_sub(10_000),
                _ => random.next() as u32,
            };
            match random.below(12) {
                0 => bench.connection.queue(random.below(5000)),
                1 => bench.connection.close(),
                2 => bench.pass(random.below(3000).into()),
                3 => bench.free = random.below(WINDOW + 1),
                4 => _ = bench.connection.acknowledged(),
                _ => {
                    let flags = Flags(match random.below(3) {
                        0 => random.next() as u8 & 0x3f,
                        1 => (Flags::ACK | Flags::FIN).0,
                        _ => Flags::ACK.0,
                    });
                    let seq = near(&mut random, before.rcv_nxt);
                    let una_or_nxt = [before.snd_una, before.snd_nxt][random.below(2) as usize];
                    let ack = near(&mut random, una_or_nxt);
                    let len = [0, 1, 100, 70_000][random.below(4) as usize];
                    let blocks = sack(&[(
                        near(&mut random, before.snd_una),
                        near(&mut random, before.snd_nxt),
                    )]);
                    let options: &[u8] = if random.below(2) == 0 { &[] } else { &blocks };
                    let room = bench.free + ROOM_BEYOND;
                    if let Some(range) =
                        bench.receive_with(flags, seq, ack, len, random.below(6000), options)
                    {
                        assert!(range.skip + range.len <= len && range.len > 0);
                        assert!(range.at + range.len as u32 <= room, "beyond the room");
                        assert!(
                            range.at + range.len as u32 <= before.rcv_wnd,
                            "beyond the window"
                        );
                        let moved = bench.connection.rcv_nxt().wrapping_sub(before.rcv_nxt);
                        assert!(range.advance == moved || range.advance + 1 == moved);
                    }
                }
            }
            for sent in bench.transmit() {
                assert!(sent.len <= MSS.into());
            }
            let after = bench.view();
            let moved = |now: u32, then: u32| now.wrapping_sub(then) as i32;
            assert!(
                moved(after.snd_una, before.snd_una) >= 0
                    && moved(after.snd_nxt, after.snd_una) >= 0
            );
            if synchronized {
                assert!(moved(after.rcv_nxt, before.rcv_nxt) >= 0);
                let edge = after.rcv_nxt.wrapping_add(after.rcv_wnd);
                assert!(
                    moved(edge, before.rcv_nxt.wrapping_add(before.rcv_wnd)) >= 0,
                    "the right edge goes back"
                );
            }
            synchronized = after.state != State::SynSent;
            if after.state == State::Closed {
                break;
            }
        }
        until_closed_or_idle(&mut bench);
    }
}

/// Left alone, it comes to rest: nothing is due without end.
fn until_closed_or_idle(bench: &mut Bench) {
    let (mut turns, mut sent) = (0, 0);
    while let Some(at) = bench.connection.poll_at() {
        bench.now = bench.now.max(at);
        sent += bench.transmit().len();
        turns += 1;
        assert!(turns < 1000 && sent < 1000, "no end: {:?}", bench.view());
        if bench.now > Instant::from_micros(3_000_000_000) {
            panic!("after 50 minutes something is due: {:?}", bench.view());
        }
    }
}
