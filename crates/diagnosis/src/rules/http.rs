//! Files that come by HTTP: in small TCP windows, or in many small pieces.

use alloc::format;
use alloc::vec::Vec;

use wireboot_report::network::{Outcome, Protocol, Transfer};

use super::files::QUICK_S;
use super::transfer::{LARGE_BYTES, WORTH_S, files, large, server_is_slow, total, turning_s};
use super::{Boot, Found, advice, time};

/// TCP windows that a round trip empties.
pub(super) fn http_window(boot: &Boot<'_>) -> Option<Found> {
    /// Without window scaling (RFC 7323) there is no larger one.
    const UNSCALED: u64 = 65535;
    let found: Vec<&Transfer> = large(boot, Protocol::Http)
        .filter(|one| one.window_bytes <= UNSCALED && !server_is_slow(one))
        .filter(|one| turning_s(one) >= 0.2 * one.seconds())
        .collect();
    let waits: f64 = found.iter().map(|one| turning_s(one)).sum();
    let worst = found.iter().max_by_key(|one| one.bytes)?;
    // With windows of 1 MiB, one wait of sixteen is left.
    let lost = waits * 15.0 / 16.0;
    if lost < WORTH_S {
        return None;
    }
    Some(Found {
        label: "HTTP in windows of 64 KiB".into(),
        seconds: lost,
        evidence: format!(
            "{}: the machine offers {} bytes at most; between its {} acknowledgements and the server's next packet {} went by",
            files(&found),
            worst.window_bytes,
            worst.turns,
            time(waits)
        ),
        advice: advice([
            "the machine's TCP does not scale windows. A server that is nearer helps; so does a program that fetches with larger ones, as wireboot does",
        ]),
        expected_s: Some(waits - lost),
    })
}

/// Fewer requests for one file are a look at its size, and its pieces by several connections.
const MANY_READS: usize = 16;
/// Of reads this large few are needed, so that their beginnings hardly count.
const GOOD_READ: u64 = 1 << 20;

/// A file that is asked for in many small pieces: each waits for its first byte.
pub(super) fn http_reads(boot: &Boot<'_>) -> Option<Found> {
    let transfers = boot.network.transfers.iter();
    let mut small: Vec<&Transfer> = transfers
        .filter(|one| one.protocol == Protocol::Http && one.outcome != Outcome::Refused)
        .filter(|one| (1..LARGE_BYTES).contains(&one.bytes))
        .collect();
    small.sort_unstable_by(|one, other| {
        let names = (&one.server, &one.file).cmp(&(&other.server, &other.file));
        names.then(one.start_s.total_cmp(&other.start_s))
    });
    let same = small.chunk_by(|one, other| one.server == other.server && one.file == other.file);
    let reads = same.filter_map(Reads::of);
    let reads = reads.filter(|reads| reads.lost_s() >= WORTH_S);
    let worst = reads.max_by(|one, other| one.lost_s().total_cmp(&other.lost_s()))?;
    let lost = worst.lost_s();
    Some(Found {
        label: "HTTP in small reads".into(),
        seconds: lost,
        evidence: format!(
            "{}: {} requests of {} bytes on average, each of which waits for its first byte: {} in all",
            worst.file,
            worst.number,
            worst.bytes / worst.number.max(1),
            time(worst.waits_s)
        ),
        advice: advice([
            "what reads a file piece by piece over the network waits for each: fetch the whole file into memory, or read at least a megabyte at a time",
            "iPXE's `sanboot http:` reads as the system in the image does: let iPXE fetch kernel and initial RAM disk (`kernel`, `initrd`), or the image by wireboot",
        ]),
        expected_s: Some(worst.waits_s - lost),
    })
}

/// The small requests for one file.
struct Reads<'a> {
    file: &'a str,
    number: u64,
    bytes: u64,
    waits_s: f64,
}

impl<'a> Reads<'a> {
    /// In the order of time. `None` where they are few, or the file is small itself and asked for again and again.
    fn of(all: &[&'a Transfer]) -> Option<Self> {
        let bytes = total(all.iter().map(|one| one.bytes));
        if all.len() < MANY_READS || bytes < GOOD_READ {
            return None;
        }
        // Where several are under way, their waits are one. Long ones are the finding of slow answers.
        let (mut waits_s, mut until_s) = (0.0, 0.0_f64);
        for one in all {
            let delay = one.answer_delay_s().filter(|delay| *delay < QUICK_S);
            let end_s = one.start_s + delay.unwrap_or_default();
            waits_s += (end_s - one.start_s.max(until_s)).max(0.0);
            until_s = until_s.max(end_s);
        }
        Some(Self {
            file: &all.first()?.file,
            number: all.len() as u64,
            bytes,
            waits_s,
        })
    }

    /// What as many reads as are needed would not wait.
    fn lost_s(&self) -> f64 {
        let needed = self.bytes.div_ceil(GOOD_READ).max(1);
        let spared = self.number.saturating_sub(needed);
        self.waits_s * spared as f64 / self.number.max(1) as f64
    }
}
