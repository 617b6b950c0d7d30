//! `wireboot doctor pcap`: any network boot, by its packets.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use wireboot_capture::{Captured, Packets};
use wireboot_observe::{Client, Clients, Mac, Observer};
use wireboot_report::Report;

use crate::output::OutputArgs;
use crate::status;

/// Examine a network boot by its packets: any firmware's, any boot program's.
///
/// FILE is a capture in the format of tcpdump or Wireshark (pcap, pcapng), of the machine's own cable, a switch's mirror port, or the server:
/// `tcpdump -i eth0 -w FILE`. Let it begin before the machine is switched on, and keep at least the first 600 bytes of each packet (`-s 600`).
#[derive(Args, Clone, Debug)]
pub struct PcapArgs {
    /// The capture
    #[arg(value_name = "FILE")]
    capture: PathBuf,
    /// The machine's Ethernet address, where several boot in the capture
    #[arg(long, value_name = "MAC", value_parser = mac)]
    client: Option<Mac>,
    #[command(flatten)]
    output: OutputArgs,
}

/// An Ethernet address, with colons or dashes.
fn mac(text: &str) -> Result<Mac, String> {
    let bytes: Result<Vec<u8>, _> = text
        .split([':', '-'])
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect();
    bytes
        .ok()
        .and_then(|bytes| <[u8; 6]>::try_from(bytes).ok())
        .map(Mac)
        .ok_or_else(|| "an Ethernet address has the form 52:54:00:12:34:56".to_owned())
}

pub(crate) fn run(arguments: &PcapArgs) -> Result<ExitCode> {
    let report = examine(&arguments.capture, arguments.client)?;
    arguments.output.give(&report)?;
    Ok(status(std::iter::once(&report)))
}

/// Examines the boot of `client`, or of the only machine that boots, in a capture file.
///
/// # Errors
/// When the file is no capture, no machine boots in it, or several do and none is named.
pub fn examine(capture: &Path, client: Option<Mac>) -> Result<Report> {
    let reading = || format!("{}", capture.display());
    ensure!(
        !capture.is_dir(),
        "{} is a directory: name a capture in it",
        capture.display()
    );
    let bar = progress(capture);
    let client =
        the_one(clients(capture, &bar).with_context(reading)?, client).with_context(reading)?;
    let mut observer = Observer::new(client.mac, client.began_unix_s);
    let mut packets = packets(capture, &bar)?;
    for packet in packets.by_ref() {
        if let Captured {
            time,
            link: Some(link),
            data,
        } = packet.with_context(reading)?
        {
            observer.frame(time, link, &data);
        }
    }
    bar.finish_and_clear();
    if let Some(at) = packets.cut_off_at() {
        eprintln!(
            "{} is cut off in the middle of a packet, at byte {at}: what came before was examined",
            capture.display()
        );
    }
    let mut report = observer.report();
    report.findings = wireboot_diagnosis::examine(&report);
    Ok(report)
}

/// How far the capture was read, which is done twice.
fn progress(capture: &Path) -> ProgressBar {
    let length = fs::metadata(capture).map_or(0, |file| file.len());
    let bar = ProgressBar::new(2 * length);
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {percent} %") {
        bar.set_style(style);
    }
    bar
}

fn packets(capture: &Path, bar: &ProgressBar) -> Result<Packets<'static>> {
    Packets::new(bar.wrap_read(File::open(capture)?))
}

/// The machines that boot in the capture.
fn clients(capture: &Path, bar: &ProgressBar) -> Result<Vec<Client>> {
    let mut clients = Clients::default();
    let (mut all, mut known) = (0_u64, 0_u64);
    for packet in packets(capture, bar)? {
        let packet = packet?;
        all += 1;
        if let Some(link) = packet.link {
            known += 1;
            clients.frame(packet.time, link, &packet.data);
        }
    }
    ensure!(all > 0, "a capture without packets");
    ensure!(
        known > 0,
        "its packets have headers of another kind: capture on an Ethernet interface, or with `-i any`"
    );
    let found = clients.found();
    ensure!(
        !found.is_empty(),
        "{all} packets, and none of them a machine's that asks for a boot by DHCP or DHCPv6. Was the capture running before the machine \
         started? Did it keep whole packets?"
    );
    Ok(found)
}

/// Of the machines in the capture `wanted`, or the only one.
fn the_one(found: Vec<Client>, wanted: Option<Mac>) -> Result<Client> {
    let list: Vec<String> = found
        .iter()
        .map(|client| format!("  {} {}", client.mac, client.vendor_class))
        .collect();
    let list = list.join("\n");
    if let Some(wanted) = wanted {
        let mut found = found.into_iter();
        return found
            .find(|client| client.mac == wanted)
            .ok_or_else(|| anyhow!("{wanted} does not ask for a boot in it. These do:\n{list}"));
    }
    match <[Client; 1]>::try_from(found) {
        Ok([client]) => Ok(client),
        Err(_) => bail!("several machines boot in it; name one by --client:\n{list}"),
    }
}

#[cfg(test)]
mod tests;
