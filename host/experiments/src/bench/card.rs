//! A download from the boot server in our card: there is no interface on which packets pass, so the server's own record counts.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use regex::Regex;

use super::files;
use super::trial::{BenchTestbed, LOOK, Measured, OUR_BOOT_PROGRAM, UNTIL_REQUEST, console_end};
use crate::protocol::TransferProtocol;
use wireboot_lab::nic::Nic;
use wireboot_lab::qemu::Machine;

/// How long the whole boot may take.
const PATIENCE: Duration = UNTIL_REQUEST.saturating_mul(2);

/// Starts a card that serves the testbed's files, with more `options`.
///
/// # Errors
/// When it does not start.
pub(crate) fn serve(testbed: &BenchTestbed<'_>, options: &[&str]) -> Result<Nic> {
    let mut card = testbed.lab.command(&testbed.command);
    card.args(["nic", "run", "--wire"])
        .arg(format!("serve={}", testbed.root.display()))
        .args(options);
    Nic::launch(testbed.lab, card)
}

/// The firmware gets wireboot.efi from the card.
pub(crate) fn by_pxe(testbed: &BenchTestbed<'_>) -> impl FnOnce(&mut Machine) -> Result<()> {
    let ip = testbed.ip;
    move |machine| {
        machine.pxe_only(Some(ip));
        Ok(())
    }
}

/// A copy of the wireboot.efi beside the wireboot command, on a stick: the firmware does not use the card.
pub(crate) fn by_stick(testbed: &BenchTestbed<'_>) -> impl FnOnce(&mut Machine) -> Result<()> {
    move |machine| {
        let program = testbed.command.with_file_name(OUR_BOOT_PROGRAM);
        testbed.start_from_stick(&program, machine).map(drop)
    }
}

/// Lets wireboot.efi download the file of `bytes` bytes from a card that was started with more `options`, into memory that the host has
/// given the guest before (`warm`) or gives it as the guest writes to it. `start` says how a machine gets to run wireboot.efi. Returns the card, too,
/// whose machine has ended.
///
/// # Errors
/// When the download does not come to its end, with the end of the console.
pub(crate) fn download(
    testbed: &BenchTestbed<'_>,
    protocol: TransferProtocol,
    bytes: u64,
    warm: bool,
    options: &[&str],
    start: impl FnOnce(&mut Machine) -> Result<()>,
) -> Result<(Measured, Nic)> {
    let (lab, name) = (testbed.lab, files::name(bytes));
    let scheme = protocol.name().to_lowercase();
    let server = wireboot_lab::network::server(testbed.ip);
    let words = format!("timeout 0\ntitle download\nefi {scheme}://{server}/{name}\n");
    let file = testbed.root.join("wireboot.conf");
    fs::write(&file, words).with_context(|| format!("writing {}", file.display()))?;

    let nic = serve(testbed, options)?;
    let mut machine = Machine::new(testbed.accelerator);
    machine.preallocate = warm;
    machine.network = Some(testbed.network.card());
    start(&mut machine)?;
    nic.attach(&mut machine)?;
    let mut running = machine.start(lab, "bench", |_| {})?;
    let begin = Instant::now();
    let done = Regex::new(&format!(
        r"(?i){scheme} done +\S+ /?{} {bytes} bytes ([0-9.]+) s",
        regex::escape(&name)
    ))?;
    loop {
        std::thread::sleep(LOOK);
        let log = nic.log();
        if let Some(seconds) = done.captures(&log).and_then(|found| found.get(1)) {
            let measured = Measured {
                seconds: seconds.as_str().parse().context("the card's record")?,
                kpps: None,
            };
            return Ok((measured, nic));
        }
        let failure = running.failure();
        if failure.is_some() || begin.elapsed() > PATIENCE {
            bail!(
                "{}; the console: {}; the card: {}",
                failure.unwrap_or_else(|| format!("no download in {} s", PATIENCE.as_secs())),
                console_end(&running),
                log.lines().next_back().unwrap_or_default()
            );
        }
    }
}
