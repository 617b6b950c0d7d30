//! How the machine caches memory, how fast it is, and what a packet costs in it.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What [`Region::what`] says of memory as the card's rings and buffers are in.
pub const CARDS: &str = "card's buffers";
/// And of pages as files come to.
pub const ORDINARY: &str = "ordinary pages";
/// What [`Receive::what`] says of the frames with which others are compared.
pub const AS_FOUND: &str = "as they are";
/// The memory type whose reads and writes are cached.
pub const WRITE_BACK: &str = "WB";

/// Memory, as the processor has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// A hypervisor says that it is there. Those that emulate ignore memory types, and others may.
    pub virtual_machine: bool,
    /// What was looked at.
    pub regions: Vec<Region>,
    /// WBINVD, once: all caches written back, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_back_all_us: Option<f64>,
    /// Frames of 1514 bytes, copied from the card's buffers to ordinary pages.
    pub receive: Vec<Receive>,
}

/// Memory of one use, with its types and rates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Region {
    /// Whose it is: [`CARDS`], [`ORDINARY`], `above 4 GiB`, `BAR 1`.
    pub what: String,
    /// How many bytes were looked at.
    pub bytes: u64,
    /// Its effective memory type: `WB`, `WT`, `WP`, `WC`, `UC`, `mixed`, `unknown`. `None` where the processor does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_type: Option<String>,
    /// The type that page tables and PAT give it; `UC-` is one, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_type: Option<String>,
    /// The type that the MTRRs give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_type: Option<String>,
    /// The types among its attributes in the firmware's GCD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcd: Option<String>,
    /// The card has another address for it: it goes through a bounce buffer or an IOMMU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_elsewhere: Option<bool>,
    /// How fast it is, where it was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<Rate>,
    /// CLFLUSH of a line that was written, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_line_ns: Option<f64>,
}

/// How fast memory is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rate {
    /// What was done: `read`, `write`, or `copy` to ordinary pages.
    pub what: String,
    /// Millions of bytes a second.
    pub mb_per_s: f64,
    /// Cycles of the time-stamp counter.
    pub cycles_per_byte: f64,
}

/// Frames that were received as from a card, in one of several ways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Receive {
    /// What was done besides, or to the buffers: [`AS_FOUND`], `uncached`.
    pub what: String,
    /// The memory type of the buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_type: Option<String>,
    /// Frames in the fastest round.
    pub packets: u64,
    /// Cycles of the time-stamp counter, each.
    pub cycles_per_packet: f64,
}

impl Memory {
    /// Memory by its name, if it was looked at.
    pub fn region(&self, what: &str) -> Option<&Region> {
        self.regions.iter().find(|one| one.what == what)
    }

    /// What a way to receive costs beside [`AS_FOUND`], as a part of the cycles that that takes; `None` where it was not measured.
    pub fn extra(&self, way: &Receive) -> Option<f64> {
        let mut ways = self.receive.iter();
        let plain = ways.find(|one| one.what == AS_FOUND)?.cycles_per_packet;
        (plain > 0.0).then(|| way.cycles_per_packet / plain - 1.0)
    }

    /// Whether its times can be.
    pub(crate) fn is_possible(&self) -> bool {
        let rate = |rate: &Rate| rate.mb_per_s >= 0.0 && rate.cycles_per_byte >= 0.0;
        let region = |one: &Region| {
            one.rates.iter().all(rate) && one.flush_line_ns.is_none_or(|time| time >= 0.0)
        };
        self.regions.iter().all(region)
            && self.write_back_all_us.is_none_or(|time| time >= 0.0)
            && self.receive.iter().all(|one| one.cycles_per_packet >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_compared_with_buffers_as_they_are() {
        let way = |what: &str, cycles_per_packet| Receive {
            what: what.into(),
            cycles_per_packet,
            ..Receive::default()
        };
        let slow = way("uncached", 900.0);
        let mut memory = Memory {
            receive: [slow.clone(), way(AS_FOUND, 300.0)].into(),
            ..Memory::default()
        };
        assert_eq!(memory.extra(&slow), Some(2.0));
        memory.receive.pop();
        assert_eq!(memory.extra(&slow), None);
    }
}
