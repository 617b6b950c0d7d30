//! What tests ask of reports as people see them.

use wireboot_report::Report;

/// Asserts that a report fits a terminal of 80 columns, and says all of these there, whatever the spaces between words.
pub(crate) fn assert_terminal_says(report: &Report, said: &[&str]) {
    let shown = crate::text::shown(report);
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in said {
        assert!(flat.contains(words), "{words} in {shown}");
    }
}

/// Asserts that a report's page says all of these, and that an element that a stranger named `<b>` is none.
pub(crate) fn assert_page_says(report: &Report, said: &[&str]) {
    let page = crate::html::page(report);
    for words in said {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("<b>"));
}

/// What a comparison with an empty report has in a row.
pub(crate) fn beside_nothing(report: &Report, row: &str) -> [String; 2] {
    let rows = crate::against::rows([report, &Report::new()]);
    let found = rows.into_iter().find(|(what, _)| what == row);
    found.unwrap_or_else(|| panic!("no row {row}")).1
}
