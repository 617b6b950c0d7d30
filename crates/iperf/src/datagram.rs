//! iperf3's datagrams: the time of sending and a number, in front of the payload.

use core::net::SocketAddr;
use wireboot_net::{DatagramSink, Ends, Instant, Parts};

/// Bytes of seconds, microseconds and number.
pub(crate) const HEADER: usize = 16;

/// Writes the header of datagram `number`, the first of which is 1.
pub(crate) fn stamp(datagram: &mut [u8], number: u64, now: Instant) {
    let micros = now.total_micros().max(0) as u64;
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    let mut header = [0; HEADER];
    let fields = (seconds as u32)
        .to_be_bytes()
        .into_iter()
        .chain((rest as u32).to_be_bytes())
        .chain(number.to_be_bytes());
    header
        .iter_mut()
        .zip(fields)
        .for_each(|(to, byte)| *to = byte);
    if let Some(place) = datagram.first_chunk_mut() {
        *place = header;
    }
}

/// What has come of a stream.
#[derive(Debug)]
pub(crate) struct Tally {
    server: SocketAddr,
    /// Whether what comes belongs to the test: until that has ended.
    pub counts: bool,
    /// The server has answered our first datagram.
    pub answered: bool,
    pub bytes: u64,
    pub datagrams: u64,
    /// The highest number that came.
    pub highest: u64,
    pub out_of_order: u64,
    lost: u64,
    /// The smoothed difference of transit times (RFC 3550 section 6.4.1), in microseconds.
    jitter: f64,
    /// From sending to receiving by clocks that differ, in microseconds.
    transit: Option<i64>,
}

impl Tally {
    /// Of datagrams from `server`.
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            counts: true,
            answered: false,
            bytes: 0,
            datagrams: 0,
            highest: 0,
            out_of_order: 0,
            lost: 0,
            jitter: 0.0,
            transit: None,
        }
    }

    /// Datagrams up to the highest number that did not come.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn jitter_seconds(&self) -> f64 {
        self.jitter * 1e-6
    }

    fn count(&mut self, len: usize, header: [u8; HEADER], now: Instant) {
        self.bytes += len as u64;
        self.datagrams += 1;
        let number = header.iter().skip(8);
        let number = number.fold(0, |all, byte| all << 8 | u64::from(*byte));
        if number > self.highest {
            // A server that counts as it likes is no reason to overflow.
            self.lost = self.lost.saturating_add(number - self.highest - 1);
            self.highest = number;
        } else {
            self.out_of_order += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        let field = |at: usize| {
            let bytes = header.iter().skip(at).take(4);
            bytes.fold(0, |all, byte| all << 8 | i64::from(*byte))
        };
        let transit = now.total_micros() - (field(0) * 1_000_000 + field(4));
        let before = self.transit.replace(transit).unwrap_or(transit);
        // RFC 1889, section 6.3.1.
        self.jitter += (transit.abs_diff(before) as f64 - self.jitter) / 16.0;
    }

    /// Takes a datagram of `from`.
    #[inline]
    fn take(&mut self, from: SocketAddr, payload: Parts<'_>, now: Instant) {
        if from != self.server {
            return;
        }
        self.answered = true;
        let mut header = [0; HEADER];
        // The answer to the first datagram has four bytes.
        if self.counts && payload.copy_to(&mut header) == HEADER {
            self.count(payload.len(), header, now);
        }
    }
}

impl DatagramSink for Tally {
    #[inline]
    fn datagram(&mut self, ends: &Ends, payload: Parts<'_>, now: Instant) {
        self.take(ends.remote_end(), payload, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 5201);

    fn tally() -> Tally {
        Tally::new(SERVER.into())
    }

    fn give(tally: &mut Tally, from: SocketAddr, bytes: &[u8], micros: i64) {
        tally.take(from, Parts::new(&[bytes]), Instant::from_micros(micros));
    }

    fn numbered(number: u64, sent: i64) -> [u8; 100] {
        let mut datagram = [7; 100];
        stamp(&mut datagram, number, Instant::from_micros(sent));
        datagram
    }

    #[test]
    fn a_header_has_time_and_number() {
        let datagram = numbered(0x0102_0304_0506, 3_000_005);
        assert_eq!(
            datagram[..17],
            [0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 1, 2, 3, 4, 5, 6, 7]
        );
        // One that has no room stays as it is.
        let mut short = [7; 15];
        stamp(&mut short, 1, Instant::ZERO);
        assert_eq!(short, [7; 15]);
    }

    #[test]
    fn gaps_are_losses_until_they_are_filled() {
        let mut tally = tally();
        for number in [1, 2, 5, 4] {
            give(&mut tally, SERVER.into(), &numbered(number, 0), 0);
        }
        assert_eq!((tally.datagrams, tally.highest, tally.bytes), (4, 5, 400));
        assert_eq!((tally.lost(), tally.out_of_order), (1, 1));
        // Twice the same is no loss, and none less than none.
        give(&mut tally, SERVER.into(), &numbered(3, 0), 0);
        give(&mut tally, SERVER.into(), &numbered(3, 0), 0);
        assert_eq!((tally.lost(), tally.out_of_order), (0, 3));
        give(&mut tally, SERVER.into(), &numbered(u64::MAX, 0), 0);
        assert_eq!(tally.lost(), u64::MAX - 6);
        assert_eq!(tally.jitter_seconds(), 0.0);
    }

    #[test]
    fn jitter_is_the_smoothed_difference_of_transit_times() {
        let mut tally = tally();
        give(&mut tally, SERVER.into(), &numbered(1, 900), 100);
        assert_eq!(tally.jitter_seconds(), 0.0);
        give(&mut tally, SERVER.into(), &numbered(2, 1000), 216);
        assert!((tally.jitter_seconds() - 1e-6).abs() < 1e-12);
        give(&mut tally, SERVER.into(), &numbered(3, 1100), 300);
        assert!((tally.jitter_seconds() - (1.0 + 15.0 / 16.0) * 1e-6).abs() < 1e-12);
    }

    #[test]
    fn strangers_and_what_comes_outside_of_the_test_do_not_count() {
        let mut tally = tally();
        give(&mut tally, ([10, 0, 0, 9], 5201).into(), &numbered(1, 0), 0);
        give(&mut tally, ([10, 0, 0, 2], 5202).into(), &numbered(1, 0), 0);
        assert!(!tally.answered && tally.datagrams == 0);
        give(&mut tally, SERVER.into(), &[0; 15], 0);
        assert!(tally.answered && tally.datagrams == 0);
        tally.counts = false;
        give(&mut tally, SERVER.into(), &numbered(1, 0), 0);
        assert_eq!(tally.datagrams, 0);
    }

    proptest! {
        #[test]
        fn any_datagram_is_counted_or_not(all in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..40), any::<i32>()), 0..20)) {
            let mut tally = tally();
            for (bytes, micros) in &all {
                give(&mut tally, SERVER.into(), bytes, i64::from(*micros));
            }
            let long: Vec<_> = all.iter().filter(|(bytes, _)| bytes.len() >= HEADER).collect();
            prop_assert_eq!(tally.datagrams, long.len() as u64);
            prop_assert!(tally.jitter_seconds() >= 0.0);
        }
    }
}
