//! The ladder as a picture.

use std::path::Path;

use anyhow::{Result, anyhow};

use super::figures::{Kind, Ladder, Rung};
use wireboot_lab::chart::{Bar, Chart, HPos, LINE, OTHERS, OURS};

const WIDTH: i32 = 900;
/// Where the bars begin, and the room to their right for the figures.
const LEFT: i32 = 260;
const RIGHT: i32 = 140;
const TOP: i32 = 50;
const BOTTOM: i32 = 20;

/// Draws each rung's Mbit/s as a bar on a logarithmic scale, with its share of the top one.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn draw(ladder: &Ladder, title: &str, file: &Path) -> Result<()> {
    chart(ladder, title, file).map_err(|error| anyhow!("drawing {}: {error}", file.display()))
}

fn chart(ladder: &Ladder, title: &str, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let kinds: Vec<(Kind, Vec<&Rung>)> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let measured = ladder.of(kind).filter(|rung| rung.mbit_s > 0.0);
            (kind, measured.collect())
        })
        .filter(|(_, rungs): &(_, Vec<_>)| !rungs.is_empty())
        .collect();
    let lines: usize = kinds.iter().map(|(_, rungs)| rungs.len() + 2).sum();
    let bottom = TOP + LINE * i32::try_from(lines)?;
    let height = bottom + BOTTOM;
    let chart = Chart::new(file, (WIDTH, height))?;
    chart.text(title, (20, 24), 18, HPos::Left)?;
    let all = kinds.iter().flat_map(|(_, rungs)| rungs);
    let (slowest, fastest) = all.fold((f64::MAX, 1.0_f64), |(low, high), rung| {
        (low.min(rung.mbit_s), high.max(rung.mbit_s))
    });
    // From the whole decade below the slowest.
    let first = slowest.log10().floor();
    let span = f64::from(WIDTH - LEFT - RIGHT);
    let place = |mbit_s: f64| {
        let part = (mbit_s.log10() - first) / (fastest.log10() - first).max(0.1);
        LEFT + (part * span) as i32
    };
    // The decades, as the scale is logarithmic.
    for decade in first as i32..=fastest.log10().floor() as i32 {
        let mbit_s = 10f64.powi(decade);
        let x = place(mbit_s);
        chart.grid(x, TOP, bottom)?;
        let label = mbit_s.to_string();
        chart.text(&label, (x, bottom + BOTTOM / 2), 13, HPos::Center)?;
    }
    let mut top = TOP;
    for (kind, rungs) in &kinds {
        let heading = format!("{}, Mbit/s", kind.title());
        chart.text(&heading, (20, top + LINE / 2), 15, HPos::Left)?;
        top += LINE;
        for rung in rungs {
            let ours = rung.name.starts_with("wireboot") || rung.name.starts_with("driver");
            let bar = Bar {
                name: &rung.name,
                figure: &format!("{:.0} ({:.0} %)", rung.mbit_s, rung.share * 100.0),
                color: if ours { OURS } else { OTHERS },
            };
            chart.bar(&bar, (LEFT, top), (LEFT, place(rung.mbit_s)))?;
            top += LINE;
        }
        top += LINE;
    }
    chart.finish()
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::JSON;
    use super::*;

    #[test]
    fn picture_names_each_rung_and_its_share() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("plot.svg");
        draw(&Ladder::read(JSON, 3).unwrap(), "a title", &file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(
            svg.contains("<svg") && svg.contains("SNP") && svg.contains("883 (25 %)"),
            "{svg}"
        );
        // The axis.
        assert!(svg.contains("\n100\n") || svg.contains(">100<"), "{svg}");
    }
}
