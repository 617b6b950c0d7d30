//! The driver against a chip that does what a fuzzer's bytes say.

use std::vec;

use super::{Model, ModelConfig, Verdict};
use crate::e1000e::E1000e;
use crate::e1000e::registers::{HEAD, RCTL, RECEIVE, TCTL, TRANSMIT};
use crate::model::fuzz::{Bytes, Held};

/// Runs the driver for Intel's 82574 against a hostile chip: `data` configures the chip, then lists what
/// driver and chip do in turn.
///
/// # Panics
/// When the driver breaks its contract: a frame that is not what [`crate::Frame`] promises, a fault that does not
/// last, a chip in use after it lied, memory given back while the chip runs.
pub fn fuzz_e1000e(data: &[u8]) {
    let mut bytes = Bytes(data);
    let kind = bytes.u8();
    let mut config = ModelConfig::default();
    if kind & 1 != 0 {
        config.device = 0x100e;
    }
    if kind & 2 != 0 {
        config.mac[usize::from(bytes.u8() % 6)] = bytes.u8();
    }
    config.has_mac = kind & 4 == 0;
    let model = Model::new(config);
    if let Ok(nic) = E1000e::new(model.pci()) {
        let device = model.clone();
        let mut driver = Held::new(nic, move || device.is_running());
        while !bytes.0.is_empty() {
            match bytes.u8() % 16 {
                action @ 0..=6 => driver.act(action, &mut bytes),
                7 | 8 => {
                    let verdict = match bytes.u8() % 4 {
                        0 => Verdict::NotLooked,
                        1 => Verdict::Right,
                        2 => Verdict::Wrong,
                        _ => Verdict::WrongHeader,
                    };
                    let frame = vec![bytes.u8(); (bytes.u16() % 5000).into()];
                    model.deliver(&frame, verdict);
                }
                9 => drop(model.collect()),
                10..=12 => {
                    let ring = [RECEIVE, TRANSMIT][usize::from(bytes.u8() % 2)];
                    let (n, len, checksum, status) =
                        (bytes.u8(), bytes.u16(), bytes.u16(), bytes.u16());
                    let word = u64::from(len) | u64::from(checksum) << 16 | u64::from(status) << 32;
                    model.lie_descriptor(ring, n.into(), word);
                }
                13 => match bytes.u8() % 4 {
                    // On again is nothing that a driver could see.
                    0 => model.lie_register(RCTL, 0),
                    1 => model.lie_register(TCTL, 0),
                    2 => model.lie_register(RECEIVE + HEAD, bytes.u16().into()),
                    _ => model.lie_register(TRANSMIT + HEAD, bytes.u16().into()),
                },
                14 => match bytes.u8() {
                    0 => model.remove(),
                    1 => driver.stop(),
                    _ => {}
                },
                _ => model.set_link_up(bytes.u8() & 1 != 0),
            }
        }
    }
    assert!(
        !model.freed_while_running(),
        "memory freed under the device"
    );
    assert_eq!(model.blocks(), 0, "memory lost");
}
