//! The options: the text of PE section `.wbconf`, else the load options.

use crate::checks::{self, Check};
use crate::error::Error;
use crate::record::Switch;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;
use core::ops::RangeInclusive;
use core::str::FromStr;
use wireboot_platform::services::MOST_CALLS;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Examine the machine.
    Examine(Box<Options>),
    /// Measure what its network can do at each height, by these options of [`crate::ladder`].
    Ladder(String),
    /// Have the firmware load recorder.efi, or no longer.
    Record(Switch),
}

/// How to examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Which checks, in the order in which they run.
    pub checks: Vec<&'static Check>,
    /// Checks were asked for by name, or all: they leave nothing out for others to have time.
    pub thorough: bool,
    /// `quick`: few calls tell enough, unless checks were asked for by name, too.
    pub quick: bool,
    /// `server=URL`: who is sent the report, by URL or address. Else it is the server that this program came from.
    pub server: Option<String>,
    /// `runs=N`: how often each boot option is loaded.
    pub runs: usize,
    /// `options=N`: how many boot options are loaded, the first of them.
    pub boot_options: usize,
    /// `trace=time` or `trace=count`: whether the firmware's calls are timed.
    pub trace: Trace,
    /// `file=NAME`: the file that is fetched by TFTP, again and again; else the boot file.
    pub file: Option<String>,
    /// `rounds=N`: how often, each way.
    pub rounds: u32,
    /// `hz=N`: how often a second the BSP is asked where it is.
    pub hertz: u32,
    /// `calls=N`: how often each service is called, at most.
    pub calls: Option<usize>,
    /// `nv=N`: how often a variable is written that stays without power.
    pub nonvolatile: usize,
    /// What of throughput.
    pub iperf3: checks::iperf3::Options,
}

/// What is noted of the firmware's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Their number.
    Count,
    /// Their number and their time.
    Time,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            checks: Vec::new(),
            thorough: false,
            quick: false,
            server: None,
            runs: 1,
            boot_options: *BOOT_OPTIONS.end(),
            trace: Trace::Time,
            file: None,
            rounds: 5,
            hertz: 1000,
            calls: None,
            nonvolatile: 0,
            iperf3: checks::iperf3::Options::default(),
        }
    }
}

/// Words that name several checks.
const QUICK: &str = "quick";
const ALL: &str = "all";

/// What numbers may be.
const RUNS: RangeInclusive<usize> = 1..=9;
const BOOT_OPTIONS: RangeInclusive<usize> = 1..=32;
const ROUNDS: RangeInclusive<u32> = 1..=20;
const HERTZ: RangeInclusive<u32> = 10..=10_000;
const CALLS: RangeInclusive<usize> = 1..=MOST_CALLS;
/// Each wears out flash.
const NONVOLATILE: RangeInclusive<usize> = 0..=16;

impl Options {
    /// What `[doctor.efi] [ladder [KEY=VALUE...] | record [on | off] | quick | all | CHECK...] [KEY=VALUE...]` says: the shell puts the program's
    /// name first, a boot option does not.
    ///
    /// # Errors
    /// The word that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Command, Error> {
        let mut words = text.split_whitespace().peekable();
        words.next_if(|first| is_program(first));
        if words.next_if_eq(&"ladder").is_some() {
            return Ok(Command::Ladder(words.collect::<Vec<_>>().join(" ")));
        }
        if words.next_if_eq(&"record").is_some() {
            let rest: Vec<_> = words.collect();
            return match rest.as_slice() {
                [] => Ok(Command::Record(Switch::Tell)),
                ["on"] => Ok(Command::Record(Switch::On)),
                ["off"] => Ok(Command::Record(Switch::Off)),
                _ => Err(Error::options(&rest.join(" "), "on off")),
            };
        }
        let mut wanted: Vec<&'static Check> = Vec::new();
        let mut options = Self::default();
        for word in words {
            if options.iperf3.take(word)? {
                continue;
            }
            if let Some((key, value)) = word.split_once('=') {
                options.set(word, key, value)?;
                continue;
            }
            options.thorough |= word != QUICK;
            options.quick |= word == QUICK;
            match word {
                QUICK => wanted.extend(checks::ALL.iter().filter(|check| check.quick)),
                ALL => wanted.extend(checks::ALL.iter().filter(|check| !check.needs_server)),
                _ => wanted.push(named(word).ok_or_else(|| Error::options(word, known()))?),
            }
        }
        if options.iperf3.server.is_some() {
            wanted.extend(named("iperf3"));
        }
        if options.iperf3.ttcp.is_some() {
            wanted.extend(named("ttcp"));
        }
        let checks = checks::ALL.iter().filter(|check| {
            if wanted.is_empty() {
                check.standard
            } else {
                wanted.contains(check)
            }
        });
        options.checks = checks.collect();
        Ok(Command::Examine(Box::new(options)))
    }

    /// What `word`, which is KEY=VALUE, says.
    fn set(&mut self, word: &str, key: &str, value: &str) -> Result<(), Error> {
        match (key, value) {
            ("server", "") => return Err(Error::options(word, "server=URL")),
            ("server", name) => self.server = Some(name.into()),
            ("runs", number) => self.runs = in_range(word, number, RUNS)?,
            ("options", number) => self.boot_options = in_range(word, number, BOOT_OPTIONS)?,
            ("trace", "time") => self.trace = Trace::Time,
            ("trace", "count") => self.trace = Trace::Count,
            ("trace", _) => return Err(Error::options(word, "trace=time trace=count")),
            ("file", "") => return Err(Error::options(word, "file=NAME")),
            ("file", name) => self.file = Some(name.into()),
            ("rounds", number) => self.rounds = in_range(word, number, ROUNDS)?,
            ("calls", number) => self.calls = Some(in_range(word, number, CALLS)?),
            ("nv", number) => self.nonvolatile = in_range(word, number, NONVOLATILE)?,
            ("hz", number) => self.hertz = in_range(word, number, HERTZ)?,
            _ => return Err(Error::options(word, known())),
        }
        Ok(())
    }
}

/// The check of this name.
fn named(name: &str) -> Option<&'static Check> {
    checks::ALL.iter().find(|check| check.name == name)
}

/// The number in a word, if it lies in the range.
fn in_range<T: FromStr + PartialOrd + Display>(
    word: &str,
    number: &str,
    range: RangeInclusive<T>,
) -> Result<T, Error> {
    let number = number.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let known = format!("the numbers from {} to {}", range.start(), range.end());
        Error::options(word, known)
    })
}

/// Whether a first word is the program's own name.
fn is_program(word: &str) -> bool {
    let end = word.len().saturating_sub(4);
    word.get(end..)
        .is_some_and(|end| end.eq_ignore_ascii_case(".efi"))
}

fn known() -> String {
    let names: Vec<&str> = checks::ALL.iter().map(|check| check.name).collect();
    format!(
        "ladder record {QUICK} {ALL} {} server=URL runs=N options=N trace=MODE file=NAME rounds=N hz=N calls=N nv=N {}",
        names.join(" "),
        checks::iperf3::KNOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn options(text: &str) -> Result<Options, String> {
        match Options::parse(text) {
            Ok(Command::Examine(options)) => Ok(*options),
            Ok(other) => panic!("{text}: {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    fn names(text: &str) -> Vec<&'static str> {
        let options = options(text).unwrap();
        options.checks.iter().map(|check| check.name).collect()
    }

    #[test]
    fn words_name_checks_which_run_in_their_own_order() {
        let standard: Vec<_> = checks::ALL.iter().filter(|check| check.standard).collect();
        for text in ["", "doctor.efi", "FS0:\\DOCTOR.EFI"] {
            assert_eq!(names(text).len(), standard.len(), "{text}");
        }
        let all: Vec<_> = checks::ALL.iter().map(|check| check.name).collect();
        let turned: Vec<_> = all.iter().rev().chain(&all).copied().collect();
        assert_eq!(names(&turned.join(" ")), all);
        let own = all.iter().filter(|name| !["iperf3", "ttcp"].contains(name));
        assert_eq!(names("all"), own.copied().collect::<Vec<_>>());
    }

    #[test]
    fn a_server_of_iperf3_asks_for_that_check() {
        assert_eq!(names("iperf3=10.77.0.1 reverse"), ["iperf3"]);
        assert_eq!(names("iperf3=10.77.0.1 iperf3"), ["iperf3"]);
        assert_eq!(names("ttcp=10.77.0.1"), ["ttcp"]);
    }

    #[test]
    fn boot_options_are_loaded_as_often_as_wanted_and_all_where_that_was_asked_for() {
        let read = |text: &str| {
            let options = options(text).ok()?;
            Some((options.thorough, options.runs, options.boot_options))
        };
        assert_eq!(read(""), Some((false, 1, 32)));
        assert_eq!(read("quick runs=3"), Some((false, 3, 32)));
        assert_eq!(read("boot runs=9 options=1"), Some((true, 9, 1)));
        assert_eq!(read("all"), Some((true, 1, 32)));
    }

    #[test]
    fn keys_have_values_in_ranges() {
        let given = options("trace=count trace file=a=b.efi rounds=20 hz=10").unwrap();
        assert_eq!(given.trace, Trace::Count);
        assert_eq!(given.file.as_deref(), Some("a=b.efi"));
        assert_eq!((given.rounds, given.hertz), (20, 10));
        assert_eq!(given.checks.len(), 1);
        let given = options("cost calls=1000000 nv=16").unwrap();
        assert_eq!((given.calls, given.nonvolatile), (Some(1_000_000), 16));
        let bare = options("").unwrap();
        assert_eq!((bare.calls, bare.nonvolatile), (None, 0));
        assert_eq!((bare.trace, bare.rounds, bare.file), (Trace::Time, 5, None));
        let named = options("quick server=http://a/b?c=d").unwrap();
        assert_eq!(named.server.as_deref(), Some("http://a/b?c=d"));
        for wrong in [
            "trace=",
            "trace=all",
            "file=",
            "rounds=0",
            "rounds=21",
            "rounds=x",
            "=",
            "ms=3",
            "calls=0",
            "calls=1000001",
            "nv=17",
            "hz=9",
            "hz=10001",
            "runs=0",
            "runs=10",
            "runs=",
            "runs=x",
            "options=33",
            "speed=1",
            "server=",
        ] {
            let said = options(wrong).unwrap_err();
            assert!(said.contains(wrong), "{said}");
        }
    }

    #[test]
    fn what_is_behind_ladder_is_the_ladders() {
        for text in ["ladder rounds=2  ms=7", "doctor.efi ladder rounds=2 ms=7"] {
            let command = Command::Ladder("rounds=2 ms=7".into());
            assert_eq!(Options::parse(text).unwrap(), command);
        }
    }

    #[test]
    fn record_is_told_or_switched() {
        for (text, switch) in [
            ("record", Switch::Tell),
            ("doctor.efi record on", Switch::On),
            ("record off", Switch::Off),
        ] {
            assert_eq!(Options::parse(text).unwrap(), Command::Record(switch));
        }
        for wrong in ["record maybe", "record on off", "record on=1"] {
            assert!(Options::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_word_that_is_none_is_told_with_those_that_are() {
        let said = options("doctor.efi cots").unwrap_err();
        assert!(
            said.contains("\"cots\"") && said.contains("quick"),
            "{said}"
        );
    }
}
