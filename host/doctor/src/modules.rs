//! The firmware's modules, as rows.

use wireboot_report::Report;

/// The heads of [`row`]'s columns.
pub(crate) const HEADS: [&str; 6] = [
    "the firmware's module, seconds",
    "load",
    "entry",
    "supported",
    "start",
    "all",
];

/// A row for each.
pub(crate) fn rows(report: &Report) -> impl Iterator<Item = [String; 6]> {
    let modules = report.checkpoints.iter().flat_map(|points| &points.modules);
    modules.map(|one| {
        let seconds = |seconds: f64| format!("{seconds:.3}");
        [
            one.name.clone(),
            seconds(one.load_s),
            seconds(one.start_s),
            seconds(one.supported_s),
            seconds(one.bind_s),
            seconds(one.total_s()),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::{Checkpoints, Module};

    #[test]
    fn a_module_is_shown_with_all_of_its_times() {
        let report = Report {
            checkpoints: Some(Checkpoints {
                modules: vec![Module {
                    name: "MnpDxe".into(),
                    load_s: 0.05,
                    supported_s: 0.003,
                    bind_s: 0.5,
                    ..Module::default()
                }],
                ..Checkpoints::default()
            }),
            ..Report::new()
        };
        let row = rows(&report).next().unwrap();
        assert_eq!(row, ["MnpDxe", "0.050", "0.000", "0.003", "0.500", "0.553"]);
        let shown = crate::text::shown(&report);
        assert!(shown.contains("0.553"), "{shown}");
        assert!(crate::html::page(&report).contains("0.553"));
    }
}
