//! What the card brings of frames that are sent as fast as they are taken, and what each layer of the firmware's network keeps of that.

use super::stock;
use crate::cards;
use crate::error::{Error, refused};
use crate::escape::is_ended;
use crate::examination::Examination;
use crate::ladder::Sample;
use crate::ladder::frame;
use crate::ladder::frames::{Frames, Size};
use crate::ladder::sender;
use crate::ladder::wire::{Driver, Managed, Wire};
use crate::vlan;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use wireboot_boot::card::{self, Card};
use wireboot_boot::driver::Driver as NicDriver;
use wireboot_boot::error::Error as BootError;
use wireboot_boot::fetching::Fetcher;
use wireboot_boot::network::Network;
use wireboot_boot::settings::Settings;
use wireboot_nic::Nic;
use wireboot_platform::claim::pci::Candidate;
use wireboot_platform::firmware_net::{Mnp, receivers};
use wireboot_platform::{Clock, console};
use wireboot_report::Ladder;
use wireboot_report::ladder::{DRIVER, MNP, Rung, SNP, UNDI};

/// How long frames are sent for a rung, in microseconds.
const MICROS: u32 = 300_000;
/// How long the link may take to come up, in microseconds.
const LINK: u64 = 5_000_000;

/// Measures each rung once: wireboot's driver, the firmware's, its packet service.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    vlan::ensure_none(examination.origin)?;
    let candidate = stock::linked(examination)?;
    let card = card_of(examination, &candidate, None)?;
    let mut run = FrameRun::open(examination, &card)?;
    console::progress("frames, by wireboot's driver and the firmware's");
    let own = match &card {
        Card::Native(_) => DRIVER,
        Card::Snp(_) | Card::Undi(_) => SNP,
    };
    match run.card(own, &card) {
        // Nor does it answer the others.
        Err(error @ Error::NoSender(_)) if run.ladder.rungs.is_empty() => return Err(error),
        Err(error) => tell(examination, own, &error),
        Ok(()) => {}
    }
    candidate.connect();
    match card.with_firmware_driver() {
        Some(card) => run.or_tell(examination, SNP, |run| run.card(SNP, &card)),
        None if own == DRIVER => {
            examination.not_measured("frames", "SNP: the firmware has no driver for this card");
        }
        None => {}
    }
    // Few of the firmware's drivers have one.
    if let Ok(card @ Card::Undi(_)) = card_of(examination, &candidate, Some(NicDriver::Undi)) {
        run.or_tell(examination, UNDI, |run| run.card(UNDI, &card));
    }
    run.or_tell(examination, MNP, |run| run.packet_service(&candidate));
    examination.report.ladder = Some(run.ladder);
    Ok(())
}

/// A card as a boot has it, or by this driver.
fn card_of(
    examination: &Examination<'_>,
    candidate: &Candidate,
    driver: Option<NicDriver>,
) -> Result<Card, Error> {
    let cards = card::all(examination.origin, driver)?;
    let mut cards = cards.into_iter();
    let card = cards.find(|card| card.path().starts_with(&candidate.path));
    Ok(card.ok_or(BootError::NoInterface)?)
}

/// Why a rung was not measured is part of the report.
fn tell(examination: &mut Examination<'_>, what: &str, error: &Error) {
    examination.not_measured("frames", &format!("{what}: {error}"));
}

/// What the rungs are measured with, and what was found.
struct FrameRun {
    frames: Frames,
    mac: [u8; 6],
    ladder: Ladder,
    clock: Clock,
    /// By the Esc key.
    ended: bool,
}

impl FrameRun {
    /// Finds an address, and who sends: the server that boots machines.
    fn open(examination: &Examination<'_>, card: &Card) -> Result<Self, Error> {
        let (origin, clock) = (examination.origin, examination.clock);
        let network = Network::open(card, LINK, &Settings::default(), clock)?;
        let mut fetcher = Fetcher::new(network);
        let (local, sender) = sender::find(&mut fetcher, origin, None)?;
        Ok(Self {
            frames: Frames::new(clock, local, sender, MICROS),
            mac: fetcher.network().mac(),
            ladder: Ladder {
                sender: sender.to_string(),
                rungs: Vec::new(),
            },
            clock,
            ended: false,
        })
    }

    /// A rung, or why there is none.
    fn or_tell(
        &mut self,
        examination: &mut Examination<'_>,
        what: &str,
        measure: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) {
        self.ended |= is_ended();
        let measured = match self.ended {
            true => Err(Error::Ended),
            false => measure(self),
        };
        if let Err(error) = measured {
            tell(examination, what, &error);
        }
    }

    /// Frames by a card's driver.
    fn card(&mut self, what: &str, card: &Card) -> Result<(), Error> {
        let taken = cards::take(card, self.clock)?;
        let mut driver = Driver(taken.nic);
        let measured = self.both(what, &mut driver, None);
        driver.0.stop();
        // Before the claim: its memory belongs to the device.
        drop(driver);
        drop(taken.claim);
        measured
    }

    /// Frames by the firmware's packet service.
    fn packet_service(&mut self, card: &Candidate) -> Result<(), Error> {
        let what = "MNP on this interface";
        let others = receivers(card).map_err(refused(what))?.len() as u32;
        let ethertype = frame::ethertype(self.frames.sender);
        let mnp = Mnp::open(card, ethertype).map_err(refused(what))?;
        let mac = self.mac;
        self.both(MNP, &mut Managed { mnp, mac }, Some(others))
    }

    /// Full frames, then the smallest.
    fn both(
        &mut self,
        what: &str,
        wire: &mut impl Wire,
        receivers: Option<u32>,
    ) -> Result<(), Error> {
        for (size, full) in [(Size::Full, true), (Size::Small, false)] {
            let sample = self.frames.receive(wire, size, None)?;
            self.ladder.rungs.push(Rung {
                what: what.to_string(),
                full,
                receivers,
                ..self.rung(&sample)
            });
        }
        Ok(())
    }

    fn rung(&self, sample: &Sample) -> Rung {
        let part = |of: u64, all: u64| {
            if all == 0 {
                0.0
            } else {
                of as f64 / all as f64
            }
        };
        let ticks = self.clock.ticks_of(sample.micros);
        Rung {
            packets: sample.packets,
            mbit_s: sample.bits_per_second() as f64 / 1e6,
            packets_per_s: part(sample.packets, sample.micros) * 1e6,
            lost_percent: part(sample.lost, sample.sent) * 100.0,
            busy_percent: (part(sample.busy, ticks) * 100.0).min(100.0),
            ..Rung::default()
        }
    }
}
