//! The figures of a load run: one row for each server and crowd, as a table and as JSON.

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::servers::Kind;
use crate::bench::problems::{self, FailedTrial, Failure};
use wireboot_lab::host::Host;
use wireboot_lab::statistics::{median, range};

/// No client is starved when all get the file and the slowest takes at most so many times as long as the median.
const FAIR: f64 = 3.0;

/// One crowd at one server, once.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trial {
    pub server: Kind,
    /// Clients that began together.
    pub clients: usize,
    /// Seconds from the start to the last byte, of each client that got all of it, shortest first.
    pub seconds: Vec<f64>,
    /// Why others did not, and how many of them.
    pub failures: Vec<(String, usize)>,
    /// Blocks that came to a client again.
    pub doubled_blocks: u64,
    /// Blocks that a client missed while a later one came.
    pub lost_blocks: u64,
    /// Times that a client had to ask again, as nothing came.
    pub timeouts: u64,
    /// The server's processor seconds, where they are counted.
    pub processor_seconds: Option<f64>,
    /// The most memory that the server's first process had, in KiB.
    pub memory_kib: u64,
}

impl Trial {
    fn is_complete(&self) -> bool {
        self.seconds.len() == self.clients
    }
}

/// A crowd whose server did not start, or ended.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FailedCrowd {
    pub server: Kind,
    /// Clients that were to begin together.
    pub clients: usize,
    #[serde(flatten)]
    pub trial: FailedTrial,
}

/// A crowd at a server, as progress and failures name it.
pub(super) fn what(clients: usize, server: Kind) -> String {
    format!("{clients} clients, {}", server.name())
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(super) struct LoadReport {
    /// Where and when it ran, by which command and commit.
    pub host: Host,
    /// The file's size in bytes.
    pub bytes: u64,
    /// Payload bytes of a block.
    pub block_size: u16,
    /// Blocks for one acknowledgement that clients ask for.
    pub window: u16,
    /// How often each server was to meet each crowd.
    pub rounds: u32,
    /// The servers and their versions.
    pub servers: Vec<(Kind, String)>,
    /// One row for each crowd and server.
    pub rows: Vec<LoadRow>,
    /// All of them, in the order in which they ran.
    pub trials: Vec<Trial>,
    /// Every trial that failed, also where the next one gave figures.
    pub failed_trials: Vec<FailedCrowd>,
    /// Servers that took no part, and why.
    pub absent: Vec<(Kind, String)>,
}

/// The trials of one server with one crowd: medians of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LoadRow {
    pub server: Kind,
    /// Clients at once.
    pub clients: usize,
    /// Rounds that were measured.
    pub rounds: usize,
    /// Those of them in which all clients got all of it.
    pub complete_rounds: usize,
    /// Clients that got all of it, in the worst round.
    pub finished: usize,
    /// Their bits over the time of the slowest, in millions a second: of complete rounds alone.
    pub mbit_s: Option<f64>,
    /// The fastest client's seconds.
    pub fastest_s: Option<f64>,
    /// The median client's seconds.
    pub median_s: Option<f64>,
    /// The slowest client's seconds.
    pub slowest_s: Option<f64>,
    /// The slowest client's time over the median's, in the worst round.
    pub slowest_over_median: Option<f64>,
    /// Blocks sent again, and timeouts, in all rounds.
    pub again: u64,
    /// The server's processor seconds for each GiB that arrived whole.
    pub processor_s_per_gib: Option<f64>,
    /// The most memory that the server's first process had, in KiB.
    pub memory_kib: u64,
}

impl LoadRow {
    /// Whether every client got everything, and none was starved.
    #[must_use]
    pub(super) fn is_fair(&self) -> bool {
        let even = self.slowest_over_median.is_some_and(|ratio| ratio <= FAIR);
        self.finished == self.clients && even
    }
}

/// The rows, crowd by crowd.
#[must_use]
pub(super) fn rows(trials: &[Trial], bytes: u64) -> Vec<LoadRow> {
    let mut keys: Vec<_> = trials
        .iter()
        .map(|trial| (trial.clients, trial.server))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .map(|(clients, server)| {
            let of_row = |trial: &&Trial| (trial.clients, trial.server) == (clients, server);
            let trials: Vec<&Trial> = trials.iter().filter(of_row).collect();
            row(&trials, clients, server, bytes)
        })
        .collect()
}

fn row(trials: &[&Trial], clients: usize, server: Kind, bytes: u64) -> LoadRow {
    let of_each = |value: &dyn Fn(&Trial) -> Option<f64>| -> Vec<f64> {
        trials.iter().filter_map(|trial| value(trial)).collect()
    };
    let middle = |value: &dyn Fn(&Trial) -> Option<f64>| median(&of_each(value));
    let slowest = |trial: &Trial| range(&trial.seconds).map(|(_, slowest)| slowest);
    let uneven = |trial: &Trial| Some(slowest(trial)? / median(&trial.seconds)?);
    let arrived = |trial: &Trial| trial.seconds.len() as f64 * bytes as f64;
    LoadRow {
        server,
        clients,
        rounds: trials.len(),
        complete_rounds: trials.iter().filter(|trial| trial.is_complete()).count(),
        finished: trials
            .iter()
            .map(|trial| trial.seconds.len())
            .min()
            .unwrap_or(0),
        // What a crowd gets while some of it gets nothing says little.
        mbit_s: middle(&|trial| {
            let whole = trial.is_complete().then_some(trial)?;
            Some(arrived(whole) * 8e-6 / slowest(whole)?)
        }),
        fastest_s: middle(&|trial| range(&trial.seconds).map(|(fastest, _)| fastest)),
        median_s: middle(&|trial| median(&trial.seconds)),
        slowest_s: middle(&slowest),
        slowest_over_median: range(&of_each(&uneven)).map(|(_, worst)| worst),
        again: trials
            .iter()
            .map(|trial| trial.doubled_blocks + trial.lost_blocks + trial.timeouts)
            .sum(),
        processor_s_per_gib: middle(&|trial| {
            let gib = arrived(trial) / f64::from(1 << 30);
            trial
                .processor_seconds
                .filter(|_| gib > 0.0)
                .map(|seconds| seconds / gib)
        }),
        memory_kib: trials
            .iter()
            .map(|trial| trial.memory_kib)
            .max()
            .unwrap_or(0),
    }
}

impl LoadReport {
    /// Takes in what a crowd at a server brought, and its trials that failed.
    pub(super) fn add(
        &mut self,
        (server, clients): (Kind, usize),
        trial: Option<Trial>,
        failed: Vec<FailedTrial>,
    ) {
        self.trials.extend(trial);
        let failed = failed.into_iter().map(|trial| FailedCrowd {
            server,
            clients,
            trial,
        });
        self.failed_trials.extend(failed);
        self.rows = rows(&self.trials, self.bytes);
    }

    /// The crowds at servers that have no figure, with the last reason.
    pub(super) fn failures(&self) -> Vec<Failure> {
        problems::without_figure(self.failed(), |name| {
            let mut rows = self.rows.iter();
            rows.any(|row| what(row.clients, row.server) == name)
        })
    }

    /// Whether the row's server failed under the row's crowd, once or more.
    fn has_failed(&self, row: &LoadRow) -> bool {
        let mut failed = self.failed_trials.iter();
        failed.any(|crowd| (crowd.server, crowd.clients) == (row.server, row.clients))
    }

    fn failed(&self) -> impl Iterator<Item = &FailedTrial> {
        self.failed_trials.iter().map(|crowd| &crowd.trial)
    }

    /// The table, with what stands beside it.
    #[must_use]
    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "clients",
            "server",
            "finished",
            "rounds",
            "Mbit/s",
            "atftpd, nginx = 1",
            "fastest, s",
            "median, s",
            "slowest, s",
            "slowest / median",
            "sent again",
            "CPU s / GiB",
            "memory, MiB",
        ]);
        for row in &self.rows {
            let number = |value: Option<f64>, digits: usize| {
                value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let rival = self
                .rows
                .iter()
                .find(|other| other.clients == row.clients && other.server == row.server.rival());
            let ratio = rival.and_then(|rival| Some(row.mbit_s? / rival.mbit_s?));
            let version = self.servers.iter().find(|(kind, _)| *kind == row.server);
            let version = version.map_or("", |(_, version)| version.as_str());
            table.add_row(
                [
                    row.clients.to_string(),
                    format!("{} {version}", row.server.name()),
                    format!("{}/{}", row.finished, row.clients),
                    format!("{}/{}", row.complete_rounds, self.rounds),
                    number(row.mbit_s, 0),
                    number(ratio, 2),
                    number(row.fastest_s, 3),
                    number(row.median_s, 3),
                    number(row.slowest_s, 3),
                    number(row.slowest_over_median, 2),
                    row.again.to_string(),
                    number(row.processor_s_per_gib, 2),
                    number(Some(row.memory_kib as f64 / 1024.0), 1),
                ]
                .map(Cell::new),
            );
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            if index != 1 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = format!(
            "{}\n{} MiB to each client; by TFTP block size {}, window {} where the server grants one.\n\n{table}\n",
            self.host.provenance(),
            self.bytes >> 20,
            self.block_size,
            self.window
        );
        let crowds = self.rows.iter().filter(|row| row.clients > 1);
        // What the clients of a trial that failed got is in no row.
        for row in crowds.filter(|row| !self.has_failed(row)) {
            let verdict = match row.is_fair() {
                true => "no client was starved",
                false => "clients were starved",
            };
            text += &format!(
                "{}, {} clients: {verdict} (all finish, the slowest within {FAIR} times the median)\n",
                row.server.name(),
                row.clients
            );
        }
        for (kind, reason) in &self.absent {
            text += &format!("{} is left out: {reason}\n", kind.name());
        }
        for trial in &self.trials {
            for (reason, count) in &trial.failures {
                text += &format!(
                    "{}, {} clients: {count} of them: {reason}\n",
                    trial.server.name(),
                    trial.clients
                );
            }
        }
        text + &problems::text(&self.failures(), self.failed())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Before the first trial.
    pub(in crate::load) fn empty(servers: &[Kind]) -> LoadReport {
        let server = |&kind: &Kind| (kind, "1.0".to_owned());
        LoadReport {
            host: Host::without_guests(0.0, Vec::new()),
            bytes: 1 << 20,
            block_size: 1468,
            window: 64,
            rounds: 3,
            servers: servers.iter().map(server).collect(),
            rows: Vec::new(),
            trials: Vec::new(),
            failed_trials: Vec::new(),
            absent: Vec::new(),
        }
    }

    pub(in crate::load) fn trial(server: Kind, clients: usize, seconds: &[f64]) -> Trial {
        Trial {
            server,
            clients,
            seconds: seconds.to_vec(),
            failures: vec![],
            doubled_blocks: 1,
            lost_blocks: 2,
            timeouts: 3,
            processor_seconds: Some(0.5),
            memory_kib: 2048,
        }
    }

    #[test]
    fn rows_are_medians_of_rounds_and_the_worst_fairness() {
        let gib = 1 << 30;
        let rows = rows(
            &[
                trial(Kind::Ours, 2, &[1.0, 2.0]),
                trial(Kind::Atftpd, 2, &[4.0]),
                trial(Kind::Ours, 2, &[1.0, 4.0]),
                trial(Kind::Ours, 1, &[1.0]),
            ],
            gib,
        );
        let order: Vec<_> = rows.iter().map(|row| (row.clients, row.server)).collect();
        assert_eq!(order, [(1, Kind::Ours), (2, Kind::Ours), (2, Kind::Atftpd)]);
        let (ours, other) = (&rows[1], &rows[2]);
        assert_eq!((ours.rounds, ours.finished, ours.again), (2, 2, 12));
        assert_eq!(ours.slowest_s, Some(3.0));
        assert_eq!(ours.slowest_over_median, Some(4.0 / 2.5));
        assert_eq!(ours.processor_s_per_gib, Some(0.25));
        assert!(ours.is_fair());
        assert_eq!(ours.complete_rounds, 2);
        // One of two clients got nothing.
        assert_eq!((other.finished, other.mbit_s), (1, None));
        assert_eq!((other.rounds, other.complete_rounds), (1, 0));
        assert!(!other.is_fair());
    }

    #[test]
    fn text_says_how_many_rounds_were_complete_and_what_failed() {
        let mut report = empty(&[Kind::Atftpd, Kind::Dnsmasq]);
        let failed = |round, clients, server, reason: &str| FailedTrial {
            round,
            what: what(clients, server),
            reason: reason.to_owned(),
        };
        for (round, seconds) in [(1, &[1.0, 2.0][..]), (2, &[1.0]), (3, &[1.0])] {
            let trial = trial(Kind::Atftpd, 2, seconds);
            let first = failed(round, 2, Kind::Atftpd, "it ended");
            report.add((Kind::Atftpd, 2), Some(trial), vec![first]);
        }
        let both = ["it does not serve", "it ended"].map(|why| failed(3, 2, Kind::Dnsmasq, why));
        report.add((Kind::Dnsmasq, 2), None, both.into());
        let text = report.text();
        let row = text.lines().find(|line| line.contains("| atftpd 1.0"));
        let cells: Vec<&str> = row.unwrap().split('|').map(str::trim).collect();
        assert_eq!(cells[3..6], ["1/2", "1/3", "8"], "{text}");
        for part in [
            "failed in round 2: 2 clients, atftpd: it ended\n",
            "failed in round 3: 2 clients, dnsmasq: it does not serve\n",
            "no figure for 2 clients, dnsmasq: it ended\n",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!text.contains("no figure for 2 clients, atftpd"), "{text}");
    }

    #[test]
    fn a_starved_client_is_not_fair() {
        let rows = rows(&[trial(Kind::Ours, 3, &[1.0, 1.0, 3.1])], 1);
        assert!(!rows[0].is_fair());
    }
}
