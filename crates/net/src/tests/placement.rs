//! A card that writes payload to where it belongs, and believes all that it reads.

use super::IpVersion;
use super::forged::{Bench, LEN, STEP};
use wireboot_tcp::Flags;

fn each(test: fn(Bench)) {
    for version in IpVersion::BOTH {
        test(Bench::placing(version));
    }
}

#[test]
fn a_file_is_placed() {
    each(|mut bench| {
        while bench.position < LEN {
            bench.go_on();
        }
        // All but what the host could send at first, and the last of it.
        assert!(bench.placed() > LEN as u64 / 2, "{}", bench.placed());
        bench.finishes();
    });
}

/// Goes on until the card places what comes next.
fn go_on_until_placed(bench: &mut Bench) {
    while bench.placed() == 0 {
        bench.go_on();
    }
    bench.run_until_idle();
}

/// So many segments come at once. Then the host begins again with the first of them.
fn burst(bench: &mut Bench, count: usize) {
    let position = bench.position;
    for _ in 0..count {
        bench.send(&bench.segment(STEP).frame());
        bench.position += STEP;
    }
    // All are there at the next turn.
    bench.clock.advance(1000);
    bench.run_until_idle();
    bench.position = position;
}

/// Segments come to the buffers whose places a card has: none of them counts, also none behind a gap, until the card has given the memory back.
#[test]
fn nothing_is_taken_whose_place_a_card_has() {
    for lost in [0, STEP] {
        for version in IpVersion::BOTH {
            let mut bench = Bench::placing(version);
            go_on_until_placed(&mut bench);
            let (next, _) = bench.window();
            let position = bench.position;
            bench.engine.nic_mut().forget_memory();
            bench.position += lost;
            burst(&mut bench, 4);
            assert_eq!((bench.window().0, bench.out_of_order()), (next, 0));
            bench.position = position;
            bench.finishes();
        }
    }
}

/// Somebody who knows the next number, but not what the engine has sent: the card has put his text to its place when the engine refuses it. None
/// of it stays there.
#[test]
fn forged_text_that_was_placed_is_overwritten() {
    each(|mut bench| {
        go_on_until_placed(&mut bench);
        let (next, _) = bench.window();
        let mut forged = bench.forged();
        forged.ack = forged.ack.wrapping_add(1 << 30);
        forged.payload.resize(1400, b'?');
        bench.send(&forged.frame());
        bench.run_until_idle();
        assert_eq!(bench.window().0, next);
        // What the host sends is not the card's next, and has no room in the buffers' way: it has to come again.
        burst(&mut bench, 3);
        assert_eq!(bench.window().0, next);
        bench.finishes();
    });
}

/// The same behind what has come: a gap, to the card too.
#[test]
fn a_gap_ends_it_and_all_is_stored() {
    each(|mut bench| {
        go_on_until_placed(&mut bench);
        let lost = bench.position;
        bench.position += STEP;
        bench.go_on();
        bench.go_on();
        assert_eq!(bench.out_of_order(), 3 * STEP as u32);
        let behind = bench.position;
        bench.position = lost;
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(bench.out_of_order(), 0);
        bench.position = behind;
        bench.finishes();
    });
}

/// The reader goes away while the card has memory. It has to give that back before somebody else uses it.
#[test]
fn the_end_of_the_memory_moves() {
    each(|mut bench| {
        go_on_until_placed(&mut bench);
        let end = bench.position + STEP / 2;
        bench.shorten(end);
        bench.go_on();
        bench.run_until_idle();
        bench.position -= STEP;
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(*bench.done.borrow(), Some(Ok(end)));
    });
}

/// The file ends early, and the card does not give back what it was lent: what lies there cannot be read, so it does not count.
#[test]
fn memory_that_a_card_keeps_is_not_counted() {
    each(|mut bench| {
        go_on_until_placed(&mut bench);
        bench.go_on();
        bench.engine.nic_mut().keep_memory();
        let mut fin = bench.segment(0);
        fin.flags = Flags::ACK | Flags::FIN;
        bench.send(&fin.frame());
        bench.run_until_idle();
        assert_eq!(*bench.done.borrow(), None, "it may come back");
        bench.clock.advance(200_000);
        bench.run_until_idle();
        let done = *bench.done.borrow();
        let Some(Ok(count)) = done else {
            panic!("{done:?}")
        };
        assert!(count > 0 && count < bench.position, "{count}");
        assert_eq!(bench.readable(), count);
    });
}

/// The reader takes memory of which a card still has some, while segments lie behind a gap: they come again, to their place.
#[test]
fn what_lies_behind_a_gap_counts_for_nothing_where_a_card_has_its_place() {
    for version in IpVersion::BOTH {
        let (mut bench, begins, lent) = Bench::beside_a_loan(version);
        bench.position = STEP;
        bench.go_on();
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(bench.out_of_order(), 3 * STEP as u32);
        begins.set(true);
        bench.run_until_idle();
        bench.position = 0;
        bench.go_on();
        bench.run_until_idle();
        drop(lent);
        bench.finishes();
    }
}
