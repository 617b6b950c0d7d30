//! A sweep as tables for people: blocks down, windows across, the rate in between.

use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use wireboot_report::sweep::{By, Cell, Model, NOT_GRANTED, best};

/// Tables, rows and columns at most: more do not fit the terminal, and no examination has them.
const MAPS: usize = 8;
const BLOCKS: usize = 24;
const WINDOWS: usize = 9;

/// A window, as it was asked for: in the order of the columns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Window {
    Of(u32),
    Own,
    Varying,
}

impl Window {
    fn of(cell: &Cell) -> Self {
        match cell.window {
            Some(blocks) => Self::Of(blocks),
            None if cell.varying => Self::Varying,
            None => Self::Own,
        }
    }

    fn head(self) -> String {
        match self {
            Self::Of(blocks) => blocks.to_string(),
            Self::Own => "own".to_owned(),
            Self::Varying => "msftwindow".to_owned(),
        }
    }
}

/// The cells of whoever fetched over a version of IP.
pub(crate) struct Map<'r> {
    /// `TFTP by the firmware over IPv4, 952832 bytes`.
    pub(crate) title: String,
    windows: Vec<Window>,
    /// A block size, and its cell of each window.
    rows: Vec<(u32, Vec<Option<&'r Cell>>)>,
    best: Option<&'r Cell>,
    model: Option<Model>,
}

/// The tables of a sweep.
pub(crate) fn maps(cells: &[Cell]) -> Vec<Map<'_>> {
    let mut ways: Vec<(By, u8)> = Vec::new();
    for cell in cells {
        let way = (cell.by, cell.ip);
        if !ways.contains(&way) && ways.len() < MAPS {
            ways.push(way);
        }
    }
    let maps = ways.into_iter().map(|(by, ip)| {
        let own: Vec<&Cell> = wireboot_report::sweep::of(cells, by, ip).collect();
        map(&own)
    });
    maps.collect()
}

fn map<'r>(cells: &[&'r Cell]) -> Map<'r> {
    let mut blocks: Vec<u32> = cells.iter().map(|cell| cell.block_bytes).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks.truncate(BLOCKS);
    let mut windows: Vec<Window> = cells.iter().map(|cell| Window::of(cell)).collect();
    windows.sort_unstable();
    windows.dedup();
    windows.truncate(WINDOWS);
    let at = |block, window| {
        let mut own = cells.iter().copied();
        own.find(|cell| cell.block_bytes == block && Window::of(cell) == window)
    };
    let row = |block| windows.iter().map(|window| at(block, *window)).collect();
    let rows = blocks.iter().map(|block| (*block, row(*block))).collect();
    let best = best(cells.iter().copied());
    let (by, ip) = cells
        .first()
        .map_or((By::Other, 0), |cell| (cell.by, cell.ip));
    let who = match by {
        By::Firmware => "the firmware",
        By::Wireboot => "wireboot",
        By::Other => "somebody else",
    };
    let bytes = best.map_or_else(String::new, |cell| format!(", {} bytes", cell.bytes));
    Map {
        title: format!("TFTP by {who} over IPv{ip}{bytes}"),
        rows,
        windows,
        best,
        model: Model::of(cells.iter().copied()),
    }
}

/// The server granted other sizes than those that were asked for.
fn differs(cell: &Cell) -> bool {
    let granted = |granted: Option<u32>, asked: Option<u32>| matches!((granted, asked), (Some(granted), Some(asked)) if granted != asked);
    granted(cell.granted_block_bytes, Some(cell.block_bytes))
        || granted(cell.granted_window, cell.window)
}

impl Map<'_> {
    /// The heads of its columns.
    pub(crate) fn heads(&self) -> Vec<String> {
        let windows = self.windows.iter().map(|window| window.head());
        ["block".to_owned()].into_iter().chain(windows).collect()
    }

    /// Each block size and its cells, of which one may be the best, and how they are shown.
    fn shown(&self) -> impl Iterator<Item = (u32, Vec<(Option<&Cell>, String)>)> {
        self.rows.iter().map(|(block, cells)| {
            let cells = cells.iter().map(|cell| (*cell, self.text(*cell)));
            (*block, cells.collect())
        })
    }

    /// Mbit/s; `*` is the best, `~` was granted otherwise, `-` did not come.
    fn text(&self, cell: Option<&Cell>) -> String {
        let Some(cell) = cell else {
            return String::new();
        };
        if !cell.came() {
            let granted = cell.failure.as_deref() != Some(NOT_GRANTED);
            return if granted { "-" } else { NOT_GRANTED }.to_owned();
        }
        let rate = cell.bits_per_second() / 1e6;
        let digits = usize::from(rate < 100.0);
        let mark = match (self.is_best(cell), differs(cell)) {
            (true, _) => "*",
            (false, true) => "~",
            (false, false) => "",
        };
        format!("{mark}{rate:.digits$}")
    }

    fn is_best(&self, cell: &Cell) -> bool {
        self.best.is_some_and(|best| std::ptr::eq(best, cell))
    }

    /// The best cell, and what explains the others.
    pub(crate) fn words(&self) -> String {
        let Some(best) = self.best else {
            let failure = self.rows.iter().flat_map(|(_, cells)| cells);
            let failure = failure.flatten().find_map(|cell| cell.failure.as_deref());
            return format!("nothing came: {}", failure.unwrap_or("no reason is told"));
        };
        let mut out = format!(
            "best: blocks of {} in windows of {}, {:.3} s",
            best.granted_block_bytes.unwrap_or(best.block_bytes),
            best.granted_window.or(best.window).unwrap_or(1),
            best.seconds
        );
        if let Some(model) = &self.model {
            let _ = write!(
                out,
                "; {:.1} us a packet and {:.0} us a window explain the times within {:.0} %",
                model.packet_s * 1e6,
                model.round_trip_s * 1e6,
                model.error * 100.0
            );
        }
        out
    }
}

/// As text, in lines of at most 80 columns.
pub(crate) fn text(out: &mut String, cells: &[Cell], wrapped: fn(&str) -> String) {
    for (map, number) in maps(cells).iter().zip(0..) {
        if number > 0 {
            out.push('\n');
        }
        let title = format!(
            "{}: Mbit/s by bytes of a block and blocks of a window; * is the best, ~ was granted otherwise, - did not come",
            map.title
        );
        let _ = writeln!(out, "{}", wrapped(&title));
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(map.heads());
        for (block, cells) in map.shown() {
            let cells = cells.into_iter().map(|(_, text)| text);
            table.add_row([block.to_string()].into_iter().chain(cells));
        }
        for column in 0..map.heads().len() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in table.lines() {
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let _ = writeln!(out, "{}", wrapped(&map.words()));
    }
}

pub(crate) fn markdown(out: &mut String, cells: &[Cell]) {
    for map in maps(cells) {
        let heads = map.heads();
        let _ = writeln!(out, "\n{}, Mbit/s\n\n| {} |", map.title, heads.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(heads.len()));
        for (block, cells) in map.shown() {
            // An asterisk would make what is behind it slanted.
            let cells = cells.into_iter().map(|(cell, text)| {
                match cell.is_some_and(|cell| map.is_best(cell)) {
                    true => format!("**{}**", text.trim_start_matches('*')),
                    false => text,
                }
            });
            let cells: Vec<String> = cells.collect();
            let _ = writeln!(out, "| {block} | {} |", cells.join(" | "));
        }
        // A failure is a stranger's text.
        let words = map.words().replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(out, "\n{}", words.replace('\n', " ").replace('[', "\\["));
    }
}

/// As comma-separated values, a cell a line.
pub(crate) fn csv(cells: &[Cell]) -> String {
    let mut out = String::from(
        "by,ip,block_bytes,window,granted_block_bytes,granted_window,bytes,seconds,runs,retransmitted\r\n",
    );
    for cell in cells {
        let by = match cell.by {
            By::Firmware => "firmware",
            By::Wireboot => "wireboot",
            By::Other => "other",
        };
        let number = |number: Option<u64>| number.map_or_else(String::new, |it| it.to_string());
        let small = |it: Option<u32>| number(it.map(u64::from));
        let _ = write!(
            out,
            "{by},{},{},{},{},{},{},{:.6},{},{}\r\n",
            cell.ip,
            cell.block_bytes,
            match Window::of(cell) {
                Window::Own => String::new(),
                window => window.head(),
            },
            small(cell.granted_block_bytes),
            small(cell.granted_window),
            cell.bytes,
            cell.seconds,
            cell.runs,
            number(cell.retransmitted)
        );
    }
    out
}

/// As heat maps for the page.
pub(crate) fn html(out: &mut String, cells: &[Cell]) {
    use crate::escaped::escaped;
    if cells.is_empty() {
        return;
    }
    out.push_str("<h2>Blocks and windows</h2>\n");
    for map in maps(cells) {
        let _ = write!(
            out,
            "<h3>{}</h3>\n<p>Mbit/s by bytes of a block and blocks of a window. {}</p>\n<table><tr>",
            escaped(&map.title),
            escaped(&map.words())
        );
        for head in map.heads() {
            let _ = write!(out, "<th class=\"n\">{head}</th>");
        }
        out.push_str("</tr>\n");
        let most = map.best.map_or(0.0, Cell::bits_per_second).max(1e-9);
        for (block, cells) in map.shown() {
            let _ = write!(out, "<tr><td class=\"n\">{block}</td>");
            for (cell, text) in cells {
                let Some(cell) = cell else {
                    out.push_str("<td></td>");
                    continue;
                };
                let share = cell.bits_per_second() / most * 70.0;
                let _ = write!(
                    out,
                    "<td class=\"n\" style=\"background:color-mix(in srgb,var(--bar) {share:.0}%,transparent)\" title=\"{}\">{text}</td>",
                    escaped(&told(cell))
                );
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
    }
}

/// What a cell is, for who points at it.
fn told(cell: &Cell) -> String {
    if let Some(failure) = &cell.failure {
        return failure.clone();
    }
    format!(
        "{:.4} s; granted {} x {}; {} sent again",
        cell.seconds,
        cell.granted_block_bytes.unwrap_or(512),
        cell.granted_window.unwrap_or(1),
        cell.retransmitted.unwrap_or(0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shown;
    use std::hash::RandomState;
    use wireboot_report::Report;

    fn cell(by: By, block: u32, window: Option<u32>, seconds: f64) -> Cell {
        Cell {
            by,
            ip: 4,
            block_bytes: block,
            window,
            granted_block_bytes: Some(block),
            granted_window: Some(window.unwrap_or(256)),
            bytes: 1_000_000,
            seconds,
            runs: 1,
            ..Cell::default()
        }
    }

    fn swept() -> Report {
        let mut report = Report::new();
        for (block, each) in [(512, 2e-4), (1468, 3e-4)] {
            for window in [64, 1, 4] {
                let mut one = cell(By::Firmware, block, Some(window), 1.0);
                one.seconds = one.packets() as f64 * each + one.windows() as f64 * 1e-3;
                report.sweep.push(one);
            }
        }
        report.sweep.push(Cell {
            failure: Some("TIMEOUT<b>".into()),
            ..cell(By::Firmware, 8192, Some(64), 0.0)
        });
        report.sweep.push(Cell {
            granted_window: Some(1),
            ..cell(By::Wireboot, 1468, Some(64), 1.0)
        });
        report.sweep.push(cell(By::Wireboot, 1468, None, 0.01));
        report
    }

    #[test]
    fn the_terminal_has_a_table_of_each_way() {
        let text = shown(&swept());
        let line = |word: &str| {
            let lines = text.lines().map(str::split_whitespace);
            let mut lines = lines.map(|words| words.collect::<Vec<_>>());
            lines.find(|words| words.first() == Some(&word)).unwrap()
        };
        assert_eq!(line("block"), ["block", "1", "4", "64"]);
        assert_eq!(line("512")[0], "512");
        assert_eq!(line("512").len(), 4);
        assert!(line("1468")[3].starts_with('*'), "{text}");
        assert_eq!(line("8192"), ["8192", "-"]);
        assert!(text.contains("~8.0") && text.contains("*800"), "{text}");
        assert!(text.contains("own"), "{text}");
        let joined = text.replace('\n', " ");
        assert!(joined.contains("best: blocks of 1468 in windows of 64"));
        assert!(joined.contains("us a window explain"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn the_page_has_colours_and_no_strangers_elements() {
        let mut page = String::new();
        html(&mut page, &swept().sweep);
        assert!(page.contains("var(--bar) 70%"), "{page}");
        assert!(page.contains("TIMEOUT&lt;b&gt;") && !page.contains("<b>"));
        let mut none = String::new();
        html(&mut none, &[]);
        assert!(none.is_empty());
    }

    #[test]
    fn values_and_markdown_have_all_cells() {
        let report = swept();
        assert_eq!(csv(&report.sweep).lines().count(), 1 + report.sweep.len());
        assert!(csv(&report.sweep).contains("wireboot,4,1468,,1468,256,1000000,0.010000,1,\r\n"));
        let mut out = String::new();
        markdown(&mut out, &report.sweep);
        assert!(out.contains("| block | 1 | 4 | 64 |"), "{out}");
        assert!(out.contains("**800**"), "{out}");
    }

    #[test]
    fn windows_that_vary_have_the_last_column() {
        let varying = |block, seconds| Cell {
            varying: true,
            granted_window: Some(64),
            ..cell(By::Wireboot, block, None, seconds)
        };
        let windows = [1, 4, 8, 16, 32, 50, 64].map(Some);
        let windows = windows.into_iter().chain([None]);
        let mut report = Report::new();
        report.sweep = windows
            .map(|window| cell(By::Wireboot, 1468, window, 0.001))
            .collect();
        report.sweep.push(varying(1468, 0.01));
        report.sweep.push(Cell {
            failure: Some(NOT_GRANTED.into()),
            ..varying(512, 0.0)
        });
        for report in [crate::anonymous::made(&report, &RandomState::new()), report] {
            let text = shown(&report);
            let ends = |line: &str, end| {
                text.lines()
                    .any(|one| one.trim_start().starts_with(line) && one.ends_with(end))
            };
            assert!(ends("block", " msftwindow"), "{text}");
            assert!(
                ends("1468", " 800") && ends("512", " not granted"),
                "{text}"
            );
            assert!(
                text.lines().all(|line| line.chars().count() <= 80),
                "{text}"
            );
            assert!(csv(&report.sweep).contains("wireboot,4,1468,msftwindow,1468,64,"));
        }
    }

    #[test]
    fn where_nothing_came_the_reason_is_told() {
        let failed = Cell {
            failure: Some("no answer".into()),
            ..cell(By::Firmware, 512, Some(1), 0.0)
        };
        let cells = [failed];
        assert_eq!(maps(&cells)[0].words(), "nothing came: no answer");
    }
}
