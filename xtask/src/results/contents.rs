//! `docs/results/README.md`: what made each result, of which commit, when and in how many seconds.

use super::Measurement;
use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const FILE: &str = "docs/results/README.md";

const HEAD: &str = "# Results

Most figures in the documents are of a file here; a figure without a link to one names its command, host and day. `make results` measures
all of them (hours), `make results ARGS=\"NAME NAME\"` those of these names, or whose names contain a word; both write this table. *Seconds*:
how long the command ran. A result that is not in it was measured before there was a table: its command, commit and host are in its own
file, or beside the figures in the document.

| result | command | commit | day | seconds |
|---|---|---|---|---|
";

/// Writes the row of a measurement of a commit's programs that has just ended: in how many seconds, or `None` where it failed.
pub(super) fn note(
    of: &Measurement,
    all: &[Measurement],
    commit: &str,
    seconds: Option<f64>,
) -> Result<()> {
    let path = shell::root().join(FILE);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let day = shell::output(shell::command("date").args(["--utc", "+%F"]))?;
    let (name, command, day) = (of.name, of.program.to_string(), day.trim());
    let seconds = seconds.map_or("failed".to_owned(), |seconds| format!("{seconds:.0}"));
    let row = format!("| {name} | `{command}` | {commit} | {day} | {seconds} |\n");
    let names: Vec<_> = all.iter().map(|one| one.name).collect();
    write(&path, &with_row(&before, &names, name, &row))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// The table with another row for `name`, in the order of `names`; other rows are kept as they are.
fn with_row(before: &str, names: &[&str], name: &str, row: &str) -> String {
    let kept = |wanted: &str| {
        let start = format!("| {wanted} |");
        let line = before.lines().find(|line| line.starts_with(&start))?;
        Some(format!("{line}\n"))
    };
    let rows = names.iter().filter_map(|one| {
        if *one == name {
            Some(row.to_owned())
        } else {
            kept(one)
        }
    });
    HEAD.to_owned() + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["a", "b", "b-2"];

    #[test]
    fn a_new_row_takes_the_place_of_its_own_alone() {
        let one = with_row("", &NAMES, "b-2", "| b-2 | x |\n");
        assert_eq!(one, format!("{HEAD}| b-2 | x |\n"));
        let two = with_row(&one, &NAMES, "b", "| b | y |\n");
        assert_eq!(two, format!("{HEAD}| b | y |\n| b-2 | x |\n"));
        let again = with_row(&two, &NAMES, "b-2", "| b-2 | z |\n");
        assert_eq!(again, format!("{HEAD}| b | y |\n| b-2 | z |\n"));
    }

    #[test]
    fn what_is_measured_no_more_is_gone() {
        let old = format!("{HEAD}| gone | x |\n");
        let new = with_row(&old, &NAMES, "a", "| a | y |\n");
        assert_eq!(new, format!("{HEAD}| a | y |\n"));
    }
}
