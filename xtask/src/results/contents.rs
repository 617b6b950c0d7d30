//! `docs/results/README.md`: what made each result, of which commit, when and in how many seconds.

use super::Measurement;
use crate::{build, shell};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const FILE: &str = "docs/results/README.md";

const HEAD: &str = "# Results

Each figure in the documents is of a file here. `make results` measures all of them (hours), `make results ARGS=\"NAME NAME\"` those
whose names contain a word, and both write this table. A result that is not in it was measured before there was one.

| result | command | commit | day | seconds |
|---|---|---|---|---|
";

/// Writes the row of a measurement that has just ended: the new one, or none where it failed.
pub(super) fn note(of: &Measurement, all: &[Measurement], seconds: Option<f64>) -> Result<()> {
    let path = shell::root().join(FILE);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let row = seconds
        .map(|seconds| -> Result<String> {
            let day = shell::output(shell::command("date").args(["--utc", "+%F"]))?;
            let commit = build::commit();
            let command = of.program.to_string();
            let name = of.name;
            let day = day.trim();
            Ok(format!(
                "| {name} | `{command}` | {commit} | {day} | {seconds:.0} |\n"
            ))
        })
        .transpose()?;
    let names: Vec<_> = all.iter().map(|one| one.name).collect();
    write(&path, &with_row(&before, &names, of.name, row.as_deref()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// The table with another row for `name`, in the order of `names`; other rows are kept as they are.
fn with_row(before: &str, names: &[&str], name: &str, row: Option<&str>) -> String {
    let kept = |wanted: &str| {
        let start = format!("| {wanted} |");
        let line = before.lines().find(|line| line.starts_with(&start))?;
        Some(format!("{line}\n"))
    };
    let rows = names.iter().filter_map(|one| {
        if *one == name {
            row.map(str::to_owned)
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
        let one = with_row("", &NAMES, "b-2", Some("| b-2 | x |\n"));
        assert_eq!(one, format!("{HEAD}| b-2 | x |\n"));
        let two = with_row(&one, &NAMES, "b", Some("| b | y |\n"));
        assert_eq!(two, format!("{HEAD}| b | y |\n| b-2 | x |\n"));
        let again = with_row(&two, &NAMES, "b-2", Some("| b-2 | z |\n"));
        assert_eq!(again, format!("{HEAD}| b | y |\n| b-2 | z |\n"));
    }

    #[test]
    fn what_failed_has_no_row() {
        let both = format!("{HEAD}| a | x |\n| b | y |\n");
        assert_eq!(
            with_row(&both, &NAMES, "a", None),
            format!("{HEAD}| b | y |\n")
        );
    }

    #[test]
    fn what_is_measured_no_more_is_gone() {
        let old = format!("{HEAD}| gone | x |\n");
        assert_eq!(with_row(&old, &NAMES, "a", None), HEAD);
    }
}
