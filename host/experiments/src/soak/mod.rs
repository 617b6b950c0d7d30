//! `wireboot lab soak`: many boots in a row, each disturbed in another way; none may hang, damage a byte, or leave the card writing into
//! memory that is the system's.

mod boot;
mod canary;
mod plan;
mod report;
mod stray;
mod system;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

pub use self::boot::{Facts, Failure, SoakTestbed};
pub use self::plan::{Engines, Fault, Plan};
pub use self::system::System;
use report::{Boot, SoakReport};
use wireboot_lab::boot::AcceleratorChoice;
use wireboot_lab::guest;
use wireboot_lab::loaders;
use wireboot_lab::netns::Lab;
use wireboot_lab::nic::CardChoice;

/// The data that each boot carries along, in bytes: long enough under way to be disturbed, little enough to boot often.
pub const DATA: usize = 12_000_000;

/// Boot a small Linux many times in a row, each time with another fault, and check what it got and what was left behind.
///
/// Each boot has a fault, chosen at random: the server is killed in mid-transfer, the cable is pulled, frames are lost, somebody still
/// sends while the kernel ends the boot services, wireboot gives the card back and is loaded again, shim and GRUB load the kernel over
/// wireboot's network; or nothing. The network runs on the
/// BSP (bootstrap processor), on one AP or on several, chosen at random too. Linux, on all
/// processors, tells the checksum of the data and fills its memory with a pattern, while frames are sent to the card that nobody owns. A boot is
/// good when it came to its end in time, no byte of the data differs, the device is reset and off the bus, and no byte of the memory changed.
#[derive(Args, Clone, Debug)]
pub struct SoakArgs {
    /// Number of boots
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub boots: u32,
    /// Seed of all that is chosen [default: another one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Boot only number K of the run with this seed
    #[arg(long, value_name = "K", requires = "seed", value_parser = clap::value_parser!(u32).range(1..))]
    pub only: Option<u32>,
    /// Processors of the machine [default: those of the host, 4 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub processors: Option<u32>,
    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    pub accel: AcceleratorChoice,
    /// Network boot program [default: the wireboot.efi beside this program]
    #[arg(long, value_name = "FILE")]
    pub nbp: Option<PathBuf>,
    /// Who carries frames between the machine and its network
    #[arg(long, value_enum, default_value = "qemu")]
    pub card: CardChoice,
    /// How long a boot may take
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub limit: u64,
    /// Write all results to FILE, after each boot
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub json: Option<PathBuf>,
}

/// Boots, and tells how it went. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When the lab does not work, or a boot was not good: after all of them.
pub fn run(arguments: SoakArgs) -> Result<()> {
    let program = wireboot_lab::boot::network_boot_program(arguments.nbp.as_deref())?;
    // Inside the lab's namespaces there is no network to fetch from.
    if !Lab::is_inside() {
        guest::fetch().context("the kernel to boot")?;
        loaders::fetch().context("shim and GRUB")?;
    }
    let lab = Lab::enter()?;
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let processors = arguments.processors.unwrap_or_else(|| {
        let all = std::thread::available_parallelism().map_or(4, usize::from);
        // Four are enough for the most engines.
        u32::try_from(all.clamp(4, 8)).unwrap_or(4)
    });
    let testbed = SoakTestbed {
        lab: &lab,
        system: System::new(&lab.scratch().join("system"), &program, DATA)?,
        server: std::env::current_exe().context("finding this program's own file")?,
        accelerator: arguments.accel.choose(&lab)?,
        processors,
        card: arguments.card,
        limit: Duration::from_secs(arguments.limit),
    };
    let numbers: Vec<u32> = match arguments.only {
        Some(number) => vec![number],
        None => (1..=arguments.boots).collect(),
    };
    eprintln!(
        "{} boots with {processors} processors ({}), seed {seed}",
        numbers.len(),
        testbed.accelerator
    );
    let mut report = SoakReport {
        seed,
        processors,
        accelerator: testbed.accelerator,
        boots: Vec::new(),
    };
    boots(&testbed, &numbers, &mut report, |report| {
        save(report, &arguments)
    })?;

    println!("{}", report.text());
    let failed = report.failed();
    if failed > 0 {
        bail!("{failed} of {} boots failed", numbers.len());
    }
    Ok(())
}

/// Writes what there is so far to the file that was asked for.
fn save(report: &SoakReport, arguments: &SoakArgs) -> Result<()> {
    let Some(file) = &arguments.json else {
        return Ok(());
    };
    let text = serde_json::to_string_pretty(report).context("writing the results as JSON")?;
    fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))
}

/// Boots, with `save` called after each.
fn boots(
    testbed: &SoakTestbed<'_>,
    numbers: &[u32],
    report: &mut SoakReport,
    save: impl Fn(&SoakReport) -> Result<()>,
) -> Result<()> {
    let bar = ProgressBar::new(numbers.len() as u64);
    if let Ok(style) = ProgressStyle::with_template(
        "{elapsed_precise} {wide_bar} {pos}/{len}, {per_sec}, {eta} left, {msg}",
    ) {
        let rate = |state: &indicatif::ProgressState, text: &mut dyn std::fmt::Write| {
            // A lost figure on the screen is no reason to stop.
            let _ = write!(text, "{:.1} boots/min", state.per_sec() * 60.0);
        };
        bar.set_style(style.with_key("per_sec", rate));
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    for &number in numbers {
        let plan = Plan::new(report.seed, number);
        bar.set_message(format!("{} failed; {}", report.failed(), plan.fault));
        let begin = Instant::now();
        let result = testbed.boot(&plan);
        let boot = Boot::new(number, &plan, testbed.processors, begin.elapsed(), result);
        bar.suspend(|| eprintln!("{}", boot.line(report.seed)));
        report.boots.push(boot);
        bar.inc(1);
        save(report)?;
    }
    bar.finish_and_clear();
    Ok(())
}
