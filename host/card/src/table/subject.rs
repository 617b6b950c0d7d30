//! What the tables are about.

use wireboot_card::model::{Bus, Line};

/// A bus and a line.
pub(super) struct Subject {
    pub(super) bus_name: String,
    pub(super) bus: Bus,
    pub(super) line_name: String,
    pub(super) line: Line,
}

impl Subject {
    pub(super) fn title(&self) -> String {
        format!("bus {}, line {}", self.bus_name, self.line_name)
    }

    /// What is to be said of a bus that was not measured.
    pub(super) fn note(&self) -> Option<&'static str> {
        self.bus.is_assumed().then_some(
            "The bus is an assumption: the start-up of pci32-33, its rate by width and clock.",
        )
    }
}
