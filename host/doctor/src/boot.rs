//! `wireboot doctor boot`: what the firmware and the boot loader of this very boot have left behind.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use wireboot_fpdt::{
    BasicBoot, LONGEST_TABLE, basic_boot, boot_table_address, boot_table_length, report_boot,
    report_details,
};
use wireboot_report::{Checkpoints, Report};
use wireboot_wire::load_option::{LoadOption, NetworkBoot};

use crate::output::OutputArgs;
use crate::status;

/// Examine how this Linux was booted: the firmware's times, the boot loader's, the order of boot options.
///
/// It reads ACPI's FPDT (from the kernel, or as root from memory) and the firmware's variables. Not all firmware has an FPDT; boot loaders that tell
/// their times are systemd-boot and wireboot.
#[derive(Args, Clone, Debug)]
pub struct BootArgs {
    /// A copy of another machine's tree: its `sys/firmware`
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(arguments: &BootArgs) -> Result<ExitCode> {
    let report = examine(&arguments.root)?;
    arguments.output.give(&report)?;
    Ok(status(std::iter::once(&report)))
}

/// Examines the boot of the system whose tree is `root`.
///
/// # Errors
/// When it tells nothing of its boot: it was not booted by UEFI, or neither its firmware nor its boot loader keeps times.
pub(crate) fn examine(root: &Path) -> Result<Report> {
    let variables = root.join("sys/firmware/efi/efivars");
    ensure!(
        variables.is_dir(),
        "{}: not there. This system was not booted by UEFI, or efivarfs is not mounted",
        variables.display()
    );
    let mut points = Checkpoints::default();
    let table = boot_table(root);
    match performance(root, &table) {
        Ok(boot) => report_boot(&boot, &mut points),
        Err(error) => points
            .missing
            .push(format!("the firmware's times: {error:#}")),
    }
    let loader = |name| loader_time(&variables, name);
    match loader("LoaderTimeInitUSec").and_then(|began| Ok((began, loader("LoaderTimeExecUSec")?)))
    {
        Ok((began, done)) => {
            points.loader_began_s = Some(began);
            points.loader_done_s = Some(done);
        }
        Err(error) => points
            .missing
            .push(format!("the boot loader's times: {error:#}")),
    }
    if let Err(error) = options(&variables, &mut points) {
        points.missing.push(format!("the boot options: {error:#}"));
    }
    if let Ok(table) = &table {
        report_details(table, |number| option_name(&variables, number), &mut points);
    }
    let told_by_wireboot = wireboot(&variables).unwrap_or_else(|error| {
        points.missing.push(format!("wireboot's report: {error:#}"));
        None
    });
    let told = [
        points.load_image_s,
        points.start_image_s,
        points.loader_done_s,
        points.exit_entry_s,
    ];
    ensure!(
        told.iter().any(Option::is_some),
        "nothing to measure. {}",
        points.missing.join(". ")
    );
    let Report {
        machine,
        timeline,
        network,
        ..
    } = told_by_wireboot.unwrap_or_default();
    let mut report = Report {
        checkpoints: Some(points),
        machine,
        timeline,
        network,
        ..Report::new()
    };
    let timeout = variable(&variables, "Timeout", GLOBAL).ok();
    let timeout = timeout.and_then(|value| <[u8; 2]>::try_from(value).ok());
    report.machine.boot_menu_s = timeout.map(u16::from_le_bytes);
    report.findings = wireboot_diagnosis::examine(&report);
    Ok(report)
}

/// The firmware's times, by the kernel or out of its table.
fn performance(root: &Path, table: &Result<Vec<u8>>) -> Result<BasicBoot> {
    let boot = root.join("sys/firmware/acpi/fpdt/boot");
    if boot.is_dir() {
        let time = |name: &str| -> Result<u64> {
            let file = boot.join(name);
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            text.trim()
                .parse()
                .with_context(|| file.display().to_string())
        };
        let times = BasicBoot {
            reset_end_ns: time("firmware_start_ns")?,
            load_image_ns: time("bootloader_load_ns")?,
            start_image_ns: time("bootloader_launch_ns")?,
            exit_entry_ns: time("exitbootservice_start_ns")?,
            exit_ns: time("exitbootservice_end_ns")?,
        };
        ensure!(
            times.is_plausible(),
            "its times cannot be those of a boot: the counter was not set to zero at the machine's reset"
        );
        return Ok(times);
    }
    match table {
        Ok(table) => Ok(basic_boot(table)?),
        Err(error) => bail!("{error:#}"),
    }
}

/// The firmware's table of this boot (FBPT), out of memory.
fn boot_table(root: &Path) -> Result<Vec<u8>> {
    let file = root.join("sys/firmware/acpi/tables/FPDT");
    ensure!(file.exists(), "this firmware has no FPDT");
    let table = fs::read(&file).with_context(|| file.display().to_string())?;
    let address = boot_table_address(&table)?;
    ensure!(
        root == Path::new("/"),
        "the kernel of this tree does not show them, and its memory is not here"
    );
    let memory = File::open("/dev/mem").context("/dev/mem, as root")?;
    let mut header = [0; 8];
    memory
        .read_exact_at(&mut header, address)
        .context("reading /dev/mem")?;
    let length = boot_table_length(&header)?;
    ensure!(length <= LONGEST_TABLE, "a table of {length} bytes is none");
    let mut table = vec![0; length];
    memory
        .read_exact_at(&mut table, address)
        .context("reading /dev/mem")?;
    Ok(table)
}

/// Vendors of variables: systemd's Boot Loader Interface, wireboot, and UEFI itself.
const LOADER: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
const WIREBOOT: &str = "df233257-ae2f-4c37-bb24-e63e588efd0f";
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// What a variable holds, behind its attributes.
fn variable(variables: &Path, name: &str, vendor: &str) -> Result<Vec<u8>> {
    let file = variables.join(format!("{name}-{vendor}"));
    let bytes = fs::read(&file).with_context(|| name.to_owned())?;
    let (_, content) = bytes
        .split_first_chunk::<4>()
        .with_context(|| format!("{name} is too short"))?;
    Ok(content.to_vec())
}

/// Text in UTF-16 up to a NUL.
fn text(bytes: &[u8]) -> String {
    let units = bytes.as_chunks::<2>().0.iter();
    let units = units.map(|unit| u16::from_le_bytes(*unit));
    let until_nul: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    let text = String::from_utf16_lossy(&until_nul);
    text.chars().filter(|c| !c.is_control()).collect()
}

/// A time of the boot loader's, in seconds.
fn loader_time(variables: &Path, name: &str) -> Result<f64> {
    let digits = text(&variable(variables, name, LOADER)?);
    let micros: u64 = digits
        .parse()
        .with_context(|| format!("{name} is {digits:?}"))?;
    Ok(micros as f64 / 1e6)
}

/// What wireboot.efi tells of its boot; `None` where it had no part in it.
fn wireboot(variables: &Path) -> Result<Option<Report>> {
    const NAME: &str = "WirebootBoot";
    if !variables.join(format!("{NAME}-{WIREBOOT}")).exists() {
        return Ok(None);
    }
    let bytes = variable(variables, NAME, WIREBOOT)?;
    let text = String::from_utf8(bytes).context(NAME)?;
    Ok(Some(Report::from_json(&text).context(NAME)?))
}

/// The number and the name of a boot option.
fn option_name(variables: &Path, number: u16) -> String {
    let name = format!("Boot{number:04X}");
    // Attributes of the option, the length of its path, its name.
    let option = variable(variables, &name, GLOBAL).unwrap_or_default();
    let text = text(option.get(6..).unwrap_or_default());
    format!("{name} {text}").trim_end().to_owned()
}

/// The boot option that was used, and those before it.
fn options(variables: &Path, points: &mut Checkpoints) -> Result<()> {
    let numbers = |name| -> Result<Vec<u16>> {
        let bytes = variable(variables, name, GLOBAL)?;
        let pairs = bytes.as_chunks::<2>().0.iter();
        Ok(pairs.map(|pair| u16::from_le_bytes(*pair)).collect())
    };
    let name = |number| option_name(variables, number);
    let current = *numbers("BootCurrent")?
        .first()
        .context("BootCurrent is empty")?;
    points.option = Some(name(current));
    let content = variable(variables, &format!("Boot{current:04X}"), GLOBAL).unwrap_or_default();
    points.over_network =
        LoadOption::parse(&content).is_some_and(|one| NetworkBoot::of(one.path).is_some());
    let order = numbers("BootOrder")?;
    if order.contains(&current) {
        let before = order.into_iter().take_while(|number| *number != current);
        points.options_before = before.map(name).collect();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
