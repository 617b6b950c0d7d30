//! What went through a card.

use crate::ring::RingFault;

/// Units and their bytes, link headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// A frame each, or many segments or fragments as one.
    pub units: u64,
    /// Of frames, link headers included, without `virtio_net_hdr`.
    pub bytes: u64,
}

impl Traffic {
    pub(crate) fn count(&mut self, len: usize) {
        self.units += 1;
        self.bytes += len as u64;
    }
}

/// What a card did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// From the guest to the wire.
    pub sent: Traffic,
    /// From the guest, lost by the wire.
    pub send_lost: u64,
    /// From the guest, lost because no Ethernet frame is so short or so long.
    pub send_bad_length: u64,
    /// Questions of the guest to the card itself that were answered.
    pub hellos: u64,
    /// From the guest, lost because they say nothing that the card itself understands.
    pub send_not_understood: u64,
    /// Chunks of more than one unit from the guest, and the units in them.
    pub sent_chunks: u64,
    /// See there.
    pub sent_chunk_units: u64,
    /// From the wire to the guest.
    pub received: Traffic,
    /// Chunks of more than one unit to the guest, and the units in them.
    pub received_chunks: u64,
    /// See there.
    pub received_chunk_units: u64,
    /// From the wire, lost because the guest left its queue while they waited for others.
    pub receive_left: u64,
    /// From the wire, lost because the guest's buffers were too short.
    pub receive_too_long: u64,
    /// From the wire, lost because the guest has not agreed to what its header says.
    pub receive_not_agreed: u64,
    /// From the wire, lost because they pretend to be the card's own words.
    pub receive_pretended: u64,
    /// Turns that did not ask the wire because the guest had no room.
    pub no_room: u64,
    /// Calls (interrupts) of the guest for what it sent and for what it received.
    pub calls: u64,
    /// Queues stopped, by reason: see [`RingFault::index`].
    pub faults: [u64; RingFault::ALL.len()],
}

/// What a card did for a wire that takes and has frames only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadCounters {
    /// Units of the guest's that were cut.
    pub cut_units: u64,
    /// The frames that came of it and that the wire took.
    pub cut_frames: u64,
    /// Units of TCP segments for the guest.
    pub joined_units: u64,
    /// The segments that they came in.
    pub joined_segments: u64,
    /// Datagrams put together for the guest.
    pub joined_datagrams: u64,
    /// The fragments that they came in.
    pub joined_fragments: u64,
    /// Fragments of datagrams that were never whole or contradicted themselves; those that came twice.
    pub dropped_fragments: u64,
    /// Fragments that wait for others.
    pub waiting_fragments: u64,
    /// Frames that a guest left behind.
    pub dropped_frames: u64,
}

impl Counters {
    /// Each reason for which a queue was stopped, and how often.
    pub fn stopped(&self) -> impl Iterator<Item = (RingFault, u64)> {
        RingFault::ALL
            .into_iter()
            .zip(self.faults)
            .filter(|(_, count)| *count != 0)
    }

    pub(crate) fn count_fault(&mut self, fault: RingFault) {
        if let Some(count) = self.faults.get_mut(fault.index()) {
            *count += 1;
        }
    }
}
