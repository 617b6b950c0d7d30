//! The figures as a picture.

use std::error::Error;
use std::path::Path;

use anyhow::{Result, anyhow};

use super::report::{BenchReport, BenchRow, short_version};
use wireboot_lab::chart::{Bar, Chart, HPos, LINE, OTHERS, OURS};

const WIDTH: i32 = 1000;
/// Where the bars begin, and the room to their right for the figure.
const LEFT: i32 = 380;
const RIGHT: i32 = 70;
const TOP: i32 = 60;
const BOTTOM: i32 = 40;

/// Draws Mbit/s by stack, the fastest first, on a logarithmic scale: the warm transfers of the largest file that all took part in.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn draw(report: &BenchReport, file: &Path) -> Result<()> {
    let Some(bytes) = report
        .rows
        .iter()
        .filter(|row| row.warm)
        .map(|row| row.bytes)
        .min()
    else {
        return Err(anyhow!(
            "there is nothing to draw: no warm transfer was measured"
        ));
    };
    let mut rows: Vec<&BenchRow> = report
        .rows
        .iter()
        .filter(|row| row.warm && row.bytes == bytes)
        .collect();
    rows.sort_by(|one, other| other.mbit_s.total_cmp(&one.mbit_s));
    let lines: Vec<Line> = rows
        .iter()
        .map(|row| Line {
            name: format!(
                "{} {}, {} from {}",
                row.stack,
                short_version(&row.version),
                row.protocol.to_uppercase(),
                row.server
            ),
            value: row.mbit_s,
            figure: format!("{:.0}", row.mbit_s),
            is_ours: row.is_ours(),
        })
        .collect();
    let title = format!(
        "{} MiB over the network, Mbit/s ({}, warm memory)",
        bytes >> 20,
        report.host.accelerator()
    );
    logarithmic(&lines, (10.0, 100.0), &title, file)
}

/// A bar with its name.
pub(crate) struct Line {
    /// What it stands for.
    pub name: String,
    /// How long it is.
    pub value: f64,
    /// What stands behind it.
    pub figure: String,
    /// Whether it is wireboot's.
    pub is_ours: bool,
}

/// Draws lines on a logarithmic scale that has `least` in it, and whole decades.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn logarithmic(
    lines: &[Line],
    least: (f64, f64),
    title: &str,
    file: &Path,
) -> Result<()> {
    chart(lines, least, title, file).map_err(|error| anyhow!("drawing {}: {error}", file.display()))
}

fn chart(
    lines: &[Line],
    (low, high): (f64, f64),
    title: &str,
    file: &Path,
) -> Result<(), Box<dyn Error>> {
    let height = TOP + BOTTOM + LINE * i32::try_from(lines.len())?;
    let chart = Chart::new(file, (WIDTH, height))?;
    chart.text(title, (20, 24), 20, HPos::Left)?;

    let values = || lines.iter().map(|line| line.value);
    let first = values().fold(low, f64::min).log10().floor() as i32;
    let last = values().fold(high, f64::max).log10().ceil() as i32;
    let span = f64::from(WIDTH - LEFT - RIGHT);
    let place = |value: f64| {
        LEFT + ((value.log10() - f64::from(first)) / f64::from(last - first) * span) as i32
    };
    for decade in first..=last {
        let value = 10f64.powi(decade);
        let x = place(value);
        chart.grid(x, TOP - 8, height - BOTTOM)?;
        let label = value.to_string();
        chart.text(&label, (x, height - BOTTOM + 16), 13, HPos::Center)?;
    }
    for (index, line) in lines.iter().enumerate() {
        let top = TOP + LINE * i32::try_from(index)?;
        let bar = Bar {
            name: &line.name,
            figure: &line.figure,
            color: if line.is_ours { OURS } else { OTHERS },
        };
        chart.bar(&bar, (LEFT, top), (LEFT, place(line.value)))?;
    }
    chart.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report;

    #[test]
    fn picture_names_each_stack_and_its_speed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("plot.svg");
        draw(&report(), &file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(
            svg.contains("<svg")
                && svg.contains("2684")
                && svg.contains("a stack 2.0, HTTP from nginx"),
            "{svg}"
        );
    }
}
