//! The line between two cards: Ethernet, one frame after the other.

use super::random::Random;
use super::throughput::{Rate, Throughput};
use super::time::Picos;

/// Bytes on the line besides a frame's payload: preamble and delimiter (8), link header (14), check sequence (4), gap (12).
pub const OVERHEAD: u32 = 38;
/// A frame has at least so much payload, or is padded.
pub const MIN_PAYLOAD: u32 = 46;

/// Ethernet in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Bits a second, [`OVERHEAD`] included.
    pub rate: Rate,
    /// From one end to the other.
    pub delay: Picos,
    /// Of a million frames so many are lost.
    pub loss: u32,
    /// The longest payload of a frame, in bytes.
    pub mtu: u32,
}

impl Line {
    /// Lines by their names: no delay, no loss, an MTU of 1500 bytes.
    pub const PRESETS: [(&'static str, Self); 4] = [
        ("1g", Self::at_gbit_s(1)),
        ("10g", Self::at_gbit_s(10)),
        ("25g", Self::at_gbit_s(25)),
        ("100g", Self::at_gbit_s(100)),
    ];

    const fn at_gbit_s(gbit_s: u64) -> Self {
        Self {
            rate: Rate::new(gbit_s * 1_000_000_000),
            delay: Picos::ZERO,
            loss: 0,
            mtu: 1500,
        }
    }

    /// The preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::PRESETS
            .into_iter()
            .find_map(|(known, line)| (known == name).then_some(line))
    }

    /// How long the line is busy with a frame of so much payload.
    #[must_use]
    pub fn frame(&self, payload: u32) -> Picos {
        let bytes = u64::from(payload.max(MIN_PAYLOAD)) + u64::from(OVERHEAD);
        self.rate.time_of(bytes)
    }

    /// Bytes that are between its ends at most.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let bits = u128::from(self.rate.get()) * u128::from(self.delay.get()) / 1_000_000_000_000;
        usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX)
    }

    /// What comes through at most with frames of so much payload: of the payload.
    #[must_use]
    pub fn limit(&self, payload: u32) -> Throughput {
        Throughput {
            bytes: payload.into(),
            time: self.frame(payload),
        }
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is at the other end, whole, from this moment on.
    Arrives(Picos),
    /// The line loses it.
    Lost,
    /// It is longer than the MTU and not sent.
    TooLong,
}

/// A line in use.
#[derive(Clone, Debug)]
pub struct Cable {
    line: Line,
    free: Picos,
    random: Random,
}

impl Cable {
    /// The same `seed` loses the same frames.
    #[must_use]
    pub fn new(line: Line, seed: u64) -> Self {
        Self {
            line,
            free: Picos::ZERO,
            random: Random::new(seed),
        }
    }

    /// The moment from which it takes the next frame.
    #[must_use]
    pub fn free(&self) -> Picos {
        self.free
    }

    /// Takes a frame at `now`, or when the one before has gone.
    pub fn send(&mut self, payload: u32, now: Picos) -> Fate {
        if payload > self.line.mtu {
            return Fate::TooLong;
        }
        self.free = self.free.max(now) + self.line.frame(payload);
        if self.random.below(1_000_000) < u64::from(self.line.loss) {
            Fate::Lost
        } else {
            Fate::Arrives(self.free + self.line.delay)
        }
    }
}
