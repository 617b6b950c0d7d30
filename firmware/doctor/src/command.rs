//! What to do, by the text of PE section `.wbconf`, else the load options.

use crate::checks::{self, Check};
use crate::error::Error;
use crate::options::{self, Options};
use crate::record::Switch;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Examine the machine.
    Examine {
        /// Which checks, in the order in which they run.
        checks: Vec<&'static Check>,
        /// The options that say how much of each.
        options: Box<Options>,
    },
    /// Measure what its network can do at each height, by these options of [`crate::ladder`].
    Ladder(String),
    /// Have the firmware load recorder.efi, or no longer.
    Record(Switch),
}

/// Words that name several checks.
const QUICK: &str = "quick";
const ALL: &str = "all";

impl Command {
    /// What `[doctor.efi] [ladder [KEY=VALUE...] | record [on | off] | quick | all | CHECK...] [KEY=VALUE...]` says: the shell puts the program's
    /// name first, a boot option does not.
    ///
    /// # Errors
    /// The word that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut words = text.split_whitespace().peekable();
        words.next_if(|first| is_program(first));
        if words.next_if_eq(&"ladder").is_some() {
            return Ok(Self::Ladder(words.collect::<Vec<_>>().join(" ")));
        }
        if words.next_if_eq(&"record").is_some() {
            let rest: Vec<_> = words.collect();
            return match rest.as_slice() {
                [] => Ok(Self::Record(Switch::Tell)),
                ["on"] => Ok(Self::Record(Switch::On)),
                ["off"] => Ok(Self::Record(Switch::Off)),
                _ => Err(Error::options(&rest.join(" "), "on off")),
            };
        }
        let mut wanted: Vec<&'static Check> = Vec::new();
        let mut options = Options::default();
        for word in words {
            if options.take(word)? {
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
        options.iperf3.check()?;
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
        Ok(Self::Examine {
            checks: checks.collect(),
            options: Box::new(options),
        })
    }
}

/// The check of this name.
fn named(name: &str) -> Option<&'static Check> {
    checks::ALL.iter().find(|check| check.name == name)
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
        "ladder record {QUICK} {ALL} {} {}",
        names.join(" "),
        options::known()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Trace;
    use alloc::string::ToString;
    use wireboot_report::words;

    fn parsed(text: &str) -> Result<(Vec<&'static Check>, Options), String> {
        match Command::parse(text) {
            Ok(Command::Examine { checks, options }) => Ok((checks, *options)),
            Ok(other) => panic!("{text}: {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    fn options(text: &str) -> Result<Options, String> {
        parsed(text).map(|(_, options)| options)
    }

    fn names(text: &str) -> Vec<&'static str> {
        let (checks, _) = parsed(text).unwrap();
        checks.iter().map(|check| check.name).collect()
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
        let given = options("sweep block=65464 window=1").unwrap();
        assert_eq!((given.block, given.window), (Some(65464), Some(1)));
        assert_eq!(names("trace=count trace"), ["trace"]);
        let given = options("cost calls=1000000 nv=16").unwrap();
        assert_eq!((given.calls, given.nonvolatile), (Some(1_000_000), 16));
        assert!(
            options("dma plant=uncached-memory")
                .unwrap()
                .plants_uncached
        );
        let bare = options("").unwrap();
        assert!(!bare.plants_uncached);
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
            "block=7",
            "block=65465",
            "window=0",
            "window=65536",
            "rounds=x",
            "=",
            "ms=3",
            "calls=0",
            "calls=1000001",
            "nv=17",
            "hz=9",
            "plant=",
            "plant=loss",
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
            assert_eq!(Command::parse(text).unwrap(), command);
        }
    }

    #[test]
    fn record_is_told_or_switched() {
        for (text, switch) in [
            ("record", Switch::Tell),
            ("doctor.efi record on", Switch::On),
            ("record off", Switch::Off),
        ] {
            assert_eq!(Command::parse(text).unwrap(), Command::Record(switch));
        }
        for wrong in ["record maybe", "record on off", "record on=1"] {
            assert!(Command::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_are_those_that_others_look_up() {
        let known = known();
        let (keys, bare): (Vec<&str>, Vec<&str>) =
            known.split(' ').partition(|word| word.contains('='));
        let keys: Vec<_> = keys
            .iter()
            .filter_map(|word| word.split('=').next())
            .collect();
        assert_eq!(keys, words::KEYS);
        let own = [
            ["ladder", "record"].as_slice(),
            &words::GROUPS,
            &words::CHECKS,
            &words::FLAGS,
        ];
        assert_eq!(bare, own.concat());
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
