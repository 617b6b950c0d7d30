//! What went through a card.

use core::ops::AddAssign;

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
    /// From the guest, lost by the wire, or because the queue loses all.
    pub send_lost: u64,
    /// From the guest, lost because no Ethernet frame is so short or so long.
    pub send_bad_length: u64,
    /// Questions of the guest to the card itself that were answered.
    pub hellos: u64,
    /// From the guest, lost because they say nothing that the card itself understands.
    pub send_not_understood: u64,
    /// Chunks of more than one unit from the guest.
    pub sent_chunks: u64,
    /// Units in [`Self::sent_chunks`]; [`Self::sent`] counts them, too.
    pub sent_chunk_units: u64,
    /// From the wire to the guest.
    pub received: Traffic,
    /// Chunks of more than one unit to the guest.
    pub received_chunks: u64,
    /// Units in [`Self::received_chunks`]; [`Self::received`] counts them, too.
    pub received_chunk_units: u64,
    /// Units of which payload went to where the guest wants it, and the bytes of that; [`Self::received`] counts them, too.
    pub placed: Traffic,
    /// Requests to place payload in memory that the guest does not have, or too much at once.
    pub placements_refused: u64,
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

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        let Self { units, bytes } = other;
        self.units += units;
        self.bytes += bytes;
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Self {
            sent,
            send_lost,
            send_bad_length,
            received,
            receive_too_long,
            receive_not_agreed,
            no_room,
            calls,
            faults,
            hellos,
            send_not_understood,
            sent_chunks,
            sent_chunk_units,
            received_chunks,
            received_chunk_units,
            receive_left,
            receive_pretended,
            placed,
            placements_refused,
        } = other;
        self.placed += placed;
        self.placements_refused += placements_refused;
        self.sent += sent;
        self.send_lost += send_lost;
        self.send_bad_length += send_bad_length;
        self.received += received;
        self.receive_too_long += receive_too_long;
        self.receive_not_agreed += receive_not_agreed;
        self.no_room += no_room;
        self.calls += calls;
        self.hellos += hellos;
        self.send_not_understood += send_not_understood;
        self.sent_chunks += sent_chunks;
        self.sent_chunk_units += sent_chunk_units;
        self.received_chunks += received_chunks;
        self.received_chunk_units += received_chunk_units;
        self.receive_left += receive_left;
        self.receive_pretended += receive_pretended;
        for (fault, other) in self.faults.iter_mut().zip(faults) {
            *fault += other;
        }
    }
}

impl AddAssign for OffloadCounters {
    fn add_assign(&mut self, other: Self) {
        let Self {
            cut_units,
            cut_frames,
            joined_units,
            joined_segments,
            joined_datagrams,
            joined_fragments,
            dropped_fragments,
            waiting_fragments,
            dropped_frames,
        } = other;
        self.cut_units += cut_units;
        self.cut_frames += cut_frames;
        self.joined_units += joined_units;
        self.joined_segments += joined_segments;
        self.joined_datagrams += joined_datagrams;
        self.joined_fragments += joined_fragments;
        self.dropped_fragments += dropped_fragments;
        self.waiting_fragments += waiting_fragments;
        self.dropped_frames += dropped_frames;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_each_counter() {
        let traffic = |units| Traffic {
            units,
            bytes: 100 * units,
        };
        let counters = |n| Counters {
            sent: traffic(n),
            send_lost: 2 * n,
            send_bad_length: 3 * n,
            received: traffic(4 * n),
            receive_too_long: 5 * n,
            receive_not_agreed: 6 * n,
            no_room: 7 * n,
            calls: 8 * n,
            hellos: 10 * n,
            send_not_understood: 11 * n,
            sent_chunks: 12 * n,
            sent_chunk_units: 13 * n,
            received_chunks: 14 * n,
            received_chunk_units: 15 * n,
            receive_left: 16 * n,
            receive_pretended: 17 * n,
            placed: traffic(18 * n),
            placements_refused: 19 * n,
            faults: [9 * n; RingFault::ALL.len()],
        };
        let mut sum = counters(1);
        sum += counters(10);
        assert_eq!(sum, counters(11));
        let offload = |n| OffloadCounters {
            cut_units: n,
            cut_frames: 2 * n,
            joined_units: 3 * n,
            joined_segments: 4 * n,
            joined_datagrams: 5 * n,
            joined_fragments: 6 * n,
            dropped_fragments: 7 * n,
            waiting_fragments: 8 * n,
            dropped_frames: 9 * n,
        };
        let mut sum = offload(1);
        sum += offload(10);
        assert_eq!(sum, offload(11));
    }
}
