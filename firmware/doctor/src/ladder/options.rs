//! The ladder's options.

use crate::error::Error;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

/// How to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Where the sender and the boot server are, in the version of IP that is measured; none for the one that DHCP names, in IPv4.
    pub server: Option<IpAddr>,
    /// How often each rung is measured.
    pub rounds: u32,
    /// How long each rung of frames is measured, in milliseconds.
    pub millis: u32,
    /// The file for wireboot's TFTP and HTTP.
    pub file: String,
    /// The file for the firmware's TFTP and HTTP.
    pub small: String,
    /// The file that comes while the BSP does something else.
    pub large: String,
    /// Numbers of APs for the network, each to be measured; none for what a boot takes.
    pub processors: Vec<u32>,
    /// Parts of the names of rungs, which alone are measured; none for all.
    pub only: Vec<String>,
    /// Record where the time of a packet goes over the firmware's driver.
    pub phases: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            server: None,
            rounds: 5,
            millis: 1000,
            file: "64M.efi".to_string(),
            small: "8M.efi".to_string(),
            large: "512M.efi".to_string(),
            processors: Vec::new(),
            only: Vec::new(),
            phases: false,
        }
    }
}

/// The options that there are, for who writes another.
const KNOWN: &str = "server=ADDRESS rounds=N ms=N file=NAME small=NAME large=NAME processors=N,N,... only=WORD,... phases=1";
/// A second or ten are enough for every rung.
const MAX_MILLIS: u32 = wireboot_wire::ladder::MAX_MICROS / 1000;
/// More than any machine has.
const MAX_PROCESSORS: u32 = 4096;
/// More rounds tell nothing new.
const MAX_ROUNDS: u32 = 1000;

impl Options {
    /// Those in `[key=value ...]`.
    ///
    /// # Errors
    /// The word that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut options = Self::default();
        for word in text.split_whitespace() {
            let refused = || Error::options(word, KNOWN);
            let (key, value) = word.split_once('=').ok_or_else(refused)?;
            let within = |value: &str, range: core::ops::RangeInclusive<u32>| {
                let number = value.parse().ok().filter(|number| range.contains(number));
                number.ok_or_else(refused)
            };
            let number = |range| within(value, range);
            match key {
                "server" => options.server = Some(value.parse().map_err(|_| refused())?),
                "rounds" => options.rounds = number(1..=MAX_ROUNDS)?,
                "ms" => options.millis = number(1..=MAX_MILLIS)?,
                "file" => options.file = value.to_string(),
                "small" => options.small = value.to_string(),
                "large" => options.large = value.to_string(),
                "processors" => {
                    let numbers = value
                        .split(',')
                        .map(|value| within(value, 0..=MAX_PROCESSORS));
                    options.processors = numbers.collect::<Result<_, _>>()?;
                }
                "phases" => options.phases = number(0..=1)? == 1,
                #[cfg(feature = "faults")]
                "fault" => {}
                "only" => options.only = value.split(',').map(ToString::to_string).collect(),
                _ => return Err(refused()),
            }
        }
        Ok(options)
    }

    /// Whether the rung of this name is to be measured.
    pub(crate) fn wants(&self, rung: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| rung.contains(part.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key() {
        assert_eq!(Options::parse("").unwrap(), Options::default());
        let options = Options::parse("rounds=2 ms=100 server=10.0.0.1").unwrap();
        assert_eq!((options.rounds, options.millis), (2, 100));
        assert_eq!(options.server, Some(IpAddr::from([10, 0, 0, 1])));
        let options = Options::parse("server=fd00:77::1").unwrap();
        let server = IpAddr::from([0xfd00, 0x77, 0, 0, 0, 0, 0, 1]);
        assert_eq!(options.server, Some(server));
        let options = Options::parse("processors=0,1,4").unwrap();
        assert_eq!(options.processors, [0, 1, 4]);
        assert!(options.wants("SNP") && options.wants("driver, copied"));
        let options = Options::parse("phases=1").unwrap();
        assert!(options.phases && !Options::default().phases);
        let options = Options::parse("only=SNP,driver").unwrap();
        assert!(options.wants("wireboot TFTP over SNP") && options.wants("driver, copied"));
        assert!(!options.wants("MNP"));
        for wrong in [
            "x",
            "rounds=1 x",
            "rounds=0",
            "ms=999999",
            "server=a",
            "server=[fd00:77::1]",
            "a=b",
            "processors=1,",
            "phases=2",
        ] {
            assert!(
                matches!(Options::parse(wrong), Err(Error::Options { word, .. }) if wrong.ends_with(&word)),
                "{wrong}"
            );
        }
    }
}
