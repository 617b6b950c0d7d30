//! Counts of callgrind's, and a table of them.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;

use super::Subject;

/// What one subject took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    /// Whose instructions these are, and for which traffic.
    pub subject: Subject,
    /// A frame for the card, a byte of the file for the guest.
    pub instructions: f64,
    /// Of these, the copy's: the card's of frames, the C library's of the guest.
    pub copy: f64,
}

/// What was counted of all subjects, and by which version of valgrind.
#[derive(Clone, Debug, Serialize)]
pub struct InstructionsReport {
    /// As it tells itself.
    pub valgrind: String,
    /// One for each [`Subject`], in the order of its variants.
    pub counted: Vec<Counted>,
}

impl Subject {
    /// The function in which instructions count, and of those in it the ones that copy, as callgrind calls them.
    fn functions(self) -> (&'static str, &'static [&'static str]) {
        if self.is_card() {
            ("count_card", &["copy_payload"])
        } else {
            ("count_guest", &["memcpy", "memmove"])
        }
    }

    /// The same without chunks and long datagrams.
    fn frames(self) -> Self {
        if self.is_card() {
            Self::CardFrames
        } else {
            Self::GuestFrames
        }
    }

    /// What it is, and how many instructions it is to take at most: a frame for the card alone, of those for frames else.
    fn row(self) -> (&'static str, Option<f64>) {
        match self {
            Self::CardFrames => ("card, a frame: single frames", Some(300.0)),
            Self::CardChunks => ("card, a frame: chunks of 43", Some(1.0 / 3.0)),
            Self::GuestFrames => ("guest, a byte: TFTP in single frames", None),
            Self::GuestChunks => ("guest, a byte: TFTP in chunks", Some(0.8)),
            Self::GuestMessages => ("guest, a byte: TFTP in blocks of 65464", Some(0.4)),
        }
    }
}

impl Counted {
    fn without_copy(&self) -> f64 {
        self.instructions - self.copy
    }

    /// Runs this program under callgrind.
    fn count(subject: Subject, program: &Path) -> Result<Self> {
        let file = tempfile::NamedTempFile::new().context("making a file for callgrind")?;
        let name = subject.to_possible_value().context("a subject's name")?;
        let (counted, copies) = subject.functions();
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--cache-sim=no"])
            .args(["--compress-strings=no", "--compress-pos=no"])
            .arg(format!("--toggle-collect=*instructions*{counted}*"))
            .arg(format!("--callgrind-out-file={}", file.path().display()))
            .arg(program)
            .args(["--subject", name.get_name()])
            .output()
            .context("starting valgrind (Debian's package valgrind)")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("counting {}: {}", name.get_name(), said.trim());
        }
        let profile = fs::read_to_string(file.path()).context("reading callgrind's counts")?;
        let (all, copy) = sums(&profile, copies).context("reading callgrind's counts")?;
        let each = |count: u64| count as f64 / subject.divisor() as f64;
        Ok(Self {
            subject,
            instructions: each(all),
            copy: each(copy),
        })
    }
}

impl InstructionsReport {
    /// Counts them, by this program, which does what it is told by `--subject`.
    ///
    /// # Errors
    /// When there is no valgrind, or a subject does not come to its end.
    pub fn new(program: &Path) -> Result<Self> {
        let version = Command::new("valgrind").arg("--version").output();
        let version = version.context("starting valgrind (Debian's package valgrind)")?;
        let subjects = Subject::value_variants().iter();
        let counted = subjects.map(|subject| Counted::count(*subject, program));
        Ok(Self {
            valgrind: String::from_utf8_lossy(&version.stdout).trim().to_owned(),
            counted: counted.collect::<Result<_>>()?,
        })
    }

    /// As a table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "Made by `make results ARGS=nic-instructions`, {}. Ratios are of what is without the copy.\n\n| instructions | in all | without the copy | against single frames | target |\n|---|---|---|---|---|\n",
            self.valgrind
        );
        for one in &self.counted {
            let (name, most) = one.subject.row();
            let frames = one.subject.frames();
            let frames = self.counted.iter().find(|one| one.subject == frames);
            let ratio = frames
                .filter(|frames| frames.subject != one.subject)
                .map(|frames| one.without_copy() / frames.without_copy());
            let digits = if one.subject.is_card() { 0 } else { 3 };
            let number = |number: Option<f64>, digits| {
                number.map_or_else(String::new, |number| format!("{number:.digits$}"))
            };
            let _ = writeln!(
                text,
                "| {name} | {:.digits$} | {:.digits$} | {} | {} |",
                one.instructions,
                one.without_copy(),
                number(ratio, 2),
                number(most, if ratio.is_some() { 2 } else { 0 }),
            );
        }
        text
    }
}

/// All instructions of a profile of callgrind's, and those of functions whose names contain one of these words.
fn sums(profile: &str, words: &[&str]) -> Option<(u64, u64)> {
    let (mut all, mut some) = (0, 0);
    let (mut function, mut callee) = ("", false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            // The next line counts what was called, which counts for itself, too.
            callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let count: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            if !std::mem::take(&mut callee) {
                all += count;
                if words.iter().any(|word| function.contains(word)) {
                    some += count;
                }
            }
        }
    }
    (all != 0).then_some((all, some))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_summed_by_function() {
        let profile = "events: Ir\nfl=a.rs\nfn=turn\n16 5\ncfn=memory::copy_payload\ncalls=3 400\n17 90\n18 1\n\nfn=memory::copy_payload\nfi=b.rs\n20 80\nfe=a.rs\n21 10\n\ntotals: 96\n";
        assert_eq!(sums(profile, &["copy_payload"]), Some((96, 90)));
        assert_eq!(sums(profile, &["turn", "other"]), Some((96, 6)));
        assert_eq!(sums("events: Ir\n", &[]), None);
    }

    #[test]
    fn ratios_leave_out_the_copy() {
        let counted = |subject, instructions, copy| Counted {
            subject,
            instructions,
            copy,
        };
        let report = InstructionsReport {
            valgrind: "valgrind-3".to_owned(),
            counted: vec![
                counted(Subject::CardFrames, 1000.0, 600.0),
                counted(Subject::CardChunks, 700.0, 600.0),
                counted(Subject::GuestFrames, 0.5, 0.25),
            ],
        };
        let text = report.markdown();
        let rows: Vec<_> = text.lines().rev().take(3).collect();
        assert_eq!(
            rows,
            [
                "| guest, a byte: TFTP in single frames | 0.500 | 0.250 |  |  |",
                "| card, a frame: chunks of 43 | 700 | 100 | 0.25 | 0.33 |",
                "| card, a frame: single frames | 1000 | 400 |  | 300 |",
            ]
        );
    }
}
