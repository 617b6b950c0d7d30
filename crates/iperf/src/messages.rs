//! The JSON that goes over the control connection.

use crate::error::Error;
use crate::test::{Limit, Test};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;
use serde::{Deserialize, Serialize};
use wireboot_report::throughput::{Direction, Transport};

/// Which iperf3 we behave as.
const VERSION: &str = "3.12";

/// Seconds of a test, and percent of a processor's time. What is computed of them is finite.
const POSSIBLE: Range<f64> = 0.0..1e6;

/// What the client asks for.
#[derive(Debug, Default, Serialize)]
struct Parameters {
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    tcp: bool,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    udp: bool,
    omit: u32,
    time: u32,
    num: u64,
    blockcount: u64,
    #[serde(rename = "MSS", skip_serializing_if = "Option::is_none")]
    mss: Option<u16>,
    parallel: u32,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    reverse: bool,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    bidirectional: bool,
    len: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth: Option<u64>,
    pacing_timer: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    udp_counters_64bit: Option<u32>,
    client_version: &'static str,
}

/// The message that asks for `test` with messages of `len` bytes.
pub(crate) fn parameters(test: &Test, len: u32) -> Vec<u8> {
    let udp = test.transport == Transport::Udp;
    let (time, num) = match test.limit {
        Limit::Seconds(seconds) => (seconds, 0),
        Limit::Bytes(bytes) => (0, bytes),
    };
    framed(&Parameters {
        tcp: !udp,
        udp,
        time,
        num,
        mss: test.mss,
        parallel: test.parallel,
        reverse: test.direction == Direction::Receive,
        bidirectional: test.direction == Direction::Both,
        len,
        bandwidth: test.bandwidth,
        pacing_timer: 1000,
        udp_counters_64bit: udp.then_some(1),
        client_version: VERSION,
        ..Parameters::default()
    })
}

/// What a side says of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub cpu_util_total: f64,
    pub cpu_util_user: f64,
    pub cpu_util_system: f64,
    /// -1: it sends nothing; 0: its streams do not tell; 1: they do.
    pub sender_has_retransmits: f64,
    pub streams: Vec<StreamResults>,
}

/// What a side says of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamResults {
    pub id: u32,
    pub bytes: u64,
    /// -1 where that is not known, which some versions write as the largest number of 64 bits.
    pub retransmits: f64,
    /// The smoothed difference of transit times (RFC 3550 section 6.4.1), in seconds.
    pub jitter: f64,
    /// Datagrams lost. Those that come twice or late make servers count below zero.
    pub errors: f64,
    pub packets: u64,
    #[serde(default)]
    pub start_time: f64,
    #[serde(default)]
    pub end_time: f64,
}

impl Results {
    /// As it is sent: JSON, behind its length in four bytes.
    pub(crate) fn framed(&self) -> Vec<u8> {
        framed(self)
    }

    /// Reads a server's, which must be about these streams.
    ///
    /// # Errors
    /// [`Error::Results`] when it is none, or of other streams, or impossible.
    pub(crate) fn parse(text: &[u8], streams: &[u32]) -> Result<Self, Error> {
        let refused = |why: String| Error::Results(why);
        let results: Self =
            serde_json::from_slice(text).map_err(|error| refused(error.to_string()))?;
        if results.streams.len() != streams.len() {
            let (told, ours) = (results.streams.len(), streams.len());
            return Err(refused(format!("they are of {told} streams, not {ours}")));
        }
        for id in streams {
            if !results.streams.iter().any(|one| one.id == *id) {
                return Err(refused(format!("stream {id} is missing")));
            }
        }
        let possible = |one: &StreamResults| {
            [one.jitter, one.start_time, one.end_time]
                .iter()
                .all(|time| POSSIBLE.contains(time))
                && one.end_time >= one.start_time
        };
        if !POSSIBLE.contains(&results.cpu_util_total) || !results.streams.iter().all(possible) {
            return Err(refused(
                "a time or share is negative, or a million or more".into(),
            ));
        }
        Ok(results)
    }

    /// What it says of a stream.
    pub(crate) fn of(&self, id: u32) -> Option<&StreamResults> {
        self.streams.iter().find(|one| one.id == id)
    }
}

/// What a side counted; `None` where it says that it did not.
pub(crate) fn counted(number: f64) -> Option<u64> {
    (0.0..9e15).contains(&number).then_some(number as u64)
}

/// JSON behind its length.
fn framed(value: &impl Serialize) -> Vec<u8> {
    // Maps with keys that are no strings could fail; there are none.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut message = Vec::from((text.len() as u32).to_be_bytes());
    message.extend(text);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str;

    fn asked(test: &Test, len: u32) -> std::string::String {
        let message = parameters(test, len);
        let (length, text) = message.split_at(4);
        assert_eq!(length, (text.len() as u32).to_be_bytes());
        str::from_utf8(text).unwrap().into()
    }

    #[test]
    fn each_option_is_asked_for_under_iperf3s_name() {
        let mut test = Test::new(([10, 0, 0, 2], 5201).into());
        assert_eq!(
            asked(&test, 131_072),
            r#"{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":1,"len":131072,"pacing_timer":1000,"client_version":"3.12"}"#
        );
        test.direction = Direction::Both;
        test.mss = Some(1000);
        test.limit = Limit::Bytes(1 << 40);
        let text = asked(&test, 1);
        for part in [
            r#""bidirectional":true"#,
            r#""MSS":1000"#,
            r#""time":0"#,
            r#""num":1099511627776"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        test.transport = Transport::Udp;
        test.direction = Direction::Receive;
        test.bandwidth = Some(1_000_000);
        let text = asked(&test, 1472);
        for part in [
            r#"{"udp":true"#,
            r#""reverse":true"#,
            r#""bandwidth":1000000"#,
            r#""udp_counters_64bit":1"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("tcp"), "{text}");
    }

    /// As Debian's iperf 3.12 sends them.
    const SERVERS: &str = r#"{"cpu_util_total":46.9,"cpu_util_user":0.7,"cpu_util_system":46.2,"sender_has_retransmits":-1,"congestion_used":"bbr","streams":[
        {"id":1,"bytes":1596456960,"retransmits":-1,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1.001},
        {"id":3,"bytes":7,"retransmits":18446744073709551615,"jitter":0.5,"errors":-2,"packets":9}]}"#;

    #[test]
    fn a_servers_results_are_read() {
        let results = Results::parse(SERVERS.as_bytes(), &[1, 3]).unwrap();
        assert_eq!(results.of(1).unwrap().bytes, 1_596_456_960);
        assert_eq!(results.of(3).unwrap().errors, -2.0);
        assert_eq!(results.of(4), None);
        assert_eq!(
            Results::parse(&results.framed()[4..], &[1, 3]).unwrap(),
            results
        );
    }

    #[test]
    fn what_was_not_counted_is_unknown() {
        assert_eq!(counted(-1.0), None);
        assert_eq!(counted(18_446_744_073_709_551_615.0), None);
        assert_eq!(counted(0.0), Some(0));
        assert_eq!(counted(77.0), Some(77));
    }

    #[test]
    fn lies_are_refused() {
        for (text, streams) in [
            (SERVERS, &[1][..]),
            (SERVERS, &[1, 3, 4]),
            (SERVERS, &[1, 4]),
            ("", &[]),
            ("[]", &[]),
            (r#"{"streams":[]}"#, &[]),
            (&SERVERS.replace("\"jitter\":0,", "\"jitter\":-1,"), &[1, 3]),
            (&SERVERS.replace("1.001", "-1"), &[1, 3]),
            (&SERVERS.replace("46.9", "-1"), &[1, 3]),
            (&SERVERS.replace("46.9", "1e999"), &[1, 3]),
            (&SERVERS.replace("46.9", "1e6"), &[1, 3]),
            (
                &SERVERS.replace("\"jitter\":0,", "\"jitter\":1e306,"),
                &[1, 3],
            ),
            (&SERVERS.replace("1.001", "1e306"), &[1, 3]),
            (
                &SERVERS.replace(
                    "\"start_time\":0,\"end_time\":1.001",
                    "\"start_time\":1e300,\"end_time\":1e300",
                ),
                &[1, 3],
            ),
        ] {
            assert!(
                matches!(
                    Results::parse(text.as_bytes(), streams),
                    Err(Error::Results(_))
                ),
                "{text}"
            );
        }
    }
}
