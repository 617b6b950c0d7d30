//! `wireboot nic table`: what a card gets through bus and line, by formula and in virtual time, beside what W. Wadge's page gives.

mod dissertation;
mod host;
mod offloads;
mod runs;
mod sheet;
mod subject;
mod sweeps;

use serde_json::{Value, json};
use wireboot_card::model::{Bus, Line};

use sheet::Sheet;
use subject::Subject;

/// Names of the buses.
pub(crate) const BUSES: [&str; 4] = names(Bus::PRESETS);
/// Names of the lines.
pub(crate) const LINES: [&str; 4] = names(Line::PRESETS);

const fn names<T: Copy, const N: usize>(presets: [(&'static str, T); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    #[allow(clippy::indexing_slicing, reason = "computed when it is compiled")]
    while at < N {
        names[at] = presets[at].0;
        at += 1;
    }
    names
}

/// All tables for a bus and a line.
pub(crate) struct Tables {
    subject: Subject,
    sheets: Vec<Sheet>,
}

impl Tables {
    /// None when there is no such bus or line.
    pub(crate) fn new(bus: &str, line: &str) -> Option<Self> {
        let subject = Subject {
            bus_name: bus.to_owned(),
            bus: Bus::named(bus)?,
            line_name: line.to_owned(),
            line: Line::named(line)?,
        };
        let sheets = vec![
            dissertation::sheet(),
            sweeps::fragments(&subject),
            sweeps::coalesced(&subject),
            sweeps::payloads(&subject),
            sweeps::mtus(&subject),
            offloads::sheet(&subject),
            host::sheet(),
            sweeps::everywhere(),
        ];
        Some(Self { subject, sheets })
    }

    pub(crate) fn text(&self) -> String {
        let sheets: Vec<_> = self.sheets.iter().map(Sheet::text).collect();
        sheets.join("\n")
    }

    /// All rows, for programs. Rates are in Mbit/s, times in the unit that their key ends with.
    pub(crate) fn json(&self) -> Value {
        let Subject { bus, line, .. } = &self.subject;
        let sheets: serde_json::Map<_, _> = self
            .sheets
            .iter()
            .map(|sheet| (sheet.name().to_owned(), sheet.json()))
            .collect();
        json!({
            "bus": {
                "name": self.subject.bus_name,
                "per_transfer_ps": bus.per_transfer.get(),
                "bit_s": bus.rate.get(),
                "assumed": bus.is_assumed(),
            },
            "line": {
                "name": self.subject.line_name,
                "bit_s": line.rate.get(),
                "delay_ps": line.delay.get(),
                "lost_of_a_million": line.loss,
                "mtu": line.mtu,
            },
            "tables": sheets,
        })
    }
}

#[cfg(test)]
mod tests;
