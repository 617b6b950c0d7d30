//! What checks work with.

use crate::cards::Linked;
use crate::options::Options;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_boot::card::{self, Card};
use wireboot_boot::driver::Driver;
use wireboot_boot::error::Error as BootError;
use wireboot_boot::origin::Origin;
use wireboot_platform::Clock;
use wireboot_platform::image::LoadedSelf;
use wireboot_report::{NotMeasured, Report};

pub(crate) struct Examination<'a> {
    /// How to examine.
    pub options: &'a Options,
    /// How the firmware loaded this program.
    pub image: &'a LoadedSelf,
    /// What the firmware knew of the network then.
    pub origin: &'a Origin,
    pub clock: Clock,
    /// Which card has a link.
    pub linked: Linked,
    /// What was measured so far.
    pub report: Report,
    /// Files that belong to it, by name and content: `boot.pcapng`. They are kept where the report is kept on a disk.
    pub files: Vec<(String, Vec<u8>)>,
    /// The firmware has taken back what its network knew.
    pub restored: bool,
}

impl<'a> Examination<'a> {
    /// One that has measured nothing.
    pub(crate) fn new(
        options: &'a Options,
        image: &'a LoadedSelf,
        origin: &'a Origin,
        clock: Clock,
    ) -> Self {
        Self {
            options,
            image,
            origin,
            clock,
            linked: Linked::default(),
            report: Report::new(),
            files: Vec::new(),
            restored: true,
        }
    }

    /// The card that this program came by, else the first that has a link. `driver`: whose; where that is `None`, wireboot's if it has one.
    pub(crate) fn card(&self, driver: Option<Driver>) -> Result<Card, BootError> {
        let cards = card::all(self.origin, driver)?;
        self.linked.choose(cards, driver, self.clock)
    }

    /// Tells that a check, or a part of it, measured nothing.
    pub(crate) fn not_measured(&mut self, check: &str, reason: &str) {
        log::warn!("{check}: {reason}");
        self.report.not_measured.push(NotMeasured {
            check: check.to_string(),
            reason: reason.to_string(),
        });
    }

    /// Tells the firmware's network again what it knew when it started this program: checks make it forget.
    pub(crate) fn restore(&mut self) {
        if let Some(cached) = &self.origin.cached {
            self.restored = cached.restore().is_some();
        }
    }
}
