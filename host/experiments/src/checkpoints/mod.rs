//! The same Linux from a disk, by stock PXE with shim and GRUB, and by wireboot: when the firmware reached which point of each boot.
//!
//! ```text
//! doctor.efi `record on` ─▶ variables ─┬─▶ disk: GRUB              ─┐
//!                                      ├─▶ PXE: shim, GRUB, TFTP    ├─▶ Linux tells the tables ─▶ report
//!                                      └─▶ PXE: wireboot.efi, HTTP ─┘
//! ```

mod report;
mod testbed;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use indicatif::ProgressBar;
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::results::ResultsArgs;
use wireboot_lab::{guest, loaders};

use report::CheckpointsReport;
use testbed::CheckpointTestbed;

/// Measure when the firmware starts what and ends, for the same Linux from a disk, over the network by stock firmware, and by wireboot
///
/// recorder.efi makes the firmware's table of times (FPDT), which OVMF has not itself. All three boots are Debian 12's cloud kernel with a RAM disk of
/// --size MiB: from a disk by GRUB; by the firmware's PXE, shim and GRUB, with TFTP; by wireboot.efi with HTTP. Both get all files from `wireboot serve`.
/// Time1 is from reset to the choice of the boot option, Time2 from there to the end of boot services, as Intel's paper of 2014 has them.
#[derive(Clone, Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct CheckpointsArgs {
    /// How often each boot is made, by turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Size of the RAM disk in MiB
    #[arg(long, value_name = "MIB", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub size: u32,
    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    pub accel: AcceleratorChoice,
    #[command(flatten)]
    results: ResultsArgs,
}

/// For one boot.
const LONGEST: Duration = Duration::from_secs(240);

/// Boots, and prints the report.
///
/// # Errors
/// When the lab does not work, or a boot does not arrive.
pub fn run(arguments: CheckpointsArgs) -> Result<()> {
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside() {
        guest::fetch().context("fetching Debian's kernel")?;
        loaders::fetch().context("fetching Debian's shim and GRUB")?;
    }
    let program = |name| {
        firmware_program(None, name).with_context(|| format!("no {name}; `make build` makes it"))
    };
    let programs = testbed::Programs {
        wireboot: program("wireboot.efi")?,
        doctor: program("doctor.efi")?,
        recorder: program("recorder.efi")?,
    };
    let lab = Lab::enter()?;
    let busy = arguments.results.quiet()?;
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.set_message("has the firmware load recorder.efi");
    let accelerator = arguments.accel.choose(&lab)?;
    let testbed = CheckpointTestbed::new(&lab, &programs, accelerator, arguments.size)?;
    let mtu = NetworkOptions::default().mtu;
    let (wireboot, ip) = (Some(programs.wireboot.as_path()), IpVersion::V4);
    let host = Host::new(wireboot, busy, accelerator, ip, mtu, Vec::new());
    let host = host.with_guests_like(testbed.machine());
    let mut report = CheckpointsReport::new(host);
    for round in 1..=arguments.rounds {
        for method in testbed::BOOT_METHODS {
            bar.set_message(format!("round {round} of {}: {method}", arguments.rounds));
            let (boot, outside_s) = testbed.boot(method).with_context(|| method.to_string())?;
            report.add(method, &boot, outside_s);
        }
    }
    bar.finish_and_clear();
    println!("{}", report.text());
    arguments.results.write(&report, || report.markdown())?;
    Ok(())
}
