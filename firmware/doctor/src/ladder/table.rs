//! The figures: a table for people, JSON for programs.

use super::Sample;
use crate::error::Error;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_net::sort;

/// What is compared: each with the best that the card can do in its kind, which is a rung too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    pub(crate) const ALL: [Self; 6] = [
        Self::Receive,
        Self::ReceiveSmall,
        Self::Transmit,
        Self::TransmitSmall,
        Self::Work,
        Self::Engine,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::ReceiveSmall => "receive-small",
            Self::Transmit => "transmit",
            Self::TransmitSmall => "transmit-small",
            Self::Work => "work",
            Self::Engine => "engine",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Receive => "receive, full frames",
            Self::ReceiveSmall => "receive, small frames",
            Self::Transmit => "transmit, full frames",
            Self::TransmitSmall => "transmit, small frames",
            Self::Work => "BSP hashes",
            Self::Engine => "each engine, HTTP",
        }
    }
}

struct Rung {
    kind: Kind,
    name: String,
    samples: Vec<Sample>,
    /// Why the last measurement failed.
    error: Option<String>,
}

impl Rung {
    /// The sample whose rate is the median; of an even number, the slower of the two in the middle. One without a time counts for nothing.
    fn median(&self) -> Option<&Sample> {
        let timed = self.samples.iter().filter(|sample| sample.micros > 0);
        let mut sorted: Vec<&Sample> = timed.collect();
        sort::insertion(&mut sorted, |one, other| {
            one.bits_per_second() < other.bits_per_second()
        });
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }
}

/// All rungs. The first of a kind is that which the others are shares of.
pub(crate) struct Ladder {
    rungs: Vec<Rung>,
    /// Whether the firmware's network is as it was before.
    pub as_found: bool,
}

impl Ladder {
    /// Nothing is measured yet.
    pub(crate) fn new() -> Self {
        Self {
            rungs: Vec::new(),
            as_found: true,
        }
    }

    /// Takes a measurement in.
    pub(crate) fn add(&mut self, kind: Kind, name: &str, result: Result<Sample, Error>) {
        let known = |rung: &Rung| rung.kind == kind && rung.name == name;
        let index = self.rungs.iter().position(known).unwrap_or_else(|| {
            self.rungs.push(Rung {
                kind,
                name: name.to_string(),
                samples: Vec::new(),
                error: None,
            });
            self.rungs.len() - 1
        });
        let Some(rung) = self.rungs.get_mut(index) else {
            return;
        };
        match result {
            Ok(sample) => rung.samples.push(sample),
            Err(error) => {
                log::warn!("{name}, {}: {error}", kind.title());
                rung.error = Some(error.to_string());
            }
        }
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Rung> {
        self.rungs.iter().filter(move |rung| rung.kind == kind)
    }

    /// The table's lines.
    pub(crate) fn table(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for kind in Kind::ALL {
            let top = self
                .of(kind)
                .find_map(|rung| Some(rung.median()?.bits_per_second()));
            if self.of(kind).next().is_none() {
                continue;
            }
            lines.push(format!(
                "{:<30} {:>8} {:>6} {:>8} {:>8} {:>6} {:>6}",
                kind.title(),
                "Mbit/s",
                "share",
                "kpkt/s",
                "cyc/pkt",
                "work",
                "lost",
            ));
            for rung in self.of(kind) {
                let sample = rung.median();
                lines.push(match sample {
                    Some(sample) => line(&rung.name, sample, top),
                    None => format!("  {:<28} not measured", rung.name),
                });
                if let Some(receivers) = sample.and_then(|sample| sample.receivers) {
                    lines.push(format!("    other receivers: {receivers}"));
                }
            }
        }
        lines
    }

    /// One JSON object, on one line.
    pub(crate) fn json(&self, hertz: u64) -> String {
        let rungs: Vec<String> = self.rungs.iter().map(rung_json).collect();
        format!(
            "{{\"version\":\"{}\",\"hertz\":{hertz},\"as_found\":{},\"rungs\":[{}]}}",
            env!("CARGO_PKG_VERSION"),
            self.as_found,
            rungs.join(",")
        )
    }
}

fn line(name: &str, sample: &Sample, top: Option<u64>) -> String {
    let rate = sample.bits_per_second();
    let share = top.filter(|&top| top > 0).map_or_else(String::new, |top| {
        format!("{}%", u128::from(rate) * 100 / u128::from(top))
    });
    let per_packet = sample.busy.checked_div(sample.packets).unwrap_or(0);
    let known = |value: u64, text: String| if value > 0 { text } else { "-".to_string() };
    format!(
        "  {name:<28} {:>8} {share:>6} {:>8} {:>8} {:>6} {:>6}",
        rate / 1_000_000,
        known(
            sample.packets,
            (sample.packets * 1000)
                .checked_div(sample.micros)
                .unwrap_or(0)
                .to_string()
        ),
        known(per_packet, per_packet.to_string()),
        known(sample.busy, format!("{}%", sample.work)),
        sample.lost,
    )
}

fn rung_json(rung: &Rung) -> String {
    let samples: Vec<String> = rung
        .samples
        .iter()
        .map(|sample| {
            let Sample {
                packets,
                bytes,
                micros,
                busy,
                work,
                sent,
                lost,
                waited,
                receivers,
                phases,
                least,
            } = sample;
            let number = |value: Option<u64>| {
                value.map_or_else(|| "null".to_string(), |value| value.to_string())
            };
            let receivers = number(receivers.map(|count| count as u64));
            let least = number(*least);
            let phases = phases.map_or_else(|| "null".to_string(), |phases| phases.json());
            format!(
                "{{\"packets\":{packets},\"bytes\":{bytes},\"micros\":{micros},\"busy\":{busy},\"work\":{work},\
                 \"sent\":{sent},\"lost\":{lost},\"waited\":{waited},\"receivers\":{receivers},\
                 \"phases\":{phases},\"least\":{least}}}"
            )
        })
        .collect();
    let error = rung
        .error
        .as_deref()
        .map_or_else(|| "null".to_string(), quoted);
    format!(
        "{{\"kind\":\"{}\",\"name\":{},\"error\":{error},\"samples\":[{}]}}",
        rung.kind.name(),
        quoted(&rung.name),
        samples.join(",")
    )
}

/// A JSON string (RFC 8259, section 7).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            // The serial line is no place for anything else.
            c if c.is_ascii() => quoted.push(c),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes: u64) -> Sample {
        Sample {
            packets: bytes / 1472,
            bytes,
            micros: 1_000_000,
            busy: 1000,
            work: 12,
            ..Sample::default()
        }
    }

    /// The bytes of the median of these.
    fn median(samples: Vec<Sample>) -> Option<u64> {
        let rung = Rung {
            kind: Kind::Engine,
            name: "1 of 1".to_string(),
            samples,
            error: None,
        };
        rung.median().map(|sample| sample.bytes)
    }

    #[test]
    fn the_median_is_the_hosts() {
        let of = |bytes: &[u64]| median(bytes.iter().copied().map(sample).collect());
        assert_eq!(of(&[3000, 1000, 2000]), Some(2000));
        assert_eq!(of(&[9000, 1000, 2000, 4000]), Some(2000));
        assert_eq!(of(&[]), None);
        // Engines have a sample without a time where the file did not come.
        let timeless = Sample {
            micros: 0,
            ..sample(0)
        };
        assert_eq!(median([timeless.clone()].into()), None);
        assert_eq!(median([timeless, sample(5000)].into()), Some(5000));
    }

    #[test]
    fn rungs_are_shares_of_the_first() {
        let mut ladder = Ladder::new();
        for bytes in [400_000_000, 500_000_000, 450_000_000] {
            ladder.add(Kind::Receive, "driver", Ok(sample(bytes)));
        }
        ladder.add(Kind::Receive, "SNP", Ok(sample(90_000_000)));
        ladder.add(Kind::Receive, "MNP", Err(Error::NoServer));
        let receivers = Some(3);
        let small = Sample {
            receivers,
            ..sample(1)
        };
        ladder.add(Kind::ReceiveSmall, "MNP", Ok(small));
        let table = ladder.table();
        assert_eq!(table.len(), 7);
        assert_eq!(table[6], "    other receivers: 3");
        assert!(
            table[1].contains("3600") && table[1].contains("100%"),
            "{}",
            table[1]
        );
        assert!(
            table[2].contains("720") && table[2].contains("20%"),
            "{}",
            table[2]
        );
        assert!(table[3].contains("not measured"));
        assert!(table.iter().all(|line| line.len() < 80));
    }

    #[test]
    fn json_is_one_line() {
        let mut ladder = Ladder::new();
        ladder.add(Kind::Transmit, "driver", Ok(sample(1472)));
        ladder.add(
            Kind::Transmit,
            "driver",
            Err(Error::options("a \"b\"\n\\ü", "")),
        );
        let json = ladder.json(2);
        assert!(json.starts_with("{\"version\":\""), "{json}");
        assert!(json.contains(
            "\"hertz\":2,\"as_found\":true,\"rungs\":[{\"kind\":\"transmit\",\"name\":\"driver\",\"error\":\""
        ));
        assert!(json.contains("\"bytes\":1472,\"micros\":1000000,\"busy\":1000"));
        assert!(json.is_ascii() && !json.contains('\n'));
    }

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quoted("a\"b\\c\nd\u{fc}"), "\"a\\\"b\\\\c\\u000ad?\"");
    }
}
