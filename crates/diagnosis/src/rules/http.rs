//! Files by HTTP.

use alloc::format;
use alloc::vec::Vec;

use wireboot_report::network::{Protocol, Transfer};

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
    let http = |one: &&Transfer| one.protocol == Protocol::Http && one.bytes > 0;
    let all = || boot.network.transfers.iter().filter(http);
    let mut names: Vec<_> = all().map(|one| (&one.server, &one.file)).collect();
    names.sort_unstable();
    let mut worst: Option<Reads<'_>> = None;
    for same in names.chunk_by(|one, other| one == other) {
        let reads = all().filter(|one| same.first() == Some(&(&one.server, &one.file)));
        let reads = (same.len() >= MANY_READS).then(|| Reads::of(&reads.collect::<Vec<_>>()));
        let reads = reads.flatten().filter(|reads| reads.lost_s() >= WORTH_S);
        let better = |reads: &Reads<'_>| {
            worst
                .as_ref()
                .is_none_or(|worst| reads.lost_s() > worst.lost_s())
        };
        worst = reads.filter(better).or(worst);
    }
    let reads = worst?;
    let lost = reads.lost_s();
    Some(Found {
        label: "HTTP in small reads".into(),
        seconds: lost,
        evidence: format!(
            "{}: {} requests of {} bytes on average, each of which waits for its first byte: {} in all",
            reads.file,
            reads.number,
            reads.mean(),
            time(reads.waits_s)
        ),
        advice: advice([
            "what reads a file piece by piece over the network waits for each: fetch the whole file into memory, or read at least a megabyte at a time",
            "iPXE's `sanboot http:` reads as the system in the image does: let iPXE fetch kernel and initial RAM disk (`kernel`, `initrd`), or the image by wireboot",
        ]),
        expected_s: Some(reads.waits_s - lost),
    })
}

/// The requests for one file.
struct Reads<'a> {
    file: &'a str,
    number: usize,
    bytes: u64,
    waits_s: f64,
}

impl<'a> Reads<'a> {
    /// `None` where they are large.
    fn of(all: &[&'a Transfer]) -> Option<Self> {
        let bytes = total(all.iter().map(|one| one.bytes));
        let waits = all.iter().filter_map(|one| one.answer_delay_s());
        // Where several are under way, their waits are one.
        let first = all.iter().map(|one| one.start_s).reduce(f64::min)?;
        let last = all.iter().map(|one| one.end_s).reduce(f64::max)?;
        let reads = Self {
            file: &all.first()?.file,
            number: all.len(),
            bytes,
            waits_s: waits.sum::<f64>().min(last - first),
        };
        (reads.mean() < LARGE_BYTES).then_some(reads)
    }

    fn mean(&self) -> u64 {
        self.bytes / self.number.max(1) as u64
    }

    /// What as many reads as are needed would not wait.
    fn lost_s(&self) -> f64 {
        let needed = self.bytes.div_ceil(GOOD_READ).max(1);
        let spared = self.number as f64 - needed as f64;
        self.waits_s * (spared / self.number.max(1) as f64).max(0.0)
    }
}
