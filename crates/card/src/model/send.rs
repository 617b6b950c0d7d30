//! The sending card: transfers from the host, cut to frames, on the line.

use alloc::vec::Vec;

use super::arrival::Arrival;
use super::latency::Latencies;
use super::line::{Cable, Fate};
use super::time::Picos;
use super::{Bus, Line, on_bus};

/// A card that sends. It has room for two transfers: while the frames of one go, the next one comes.
#[derive(Clone, Copy, Debug)]
pub struct SendingCard {
    /// From the host.
    pub bus: Bus,
    /// Finished frames in a transfer; at least one.
    pub fragments: u32,
}

/// The frames that were sent, and how long they took.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Frames at the other end of the line.
    pub arrivals: Vec<Arrival>,
    /// From the start of a frame's transfer until it has left the card, of those frames.
    pub latencies: Latencies,
}

/// Sends so many transfers of frames with so much payload, as fast as it goes. The same `seed` loses the same frames.
#[must_use]
pub fn send(card: &SendingCard, line: Line, payload: u32, transfers: u32, seed: u64) -> Sent {
    let mut cable = Cable::new(line, seed);
    let frames = card.fragments.max(1);
    let time = card
        .bus
        .transfer(on_bus(payload).saturating_mul(frames as usize));
    let (mut arrivals, mut latencies) = (Vec::new(), Vec::new());
    // When the last transfer has come, and the frames of the one before have gone.
    let (mut come, mut gone) = (Picos::ZERO, Picos::ZERO);
    for _ in 0..transfers {
        let start = come.max(gone);
        come = start + time;
        gone = cable.free();
        for _ in 0..frames {
            if let Fate::Arrives(at) = cable.send(payload, come) {
                arrivals.push(Arrival::new(at, payload));
                latencies.push(cable.free().since(start));
            }
        }
    }
    Sent {
        arrivals,
        latencies: Latencies::new(latencies),
    }
}
