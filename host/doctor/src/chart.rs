//! Drawings for the page: seconds that add up, and rates over sizes.

use std::fmt::Write;

use wireboot_report::Report;
use wireboot_report::throughput::{Direction, Throughput, Transport};

use crate::escaped::escaped;

const WIDTH: f64 = 900.0;
/// Parts of a bar, and lines of a drawing, at most.
const MOST: usize = 12;
/// Points of a line at most: the page of a stranger's report stays small.
const POINTS: usize = 64;
/// What takes less is not drawn.
const LEAST_S: f64 = 0.05;

/// The boot's seconds as one bar: what findings say that they cost, and the rest.
pub(crate) fn seconds(out: &mut String, report: &Report) {
    let parts: Vec<(&str, f64)> = report
        .findings
        .iter()
        .filter(|one| one.seconds >= LEAST_S)
        .map(|one| (one.label.as_str(), one.seconds))
        .take(MOST)
        .collect();
    if !parts.is_empty() {
        stacked(out, report.boot_s().unwrap_or_default(), &parts);
    }
}

/// A bar of `all_s` seconds, or of more where the parts make more.
fn stacked(out: &mut String, all_s: f64, parts: &[(&str, f64)]) {
    /// A letter's width, nearly.
    const LETTER: f64 = 6.0;
    let sum: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    let all = all_s.max(sum).max(1e-6);
    let rest = [("the rest", all - sum)];
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} 36\" role=\"img\" aria-label=\"seconds\">"
    );
    let mut from = 0.0;
    for (place, (label, seconds)) in parts.iter().chain(&rest).enumerate() {
        let (x, width) = (from / all * WIDTH, seconds / all * WIDTH);
        from += seconds;
        let (class, opacity) = match (place == parts.len(), place % 2) {
            (true, _) => ("quiet", 1.0),
            (false, 0) => ("wait", 1.0),
            (false, _) => ("wait", 0.6),
        };
        let text = escaped(&format!("{label} {seconds:.1} s"));
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" fill-opacity=\"{opacity}\" x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"18\"><title>{text}</title></rect>"
        );
        if text.len() as f64 * LETTER < width {
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"31\">{text}</text>");
        }
    }
    out.push_str("</svg>\n");
}

/// One way to move messages, and a figure for each size of them.
struct Line {
    name: String,
    points: Vec<(u32, f64)>,
}

/// Rate and cost over the size of messages, where several sizes were measured.
pub(crate) fn messages(out: &mut String, tests: &[Throughput]) {
    let rate = |one: &Throughput| Some(one.bits_per_second() / 1e6);
    lines(out, "Mbit/s over bytes of a message", &ways(tests, rate));
    let cost = Throughput::cycles_per_byte;
    lines(
        out,
        "cycles a byte over bytes of a message",
        &ways(tests, cost),
    );
}

/// The ways that were measured with more than one size.
fn ways(tests: &[Throughput], figure: impl Fn(&Throughput) -> Option<f64>) -> Vec<Line> {
    let mut ways: Vec<Line> = Vec::new();
    let messages = |one: &&Throughput| one.check == "ttcp" && one.mss_bytes.is_none();
    for one in tests.iter().filter(messages) {
        let transport = match one.transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
            Transport::Other => continue,
        };
        let direction = match one.direction {
            Direction::Send => "sending",
            Direction::Receive => "receiving",
            Direction::Both | Direction::Other => continue,
        };
        let Some(figure) = figure(one).filter(|figure| figure.is_finite()) else {
            continue;
        };
        let name = format!("{transport} {direction}, {}", one.driver);
        let point = (one.message_bytes, figure);
        let has_room = ways.len() < MOST;
        match ways.iter_mut().find(|way| way.name == name) {
            Some(way) if way.points.len() < POINTS => way.points.push(point),
            Some(_) => {}
            None if has_room => ways.push(Line {
                name,
                points: vec![point],
            }),
            None => {}
        }
    }
    ways.retain(|way| way.points.len() > 1);
    for way in &mut ways {
        way.points.sort_by_key(|(bytes, _)| *bytes);
    }
    ways
}

/// A line for each way; sizes go by their logarithm.
fn lines(out: &mut String, title: &str, lines: &[Line]) {
    const HEIGHT: f64 = 220.0;
    const LEFT: f64 = 60.0;
    const RIGHT: f64 = 660.0;
    const TOP: f64 = 24.0;
    const BOTTOM: f64 = 196.0;
    const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];
    let points = || lines.iter().flat_map(|line| &line.points);
    let mut sizes: Vec<u32> = points().map(|(bytes, _)| *bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (Some(least), Some(most)) = (sizes.first(), sizes.last()) else {
        return;
    };
    let top = points().map(|(_, figure)| *figure).fold(1e-9, f64::max);
    let log = |bytes: u32| f64::from(bytes.max(1)).ln();
    let span = (log(*most) - log(*least)).max(1e-9);
    let x = |bytes: u32| LEFT + (log(bytes) - log(*least)) / span * (RIGHT - LEFT);
    let y = |figure: f64| BOTTOM - figure / top * (BOTTOM - TOP);
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\"><text x=\"{LEFT}\" y=\"12\">{0}</text>",
        escaped(title)
    );
    for figure in [0.0, top / 2.0, top] {
        let at = y(figure);
        let digits = usize::from(top < 100.0) * 2;
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{figure:.digits$}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for bytes in sizes.iter().take(MOST) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{bytes}</text>",
            x(*bytes),
            BOTTOM + 16.0
        );
    }
    for (line, place) in lines.iter().zip(0_u16..) {
        let points = line.points.iter();
        let points: Vec<_> = points
            .map(|(bytes, figure)| format!("{:.1},{:.1}", x(*bytes), y(*figure)))
            .collect();
        let dash = DASHES
            .get(usize::from(place) % DASHES.len())
            .copied()
            .unwrap_or_default();
        let class = if place < 4 { "line" } else { "line other" };
        let at = TOP + 16.0 * f64::from(place);
        let _ = writeln!(
            out,
            "<polyline class=\"{class}\" stroke-dasharray=\"{dash}\" points=\"{}\"/>\
             <line class=\"{class}\" stroke-dasharray=\"{dash}\" x1=\"{}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            points.join(" "),
            RIGHT + 16.0,
            RIGHT + 46.0,
            RIGHT + 52.0,
            at + 4.0,
            escaped(&line.name)
        );
    }
    out.push_str("</svg>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::throughput::Stream;

    #[test]
    fn parts_and_the_rest_fill_the_bar() {
        let mut page = String::new();
        stacked(&mut page, 60.0, &[("spanning tree", 30.0), ("<b>", 15.0)]);
        for part in [
            r#"<rect class="wait" fill-opacity="1" x="0.0" y="0" width="450.0" height="18"><title>spanning tree 30.0 s</title>"#,
            r#"x="450.0" y="0" width="225.0""#,
            r#"<rect class="quiet" fill-opacity="1" x="675.0" y="0" width="225.0""#,
            "&lt;b&gt; 15.0 s",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        // What is foretold of several findings may be more than there was.
        let mut page = String::new();
        stacked(&mut page, 10.0, &[("a", 30.0), ("b", 10.0)]);
        assert!(page.contains(r#"x="675.0" y="0" width="225.0""#), "{page}");
        assert!(page.contains(r#"x="900.0" y="0" width="0.0""#), "{page}");
    }

    fn test(direction: Direction, message_bytes: u32, mbit_s: u64) -> Throughput {
        Throughput {
            check: "ttcp".into(),
            driver: "SNP".into(),
            direction,
            message_bytes,
            took_s: 1.0,
            streams: vec![Stream {
                sends: direction == Direction::Send,
                sent_bytes: mbit_s * 125_000,
                received_bytes: mbit_s * 125_000,
                ..Stream::default()
            }],
            ..Throughput::default()
        }
    }

    #[test]
    fn a_way_with_several_sizes_is_a_line() {
        let tests = [
            test(Direction::Send, 512, 400),
            test(Direction::Send, 128, 100),
            test(Direction::Send, 256, 200),
            test(Direction::Receive, 512, 300),
            Throughput {
                check: "iperf3".into(),
                ..test(Direction::Send, 1024, 999)
            },
        ];
        let mut page = String::new();
        messages(&mut page, &tests);
        // From the left to the right and to the top; 256 is half way.
        let line = r#"points="60.0,153.0 360.0,110.0 660.0,24.0""#;
        assert!(page.contains(line), "{page}");
        assert!(page.contains(">TCP sending, SNP</text>"));
        assert!(!page.contains("receiving"), "one size is no line");
        assert!(!page.contains("cycles"), "nothing was counted");
        assert!(page.contains(">400</text>") && page.contains(">128</text>"));
        let mut nothing = String::new();
        messages(&mut nothing, &tests[3..]);
        assert_eq!(nothing, "");
    }
}
