//! What is done to a boot, chosen at random from a seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use serde::Serialize;

use crate::protocol::TransferProtocol;
use wireboot_lab::Impairment;

/// What a boot is disturbed by, or what is unusual about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The boot is not disturbed.
    Nothing,
    /// The server ends in the middle of the transfer, and another one starts.
    ServerKilled,
    /// The cable is pulled out and put back in the middle of the transfer.
    LinkFlap,
    /// The cable loses and delays frames.
    LossyWire,
    /// Somebody still sends a file to the machine while the kernel ends the boot services: datagrams of a transfer that the receiver has
    /// left. (wireboot itself has fetched everything, or cancelled it, before it starts anything.)
    TransferAtHandover,
    /// The first boot finds no kernel. wireboot gives the card back, and the firmware's next boot option loads wireboot again with its
    /// own driver.
    NextBootOption,
    /// wireboot starts itself as an EFI program: the card goes back to the firmware and is taken again.
    StartedAgain,
    /// wireboot starts shim, and GRUB loads the kernel over wireboot's network: boot services end with the card, and what leads to it, in
    /// use.
    Loaders,
}

impl Fault {
    /// Each of them once, for chance to choose among.
    pub const ALL: [Self; 8] = [
        Self::Nothing,
        Self::ServerKilled,
        Self::LinkFlap,
        Self::LossyWire,
        Self::TransferAtHandover,
        Self::NextBootOption,
        Self::StartedAgain,
        Self::Loaders,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::ServerKilled => "server killed",
            Self::LinkFlap => "link flap",
            Self::LossyWire => "lossy wire",
            Self::TransferAtHandover => "transfer at hand-over",
            Self::NextBootOption => "next boot option",
            Self::StartedAgain => "wireboot started again",
            Self::Loaders => "shim and GRUB",
        })
    }
}

/// How many engines wireboot has, each on a processor of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engines {
    /// None: the BSP does it all.
    None,
    /// One, as without a setting.
    One,
    /// As many as the machine has processors for, and [`Engines::MOST`] at most, each on a queue pair of the card.
    Several,
}

impl Engines {
    /// More need more memory, and show nothing new.
    pub const MOST: u32 = 3;

    /// Their number on a machine with so many processors.
    #[must_use]
    pub fn number(self, processors: u32) -> u32 {
        let others = processors.saturating_sub(1);
        match self {
            Self::None => 0,
            Self::One => others.min(1),
            Self::Several => others.min(Self::MOST),
        }
    }
}

/// One boot, with nothing left to chance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What it is disturbed by.
    pub fault: Fault,
    /// How many engines there are.
    pub engines: Engines,
    /// How the data comes. Kernel and RAM disk come by HTTP.
    pub protocol: TransferProtocol,
    /// Which share of the data has come when the transfer is disturbed, 0 to 1.
    pub at: f64,
    /// How often the cable is pulled.
    pub flaps: u32,
    /// For how long the server or the cable is gone each time.
    pub gone: Duration,
    /// Frames a second to the machine while the kernel ends the boot services. Few enough not to fill the receive queue before: a full
    /// one would stand still.
    pub frames: u32,
    /// How the cable loses, delays and slows frames; `None` for a good one.
    #[serde(skip)]
    pub impairment: Option<Impairment>,
}

impl Plan {
    /// The boot of this number in the run with this seed, whatever the others are.
    #[must_use]
    pub fn new(seed: u64, number: u32) -> Self {
        let mut random = Rng::with_seed(mixed(seed, number));
        let fault = random.choice(Fault::ALL).unwrap_or(Fault::Nothing);
        Self::with(fault, random)
    }

    /// A boot with this fault; the rest is chosen as for the boot of this number in the run with this seed.
    #[must_use]
    pub fn with_fault(fault: Fault, seed: u64, number: u32) -> Self {
        Self::with(fault, Rng::with_seed(mixed(seed, number)))
    }

    fn with(fault: Fault, mut random: Rng) -> Self {
        let protocol = if random.bool() {
            TransferProtocol::Http
        } else {
            TransferProtocol::Tftp
        };
        let at = between(&mut random, 0.05, 0.8);
        let flaps = random.u32(1..=3);
        let gone = Duration::from_secs_f64(between(&mut random, 0.2, 1.5));
        let frames = random.u32(20..=100);
        let cable = Impairment {
            loss: 0.0,
            delay: Duration::ZERO,
            rate: None,
            seed: random.u64(..),
        };
        let impairment = match fault {
            // Slow enough to be met in the middle.
            Fault::ServerKilled | Fault::LinkFlap => Some(Impairment {
                rate: Some(random.u64(40..=80) * 1_000_000),
                ..cable
            }),
            Fault::LossyWire => Some(Impairment {
                loss: between(&mut random, 0.001, 0.01),
                delay: Duration::from_micros(random.u64(0..=5000)),
                ..cable
            }),
            _ => None,
        };
        let engines = [Engines::None, Engines::One, Engines::Several];
        Self {
            fault,
            engines: random.choice(engines).unwrap_or(Engines::One),
            protocol,
            at,
            flaps,
            gone,
            frames,
            impairment,
        }
    }

    /// What matters of it, for people.
    #[must_use]
    pub fn detail(&self) -> String {
        let (at, gone) = (self.at * 100.0, self.gone.as_secs_f64());
        let protocol = self.protocol.scheme();
        match (self.fault, &self.impairment) {
            (Fault::ServerKilled, _) => format!("{protocol}, at {at:.0} %, back after {gone:.1} s"),
            (Fault::LinkFlap, _) => {
                format!("{protocol}, from {at:.0} %, {} x {gone:.1} s", self.flaps)
            }
            (Fault::LossyWire, Some(cable)) => format!(
                "{protocol}, {:.1} % lost, {:.1} ms one way",
                cable.loss * 100.0,
                cable.delay.as_secs_f64() * 1e3
            ),
            (Fault::TransferAtHandover, _) => format!("{protocol}, {} frames/s", self.frames),
            _ => protocol.to_owned(),
        }
    }
}

fn between(random: &mut Rng, low: f64, high: f64) -> f64 {
    low + random.f64() * (high - low)
}

/// A seed for each boot: neighbours get streams that have nothing to do with each other.
fn mixed(seed: u64, number: u32) -> u64 {
    Rng::with_seed(seed).u64(..) ^ Rng::with_seed(u64::from(number)).u64(..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_number_always_mean_the_same_boot() {
        assert_eq!(Plan::new(7, 3), Plan::new(7, 3));
        assert_ne!(Plan::new(7, 3), Plan::new(7, 4));
        assert_ne!(Plan::new(7, 3), Plan::new(8, 3));
    }

    #[test]
    fn every_number_of_engines_has_its_turn() {
        let with = |processors| {
            let mut numbers: Vec<_> = (1..=60)
                .map(|number| Plan::new(1, number).engines.number(processors))
                .collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        assert_eq!(with(8), [0, 1, 3]);
        assert_eq!(with(3), [0, 1, 2]);
        assert_eq!(with(2), [0, 1]);
        assert_eq!(with(1), [0]);
    }

    #[test]
    fn every_fault_has_its_turn() {
        for fault in Fault::ALL {
            assert!(
                (1..=60).any(|number| Plan::new(1, number).fault == fault),
                "{fault}"
            );
        }
    }
}
