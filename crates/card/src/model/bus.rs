//! The host's bus: transfers between the host's memory and the card's.

use super::throughput::{Rate, Throughput};
use super::time::Picos;

/// A bus on which each transfer takes a time of its own, and each byte the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bus {
    /// What a transfer takes, however long it is.
    pub per_transfer: Picos,
    /// What its bytes take.
    pub rate: Rate,
}

/// A rate that was measured with transfers of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of a transfer.
    pub bytes: u32,
    /// In hundreds of bits a second.
    pub in_100_bit_s: u32,
}

/// PCI with 32 bits at 33 MHz, from card to host, measured by W. Wadge.
pub const MEASURED: [Measured; 2] = [
    Measured {
        bytes: 1512,
        in_100_bit_s: 6_656_390,
    },
    Measured {
        bytes: 9072,
        in_100_bit_s: 9_228_537,
    },
];

impl Bus {
    /// PCI with 32 bits at 33 MHz: what [`Self::fit`] makes of [`MEASURED`].
    pub const PCI32_33: Self = Self {
        per_transfer: Picos::new(6_077_811),
        rate: Rate::new(1_000_148_738),
    };

    /// Buses by their names. All but the first are assumptions: the first one's time for each transfer, its rate by width and clock.
    pub const PRESETS: [(&'static str, Self); 4] = [
        ("pci32-33", Self::PCI32_33),
        ("pci64-33", Self::PCI32_33.at_rate(2)),
        ("pci32-66", Self::PCI32_33.at_rate(2)),
        ("pci64-66", Self::PCI32_33.at_rate(4)),
    ];

    const fn at_rate(self, factor: u64) -> Self {
        Self {
            rate: Rate::new(self.rate.get() * factor),
            ..self
        }
    }

    /// The preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::PRESETS
            .into_iter()
            .find_map(|(known, bus)| (known == name).then_some(bus))
    }

    /// Whether nobody has measured it.
    #[must_use]
    pub fn is_assumed(&self) -> bool {
        *self != Self::PCI32_33
    }

    /// The bus on which both were measured, to the nearest picosecond and bit a second: two points, two unknowns. None if no bus of this kind is
    /// so.
    #[must_use]
    pub fn fit(short: Measured, long: Measured) -> Option<Self> {
        let [n1, r1, n2, r2] = [
            short.bytes,
            short.in_100_bit_s,
            long.bytes,
            long.in_100_bit_s,
        ]
        .map(u128::from);
        let longer = n2.checked_sub(n1)?;
        // A byte takes (n2/r2 - n1/r1) / (n2 - n1), in units of 80 ms.
        let per_byte = (n2 * r1).checked_sub(n1 * r2)?;
        let rate = rounded((r1 * r2).checked_mul(longer * 100)?, per_byte)?;
        let start = (n1 * n2).checked_mul(r2.checked_sub(r1)? * 80_000_000_000)?;
        let per_transfer = rounded(start, (r1 * r2).checked_mul(longer)?)?;
        Some(Self {
            per_transfer: Picos::new(per_transfer),
            rate: Rate::new(rate),
        })
    }

    /// How long a transfer of so many bytes takes.
    #[must_use]
    pub fn transfer(&self, bytes: usize) -> Picos {
        self.per_transfer + self.rate.time_of(bytes as u64)
    }

    /// What comes through with transfers of so many bytes, of which `counted` are counted.
    #[must_use]
    pub fn limit(&self, bytes: usize, counted: usize) -> Throughput {
        Throughput {
            bytes: counted as u64,
            time: self.transfer(bytes),
        }
    }
}

fn rounded(part: u128, whole: u128) -> Option<u64> {
    let sum = part.checked_add(whole / 2)?;
    u64::try_from(sum.checked_div(whole)?).ok()
}
