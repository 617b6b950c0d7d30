//! What a test is to measure.

use core::net::SocketAddr;
use wireboot_report::throughput::{Direction, Transport};

/// When a test is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After so many seconds.
    Seconds(u32),
    /// After so many bytes, all streams of a direction together.
    Bytes(u64),
}

/// What a test is to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Where iperf3 listens: its control connection and all streams go there.
    pub server: SocketAddr,
    /// By TCP or UDP.
    pub transport: Transport,
    /// Whether this machine sends, receives, or both.
    pub direction: Direction,
    /// Streams in each direction.
    pub parallel: u32,
    /// When the test ends: after so many seconds or bytes.
    pub limit: Limit,
    /// Bytes of a write or of a datagram; `None` for 128 KiB, and for datagrams that fill a packet.
    pub length: Option<u32>,
    /// The largest segment of TCP, where it is to be smaller than the path takes.
    pub mss: Option<u16>,
    /// Bits a second of each stream; `None` for as many as there can be.
    pub bandwidth: Option<u64>,
}

/// Streams in each direction that a test may have: what each needs of memory and of the receive ring has an end.
pub(crate) const MOST_STREAMS: u32 = 32;

impl Test {
    /// Ten seconds of one TCP stream to the server.
    #[must_use]
    pub fn new(server: SocketAddr) -> Self {
        Self {
            server,
            transport: Transport::Tcp,
            direction: Direction::Send,
            parallel: 1,
            limit: Limit::Seconds(10),
            length: None,
            mss: None,
            bandwidth: None,
        }
    }

    /// Its streams: number at both ends, and whether we send.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (u32, bool)> + use<> {
        let each = self.parallel.clamp(1, MOST_STREAMS);
        let (sending, receiving) = match self.direction {
            Direction::Receive => (0, each),
            Direction::Both => (each, each),
            Direction::Send | Direction::Other => (each, 0),
        };
        // iperf3 calls the second stream 3.
        let number = |index| if index == 0 { 1 } else { index + 2 };
        (0..sending + receiving).map(move |index| (number(index), index < sending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn streams_have_iperf3s_numbers_and_senders_come_first() {
        let mut test = Test::new(([10, 0, 0, 2], 5201).into());
        let streams = |test: &Test| test.streams().collect::<Vec<_>>();
        assert_eq!(streams(&test), [(1, true)]);
        test.parallel = 3;
        test.direction = Direction::Receive;
        assert_eq!(streams(&test), [(1, false), (3, false), (4, false)]);
        test.parallel = 2;
        test.direction = Direction::Both;
        let both = [(1, true), (3, true), (4, false), (5, false)];
        assert_eq!(streams(&test), both);
        test.parallel = u32::MAX;
        assert_eq!(streams(&test).len(), 64);
        test.parallel = 0;
        assert_eq!(streams(&test).len(), 2);
    }
}
