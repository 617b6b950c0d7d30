//! What the firmware's services cost, in words and figures, for the terminal and the page.

use wireboot_report::{Cost, Report, Stolen, Timer};

/// The heads of [`row`]'s columns.
pub(crate) const HEADS: [&str; 6] = [
    "service",
    "calls",
    "fastest, us",
    "median",
    "99 %",
    "slowest",
];

/// The cells of a service, below [`HEADS`].
pub(crate) fn row(one: &Cost) -> [String; 6] {
    [
        one.service.clone(),
        one.calls.to_string(),
        micros(one.fastest_ns),
        micros(one.median_ns),
        micros(one.p99_ns),
        micros(one.slowest_ns),
    ]
}

/// Microseconds with three digits that count, where nanoseconds have as many.
pub(crate) fn micros(nanos: u64) -> String {
    let micros = nanos as f64 / 1e3;
    let digits = match nanos {
        0..1000 => 3,
        1000..10_000 => 2,
        10_000..100_000 => 1,
        _ => 0,
    };
    format!("{micros:.digits$}")
}

/// The timer and the time stolen, as far as they were measured.
pub(crate) fn sentences(report: &Report) -> Vec<String> {
    let timer = report.timer.as_ref().map(timer);
    let stolen = report.stolen.as_ref().map(stolen);
    timer.into_iter().chain(stolen).collect()
}

fn timer(timer: &Timer) -> String {
    format!(
        "The firmware's timer: {} ticks, one each {:.2} ms, the latest {:.2} ms late",
        timer.ticks,
        timer.period_us / 1e3,
        timer.latest_us / 1e3
    )
}

fn stolen(stolen: &Stolen) -> String {
    let smis = stolen.smis.map_or_else(String::new, |count| {
        format!("; {count} system management interrupts")
    });
    format!(
        "Stolen from the processor: {:.2} % of {:.2} s, in {} gaps of 10 us and more, the longest {:.0} us{smis}",
        stolen.share() * 100.0,
        stolen.looked_s,
        stolen.gaps,
        stolen.longest_us
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_terminal_says;

    fn report() -> Report {
        let cost = |service: &str, median_ns| Cost {
            service: service.to_owned(),
            calls: 1_000_000,
            fastest_ns: 37,
            median_ns,
            p99_ns: 12_345,
            slowest_ns: 2_000_000_000,
        };
        let mut report = Report::new();
        report.machine.mac = "02:00:00:00:00:01".to_owned();
        report.costs = vec![
            cost("GetTime", 1234),
            cost("<b>|", 999),
            cost("OutputString, serial", 100_499),
        ];
        report.timer = Some(Timer {
            ticks: 100,
            period_us: 10_000.0,
            latest_us: 1_250.0,
        });
        report.stolen = Some(Stolen {
            looked_s: 2.0,
            stolen_s: 0.01,
            gaps: 7,
            longest_us: 1500.4,
            smis: Some(3),
        });
        report
    }

    #[test]
    fn times_have_three_digits_that_count() {
        let shown = [0, 37, 999, 1000, 1234, 12_345, 100_499, 2_000_000_000].map(micros);
        let wanted = [
            "0.000", "0.037", "0.999", "1.00", "1.23", "12.3", "100", "2000000",
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn the_terminal_has_80_columns_and_all_figures() {
        let said = [
            "GetTime 1000000 0.037 1.23 12.3 2000000",
            "The firmware's timer: 100 ticks, one each 10.00 ms, the latest 1.25 ms late",
            "Stolen from the processor: 0.50 % of 2.00 s, in 7 gaps of 10 us and more, the longest 1500 us; 3 system management interrupts",
        ];
        assert_terminal_says(&report(), &said);
        // What was not measured is not there.
        assert!(sentences(&Report::new()).is_empty());
    }

    #[test]
    fn a_strangers_services_are_no_elements() {
        let page = crate::html::page(&report());
        assert!(page.contains("What services cost") && page.contains("&lt;b&gt;"));
        assert!(!page.contains("<b>"));
    }

    #[test]
    fn two_reports_have_their_medians_beside_each_other() {
        let rows = crate::against::rows([&report(), &Report::new()]);
        let row = rows.iter().find(|(what, _)| what == "GetTime, us");
        assert_eq!(row.unwrap().1, ["1.23", "-"]);
    }
}
