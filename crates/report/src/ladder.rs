//! What the machine's network can do at each height: the ladder.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What [`Rung::what`] says of wireboot's own driver.
pub const DRIVER: &str = "driver";
/// Of the firmware's driver by EFI_SIMPLE_NETWORK_PROTOCOL.
pub const SNP: &str = "SNP";
/// Of the firmware's driver by its UNDI.
pub const UNDI: &str = "UNDI";
/// Of the firmware's packet service, EFI_MANAGED_NETWORK_PROTOCOL.
pub const MNP: &str = "MNP";

/// The most rungs that there can be: each of those above with frames of both sizes, and room for others.
const MOST_RUNGS: usize = 64;

/// Frames that a sender on the network sent as fast as they were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ladder {
    /// The sender's address.
    pub sender: String,
    /// From the card up.
    pub rungs: Vec<Rung>,
}

/// What came through at one height.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rung {
    /// What received: [`DRIVER`], [`SNP`], [`UNDI`], [`MNP`].
    pub what: String,
    /// Full frames; else the smallest.
    pub full: bool,
    /// Packets that came through.
    pub packets: u64,
    /// Their payload, in Mbit/s.
    pub mbit_s: f64,
    /// Packets in a second.
    pub packets_per_s: f64,
    /// Of the packets that were sent, how many did not come through, in percent.
    pub lost_percent: f64,
    /// The share of the time that calls took which brought packets, in percent.
    pub busy_percent: f64,
    /// Who else gets frames of the packet service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receivers: Option<u32>,
}

impl Ladder {
    /// What came through of full frames, in Mbit/s, where it was measured.
    #[must_use]
    pub fn full_mbit_s(&self, what: &str) -> Option<f64> {
        let mut rungs = self.rungs.iter();
        let rung = rungs.find(|rung| rung.full && rung.what == what)?;
        Some(rung.mbit_s)
    }

    /// The part that a rung keeps of the first with frames of its size.
    #[must_use]
    pub fn share(&self, rung: &Rung) -> Option<f64> {
        let mut rungs = self.rungs.iter();
        let first = rungs.find(|one| one.full == rung.full)?;
        (first.packets_per_s > 0.0).then(|| rung.packets_per_s / first.packets_per_s)
    }

    /// Whether its figures can be.
    pub(crate) fn is_possible(&self) -> bool {
        self.rungs.len() <= MOST_RUNGS
            && self.rungs.iter().all(|rung| {
                let percent = 0.0..=100.0;
                rung.mbit_s >= 0.0
                    && rung.packets_per_s >= 0.0
                    && percent.contains(&rung.lost_percent)
                    && percent.contains(&rung.busy_percent)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_first_with_frames_of_that_size() {
        let rung = |what: &str, full, packets_per_s| Rung {
            what: what.into(),
            full,
            packets_per_s,
            mbit_s: packets_per_s / 100.0,
            ..Rung::default()
        };
        let ladder = Ladder {
            rungs: [
                rung(DRIVER, true, 400.0),
                rung(DRIVER, false, 1000.0),
                rung(SNP, false, 100.0),
                rung(SNP, true, 100.0),
            ]
            .into(),
            ..Ladder::default()
        };
        let shares: Vec<_> = ladder.rungs.iter().map(|one| ladder.share(one)).collect();
        assert_eq!(shares, [Some(1.0), Some(1.0), Some(0.1), Some(0.25)]);
        assert_eq!(
            (ladder.full_mbit_s(SNP), ladder.full_mbit_s(MNP)),
            (Some(1.0), None)
        );
        let none = Rung::default();
        assert_eq!(Ladder::default().share(&none), None);
    }

    #[test]
    fn figures_that_cannot_be_are_none() {
        let with = |change: fn(&mut Rung)| {
            let mut rung = Rung::default();
            change(&mut rung);
            let rungs = [rung].into();
            Ladder {
                rungs,
                ..Ladder::default()
            }
            .is_possible()
        };
        let rungs = |count| Ladder {
            rungs: alloc::vec![Rung::default(); count],
            ..Ladder::default()
        };
        assert!(rungs(MOST_RUNGS).is_possible() && !rungs(MOST_RUNGS + 1).is_possible());
        assert!(with(|_| {}) && with(|rung| rung.lost_percent = 100.0));
        assert!(!with(|rung| rung.mbit_s = -1.0));
        assert!(!with(|rung| rung.packets_per_s = -1.0));
        assert!(!with(|rung| rung.lost_percent = 100.5));
        assert!(!with(|rung| rung.busy_percent = -0.5));
    }
}
