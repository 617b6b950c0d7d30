//! What TCP and UDP moved between the machine and a server of iperf3.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A protocol above IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Transmission Control Protocol, RFC 9293.
    #[default]
    Tcp,
    /// User Datagram Protocol, RFC 768.
    Udp,
    /// What a newer version knows.
    #[serde(other)]
    Other,
}

/// Which way the data went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The machine sent.
    #[default]
    Send,
    /// The machine received.
    Receive,
    /// Both at the same time.
    Both,
    /// What a newer version knows.
    #[serde(other)]
    Other,
}

/// One test of throughput.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throughput {
    /// The check that made it: `iperf3`, `ttcp`.
    pub check: String,
    /// Who drove the card: `wireboot`, `SNP`.
    pub driver: String,
    /// The server's address.
    pub server: String,
    /// The server's port, for iperf3's control connection and all streams.
    pub port: u16,
    /// What was measured.
    pub transport: Transport,
    /// Whether the machine sent, received, or both.
    pub direction: Direction,
    /// Streams in each direction.
    pub parallel: u32,
    /// Bytes of a write, or of a datagram.
    pub message_bytes: u32,
    /// The largest segment that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss_bytes: Option<u32>,
    /// The rate that each stream was held to, in bits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bit_s: Option<u64>,
    /// How long it was to take, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_s: Option<u32>,
    /// How many bytes it was to move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// How long it took, by the machine's clock, in seconds.
    pub took_s: f64,
    /// The streams of both directions.
    pub streams: Vec<Stream>,
    /// What each second brought, by the machine's count.
    pub intervals: Vec<Interval>,
    /// What the machine's processor had to do for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// The share of a processor that the server says it took, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_busy_percent: Option<f64>,
}

/// A connection, or datagrams between two ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stream {
    /// Its number, the same at both ends.
    pub id: u32,
    /// The machine's end: `10.77.0.50:49152`.
    pub local: String,
    /// The machine is its sender.
    pub sends: bool,
    /// Bytes that its sender says it sent. Of TCP that we send: what was acknowledged.
    pub sent_bytes: u64,
    /// How long its sender took, in seconds.
    pub sent_s: f64,
    /// Bytes that its receiver says came.
    pub received_bytes: u64,
    /// How long its receiver took, in seconds.
    pub received_s: f64,
    /// Segments that its sender sent again, where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmissions: Option<u64>,
    /// What became of its datagrams; `None` for TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
}

/// What became of a stream's datagrams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Datagrams {
    /// How many were sent.
    pub sent: u64,
    /// How many came.
    pub received: u64,
    /// How many of those up to the last that came did not come.
    pub lost: u64,
    /// How many came behind a later one, where the receiver tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_order: Option<u64>,
    /// How unevenly they came (RFC 1889, section 6.3.1), in milliseconds.
    pub jitter_ms: f64,
}

/// A part of a test's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// From when, in seconds from the test's beginning.
    pub start_s: f64,
    /// Until when, in seconds from the test's beginning.
    pub end_s: f64,
    /// Bytes of each stream, in the order of the streams.
    pub bytes: Vec<u64>,
    /// Datagrams of each stream, likewise; none of TCP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datagrams: Vec<u64>,
}

/// What a processor did for a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// Its time-stamp counter's ticks in calls that moved something.
    pub busy_cycles: u64,
    /// The share of the time that they took, in percent.
    pub busy_percent: f64,
    /// Units that the driver sent and received: frames, or what the card cuts and joins.
    pub units: u64,
}

impl Throughput {
    /// Bytes that came, all streams together.
    pub fn received_bytes(&self) -> u64 {
        sum(&self.streams, |one| one.received_bytes)
    }

    /// Bytes that left, all streams together.
    pub fn sent_bytes(&self) -> u64 {
        sum(&self.streams, |one| one.sent_bytes)
    }

    /// What came, in bits a second.
    pub fn bits_per_second(&self) -> f64 {
        rate(self.received_bytes(), self.took_s)
    }

    /// Bytes and datagrams that the machine itself moved.
    fn moved(&self) -> (u64, u64) {
        let ours = |one: &Stream| {
            if one.sends {
                one.sent_bytes
            } else {
                one.received_bytes
            }
        };
        let datagrams = |one: &Stream| {
            let datagrams = one.datagrams.as_ref();
            datagrams.map_or(0, |one_| match one.sends {
                true => one_.sent,
                false => one_.received,
            })
        };
        (sum(&self.streams, ours), sum(&self.streams, datagrams))
    }

    /// Ticks a byte that the machine moved.
    pub fn cycles_per_byte(&self) -> Option<f64> {
        per(self.work.as_ref()?.busy_cycles, self.moved().0)
    }

    /// Ticks a datagram that the machine moved, or of TCP, a unit of its driver.
    pub fn cycles_per_packet(&self) -> Option<f64> {
        let work = self.work.as_ref()?;
        let packets = match self.transport {
            Transport::Udp => self.moved().1,
            _ => work.units,
        };
        per(work.busy_cycles, packets)
    }

    /// Whether no time or share is negative.
    pub(crate) fn is_possible(&self) -> bool {
        let stream = |one: &Stream| {
            let jitter = one.datagrams.as_ref().map_or(0.0, |one| one.jitter_ms);
            one.sent_s >= 0.0 && one.received_s >= 0.0 && jitter >= 0.0
        };
        let interval = |one: &Interval| one.start_s >= 0.0 && one.end_s >= one.start_s;
        self.took_s >= 0.0
            && self.streams.iter().all(stream)
            && self.intervals.iter().all(interval)
            && self
                .work
                .as_ref()
                .is_none_or(|work| work.busy_percent >= 0.0)
            && self.server_busy_percent.is_none_or(|share| share >= 0.0)
    }
}

fn sum(streams: &[Stream], of: impl Fn(&Stream) -> u64) -> u64 {
    streams
        .iter()
        .fold(0, |all, one| all.saturating_add(of(one)))
}

fn per(cycles: u64, what: u64) -> Option<f64> {
    (what > 0).then(|| cycles as f64 / what as f64)
}

/// Bits a second; 0 of no time.
pub fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

/// What a packet and a byte cost: `per_packet + per_byte * bytes`, the straight line with the smallest squares of relative errors, so that
/// small messages count as much as large ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Cycles of a packet without bytes.
    pub per_packet: f64,
    /// Cycles of each byte.
    pub per_byte: f64,
}

impl Fit {
    /// Of `(bytes of a packet, its cycles)`. `None` where there are no two sizes.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(x, y) in points.iter().filter(|(_, y)| *y > 0.0) {
            let weight = 1.0 / (y * y);
            w += weight;
            wx += weight * x;
            wy += weight * y;
            wxx += weight * x * x;
            wxy += weight * x * y;
        }
        let spread = w * wxx - wx * wx;
        // Of one size, rounding leaves next to nothing.
        if spread <= w * wxx * 1e-9 {
            return None;
        }
        let per_byte = (w * wxy - wx * wy) / spread;
        Some(Self {
            per_packet: (wy - per_byte * wx) / w,
            per_byte,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn udp(sends: bool) -> Throughput {
        Throughput {
            transport: Transport::Udp,
            took_s: 2.0,
            streams: vec![Stream {
                sends,
                sent_bytes: 1000,
                received_bytes: 900,
                datagrams: Some(Datagrams {
                    sent: 10,
                    received: 9,
                    lost: 1,
                    ..Datagrams::default()
                }),
                ..Stream::default()
            }],
            work: Some(Work {
                busy_cycles: 90_000,
                units: 30,
                ..Work::default()
            }),
            ..Throughput::default()
        }
    }

    #[test]
    fn the_machine_pays_for_what_it_moved_itself() {
        assert_eq!(udp(true).cycles_per_byte(), Some(90.0));
        assert_eq!(udp(true).cycles_per_packet(), Some(9000.0));
        assert_eq!(udp(false).cycles_per_byte(), Some(100.0));
        assert_eq!(udp(false).cycles_per_packet(), Some(10_000.0));
        let tcp = Throughput {
            transport: Transport::Tcp,
            ..udp(false)
        };
        assert_eq!(tcp.cycles_per_packet(), Some(3000.0));
        assert_eq!(tcp.bits_per_second(), 3600.0);
        assert_eq!((tcp.sent_bytes(), tcp.received_bytes()), (1000, 900));
        assert_eq!(Throughput::default().cycles_per_byte(), None);
        assert_eq!(Throughput::default().bits_per_second(), 0.0);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(udp(true).is_possible());
        let mut one = udp(true);
        one.streams[0].received_s = -1.0;
        assert!(!one.is_possible());
        let mut one = udp(true);
        one.streams[0].datagrams.as_mut().unwrap().jitter_ms = -1.0;
        assert!(!one.is_possible());
        let mut one = udp(true);
        one.intervals.push(Interval {
            start_s: 2.0,
            end_s: 1.0,
            ..Interval::default()
        });
        assert!(!one.is_possible());
        for (took_s, busy) in [(-1.0, 0.0), (1.0, -1.0)] {
            let one = Throughput {
                took_s,
                server_busy_percent: Some(busy),
                ..udp(true)
            };
            assert!(!one.is_possible());
        }
        let mut one = udp(true);
        one.work.as_mut().unwrap().busy_percent = -1.0;
        assert!(!one.is_possible());
    }

    #[test]
    fn one_size_tells_no_line() {
        assert_eq!(Fit::of(&[]), None);
        assert_eq!(Fit::of(&[(64.0, 1000.0)]), None);
        assert_eq!(Fit::of(&[(64.0, 1000.0), (64.0, 1010.0)]), None);
        assert_eq!(Fit::of(&[(64.0, 0.0), (128.0, 5.0)]), None);
    }

    proptest! {
        #[test]
        fn points_of_a_line_tell_the_line(a in 1.0_f64..1e6, b in 0.0_f64..100.0) {
            let points = [64.0, 128.0, 512.0, 1472.0, 8192.0].map(|x| (x, a + b * x));
            let fit = Fit::of(&points).unwrap();
            prop_assert!((fit.per_packet / a - 1.0).abs() < 1e-3, "{fit:?}");
            prop_assert!((fit.per_byte - b).abs() < 1e-3 * (b + a / 1e4 + 1e-6), "{fit:?}");
        }
    }
}
