//! The soak in short: each kind of fault once, with the same seed each time. `make soak` goes on from here.

use anyhow::{Result, anyhow};
use wireboot_lab::accel;
use wireboot_lab::netns::Lab;
use wireboot_lab::soak::{DATA, Fault, Ground, Plan, System};

use crate::scene::{PATIENCE, boot_program, wireboot};

/// Of all that is chosen at random.
const SEED: u64 = 1;

fn soak(lab: &Lab, faults: &[Fault]) -> Result<()> {
    let ground = Ground {
        lab,
        system: System::new(&lab.scratch().join("soak"), &boot_program()?, DATA)?,
        server: wireboot()?,
        accelerator: accel::best(lab, false)?,
        processors: 2,
        limit: 2 * PATIENCE,
    };
    for (&fault, number) in faults.iter().zip(1..) {
        let plan = Plan::with_fault(fault, SEED, number);
        ground.boot(&plan).map_err(|failure| {
            anyhow!(
                "{fault} ({}): {}\nThe console's end:\n{}The server's end:\n{}",
                plan.detail(),
                failure.reason,
                failure.console,
                failure.server
            )
        })?;
    }
    Ok(())
}

pub fn disturbed_transfers(lab: &Lab) -> Result<()> {
    soak(
        lab,
        &[Fault::ServerKilled, Fault::LinkFlap, Fault::LossyWire],
    )
}

pub fn disturbed_hand_overs(lab: &Lab) -> Result<()> {
    soak(lab, &[Fault::TransferAtHandover, Fault::StartedAgain])
}
