//! The findings in words, for a screen of 80 columns.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_report::{Finding, Report};

/// Columns that a line may have: one less than the smallest screen, which goes to the next line behind its last.
const COLUMNS: usize = 79;

/// The verdict, the findings by number, and the remarks.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    add(&mut lines, "", &wireboot_diagnosis::verdict(report));
    if let Some(neighbour) = report.neighbour() {
        add(&mut lines, "", &format!("At {neighbour}."));
    }
    for (finding, number) in report.findings.iter().zip(1..) {
        lines.push(String::new());
        self::finding(&mut lines, number, finding);
    }
    let mut remarks = report.remarks().peekable();
    if remarks.peek().is_some() {
        lines.push(String::new());
    }
    for remark in remarks {
        add(&mut lines, "", &remark);
    }
    lines
}

fn finding(lines: &mut Vec<String>, number: usize, finding: &Finding) {
    let mut head = format!("{number}. {}", finding.label);
    if finding.seconds > 0.0 {
        head += &format!(": {:.1} s", finding.seconds);
        if let Some(left) = finding.expected_s {
            head += &format!(", {left:.1} s when changed");
        }
    }
    add(lines, "", &head);
    add(lines, "  seen    ", &finding.evidence);
    let mut head = "  change  ";
    for line in &finding.advice {
        add(lines, head, line);
        head = "          ";
    }
    add(lines, "  more    ", &finding.doc);
}

/// A text in lines that fit. The first begins with `head`, the others with as many blanks. What a stranger's server has put into it is shown,
/// not obeyed.
fn add(lines: &mut Vec<String>, head: &str, text: &str) {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    let mut line = head.to_string();
    let mut is_begun = false;
    for word in text.split_whitespace() {
        let word: Vec<char> = word.chars().map(shown).collect();
        if is_begun && width(&line) + 1 + word.len() > COLUMNS {
            lines.push(core::mem::replace(&mut line, " ".repeat(width(head))));
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        // A word may be longer than a line.
        for c in word {
            if width(&line) >= COLUMNS {
                lines.push(core::mem::replace(&mut line, " ".repeat(width(head))));
            }
            line.push(c);
        }
        is_begun = true;
    }
    lines.push(line);
}

fn width(line: &str) -> usize {
    line.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use wireboot_report::NotMeasured;
    use wireboot_report::network::Neighbour;

    fn finding() -> Finding {
        Finding {
            id: "window".into(),
            label: "small windows".into(),
            seconds: 18.24,
            expected_s: Some(2.1),
            evidence: "word ".repeat(40),
            advice: vec!["x".repeat(200), "second".into()],
            doc: "docs/doctor.md#window".into(),
        }
    }

    #[test]
    fn findings_are_numbered_and_fit_the_screen() {
        let mut report = Report::new();
        report.findings = vec![finding(), finding()];
        report.not_measured.push(NotMeasured {
            check: "boot".into(),
            reason: "no \u{1b}[2Jcard".into(),
        });
        report.as_found = Some(false);
        report.network.neighbour = Some(Neighbour {
            switch: "leaf\u{1b}3".into(),
            port: "Eth9".into(),
            ..Neighbour::default()
        });
        let lines = lines(&report);
        for line in &lines {
            assert!(width(line) <= COLUMNS, "{line}");
            assert!(!line.contains('\u{1b}'), "{line}");
        }
        for wanted in [
            "At leaf?3, port Eth9, by LLDP.",
            "1. small windows: 18.2 s, 2.1 s when changed",
            "2. small windows: 18.2 s, 2.1 s when changed",
            "          second",
            "  more    docs/doctor.md#window",
            "not measured: boot: no ?[2Jcard",
            "The machine is not as it was found: reset it before it boots.",
        ] {
            assert!(
                lines.iter().any(|line| line == wanted),
                "{wanted} in {lines:#?}"
            );
        }
        // All of each word is there.
        let exes: usize = lines.iter().map(|line| line.matches('x').count()).sum();
        assert_eq!(exes, 2 * 200);
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("  seen    word word"))
        );
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("          word word"))
        );
    }
}
