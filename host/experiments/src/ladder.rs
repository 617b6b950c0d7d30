//! `wireboot lab ladder`: how much of what the network card can receive reaches the boot loader.
//!
//! The machine measures itself (doctor.efi) against a sender and a boot server here, and writes its figures to its serial
//! port:
//!
//! ```text
//!  sender, sink ── lab0 = tap ── QEMU ── card ── driver ── ... ── TFTP, HTTP, TCP that sends
//!                  └ full? then it waits         └ each height is a rung of the ladder
//! ```

mod figures;
mod phases;
mod plot;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use regex::Regex;
use serde::Serialize;

pub use figures::{Kind, Ladder, Phases, Rung, Sample};
use wireboot_lab::sender::Sender;

use crate::bench::files::{self, MIB};
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::embed;
use wireboot_lab::host::{self, Host};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{self, Network, NetworkOptions};
use wireboot_lab::nic::CardChoice;
use wireboot_lab::qemu::{Accelerator, Disk, Machine};
use wireboot_lab::server::{Server, advertise};
use wireboot_wire::ladder::MAX_MICROS;

/// The program that measures.
const PROGRAM: &str = "doctor.efi";
/// The files that are fetched, in MiB: by the firmware, which is slow, by wireboot, and beside other work.
const SMALL_MIB: u64 = 8;
const FILE_MIB: u64 = 64;
const LARGE_MIB: u64 = 512;
/// What `--card` calls a card of ours.
const OURS: &str = "nic";
/// For a boot, and for a round besides its measurements.
const PATIENCE: Duration = Duration::from_secs(120);
/// Measurements of frames in a round, where the firmware's driver has an UNDI.
const FRAME_RUNGS: u32 = 19;

/// Measure what a network card can do, and how much of it each way to use it reaches: wireboot's driver, TFTP, HTTP and sending TCP, the
/// firmware's
///
/// A virtual machine measures all of it in one boot, by turns, against a sender on the host; medians count. The sender keeps the
/// cable full without loss. Where it never waits for room, it was the limit.
#[derive(Clone, Debug, Args)]
pub struct LadderArgs {
    /// The version of IP that is measured; with 6 the network has no IPv4
    #[arg(long, value_enum, value_name = "VERSION", default_value = "4")]
    pub ip: IpVersion,
    /// How often each rung is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How long each rung of frames is measured
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MICROS / 1000)))]
    pub ms: u32,
    /// Write all figures to FILE as JSON
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub json: Option<PathBuf>,
    /// Draw the ladder into FILE as SVG
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub plot: Option<PathBuf>,
    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    pub accel: AcceleratorChoice,
    /// Processors of the machine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,
    /// Numbers of engines to measure, each on an AP and a queue of the card of its own, 0 for one on the BSP (bootstrap processor); the
    /// machine gets as many of both
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(0..=64))]
    pub processors: Vec<u16>,
    /// Measure only the rungs in whose names one of these words is
    #[arg(long, value_name = "WORD,...", value_delimiter = ',', value_parser = word)]
    pub only: Vec<String>,
    /// Tell where the time of a packet goes over the firmware's driver, on the rungs of receiving by SNP
    #[arg(long)]
    pub phases: bool,
    /// The same in the machine's instructions, which are the same on every host: they are counted instead of time, by emulation
    #[arg(long, requires = "phases", conflicts_with = "accel")]
    pub instructions: bool,
    /// The network card, as QEMU names devices: one that wireboot drives itself; or nic, for virtio-net-pci behind `wireboot nic run`
    #[arg(long, value_name = "MODEL", default_value = "virtio-net-pci")]
    pub card: String,
    /// The card's option ROM with the firmware's driver, such as iPXE's; without it, the firmware's own driver is used
    #[arg(long, value_name = "FILE")]
    pub rom: Option<PathBuf>,
    /// The program that measures, for the machine's firmware [default: the doctor.efi beside this program]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Measure although the host is busy with something else
    #[arg(long)]
    pub force: bool,
    /// Show the machine's serial console
    #[arg(long)]
    pub console: bool,
}

/// One word, as load options are words.
fn word(text: &str) -> Result<String, String> {
    match text.split_whitespace().count() {
        1 => Ok(text.trim().to_owned()),
        _ => Err("expected one word".into()),
    }
}

/// What the JSON file holds: the host and the machine, and the ladder.
#[derive(Serialize)]
struct LadderReport<'a> {
    host: &'a Host,
    ladder: &'a Ladder,
}

/// Measures, and tells. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When the machine does not come to its figures, or a rung has none; the report is written all the same.
pub fn run(arguments: LadderArgs) -> Result<()> {
    let bench = firmware_program(arguments.program.as_deref(), PROGRAM).context(
        "no program that measures; `make build` leaves one in dist, --program names another",
    )?;
    let lab = Lab::enter()?;
    // Instructions are the same on a busy host.
    let busy = host::quiet(arguments.force || arguments.instructions)?;
    let most = arguments.processors.iter().copied().fold(1, u16::max);
    let options = NetworkOptions {
        queues: most,
        ..NetworkOptions::of(arguments.ip)
    };
    let network = Network::new(&lab, options)?;
    let program = std::env::current_exe().context("finding this program's own file")?;
    let accelerator = if arguments.instructions {
        Accelerator::Tcg
    } else {
        arguments.accel.choose(&lab)?
    };
    let mut machine = Machine::new(accelerator);
    machine.counts_instructions = arguments.instructions;
    machine.processors = arguments.cpus.max(u32::from(most) + 1);
    let mut card = network.card();
    card.rom = arguments.rom.clone();
    let choice = if arguments.card == OURS {
        CardChoice::Nic
    } else {
        card.model = arguments.card.clone();
        CardChoice::Qemu
    };
    machine.network = Some(card);
    let _nic = choice.attach(&lab, &program, &network, None, &mut machine)?;
    let mut options = format!("rounds={} ms={}", arguments.rounds, arguments.ms);
    if !arguments.processors.is_empty() {
        let numbers: Vec<String> = arguments.processors.iter().map(u16::to_string).collect();
        options.push_str(&format!(" processors={}", numbers.join(",")));
    }
    if !arguments.only.is_empty() {
        options.push_str(&format!(" only={}", arguments.only.join(",")));
    }
    if arguments.phases {
        options.push_str(" phases=1");
    }
    let (console, rounds) = (arguments.console, arguments.rounds);
    let progress = Regex::new(r"round (\d+) of")?;
    let watch = move |text: &str| {
        if console {
            let mut output = std::io::stdout().lock();
            let _ = output
                .write_all(text.as_bytes())
                .and_then(|()| output.flush());
        } else if let Some(round) = progress.captures(text).and_then(|found| found.get(1)) {
            eprintln!("round {} of {rounds}", round.as_str());
        }
    };
    let timeout = PATIENCE
        + (PATIENCE + Duration::from_millis(u64::from(arguments.ms * FRAME_RUNGS))) * rounds;
    let ip = arguments.ip;
    let counterpart = counterpart(&lab, (&network, ip), (&program, &bench))?;
    let ladder = measure(&lab, machine, ip, &bench, &options, timeout, watch)?;
    drop(counterpart);

    if ladder.rungs.is_empty() {
        bail!(
            "no rung has {} in its name: the names are those of docs/ladder.md, such as driver, SNP, TFTP",
            arguments.only.join(" or ")
        );
    }
    println!("{}", ladder.text());
    if arguments.phases {
        println!("{}", phases::text(&ladder, arguments.instructions));
    }
    let host = Host::new(
        Some(&bench),
        busy,
        accelerator,
        arguments.ip,
        network.mtu(),
        Vec::new(),
    );
    let report = LadderReport {
        host: &host,
        ladder: &ladder,
    };
    wireboot_output::json(arguments.json.as_deref(), &report)?;
    if let Some(file) = &arguments.plot {
        let title = format!("What reaches the boot loader ({accelerator})");
        plot::draw(&ladder, &title, file)?;
    }
    let missing = ladder.rungs.iter().filter(|rung| rung.mbit_s == 0.0);
    match missing.count() {
        0 => Ok(()),
        count => bail!("no figure for {count} of the rungs; the reasons are above"),
    }
}

/// What a machine measures itself against, on the lab's network. It ends with this value.
pub struct Counterpart {
    _server: Server,
    _sender: Sender,
}

/// Starts it, on a network, over a version of IP. `program` is the wireboot command, `bench` what measures.
///
/// # Errors
/// When the server or the sender does not start.
pub fn counterpart(
    lab: &Lab,
    (network, ip): (&Network, IpVersion),
    (program, bench): (&Path, &Path),
) -> Result<Counterpart> {
    let root = lab.scratch().join("ladder-files");
    fs::create_dir_all(&root).context("making a directory")?;
    for mib in [SMALL_MIB, FILE_MIB, LARGE_MIB] {
        files::write(&root, mib * MIB)?;
    }
    let advertised = advertise(ip);
    let command = lab.command(program);
    Ok(Counterpart {
        _server: Server::start(lab, command, &root, bench, advertised.as_slice())?,
        _sender: Sender::start(ip, network.cable())?,
    })
}

/// Has `machine` measure itself over a version of IP against what is behind its card: a [`counterpart`], or the server in the card. `bench`
/// measures, with the given load options, `rounds=N` among them.
///
/// # Errors
/// When the options say no rounds, or it does not come to its figures in time, with the end of its console.
pub fn measure(
    lab: &Lab,
    machine: Machine,
    ip: IpVersion,
    bench: &Path,
    options: &str,
    timeout: Duration,
    watch: impl FnMut(&str) + Send + 'static,
) -> Result<Ladder> {
    let rounds = rounds(options)?;
    let options = format!(
        "ladder server={} small={} file={} large={} {options}",
        network::server(ip),
        files::name(SMALL_MIB * MIB),
        files::name(FILE_MIB * MIB),
        files::name(LARGE_MIB * MIB)
    );
    let json = examine(lab, machine, bench, (&options, "ladder"), timeout, watch)?;
    Ladder::read(&json, rounds)
}

/// How often load options say that each rung is measured.
fn rounds(options: &str) -> Result<usize> {
    let mut words = options.split_whitespace();
    let rounds = words.find_map(|word| word.strip_prefix("rounds=")?.parse::<usize>().ok());
    rounds.with_context(|| format!("no number of rounds in {options:?}"))
}

/// Has `machine` start doctor.efi, which is `bench`, with these words from a stick. Returns the JSON that it writes behind the name of `what` to the
/// serial port.
///
/// # Errors
/// When that does not come in time, with the end of the machine's console.
pub(crate) fn examine(
    lab: &Lab,
    mut machine: Machine,
    bench: &Path,
    (words, what): (&str, &str),
    timeout: Duration,
    watch: impl FnMut(&str) + Send + 'static,
) -> Result<String> {
    let disk = lab.scratch().join("ladder-disk");
    // An examination before may have left the name of its last check, which doctor.efi would leave out.
    if disk.exists() {
        fs::remove_dir_all(&disk).context("removing the disk of the examination before")?;
    }
    // Not by a script of the shell: the newest OVMF has none.
    let boot = disk.join("EFI/BOOT");
    fs::create_dir_all(&boot).context("making a directory")?;
    embed::configuration(bench, words, &boot.join("BOOTX64.EFI"))?;
    // The host's page faults are no part of the figures.
    machine.preallocate = true;
    machine.disks.push(Disk::Directory {
        path: disk,
        boot_index: Some(1),
    });
    if let Some(card) = &mut machine.network {
        card.boot_index = None;
    }
    let mut running = machine.start(lab, "machine", watch)?;
    let end = format!(r"{what}: (\{{.*\}})\r?\n|wireboot: error: (.*)\n");
    let end = Regex::new(&end)?;
    let seen = running.console.wait_for(&end, timeout)?;
    match seen.groups.get(1).filter(|json| !json.is_empty()) {
        Some(json) => Ok(json.clone()),
        None => bail!("{}\n{}", seen.text.trim_end(), running.console.tail(15)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_how_many_rounds() {
        assert_eq!(rounds("only=SNP rounds=12 ms=100").unwrap(), 12);
        assert!(rounds("ms=100 rounds=many").is_err());
    }
}
