//! Payload of TCP connections written to where the guest wants it ([`wireboot_wire::card::placement`]).
//!
//! A unit that is likely to be placed comes from the wire straight to its region, behind the headers in the guest's buffer. Whether that was right is looked
//! at afterwards: what is in a region and was not told of is no more than unused memory, from which another unit is brought back to the buffers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use wireboot_wire::card::placement::{Ends, NOTE_LEN, Note, PlacementRequest, Region};

use crate::frame::{Ip, MAX_HEAD, TCP, Version, u16_at, u32_at};
use crate::header::{DATA_VALID, Header, NEEDS_CSUM};
use crate::memory::{GuestMemory, Span, Unmapped, behind, gather, gather_at, keep, scatter_at};

/// Connections at once, and regions of one.
const CONNECTIONS: usize = 8;
const REGIONS: usize = 8;
/// Bytes of a region at most, so that sequence numbers tell before from behind.
const REGION: u32 = 64 << 20;
/// Ends that the guest has not been told of.
const ENDS: usize = 16;

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// What a pair of queues places.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    connections: Vec<Connection>,
    /// Last regions of connections that are not placed any more, to be told by notes alone.
    ended: VecDeque<u32>,
    /// The room for the next unit, if it is one of the connection that comes first, with headers of so many bytes.
    arranged: Vec<Span>,
    head: Option<usize>,
    /// Where units are to go.
    target: Vec<Span>,
}

/// A connection with at least one region.
#[derive(Debug)]
struct Connection {
    ends: Ends,
    regions: VecDeque<Region>,
    /// The next byte of the stream, once one was placed; until then, the first region's.
    next: u32,
    begun: bool,
    /// Bytes of the headers of the unit that was placed last.
    head: usize,
}

/// What becomes of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitOutcome {
    /// It is in the buffers, as if there were no placement.
    Whole,
    /// Its first `len` bytes are in the buffers. The note belongs behind them.
    Noted { len: usize, note: Note },
    /// The buffers have no room for it, and nothing was told of it; or none for a note behind it, and its connection's placement has ended.
    Lost,
}

/// A segment of TCP, by its headers.
struct Segment {
    ends: Ends,
    sequence: u32,
    flags: u8,
    /// Bytes of all headers, and of the payload.
    head: usize,
    payload: usize,
}

impl Segment {
    /// Reads the first bytes of a unit of `len` bytes. `None` when it is none, or has a tag, options of IP, extension headers, or anything behind it.
    fn parse(head: &[u8], len: usize) -> Option<Self> {
        let ip = Ip::parse(head)?;
        let plain = match ip.version {
            Version::V4 => ip.end == ip.at + 20 && u16_at(head, ip.at + 6)? & 0x3fff == 0,
            Version::V6 => true,
        };
        let whole = ip.at == 14 && ip.at + ip.len == len;
        (plain && whole && ip.protocol == TCP).then_some(())?;
        let data = ip.end + usize::from(head.get(ip.end + 12)? >> 4) * 4;
        (data >= ip.end + 20 && data <= head.len()).then_some(())?;
        let addresses = ip.addresses(head)?;
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        Some(Self {
            ends: Ends {
                remote: mapped(source)?,
                local: mapped(destination)?,
                remote_port: u16_at(head, ip.end)?,
                local_port: u16_at(head, ip.end + 2)?,
            },
            sequence: u32_at(head, ip.end + 4)?,
            flags: *head.get(ip.end + 13)?,
            head: data,
            payload: len.checked_sub(data)?,
        })
    }
}

/// An address of 4 or 16 bytes, IPv4 ones mapped.
fn mapped(address: &[u8]) -> Option<[u8; 16]> {
    if let Ok(address) = address.try_into() {
        return Some(address);
    }
    let [a, b, c, d] = *address.first_chunk()?;
    Some([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
}

impl Connection {
    /// The sequence number behind its last region.
    fn end(&self) -> u32 {
        let last = self.regions.back();
        last.map_or(self.next, |last| last.sequence.wrapping_add(last.len))
    }

    /// Bytes of its regions that are not filled yet.
    fn room(&self) -> usize {
        self.end().wrapping_sub(self.next) as usize
    }

    /// Where the next `len` bytes of its stream go, or as many as there is room for.
    fn target(&self, len: usize, spans: &mut Vec<Span>) {
        spans.clear();
        let mut skip = self.next.wrapping_sub(self.first());
        for region in &self.regions {
            let cut = skip.min(region.len);
            skip -= cut;
            spans.push(Span {
                // No overflow: the region lies in the guest's memory.
                address: region.address.wrapping_add(cut.into()),
                len: region.len - cut,
            });
        }
        keep(spans, len);
    }

    /// The sequence number of its first region.
    fn first(&self) -> u32 {
        self.regions
            .front()
            .map_or(self.next, |region| region.sequence)
    }

    /// The next `len` bytes are in place.
    fn advance(&mut self, len: u32) -> Option<Note> {
        let region = self.regions.front()?;
        let note = Note::Placed {
            id: region.id,
            at: self.next.wrapping_sub(region.sequence),
            len,
        };
        self.next = self.next.wrapping_add(len);
        self.begun = true;
        while let Some(region) = self.regions.front()
            && self.next.wrapping_sub(region.sequence) >= region.len
        {
            self.regions.pop_front();
        }
        Some(note)
    }
}

impl Placement {
    /// Nothing is placed, and nothing is to be told.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.ended.is_empty()
    }

    /// Bytes behind a unit that a note may take.
    pub(crate) fn note_room(&self) -> usize {
        if self.is_idle() { 0 } else { NOTE_LEN }
    }

    /// All that was asked for is forgotten.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Takes a request of the guest's. False when it names memory that the guest does not have, or too much: its connection is not placed.
    pub(crate) fn accept<M: GuestMemory>(
        &mut self,
        memory: &M,
        request: &PlacementRequest,
    ) -> bool {
        match request {
            // One that this card has never heard of was lent to another, which was at its place.
            PlacementRequest::Leave(ends, id) => {
                if let Some(index) = self.find(ends) {
                    self.connections.remove(index);
                }
                self.tell(*id);
                true
            }
            PlacementRequest::Fill(ends, region) => self.fill(memory, ends, *region),
        }
    }

    fn fill<M: GuestMemory>(&mut self, memory: &M, ends: &Ends, region: Region) -> bool {
        let span = Span {
            address: region.address,
            len: region.len,
        };
        let good = region.len <= REGION && memory.contains(span);
        let index = self.find(ends);
        let more = self.connections.len() < CONNECTIONS;
        let known = index.and_then(|index| self.connections.get_mut(index));
        match known {
            Some(known)
                if good && known.regions.len() < REGIONS && known.end() == region.sequence =>
            {
                known.regions.push_back(region);
            }
            None if good && more => {
                self.connections.push(Connection {
                    ends: *ends,
                    regions: VecDeque::from([region]),
                    next: region.sequence,
                    begun: false,
                    head: 0,
                });
            }
            _ => {
                // This one, and those of its connection before it.
                if let Some(index) = index {
                    self.connections.remove(index);
                }
                self.tell(region.id);
            }
        }
        good
    }

    fn find(&self, ends: &Ends) -> Option<usize> {
        self.connections
            .iter()
            .position(|connection| connection.ends == *ends)
    }

    /// Ends a connection's placement. Its last region.
    fn remove(&mut self, index: usize) -> Option<u32> {
        let last = self.connections.get(index)?.regions.back()?.id;
        self.connections.remove(index);
        Some(last)
    }

    /// A guest that asks for ever more without taking answers is not told of all.
    pub(crate) fn tell(&mut self, id: u32) {
        if self.ended.len() < ENDS {
            self.ended.push_back(id);
        }
    }

    /// The last region of a connection whose end is to be told by a note alone.
    pub(crate) fn take_ended(&mut self) -> Option<u32> {
        self.ended.pop_front()
    }

    /// Whether [`Self::take_ended`] has one.
    pub(crate) fn tells(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The room for the next unit of up to `least` bytes, for which the guest has given the buffers `found`: with the regions of the connection
    /// that had the last one, where its payload is likely to belong. It is no longer than the buffers, as all that belongs elsewhere comes there.
    pub(crate) fn arrange<'a>(
        &'a mut self,
        found: &'a [Span],
        least: usize,
        most: usize,
    ) -> &'a [Span] {
        self.head = None;
        let Some(connection) = self.connections.first().filter(|first| first.begun) else {
            return found;
        };
        if connection.room() < least {
            return found;
        }
        self.arranged.clear();
        let mut left = connection.head as u32;
        for span in found {
            let len = span.len.min(left);
            self.arranged.push(Span { len, ..*span });
            left -= len;
            if left == 0 {
                break;
            }
        }
        if left > 0 {
            return found;
        }
        let room: usize = found.iter().map(|span| span.len as usize).sum();
        let most = most.min(room.saturating_sub(connection.head));
        connection.target(most, &mut self.target);
        self.arranged.extend_from_slice(&self.target);
        self.head = Some(connection.head);
        &self.arranged
    }

    /// Places the payload of a unit that has come to the room that was arranged last, or leaves the whole unit in the guest's buffers
    /// (`found`, with room for `room` bytes).
    pub(crate) fn place_unit<M: GuestMemory>(
        &mut self,
        memory: &M,
        found: &[Span],
        room: usize,
        header: &Header,
        len: usize,
    ) -> Result<UnitOutcome, Unmapped> {
        let arranged = self.head.take();
        if len > room {
            return Ok(UnitOutcome::Lost);
        }
        let mut bytes = [0; MAX_HEAD];
        let head = bytes.get_mut(..len.min(MAX_HEAD)).unwrap_or_default();
        let filled = if arranged.is_some() {
            &self.arranged
        } else {
            found
        };
        gather(memory, filled, head)?;
        let segment = Segment::parse(head, len).filter(|segment| segment.payload > 0);
        let index = segment
            .as_ref()
            .and_then(|segment| self.find(&segment.ends));
        // Straight to its place.
        if let (Some(segment), Some(0)) = (&segment, index)
            && arranged == Some(segment.head)
            && let Some(connection) = self.connections.first_mut()
            && segment.sequence == connection.next
            && may_be_placed(segment, header)
            && segment.payload <= connection.room()
            && segment.head + NOTE_LEN <= room
        {
            return Ok(noted(segment.head, self.advance(0, segment.payload)));
        }
        if let Some(head) = arranged.filter(|head| *head < len) {
            behind(&self.arranged, head as u32, &mut self.target);
            copy(memory, (&self.target, 0), (found, head), len - head)?;
        }
        let (Some(segment), Some(index)) = (segment, index) else {
            return Ok(UnitOutcome::Whole);
        };
        self.place_segment(memory, (found, room), header, &segment, index)
    }

    /// The same for a segment of a connection, all of which is in the guest's buffers.
    fn place_segment<M: GuestMemory>(
        &mut self,
        memory: &M,
        (found, room): (&[Span], usize),
        header: &Header,
        segment: &Segment,
        index: usize,
    ) -> Result<UnitOutcome, Unmapped> {
        let Some(connection) = self.connections.get_mut(index) else {
            return Ok(UnitOutcome::Whole);
        };
        // How far it begins before the next byte, and ends behind it.
        let before = connection.next.wrapping_sub(segment.sequence) as i32;
        let beyond = i64::try_from(segment.payload).unwrap_or(i64::MAX) - i64::from(before);
        if beyond <= 0 {
            return Ok(UnitOutcome::Whole);
        }
        let fits = usize::try_from(beyond).is_ok_and(|beyond| beyond <= connection.room());
        let len = segment.head + segment.payload;
        let may = before >= 0 && fits && may_be_placed(segment, header);
        let at = if may {
            segment.head + before as usize
        } else {
            len
        };
        if !may || at + NOTE_LEN > room {
            let last = self.remove(index);
            if at + NOTE_LEN > room {
                last.into_iter().for_each(|id| self.tell(id));
                return Ok(UnitOutcome::Lost);
            }
            return Ok(noted(len, last.map(|id| Note::Ended { id })));
        }
        connection.target(len - at, &mut self.target);
        copy(memory, (found, at), (&self.target, 0), len - at)?;
        connection.head = segment.head;
        Ok(noted(at, self.advance(index, len - at)))
    }

    /// The next `len` bytes of a connection are in place. It is the first one from now on.
    fn advance(&mut self, index: usize, len: usize) -> Option<Note> {
        let connection = self.connections.get_mut(index)?;
        let note = connection.advance(u32::try_from(len).ok()?);
        if connection.regions.is_empty() {
            self.connections.remove(index);
        } else {
            self.connections.swap(0, index);
        }
        note
    }
}

fn may_be_placed(segment: &Segment, header: &Header) -> bool {
    header.flags & (NEEDS_CSUM | DATA_VALID) != 0 && segment.flags & !PSH == ACK
}

fn noted(len: usize, note: Option<Note>) -> UnitOutcome {
    note.map_or(UnitOutcome::Whole, |note| UnitOutcome::Noted { len, note })
}

/// Copies `len` bytes from one place in the guest's memory to another, each from its first bytes on.
///
/// # Errors
/// [`Unmapped`], also when one of them is shorter.
fn copy<M: GuestMemory>(
    memory: &M,
    from: (&[Span], usize),
    to: (&[Span], usize),
    len: usize,
) -> Result<(), Unmapped> {
    let mut bytes = [0; 1024];
    let mut done = 0;
    while done < len {
        let count = (len - done).min(bytes.len());
        let bytes = bytes.get_mut(..count).unwrap_or_default();
        let whole = gather_at(memory, from.0, from.1 + done, bytes)?
            && scatter_at(memory, to.0, to.1 + done, bytes)?;
        whole.then_some(()).ok_or(Unmapped)?;
        done += count;
    }
    Ok(())
}
