//! Where the time of a packet goes over the firmware's driver, as the machine recorded it.

use comfy_table::{CellAlignment, Table, presets};
use wireboot_lab::qemu::TICKS_PER_INSTRUCTION;

use super::figures::{Ladder, Phases, Rung, ratio};

const HEADERS: [&str; 10] = [
    "Receive",
    "empty",
    "frame",
    "send",
    "turn",
    "work",
    "waiting",
    "all",
    "frames/turn",
    "frames/sent",
];

/// The table: for each frame, nanoseconds, or instructions where the machine's time-stamp counter counts those.
#[must_use]
pub(super) fn text(ladder: &Ladder, instructions: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let unit = if instructions { "instructions" } else { "ns" };
    table.set_header(
        std::iter::once(format!("for each frame, {unit}")).chain(HEADERS.map(String::from)),
    );
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for rung in &ladder.rungs {
        if let Some(phases) = rung.sample.phases {
            let unit = if instructions {
                f64::from(TICKS_PER_INSTRUCTION).recip()
            } else {
                1e9 / ladder.hertz.max(1) as f64
            };
            table.add_row(cells(rung, &phases, unit, ladder.hertz));
        }
    }
    format!(
        "{}\n\n\
         Receive: the firmware's calls that brought a frame. empty: those that found none behind others. frame: the engine's part while it\n\
         has the frame (headers, checksum, copy, protocol). send: the firmware's calls for acknowledgements. turn: the rest of the engine's\n\
         turn. waiting: turns that brought nothing.{}\n",
        table.trim_fmt(),
        if instructions {
            " Its instructions tell nothing, as a machine that counts them is slower than its network."
        } else {
            ""
        }
    )
}

fn cells(rung: &Rung, phases: &Phases, unit: f64, hertz: u64) -> Vec<String> {
    let frames = phases.frames as f64;
    let each = |ticks: u64| format!("{:.0}", ratio(ticks as f64 * unit, frames));
    let parts = phases.receive + phases.look + phases.take + phases.transmit;
    // What was recorded leaves out readings of the clock, and what came before the first frame.
    let busy = rung.sample.busy.max(parts);
    let all = (rung.sample.micros as f64 * hertz as f64 / 1e6) as u64;
    vec![
        format!("  {}", rung.name),
        each(phases.receive),
        each(phases.look),
        each(phases.take),
        each(phases.transmit),
        each(busy - parts),
        each(busy),
        each(all.saturating_sub(busy)),
        each(all.max(busy)),
        format!("{:.1}", ratio(frames, phases.turns as f64)),
        format!("{:.1}", ratio(frames, phases.sent as f64)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 frames in 10 ms at 2 GHz: 20 000 ticks each, of which 15 000 were work.
    const JSON: &str = r#"{"version":"0.1.0","hertz":2000000000,"as_found":true,"rungs":[
        {"kind":"receive","name":"SNP","error":null,"samples":[
            {"packets":1000,"bytes":1472000,"micros":10000,"busy":15000000,"work":75,"sent":0,"lost":0,"waited":0,
             "phases":{"turns":100,"frames":1000,"sent":50,"receive":10000000,"look":200000,"take":1400000,"transmit":400000}}]},
        {"kind":"receive","name":"MNP","error":null,"samples":[
            {"packets":1000,"bytes":1472000,"micros":10000,"busy":0,"work":0,"sent":0,"lost":0,"waited":0,"phases":null}]}]}"#;

    fn row(instructions: bool) -> Vec<String> {
        let text = text(&Ladder::read(JSON, 1).unwrap(), instructions);
        assert!(!text.contains("MNP"), "{text}");
        let row = text.lines().find(|line| line.contains("  SNP")).unwrap();
        row.split_whitespace().skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn parts_of_a_frame_make_its_time() {
        let ns = [
            "5000", "100", "700", "200", "1500", "7500", "2500", "10000", "10.0", "20.0",
        ];
        assert_eq!(row(false), ns);
        let counted = [
            "625", "12", "88", "25", "188", "938", "312", "1250", "10.0", "20.0",
        ];
        assert_eq!(row(true), counted);
    }
}
