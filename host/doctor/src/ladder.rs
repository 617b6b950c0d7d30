//! What came through at each height, in words and figures, for the terminal and the page.

use wireboot_report::ladder::{Ladder, Rung};

/// The heads of [`rows`]' columns.
pub(crate) const HEADS: [&str; 7] = [
    "received by",
    "frames",
    "Mbit/s",
    "kpkt/s",
    "share",
    "lost, %",
    "busy, %",
];

/// A row for each rung.
pub(crate) fn rows(ladder: &Ladder) -> impl Iterator<Item = [String; 7]> {
    ladder.rungs.iter().map(|rung| {
        let share = ladder.share(rung);
        let share = share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}"));
        [
            name(rung),
            size(rung).to_owned(),
            format!("{:.0}", rung.mbit_s),
            format!("{:.1}", rung.packets_per_s / 1e3),
            share,
            format!("{:.1}", rung.lost_percent),
            format!("{:.0}", rung.busy_percent),
        ]
    })
}

/// What a rung is, for a comparison of reports.
pub(crate) fn label(rung: &Rung) -> String {
    format!("{}, {} frames, Mbit/s", rung.what, size(rung))
}

/// Whose frames they are.
pub(crate) fn sentence(ladder: &Ladder) -> String {
    format!(
        "Frames from {}, as fast as they are taken. driver is wireboot's own, SNP and UNDI are the firmware's; MNP is its packet service above that.",
        ladder.sender
    )
}

fn name(rung: &Rung) -> String {
    match rung.receivers {
        None | Some(0) => rung.what.clone(),
        Some(others) => format!("{}, {others} receivers besides", rung.what),
    }
}

fn size(rung: &Rung) -> &'static str {
    if rung.full { "full" } else { "smallest" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_page_says, assert_terminal_says, beside_nothing};
    use wireboot_report::Report;
    use wireboot_report::ladder::{DRIVER, MNP, SNP};

    fn report() -> Report {
        let rung = |what: &str, full, mbit_s, packets_per_s| Rung {
            what: what.to_owned(),
            full,
            packets: 1000,
            mbit_s,
            packets_per_s,
            lost_percent: 1.25,
            busy_percent: 66.6,
            receivers: (what == MNP).then_some(9),
        };
        let mut report = Report::new();
        report.ladder = Some(Ladder {
            sender: "10.77.0.1".to_owned(),
            rungs: vec![
                rung(DRIVER, true, 4000.4, 339_700.0),
                rung(SNP, true, 1000.1, 84_925.0),
                rung(MNP, false, 7.3, 50_500.0),
                rung("<b>", false, 0.0, 0.0),
            ],
        });
        report
    }

    #[test]
    fn the_terminal_has_80_columns_and_all_figures() {
        let said = [
            "driver full 4000 339.7 1.00 1.2 67",
            "SNP full 1000 84.9 0.25 1.2 67",
            "MNP, 9 receivers besides smallest 7 50.5 1.00",
            "<b> smallest 0 0.0 0.00",
            "Frames from 10.77.0.1, as fast",
        ];
        assert_terminal_says(&report(), &said);
    }

    #[test]
    fn the_page_has_them_without_a_strangers_elements() {
        assert_page_says(
            &report(),
            &["ladder", "&lt;b&gt;", "4000", "339.7", "10.77.0.1"],
        );
    }

    #[test]
    fn two_reports_have_their_rungs_beside_each_other() {
        assert_eq!(
            beside_nothing(&report(), "SNP, full frames, Mbit/s"),
            ["1000", "-"]
        );
    }
}
