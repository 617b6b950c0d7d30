//! KVM or TCG: found out by starting firmware, because a /dev/kvm that opens need not be one that runs OVMF.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cache;
use crate::netns::Lab;
use crate::qemu::{Accelerator, Machine};

/// How long firmware under KVM may take to its first sign on the console. It takes about two seconds.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// What was found, and for which boot of the host: a restart may change it.
#[derive(Serialize, Deserialize, PartialEq)]
struct Found {
    boot_id: String,
    accelerator: Accelerator,
}

/// The best accelerator that works here. What was found is kept until the host restarts; `refresh` finds it again.
///
/// # Errors
/// Never for want of KVM; only when the lab itself does not work.
pub fn best(lab: &Lab, refresh: bool) -> Result<Accelerator> {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned();
    // Each user may have other rights to /dev/kvm, and each has a cache of its own.
    let file = cache::directory()
        .ok()
        .map(|directory| directory.join("accelerator.json"));
    if !refresh
        && let Some(found) = file.as_deref().and_then(remembered)
        && found.boot_id == boot_id
    {
        return Ok(found.accelerator);
    }
    let accelerator = match runs_firmware_under_kvm(lab) {
        Ok(()) => Accelerator::Kvm,
        Err(error) => {
            log::debug!("no KVM: {error:#}");
            Accelerator::Tcg
        }
    };
    if let Some(file) = file
        && let Ok(text) = serde_json::to_string(&Found {
            boot_id,
            accelerator,
        })
        && let Err(error) = fs::write(&file, text)
    {
        log::debug!("{} is not kept: {error}", file.display());
    }
    Ok(accelerator)
}

fn remembered(file: &Path) -> Option<Found> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

fn runs_firmware_under_kvm(lab: &Lab) -> Result<()> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")?;
    let mut machine = Machine::new(Accelerator::Kvm);
    machine.memory_mib = 256;
    let mut running = machine.start(lab, "probe", |_| {})?;
    let deadline = Instant::now() + SIGN_OF_LIFE;
    loop {
        if running.console.bytes() > 0 {
            return Ok(());
        }
        if let Some(failure) = running.failure() {
            anyhow::bail!(failure);
        }
        anyhow::ensure!(
            Instant::now() < deadline,
            "the firmware gave no sign of life in {} s",
            SIGN_OF_LIFE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
