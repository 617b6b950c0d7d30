//! What the machine measured: read, in figures, as a table.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};
use wireboot_lab::statistics::median;

/// The line that the machine writes to its serial port, without its first word.
#[derive(Debug, Deserialize)]
pub(super) struct Measured {
    /// wireboot's version.
    pub version: String,
    /// Ticks of the machine's time-stamp counter in a second.
    pub hertz: u64,
    /// Whether the firmware's network is as it was before.
    pub as_found: bool,
    pub rungs: Vec<MeasuredRung>,
}

/// One thing that was measured.
#[derive(Debug, Deserialize)]
pub(super) struct MeasuredRung {
    /// What it is compared with: the first rung of the same kind.
    pub kind: Kind,
    /// Its name in `doctor.efi ladder`.
    pub name: String,
    /// Why the last measurement failed, if one did.
    pub error: Option<String>,
    /// One for each round.
    pub samples: Vec<Sample>,
}

/// What a rung measures. It is compared with the first of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Receiving full frames, and files.
    Receive,
    /// Receiving the smallest frames.
    ReceiveSmall,
    /// Sending full frames.
    Transmit,
    /// Sending the smallest frames.
    TransmitSmall,
    /// Hashing by the BSP, which is not the network's.
    Work,
    /// What each of the network's processors took for its part of a file.
    Engine,
}

impl Kind {
    /// In the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Receive,
        Self::ReceiveSmall,
        Self::Transmit,
        Self::TransmitSmall,
        Self::Work,
        Self::Engine,
    ];

    /// The heading in tables and charts.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Receive => "receive, full frames and files",
            Self::ReceiveSmall => "receive, small frames",
            Self::Transmit => "transmit, full frames",
            Self::TransmitSmall => "transmit, small frames",
            Self::Work => "BSP hashes (SHA-256)",
            Self::Engine => "each engine, HTTP",
        }
    }
}

/// What turns of the engine that brought frames consisted of, in ticks of the machine's time-stamp counter.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Phases {
    /// Turns that brought frames.
    pub turns: u64,
    /// Frames that they brought.
    pub frames: u64,
    /// Frames sent in them.
    pub sent: u64,
    /// The driver's calls that brought a frame.
    pub receive: u64,
    /// Its last calls of a burst, which brought none.
    pub look: u64,
    /// The engine's work on frames on loan: headers, checksum, copy, protocol.
    pub take: u64,
    /// The driver's calls that send frames and take back their buffers.
    pub transmit: u64,
}

/// One measurement, in the machine's units.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Packets that came through; 0 where they were not counted.
    pub packets: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Ticks of the time-stamp counter in calls that moved packets; 0 where that was not measured.
    pub busy: u64,
    /// Packets sent at the other end; 0 where that is not known.
    pub sent: u64,
    /// How many of those did not come through.
    pub lost: u64,
    /// How long the sender waited for room in the cable, in microseconds.
    pub waited: u64,
    /// Who else got the frames, where they came by the firmware's packet service.
    #[serde(default)]
    pub receivers: Option<u64>,
    /// What the busy time consisted of, where it was recorded.
    #[serde(default)]
    pub phases: Option<Phases>,
    /// The least ticks that a packet took, on average of 128 in a row: of received frames, and by the firmware's TFTP and HTTP.
    #[serde(default)]
    pub least: Option<u64>,
}

impl Sample {
    fn mbit_s(&self) -> f64 {
        ratio(self.bytes as f64 * 8.0, self.micros as f64)
    }
}

/// What a run measured: all rungs, and the machine that they were measured on.
#[derive(Debug, Serialize)]
pub struct Ladder {
    /// wireboot's version in the machine.
    pub version: String,
    /// Ticks of the machine's time-stamp counter in a second.
    pub hertz: u64,
    /// Whether the machine left the firmware's network as it was before.
    pub as_found: bool,
    /// How often each rung was to be measured.
    pub rounds: usize,
    /// Each rung, those of a kind behind one another, its top first.
    pub rungs: Vec<Rung>,
}

/// One rung. The rate is the median, the other figures are those of the sample with that rate: of an even number, of the slower of the two
/// in the middle. None where nothing was measured.
#[derive(Debug, Serialize)]
pub struct Rung {
    /// What it is compared with.
    pub kind: Kind,
    /// Its name in `doctor.efi ladder`.
    pub name: String,
    /// Mbit/s of payload.
    pub mbit_s: f64,
    /// Its part of the top one's.
    pub share: f64,
    /// Thousands of packets a second.
    pub kpps: f64,
    /// Cycles that the machine's processor worked for each packet.
    pub cycles_per_packet: f64,
    /// The same for each byte.
    pub cycles_per_byte: f64,
    /// The part of the time that it worked.
    pub work: f64,
    /// The part of the packets sent that did not come through.
    pub lost: f64,
    /// The part of the time that the sender waited for room in the cable.
    pub sender_waited: f64,
    /// The rate in Mbit/s of every round that gave one.
    pub rounds_mbit_s: Vec<f64>,
    /// The measurement with that rate, in the machine's units.
    pub sample: Sample,
    /// Why the last measurement failed, if one did.
    pub error: Option<String>,
}

impl Ladder {
    /// Reads what the machine wrote, which was to measure each rung so many times.
    ///
    /// # Errors
    /// When it is not that.
    pub fn read(json: &str, rounds: usize) -> Result<Self> {
        let measured: Measured =
            serde_json::from_str(json).context("the figures from the machine are damaged")?;
        let mut rungs: Vec<Rung> = Vec::new();
        for kind in Kind::ALL {
            for rung in measured.rungs.iter().filter(|rung| rung.kind == kind) {
                let top = rungs
                    .iter()
                    .find(|other| other.kind == kind && other.mbit_s > 0.0)
                    .map(|other| other.mbit_s);
                rungs.push(Rung::new(rung, measured.hertz, top));
            }
        }
        Ok(Self {
            version: measured.version,
            hertz: measured.hertz,
            as_found: measured.as_found,
            rounds,
            rungs,
        })
    }

    /// Those of a kind, the top one first.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Rung> {
        self.rungs.iter().filter(move |rung| rung.kind == kind)
    }

    /// Tables for a terminal, one for each kind.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for kind in Kind::ALL {
            if self.of(kind).next().is_none() {
                continue;
            }
            let mut table = Table::new();
            table.load_style(presets::NOTHING);
            table.set_header([
                kind.title(),
                "Mbit/s",
                "lowest to highest",
                "share",
                "kpkt/s",
                "ns/pkt",
                "of these guest",
                "cycles/pkt",
                "cycles/KiB",
                "guest works",
                "lost",
                "sender waits",
            ]);
            for column in table.column_iter_mut().skip(1) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            for rung in self.of(kind) {
                let mut cells = rung.cells(self.hertz);
                cells.extend(rung.failed_rounds(self.rounds));
                table.add_row(cells);
            }
            text.push_str(&table.trim_fmt());
            text.push_str("\n\n");
        }
        let rounds = self.rungs.iter().map(|rung| rung.rounds_mbit_s.len()).max();
        let _ = writeln!(
            text,
            "Mbit/s: median of the rounds, {} at most. share: of the first row.\n\
             kpkt/s and all behind it: of the round with that rate, or the next slower one.\n\
             guest: time in calls that moved packets; the rest of a packet's time is the host's.\n\
             sender waits: for room in the cable; near 0 %, the sender was the limit, not the machine.",
            rounds.unwrap_or_default(),
        );
        if !self.as_found {
            text.push_str("The firmware's network was not left as it was found.\n");
        }
        text
    }
}

impl Rung {
    fn new(rung: &MeasuredRung, hertz: u64, top: Option<f64>) -> Self {
        // Engines have a sample without a time where the file did not come.
        let timed = rung.samples.iter().filter(|sample| sample.micros > 0);
        let mut sorted: Vec<Sample> = timed.copied().collect();
        let rounds_mbit_s: Vec<f64> = sorted.iter().map(Sample::mbit_s).collect();
        sorted.sort_by(|one, other| one.mbit_s().total_cmp(&other.mbit_s()));
        let middle = sorted.get(sorted.len().saturating_sub(1) / 2);
        let sample = middle.copied().unwrap_or_default();
        let seconds = sample.micros as f64 / 1e6;
        let mbit_s = median(&rounds_mbit_s).unwrap_or_default();
        Self {
            kind: rung.kind,
            name: rung.name.clone(),
            mbit_s,
            share: ratio(mbit_s, top.unwrap_or(mbit_s)),
            kpps: ratio(sample.packets as f64 / 1e3, seconds),
            cycles_per_packet: ratio(sample.busy as f64, sample.packets as f64),
            cycles_per_byte: ratio(sample.busy as f64, sample.bytes as f64),
            work: ratio(sample.busy as f64 / hertz.max(1) as f64, seconds),
            lost: ratio(sample.lost as f64, sample.sent as f64),
            sender_waited: ratio(sample.waited as f64, sample.micros as f64),
            rounds_mbit_s,
            sample,
            error: rung.error.clone(),
        }
    }

    /// How many of so many rounds gave no figure, where others did, and why.
    fn failed_rounds(&self, rounds: usize) -> Option<String> {
        let measured = self.rounds_mbit_s.len();
        // What has none at all says so in its row.
        if measured == 0 {
            return None;
        }
        // What is measured twice in a round may have as many figures as there are rounds.
        let failed = rounds.saturating_sub(measured).max(1);
        Some(match &self.error {
            Some(reason) => format!("{failed} of {rounds} rounds failed: {reason}"),
            None if measured < rounds => format!("measured in {measured} of {rounds} rounds"),
            None => return None,
        })
    }

    fn cells(&self, hertz: u64) -> Vec<String> {
        if self.sample.micros == 0 {
            let reason = self.error.as_deref().unwrap_or("nothing came");
            return vec![
                format!("  {}", self.name),
                format!("not measured: {reason}"),
            ];
        }
        let known = |is: bool, text: String| if is { text } else { "-".to_owned() };
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let (packets, busy) = (self.sample.packets > 0, self.sample.busy > 0);
        let frames = self.sample.sent > 0;
        let receiving = matches!(self.kind, Kind::Receive | Kind::ReceiveSmall);
        let guest = self.cycles_per_packet / hertz.max(1) as f64 * 1e9;
        let name = match self.sample.receivers {
            Some(others) => format!("  {} (other receivers: {others})", self.name),
            None => format!("  {}", self.name),
        };
        let rounds = self.rounds_mbit_s.iter().copied();
        let (lowest, highest) = rounds.fold((f64::INFINITY, 0.0), |(lowest, highest), one| {
            (one.min(lowest), one.max(highest))
        });
        vec![
            name,
            format!("{:.0}", self.mbit_s),
            known(
                self.rounds_mbit_s.len() > 1,
                format!("{lowest:.0} to {highest:.0}"),
            ),
            percent(self.share),
            known(packets, format!("{:.0}", self.kpps)),
            known(packets, format!("{:.0}", ratio(1e6, self.kpps))),
            known(packets && busy, format!("{guest:.0}")),
            known(packets && busy, format!("{:.0}", self.cycles_per_packet)),
            known(busy, format!("{:.0}", self.cycles_per_byte * 1024.0)),
            known(busy, percent(self.work)),
            known(frames, format!("{:.1} %", self.lost * 100.0)),
            known(frames && receiving, percent(self.sender_waited.min(1.0))),
        ]
    }
}

/// 0 where there is nothing to divide by.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As the machine writes it.
    pub(crate) const JSON: &str = r#"{"version":"0.1.0","hertz":2000000000,"as_found":true,"rungs":[
        {"kind":"transmit","name":"driver","error":null,"samples":[]},
        {"kind":"receive","name":"driver","error":null,"samples":[
            {"packets":300000,"bytes":441600000,"micros":1000000,"busy":120000000,"work":6,"sent":300064,"lost":0,"waited":400000},
            {"packets":310000,"bytes":456320000,"micros":1000000,"busy":120000000,"work":6,"sent":310064,"lost":0,"waited":400000},
            {"packets":100000,"bytes":147200000,"micros":1000000,"busy":120000000,"work":6,"sent":310064,"lost":9,"waited":400000}]},
        {"kind":"receive","name":"SNP","error":null,"samples":[
            {"packets":75000,"bytes":110400000,"micros":1000000,"busy":0,"work":0,"sent":80000,"lost":5000,"waited":0,"receivers":3}]},
        {"kind":"receive","name":"MNP","error":"no \"MNP\"","samples":[]}]}"#;

    #[test]
    fn shares_are_of_the_first_and_medians() {
        let ladder = Ladder::read(JSON, 3).unwrap();
        let names: Vec<_> = ladder.rungs.iter().map(|rung| rung.name.as_str()).collect();
        assert_eq!(names, ["driver", "SNP", "MNP", "driver"]);
        let driver = &ladder.rungs[0];
        assert!((driver.mbit_s - 3532.8).abs() < 0.1 && (driver.share - 1.0).abs() < 1e-9);
        assert!((driver.cycles_per_packet - 400.0).abs() < 1e-9);
        assert!((driver.work - 0.06).abs() < 1e-9);
        assert!((driver.sender_waited - 0.4).abs() < 1e-9);
        assert!((ladder.rungs[1].share - 0.25).abs() < 1e-9);
        let text = ladder.text();
        assert!(text.contains("3533") && text.contains("25 %"), "{text}");
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        assert!(row("  driver ").contains("1178 to 3651"), "{text}");
        assert!(!row("  SNP ").contains(" to "), "{text}");
        assert!(text.contains("the rounds, 3 at most"), "{text}");
        assert!(text.contains("not measured: no \"MNP\""), "{text}");
        assert!(text.contains("  SNP (other receivers: 3)"), "{text}");
        assert!(!text.contains("not left as it was found"), "{text}");
        let left = JSON.replace("\"as_found\":true", "\"as_found\":false");
        let text = Ladder::read(&left, 3).unwrap().text();
        assert!(text.contains("not left as it was found"), "{text}");
    }

    #[test]
    fn damage_is_told() {
        assert!(Ladder::read(JSON.get(..90).unwrap(), 3).is_err());
    }

    /// A ladder of one rung: measurements of a second each, by their packets of 1000 bytes, and why another one failed.
    fn one_rung(packets: &[u64], error: Option<&str>, rounds: usize) -> Ladder {
        let samples = packets.iter().map(|packets| {
            serde_json::json!({
                "packets": packets, "bytes": packets * 1000, "micros": 1_000_000,
                "busy": 0, "sent": 0, "lost": 0, "waited": 0,
            })
        });
        let samples: Vec<_> = samples.collect();
        let rung = serde_json::json!({
            "kind": "receive", "name": "SNP", "error": error, "samples": samples,
        });
        let json = serde_json::json!({
            "version": "0.1.0", "hertz": 1, "as_found": true, "rungs": [rung],
        });
        Ladder::read(&json.to_string(), rounds).unwrap()
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        let ladder = one_rung(&[9000, 1000, 2000, 4000], None, 4);
        let rung = &ladder.rungs[0];
        assert!((rung.mbit_s - 24.0).abs() < 1e-9, "{}", rung.mbit_s);
        assert_eq!(rung.sample.packets, 2000);
        assert!((rung.kpps - 2.0).abs() < 1e-9, "{}", rung.kpps);
        assert_eq!(one_rung(&[3000, 1000], None, 2).rungs[0].mbit_s, 16.0);
    }

    #[test]
    fn rounds_that_failed_are_told() {
        let row = |ladder: &Ladder| {
            let text = ladder.text();
            let row = text.lines().find(|line| line.contains("  SNP"));
            row.unwrap().to_owned()
        };
        let failed = row(&one_rung(&[1000], Some("no answer"), 5));
        let told = "  4 of 5 rounds failed: no answer";
        assert!(failed.ends_with(told), "{failed}");
        let fewer = row(&one_rung(&[1000, 1000], None, 5));
        assert!(fewer.ends_with("  measured in 2 of 5 rounds"), "{fewer}");
        let all = row(&one_rung(&[1000, 1000], None, 2));
        assert!(!all.contains("rounds"), "{all}");
        let none = row(&one_rung(&[], Some("no answer"), 2));
        assert!(none.ends_with("not measured: no answer"), "{none}");
    }

    #[test]
    fn a_sample_without_a_time_is_none() {
        let timeless = JSON.replace("\"micros\":1000000,\"busy\":0", "\"micros\":0,\"busy\":0");
        let ladder = Ladder::read(&timeless, 3).unwrap();
        let snp = &ladder.rungs[1];
        assert_eq!((snp.name.as_str(), snp.rounds_mbit_s.len()), ("SNP", 0));
        assert_eq!(snp.mbit_s, 0.0);
    }
}
