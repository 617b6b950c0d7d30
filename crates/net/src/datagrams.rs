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

/// Datagrams that wait for a reader that is slow.
const WAITING: usize = 64;

/// Takes the datagrams of a port while they are on loan: one copy, from DMA memory to their final place.
pub trait DatagramSink {
    /// One datagram's payload, and between whom. Called in the middle of a burst: it must not use the [`Stack`](crate::Stack).
    fn datagram(&mut self, ends: &Ends, payload: Parts<'_>, now: Instant);
}

/// A UDP port in use, and who takes its datagrams.
pub(crate) struct Binding {
    pub port: u16,
    pub sink: Rc<RefCell<dyn DatagramSink>>,
    /// Who said last that nobody listens there.
    pub refused: Option<SocketAddr>,
}

/// Datagrams and their senders, for a reader. Those that find [`WAITING`] are dropped, as the network would.
#[derive(Default)]
pub(crate) struct Queue(VecDeque<(SocketAddr, Vec<u8>)>);

impl Queue {
    pub(crate) fn pop(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.0.pop_front()
    }
}

impl DatagramSink for Queue {
    fn datagram(&mut self, ends: &Ends, payload: Parts<'_>, _: Instant) {
        if self.0.len() < WAITING {
            let mut bytes = vec![0; payload.len()];
            payload.copy_to(&mut bytes);
            self.0.push_back((ends.remote_end(), bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_datagrams_wait_for_a_reader_and_no_more() {
        let ends = Ends::new(([10, 0, 0, 2], 69).into(), ([10, 0, 0, 1], 5000).into());
        let mut queue = Queue::default();
        for number in 0..100 {
            queue.datagram(&ends, Parts::new(&[&[number]]), Instant::ZERO);
        }
        let waiting = core::iter::from_fn(|| queue.pop());
        let waiting: Vec<_> = waiting.map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(waiting, (0..64).collect::<Vec<_>>());
    }
}
