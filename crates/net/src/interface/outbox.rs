//! Frames that wait for their next hop or for the transmit ring.

use super::NextHop;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wireboot_nic::Offload;

/// Datagrams of sockets that may wait; more are refused.
pub(super) const WAITING: usize = 64;
/// So many more may wait of what nobody is refused: broadcasts, and what the station itself has to say, the questions for those next hops among it.
pub(super) const OWN: usize = 48;
/// Strangers are answered only while fewer frames than this of the station's own wait for a neighbour, or to leave in this turn.
const ANSWERS: usize = 16;

/// A frame that is complete but for the address of its next hop.
pub(super) struct Outgoing {
    pub frame: Vec<u8>,
    pub offload: Offload,
    pub to: NextHop,
}

/// In the order in which they were given, a socket's among the station's own.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: VecDeque<(Outgoing, Whose)>,
    datagrams: usize,
    /// Memory of frames that have left, for the next ones.
    spare: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Socket,
    Station,
}

impl Outbox {
    /// Whether a socket's datagram may wait.
    pub(super) fn has_room(&self) -> bool {
        self.datagrams < WAITING
    }

    /// Whether an answer to a stranger may wait: answers that wait for a neighbour take no room of those that leave in this turn.
    pub(super) fn has_room_for_answer(&self, to: NextHop) -> bool {
        let waits = |to: NextHop| matches!(to, NextHop::Neighbor(_));
        let alike = |(out, whose): &&(Outgoing, Whose)| {
            *whose == Whose::Station && waits(out.to) == waits(to)
        };
        self.waiting.iter().filter(alike).count() < ANSWERS
    }

    fn own(&self) -> usize {
        self.waiting.len() - self.datagrams
    }

    /// Adds a socket's datagram, if it may wait.
    pub(super) fn push_datagram(&mut self, out: Outgoing) {
        if self.has_room() {
            self.waiting.push_back((out, Whose::Socket));
            self.datagrams += 1;
        }
    }

    /// Adds a frame of the station's own, unless too many wait.
    pub(super) fn push(&mut self, out: Outgoing) {
        if self.own() < OWN {
            self.waiting.push_back((out, Whose::Station));
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Outgoing> {
        self.waiting.get_mut(index).map(|(out, _)| out)
    }

    /// One is not to leave any more.
    pub(super) fn remove(&mut self, index: usize) -> Option<Outgoing> {
        let (out, whose) = self.waiting.remove(index)?;
        self.datagrams -= usize::from(whose == Whose::Socket);
        Some(out)
    }

    /// One has left, and its memory serves again.
    pub(super) fn left(&mut self, index: usize) {
        if let Some(out) = self.remove(index)
            && self.spare.len() < WAITING
        {
            self.spare.push(out.frame);
        }
    }

    /// Memory for a frame. What it holds is anything.
    pub(super) fn memory(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
}

#[cfg(test)]
impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn last(&self) -> Option<&Outgoing> {
        self.waiting.back().map(|(out, _)| out)
    }

    pub(super) fn spare(&self) -> usize {
        self.spare.len()
    }
}
