//! The soak in short: each kind of fault once, on the BSP (bootstrap processor), on an AP or on several, with the same seed each time. `make soak` goes on from here.

use anyhow::{Result, anyhow};
use wireboot_experiments::soak::{DATA, Engines, Fault, Plan, SoakTestbed, System};
use wireboot_lab::accel;
use wireboot_lab::netns::Lab;
use wireboot_lab::nic::CardChoice;

use crate::fixture::{PATIENCE, boot_program, wireboot};

/// Of all that is chosen at random.
const SEED: u64 = 1;

fn soak(lab: &Lab, faults: &[(Fault, Engines)]) -> Result<()> {
    let testbed = SoakTestbed {
        lab,
        system: System::new(&lab.scratch().join("soak"), &boot_program()?, DATA)?,
        server: wireboot()?,
        accelerator: accel::best(lab, false)?,
        processors: 3,
        card: CardChoice::Qemu,
        limit: 2 * PATIENCE,
    };
    for (&(fault, engines), number) in faults.iter().zip(1..) {
        let plan = Plan {
            engines,
            ..Plan::with_fault(fault, SEED, number)
        };
        testbed.boot(&plan).map_err(|failure| {
            anyhow!(
                "{fault} ({}, engines: {engines:?}): {}\nThe console's end:\n{}The server's end:\n{}",
                plan.detail(),
                failure.reason,
                failure.console,
                failure.server
            )
        })?;
    }
    Ok(())
}

pub(crate) fn disturbed_transfers(lab: &Lab) -> Result<()> {
    soak(
        lab,
        &[
            (Fault::ServerKilled, Engines::Several),
            (Fault::LinkFlap, Engines::One),
            (Fault::LossyWire, Engines::None),
        ],
    )
}

pub(crate) fn disturbed_hand_overs(lab: &Lab) -> Result<()> {
    soak(
        lab,
        &[
            (Fault::TransferAtHandover, Engines::Several),
            (Fault::StartedAgain, Engines::Several),
            (Fault::Loaders, Engines::One),
        ],
    )
}
