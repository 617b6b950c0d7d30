//! What a hostile peer, or somebody who sees no segment of the connection, may try; and what must come of it: nothing.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

mod anything;
#[path = "../bench/mod.rs"]
mod bench;
mod blind;
mod isn;
mod liars;
mod rewrites;
mod silence;
mod windows;

use bench::{Bench, DELAY, MSS, Sent, WINDOW};
use wireboot_tcp::{Flags, Instant, State};

const FULL: u32 = MSS as u32;

/// ESTABLISHED, text sent and taken both ways, `flight` octets on their way.
fn connection(flight: u32) -> Bench {
    let mut bench = Bench::established(0xffff_f000, 0x7fff_f000, true, false);
    bench.send(6000);
    bench.take(2000);
    bench.connection.queue(flight);
    bench.transmit();
    bench.receive_widest_window();
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

/// A SACK option (RFC 2018, section 3), behind two that fill up the word.
fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut options = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
    for (left, right) in blocks {
        options.extend(left.to_be_bytes());
        options.extend(right.to_be_bytes());
    }
    options
}

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
