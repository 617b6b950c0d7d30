//! The words for a test of throughput.

use crate::error::Error;
use alloc::format;
use alloc::string::{String, ToString};
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use wireboot_boot::driver::Driver;
use wireboot_iperf::{Limit, PORT, Test};
use wireboot_report::throughput::{Direction, Transport};

/// What is to be measured against which server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Where iperf3's server is; no test without it.
    pub server: Option<IpAddr>,
    /// The same for the matrix of sizes.
    pub ttcp: Option<IpAddr>,
    port: Option<u16>,
    udp: bool,
    reverse: bool,
    bidir: bool,
    parallel: Option<u32>,
    time: Option<u32>,
    bytes: Option<u64>,
    length: Option<u32>,
    mss: Option<u16>,
    bandwidth: Option<u64>,
    /// Whose driver; none for ours where there is one.
    pub driver: Option<Driver>,
}

/// The options that there are, for who writes another.
pub(crate) const KNOWN: &str = "iperf3=ADDRESS ttcp=ADDRESS port=N udp reverse bidir parallel=N time=S bytes=N length=N mss=N bandwidth=N driver=NAME";
/// A test is over before the watchdog of the check thinks that it hangs.
const TIME: RangeInclusive<u32> = 1..=300;
const PARALLEL: RangeInclusive<u32> = 1..=16;
/// The longest write of iperf3.
const LENGTH: RangeInclusive<u32> = 1..=1 << 20;
const MSS: RangeInclusive<u16> = 536..=8960;
/// A MB and what 300 s of 25 Gbit/s bring.
const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Below that iperf3's writes of 128 KiB are seconds apart.
const BANDWIDTH: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
/// Seconds of a test whose end is not said.
const SECONDS: u32 = 10;

impl Options {
    /// Takes `word`, if it is one of these. Whether it was.
    ///
    /// # Errors
    /// When it is, and its value is not possible.
    pub(crate) fn take(&mut self, word: &str) -> Result<bool, Error> {
        let refused = || Error::options(word, KNOWN);
        match word {
            "udp" => self.udp = true,
            "reverse" => self.reverse = true,
            "bidir" => self.bidir = true,
            _ => {
                let Some((key, value)) = word.split_once('=') else {
                    return Ok(false);
                };
                match key {
                    "iperf3" => self.server = Some(value.parse().map_err(|_| refused())?),
                    "ttcp" => self.ttcp = Some(value.parse().map_err(|_| refused())?),
                    "port" => self.port = Some(within(value, 1..=u16::MAX).ok_or_else(refused)?),
                    "parallel" => {
                        self.parallel = Some(within(value, PARALLEL).ok_or_else(refused)?);
                    }
                    "time" => self.time = Some(within(value, TIME).ok_or_else(refused)?),
                    "bytes" => self.bytes = Some(within(value, BYTES).ok_or_else(refused)?),
                    "length" => self.length = Some(within(value, LENGTH).ok_or_else(refused)?),
                    "mss" => self.mss = Some(within(value, MSS).ok_or_else(refused)?),
                    "bandwidth" => {
                        self.bandwidth = Some(within(value, BANDWIDTH).ok_or_else(refused)?);
                    }
                    "driver" => self.driver = Some(Driver::named(value).ok_or_else(refused)?),
                    _ => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// # Errors
    /// When they say something of the test that `ttcp` has words of its own for.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_plain = Self {
            server: self.server,
            ttcp: self.ttcp,
            port: self.port,
            driver: self.driver,
            ..Self::default()
        } == *self;
        if self.ttcp.is_some() && self.server.is_none() && !is_plain {
            return Err(Error::options(
                "ttcp",
                "ttcp=ADDRESS port=N driver=NAME, which measures each way and size itself",
            ));
        }
        Ok(())
    }

    /// Where the server listens.
    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(PORT)
    }

    /// The test that they say; `None` without a server.
    pub(crate) fn test(&self) -> Option<Test> {
        let server = SocketAddr::new(self.server?, self.port());
        Some(Test {
            transport: if self.udp {
                Transport::Udp
            } else {
                Transport::Tcp
            },
            direction: match (self.bidir, self.reverse) {
                (true, _) => Direction::Both,
                (false, true) => Direction::Receive,
                (false, false) => Direction::Send,
            },
            parallel: self.parallel.unwrap_or(1),
            limit: match (self.bytes, self.time) {
                (Some(bytes), _) => Limit::Bytes(bytes),
                (None, seconds) => Limit::Seconds(seconds.unwrap_or(SECONDS)),
            },
            length: self.length,
            mss: self.mss,
            bandwidth: self.bandwidth,
            ..Test::new(server)
        })
    }
}

fn within<T: core::str::FromStr + PartialOrd>(text: &str, range: RangeInclusive<T>) -> Option<T> {
    text.parse().ok().filter(|number| range.contains(number))
}

/// A test in a sentence.
pub(crate) fn shown(test: &Test) -> String {
    let transport = match test.transport {
        Transport::Udp => "UDP",
        _ => "TCP",
    };
    let way = match test.direction {
        Direction::Receive => "from",
        Direction::Both => "to and from",
        Direction::Send | Direction::Other => "to",
    };
    let end = match test.limit {
        Limit::Seconds(seconds) => format!("{seconds} s"),
        Limit::Bytes(bytes) => format!("{bytes} bytes"),
    };
    let streams = match test.parallel {
        1 => String::new(),
        many => format!(", {many} streams"),
    };
    let length = test.length.map(|length| format!(", {length} bytes each"));
    let length = length.unwrap_or_default();
    let server = test.server.to_string();
    format!("{transport} {way} {server}: {end}{streams}{length}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn options(text: &str) -> Result<Options, Error> {
        let mut options = Options::default();
        for word in text.split_whitespace() {
            assert!(options.take(word)?, "{word}");
        }
        Ok(options)
    }

    #[test]
    fn each_word() {
        assert_eq!(Options::default().test(), None);
        let plain = options("iperf3=10.77.0.1").unwrap().test().unwrap();
        assert_eq!(plain, Test::new(([10, 77, 0, 1], 5201).into()));
        let words = "iperf3=fd00::1 port=7 udp reverse parallel=4 length=1400 bandwidth=5000000 bytes=2000000 driver=snp mss=1000";
        let all = options(words).unwrap();
        assert_eq!(all.driver, Some(Driver::Snp));
        let test = all.test().unwrap();
        let server: SocketAddr = "[fd00::1]:7".parse().unwrap();
        let wanted = Test {
            transport: Transport::Udp,
            direction: Direction::Receive,
            parallel: 4,
            limit: Limit::Bytes(2_000_000),
            length: Some(1400),
            mss: Some(1000),
            bandwidth: Some(5_000_000),
            ..Test::new(server)
        };
        assert_eq!(test, wanted);
        assert_eq!(
            shown(&test),
            "UDP from [fd00::1]:7: 2000000 bytes, 4 streams, 1400 bytes each"
        );
        let both = options("iperf3=10.77.0.1 bidir time=3").unwrap().test();
        let both = both.unwrap();
        assert_eq!(both.direction, Direction::Both);
        assert_eq!(both.limit, Limit::Seconds(3));
        assert_eq!(shown(&both), "TCP to and from 10.77.0.1:5201: 3 s");
    }

    #[test]
    fn ttcp_has_its_own_ways_and_sizes() {
        for words in [
            "ttcp=10.0.0.1 port=7 driver=snp",
            "ttcp=10.0.0.1 iperf3=10.0.0.1 udp",
            "udp",
        ] {
            assert!(options(words).unwrap().check().is_ok(), "{words}");
        }
        assert_eq!(options("ttcp=10.0.0.1 port=7").unwrap().port(), 7);
        for words in [
            "ttcp=10.0.0.1 udp",
            "ttcp=10.0.0.1 time=3",
            "ttcp=10.0.0.1 mss=900",
        ] {
            assert!(options(words).unwrap().check().is_err(), "{words}");
        }
    }

    #[test]
    fn impossible_values_are_told_and_other_words_left() {
        for word in [
            "iperf3=x",
            "ttcp=x",
            "iperf3=10.0.0.1:5201",
            "port=0",
            "parallel=0",
            "parallel=17",
            "time=0",
            "time=301",
            "bytes=1",
            "length=0",
            "mss=100",
            "bandwidth=1",
            "driver=x",
        ] {
            let error = Options::default().take(word).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        let others: Vec<_> = ["check", "iperf3", "calls=7", "=", ""]
            .map(|word| Options::default().take(word).unwrap())
            .into();
        assert_eq!(others, [false; 5]);
    }
}
