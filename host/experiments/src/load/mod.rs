//! TFTP and HTTP servers under load: crowds of simulated clients, server after server, round after round.
//!
//! ```text
//! round ─▶ crowd (1, 200 clients) ─▶ server: started afresh ─▶ trial: all clients begin together, every byte compared
//!                                                                │
//!  station's namespace ── clients (TFTP: client, crowd; HTTP: http)── bridge ── server
//!                                                                ▼
//!                                                              report: table, JSON
//! ```

mod client;
mod crowd;
mod http;
mod report;
mod servers;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::bench::twice;
use crate::protocol::TransferProtocol;
use client::Wanted;
use crowd::ClientOutcome;
use report::{LoadReport, Trial};
use servers::{Kind, Running};
use wireboot_lab::host::{self, Host};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions, Station};
use wireboot_lab::tftpd_hpa;

/// Load TFTP or HTTP servers with many simulated clients at once, ours beside others
///
/// Each trial starts one server afresh and lets N clients begin together; all read the same file, compare every byte of it and keep
/// nothing. Servers take turns, round after round, so that what else the machine does meets all alike. Clients live in a network namespace of
/// their own, behind a bridge: the host's network is not used. Half of the machine's processors are for the clients.
///
/// The table's columns: "finished" counts clients that got the whole file, in the worst round; "rounds" counts those in which all clients got
/// it, of those asked for; "Mbit/s" is what all clients together got until the slowest had ended, in the rounds in which all got it;
/// "slowest / median" is fairness, in the worst round (above 3, a client counts as starved); "sent again" counts blocks that came twice or
/// were lost, and timeouts, of all clients; "CPU s / GiB" is the server's processor time (tftpd-hpa's is not counted by the system: it does
/// not wait for the processes that do its work). Where a server ends, or does not start, the trial is listed, and made once more, and
/// nothing is said of how fair it was to that crowd.
///
/// The servers are Debian's dnsmasq-base and atftpd, which are to be installed, and tftpd-hpa, which excludes atftpd: it is fetched from Debian's
/// mirror and unpacked in the user's cache; for HTTP Debian's nginx, in one process with sendfile. Each is told to allow thousands of clients. For example:
///
///   wireboot lab load --clients 1 --size 64 --server ours,atftpd
///   wireboot lab load --clients 50,100,200 --size 4 --json load.json
///   wireboot lab load --server http --clients 1,50
#[derive(Clone, Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct LoadArgs {
    /// Clients that begin together; several numbers are crowds one after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 200], value_parser = crowd_size)]
    pub clients: Vec<usize>,
    /// Size of the file in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub size: u32,
    /// Longest time for one crowd at one server, in seconds
    #[arg(long, value_name = "MAX", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Servers to load
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_enum, default_values_t = [Choice::All])]
    pub server: Vec<Choice>,
    /// How often each server meets each crowd
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Blocks for one acknowledgement that clients ask for (RFC 7440); 1 asks for no window
    #[arg(long, value_name = "BLOCKS", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub window: u16,
    /// Write all figures to FILE as JSON
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub json: Option<PathBuf>,
    /// Measure although the host is busy with something else
    #[arg(long)]
    pub force: bool,
}

/// Payload bytes of a block: the most that fits an Ethernet frame.
const BLOCK_SIZE: u16 = 1468;
/// Most clients in a crowd: each holds a socket, and our server takes no more transfers at a time.
const MOST_CLIENTS: usize = 512;
/// Where the clients live.
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The file that all clients read, and a small one to see that a server is there.
const FILE: &str = "load";
const SMALL_FILE: &str = "ready";

fn crowd_size(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MOST_CLIENTS).contains(number))
        .ok_or_else(|| format!("expected a number from 1 to {MOST_CLIENTS}"))
}

/// A server, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// wireboot serve
    Ours,
    /// dnsmasq's TFTP server
    Dnsmasq,
    /// atftpd, which knows windows too
    Atftpd,
    /// tftpd-hpa
    TftpdHpa,
    /// All of these
    All,
    /// wireboot serve's and nginx' HTTP
    Http,
}

impl Choice {
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Ours => &[Kind::Ours],
            Self::Dnsmasq => &[Kind::Dnsmasq],
            Self::Atftpd => &[Kind::Atftpd],
            Self::TftpdHpa => &[Kind::TftpdHpa],
            Self::All => &Kind::TFTP,
            Self::Http => &Kind::HTTP,
        }
    }
}

/// Loads the servers and prints the report.
///
/// # Errors
/// When the lab does not work, a server sent wrong bytes or gave no figure, our server ended, or a client of it did not get its file; the
/// report is written all the same.
pub fn run(args: LoadArgs) -> Result<()> {
    let mut kinds: Vec<Kind> = args
        .server
        .iter()
        .flat_map(|choice| choice.kinds())
        .copied()
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside()
        && kinds.contains(&Kind::TftpdHpa)
        && let Err(error) = tftpd_hpa::fetch()
    {
        eprintln!("tftpd-hpa is left out unless the cache holds it: {error:#}");
    }
    let lab = Lab::enter()?;
    let options = NetworkOptions {
        bridge: true,
        ..NetworkOptions::default()
    };
    let network = Network::new(&lab, options)?;
    let busy = host::quiet(args.force)?;
    let station = network.station("clients", CLIENTS)?;

    let root = lab.scratch().join("load");
    fs::create_dir_all(&root).context("making a directory for the files")?;
    let bytes = u64::from(args.size) << 20;
    let testbed = LoadTestbed {
        lab: &lab,
        station: &station,
        limit: Duration::from_secs(args.seconds.into()),
        wanted: file(&root, FILE, bytes, args.window)?,
        ready: file(&root, SMALL_FILE, 1, 1)?,
        root,
    };
    let (mut servers, mut absent) = (Vec::new(), Vec::new());
    for kind in kinds {
        match kind.version() {
            Ok(version) => servers.push((kind, version)),
            Err(error) => absent.push((kind, format!("{error:#}"))),
        }
    }
    let versions = servers
        .iter()
        .map(|(kind, version)| format!("{} {version}", kind.name()));
    let host = Host::without_guests(busy, versions.collect());
    let mut report = LoadReport {
        host,
        bytes,
        block_size: BLOCK_SIZE,
        window: args.window,
        rounds: args.rounds,
        servers,
        rows: Vec::new(),
        trials: Vec::new(),
        failed_trials: Vec::new(),
        absent,
    };
    rounds(&args, &mut report, |kind, clients, what| {
        testbed.trial(kind, clients, what)
    })?;
    println!("{}", report.text());
    judge(&report)
}

/// By turns: what changes on the host in the meantime meets all servers alike. A server that ends, or does not start, stops no other.
fn rounds(
    args: &LoadArgs,
    report: &mut LoadReport,
    measure: impl Fn(Kind, usize, &str) -> Result<Trial>,
) -> Result<()> {
    let kinds: Vec<Kind> = report.servers.iter().map(|&(kind, _)| kind).collect();
    // Each trial shows a bar of its own.
    let bar = ProgressBar::hidden();
    for round in 1..=args.rounds {
        for &clients in &args.clients {
            for &kind in &kinds {
                let what = report::what(clients, kind);
                let shown = format!("round {round}/{}: {what}", args.rounds);
                let (trial, failed) = twice(&bar, round, &what, || measure(kind, clients, &shown));
                report.add((kind, clients), trial, failed);
            }
        }
        // Hours may be lost otherwise.
        wireboot_output::json(args.json.as_deref(), &*report)?;
    }
    Ok(())
}

fn judge(report: &LoadReport) -> Result<()> {
    let wrong = report.trials.iter().find_map(|trial| {
        let reason = trial
            .failures
            .iter()
            .find(|(reason, _)| reason.contains("wrong content"));
        Some((trial.server.name(), &reason?.0))
    });
    if let Some((server, reason)) = wrong {
        bail!("{server}: {reason}");
    }
    for row in report.rows.iter().filter(|row| row.server.is_ours()) {
        if row.finished < row.clients {
            bail!(
                "of {} clients of our server, {} did not get the file",
                row.clients,
                row.clients - row.finished
            );
        }
    }
    let mut failed = report.failed_trials.iter();
    if let Some(ours) = failed.find(|crowd| crowd.server.is_ours()) {
        bail!("{}: {}", ours.trial.what, ours.trial.reason);
    }
    match report.failures().len() {
        0 => Ok(()),
        count => bail!("no figure for {count} of the servers and crowds; the reasons are above"),
    }
}

/// Writes a file of `bytes` bytes, the same in every run, and says how it is to be read.
fn file(root: &Path, name: &str, bytes: u64, window: u16) -> Result<Wanted> {
    let mut content = vec![0; usize::try_from(bytes).context("the file's size")?];
    // Not zeros: a block in the wrong place must differ.
    fastrand::Rng::with_seed(bytes).fill(&mut content);
    let path = root.join(name);
    fs::write(&path, &content).with_context(|| format!("writing {}", path.display()))?;
    Ok(Wanted {
        file: name.to_owned(),
        block_size: BLOCK_SIZE,
        window,
        content: Arc::from(content),
    })
}

/// What every trial stands on.
struct LoadTestbed<'a> {
    lab: &'a Lab,
    station: &'a Station,
    root: PathBuf,
    limit: Duration,
    wanted: Wanted,
    ready: Wanted,
}

impl LoadTestbed<'_> {
    /// One crowd at one server.
    fn trial(&self, kind: Kind, clients: usize, what: &str) -> Result<Trial> {
        let mut server = Running::start(self.lab, kind, &self.root)?;
        self.await_server(kind, &mut server)?;
        let started = server.processor_seconds();
        let total = clients as u64 * self.wanted.content.len() as u64;
        let (progress, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let outcomes = std::thread::scope(|scope| {
            scope.spawn(|| show(what, total, &progress, &done));
            let outcomes = self.crowd(kind, &self.wanted, clients, self.limit, &progress);
            done.store(1, Ordering::Relaxed);
            outcomes
        })?;
        server.check()?;
        let memory_kib = server.memory_kib();
        // Its threads see the last acknowledgements and end.
        std::thread::sleep(Duration::from_millis(100));
        let processor_seconds = server.stop()?.map(|all| all - started);
        Ok(trial(kind, &outcomes, processor_seconds, memory_kib))
    }

    fn crowd(
        &self,
        kind: Kind,
        wanted: &Wanted,
        clients: usize,
        limit: Duration,
        progress: &AtomicU64,
    ) -> Result<Vec<ClientOutcome>> {
        match kind.protocol() {
            TransferProtocol::Tftp => crowd::run(self.station, wanted, clients, limit, progress),
            TransferProtocol::Http => http::run(self.station, wanted, clients, limit, progress),
        }
    }

    /// Waits until the server answers.
    fn await_server(&self, kind: Kind, server: &mut Running) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let unseen = AtomicU64::new(0);
        loop {
            server.check()?;
            let patience = Duration::from_millis(200);
            let outcomes = self.crowd(kind, &self.ready, 1, patience, &unseen)?;
            match outcomes.into_iter().next().map(|outcome| outcome.seconds) {
                Some(Ok(_)) => return Ok(()),
                Some(Err(reason)) if Instant::now() > deadline => {
                    bail!("it does not serve: {reason}")
                }
                // Refused at once, while it is not there yet.
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

fn trial(
    server: Kind,
    outcomes: &[ClientOutcome],
    processor_seconds: Option<f64>,
    memory_kib: u64,
) -> Trial {
    let mut seconds: Vec<f64> = outcomes
        .iter()
        .filter_map(|outcome| outcome.seconds.as_ref().ok().copied())
        .collect();
    seconds.sort_by(f64::total_cmp);
    let mut failures: Vec<(String, usize)> = Vec::new();
    for reason in outcomes
        .iter()
        .filter_map(|outcome| outcome.seconds.as_ref().err())
    {
        match failures.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += 1,
            None => failures.push((reason.clone(), 1)),
        }
    }
    let sum = |count: fn(&ClientOutcome) -> u64| outcomes.iter().map(count).sum();
    Trial {
        server,
        clients: outcomes.len(),
        seconds,
        failures,
        doubled_blocks: sum(|outcome| outcome.doubled),
        lost_blocks: sum(|outcome| outcome.gaps),
        timeouts: sum(|outcome| outcome.timeouts),
        processor_seconds,
        memory_kib,
    }
}

/// Shows how many of the bytes have come, until all is done.
fn show(what: &str, total: u64, progress: &AtomicU64, done: &AtomicU64) {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template(
        "{elapsed_precise} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {msg}",
    ) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    while done.load(Ordering::Relaxed) == 0 {
        bar.set_position(progress.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(50));
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::report::tests::{empty, trial};
    use super::*;

    fn args(json: &Path) -> LoadArgs {
        LoadArgs {
            clients: vec![1, 200],
            size: 1,
            seconds: 1,
            server: vec![Choice::All],
            rounds: 3,
            window: 64,
            json: Some(json.to_owned()),
            force: false,
        }
    }

    /// The report and its JSON where this server ends in these rounds under a crowd of 200.
    fn with_one_that_ends(server: Kind, in_rounds: &[u32]) -> (LoadReport, serde_json::Value) {
        let place = tempfile::tempdir().unwrap();
        let json = place.path().join("load.json");
        let mut report = empty(&[Kind::Ours, Kind::Dnsmasq]);
        rounds(&args(&json), &mut report, |kind, clients, shown| {
            let ends = |round: &u32| shown.starts_with(&format!("round {round}/3: 200 "));
            if kind == server && in_rounds.iter().any(ends) {
                bail!("it ended (signal: 11)");
            }
            Ok(trial(kind, clients, &vec![1.0; clients]))
        })
        .unwrap();
        let written = fs::read_to_string(json).unwrap();
        (report, serde_json::from_str(&written).unwrap())
    }

    #[test]
    fn a_server_that_ends_takes_no_figure_with_it() {
        let (report, found) = with_one_that_ends(Kind::Dnsmasq, &[3]);
        let end = judge(&report);
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(found["trials"].as_array().unwrap().len(), 11);
        let rounds = found["rows"].as_array().unwrap().iter();
        let rounds: Vec<_> = rounds.map(|row| row["rounds"].as_u64()).collect();
        assert_eq!(rounds, [Some(3), Some(3), Some(3), Some(2)]);
        let failed = found["failed_trials"].as_array().unwrap();
        assert_eq!(failed.len(), 2);
        assert_eq!(
            failed[1],
            serde_json::json!({
                "server": "dnsmasq",
                "clients": 200,
                "round": 3,
                "what": "200 clients, dnsmasq",
                "reason": "it ended (signal: 11)",
            })
        );
    }

    #[test]
    fn a_server_that_ends_is_not_called_fair() {
        let (report, _) = with_one_that_ends(Kind::Dnsmasq, &[3]);
        let text = report.text();
        let mut rows = text.lines().map(|line| {
            let cells = line.split('|').map(str::trim);
            cells.collect::<Vec<&str>>()
        });
        // Clients, server, how many finished, rounds.
        let row = rows.find(|cells| cells.get(1..3) == Some(&["200", "dnsmasq 1.0"][..]));
        assert_eq!(row.unwrap()[3..5], ["200/200", "2/3"], "{text}");
        let fair = "200 clients: no client was starved";
        assert!(text.contains(&format!("wireboot serve, {fair}")), "{text}");
        assert!(!text.contains("dnsmasq, 200 clients"), "{text}");
        assert!(
            text.contains("failed in round 3: 200 clients, dnsmasq: it ended"),
            "{text}"
        );
    }

    #[test]
    fn the_command_fails_where_there_is_no_figure_or_ours_ended() {
        let (report, found) = with_one_that_ends(Kind::Dnsmasq, &[1, 2, 3]);
        assert_eq!(found["rows"].as_array().unwrap().len(), 3);
        let end = judge(&report).unwrap_err().to_string();
        assert!(end.starts_with("no figure for 1 of"), "{end}");
        let (report, _) = with_one_that_ends(Kind::Ours, &[2]);
        let end = judge(&report).unwrap_err().to_string();
        assert_eq!(end, "200 clients, wireboot serve: it ended (signal: 11)");
    }
}
