//! The benchmark: network boot stacks side by side, timed from outside the guest.
//!
//! ```text
//! round ─▶ case (size, memory) ─▶ stack ─▶ trial: fresh servers, fresh machine, one download
//!                                            │ observe: the client's packets, the interface's counters
//!                                            ▼
//!                                   evaluate: first request to last acknowledgement ─▶ report: table, JSON, plot
//! ```

pub(crate) mod card;
pub mod evaluate;
pub(crate) mod files;
pub mod instructions;
pub mod linux;
mod markdown;
pub(crate) mod observe;
pub(crate) mod plot;
pub mod problems;
pub mod report;
pub mod servers;
pub mod stacks;
pub(crate) mod trial;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use nix::unistd::geteuid;

use evaluate::Waited;
use files::MIB;
use instructions::Instructions;
use problems::{FailedTrial, Failure};
use report::{BenchReport, Case, Figures, Latency};
use stacks::{Server, Stack, Start};
use trial::{BenchTestbed, Measured};
use wireboot_lab::accel;
use wireboot_lab::guest;
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions};
use wireboot_lab::packages::Package;
use wireboot_lab::progress;
use wireboot_lab::results::ResultsArgs;
use wireboot_lab::statistics::median;

/// Measure network boot stacks side by side: wireboot, stock UEFI, iPXE, GRUB and a Linux guest
///
/// Every stack downloads the same files into the same virtual machine from the same servers, by turns, round after round.
/// Times are taken from packets outside the guest, from the first request to the last acknowledgement.
/// Newer firmware and iPXE, and the guest's kernel, are fetched from Debian's mirror into the user's cache; the system is not changed. Needs root.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Draw Mbit/s by stack into FILE as SVG
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub plot: Option<PathBuf>,
    /// One round with the small file alone
    #[arg(long)]
    pub quick: bool,
    /// Only the time from the first DHCPDISCOVER or Solicit to the first byte of the file: by PXE, from a stick, of iPXE and stock firmware
    #[arg(long, conflicts_with_all = ["plot", "sizes", "all_rounds"])]
    pub first_byte: bool,
    /// Number of rounds [default: 5, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// The version of IP in which everything happens; with 6 the network has no IPv4, and stacks that speak no IPv6 are left out
    #[arg(long, value_enum, value_name = "VERSION", default_value = "4")]
    pub ip: IpVersion,
    /// Only stacks whose short name contains one of these words
    #[arg(long, value_name = "WORD,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Sizes of the files in MiB, 1 to 1024 [default: 64,512, quick: 64]
    #[arg(long, value_name = "MIB,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub sizes: Vec<u64>,
    /// Let every stack take part in every round: else slow ones (under 200 Mbit/s) receive large files once and with cold memory only the smallest, once, and the others take three rounds with cold memory, one for large files (hours)
    #[arg(long)]
    pub all_rounds: bool,
    /// Network boot program to measure [default: the wireboot.efi beside this program]
    #[arg(long, value_name = "FILE")]
    pub nbp: Option<PathBuf>,
    #[command(flatten)]
    results: ResultsArgs,
    /// Receive a stream from memory, and end: what is counted as instructions per byte
    #[arg(long, hide = true, value_name = "STREAM")]
    pub receive: Option<instructions::Stream>,
    /// List the stacks' short names and versions, and end
    #[arg(long)]
    pub list: bool,
}

/// A stack below this many Mbit/s is slow: memory given late makes no difference to it, and large files take minutes.
const SLOW: f64 = 200.0;
/// Rounds with cold memory, whose figures stand beside the warm ones and are compared with nothing.
const COLD_ROUNDS: u32 = 3;

/// Runs the benchmark.
///
/// # Errors
/// When the lab does not work, or a stack gave no figure; the report is written all the same.
pub fn run(args: BenchArgs) -> Result<()> {
    if let Some(stream) = args.receive {
        return instructions::receive(stream, args.ip);
    }
    if !args.list && !geteuid().is_root() {
        bail!(
            "run the benchmark as root: tcpdump, which times it, does not work in a user namespace"
        );
    }
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside() {
        if let Err(error) = stacks::fetch() {
            eprintln!("newer stacks are left out unless the cache holds them: {error:#}");
        }
        if let Err(error) = guest::fetch() {
            eprintln!("the Linux guest is left out: {error:#}");
        }
    }
    let (stacks, absent) = stacks::all(program(&args), args.ip);
    let wanted =
        |id: &str| args.only.is_empty() || args.only.iter().any(|word| id.contains(word.as_str()));
    let stacks: Vec<Stack> = stacks
        .into_iter()
        .filter(|stack| wanted(&stack.id) && !(args.first_byte && stack.starts().is_empty()))
        .collect();
    let absent: Vec<_> = absent
        .into_iter()
        .filter(|absent| wanted(&absent.id))
        .collect();
    if args.list {
        for stack in &stacks {
            println!(
                "{:24} {} {}, {} from {}",
                stack.id,
                stack.name,
                stack.version,
                stack.protocol.name(),
                stack.server.name()
            );
        }
        for absent in &absent {
            println!("{:24} left out: {}", absent.id, absent.reason);
        }
        return Ok(());
    }
    if stacks.is_empty() {
        bail!("no stack to measure: wireboot lab bench --list shows their names");
    }

    let busy = args.results.quiet()?;
    let unable = absent.iter().filter(|absent| !absent.able).count();
    let lab = Lab::enter()?;
    let network = Network::new(&lab, NetworkOptions::of(args.ip))?;
    let accelerator = accel::best(&lab, false)?;
    let root = lab.scratch().join("files");
    fs::create_dir_all(&root).context("making a directory for the files")?;
    let sizes = match (args.sizes.is_empty(), args.quick) {
        _ if args.first_byte => Vec::new(),
        (false, _) => args.sizes.clone(),
        (true, true) => vec![64],
        (true, false) => vec![64, 512],
    };
    files::write(&root, MIB)?;
    sizes
        .iter()
        .try_for_each(|mib| files::write(&root, mib * MIB))?;
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 5 });

    let instructions = if args.first_byte {
        Ok(Vec::new())
    } else {
        instructions::count_all()
    };
    let servers = ["dnsmasq-base", "atftpd", "nginx"]
        .map(|name| Package::installed(name).map(|package| format!("{name} {}", package.version)));
    let host = Host::new(
        program(&args).as_deref(),
        busy,
        accelerator,
        args.ip,
        network.mtu(),
        servers.into_iter().filter_map(Result::ok).collect(),
    );
    let testbed = BenchTestbed {
        lab: &lab,
        network: &network,
        ip: args.ip,
        accelerator,
        command: std::env::current_exe().context("finding this program's own file")?,
        root,
    };
    let cases: Vec<Case> = sizes
        .iter()
        .flat_map(|mib| {
            [false, true].map(|cold| Case {
                bytes: mib * MIB,
                cold,
            })
        })
        .collect();
    let starts: usize = stacks.iter().map(|stack| stack.starts().len()).sum();
    let trials = cases.len() * stacks.len() + starts;
    let mut run = Run {
        testbed,
        host,
        bar: progress::bar(u64::from(rounds) * trials as u64),
        stacks,
        all_rounds: args.all_rounds,
        figures: Figures::new(),
        first_bytes: BTreeMap::new(),
        failed: Vec::new(),
        instructions: Vec::new(),
        absent: absent
            .into_iter()
            .map(|absent| Failure {
                what: absent.id,
                reason: absent.reason,
            })
            .collect(),
    };
    for failure in &run.absent {
        eprintln!("{} is left out: {}", failure.what, failure.reason);
    }
    match instructions {
        Ok(instructions) => run.instructions = instructions,
        Err(error) => run.absent.push(Failure {
            what: "instructions per byte".into(),
            reason: format!("{error:#}"),
        }),
    }
    for round in 1..=rounds {
        for &case in &cases {
            run.case(round, rounds, case, &cases);
            // Hours may be lost otherwise.
            run.report().save(&args)?;
        }
        run.first_bytes(round);
        run.report().save(&args)?;
    }
    run.bar.finish_and_clear();
    let report = run.report();
    println!("{}", report.text());
    match report.failures.len().saturating_sub(unable) {
        0 => Ok(()),
        count => bail!("no figure for {count} of the stacks and cases; the reasons are above"),
    }
}

/// wireboot.efi: the one named, or the one beside this program.
fn program(args: &BenchArgs) -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("wireboot.efi"));
    args.nbp
        .clone()
        .or_else(beside)
        .and_then(|file| fs::canonicalize(file).ok())
}

struct Run<'a> {
    testbed: BenchTestbed<'a>,
    host: Host,
    bar: ProgressBar,
    stacks: Vec<Stack>,
    all_rounds: bool,
    figures: Figures,
    first_bytes: BTreeMap<(usize, Start), Vec<Waited>>,
    /// Trials that failed, as they came: the stack, what was tried, and how it failed.
    failed: Vec<(usize, Tried, FailedTrial)>,
    instructions: Vec<Instructions>,
    /// What was not tried at all.
    absent: Vec<Failure>,
}

/// What a stack is made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tried {
    Download(Case),
    FirstByte(Start),
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Download(case) => case.fmt(f),
            Self::FirstByte(start) => write!(f, "first byte, {}", start.name()),
        }
    }
}

impl Run<'_> {
    /// The stacks by turns, so that what changes on the host in the meantime meets all alike.
    fn case(&mut self, round: u32, rounds: u32, case: Case, cases: &[Case]) {
        for index in 0..self.stacks.len() {
            self.bar.inc(1);
            if self.all_rounds || self.takes_part(index, (round, rounds), case, cases) {
                self.trial(round, index, case);
            }
        }
    }

    /// All stacks go through the first case in every round. In the others, time goes to those that it tells something about:
    /// slow stacks receive large files once, each in another round.
    fn takes_part(
        &self,
        index: usize,
        (round, rounds): (u32, u32),
        case: Case,
        cases: &[Case],
    ) -> bool {
        let small = cases.first().is_some_and(|first| first.bytes == case.bytes);
        match (self.is_slow(index, cases), case.cold) {
            _ if cases.first() == Some(&case) => true,
            (true, true) => round == 1 && small,
            (true, false) => index as u32 % rounds == round - 1,
            (false, true) => round <= if small { COLD_ROUNDS } else { 1 },
            (false, false) => true,
        }
    }

    /// Whether the stack is slow, by the first case.
    fn is_slow(&self, index: usize, cases: &[Case]) -> bool {
        let Some(&first) = cases.first() else {
            return false;
        };
        let seconds: Vec<f64> = self
            .figures
            .get(&(index, first))
            .into_iter()
            .flatten()
            .map(|trial| trial.seconds)
            .collect();
        median(&seconds).is_none_or(|median| first.bytes as f64 * 8.0 / median / 1e6 < SLOW)
    }

    fn trial(&mut self, round: u32, index: usize, case: Case) {
        let measured = self.twice(round, index, Tried::Download(case), |testbed, stack| {
            download(testbed, stack, case)
        });
        let (Some(measured), Some(stack)) = (measured, self.stacks.get(index)) else {
            return;
        };
        let Measured { seconds, kpps } = measured;
        let mbit_s = case.bytes as f64 * 8.0 / seconds / 1e6;
        let packets = kpps.map_or_else(String::new, |kpps| format!(", {kpps:.1} kpps"));
        self.bar.suspend(|| {
            eprintln!(
                "round {round}: {} {case}: {seconds:.3} s, {mbit_s:.0} Mbit/s{packets}",
                stack.id
            )
        });
        self.figures
            .entry((index, case))
            .or_default()
            .push(measured);
    }

    /// The times to the first byte, the stacks and the ways to start them by turns.
    fn first_bytes(&mut self, round: u32) {
        for index in 0..self.stacks.len() {
            for &start in self.stacks.get(index).map_or(&[][..], Stack::starts) {
                self.bar.inc(1);
                let tried = Tried::FirstByte(start);
                let waited = self.twice(round, index, tried, |testbed, stack| {
                    testbed.first_byte(stack, start)
                });
                if let Some(waited) = waited {
                    self.first_bytes
                        .entry((index, start))
                        .or_default()
                        .push(waited);
                }
            }
        }
    }

    /// As [`twice`]; failures are kept.
    fn twice<T>(
        &mut self,
        round: u32,
        index: usize,
        tried: Tried,
        measure: impl Fn(&BenchTestbed<'_>, &Stack) -> Result<T>,
    ) -> Option<T> {
        let stack = self.stacks.get(index)?;
        let what = format!("{} {tried}", stack.id);
        let measure = || measure(&self.testbed, stack);
        let (measured, failed) = twice(&self.bar, round, &what, measure);
        let failed = failed.into_iter().map(|trial| (index, tried, trial));
        self.failed.extend(failed);
        measured
    }

    /// What is known so far.
    fn report(&self) -> BenchReport {
        let latency = self
            .first_bytes
            .iter()
            .filter_map(|(&(index, start), waited)| {
                Latency::new(self.stacks.get(index)?, start, waited)
            });
        let has_figure = |index: usize, tried: Tried| match tried {
            Tried::Download(case) => self.figures.contains_key(&(index, case)),
            Tried::FirstByte(start) => self.first_bytes.contains_key(&(index, start)),
        };
        // The last reason of each.
        let failed: BTreeMap<(usize, Tried), &FailedTrial> = self
            .failed
            .iter()
            .filter(|(index, tried, _)| !has_figure(*index, *tried))
            .map(|(index, tried, trial)| ((*index, *tried), trial))
            .collect();
        let failed = failed.into_values().map(|trial| Failure {
            what: trial.what.clone(),
            reason: trial.reason.clone(),
        });
        BenchReport {
            host: self.host.clone(),
            rows: report::rows(&self.stacks, &self.figures),
            latency: latency.collect(),
            instructions: self.instructions.clone(),
            failures: self.absent.iter().cloned().chain(failed).collect(),
            failed_trials: self
                .failed
                .iter()
                .map(|(_, _, trial)| trial.clone())
                .collect(),
        }
    }
}

impl BenchReport {
    /// Writes the files that were asked for.
    fn save(&self, args: &BenchArgs) -> Result<()> {
        args.results.write(self, || markdown::tables(self))?;
        if let Some(file) = &args.plot {
            plot::draw(self, file)?;
        }
        Ok(())
    }
}

/// Tries, and after a failure once more. Failures are told as they happen, and returned beside what was measured.
pub(crate) fn twice<T>(
    bar: &ProgressBar,
    round: u32,
    what: &str,
    measure: impl Fn() -> Result<T>,
) -> (Option<T>, Vec<FailedTrial>) {
    bar.set_message(format!("round {round}: {what}"));
    let mut failed = Vec::new();
    for _ in 0..2 {
        match measure() {
            Ok(measured) => return (Some(measured), failed),
            Err(error) => {
                let reason = format!("{error:#}");
                bar.suspend(|| eprintln!("{what} failed: {reason}"));
                failed.push(FailedTrial {
                    round,
                    what: what.to_owned(),
                    reason,
                });
            }
        }
    }
    (None, failed)
}

/// Lets the stack download the file, from the server in our card or by a network's cable.
fn download(testbed: &BenchTestbed<'_>, stack: &Stack, case: Case) -> Result<Measured> {
    let warm = !case.cold;
    if let Server::Card = stack.server {
        let start = card::by_pxe(testbed);
        return Ok(card::download(testbed, stack.protocol, case.bytes, warm, &[], start)?.0);
    }
    let downloaded = testbed.download_by_cable(stack, case.bytes, warm, |_| Ok(None))?;
    Ok(downloaded.measured)
}
