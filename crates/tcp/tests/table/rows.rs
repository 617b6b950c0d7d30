//! The table as text: `rfc9293.txt`.

use crate::cases::Case;
use std::collections::HashMap;

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) line: usize,
    pub(crate) step: String,
    pub(crate) states: Vec<String>,
    pub(crate) flags: [Option<bool>; 4],
    pub(crate) seq: Vec<String>,
    pub(crate) ack: Vec<String>,
    pub(crate) text: Vec<String>,
    pub(crate) rwnd: Vec<String>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) source: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) reply: String,
    pub(crate) state: String,
    pub(crate) text: String,
    pub(crate) una: String,
    pub(crate) nxt: String,
    pub(crate) told: String,
    pub(crate) timer: String,
}

impl Verdict {
    pub(crate) fn parse(words: &[&str]) -> Self {
        let [reply, state, text, una, nxt, told, timer] = words else {
            panic!("a verdict has seven columns: {words:?}")
        };
        let known = [
            ["none", "ack", "now", "may", "rst", "rst0", "synack"].contains(reply),
            ["-", "new", "held"].contains(text),
            ["-", "ack"].contains(una),
            ["-", "syn", "+"].contains(nxt),
            ["-", "reset", "refused"].contains(told),
            ["-", "2msl"].contains(timer),
        ];
        assert!(known.iter().all(|known| *known), "unknown word: {words:?}");
        let own = |word: &str| word.to_string();
        Self {
            reply: own(reply),
            state: own(state),
            text: own(text),
            una: own(una),
            nxt: own(nxt),
            told: own(told),
            timer: own(timer),
        }
    }

    /// The segment changes nothing.
    pub(crate) fn refuses(&self) -> bool {
        self.state == "=" && self.text == "-" && self.una == "-" && self.nxt == "-"
    }
}

/// A line of the send window's table: states, places of SEG.SEQ and SEG.ACK, and whether SND.WND is taken.
pub(crate) struct WindowRow {
    pub(crate) states: Vec<String>,
    pub(crate) seq: Vec<String>,
    pub(crate) ack: Vec<String>,
    pub(crate) taken: bool,
}

pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    pub(crate) windows: Vec<WindowRow>,
}

impl Table {
    pub(crate) fn read() -> Self {
        let mut sets: HashMap<String, Vec<String>> = HashMap::new();
        let mut table = Self {
            rows: Vec::new(),
            windows: Vec::new(),
        };
        let list = |word: &str| word.split(',').map(str::to_string).collect::<Vec<_>>();
        for (index, source) in include_str!("../rfc9293.txt").lines().enumerate() {
            let words: Vec<&str> = source.split_whitespace().collect();
            let expand = |name: String| sets.get(&name).cloned().unwrap_or_else(|| vec![name]);
            match words.as_slice() {
                [] => (),
                [first, ..] if first.starts_with('#') => (),
                ["set", name, "=", states @ ..] => {
                    sets.insert(
                        name.to_string(),
                        states.iter().map(|state| state.to_string()).collect(),
                    );
                }
                ["or", verdict @ ..] => {
                    table
                        .rows
                        .last_mut()
                        .expect("a row above")
                        .verdicts
                        .push(Verdict::parse(verdict));
                }
                ["window", _, states, seq, ack, taken @ ("taken" | "stays")] => {
                    let states = list(states).into_iter().flat_map(expand).collect();
                    table.windows.push(WindowRow {
                        states,
                        seq: list(seq),
                        ack: list(ack),
                        taken: *taken == "taken",
                    });
                }
                [
                    step,
                    states,
                    flags,
                    seq,
                    ack,
                    text,
                    rwnd,
                    "->",
                    verdict @ ..,
                ] => {
                    let mut pattern = [None; 4];
                    assert_eq!(flags.len(), 4, "line {}", index + 1);
                    for (flag, letter) in pattern.iter_mut().zip(flags.chars()) {
                        *flag = (letter != '*').then_some(letter != '-');
                    }
                    table.rows.push(Row {
                        line: index + 1,
                        step: step.to_string(),
                        states: list(states).into_iter().flat_map(expand).collect(),
                        flags: pattern,
                        seq: list(seq),
                        ack: list(ack),
                        text: list(text),
                        rwnd: list(rwnd),
                        verdicts: vec![Verdict::parse(verdict)],
                        source: source.to_string(),
                    });
                }
                _ => panic!("line {}: {source}", index + 1),
            }
        }
        table
    }

    pub(crate) fn find(&self, case: &Case) -> Option<usize> {
        let has =
            |list: &[String], word: &str| list.iter().any(|entry| entry == "*" || entry == word);
        self.rows.iter().position(|row| {
            row.states.iter().any(|state| state == case.state)
                && row
                    .flags
                    .iter()
                    .zip(case.flags)
                    .all(|(wanted, is)| wanted.is_none_or(|wanted| wanted == is))
                && has(&row.seq, case.seq)
                && (row.ack == ["*"] || case.has(1) && has(&row.ack, case.ack))
                && has(&row.text, case.text)
                && has(&row.rwnd, case.rwnd)
        })
    }

    /// Whether SND.WND is taken from the segment, for a row whose ACK field counts.
    pub(crate) fn window_taken(&self, case: &Case) -> bool {
        let has =
            |list: &[String], word: &str| list.iter().any(|entry| entry == "*" || entry == word);
        let row = self.windows.iter().find(|row| {
            has(&row.states, case.state) && has(&row.seq, case.seq) && has(&row.ack, case.ack)
        });
        row.expect("a row for the send window").taken
    }
}
