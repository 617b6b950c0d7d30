//! Several engines on the queue pairs of one card, each on an AP (application processor) of its own.
//!
//! They share a station and IP address and nothing else. A connection belongs to the engine that made it, which chose a local port
//! for which the card's [`Steering`] leads to its queue. What a queue receives beside that goes to its owner through rings, with
//! the leader, the engine on the first pair, in the middle:
//!
//! ```text
//!         TCP of worker 1's, packets of its that were too long,
//!         what neighbours say of themselves                             ... of worker 2's
//!  worker 1  <----------------------------------------  leader  ---------------------------------->  worker 2
//!            ---------------------------------------->          <----------------------------------
//!             everything but TCP of its own: ARP, ICMP, UDP, TCP of others
//! ```
//!
//! So one engine alone speaks for the station, and no segment is answered with a reset by an engine that merely does not know its
//! connection. A worker has no configuration: for each host that it is to talk to, it is told a [`Route`](crate::Route). It asks for
//! the next hop itself, by ARP or neighbour discovery, and hears the answer through the leader.
//!
//! Frames on this way are copied, for they are few; where they are not (a card that steers otherwise than it says), a full
//! ring loses them as a wire does, and counts them.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use wireboot_nic::{Checksum, Frame, Steering};
use wireboot_ring::{Receiver, Sender, channel};

use crate::neighbors::NeighborUpdate;
use crate::packet::Ends;
use crate::parts::Parts;
use crate::path_mtu::TooBig;

/// Messages under way from one engine to another: as many as a burst has.
const RING: usize = 64;

/// What engines give each other.
pub(crate) enum Passed {
    /// A received unit, to the engine that it belongs to.
    Frame(Unit),
    /// The leader has heard of a neighbour's Ethernet address.
    Neighbor(NeighborUpdate),
    /// The leader has heard that a packet of a worker's was too long.
    TooBig(TooBig),
}

/// A received unit, copied to be given to another engine.
pub(crate) struct Unit {
    bytes: Box<[u8]>,
    /// As the device said: what it did not vouch for is verified again.
    checksum: Checksum,
    udp_segment: Option<u16>,
}

impl Unit {
    fn new(frame: &Frame<'_>) -> Self {
        let mut bytes = vec![0; frame.len].into_boxed_slice();
        Parts::new(frame.parts).copy_to(&mut bytes);
        Self {
            bytes,
            checksum: frame.checksum,
            udp_segment: frame.udp_segment,
        }
    }

    /// Shows it as it was received.
    pub(crate) fn with(&self, show: impl FnOnce(&Frame<'_>)) {
        show(&Frame {
            parts: &[&self.bytes],
            len: self.bytes.len(),
            checksum: self.checksum,
            udp_segment: self.udp_segment,
        });
    }
}

/// The way to another engine and back.
struct Lane {
    to: Sender<Passed>,
    from: Receiver<Passed>,
}

/// Frames, and what was read in frames, that an engine gave to others of its team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Frames that were given to the peer whose flow they are of.
    pub frames: u64,
    /// Lost because the other did not take its frames in time.
    pub lost: u64,
}

/// One engine of a team: which queue pair is its own, and the rings to the others.
pub struct Peer {
    index: usize,
    steering: Steering,
    /// A worker's to the leader; the leader's to each worker, from the first on.
    lanes: Vec<Lane>,
    pub(crate) forwarded: Forwarded,
}

/// A team with an engine for each pair of `steering`: the leader, whose engine runs on the first pair, and its workers on the
/// others, in their order.
#[must_use]
pub fn team(steering: &Steering) -> (Peer, Vec<Peer>) {
    let peer = |index, lanes| Peer {
        index,
        steering: *steering,
        lanes,
        forwarded: Forwarded::default(),
    };
    let mut lanes = Vec::new();
    let mut workers = Vec::new();
    for index in 1..steering.pairs() {
        let (there, from_leader) = channel(RING);
        let (to_leader, back) = channel(RING);
        lanes.push(Lane {
            to: there,
            from: back,
        });
        let lane = Lane {
            to: to_leader,
            from: from_leader,
        };
        workers.push(peer(index, vec![lane]));
    }
    (peer(0, lanes), workers)
}

impl Peer {
    /// Whether this engine is the leader.
    pub(crate) fn is_leader(&self) -> bool {
        self.index == 0
    }

    /// Whether the segments from `remote` to `local` are this engine's.
    pub(crate) fn owns(&self, remote: SocketAddr, local: SocketAddr) -> bool {
        self.steering.pair(remote, local) == self.index
    }

    /// Gives a worker's frame to the leader; false on the leader itself.
    pub(crate) fn give_leader(&mut self, frame: &Frame<'_>) -> bool {
        self.pass(0, || Passed::Frame(Unit::new(frame)))
    }

    /// Gives a segment that this engine does not own towards the one that does; false when it owns it itself.
    pub(crate) fn give_owner(&mut self, frame: &Frame<'_>, ends: &Ends) -> bool {
        let owner = self.steering.pair(ends.remote_end(), ends.local_end());
        self.pass(owner, || Passed::Frame(Unit::new(frame)))
    }

    /// Gives what is said of a packet towards the engine that sent it; false when that is this one.
    pub(crate) fn give_sender(&mut self, too_big: &TooBig) -> bool {
        let quoted = &too_big.quoted;
        let sender = self.steering.pair(quoted.remote, quoted.local);
        self.pass(sender, || Passed::TooBig(*too_big))
    }

    fn pass(&mut self, owner: usize, what: impl FnOnce() -> Passed) -> bool {
        if owner == self.index {
            return false;
        }
        // The leader's lanes begin with the first worker's; a worker has the one to the leader.
        let lane = if self.is_leader() {
            owner.saturating_sub(1)
        } else {
            0
        };
        self.forward(lane, what);
        true
    }

    /// Tells all workers what the leader has heard of a neighbour.
    pub(crate) fn tell_all(&mut self, update: &NeighborUpdate) {
        if self.is_leader() {
            for lane in 0..self.lanes.len() {
                self.forward(lane, || Passed::Neighbor(*update));
            }
        }
    }

    fn forward(&mut self, lane: usize, what: impl FnOnce() -> Passed) {
        let lane = self.lanes.get_mut(lane).filter(|lane| lane.to.room() > 0);
        let sent = lane.is_some_and(|lane| lane.to.push(what()).is_ok());
        self.forwarded.frames += u64::from(sent);
        self.forwarded.lost += u64::from(!sent);
    }

    /// What the others gave to this engine: so many frames at most from each.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Passed> {
        self.lanes
            .iter_mut()
            .flat_map(|lane| core::iter::from_fn(move || lane.from.pop()).take(most))
            .collect()
    }
}

#[cfg(test)]
mod tests;
