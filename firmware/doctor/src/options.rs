//! How to examine: words with values.

mod iperf3;

use crate::error::Error;
use alloc::format;
use alloc::string::String;
use core::fmt::Display;
use core::ops::RangeInclusive;
use core::str::FromStr;
pub(crate) use iperf3::shown;
use wireboot_platform::services::MOST_CALLS;

/// How to examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
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
    /// `block=N`: the sweep has blocks of so many bytes alone.
    pub block: Option<u16>,
    /// `window=N`: the sweep has windows of so many blocks alone.
    pub window: Option<u16>,
    /// `hz=N`: how often a second the BSP is asked where it is.
    pub hertz: u32,
    /// `calls=N`: how often each service is called, at most.
    pub calls: Option<usize>,
    /// `nv=N`: how often a variable is written that stays without power.
    pub nonvolatile: usize,
    /// `plant=uncached-memory`: the card's buffers are made uncached, to see that it is found.
    pub plants_uncached: bool,
    /// What of throughput.
    pub iperf3: iperf3::Options,
}

/// What is noted of the firmware's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Number of calls alone.
    Count,
    /// Their number and their time.
    Time,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            thorough: false,
            quick: false,
            server: None,
            runs: 1,
            boot_options: *BOOT_OPTIONS.end(),
            trace: Trace::Time,
            file: None,
            rounds: 5,
            block: None,
            window: None,
            hertz: 1000,
            calls: None,
            nonvolatile: 0,
            plants_uncached: false,
            iperf3: iperf3::Options::default(),
        }
    }
}

/// What numbers may be.
const RUNS: RangeInclusive<usize> = 1..=9;
const BOOT_OPTIONS: RangeInclusive<usize> = 1..=32;
const ROUNDS: RangeInclusive<u32> = 1..=20;
/// Bytes of a block that TFTP can ask for (RFC 2348).
const BLOCK: RangeInclusive<u16> = 8..=65464;
/// Blocks of a window that TFTP can ask for (RFC 7440).
const WINDOW: RangeInclusive<u16> = 1..=u16::MAX;
const HERTZ: RangeInclusive<u32> = 10..=10_000;
const CALLS: RangeInclusive<usize> = 1..=MOST_CALLS;
/// Each wears out flash.
const NONVOLATILE: RangeInclusive<usize> = 0..=16;

impl Options {
    /// Takes `word`, if it is none that names checks. Whether it was.
    ///
    /// # Errors
    /// When it is not understood, or its value is not possible.
    pub(crate) fn take(&mut self, word: &str) -> Result<bool, Error> {
        if self.iperf3.take(word)? {
            return Ok(true);
        }
        let Some((key, value)) = word.split_once('=') else {
            return Ok(false);
        };
        self.set(word, key, value)?;
        Ok(true)
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
            ("block", number) => self.block = Some(in_range(word, number, BLOCK)?),
            ("window", number) => self.window = Some(in_range(word, number, WINDOW)?),
            ("calls", number) => self.calls = Some(in_range(word, number, CALLS)?),
            ("nv", number) => self.nonvolatile = in_range(word, number, NONVOLATILE)?,
            ("plant", "uncached-memory") => self.plants_uncached = true,
            ("plant", _) => return Err(Error::options(word, "plant=uncached-memory")),
            ("hz", number) => self.hertz = in_range(word, number, HERTZ)?,
            #[cfg(feature = "faults")]
            ("fault", _) => {}
            _ => return Err(Error::options(word, known())),
        }
        Ok(())
    }
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

pub(crate) fn known() -> String {
    format!(
        "server=URL runs=N options=N trace=MODE file=NAME rounds=N block=N window=N hz=N calls=N nv=N plant=FAULT {}",
        iperf3::KNOWN
    )
}
