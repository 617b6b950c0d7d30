//! A table: for people and for programs.

use std::fmt::{Display, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

/// Columns of a terminal.
const WIDTH: usize = 80;

/// One figure or word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// Nothing is known: `-` for people, null for programs.
    None,
    /// To be read by people.
    Words(String),
    /// A number, with the digits that it is known to.
    Figure(String),
}

impl Cell {
    pub(super) fn words(text: impl Into<String>) -> Self {
        Self::Words(text.into())
    }

    pub(super) fn figure(number: impl Display) -> Self {
        Self::Figure(number.to_string())
    }

    /// A figure, where there is one, with so many digits behind the point.
    pub(super) fn rounded(number: Option<impl Display>, digits: usize) -> Self {
        number.map_or(Self::None, |number| {
            Self::Figure(format!("{number:.digits$}"))
        })
    }

    fn text(&self) -> &str {
        match self {
            Self::None => "-",
            Self::Words(text) | Self::Figure(text) => text,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Words(text) => json!(text),
            Self::Figure(text) => {
                let whole = text.parse::<u64>().map(|number| json!(number));
                let number = whole.or_else(|_| text.parse::<f64>().map(|number| json!(number)));
                number.unwrap_or_else(|_| json!(text))
            }
        }
    }
}

/// A table with what is to be known of it.
pub(super) struct Sheet {
    name: &'static str,
    title: String,
    /// Keys for programs, heads for people; those without a head are for programs alone.
    columns: Vec<(&'static str, &'static str)>,
    rows: Vec<SheetRow>,
    notes: Vec<String>,
}

/// A row of a [`Sheet`], by whom it is for.
enum SheetRow {
    /// What the next rows are about, for people.
    Group(String),
    Shown(Vec<Cell>),
    /// For programs alone.
    Hidden(Vec<Cell>),
}

impl SheetRow {
    fn cells(&self) -> Option<&[Cell]> {
        match self {
            Self::Group(_) => None,
            Self::Shown(cells) | Self::Hidden(cells) => Some(cells),
        }
    }
}

impl Sheet {
    pub(super) fn new(
        name: &'static str,
        title: impl Into<String>,
        columns: &[(&'static str, &'static str)],
    ) -> Self {
        Self {
            name,
            title: title.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn group(&mut self, what: impl Into<String>) {
        self.rows.push(SheetRow::Group(what.into()));
    }

    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(SheetRow::Shown(cells));
    }

    /// A row that people see if `shown`.
    pub(super) fn row_if(&mut self, shown: bool, cells: Vec<Cell>) {
        self.rows.push(if shown {
            SheetRow::Shown(cells)
        } else {
            SheetRow::Hidden(cells)
        });
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(super) fn notes<T: Into<String>>(&mut self, notes: impl IntoIterator<Item = T>) {
        self.notes.extend(notes.into_iter().map(Into::into));
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING);
        let heads = self.columns.iter().map(|(_, head)| *head);
        table.set_header(heads.clone().filter(|head| !head.is_empty()));
        let figures = self
            .rows
            .iter()
            .all(|row| matches!(row.cells(), Some([Cell::Figure(_), ..])));
        for column in table.column_iter_mut().skip(usize::from(!figures)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for row in &self.rows {
            match row {
                SheetRow::Group(what) => {
                    table.add_row([what]);
                }
                SheetRow::Shown(cells) => {
                    let cells = cells.iter().zip(heads.clone());
                    table.add_row(
                        cells
                            .filter(|(_, head)| !head.is_empty())
                            .map(|(cell, _)| cell.text()),
                    );
                }
                SheetRow::Hidden(_) => {}
            }
        }
        if table
            .lines()
            .any(|line| line.trim_end().chars().count() > WIDTH)
        {
            for column in table.column_iter_mut() {
                column.set_padding((1, 0));
            }
        }
        let mut text = wrapped(&self.title);
        let _ = write!(text, "\n{}\n", table.trim_fmt());
        let hidden = self
            .rows
            .iter()
            .filter(|row| matches!(row, SheetRow::Hidden(_)))
            .count();
        if hidden > 0 {
            let _ = writeln!(text, "{hidden} more rows: --json FILE");
        }
        for note in &self.notes {
            text += &wrapped(note);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let row = |cells: &[Cell]| {
            let keys = self.columns.iter().map(|(key, _)| (*key).to_owned());
            keys.zip(cells.iter().map(Cell::json))
                .collect::<Map<_, _>>()
        };
        json!({
            "title": self.title,
            "rows": self.rows.iter().filter_map(SheetRow::cells).map(row).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }

    /// The rows' cells as people read them, those that only programs see included.
    #[cfg(test)]
    pub(super) fn cells(&self) -> Vec<Vec<&str>> {
        let rows = self.rows.iter().filter_map(SheetRow::cells);
        rows.map(|cells| cells.iter().map(Cell::text).collect())
            .collect()
    }
}

/// Lines that a terminal shows whole, each with its end.
fn wrapped(text: &str) -> String {
    let (mut lines, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > WIDTH {
            lines.push('\n');
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines += word;
        column += len;
    }
    lines.push('\n');
    lines
}
