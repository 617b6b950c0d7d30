//! Who takes the datagrams of a port.

use crate::packet::Ends;
use crate::parts::Parts;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::SocketAddr;
use wireboot_tcp::Instant;

/// Takes the datagrams of a port while they are on loan: one copy, from DMA memory to their final place.
pub trait DatagramSink {
    /// One datagram's payload, and between whom. Called in the middle of a burst: it must not use the [`Stack`](crate::Stack).
    fn datagram(&mut self, ends: &Ends, payload: Parts<'_>, now: Instant);
}

/// A bound port.
pub struct Binding {
    pub port: u16,
    pub sink: Rc<RefCell<dyn DatagramSink>>,
    /// Who said last that nobody listens there.
    pub refused: Option<SocketAddr>,
}

/// Datagrams and their senders, for a reader. So many wait for one that is slow; later ones are dropped, as the network would.
pub struct Queue {
    limit: usize,
    datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
}

impl Queue {
    pub fn new(limit: usize) -> Self {
        let datagrams = VecDeque::new();
        Self { limit, datagrams }
    }

    pub fn pop(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.datagrams.pop_front()
    }
}

impl DatagramSink for Queue {
    fn datagram(&mut self, ends: &Ends, payload: Parts<'_>, _: Instant) {
        if self.datagrams.len() < self.limit {
            let mut bytes = vec![0; payload.len()];
            payload.copy_to(&mut bytes);
            self.datagrams.push_back((ends.remote_end(), bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_datagrams_wait_for_a_reader_and_no_more() {
        let ends = Ends::new(([10, 0, 0, 2], 69).into(), ([10, 0, 0, 1], 5000).into());
        let mut queue = Queue::new(2);
        for bytes in [b"one", b"two", b"six"] {
            queue.datagram(&ends, Parts::new(&[bytes]), Instant::ZERO);
        }
        let waiting = core::iter::from_fn(|| queue.pop());
        let waiting: Vec<_> = waiting.map(|(_, bytes)| bytes).collect();
        assert_eq!(waiting, [b"one", b"two"]);
    }
}
