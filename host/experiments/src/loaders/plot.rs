//! The figures as a picture.

use std::path::Path;

use anyhow::Result;

use super::report::LoadersReport;
use crate::bench::plot::{Line, logarithmic};
use wireboot_lab::statistics::digits;

/// Draws, for each loader in warm memory, how many times as fast it is over each network as over the first, stock firmware.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn draw(report: &LoadersReport, file: &Path) -> Result<()> {
    let first = report.networks.first();
    let rows = report.rows.iter().filter(|row| row.warm);
    let lines: Vec<Line> = rows
        .flat_map(|row| {
            let stock = first.and_then(|first| row.figures.get(first.id));
            report.networks.iter().filter_map(move |network| {
                let figure = row.figures.get(network.id)?;
                let times = row.unit.times(figure.median, stock?.median);
                let (median, unit) = (digits(figure.median, 3), row.unit.name());
                Some(Line {
                    name: format!("{}, {}: {median} {unit}", row.id, network.name),
                    value: times,
                    figure: digits(times, 2),
                    is_ours: network.is_ours,
                })
            })
        })
        .collect();
    let name = first.map_or("", |first| first.name.as_str());
    let title = format!("Boot loaders, {name} = 1 ({})", report.host.accelerator());
    logarithmic(&lines, (0.1, 10.0), &title, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loaders::report::tests::report;

    #[test]
    fn picture_names_each_loader_and_its_ratio() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("plot.svg");
        draw(&report(), &file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        for part in [
            "grub, OURS: 500 Mbit/s",
            "50\n",
            "shim, NEW: 1500 ms",
            "2.0\n",
            "OLD = 1",
        ] {
            assert!(svg.contains(part), "{part} in\n{svg}");
        }
    }
}
