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

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use wireboot_fpdt::BasicBoot;
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::results::ResultsArgs;
use wireboot_lab::{guest, loaders};

use crate::bench::twice;
use report::CheckpointsReport;
use testbed::{BOOT_METHODS, BootMethod, CheckpointTestbed};

/// Measure when the firmware starts what and ends, for the same Linux from a disk, over the network by stock firmware, and by wireboot
///
/// recorder.efi makes the firmware's table of times (FPDT), which OVMF has not
/// itself. All three boots are Debian 12's cloud kernel with a RAM disk of
/// --size MiB: from a disk by GRUB; by the firmware's PXE, shim and GRUB, with
/// TFTP; by wireboot.efi with HTTP. The two over the network get all files from
/// `wireboot serve`. Time1 is from reset to the choice of the boot option, Time2
/// from there to the end of boot services, as Intel's paper of 2014 has them.
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
/// When the lab does not work, or no boot of a way arrives; the report is written all the same.
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
    for number in 1..=arguments.rounds {
        round(&bar, number, &mut report, |method| testbed.boot(method));
        // An hour may be lost otherwise.
        arguments.results.write(&report, || report.markdown())?;
    }
    bar.finish_and_clear();
    println!("{}", report.text());
    match report.failures().len() {
        0 => Ok(()),
        count => bail!("no figure for {count} of the ways to boot; the reasons are above"),
    }
}

/// Makes one boot of each way. One that fails is made once more, and stops no other.
fn round(
    bar: &ProgressBar,
    number: u32,
    report: &mut CheckpointsReport,
    boot: impl Fn(BootMethod) -> Result<(BasicBoot, f64)>,
) {
    for method in BOOT_METHODS {
        let (arrived, failed) = twice(bar, number, &method.to_string(), || boot(method));
        report.add_failed(failed);
        if let Some((boot, outside_s)) = arrived {
            report.add(method, &boot, outside_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::report::tests::{boot, empty};
    use super::*;

    #[test]
    fn a_way_that_does_not_arrive_takes_no_other_figure_with_it() {
        let mut report = empty();
        for number in 1..=2 {
            let bar = ProgressBar::hidden();
            round(&bar, number, &mut report, |method| match method {
                BootMethod::Pxe => bail!("240 s went by\nthe console"),
                BootMethod::Disk if number == 1 => bail!("no disk"),
                _ => Ok((boot(4), 2.0)),
            });
        }
        let failures = report.failures();
        let [pxe] = failures.as_slice() else {
            panic!("{failures:?}");
        };
        assert_eq!(pxe.what, "stock PXE, shim, GRUB, TFTP");
        for text in [report.text(), report.markdown()] {
            for part in [
                "| disk, GRUB",
                "| wireboot.efi by PXE, HTTP",
                "no figure for stock PXE, shim, GRUB, TFTP: 240 s went by\n",
                "failed in round 1: disk, GRUB: no disk\n",
                "failed in round 2: stock PXE, shim, GRUB, TFTP: 240 s went by\n",
            ] {
                assert!(text.contains(part), "{part} in\n{text}");
            }
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["failed_trials"].as_array().unwrap().len(), 6);
    }
}
