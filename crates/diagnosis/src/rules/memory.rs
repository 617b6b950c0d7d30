//! How the machine caches memory that the card writes.

use alloc::format;

use wireboot_report::Report;
use wireboot_report::memory::{CARDS, Memory, ORDINARY, Region, WRITE_BACK};

use super::{Found, advice};

/// Where packets come to: the card's buffers first, then the file's place.
fn regions(memory: &Memory) -> impl Iterator<Item = &Region> {
    [CARDS, ORDINARY]
        .into_iter()
        .filter_map(|what| memory.region(what))
}

/// Packets lie in memory whose reads or writes are not cached.
pub(super) fn uncached(report: &Report) -> Option<Found> {
    let (region, known) = regions(report.memory.as_ref()?).find_map(|region| {
        let known = region.memory_type.as_deref()?;
        let is_slow = known != WRITE_BACK && known != "unknown";
        is_slow.then_some((region, known))
    })?;
    let page = region.page_type.as_deref().unwrap_or("unknown");
    let range = region.range_type.as_deref().unwrap_or("unknown");
    Some(Found {
        label: "memory that is not cached".into(),
        seconds: 0.0,
        evidence: format!(
            "{}: {known} instead of {WRITE_BACK} (page tables {page}, MTRRs {range})",
            region.what
        ),
        advice: advice([
            "the firmware sets these types: a newer version of it, or its default settings",
            "memory modules whose sizes make an odd sum may leave it too few MTRRs: try with fewer, or with equal ones",
        ]),
        expected_s: None,
    })
}

/// The card has another address for packets' memory than the processor.
pub(super) fn bounced(report: &Report) -> Option<Found> {
    let region =
        regions(report.memory.as_ref()?).find(|region| region.mapped_elsewhere == Some(true))?;
    Some(Found {
        label: "a detour of the card's memory".into(),
        seconds: 0.0,
        evidence: format!(
            "{}: the card's address for them is not the processor's. The firmware copies each packet (bounce buffer), or an IOMMU stands between",
            region.what
        ),
        advice: advice([
            "the firmware's setup may have a protection of DMA before the system starts (VT-d, IOMMU): without it, boots are faster and less protected",
            "virtual machines with encrypted memory (SEV, TDX) cannot do without",
        ]),
        expected_s: None,
    })
}
