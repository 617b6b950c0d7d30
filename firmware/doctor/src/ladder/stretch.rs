//! The least that a packet takes, on average of many in a row.

/// Packets in a row whose work is taken together, at the least. What each takes depends on how many come at once, and that on the host of a virtual
/// machine; of many stretches, one comes without gaps.
const STRETCH: u64 = 128;

/// The packets of the stretch that has not ended, and the cheapest so far.
#[derive(Default)]
pub(super) struct Stretch {
    packets: u64,
    ticks: u64,
    least: Option<u64>,
}

impl Stretch {
    /// So many packets came at once, and took so many ticks.
    pub(super) fn add(&mut self, packets: u64, ticks: u64) {
        self.packets += packets;
        self.ticks += ticks;
        if self.packets >= STRETCH {
            let each = self.ticks / self.packets;
            self.least = Some(self.least.map_or(each, |least| least.min(each)));
            (self.packets, self.ticks) = (0, 0);
        }
    }

    /// Ticks of each packet of the cheapest stretch; `None` where none was whole.
    pub(super) fn least(&self) -> Option<u64> {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_whole_stretch_counts() {
        let mut stretch = Stretch::default();
        assert_eq!(stretch.least(), None);
        for (packets, ticks) in [(100, 9_000), (60, 600), (1, 7), (127, 6_393), (100, 100)] {
            stretch.add(packets, ticks);
        }
        // 9600 ticks of 160 packets, 6400 of 128, and 100 whose stretch has not ended.
        assert_eq!(stretch.least(), Some(50));
        stretch.add(28, 12_800);
        assert_eq!(stretch.least(), Some(50));
    }
}
