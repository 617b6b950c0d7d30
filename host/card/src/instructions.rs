//! What the card and its guest cost the processor, counted rather than timed: instructions a frame and a byte, by valgrind's callgrind.
//!
//! ```text
//!   Frames, in memory ──> DataPath ──> Card  ── rings ──>  VirtioNet
//!                         └── count_card ───┘
//!   Tftp, in memory ────> DataPath ──> Card  ── rings ──>  VirtioNet ──> Engine ──> TFTP ──> memory
//!                                                          └──────────── count_guest ───────────┘
//! ```
//!
//! Card and guest take turns in one thread, on a clock that counts turns, so that the counts do not depend on the machine. What is on the way of a frame is what
//! `wireboot nic` and wireboot.efi run.

mod bench;
mod frames;
mod report;
mod tftp;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use wireboot_card::coalesce::Limits;
use wireboot_card::{Pace, feature};
use wireboot_fetch::{Command, Event, Lease, LeaseSource, Leases, Service};
use wireboot_net::{Ipv4Addr, Ipv4Cidr, Memory};
use wireboot_nic::{Frame, Nic, Receive};
use wireboot_ring::channel;

use self::bench::Bench;
use self::frames::{CLIENT, Frames, LONGEST, SERVER};
use self::tftp::Tftp;
use crate::data_path::DataPath;

pub use self::report::{Counted, InstructionsReport};

/// Whose instructions are counted, and for which traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The card, each frame a unit of its own.
    CardFrames,
    /// The card, frames in chunks.
    CardChunks,
    /// The guest, TFTP in frames.
    GuestFrames,
    /// The guest, TFTP in frames that come in chunks.
    GuestChunks,
    /// The guest, TFTP in blocks of 65,464 bytes.
    GuestMessages,
}

/// Frames that the wire gives the card in a turn.
const FRAMES_A_TURN: usize = 43;
/// Turns that are counted.
const TURNS: usize = 1000;
/// Bytes of the file that the guest fetches: enough for its beginning not to matter.
const BYTES: usize = 16 << 20;
/// Turns after which what has not ended counts as dead.
const MOST_TURNS: u32 = 1_000_000;
/// From one turn to the next.
const TURN_MICROS: i64 = 20;
/// Commands and events under way.
const MAILBOX: usize = 64;
/// As `--chunk` is by itself.
const CHUNKS: Limits<Duration> = Limits {
    frames: FRAMES_A_TURN,
    bytes: 65_536,
    wait: Duration::ZERO,
};
/// No datagram is longer than a frame.
const SHORT: u64 = feature::KNOWN & !feature::GUEST_UFO;

impl Subject {
    fn chunks(self) -> Option<Limits<Duration>> {
        let none = matches!(self, Self::CardFrames | Self::GuestFrames);
        (!none).then_some(CHUNKS)
    }

    fn features(self) -> u64 {
        if self == Self::GuestMessages {
            feature::KNOWN
        } else {
            SHORT
        }
    }

    fn is_card(self) -> bool {
        matches!(self, Self::CardFrames | Self::CardChunks)
    }

    /// What the count is divided by: frames, or bytes of the file.
    fn divisor(self) -> usize {
        if self.is_card() {
            FRAMES_A_TURN * TURNS
        } else {
            BYTES
        }
    }
}

/// Does what is counted.
///
/// # Errors
/// When not all frames came, or the file did not.
pub fn run(subject: Subject) -> Result<()> {
    if subject.is_card() {
        receive(subject, TURNS)
    } else {
        fetch(subject, BYTES)
    }
}

/// Has the card receive frames.
fn receive(subject: Subject, turns: usize) -> Result<()> {
    let data_path = DataPath::new(Frames::new(), Pace::default(), None);
    let (mut bench, mut nic) = Bench::start(data_path, subject.features(), subject.chunks())?;
    bench.agree(&mut nic)?;
    let mut came = 0;
    for _ in 0..turns {
        bench.wire_mut().give(FRAMES_A_TURN);
        bench::count_card(&mut bench);
        let sink = |frame: Frame<'_>| came += usize::from(frame.len == LONGEST);
        nic.split().0.burst(usize::MAX, sink)?;
    }
    let wanted = turns * FRAMES_A_TURN;
    ensure!(came == wanted, "{came} frames came instead of {wanted}");
    bench.check_chunks(subject.chunks().is_some())
}

/// Has the guest fetch a file of so many bytes from the server in the card.
fn fetch(subject: Subject, bytes: usize) -> Result<()> {
    let data_path = DataPath::new(Tftp::new(bytes), Pace::default(), None);
    let (mut bench, mut nic) = Bench::start(data_path, subject.features(), subject.chunks())?;
    bench.agree(&mut nic)?;
    let (mut commands, inbox) = channel(MAILBOX);
    let (outbox, mut events) = channel(MAILBOX);
    let mut service = Service::new(nic, [7; 32], inbox, outbox);
    let address = Ipv4Cidr::new(Ipv4Addr::from(CLIENT.ip), 24);
    let leases = Leases::from(Lease::new(address, LeaseSource::Firmware));
    let get = Command::Get {
        job: 1,
        url: format!("tftp://{}/file", Ipv4Addr::from(SERVER.ip)),
        patience: wireboot_net::Duration::ZERO,
    };
    for command in leases.commands().chain([get]) {
        let told = commands.push(command).ok();
        told.context("the engine takes no commands")?;
    }
    // What comes before there is memory for the file, such as finding the server, is not counted.
    let mut poll: fn(&mut _, _) -> _ = Service::poll;
    for turn in 1..MOST_TURNS {
        bench.turn();
        let now = wireboot_net::Instant::from_micros(i64::from(turn) * TURN_MICROS);
        poll(&mut service, now)?;
        match events.pop() {
            Some(Event::NeedMemory { job, bytes }) => {
                let memory = Memory::from(vec![0; usize::try_from(bytes)?]);
                let told = commands.push(Command::Memory { job, memory }).ok();
                told.context("the engine takes no memory")?;
                poll = bench::count_guest;
            }
            Some(Event::Done { result, .. }) => {
                let file = result.context("fetching the file")?;
                let whole = file.len == bytes as u64
                    && file.content().iter().all(|byte| *byte == Tftp::BYTE);
                ensure!(whole, "another file came");
                return bench.check_chunks(subject == Subject::GuestChunks);
            }
            _ => {}
        }
    }
    bail!("the transfer stands still")
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_subject_does_what_is_counted() {
        for subject in Subject::value_variants() {
            let done = if subject.is_card() {
                receive(*subject, 3)
            } else {
                fetch(*subject, 3_000_001)
            };
            done.unwrap_or_else(|error| panic!("{subject:?}: {error:#}"));
        }
    }
}
