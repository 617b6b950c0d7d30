//! The options: the text of PE section `.wbconf`, else the load options.

use crate::checks::{self, Check};
use crate::error::Error;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Examine the machine.
    Examine(Options),
    /// Measure what its network can do at each height, by these options of [`crate::ladder`].
    Ladder(String),
}

/// How to examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Which checks, in the order in which they run.
    pub checks: Vec<&'static Check>,
}

/// Words that name several checks.
const QUICK: &str = "quick";
const ALL: &str = "all";

impl Options {
    /// What `[doctor.efi] [ladder [KEY=VALUE...] | quick | all | CHECK...] [KEY=VALUE...]` says: the shell puts the program's name first, a
    /// boot option does not.
    ///
    /// # Errors
    /// The word that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Command, Error> {
        let mut words = text.split_whitespace().peekable();
        words.next_if(|first| is_program(first));
        if words.next_if_eq(&"ladder").is_some() {
            return Ok(Command::Ladder(words.collect::<Vec<_>>().join(" ")));
        }
        let mut wanted: Vec<&'static Check> = Vec::new();
        for word in words {
            match word {
                QUICK => wanted.extend(checks::ALL.iter().filter(|check| check.quick)),
                ALL => wanted.extend(checks::ALL),
                _ => {
                    let check = checks::ALL.iter().find(|check| check.name == word);
                    wanted.push(check.ok_or_else(|| Error::options(word, known()))?);
                }
            }
        }
        let checks = checks::ALL.iter().filter(|check| {
            if wanted.is_empty() {
                check.standard
            } else {
                wanted.contains(check)
            }
        });
        Ok(Command::Examine(Self {
            checks: checks.collect(),
        }))
    }
}

/// Whether a first word is the program's own name.
fn is_program(word: &str) -> bool {
    let end = word.len().saturating_sub(4);
    word.get(end..)
        .is_some_and(|end| end.eq_ignore_ascii_case(".efi"))
}

fn known() -> String {
    let names: Vec<&str> = checks::ALL.iter().map(|check| check.name).collect();
    format!("ladder {QUICK} {ALL} {}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        match Options::parse(text).unwrap() {
            Command::Examine(options) => options.checks.iter().map(|check| check.name).collect(),
            Command::Ladder(_) => panic!("{text}"),
        }
    }

    #[test]
    fn words_name_checks_which_run_in_their_own_order() {
        let standard: Vec<_> = checks::ALL.iter().filter(|check| check.standard).collect();
        for text in ["", "doctor.efi", "FS0:\\DOCTOR.EFI"] {
            assert_eq!(names(text).len(), standard.len(), "{text}");
        }
        assert_eq!(names("all").len(), checks::ALL.len());
        let all: Vec<_> = checks::ALL.iter().map(|check| check.name).collect();
        let turned: Vec<_> = all.iter().rev().chain(&all).copied().collect();
        assert_eq!(names(&turned.join(" ")), all);
    }

    #[test]
    fn what_is_behind_ladder_is_the_ladders() {
        for text in ["ladder rounds=2  ms=7", "doctor.efi ladder rounds=2 ms=7"] {
            let command = Command::Ladder("rounds=2 ms=7".into());
            assert_eq!(Options::parse(text).unwrap(), command);
        }
    }

    #[test]
    fn a_word_that_is_none_is_told_with_those_that_are() {
        let error = Options::parse("doctor.efi cots").unwrap_err();
        let said = alloc::string::ToString::to_string(&error);
        assert!(
            said.contains("\"cots\"") && said.contains("quick"),
            "{said}"
        );
    }
}
