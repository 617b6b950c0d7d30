//! Faults of the firmware itself: a driver that it loads makes them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use wireboot_lab::netns::Lab;
use wireboot_lab::qemu::{Disk, Machine};
use wireboot_lab::variables::Driver;

use super::site::Fault;

/// The driver that makes these faults.
pub(super) const PROGRAM: &str = "wireboot-planted.efi";

/// The driver's words for those faults that it makes: none where it is not needed.
pub(super) fn words(faults: &[Fault]) -> String {
    let planted = faults.iter().filter(|fault| {
        matches!(
            fault,
            Fault::SlowTime
                | Fault::SlowVariables
                | Fault::Receivers
                | Fault::DebugBuild
                | Fault::SlowConsole
        )
    });
    let names = planted.filter_map(|fault| Some(fault.to_possible_value()?.get_name().to_owned()));
    names.collect::<Vec<_>>().join(" ")
}

/// The driver's word for which it tells, whenever the firmware is ready to boot again, whether that is as it was.
pub(super) const WITNESS: &str = "witness";
/// The line by which it tells.
pub(super) const TOLD: &str =
    r"wireboot-planted: (the firmware is as it was|not as it was:.*)\r?\n";
/// Where all is well.
pub(super) const AS_IT_WAS: &str = "the firmware is as it was";

/// Has the machine's firmware load the driver with these words, if there are any.
///
/// # Errors
/// When there is no driver, or no room for its disk.
pub(super) fn plant(
    lab: &Lab,
    options: String,
    driver: Option<&Path>,
    machine: &mut Machine,
) -> Result<()> {
    if options.is_empty() {
        return Ok(());
    }
    let driver = driver.with_context(|| format!("{options} needs {PROGRAM}"))?;
    let disk = lab.scratch().join("planted-disk");
    fs::create_dir_all(&disk).context("making a directory")?;
    fs::copy(driver, disk.join(PROGRAM))
        .with_context(|| format!("copying {}", driver.display()))?;
    // Nothing boots from it.
    machine.disks.push(Disk::Directory {
        path: disk,
        boot_index: None,
    });
    machine.driver = Some(Driver {
        file: PROGRAM.into(),
        options,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_told_of_its_own_faults_alone() {
        let faults = [Fault::Stp, Fault::SlowTime, Fault::NoRng, Fault::DebugBuild];
        assert_eq!(words(&faults), "slow-time debug-build");
        assert_eq!(words(&[Fault::Loss, Fault::StoppedMachine]), "");
    }
}
