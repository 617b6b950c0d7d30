//! What comes by the line.

use alloc::vec;
use alloc::vec::Vec;

use super::Line;
use super::arrival::Arrival;
use super::line::{Cable, Fate};
use super::random::Random;
use super::receive_offload::{TCP_IP, fragment};
use super::time::Picos;

/// Frames of so much payload, one each `gap`, or as fast as the line. All of the payload counts. The same `seed` loses the same frames.
#[must_use]
pub fn stream(line: Line, payload: u32, frames: u32, gap: Picos, seed: u64) -> Vec<Arrival> {
    let mut cable = Cable::new(line, seed);
    let mut arrivals = Vec::new();
    let mut now = Picos::ZERO;
    for _ in 0..frames {
        if let Fate::Arrives(at) = cable.send(payload, now) {
            arrivals.push(Arrival::new(at, payload));
        }
        now = now + gap;
    }
    arrivals
}

/// What the frames of flows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// TCP's segments, with so much payload each.
    Segments(u32),
    /// Fragments of datagrams that are as long as can be, with an MTU of 1500 bytes.
    Fragments,
}

/// What comes of several flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// How many there are; at least one.
    pub flows: u32,
    /// What their frames are.
    pub of: Frames,
    /// How many come in all.
    pub frames: u32,
    /// The part of the line's time that they take, in %.
    pub percent: u32,
}

/// Frames at equal distances, each of any of the flows. What is lost does not come again. The same `seed` loses and mixes the same.
#[must_use]
pub fn flows(line: Line, mix: Mix, seed: u64) -> Vec<Arrival> {
    let flows = mix.flows.max(1);
    let mut cable = Cable::new(line, seed);
    let mut random = Random::new(!seed);
    let mut numbers = vec![0u64; flows as usize];
    let mut arrivals = Vec::new();
    let mut now = Picos::ZERO;
    for _ in 0..mix.frames {
        let flow = random.below(flows.into()) as u32;
        let Some(next) = numbers.get_mut(flow as usize) else {
            continue;
        };
        let number = *next;
        *next += 1;
        let (payload, data) = match mix.of {
            Frames::Segments(payload) => (payload, payload.saturating_sub(TCP_IP)),
            Frames::Fragments => fragment(number),
        };
        if let Fate::Arrives(at) = cable.send(payload, now) {
            arrivals.push(Arrival {
                at,
                payload,
                data,
                flow,
                number,
            });
        }
        let time = line.frame(payload).times(100).get();
        now = now + Picos::new(time / u64::from(mix.percent.max(1)));
    }
    arrivals
}
