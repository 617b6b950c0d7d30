//! A report: what was measured of a machine's network boot, and what was found in it.
//!
//! It is one JSON document. Keys carry their units: `_s` seconds, `_bytes`, `_blocks`. Times are seconds from the machine's first packet, or where wireboot.efi
//! tells of its own boot, from its beginning.
//! A reader passes over keys and words that it does not know, so that an older one reads what a newer one wrote, and takes what is missing
//! as empty.
//!
//! ```
//! let report = wireboot_report::Report::from_json(r#"{"schema":1,"timeline":[{"kind":"offer-wait","start_s":0.25,"end_s":4.25}]}"#)?;
//! assert_eq!(report.timeline[0].seconds(), 4.0);
//! # Ok::<(), wireboot_report::ReadError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bounds;
pub mod firmware;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fuzz target's verdicts"
)]
pub mod fuzzing;
pub mod ladder;
pub mod memory;
pub mod network;
mod profile;
mod remarks;
pub mod servers;
mod surroundings;
pub mod sweep;
pub mod throughput;
pub mod trace;
pub mod words;

pub use firmware::{Build, Cost, DryBoot, NotMeasured, Receiver, Stolen, Timer};
pub use ladder::Ladder;
pub use memory::Memory;
pub use network::Network;
pub use profile::{Profile, ProfiledImage};
pub use servers::Server;
pub use surroundings::{Pcie, RoundTrip, Surroundings};
pub use throughput::Throughput;
pub use trace::Trace;

use alloc::string::String;
use alloc::vec::Vec;
use network::{Neighbour, Transfer};
use serde::{Deserialize, Serialize};

/// The version of the schema that this crate writes.
pub const SCHEMA: u32 = 1;

/// The longest report that is read, in bytes.
pub const LONGEST: usize = 16 << 20;

/// Why a text is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is longer than [`LONGEST`].
    #[error("longer than 16 MiB, so no report")]
    TooLong,
    /// It has more objects, lists and values than any report.
    #[error("more than 65,536 objects and lists, or 1,048,576 commas, in it, so no report")]
    TooManyParts,
    /// A string in it is longer than any report's.
    #[error("a string of more than 64 KiB in it, so no report")]
    LongString,
    /// It is no JSON, or its values are not a report's: what the parser says, on a short line.
    #[error("not a report: {0}")]
    Json(String),
    /// Its `schema` is not one that this program knows, or is missing.
    #[error(
        "a report of schema {0}; this program reads schema 1. Use the wireboot that wrote it, or a newer one"
    )]
    Schema(u32),
    /// A time is negative, endless or no number.
    #[error("a time in it is negative or no number")]
    Time,
}

/// A machine's report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// [`SCHEMA`] of who wrote it.
    pub schema: u32,
    /// The version of wireboot that wrote it.
    pub version: String,
    /// The machine whose boot it was.
    pub machine: Machine,
    /// What costs time or misleads, most seconds first.
    pub findings: Vec<Finding>,
    /// What happened when, in the order of beginning.
    pub timeline: Vec<Phase>,
    /// What the packets showed.
    pub network: Network,
    /// What the machine heard of its network while it listened, without a boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surroundings: Option<Surroundings>,
    /// What firmware and boot loader left behind of a boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// The machine's network boot options, loaded and not started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_boots: Vec<DryBoot>,
    /// How the firmware is built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// The names of the firmware's network drivers in memory, each as often as it is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network_drivers: Vec<String>,
    /// Who gets the frames of the card that the firmware boots by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<Receiver>,
    /// What services of the firmware cost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<Cost>,
    /// The firmware's timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timer>,
    /// Time taken from the firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stolen: Option<Stolen>,
    /// What the firmware's network drivers called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// What TCP and UDP moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throughput: Vec<Throughput>,
    /// What boot servers grant, and what the paths to them carry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    /// A file by TFTP in blocks and windows of many sizes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<sweep::Cell>,
    /// Where the BSP was while the firmware fetched a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// How memory is cached, and how fast it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What the network can do at each height.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,
    /// Checks that measured nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<NotMeasured>,
    /// Whether an examination inside the machine left all as it found it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_found: Option<bool>,
}

impl Report {
    /// An empty report of this crate's schema and version.
    pub fn new() -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            ..Self::default()
        }
    }

    /// Reads a report.
    ///
    /// # Errors
    /// [`ReadError`] when the text is none, or one of a schema that this crate does not know.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        bounds::check(text)?;
        let read = serde_json::from_str(text);
        let report: Self = read.map_err(|error| ReadError::Json(bounds::shown(&error)))?;
        if report.schema != SCHEMA {
            return Err(ReadError::Schema(report.schema));
        }
        // JSON has no NaN; 1e999 is read as an error. What is left are times before the first packet and ends before beginnings.
        let in_order = |phase: &Phase| phase.start_s >= 0.0 && phase.end_s >= phase.start_s;
        let possible = |timeline: &[Phase], network: &Network| {
            timeline.iter().all(in_order)
                && network.span_s >= 0.0
                && network.transfers.iter().all(Transfer::is_possible)
        };
        let dry = |boot: &DryBoot| {
            possible(&boot.timeline, &boot.network)
                && boot.runs_s.iter().all(|run| *run >= 0.0)
                && boot.watching_s >= 0.0
        };
        let surroundings = report.surroundings.iter();
        let mut listened = surroundings.map(|one| {
            possible(&one.timeline, &one.network)
                && one.listened_s >= 0.0
                && one.link_after_s.is_none_or(|after| after >= 0.0)
        });
        let attempts = report
            .checkpoints
            .iter()
            .flat_map(|points| &points.attempts);
        let attempted = attempts.clone().all(Attempt::is_possible)
            && attempts.is_sorted_by(|one, next| one.ready_s <= next.ready_s);
        let mut modules = report.checkpoints.iter().flat_map(|points| &points.modules);
        let profiled = |one: &Profile| one.seconds >= 0.0 && one.plain_s >= 0.0;
        if !possible(&report.timeline, &report.network)
            || !report.profile.as_ref().is_none_or(profiled)
            || !report.dry_boots.iter().all(dry)
            || !listened.all(|possible| possible)
            || !attempted
            || !modules.all(Module::is_possible)
        {
            return Err(ReadError::Time);
        }
        if !report.timer.iter().all(Timer::is_possible)
            || !report.stolen.iter().all(Stolen::is_possible)
        {
            return Err(ReadError::Time);
        }
        if !report.trace.iter().all(Trace::is_possible) {
            return Err(ReadError::Time);
        }
        if !report.memory.iter().all(Memory::is_possible) {
            return Err(ReadError::Time);
        }
        if !report.throughput.iter().all(Throughput::is_possible)
            || !report.ladder.iter().all(Ladder::is_possible)
        {
            return Err(ReadError::Time);
        }
        if !report.sweep.iter().all(sweep::Cell::is_possible) {
            return Err(ReadError::Time);
        }
        Ok(report)
    }

    /// Of the dry boots, the one that a boot would use: the first that loads, else the first.
    pub fn dry_boot(&self) -> Option<&DryBoot> {
        let mut loaded = self.dry_boots.iter().filter(|boot| boot.failure.is_none());
        loaded.next().or(self.dry_boots.first())
    }

    /// The dry boots that fail before that one. None where no other loads.
    pub fn failing_before(&self) -> &[DryBoot] {
        let loaded = self
            .dry_boots
            .iter()
            .position(|boot| boot.failure.is_none());
        let before = loaded.and_then(|place| self.dry_boots.get(..place));
        before.unwrap_or_default()
    }

    /// How long the firmware takes to load what a boot would use, in seconds: its menu's wait and the options that fail before, too. `None` without a dry
    /// boot.
    pub fn dry_boot_s(&self) -> Option<f64> {
        let before: f64 = self.failing_before().iter().map(DryBoot::mean_s).sum();
        let boot = self.dry_boot()?;
        Some(self.machine.menu_wait_s() + before + boot.mean_s())
    }

    /// How long the boot took, in seconds: from reset to its last checkpoint, if it came to its system; or to load what a boot would use; or from the machine's first packet to its last
    /// file. `None` where no boot was looked at.
    pub fn boot_s(&self) -> Option<f64> {
        let points = self.checkpoints.iter().filter(|points| points.are_whole());
        let last = points.flat_map(Checkpoints::parts).last();
        let last = last.map(|(_, at_s)| at_s);
        let captured = (self.network != Network::default()).then_some(self.network.span_s);
        last.or_else(|| self.dry_boot_s()).or(captured)
    }

    /// What a service costs, if it was measured.
    pub fn cost(&self, service: &str) -> Option<&Cost> {
        self.costs.iter().find(|one| one.service == service)
    }

    /// The networks that packets showed: the captured boot's, what was heard without one, the dry boots'.
    fn networks(&self) -> impl Iterator<Item = &Network> {
        let heard = self.surroundings.iter().map(|one| &one.network);
        let dry = self.dry_boots.iter().map(|boot| &boot.network);
        core::iter::once(&self.network).chain(heard).chain(dry)
    }

    /// What is at the other end of the machine's cable, where it told of itself.
    pub fn neighbour(&self) -> Option<&Neighbour> {
        self.networks().find_map(|one| one.neighbour.as_ref())
    }

    /// The switch's name, else the Ethernet address by which it speaks.
    pub fn switch(&self) -> Option<&str> {
        let named = self.neighbour().map(|one| one.switch.as_str());
        named.or_else(|| {
            let mut trees = self.networks().filter_map(|one| one.spanning_tree.as_ref());
            trees.next().map(|tree| tree.bridge.as_str())
        })
    }

    /// The report as JSON, on one line.
    pub fn to_json_line(&self) -> String {
        // As below.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The report as JSON, in lines.
    pub fn to_json(&self) -> String {
        // Maps with keys that are no strings could fail; the schema has none.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Which machine a report is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its card's Ethernet address, `52:54:00:12:34:56`.
    pub mac: String,
    /// Its UUID as PXE tells it (RFC 4578 section 2.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// What its first DHCP request says that it is (option 60), `PXEClient:Arch:00007:UNDI:003000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_class: Option<String>,
    /// Maker and model, as its firmware tells them (SMBIOS): `QEMU Standard PC (Q35 + ICH9, 2009)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its firmware's vendor and revision: `EDK II 1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Processors that the firmware can use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<u32>,
    /// How long the firmware waits for somebody who wants its menu, in seconds (its variable `Timeout`); 65535: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_menu_s: Option<u16>,
    /// Whether its firmware offers random numbers (`EFI_RNG_PROTOCOL`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<bool>,
    /// The frequency of the processor's time-stamp counter, in hertz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter_hz: Option<u64>,
}

impl Machine {
    /// How long the firmware waits for somebody who wants its menu, in seconds, where that ends by itself.
    pub fn menu_wait_s(&self) -> f64 {
        /// UEFI 2.10, section 3.1.4.
        const FOREVER: u16 = 0xffff;
        let waits = self.boot_menu_s.filter(|seconds| *seconds != FOREVER);
        waits.unwrap_or_default().into()
    }
}

/// Points of a boot, in seconds from the machine's reset, as its system finds them afterwards, or the examination that it brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Checkpoints {
    /// From here on the firmware runs from memory (FPDT).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_end_s: Option<f64>,
    /// The last boot option's loader was to be loaded (FPDT). Over the network: before the download.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_image_s: Option<f64>,
    /// It was started (FPDT).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_image_s: Option<f64>,
    /// The boot loader began, as it says itself (`LoaderTimeInitUSec`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loader_began_s: Option<f64>,
    /// The boot loader started the system, as it says itself (`LoaderTimeExecUSec`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loader_done_s: Option<f64>,
    /// The system asked for the end of boot services (FPDT).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_entry_s: Option<f64>,
    /// They had ended (FPDT).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_s: Option<f64>,
    /// The boot option that was used: its number and its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// By its device path, that option boots over the network.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub over_network: bool,
    /// Boot options that stand before it in the firmware's order.
    pub options_before: Vec<String>,
    /// The boot options that the firmware tried, in their order; the last is the one that was used. Empty where nobody recorded them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Modules of the firmware, those that took longest first. Empty where the firmware keeps no times of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<Module>,
    /// Why a source tells nothing.
    pub missing: Vec<String>,
}

/// A module of the firmware, and how long what was done with it took, in seconds. What a module starts in turn counts as its own, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Its name; its GUID where nothing tells that.
    pub name: String,
    /// It was loaded.
    pub load_s: f64,
    /// Its entry point ran.
    pub start_s: f64,
    /// It was asked whether it drives a device.
    pub supported_s: f64,
    /// It began to drive devices.
    pub bind_s: f64,
    /// Of that, before the first boot option was to be loaded of which that is known.
    pub bind_before_s: f64,
    /// It ended that.
    pub unbind_s: f64,
}

impl Module {
    /// All of it, in seconds.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.all().into_iter().sum()
    }

    fn all(&self) -> [f64; 5] {
        [
            self.load_s,
            self.start_s,
            self.supported_s,
            self.bind_s,
            self.unbind_s,
        ]
    }

    fn is_possible(&self) -> bool {
        // Sums of the same times in another order differ in their last digits.
        let bound = 0.0..=self.bind_s * (1.0 + 1e-9);
        self.all().into_iter().all(|seconds| seconds >= 0.0) && bound.contains(&self.bind_before_s)
    }
}

/// A boot option that the firmware tried, in seconds from the machine's reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attempt {
    /// Its number and its name.
    pub option: String,
    /// Its turn came.
    pub ready_s: f64,
    /// Its loader was started; `None` where there was none to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_s: Option<f64>,
    /// Its loader came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_s: Option<f64>,
}

impl Attempt {
    fn is_possible(&self) -> bool {
        let times = [Some(self.ready_s), self.start_s, self.back_s];
        times
            .into_iter()
            .flatten()
            .try_fold(0.0, |before, time| (time >= before).then_some(time))
            .is_some()
    }
}

impl Checkpoints {
    /// They are those of a boot that came to its system. Those of a boot that brought an examination end before.
    #[must_use]
    pub fn are_whole(&self) -> bool {
        self.loader_done_s.or(self.exit_entry_s).is_some()
    }

    /// When the firmware was ready to load the first boot option of which is known that it tried it, in seconds.
    #[must_use]
    pub fn ready_s(&self) -> Option<f64> {
        let first = self.attempts.first().map(|attempt| attempt.ready_s);
        first.or(self.load_image_s)
    }

    /// The options that the firmware tried in vain, with the seconds that each took.
    pub fn in_vain(&self) -> impl Iterator<Item = (&Attempt, f64)> {
        let next = self.attempts.iter().skip(1);
        let pairs = self.attempts.iter().zip(next);
        pairs.map(|(one, next)| (one, next.ready_s - one.ready_s))
    }

    /// What ended at each point that is known, and when, in the order of time.
    pub fn parts(&self) -> Vec<(&'static str, f64)> {
        // Who tells both has the loader begin right behind its start; a loader that another one started begins later.
        let first = self.attempts.first().filter(|_| self.attempts.len() > 1);
        let points = [
            ("firmware", first.map(|attempt| attempt.ready_s)),
            (
                if first.is_some() {
                    "boot options in vain"
                } else {
                    "firmware"
                },
                self.load_image_s,
            ),
            ("loading the boot loader", self.start_image_s),
            (
                if self.start_image_s.is_some() {
                    "loaders before it"
                } else {
                    "firmware"
                },
                self.loader_began_s,
            ),
            ("boot loader", self.loader_done_s),
            ("system, until boot services end", self.exit_entry_s),
        ];
        let mut parts = Vec::new();
        for (name, at) in points {
            if let Some(at) = at {
                // In its place at once: the library's sort is 4 kB of a program for each type.
                let place = parts.partition_point(|(_, other)| *other <= at);
                parts.insert(place, (name, at));
            }
        }
        parts
    }
}

/// Something that costs time or misleads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// The rule's name, the same in all versions: `spanning-tree`.
    pub id: String,
    /// In the sentence that says where the time went: `spanning tree`.
    pub label: String,
    /// Seconds lost; 0 for what misleads without costing time that can be told.
    pub seconds: f64,
    /// What was seen, in figures.
    pub evidence: String,
    /// What to change.
    pub advice: Vec<String>,
    /// Seconds that would be left of these, once it is changed. `None` where nothing can be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<f64>,
    /// Where the documents say more: `docs/doctor.md#spanning-tree`.
    pub doc: String,
}

/// What a span of time went into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// The machine asked by DHCP, and nobody answered.
    DhcpUnanswered,
    /// From the request that was answered to the first offer.
    DhcpOffer,
    /// From the first offer with all that a boot needs to the machine's request for it.
    OfferWait,
    /// From the request to its acknowledgement.
    DhcpRequest,
    /// A proxyDHCP or boot server was asked.
    BootServer,
    /// The machine asked for routers or by DHCPv6, and nobody answered.
    Ipv6Unanswered,
    /// An address by DHCPv6.
    Dhcpv6,
    /// A name was looked up.
    Name,
    /// A file's size was asked for.
    SizeProbe,
    /// A file came.
    Transfer,
    /// Something was asked for that the server has not.
    Refused,
    /// wireboot.efi took a network card, and its link came up.
    Card,
    /// It got its addresses.
    Address,
    /// It learnt what to boot: a configuration, a choice in a menu.
    Choice,
    /// Nothing of the machine's was on the wire: it worked, or waited without asking.
    #[default]
    Quiet,
    /// What a newer version knows.
    #[serde(other)]
    Other,
}

/// A span of time and what it went into.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// What it went into.
    pub kind: PhaseKind,
    /// Its beginning, in seconds from the machine's first packet.
    pub start_s: f64,
    /// Its end, not before its beginning.
    pub end_s: f64,
    /// From whom, or which file.
    pub what: String,
}

impl Phase {
    /// How long it took.
    pub fn seconds(&self) -> f64 {
        self.end_s - self.start_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn report() -> Report {
        Report {
            machine: Machine {
                mac: "52:54:00:12:34:56".into(),
                vendor_class: Some("PXEClient:Arch:00007:UNDI:003000".into()),
                ..Machine::default()
            },
            findings: vec![Finding {
                id: "offer-wait".into(),
                label: "DHCP patience".into(),
                seconds: 4.0,
                evidence: "an offer lay there for 4.0 s".into(),
                advice: vec!["start from a stick".into()],
                expected_s: Some(0.0),
                doc: "docs/doctor.md#offer-wait".into(),
            }],
            timeline: vec![Phase {
                kind: PhaseKind::OfferWait,
                start_s: 0.25,
                end_s: 4.25,
                what: "10.77.0.1".into(),
            }],
            network: Network {
                span_s: 9.5,
                transfers: vec![network::Transfer {
                    protocol: network::Protocol::Http,
                    file: "/linux".into(),
                    bytes: 8 << 30,
                    ..network::Transfer::default()
                }],
                ..Network::default()
            },
            ..Report::new()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let report = report();
        let text = report.to_json();
        assert_eq!(Report::from_json(&text).unwrap(), report);
        for key in [
            "\"schema\": 1",
            "\"start_s\": 0.25",
            "\"span_s\": 9.5",
            "\"offer-wait\"",
            "\"http\"",
        ] {
            assert!(text.contains(key), "{key} in {text}");
        }
    }

    #[test]
    fn a_dry_boot_has_a_mean_and_a_spread() {
        let boot = DryBoot {
            runs_s: vec![1.0, 2.0, 4.5],
            ..DryBoot::default()
        };
        assert_eq!((boot.mean_s(), boot.spread_s()), (2.5, 2.0));
        assert_eq!(DryBoot::default().mean_s(), 0.0);
    }

    #[test]
    fn a_boot_uses_the_first_option_that_loads() {
        let boot = |option: &str, failure: Option<&str>| DryBoot {
            option: option.into(),
            failure: failure.map(Into::into),
            ..DryBoot::default()
        };
        let mut report = Report::new();
        assert_eq!(report.dry_boot(), None);
        report.dry_boots = vec![boot("a", Some("TIMEOUT")), boot("b", Some("NO_MEDIA"))];
        assert_eq!(report.dry_boot().unwrap().option, "a");
        assert_eq!(report.failing_before(), []);
        report.dry_boots.push(boot("c", None));
        report.dry_boots.push(boot("d", None));
        assert_eq!(report.dry_boot().unwrap().option, "c");
        assert_eq!(report.failing_before().len(), 2);
    }

    #[test]
    fn a_switch_has_a_name_wherever_it_told() {
        let neighbour = network::Neighbour {
            switch: "core-1".into(),
            port: "Gi1/0/3".into(),
            port_description: Some("desk 4".into()),
            ..network::Neighbour::default()
        };
        assert_eq!(
            neighbour.to_string(),
            "core-1, port Gi1/0/3 (desk 4), by LLDP"
        );
        let named = || Network {
            neighbour: Some(neighbour.clone()),
            ..Network::default()
        };
        let tree = Network {
            spanning_tree: Some(network::SpanningTree {
                bridge: "02:00:00:00:00:01".into(),
                ..network::SpanningTree::default()
            }),
            ..Network::default()
        };
        let mut report = Report::new();
        assert_eq!(report.switch(), None);
        report.network = tree;
        assert_eq!(report.switch(), Some("02:00:00:00:00:01"));
        report.dry_boots.push(DryBoot {
            network: named(),
            ..DryBoot::default()
        });
        assert_eq!(report.switch(), Some("core-1"));
        report.dry_boots.clear();
        report.surroundings = Some(Surroundings {
            network: named(),
            ..Surroundings::default()
        });
        assert_eq!(report.switch(), Some("core-1"));
    }

    #[test]
    fn a_boot_takes_as_long_as_the_widest_look_at_it() {
        let option = |failure: Option<&str>, seconds| DryBoot {
            runs_s: vec![seconds],
            failure: failure.map(Into::into),
            ..DryBoot::default()
        };
        let mut report = Report::new();
        assert_eq!(report.boot_s(), None);
        report.network.span_s = 9.0;
        assert_eq!(report.boot_s(), Some(9.0));
        report.machine.boot_menu_s = Some(2);
        report.dry_boots = vec![
            option(Some("NOT_FOUND"), 5.0),
            option(None, 4.0),
            option(None, 7.0),
        ];
        assert_eq!(report.boot_s(), Some(11.0));
        // Of the boot that brought the examination.
        report.checkpoints = Some(Checkpoints {
            load_image_s: Some(3.0),
            start_image_s: Some(15.0),
            ..Checkpoints::default()
        });
        assert_eq!(report.boot_s(), Some(11.0));
        report.checkpoints = Some(Checkpoints {
            load_image_s: Some(3.0),
            exit_entry_s: Some(20.0),
            ..Checkpoints::default()
        });
        assert_eq!(report.boot_s(), Some(20.0));
    }

    #[test]
    fn modules_that_took_less_than_nothing_are_refused() {
        let read = |seconds: &str| {
            let module = alloc::format!(r#"{{"name":"MnpDxe","load_s":0.5,"unbind_s":{seconds}}}"#);
            Report::from_json(&alloc::format!(
                r#"{{"schema":1,"checkpoints":{{"modules":[{module}]}}}}"#
            ))
        };
        let modules = read("0.25").unwrap().checkpoints.unwrap().modules;
        assert_eq!(modules[0].total_s(), 0.75);
        assert!(matches!(read("-1"), Err(ReadError::Time)));
        let read = |before: &str| read(&alloc::format!(r#"0,"bind_s":2,"bind_before_s":{before}"#));
        assert!(read("0").is_ok() && read("2").is_ok());
        // More than all of it, too.
        for wrong in ["-1", "2.5"] {
            assert!(matches!(read(wrong), Err(ReadError::Time)), "{wrong}");
        }
    }

    #[test]
    fn attempts_that_go_back_in_time_are_refused() {
        let text = |attempts: &str| {
            alloc::format!(r#"{{"schema":1,"checkpoints":{{"attempts":[{attempts}]}}}}"#)
        };
        let read = |attempts: &str| Report::from_json(&text(attempts));
        let right = r#"{"option":"Boot0001","ready_s":1,"start_s":2,"back_s":3},{"ready_s":4}"#;
        let attempts = read(right).unwrap().checkpoints.unwrap().attempts;
        assert_eq!(attempts[0].back_s, Some(3.0));
        for wrong in [
            r#"{"ready_s":-1}"#,
            r#"{"ready_s":2,"start_s":1}"#,
            r#"{"ready_s":1,"back_s":0.5}"#,
            r#"{"ready_s":2},{"ready_s":1}"#,
        ] {
            assert!(matches!(read(wrong), Err(ReadError::Time)), "{wrong}");
        }
    }

    #[test]
    fn what_is_new_is_passed_over_and_what_is_missing_is_empty() {
        let text = r#"{"schema":1,"from":"the future","findings":[{"id":"x","severity":9}],
            "timeline":[{"kind":"warp","start_s":1,"end_s":2}],"network":{"transfers":[{"protocol":"nfs","outcome":"melted"}]}}"#;
        let report = Report::from_json(text).unwrap();
        assert_eq!(report.findings.first().unwrap().id, "x");
        assert_eq!(report.timeline.first().unwrap().kind, PhaseKind::Other);
        let transfer = report.network.transfers.first().unwrap();
        assert_eq!(transfer.protocol, network::Protocol::Other);
        assert_eq!(transfer.outcome, network::Outcome::Other);
    }

    #[test]
    fn an_offer_answers_the_last_request_before_it_or_a_late_server_each() {
        let offer = |at_s| network::Offer {
            at_s,
            server: "10.0.0.1".into(),
            ..network::Offer::default()
        };
        let asked = |discover_s: &[f64], offers: &[f64]| {
            let conversation = network::Dhcp {
                discover_s: discover_s.to_vec(),
                offers: offers.iter().copied().map(offer).collect(),
                ..network::Dhcp::default()
            };
            conversation.answered_s()
        };
        assert_eq!(asked(&[0.0, 4.0, 12.0], &[12.1]), Some(12.0));
        assert_eq!(asked(&[0.0, 4.0], &[5.0, 9.1]), Some(0.0));
        // dnsmasq that waits for 5 s, as it was seen.
        assert_eq!(asked(&[0.0, 3.80], &[5.02, 9.80]), Some(0.0));
        assert_eq!(asked(&[0.0, 4.0], &[5.0]), Some(4.0));
        assert_eq!(asked(&[0.0, 4.0, 12.0], &[12.1, 13.0]), Some(12.0));
        assert_eq!(asked(&[0.0], &[]), None);
        assert_eq!(asked(&[], &[1.0]), None);
    }

    #[test]
    fn what_is_no_report_says_why() {
        let error = |text: &str| Report::from_json(text).unwrap_err().to_string();
        assert!(error("{}").contains("schema 0"));
        assert!(error(r#"{"schema":2}"#).contains("schema 2"));
        assert!(error("GIF89a").starts_with("not a report"));
        assert!(error(r#"{"schema":1,"timeline":7}"#).starts_with("not a report"));
        let backwards = r#"{"schema":1,"timeline":[{"kind":"quiet","start_s":2,"end_s":1}]}"#;
        assert!(error(backwards).contains("time"));
        assert!(error(r#"{"schema":1,"network":{"span_s":-1}}"#).contains("time"));
        assert!(error(r#"{"schema":1,"dry_boots":[{"runs_s":[-1]}]}"#).contains("time"));
        assert!(error(r#"{"schema":1,"dry_boots":[{"watching_s":-1}]}"#).contains("time"));
        let dry = r#"{"schema":1,"dry_boots":[{"timeline":[{"start_s":2,"end_s":1}]}]}"#;
        assert!(error(dry).contains("time"));
        for transfer in [r#""start_s":2,"end_s":1"#, r#""server_wait_s":-1"#] {
            let text =
                alloc::format!(r#"{{"schema":1,"network":{{"transfers":[{{{transfer}}}]}}}}"#);
            assert!(error(&text).contains("time"), "{transfer}");
        }
        let heard = |what| alloc::format!(r#"{{"schema":1,"surroundings":{{{what}}}}}"#);
        assert!(Report::from_json(&heard(r#""link_after_s":0.5"#)).is_ok());
        for wrong in [
            r#""listened_s":-1"#,
            r#""link_after_s":-1"#,
            r#""network":{"span_s":-1}"#,
            r#""timeline":[{"start_s":2,"end_s":1}]"#,
        ] {
            assert!(error(&heard(wrong)).contains("time"), "{wrong}");
        }
        let moved = r#"{"schema":1,"throughput":[{"took_s":-1}]}"#;
        assert!(error(moved).contains("time"));
        for key in ["period_us", "latest_us"] {
            let timer = std::format!(r#"{{"schema":1,"timer":{{"{key}":-1}}}}"#);
            assert!(error(&timer).contains("time"), "{key}");
        }
        for key in ["looked_s", "stolen_s", "longest_us"] {
            let stolen = std::format!(r#"{{"schema":1,"stolen":{{"{key}":-1}}}}"#);
            assert!(error(&stolen).contains("time"), "{key}");
        }
        assert!(error(r#"{"schema":1,"sweep":[{"seconds":-1}]}"#).contains("time"));
        assert!(error(r#"{"schema":1,"profile":{"seconds":-1}}"#).contains("time"));
        assert!(error(r#"{"schema":1,"profile":{"plain_s":-1}}"#).contains("time"));
        assert!(error(&" ".repeat(LONGEST + 1)).contains("16 MiB"));
    }
}
