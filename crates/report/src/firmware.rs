//! What was measured inside the machine, by its firmware's services.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::{Network, Phase};

/// What a service of the firmware costs: its calls one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Its name in the specification, `GetTime`, `SNP.Receive`; two that are called one after the other, `RaiseTPL + RestoreTPL`; or which of
    /// several, `OutputString, serial`.
    pub service: String,
    /// How often it was called.
    pub calls: u64,
    /// The fastest call, in nanoseconds.
    pub fastest_ns: u64,
    /// Half of the calls took no longer than this.
    pub median_ns: u64,
    /// 99 of 100 took no longer than this.
    pub p99_ns: u64,
    /// The slowest call.
    pub slowest_ns: u64,
}

/// The firmware's timer, by which its events are signalled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timer {
    /// Ticks that were seen.
    pub ticks: u64,
    /// From a tick to the next, the median, in microseconds.
    pub period_us: f64,
    /// The longest that a tick was late, in microseconds.
    pub latest_us: f64,
}

/// Time in which the processor did nothing of the firmware's, with interrupts off: system management mode, or the host of a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stolen {
    /// How long was looked, in seconds.
    pub looked_s: f64,
    /// All gaps of 10 microseconds and more added up, in seconds.
    pub stolen_s: f64,
    /// How many there were.
    pub gaps: u64,
    /// The longest, in microseconds.
    pub longest_us: f64,
    /// System management interrupts in that time, where the processor counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smis: Option<u64>,
}

impl Timer {
    /// Whether its times can be.
    pub(crate) fn is_possible(&self) -> bool {
        self.period_us >= 0.0 && self.latest_us >= 0.0
    }
}

impl Stolen {
    /// The part of the time that was stolen; 0 where it was not looked.
    pub fn share(&self) -> f64 {
        if self.looked_s > 0.0 {
            self.stolen_s / self.looked_s
        } else {
            0.0
        }
    }

    /// Whether its times can be.
    pub(crate) fn is_possible(&self) -> bool {
        self.looked_s >= 0.0 && self.stolen_s >= 0.0 && self.longest_us >= 0.0
    }
}

/// Signs of a DEBUG build of EDK II.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Build {
    /// AllocatePool fills memory with 0xAF.
    pub pool_filled: bool,
    /// Images in memory that were looked at.
    pub images: u64,
    /// The names of those that have the words of ASSERT in them.
    pub asserting: Vec<String>,
}

/// Somebody who gets frames of a card's packet service (`EFI_MANAGED_NETWORK_PROTOCOL`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Receiver {
    /// The image that has it: `Ip4Dxe`.
    pub image: String,
    /// The EtherType of the frames that it asks for; 0: of all.
    pub ether_type: u16,
}

/// A boot option that was loaded and not started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DryBoot {
    /// The option's name: `UEFI PXEv4 (MAC:525400123456)`, or `PXEv4 (MAC:525400123456)` where the firmware has no option.
    pub option: String,
    /// How long each run took, in seconds.
    pub runs_s: Vec<f64>,
    /// Bytes of the boot file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The firmware's status where none was loaded: `NOT_FOUND`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Packets that the machine sent and received in the last run.
    pub packets: u64,
    /// Packets of these for whose bytes there was no room.
    pub packets_lost: u64,
    /// What looking at these packets took of the last run, in seconds.
    pub watching_s: f64,
    /// What happened when in the last run, in seconds from its beginning.
    pub timeline: Vec<Phase>,
    /// What its packets showed. Its times, too, are seconds from the run's beginning.
    pub network: Network,
}

impl DryBoot {
    /// The mean of the runs, in seconds.
    pub fn mean_s(&self) -> f64 {
        self.runs_s.iter().sum::<f64>() / (self.runs_s.len() as f64).max(1.0)
    }

    /// How long the last run took, in seconds: the one of which the timeline tells.
    pub fn last_s(&self) -> f64 {
        self.runs_s.last().copied().unwrap_or_default()
    }

    /// From the mean to the run that is farthest from it, in seconds.
    pub fn spread_s(&self) -> f64 {
        let mean = self.mean_s();
        let distances = self.runs_s.iter().map(|run| (run - mean).abs());
        distances.fold(0.0, f64::max)
    }
}

/// A check that measured nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotMeasured {
    /// Its name: `boot`, `cost`.
    pub check: String,
    /// Why it measured nothing, in words for a person.
    pub reason: String,
}
