//! A live guest at the speed of a model, beside what the formula says. Nothing is asked of it: a computer that is too slow for the model shows less.

use wireboot_card::model::{Bus, Line, on_bus};

/// Payload of the frames that are counted, and what of it is a datagram's.
const FRAME: u32 = 1500;
const DATAGRAM: u32 = 1472;

/// A bus, a line, or both under the card that sends frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modelled {
    /// Short name for `--only`.
    pub id: &'static str,
    bus: Option<&'static str>,
    line: Option<&'static str>,
}

pub(super) const MODELLED: [Modelled; 3] = [
    Modelled {
        id: "model-line",
        bus: None,
        line: Some("1g"),
    },
    Modelled {
        id: "model-bus",
        bus: Some("pci32-33"),
        line: None,
    },
    Modelled {
        id: "model-bus-line",
        bus: Some("pci64-66"),
        line: Some("1g"),
    },
];

impl Modelled {
    /// The card's arguments.
    pub(super) fn arguments(&self) -> Vec<&'static str> {
        let bus = self.bus.map(|name| ["--bus", name]);
        let line = self.line.map(|name| ["--line", name]);
        [bus, line].into_iter().flatten().flatten().collect()
    }

    /// In a few words.
    pub(super) fn title(&self) -> String {
        self.arguments().join(" ")
    }

    /// Mbit/s of datagrams, a frame and a transfer each, by the formula: what is slower decides.
    pub(super) fn mbit_s(&self) -> f64 {
        let bus = self.bus.and_then(Bus::named);
        let line = self.line.and_then(Line::named);
        let times = [
            bus.map(|bus| bus.transfer(on_bus(FRAME))),
            line.map(|line| line.frame(FRAME)),
        ];
        let longest = times.into_iter().flatten().max();
        longest.map_or(0.0, |time| f64::from(DATAGRAM) * 8e6 / time.get() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slower_decides() {
        let of = |id: &str| {
            let one = MODELLED.iter().find(|one| one.id == id).unwrap();
            (one.title(), (one.mbit_s() * 10.0).round() / 10.0)
        };
        // 1538 bytes at 1 Gbit/s; 6.078 us and 1514 bytes at 1000.15 Mbit/s.
        assert_eq!(of("model-line"), ("--line 1g".to_owned(), 957.1));
        assert_eq!(of("model-bus"), ("--bus pci32-33".to_owned(), 647.5));
        let (title, mbit_s) = of("model-bus-line");
        assert_eq!(title, "--bus pci64-66 --line 1g");
        assert_eq!(mbit_s, 957.1);
    }
}
