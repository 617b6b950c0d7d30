//! How memory is cached and how fast it is, in words and figures, for the terminal and the page.

use wireboot_report::Memory;
use wireboot_report::memory::Receive;

/// The heads of [`types`]' columns.
pub(crate) const TYPES: [&str; 6] = ["memory", "type", "pages", "MTRRs", "GCD", "for the card"];
/// The heads of [`rates`]' columns.
pub(crate) const RATES: [&str; 3] = ["", "MB/s", "cycles/byte"];
/// The heads of [`ways`]' columns.
pub(crate) const WAYS: [&str; 5] = [
    "a frame of 1514 bytes",
    "type",
    "cycles",
    "per byte",
    "more",
];

const FRAME: f64 = 1514.0;

/// What kind of memory each region is.
pub(crate) fn types(memory: &Memory) -> impl Iterator<Item = [String; 6]> {
    memory.regions.iter().map(|one| {
        let told = |text: &Option<String>| text.clone().unwrap_or_else(nothing);
        let place = match one.mapped_elsewhere {
            Some(true) => "elsewhere".to_owned(),
            Some(false) => "there".to_owned(),
            None => nothing(),
        };
        [
            one.what.clone(),
            told(&one.memory_type),
            told(&one.page_type),
            told(&one.range_type),
            told(&one.gcd),
            place,
        ]
    })
}

/// How fast each region is, of those that were measured.
pub(crate) fn rates(memory: &Memory) -> impl Iterator<Item = [String; 3]> {
    memory.regions.iter().flat_map(|one| {
        one.rates.iter().map(|rate| {
            [
                format!("{}, {}", one.what, rate.what),
                format!("{:.0}", rate.mb_per_s),
                format!("{:.2}", rate.cycles_per_byte),
            ]
        })
    })
}

/// What a frame costs in each way.
pub(crate) fn ways(memory: &Memory) -> impl Iterator<Item = [String; 5]> {
    let of = |one: &Receive| {
        let extra = memory.extra(one);
        [
            one.what.clone(),
            one.memory_type.clone().unwrap_or_else(nothing),
            format!("{:.0}", one.cycles_per_packet),
            format!("{:.2}", one.cycles_per_packet / FRAME),
            extra.map_or_else(nothing, percent),
        ]
    };
    memory.receive.iter().map(of)
}

/// What holds for all of it.
pub(crate) fn sentences(memory: &Memory) -> Vec<String> {
    let lines = memory.regions.iter().filter_map(|one| {
        let time = one.flush_line_ns?;
        Some(format!(
            "A line flushed (CLFLUSH), {}: {time:.1} ns",
            one.what
        ))
    });
    let all = memory.write_back_all_us;
    let all = all.map(|time| format!("All caches written back (WBINVD): {time:.1} us"));
    let virtual_machine = memory.virtual_machine.then(|| {
        "A virtual machine: emulation ignores memory types and has no cache to flush, and other hypervisors may have types of their own. So these rates do not show what types cost.".to_owned()
    });
    lines.chain(all).chain(virtual_machine).collect()
}

/// A whole number, so that there is no less than nothing that is none.
fn percent(part: f64) -> String {
    format!("{} %", (part * 100.0).round() as i64)
}

fn nothing() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_page_says, assert_terminal_says, beside_nothing};
    use wireboot_report::Report;
    use wireboot_report::memory::{AS_FOUND, CARDS, Rate, Region};

    fn report() -> Report {
        let rate = |what: &str, mb_per_s, cycles_per_byte| Rate {
            what: what.to_owned(),
            mb_per_s,
            cycles_per_byte,
        };
        let way = |what: &str, kind: &str, cycles_per_packet| Receive {
            what: what.to_owned(),
            memory_type: Some(kind.to_owned()),
            packets: 1024,
            cycles_per_packet,
        };
        let mut report = Report::new();
        report.memory = Some(Memory {
            virtual_machine: true,
            regions: vec![
                Region {
                    what: CARDS.to_owned(),
                    memory_type: Some("WB".to_owned()),
                    page_type: Some("WB".to_owned()),
                    range_type: Some("WB".to_owned()),
                    gcd: Some("UC WC WT WB".to_owned()),
                    mapped_elsewhere: Some(true),
                    rates: vec![
                        rate("read", 12_345.6, 0.213),
                        rate("write", 9_876.5, 0.266),
                        rate("copy", 5_432.1, 0.484),
                    ],
                    flush_line_ns: Some(13.47),
                    ..Region::default()
                },
                Region {
                    what: "<b>".to_owned(),
                    memory_type: Some("UC".to_owned()),
                    ..Region::default()
                },
            ],
            write_back_all_us: Some(1234.56),
            receive: vec![
                way(AS_FOUND, "WB", 302.8),
                way("uncached", "UC", 757.0),
                way("write-combined", "WC", 302.0),
            ],
        });
        report
    }

    #[test]
    fn the_terminal_has_80_columns_and_all_figures() {
        let said = [
            "card's buffers WB WB WB UC WC WT WB elsewhere",
            "<b> UC - - - -",
            "card's buffers, read 12346 0.21 card's buffers, write 9876 0.27 card's buffers, copy 5432 0.48",
            "(CLFLUSH), card's buffers: 13.5 ns",
            "as they are WB 303 0.20 0 %",
            "uncached UC 757 0.50 150 %",
            "write-combined WC 302 0.20 0 %",
            "(WBINVD): 1234.6 us",
            "A virtual machine: emulation ignores memory types and",
        ];
        assert_terminal_says(&report(), &said);
    }

    #[test]
    fn the_page_has_them_without_a_strangers_elements() {
        assert_page_says(
            &report(),
            &["Memory", "&lt;b&gt;", "12346", "150 %", "WBINVD"],
        );
    }

    #[test]
    fn two_reports_have_their_frames_beside_each_other() {
        assert_eq!(
            beside_nothing(&report(), "a frame, uncached, cycles"),
            ["757", "-"]
        );
    }
}
