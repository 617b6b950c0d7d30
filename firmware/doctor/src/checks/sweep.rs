//! One file by TFTP in blocks and windows of many sizes: by the firmware's protocols, then by wireboot's engine on this processor.

mod firmware;
mod ours;

use super::stock::{first_with, leases, named};
use crate::cards;
use crate::error::{Error, refused};
use crate::escape::is_ended;
use crate::examination::Examination;
use crate::options::Options;
use crate::vlan;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::slice::from_ref;
use firmware::FirmwareTransfers;
use ours::OurTransfers;
use wireboot_boot::card;
use wireboot_boot::error::Error as BootError;
use wireboot_fetch::Leases;
use wireboot_nic::Nic;
use wireboot_platform::claim::pci::Candidate;
use wireboot_platform::firmware_net::{NetworkBoot, Station};
use wireboot_platform::{Clock, console};
use wireboot_report::NotMeasured;
use wireboot_report::sweep::{By, Cell, best};

/// Bytes of a block: those of IPv4, of Windows' boot programs, of IPv6 and of tunnels, GRUB's, the default, and one that goes in fragments. Here
/// and below the fastest come first, so that what no time is left for are few.
const BLOCKS: &[u16] = &[1468, 1456, 1448, 1428, 1024, 512, 8192];
/// Blocks of a window.
const WINDOWS: &[u16] = &[64, 50, 32, 16, 8, 4, 1];
/// The same where other checks are to have time, too: what fills a packet of either version of IP, and the default.
const FEW_BLOCKS: &[u16] = &[1468, 512];
const FEW_BLOCKS6: &[u16] = &[1448, 512];
const FEW_WINDOWS: &[u16] = &[64, 16, 4, 1];
/// No cell is begun so many microseconds after the first of a whole table, or of a small one.
const TABLE: u64 = 100_000_000;
const SMALL_TABLE: u64 = 6_000_000;
/// How long the file may take to come, in microseconds.
const PATIENCE: u64 = 15_000_000;
/// How often the Esc key is looked at while a file comes, in microseconds.
const LOOK: u64 = 100_000;
/// Room for a file that was named, and for the boot file, in bytes.
const ROOM: usize = 256 << 20;
const BOOT_FILE_ROOM: usize = 64 << 20;

/// How the firmware boots over a version of IP.
type Boot = fn(&Candidate) -> Result<NetworkBoot, wireboot_platform::Error>;

/// Fills the tables of each version of IP over which the firmware boots; where other checks are to have time, of the first.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let boots: &[(&str, Boot)] = match examination.options.thorough {
        true => &[
            ("over IPv4", NetworkBoot::over_ipv4),
            ("over IPv6", NetworkBoot::over_ipv6),
        ],
        false => &[("", NetworkBoot::of)],
    };
    let mut failed = Vec::new();
    for (name, boot) in boots {
        match over(examination, *boot) {
            Ok(()) => {}
            Err(Error::Ended) => return Err(Error::Ended),
            Err(error) => {
                log::warn!("{name}: {error}");
                failed.push((name, error));
            }
        }
    }
    if examination.report.sweep.is_empty()
        && let Some((_, error)) = failed.pop()
    {
        return Err(error);
    }
    for (name, error) in failed {
        examination.report.not_measured.push(NotMeasured {
            check: "sweep".into(),
            reason: format!("{name}: {error}"),
        });
    }
    Ok(())
}

/// The tables of one version of IP.
fn over(examination: &mut Examination<'_>, boot: Boot) -> Result<(), Error> {
    let (card, boot) = first_with(examination, boot).map_err(|_| Error::NoBootOption)?;
    console::progress("the firmware boots over its network; nothing is started");
    boot.load()
        .map_err(refused("the boot file by the firmware's network boot"))?;
    let learnt = boot.learnt().ok_or(Error::NoTftp)?;
    let (server, file) = named(&learnt).ok_or(Error::NoTftp)?;
    let leases = leases(&learnt).ok_or(Error::NoTftp)?;
    let station = match (learnt.station, learnt.netmask()) {
        (IpAddr::V4(address), Some(mask)) => Station::V4(address, mask),
        _ => Station::V6,
    };
    let source = Source {
        server,
        room: match examination.options.file {
            Some(_) => ROOM,
            None => BOOT_FILE_ROOM,
        },
        file: examination.options.file.clone().unwrap_or(file),
        leases,
        clock: examination.clock,
    };
    let ip = if server.is_ipv6() { 6 } else { 4 };
    // Its own receivers would be given a copy of each packet. They would even where we came by it.
    boot.stop();
    let filled = FirmwareTransfers::open(&card, station, &source)
        .map(|mut transfers| Table::new(examination, By::Firmware, ip).fill(&mut transfers));
    if let Some(cached) = &examination.origin.cached {
        // What the firmware's PXE told whoever we came from.
        let _ = cached.restore();
    }
    if let Some(table) = keep(examination, filled) {
        table.take(examination)?;
    }
    let cards = card::all(examination.origin, None)?;
    let ours = cards.into_iter();
    let mut ours = ours.filter(|one| one.path().starts_with(&card.path));
    let ours = ours.next().ok_or(BootError::NoInterface)?;
    let taken = cards::take(&ours, examination.clock)?;
    let cable = vlan::cable(taken.nic, examination.origin);
    let mut transfers = OurTransfers::new(cable, &source);
    let table = Table::new(examination, By::Wireboot, ip).fill(&mut transfers);
    transfers.into_nic().stop();
    // Before the claim: its memory belonged to the device.
    drop(taken.claim);
    table.take(examination)
}

/// What was filled, or a word on why nothing was.
fn keep(examination: &mut Examination<'_>, filled: Result<Table, Error>) -> Option<Table> {
    let say = |error: &Error| {
        log::warn!("the firmware's TFTP: {error}");
        examination.report.not_measured.push(NotMeasured {
            check: "sweep".into(),
            reason: format!("the firmware's TFTP: {error}"),
        });
    };
    filled.inspect_err(say).ok()
}

/// What is fetched from whom.
struct Source {
    server: IpAddr,
    file: String,
    /// For the file, in bytes.
    room: usize,
    /// Of the server's version of IP.
    leases: Leases,
    clock: Clock,
}

/// A way to fetch it.
trait Transfers {
    /// Fetches it in blocks and windows of the cell's sizes, for so many microseconds at most, as long as `goes_on` says so. Fills in all that the cell tells of a run.
    fn transfer(&mut self, cell: &mut Cell, most: u64, goes_on: &mut dyn FnMut() -> bool);
}

/// The cells of one way over one version of IP.
struct Table {
    cells: Vec<Cell>,
    rounds: u32,
    /// No cell is begun so many microseconds after the first.
    most: u64,
    clock: Clock,
    name: String,
    /// By the Esc key.
    ended: bool,
}

impl Table {
    fn new(examination: &Examination<'_>, by: By, ip: u8) -> Self {
        let options = examination.options;
        let who = match by {
            By::Wireboot => "wireboot",
            _ => "the firmware",
        };
        Self {
            cells: cells(by, ip, options),
            rounds: options.rounds,
            most: if options.thorough { TABLE } else { SMALL_TABLE },
            clock: examination.clock,
            name: format!("{who} over IPv{ip}"),
            ended: false,
        }
    }

    /// Fetches in all sizes, round after round while there is time, and the Esc key does not end it. One that fails is left out of further rounds.
    fn fill(mut self, transfers: &mut impl Transfers) -> Self {
        let end = self.clock.micros() + self.most;
        let all = self.cells.len();
        for round in 1..=self.rounds {
            for (cell, number) in self.cells.iter_mut().zip(1..) {
                self.ended = is_ended();
                let left = end.saturating_sub(self.clock.micros());
                if self.ended || left == 0 {
                    return self;
                }
                if cell.failure.is_some() {
                    continue;
                }
                console::progress(&format!("{}, round {round}, {number} of {all}", self.name));
                let mut run = Cell {
                    runs: cell.runs + 1,
                    ..cell.clone()
                };
                let (clock, mut looks) = (self.clock, 0);
                let mut goes_on = || {
                    // The keyboard takes as long as a packet does.
                    let now = clock.micros();
                    if now >= looks {
                        looks = now + LOOK;
                        self.ended |= is_ended();
                    }
                    !self.ended
                };
                transfers.transfer(&mut run, patience(all, left), &mut goes_on);
                if self.ended {
                    return self;
                }
                keep_faster(cell, run);
            }
        }
        self
    }

    /// Puts what was measured into the report.
    ///
    /// # Errors
    /// When the Esc key has ended it.
    fn take(self, examination: &mut Examination<'_>) -> Result<(), Error> {
        console::clear_progress();
        let report = &mut examination.report;
        let missed = self.cells.iter().filter(|cell| cell.runs == 0).count();
        if missed > 0 && !self.ended {
            report.not_measured.push(NotMeasured {
                check: "sweep".into(),
                reason: format!("{}: no time was left for {missed} sizes", self.name),
            });
        }
        if let Some(cell) = best(self.cells.iter()) {
            log::info!(
                "{}: best with blocks of {} in windows of {}, {:.0} Mbit/s",
                self.name,
                cell.granted_block_bytes.unwrap_or(cell.block_bytes),
                cell.granted_window.unwrap_or(1),
                cell.bits_per_second() / 1e6
            );
        }
        let measured = self.cells.into_iter().filter(|cell| cell.runs > 0);
        report.sweep.extend(measured);
        match self.ended {
            true => Err(Error::Ended),
            false => Ok(()),
        }
    }
}

/// Of two runs of a cell, the faster. What came once has come.
fn keep_faster(cell: &mut Cell, run: Cell) {
    let runs = run.runs;
    let faster = run.came() && run.seconds < cell.seconds;
    if !cell.came() || faster {
        *cell = run;
    }
    cell.runs = runs;
}

/// How long a file may take where so many sizes are tried, with so many microseconds left: one size alone has all of them.
fn patience(sizes: usize, left: u64) -> u64 {
    if sizes == 1 {
        left.max(PATIENCE)
    } else {
        PATIENCE
    }
}

/// The blocks and windows that are tried.
fn sizes(options: &Options, ip: u8) -> (&[u16], &[u16]) {
    let (blocks, windows) = match options.thorough {
        true => (BLOCKS, WINDOWS),
        false if ip == 6 => (FEW_BLOCKS6, FEW_WINDOWS),
        false => (FEW_BLOCKS, FEW_WINDOWS),
    };
    (
        options.block.as_ref().map_or(blocks, from_ref),
        options.window.as_ref().map_or(windows, from_ref),
    )
}

/// Each block size with each window; of wireboot's, with what it asks for by itself, and with one that varies, too, unless one window alone was asked for.
fn cells(by: By, ip: u8, options: &Options) -> Vec<Cell> {
    let (blocks, windows) = sizes(options, ip);
    let own: &[_] = match by {
        By::Wireboot if options.window.is_none() => &[(None, false), (None, true)],
        _ => &[],
    };
    let windows = windows.iter().map(|window| (Some(*window), false));
    let windows = windows.chain(own.iter().copied());
    let each = blocks
        .iter()
        .flat_map(|block| windows.clone().map(|window| (*block, window)));
    each.map(|(block, (window, varying))| Cell {
        by,
        ip,
        block_bytes: block.into(),
        window: window.map(u32::from),
        varying,
        ..Cell::default()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wireboots_own_window_is_a_cell_of_each_block() {
        let mut options = Options {
            thorough: true,
            ..Options::default()
        };
        let firmware = cells(By::Firmware, 4, &options);
        assert_eq!(firmware.len(), 7 * 7);
        assert!(firmware.iter().all(|cell| cell.window.is_some()));
        options.thorough = false;
        let ours = cells(By::Wireboot, 6, &options);
        assert_eq!(ours.len(), 2 * 6);
        let own = |cells: &[Cell], varying| {
            let own = |cell: &&Cell| cell.window.is_none() && cell.varying == varying;
            cells.iter().filter(own).count()
        };
        assert_eq!((own(&ours, false), own(&ours, true)), (2, 2));
        assert!(ours.iter().all(|cell| cell.ip == 6));
        // One block still has them, one window not.
        options.block = Some(1456);
        let ours = cells(By::Wireboot, 4, &options);
        assert_eq!((own(&ours, false), own(&ours, true)), (1, 1));
        assert!(ours.iter().all(|cell| cell.block_bytes == 1456));
        options.window = Some(50);
        let one = cells(By::Wireboot, 4, &options);
        let sizes = one.iter().map(|cell| (cell.block_bytes, cell.window));
        assert_eq!(sizes.collect::<Vec<_>>(), [(1456, Some(50))]);
    }

    #[test]
    fn one_size_alone_has_all_the_time_that_is_left() {
        assert_eq!(patience(1, 60_000_000), 60_000_000);
        assert_eq!(patience(1, 1), PATIENCE);
        assert_eq!(patience(2, 60_000_000), PATIENCE);
    }

    #[test]
    fn the_faster_run_stays() {
        let run = |runs, seconds, failure: Option<&str>| Cell {
            runs,
            seconds,
            bytes: 1,
            failure: failure.map(Into::into),
            ..Cell::default()
        };
        let mut cell = Cell::default();
        let mut then = |next| {
            keep_faster(&mut cell, next);
            (cell.runs, cell.seconds, cell.failure.is_some())
        };
        assert_eq!(then(run(1, 2.0, None)), (1, 2.0, false));
        assert_eq!(then(run(2, 3.0, None)), (2, 2.0, false));
        assert_eq!(then(run(3, 1.0, None)), (3, 1.0, false));
        assert_eq!(then(run(4, 0.0, Some("TIMEOUT"))), (4, 1.0, false));
        let mut cell = Cell::default();
        keep_faster(&mut cell, run(1, 0.0, Some("TIMEOUT")));
        assert!(cell.failure.is_some());
    }
}
