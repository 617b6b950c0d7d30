//! The timeline as a picture.

use std::path::Path;

use anyhow::{Result, anyhow};

use super::{BootStep, Mark, Timeline};
use crate::chart::{Bar, Chart, HPos, LINE, OTHERS, OURS, RGBColor};

const WIDTH: i32 = 1000;
/// Where the bars begin, and the room to their right for the figure.
const LEFT: i32 = 330;
const RIGHT: i32 = 150;
const TOP: i32 = 80;
const BOTTOM: i32 = 40;

/// Draws each step as a bar from its begin to its end, on one axis of seconds since power-on. Colours tell whose time it is.
///
/// # Errors
/// When the file cannot be written.
pub fn draw(timeline: &Timeline, file: &Path) -> Result<()> {
    chart(timeline, file).map_err(|error| anyhow!("drawing {}: {error}", file.display()))
}

/// Whose time a step is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Firmware,
    Wireboot,
    System,
}

impl Owner {
    const ALL: [Self; 3] = [Self::Firmware, Self::Wireboot, Self::System];

    fn of(step: BootStep) -> Self {
        match step {
            BootStep::PowerOn | BootStep::FirmwareReady | BootStep::Dhcp | BootStep::Nbp => {
                Self::Firmware
            }
            BootStep::WirebootReady | BootStep::WirebootAddress | BootStep::File => Self::Wireboot,
            BootStep::ExitBootServices
            | BootStep::Kernel
            | BootStep::UserSpace
            | BootStep::Reached => Self::System,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Firmware => "firmware",
            Self::Wireboot => "wireboot",
            Self::System => "operating system",
        }
    }

    fn color(self) -> RGBColor {
        match self {
            Self::Firmware => OTHERS,
            Self::Wireboot => OURS,
            Self::System => RGBColor(230, 159, 0),
        }
    }
}

/// Begin and end of each step that took time. A file begins when it was asked for, any other step when the one before it ended.
fn bars(marks: &[Mark]) -> impl Iterator<Item = (f64, &Mark)> {
    marks.windows(2).filter_map(|pair| match pair {
        [before, mark] => Some((mark.seconds.map_or(before.at, |took| mark.at - took), mark)),
        _ => None,
    })
}

fn chart(timeline: &Timeline, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let bars: Vec<(f64, &Mark)> = bars(&timeline.marks).collect();
    let height = TOP + BOTTOM + LINE * i32::try_from(bars.len())?;
    let chart = Chart::new(file, (WIDTH, height))?;
    let title = format!(
        "A network boot, seconds since power-on ({})",
        timeline.accelerator
    );
    chart.text(&title, (20, 24), 20, HPos::Left)?;
    for (index, owner) in Owner::ALL.into_iter().enumerate() {
        let left = LEFT + 150 * i32::try_from(index)?;
        chart.rectangle([(left, 44), (left + 14, 58)], owner.color())?;
        chart.text(owner.name(), (left + 20, 51), 14, HPos::Left)?;
    }

    let end = timeline.marks.last().map_or(1.0, |mark| mark.at.max(1.0));
    let span = f64::from(WIDTH - LEFT - RIGHT);
    let place = |at: f64| LEFT + (at / end * span) as i32;
    let step = [1_u32, 2, 5, 10, 20, 50, 100]
        .into_iter()
        .find(|step| end / f64::from(*step) <= 12.0)
        .unwrap_or(200);
    for at in (0..=end as u32).step_by(step as usize) {
        let x = place(f64::from(at));
        chart.grid(x, TOP - 8, height - BOTTOM)?;
        let label = at.to_string();
        chart.text(&label, (x, height - BOTTOM + 16), 13, HPos::Center)?;
    }
    for (index, (begin, mark)) in bars.iter().enumerate() {
        let top = TOP + LINE * i32::try_from(index)?;
        // What takes less than a pixel is seen all the same.
        let (from, to) = (place(*begin), place(mark.at).max(place(*begin) + 1));
        let took = format!("{:.3} s", mark.at - begin);
        let figure = match mark.mbit_s {
            Some(rate) => format!("{took}, {rate:.0} Mbit/s"),
            None => took,
        };
        let bar = Bar {
            name: &mark.title(),
            figure: &figure,
            color: Owner::of(mark.step).color(),
        };
        chart.bar(&bar, (LEFT, top), (from, to))?;
    }
    chart.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(step: BootStep, at: f64) -> Mark {
        Mark {
            step,
            at,
            what: String::new(),
            bytes: None,
            seconds: None,
            mbit_s: None,
        }
    }

    #[test]
    fn a_file_begins_when_it_was_asked_for() {
        let marks = [
            of(BootStep::WirebootAddress, 2.0),
            of(BootStep::File, 5.0).transfer("http://h/linux", 1, 0.5),
            of(BootStep::Kernel, 6.0),
        ];
        let begins: Vec<f64> = bars(&marks).map(|(begin, _)| begin).collect();
        assert_eq!(begins, [4.5, 5.0]);
    }

    #[test]
    fn the_picture_names_each_step_and_what_it_took() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("boot.svg");
        let timeline = Timeline {
            accelerator: crate::qemu::Accelerator::Tcg,
            power_on: 0.0,
            reached: true,
            marks: vec![
                of(BootStep::PowerOn, 0.0),
                of(BootStep::Dhcp, 7.5),
                of(BootStep::File, 9.0).transfer("http://h/linux", 8_000_000, 0.5),
            ],
        };
        draw(&timeline, &file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        for text in [
            "firmware has an address",
            "7.500 s",
            "http://h/linux",
            "0.500 s, 128 Mbit/s",
        ] {
            assert!(svg.contains(text), "{text} is missing: {svg}");
        }
    }
}
