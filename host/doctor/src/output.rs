//! Files that examinations leave.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use wireboot_report::Report;

use crate::{html, text};

/// Where a report goes besides the terminal.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Write the report to FILE, for `wireboot report` and for machines
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    json: Option<PathBuf>,
    /// Write the report to FILE as a page for a browser
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    html: Option<PathBuf>,
}

impl OutputArgs {
    /// Prints the report, and writes it where it is wanted.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn give(&self, report: &Report) -> Result<()> {
        self.give_with(report, report)
    }

    /// The same; machines get `json`, the report and what goes with it.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn give_with(&self, report: &Report, json: &impl Serialize) -> Result<()> {
        print(&text::shown(report));
        wireboot_output::json(self.json.as_deref(), json)?;
        if let Some(file) = &self.html {
            write(file, &html::page(report))?;
        }
        Ok(())
    }
}

pub(crate) fn write(file: &Path, content: &str) -> Result<()> {
    std::fs::write(file, content).with_context(|| format!("writing {}", file.display()))
}

/// Prints to the terminal what may have come from a stranger's report: a terminal obeys control characters, so they are replaced.
pub(crate) fn print(content: &str) {
    print!("{}", printable(content));
}

/// The same of what went wrong with such a report.
pub(crate) fn complain(content: &str) {
    eprintln!("wireboot: {}", printable(content));
}

/// Characters that have what follows shown in the other direction (Unicode's UAX 9).
const TURNS: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
    '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];

/// What a terminal gets of a stranger's text.
pub(crate) fn printable(content: &str) -> String {
    let replaced = |c: char| {
        if (c.is_control() && c != '\n') || TURNS.contains(&c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    // Lines of comma-separated values end so.
    let lines = content.split("\r\n");
    let lines: Vec<String> = lines
        .map(|line| line.chars().map(replaced).collect())
        .collect();
    lines.join("\r\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        let shown = super::printable("a\u{1b}[2Jb\u{9b}c\r\nd\re");
        assert_eq!(super::printable("cod.\u{202e}exe"), "cod.\u{fffd}exe");
        assert_eq!(shown, "a\u{fffd}[2Jb\u{fffd}c\r\nd\u{fffd}e");
    }
}
