//! One file by TFTP in blocks and windows of many sizes, by the firmware and by wireboot.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Whose TFTP fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The firmware's, by `EFI_MTFTP4_PROTOCOL` or `EFI_MTFTP6_PROTOCOL`.
    #[default]
    Firmware,
    /// wireboot's engine, on the BSP.
    Wireboot,
    /// What a newer version knows.
    #[serde(other)]
    Other,
}

/// The file in blocks and windows of one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cell {
    /// Who fetched it.
    pub by: By,
    /// The version of IP, 4 or 6.
    pub ip: u8,
    /// Bytes of a block that were asked for.
    pub block_bytes: u32,
    /// Blocks of a window that were asked for; `None` for as many as whoever fetched asks for by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Windows whose size whoever fetched told anew with each acknowledgement (TFTP's option `msftwindow`) were asked for.
    #[serde(skip_serializing_if = "is_false")]
    pub varying: bool,
    /// Bytes of a block that the server granted; 512 where it knows no options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted_block_bytes: Option<u32>,
    /// Blocks of a window that it granted; 1 where it knows no windows. The last, of those that vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted_window: Option<u32>,
    /// Bytes of the file.
    pub bytes: u64,
    /// From the request to the last byte: the fastest of all times that it was fetched. 0 where it did not come.
    pub seconds: f64,
    /// How often it was fetched.
    pub runs: u32,
    /// Requests and acknowledgements that were sent again in the fastest; of the firmware, how often it waited in vain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<u64>,
    /// Why it did not come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Why a file did not come by an option that the server does not know.
pub const NOT_GRANTED: &str = "not granted";

/// What need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(it: &bool) -> bool {
    !it
}

/// Bytes of an Ethernet frame's packet, and of its headers: IP's, and UDP's with TFTP's.
const PACKET: u64 = 1500;
const IPV4: u64 = 20;
const IPV6: u64 = 40;
/// In fragments over IPv6.
const FRAGMENT: u64 = 8;
const UDP_TFTP: u64 = 12;

impl Cell {
    /// Whether the file came.
    pub fn came(&self) -> bool {
        self.failure.is_none() && self.seconds > 0.0 && self.bytes > 0
    }

    /// Bits a second; 0 where the file did not come.
    pub fn bits_per_second(&self) -> f64 {
        match self.came() {
            true => crate::throughput::rate(self.bytes, self.seconds),
            false => 0.0,
        }
    }

    /// Blocks of the file.
    fn blocks(&self) -> u64 {
        let granted = self.granted_block_bytes.unwrap_or(self.block_bytes);
        // One that is not full ends the file.
        self.bytes / u64::from(granted.max(1)) + 1
    }

    /// Packets that brought it, in a network of 1500 bytes a packet.
    pub fn packets(&self) -> u64 {
        let block = u64::from(self.granted_block_bytes.unwrap_or(self.block_bytes)) + UDP_TFTP;
        let (whole, piece) = match self.ip {
            // Lengths of fragments are multiples of 8.
            6 => (PACKET - IPV6, (PACKET - IPV6 - FRAGMENT) / 8 * 8),
            _ => (PACKET - IPV4, (PACKET - IPV4) / 8 * 8),
        };
        let each = if block <= whole {
            1
        } else {
            block.div_ceil(piece)
        };
        self.blocks().saturating_mul(each)
    }

    /// Windows that it came in.
    pub fn windows(&self) -> u64 {
        let window = self.granted_window.or(self.window).unwrap_or(1);
        self.blocks().div_ceil(u64::from(window.max(1)))
    }

    /// Whether its time can be.
    pub(crate) fn is_possible(&self) -> bool {
        self.seconds >= 0.0
    }
}

/// The cells of whoever fetched over a version of IP.
pub fn of(cells: &[Cell], by: By, ip: u8) -> impl Iterator<Item = &Cell> + Clone {
    let own = cells.iter();
    own.filter(move |cell| cell.by == by && cell.ip == ip)
}

/// The fastest of those that came.
pub fn best<'c>(cells: impl Iterator<Item = &'c Cell>) -> Option<&'c Cell> {
    cells
        .filter(|cell| cell.came())
        .min_by(|one, other| one.seconds.total_cmp(&other.seconds))
}

/// What explains the times of cells: each packet costs so much, and each window a round trip more. The smallest squares of relative errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Seconds of a packet.
    pub packet_s: f64,
    /// Seconds of a window beside its packets.
    pub round_trip_s: f64,
    /// By which part of its time a cell differs from what this says: the square root of the mean square.
    pub error: f64,
}

impl Model {
    /// Of cells that came without anything sent again. `None` where they tell nothing: of one size, or where a packet would cost less than nothing.
    pub fn of<'c>(cells: impl Iterator<Item = &'c Cell>) -> Option<Self> {
        let clean = |cell: &&Cell| {
            // Nobody has counted the windows of those that vary.
            cell.came() && cell.retransmitted.unwrap_or(0) == 0 && !cell.varying
        };
        // Packets and windows of a second of each: the model says 1 of all.
        let parts: Vec<(f64, f64)> = cells
            .filter(clean)
            .map(|cell| {
                let (packets, windows) = (cell.packets() as f64, cell.windows() as f64);
                (packets / cell.seconds, windows / cell.seconds)
            })
            .collect();
        let sum = |of: fn(f64, f64) -> f64| parts.iter().map(|&(p, w)| of(p, w)).sum::<f64>();
        let (pp, pw, ww) = (sum(|p, _| p * p), sum(|p, w| p * w), sum(|_, w| w * w));
        let (p, w) = (sum(|p, _| p), sum(|_, w| w));
        let spread = pp * ww - pw * pw;
        // Of one size, rounding leaves next to nothing.
        if parts.len() < 3 || spread <= pp * ww * 1e-9 {
            return None;
        }
        let packet_s = (p * ww - w * pw) / spread;
        let round_trip_s = (w * pp - p * pw) / spread;
        let square = parts.iter().map(|(p, w)| {
            let said = packet_s * p + round_trip_s * w;
            (said - 1.0) * (said - 1.0)
        });
        let error = root(square.sum::<f64>() / parts.len() as f64);
        (packet_s > 0.0 && round_trip_s >= 0.0).then_some(Self {
            packet_s,
            round_trip_s,
            error,
        })
    }
}

/// A square root, which `core` lacks: by Newton's method.
fn root(square: f64) -> f64 {
    if square <= 0.0 {
        return 0.0;
    }
    let mut root = square.max(1.0);
    for _ in 0..64 {
        root = (root + square / root) / 2.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn cell(ip: u8, block: u32, window: u32) -> Cell {
        Cell {
            ip,
            block_bytes: block,
            window: Some(window),
            granted_block_bytes: Some(block),
            granted_window: Some(window),
            bytes: 1_000_000,
            seconds: 1.0,
            runs: 1,
            ..Cell::default()
        }
    }

    #[test]
    fn blocks_beyond_the_packet_are_several() {
        for (ip, block, each) in [
            (4, 512, 1),
            (4, 1468, 1),
            (4, 1469, 2),
            (4, 8192, 6),
            (6, 1448, 1),
            (6, 1449, 2),
            (6, 8192, 6),
        ] {
            let blocks = u64::from(1_000_000 / block) + 1;
            assert_eq!(cell(ip, block, 4).packets(), blocks * each, "{ip} {block}");
        }
        assert_eq!(cell(4, 1000, 4).windows(), 251);
        // What was granted counts.
        let less = Cell {
            granted_block_bytes: Some(512),
            granted_window: Some(1),
            ..cell(4, 1468, 64)
        };
        assert_eq!((less.packets(), less.windows()), (1954, 1954));
    }

    #[test]
    fn the_best_is_the_fastest_that_came() {
        let timed = |seconds, failure: Option<&str>| Cell {
            seconds,
            failure: failure.map(Into::into),
            ..cell(4, 512, 1)
        };
        let cells = vec![
            timed(2.0, None),
            timed(0.5, Some("TIMEOUT")),
            timed(1.0, None),
            timed(0.0, None),
        ];
        assert_eq!(best(cells.iter()).unwrap().seconds, 1.0);
        assert_eq!(best(cells[3..].iter()), None);
        assert_eq!(cells[0].bits_per_second(), 4e6);
        assert_eq!(cells[1].bits_per_second(), 0.0);
        assert_eq!(of(&cells, By::Firmware, 4).count(), 4);
        assert_eq!(of(&cells, By::Firmware, 6).count(), 0);
        assert_eq!(of(&cells, By::Wireboot, 4).count(), 0);
    }

    #[test]
    fn one_size_and_repetitions_tell_no_model() {
        let same = [cell(4, 512, 1), cell(4, 512, 1), cell(4, 512, 1)];
        assert_eq!(Model::of(same.iter()), None);
        let mut cells = [cell(4, 512, 1), cell(4, 1024, 4), cell(4, 1468, 64)];
        for one in &mut cells {
            one.seconds = one.packets() as f64 * 1e-4 + one.windows() as f64 * 1e-3;
        }
        assert!(Model::of(cells.iter()).is_some());
        cells[1].retransmitted = Some(1);
        assert_eq!(Model::of(cells.iter()), None);
        (cells[1].retransmitted, cells[1].varying) = (None, true);
        assert_eq!(Model::of(cells.iter()), None);
        assert_eq!(Model::of([].iter()), None);
    }

    proptest! {
        #[test]
        fn times_of_a_model_tell_the_model(packet in 1e-6_f64..1e-3, trip in 1e-5_f64..1e-1) {
            let mut cells = Vec::new();
            for block in [512, 1024, 1468, 8192] {
                for window in [1, 4, 64] {
                    let mut one = cell(4, block, window);
                    one.seconds = one.packets() as f64 * packet + one.windows() as f64 * trip;
                    cells.push(one);
                }
            }
            let model = Model::of(cells.iter()).unwrap();
            prop_assert!((model.packet_s / packet - 1.0).abs() < 1e-3, "{model:?}");
            prop_assert!((model.round_trip_s / trip - 1.0).abs() < 1e-3, "{model:?}");
            prop_assert!(model.error < 1e-6, "{model:?}");
        }

        #[test]
        fn roots_are_roots(square in 0.0_f64..1e6) {
            let root = root(square);
            prop_assert!((root * root - square).abs() <= 1e-9 * square.max(1e-9));
        }
    }
}
