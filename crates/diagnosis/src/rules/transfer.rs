//! Files on their way.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::network::{Protocol, Transfer};
use wireboot_report::sweep::{self, By, Cell};

use super::{Boot, Found, advice, listed, time};

/// Files below this are not worth tuning for.
pub(super) const LARGE_BYTES: u64 = 1 << 18;

/// Below this nothing is worth changing.
pub(super) const WORTH_S: f64 = 0.2;

/// A window with which round trips hardly count any more (RFC 7440's own measurements end at 64).
const GOOD_WINDOW: f64 = 64.0;

/// The block that fills a packet of 1500 bytes, by IPv4 (1472 - 4).
const GOOD_BLOCK: f64 = 1468.0;

/// A single wait from this on is the server's own, when it is also many times the shortest.
const SERVERS_OWN_S: f64 = 0.005;
const MANY: f64 = 5.0;

pub(super) fn large<'a>(
    boot: &Boot<'a>,
    protocol: Protocol,
) -> impl Iterator<Item = &'a Transfer> + use<'a> {
    boot.network
        .transfers
        .iter()
        .filter(move |one| one.protocol == protocol && one.bytes >= LARGE_BYTES)
}

/// Waits for the server that are no stall.
pub(super) fn turning_s(one: &Transfer) -> f64 {
    (one.server_wait_s - one.server_stalled_s).max(0.0)
}

/// No machine needs this long for a block: it is the way to the machine, which a capture at the server has in all its waits for it.
const LONG_WAY_S: f64 = 0.002;

/// Waits for the machine that are the way to it.
fn way_s(one: &Transfer) -> f64 {
    let shortest = one
        .shortest_client_wait_s
        .filter(|wait| *wait >= LONG_WAY_S);
    let trips = shortest.unwrap_or_default() * one.turns as f64;
    trips.min(one.client_wait_s)
}

/// The server is slower than the way to it.
pub(super) fn server_is_slow(one: &Transfer) -> bool {
    let (Some(shortest), true) = (one.shortest_server_wait_s, one.turns > 0) else {
        return false;
    };
    let mean = turning_s(one) / one.turns as f64;
    mean >= SERVERS_OWN_S && mean >= MANY * shortest
}

/// The part of a file's waits that blocks of [`GOOD_BLOCK`] bytes would spare. Window and machine share what is left.
fn by_block(one: &Transfer) -> f64 {
    let small = one.protocol == Protocol::Tftp
        && one.bytes >= LARGE_BYTES
        && f64::from(one.block_bytes) < GOOD_BLOCK * 0.75;
    if small {
        1.0 - f64::from(one.block_bytes) / GOOD_BLOCK
    } else {
        0.0
    }
}

/// What the machine's firmware took for a file, in the sizes of a transfer and in better ones.
struct Measured<'a> {
    /// In the transfer's sizes.
    own: &'a Cell,
    /// In blocks that fill packets, where the transfer's do not.
    filled: &'a Cell,
    /// In those and the best windows.
    best: &'a Cell,
    /// Larger windows of those blocks were measured.
    has_windows: bool,
    /// Larger blocks that fit packets were, in the transfer's windows.
    has_blocks: bool,
}

impl<'a> Measured<'a> {
    fn of(boot: &Boot<'a>, one: &Transfer) -> Option<Self> {
        let ip = if one.server.contains(':') { 6 } else { 4 };
        let cells = sweep::of(boot.sweep, By::Firmware, ip).filter(|cell| cell.came());
        let sizes = |cell: &Cell| (cell.granted_block_bytes, cell.granted_window);
        let (block, window) = (Some(one.block_bytes), Some(one.window_blocks.max(1)));
        let mut own = cells.clone().filter(|cell| sizes(cell) == (block, window));
        let own = own.next()?;
        let fits = |cell: &Cell| {
            sizes(cell)
                .0
                .is_some_and(|block| f64::from(block) <= GOOD_BLOCK)
        };
        let mut blocks = cells.clone();
        let has_blocks = blocks
            .any(|cell| sizes(cell).1 == window && fits(cell) && sizes(cell).0 > sizes(own).0);
        let filled = match by_block(one) > 0.0 {
            true => {
                let beside = cells.clone();
                sweep::best(beside.filter(|cell| sizes(cell).1 == window && fits(cell)))?
            }
            false => own,
        };
        let mut windows = cells.filter(|cell| sizes(cell).0 == sizes(filled).0);
        let best = sweep::best(windows.clone())?;
        Some(Self {
            own,
            filled,
            best,
            has_windows: windows.any(|cell| sizes(cell).1 > window),
            has_blocks,
        })
    }

    /// For what windows cost: `None` where no larger ones were measured.
    fn of_windows(boot: &Boot<'a>, one: &Transfer) -> Option<Self> {
        Self::of(boot, one).filter(|measured| measured.has_windows)
    }

    /// For what blocks cost: `None` where no larger ones were measured.
    fn of_blocks(boot: &Boot<'a>, one: &Transfer) -> Option<Self> {
        Self::of(boot, one).filter(|measured| measured.has_blocks)
    }

    /// Of a transfer's seconds, those that it takes longer in one cell than in another.
    fn between(&self, one: &Transfer, slow: &Cell, fast: &Cell) -> f64 {
        let part = (slow.seconds - fast.seconds) / self.own.seconds;
        one.seconds() * part.clamp(0.0, 1.0)
    }

    /// The two cells in words, as they follow the evidence of a finding.
    fn words(&self, slow: &Cell, fast: &Cell) -> String {
        let told = |cell: &Cell| {
            format!(
                "{} in blocks of {} and windows of {}",
                time(cell.seconds),
                cell.granted_block_bytes.unwrap_or(cell.block_bytes),
                cell.granted_window.unwrap_or(1)
            )
        };
        format!(
            "; measured here by the firmware, a file of {} bytes: {}, {}",
            self.own.bytes,
            told(slow),
            told(fast)
        )
    }
}

/// The value of a TFTP option in a list, `blksize=1024 windowsize=4`.
fn option(list: &str, name: &str) -> Option<u32> {
    list.split(' ')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .and_then(|(_, value)| value.parse().ok())
}

pub(super) fn files(found: &[&Transfer]) -> String {
    listed(found.iter().map(|one| one.file.as_str()))
}

/// A window in which each few blocks wait for an acknowledgement.
pub(super) fn window(boot: &Boot<'_>) -> Option<Found> {
    let share = |one: &Transfer| 1.0 - f64::from(one.window_blocks) / GOOD_WINDOW;
    let found: Vec<&Transfer> = large(boot, Protocol::Tftp)
        .filter(|one| f64::from(one.window_blocks) < GOOD_WINDOW / 4.0 && !server_is_slow(one))
        .collect();
    let turns_s = |one: &Transfer| turning_s(one) + way_s(one);
    let waits: f64 = found.iter().map(|one| turns_s(one)).sum();
    let left_s = |one: &Transfer| turns_s(one) * (1.0 - by_block(one));
    let left: f64 = found.iter().map(|one| left_s(one)).sum();
    let lost_s = |one: &Transfer| match Measured::of_windows(boot, one) {
        // What blocks cost is no other's: where it is estimated, a part of each second.
        Some(measured) if measured.has_blocks => {
            measured.between(one, measured.filled, measured.best)
        }
        Some(measured) => {
            measured.between(one, measured.filled, measured.best) * (1.0 - by_block(one))
        }
        None => left_s(one) * share(one),
    };
    let lost: f64 = found.iter().map(|one| lost_s(one)).sum();
    let refused = |one: &Transfer| {
        option(&one.asked, "windowsize").is_some() && option(&one.granted, "windowsize").is_none()
    };
    // That a server knows no windows is said where it costs little, too: there may be longer ways to it.
    let worst = found
        .iter()
        .filter(|one| lost >= WORTH_S || refused(one))
        .max_by(|one, other| turns_s(one).total_cmp(&turns_s(other)))?;
    let measured = Measured::of_windows(boot, worst);
    let measured = measured.map_or_else(String::new, |measured| {
        measured.words(measured.filled, measured.best)
    });
    let blocks = worst.window_blocks;
    let label = match blocks {
        1 => "TFTP block by block".into(),
        _ => format!("TFTP in windows of {blocks}"),
    };
    let asked = option(&worst.asked, "windowsize");
    let granted = option(&worst.granted, "windowsize");
    let (why, advice) = match (asked, granted) {
        (None, _) => (
            "the machine did not ask for a larger one",
            advice([
                "the program that fetches cannot do better: let one fetch that asks for windows (RFC 7440), as wireboot does, or fetch by HTTP",
            ]),
        ),
        (Some(_), None) => (
            "the machine asked for a larger one, and the server does not know them",
            advice([
                "dnsmasq and tftpd-hpa know no windows. atftpd from 0.8 on and `wireboot serve` do; WDS does",
            ]),
        ),
        (Some(_), Some(_)) => (
            "that is what machine and server agreed on",
            advice([
                "EDK II's firmware asks for 4 and no more; a build of one's own sets `PcdTftpWindowSize`. Windows' boot programs: `bcdedit` \
                 `ramdisktftpwindowsize`",
                "wireboot asks for as many as the card's buffers take",
            ]),
        ),
    };
    Some(Found {
        label,
        seconds: lost,
        evidence: format!(
            "{}: {} acknowledgements, and {} spent on the way and between them and the server's next block; {why}{measured}",
            files(&found),
            total(found.iter().map(|one| one.turns)),
            time(waits)
        ),
        advice,
        expected_s: Some((left - lost).max(0.0)),
    })
}

/// Blocks that do not fill the packets.
pub(super) fn block_size(boot: &Boot<'_>) -> Option<Found> {
    let found: Vec<&Transfer> = large(boot, Protocol::Tftp)
        .filter(|one| by_block(one) > 0.0)
        .collect();
    let waits = |one: &Transfer| turning_s(one) + one.client_wait_s;
    let all: f64 = found.iter().map(|one| waits(one)).sum();
    let lost_s = |one: &Transfer| match Measured::of_blocks(boot, one) {
        Some(measured) => measured.between(one, measured.own, measured.filled),
        None => waits(one) * by_block(one),
    };
    let lost: f64 = found.iter().map(|one| lost_s(one)).sum();
    let worst = found.iter().max_by_key(|one| one.bytes)?;
    let measured = Measured::of_blocks(boot, worst);
    let measured = measured.map_or_else(String::new, |measured| {
        measured.words(measured.own, measured.filled)
    });
    if lost < WORTH_S {
        return None;
    }
    let (why, advice) = match option(&worst.asked, "blksize") {
        Some(asked) if asked > worst.block_bytes => (
            format!("the machine asked for {asked}, and the server granted no more"),
            advice([
                "let the server grant `blksize` (RFC 2348). tftpd-hpa: no `-r blksize`. dnsmasq: no `tftp-no-blocksize`",
            ]),
        ),
        _ => (
            "the machine did not ask for larger ones".into(),
            advice([
                "the program that fetches asks for no more: let another one fetch, or fetch by HTTP",
            ]),
        ),
    };
    Some(Found {
        label: "small TFTP blocks".into(),
        seconds: lost,
        evidence: format!(
            "{}: blocks of {} bytes, {} packets; {why}{measured}",
            files(&found),
            worst.block_bytes,
            worst.data_packets,
        ),
        advice,
        expected_s: Some((all - lost).max(0.0)),
    })
}

/// Blocks larger than packets.
pub(super) fn fragments(boot: &Boot<'_>) -> Option<Found> {
    let transfers = boot.network.transfers.iter();
    let found: Vec<&Transfer> = transfers.filter(|one| one.fragmented > 0).collect();
    let worst = found.iter().max_by_key(|one| one.fragmented)?;
    Some(Found {
        label: "blocks cut into fragments".into(),
        seconds: 0.0,
        evidence: format!(
            "{}: {} blocks of {} bytes went in fragments; one that is lost costs the whole block, and some firewalls and firmware drop them",
            files(&found),
            worst.fragmented,
            worst.block_bytes
        ),
        advice: advice([
            "blocks of at most 1468 bytes over IPv4 and 1448 over IPv6 fit a packet. Windows' boot programs: `bcdedit` `ramdisktftpblocksize`",
        ]),
        expected_s: None,
    })
}

/// A sum that a stranger's report cannot make overflow.
pub(super) fn total(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// From this part of all packets on, the network loses packets in files that show none, too: what was lost may have been an answer.
const LOSSY: f64 = 0.001;

/// Whether a wait of the file's that is a stall was a timer that ran out for a lost packet.
fn stalls_by_loss(boot: &Boot<'_>) -> impl Fn(&Transfer) -> bool {
    let all = &boot.network.transfers;
    let repeated = total(all.iter().map(|one| one.repeated));
    let packets = total(all.iter().map(|one| one.data_packets));
    let lossy = repeated > 0 && repeated as f64 >= LOSSY * packets as f64;
    move |one| lossy || one.repeated > 0
}

/// Packets that had to come again.
pub(super) fn loss(boot: &Boot<'_>) -> Option<Found> {
    let by_loss = stalls_by_loss(boot);
    let stalled_s = |one: &Transfer| one.server_stalled_s + one.client_stalled_s;
    let transfers = boot.network.transfers.iter();
    let found: Vec<&Transfer> = transfers
        .filter(|one| one.repeated > 0 || (by_loss(one) && stalled_s(one) > 0.0))
        .collect();
    let lost: f64 = found.iter().map(|one| stalled_s(one)).sum();
    let repeated = total(found.iter().map(|one| one.repeated));
    let packets = total(found.iter().map(|one| one.data_packets));
    let share = repeated as f64 / packets.max(1) as f64;
    // A repetition that cost nothing is no fault.
    if found.is_empty() || (lost < WORTH_S && share < LOSSY) {
        return None;
    }
    Some(Found {
        label: "lost packets".into(),
        seconds: lost,
        evidence: format!(
            "{}: {repeated} of {packets} packets came again ({:.2} %), and {} went by in waits of 0.2 s and more",
            files(&found),
            share * 100.0,
            time(lost)
        ),
        advice: advice([
            "counters of both ports tell where: errors (cable, duplex), or drops (a port slower than what feeds it)",
            "drops right behind the beginning of a window: the machine's card has fewer buffers than the window has blocks. Let the server grant less",
        ]),
        expected_s: Some(0.0),
    })
}

/// A server that does not keep up.
pub(super) fn slow_server(boot: &Boot<'_>) -> Option<Found> {
    let by_loss = stalls_by_loss(boot);
    let transfers = boot.network.transfers.iter();
    let found: Vec<&Transfer> = transfers
        .filter(|one| server_is_slow(one) || (!by_loss(one) && one.server_stalls > 0))
        .collect();
    let own = |one: &Transfer| {
        let trips = one.shortest_server_wait_s.unwrap_or_default() * one.turns as f64;
        let turning = if server_is_slow(one) {
            (turning_s(one) - trips).max(0.0)
        } else {
            0.0
        };
        let stalled = if by_loss(one) {
            0.0
        } else {
            one.server_stalled_s
        };
        turning + stalled
    };
    let lost: f64 = found.iter().map(|one| own(one)).sum();
    let worst = found
        .iter()
        .max_by(|one, other| own(one).total_cmp(&own(other)))?;
    if lost < WORTH_S {
        return None;
    }
    Some(Found {
        label: "a server that does not keep up".into(),
        seconds: lost,
        evidence: format!(
            "{}: {} took {} for a turn on average, where the shortest took {}; {} waits of 0.2 s and more",
            files(&found),
            worst.server,
            time(worst.server_wait_s / worst.turns.max(1) as f64),
            time(worst.shortest_server_wait_s.unwrap_or_default()),
            worst.server_stalls
        ),
        advice: advice([
            "look at the server while it sends: disk (is the file in memory the second time?), processor, other clients",
        ]),
        expected_s: None,
    })
}

/// The machine is what all wait for.
pub(super) fn slow_machine(boot: &Boot<'_>) -> Option<Found> {
    let by_loss = stalls_by_loss(boot);
    let own_s = |one: &Transfer| {
        // The finding of lost packets has these.
        let stalled = if by_loss(one) {
            one.client_stalled_s
        } else {
            0.0
        };
        one.client_wait_s - way_s(one) - stalled
    };
    let found: Vec<&Transfer> = boot
        .network
        .transfers
        .iter()
        .filter(|one| one.bytes >= LARGE_BYTES && own_s(one) >= 0.5 * one.seconds())
        .collect();
    let waits: f64 = found.iter().map(|one| own_s(one)).sum();
    let lost: f64 = found
        .iter()
        .map(|one| own_s(one) * (1.0 - by_block(one)))
        .sum();
    let worst = found
        .iter()
        .max_by(|one, other| own_s(one).total_cmp(&own_s(other)))?;
    if lost < 1.0 {
        return None;
    }
    Some(Found {
        label: "the machine's own network stack".into(),
        seconds: lost,
        evidence: format!(
            "{}: the server had sent, and the machine answered {} later, {} in all; {} Mbit/s",
            files(&found),
            time(own_s(worst) / worst.turns.max(1) as f64),
            time(waits),
            mbits(worst)
        ),
        advice: advice([
            "no server can help: the program that fetches, or the firmware's driver below it, takes that long",
            "let wireboot fetch: it drives the card itself (docs/deploy.md)",
        ]),
        expected_s: None,
    })
}

fn mbits(one: &Transfer) -> String {
    let seconds = one.seconds().max(1e-6);
    format!("{:.0}", one.bytes as f64 * 8.0 / seconds / 1e6)
}
