//! Machines that begin with a snapshot of their firmware.

use std::fs;

use anyhow::{Result, ensure};
use wireboot_lab::capture::{Capture, HEADERS};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::INTERFACE;
use wireboot_lab::qemu::Accelerator;

use crate::fixture::Fixture;

/// The header of a capture without packets.
const NOTHING: u64 = 24;

/// The second machine of a kind makes the snapshot, the third finds it. They boot as from power-on, and nothing is sent in their name before they run
/// (QEMU would, by RARP).
pub(crate) fn second_and_third_of_a_kind(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    fixture.machine.accelerator = Accelerator::Tcg;
    // A kind of its own.
    fixture.machine.memory_mib += 1;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    drop(fixture.start()?);
    for number in 2..=3 {
        let file = lab.scratch().join("rarp.pcap");
        let capture = Capture::start(lab, INTERFACE, "rarp", HEADERS, &file)?;
        let machine = fixture.fetches()?;
        ensure!(machine.from_snapshot, "machine {number} began at power-on");
        let captured = fs::metadata(capture.stop()?)?.len();
        ensure!(captured == NOTHING, "QEMU sent RARP for machine {number}");
    }
    Ok(())
}
