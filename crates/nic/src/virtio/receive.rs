//! The receive half: bursts of units straight from the buffers that the device filled.

use alloc::boxed::Box;
use core::slice;

use super::device::{SharedDevice, User};
use super::hello::Agreement;
use super::placed::{Placed, take_note};
use super::queue::VIRTQ_DESC_F_WRITE;
use super::ring::Ring;
use super::shape::{MAX_UNIT, MERGEABLE_BUFFER};
use super::{ETHERNET_LEN, HEADER_LEN, feature};
use crate::platform::{PciFunction, Registers};
use crate::{Checksum, Counters, Fault, Frame, Receive};
use wireboot_wire::card::placement::{NOTE_LEN, Note};
use wireboot_wire::card::{MARK, chunk, is_for_card};

// struct virtio_net_hdr_v1
const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
const VIRTIO_NET_HDR_F_DATA_VALID: u8 = 2;
const VIRTIO_NET_HDR_GSO_UDP_L4: u8 = 5;
/// Comes on top of a GSO type.
const VIRTIO_NET_HDR_GSO_ECN: u8 = 0x80;

/// Buffers that the largest unit can fill.
const MAX_PARTS: usize = (HEADER_LEN + MAX_UNIT + NOTE_LEN).div_ceil(MERGEABLE_BUFFER);
/// Regions that the payload of one unit may be placed in.
const MAX_REGIONS: usize = 4;
/// What the first part of a unit holds at least, by the contract of [`Frame`].
const FIRST_PART_MIN: usize = 128;
const _: () = assert!(FIRST_PART_MIN == chunk::FIRST_PART_MIN && HEADER_LEN == chunk::HEADER_LEN);
/// After this many empty bursts in a row the device is asked whether it is still alive.
const EMPTY_BURSTS_CHECK: u32 = 1 << 16;

/// The receive half of a [`VirtioNet`](super::VirtioNet) or a [`VirtioPair`](super::VirtioPair), on loan.
pub struct VirtioReceive<'a, P: PciFunction> {
    pub(super) queue: &'a mut ReceiveQueue,
    pub(super) user: User<'a, P>,
}

/// A receive queue and its buffers.
pub(super) struct ReceiveQueue {
    ring: Ring,
    /// Buffers to be handed back to the device; the first `free_len` are valid.
    free: Box<[u16]>,
    free_len: usize,
    mergeable: bool,
    checksums: bool,
    udp_segments: bool,
    /// Where the next unit begins in the next buffer: behind others of its chunk, or at 0.
    at: usize,
    max_unit: usize,
    empty_bursts: u32,
    counters: Counters,
    /// With the card itself.
    pub hello: Agreement,
    /// Memory that the card fills besides the buffers.
    pub placed: Placed,
}

/// The fields of the header that matter to a receiver.
struct Header {
    flags: u8,
    gso_type: u8,
    /// With [`chunk::MORE`], the length of the unit.
    hdr_len: u16,
    gso_size: u16,
    num_buffers: u16,
}

impl ReceiveQueue {
    /// Describes all buffers; [`Self::refill`] then gives them to the device.
    pub(super) fn new(mut ring: Ring, features: u64, max_unit: usize) -> Self {
        let size = ring.queue.size();
        for id in 0..size {
            let address = ring.buffers.address(id);
            ring.queue
                .describe(id, address, ring.buffers.len as u32, VIRTQ_DESC_F_WRITE);
        }
        Self {
            ring,
            free: (0..size).collect(),
            free_len: size.into(),
            mergeable: features & feature::MRG_RXBUF != 0,
            checksums: features & feature::GUEST_CSUM != 0,
            udp_segments: features & (feature::GUEST_USO4 | feature::GUEST_USO6) != 0,
            at: 0,
            max_unit,
            empty_bursts: 0,
            counters: Counters::default(),
            hello: Agreement::new(features),
            placed: Placed::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Gives all free buffers to the device.
    pub(super) fn refill<B: Registers>(&mut self, shared: &SharedDevice<B>) {
        let count = core::mem::take(&mut self.free_len);
        for &id in self.free.get(..count).unwrap_or_default() {
            self.ring.queue.offer(id);
        }
        if self.ring.publish(shared) {
            self.counters.receive_doorbells += 1;
        }
    }

    /// Lends up to `budget` units; their buffers are free afterwards.
    fn lend(
        &mut self,
        budget: usize,
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<usize, &'static Fault> {
        let mut returned = usize::from(self.ring.queue.returned()?);
        if returned == 0 {
            return Ok(0);
        }
        let mut parts: [&[u8]; MAX_PARTS] = [&[]; MAX_PARTS];
        let mut units = 0;
        // The buffer of the unit before, if another unit follows in it.
        let mut chunk = None;
        while units < budget && returned > 0 {
            let (id, filled) = match chunk.take() {
                Some(buffer) => buffer,
                None => self.ring.queue.peek()?,
            };
            let at = self.at;
            if (filled as usize) < at + HEADER_LEN {
                return Err(&Fault::Misbehaved("it returned a buffer without a header"));
            }
            let header = self.header(id, at);
            let (count, len) = if self.hello.gives_chunks() && header.flags & chunk::MORE != 0 {
                chunk = Some((id, filled));
                // SAFETY: as below.
                parts[0] = unsafe { self.inner_part(id, filled, header.hdr_len)? };
                (1, parts[0].len())
            } else {
                let count = if self.mergeable {
                    usize::from(header.num_buffers)
                } else {
                    1
                };
                if count == 0 || count > MAX_PARTS {
                    return Err(&Fault::Misbehaved(
                        "it used an impossible number of buffers",
                    ));
                }
                if count > returned {
                    // The rest of the unit is still under way.
                    break;
                }
                returned -= count;
                self.at = 0;
                // SAFETY: `parts` is not used behind this function, and `refill`, which hands the
                // buffers back, is not called inside.
                parts[0] = unsafe { self.part(id, filled, at + HEADER_LEN)? };
                let mut len = parts[0].len();
                // A slice of the array, since iterator adapters cost a third of all the rest here. `count` is from 1
                // to MAX_PARTS.
                #[expect(clippy::indexing_slicing, reason = "see the line above")]
                for part in &mut parts[1..count] {
                    let (id, filled) = self.ring.queue.peek()?;
                    // SAFETY: as above.
                    *part = unsafe { self.part(id, filled, 0)? };
                    len += part.len();
                }
                (count, len)
            };
            if parts[0].len() < len.min(FIRST_PART_MIN) {
                return Err(&Fault::Misbehaved("it left a receive buffer unfilled"));
            }
            #[expect(clippy::indexing_slicing, reason = "as above")]
            let lent = &mut parts[..count];
            if header.gso_type == MARK {
                units += self.lend_marked(lent, &header, sink)?;
                continue;
            }
            let segmented = header.gso_type & !VIRTIO_NET_HDR_GSO_ECN == VIRTIO_NET_HDR_GSO_UDP_L4;
            let malformed = segmented && (!self.udp_segments || header.gso_size == 0);
            if malformed || len < ETHERNET_LEN || len > self.max_unit {
                self.counters.receive_dropped += 1;
                continue;
            }
            self.counters.receive_units += 1;
            self.counters.receive_bytes += len as u64;
            units += 1;
            sink(Frame {
                parts: lent,
                len,
                checksum: self.checksum(&header),
                udp_segment: segmented.then_some(header.gso_size),
            });
        }
        Ok(units)
    }

    /// Takes a unit with the card's mark, and lends what of it is a frame.
    #[inline(never)]
    fn lend_marked(
        &mut self,
        buffers: &mut [&[u8]],
        header: &Header,
        sink: &mut dyn FnMut(Frame<'_>),
    ) -> Result<usize, &'static Fault> {
        let link = buffers.first().and_then(|first| first.first_chunk());
        if link.is_some_and(is_for_card) || !self.hello.places() {
            if self
                .hello
                .hear(buffers.first().unwrap_or(&&[][..]))
                .is_none()
            {
                self.counters.receive_dropped += 1;
            }
            return Ok(0);
        }
        let Some((note, mut count)) = take_note(buffers) else {
            return Err(&Fault::Misbehaved("its mark is on a unit without a note"));
        };
        let mut parts: [&[u8]; MAX_PARTS + MAX_REGIONS] = [&[]; _];
        for (to, from) in parts.iter_mut().zip(buffers.iter().take(count)) {
            *to = from;
        }
        match note {
            Note::Ended { id } => self.placed.end(id),
            Note::Placed { id, at, len } => {
                let (at, len) = (at as usize, len as usize);
                let Some(shown) = self.placed.show(id, at, len, &mut parts, count) else {
                    self.counters.receive_dropped += 1;
                    return Ok(0);
                };
                count = shown;
            }
        }
        let parts = parts.get(..count).unwrap_or_default();
        let len = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return Ok(0);
        }
        let good = (ETHERNET_LEN..=self.max_unit).contains(&len);
        if good {
            self.counters.receive_units += 1;
            self.counters.receive_bytes += len as u64;
            sink(Frame {
                parts,
                len,
                checksum: self.checksum(header),
                udp_segment: None,
            });
        } else {
            self.counters.receive_dropped += 1;
        }
        if let Note::Placed { id, at, len } = note {
            self.placed.seen(id, at as usize, len as usize);
        }
        Ok(good.into())
    }

    fn checksum(&self, header: &Header) -> Checksum {
        let vouched = VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID;
        if self.checksums && header.flags & vouched != 0 {
            Checksum::Trusted
        } else {
            Checksum::Unverified
        }
    }

    /// The header at `at` in a returned buffer; 0, or a place that [`Self::inner_part`] has found.
    fn header(&self, id: u16, at: usize) -> Header {
        let buffer = self.ring.buffers.at(id);
        // SAFETY: a buffer is longer than the header, also from `at` on, which is a multiple of 8, and aligned to 2048 bytes; the
        // device has returned it, and should it write all the same, volatile reads take what is there as plain data.
        let (low, high) = unsafe {
            let buffer = buffer.add(at);
            let low = buffer.cast::<u64>().read_volatile();
            (low, buffer.add(8).cast::<u32>().read_volatile())
        };
        let [flags, gso_type, h0, h1, s0, s1, _, _] = low.to_le_bytes();
        let [_, _, n0, n1] = high.to_le_bytes();
        Header {
            flags,
            gso_type,
            hdr_len: u16::from_le_bytes([h0, h1]),
            gso_size: u16::from_le_bytes([s0, s1]),
            num_buffers: u16::from_le_bytes([n0, n1]),
        }
    }

    /// Shows the unit of `unit` bytes at [`Self::at`] in the next returned buffer, which is `id` with `len` bytes, and goes on to the one
    /// behind it.
    ///
    /// # Safety
    /// The slice must not be used after the buffer was handed back by [`Self::refill`].
    #[inline]
    unsafe fn inner_part<'a>(
        &mut self,
        id: u16,
        len: u32,
        unit: u16,
    ) -> Result<&'a [u8], &'static Fault> {
        let (at, unit, len) = (self.at, usize::from(unit), len as usize);
        self.at = chunk::next(at, unit, len)
            .filter(|_| len <= self.ring.buffers.len)
            .ok_or(&Fault::Misbehaved("it returned an impossible chunk"))?;
        // SAFETY: as in `part`; the unit ends before `len`, which is no more than the buffer has.
        Ok(unsafe {
            slice::from_raw_parts(self.ring.buffers.at(id).add(at + HEADER_LEN).as_ptr(), unit)
        })
    }

    /// Takes the next returned buffer, which is `id` with `len` bytes, and shows its content behind `skip`
    /// bytes.
    ///
    /// # Safety
    /// The slice must not be used after the buffer, now free, was handed back by [`Self::refill`].
    unsafe fn part<'a>(
        &mut self,
        id: u16,
        len: u32,
        skip: usize,
    ) -> Result<&'a [u8], &'static Fault> {
        self.ring.queue.take(id);
        let len = len as usize;
        if len > self.ring.buffers.len || len <= skip {
            return Err(&Fault::Misbehaved("it returned an impossible length"));
        }
        if let Some(slot) = self.free.get_mut(self.free_len) {
            *slot = id;
            self.free_len += 1;
        }
        // SAFETY: the buffer is valid for `buffer_len` bytes, initialised (zeroed at allocation) and lives as
        // long as the ring. The device had it and has returned it, and gets it again by `refill` only, which by the
        // caller's promise comes after the last use of the slice; until then nobody writes to it.
        Ok(unsafe {
            slice::from_raw_parts(self.ring.buffers.at(id).add(skip).as_ptr(), len - skip)
        })
    }
}

impl<P: PciFunction> Receive for VirtioReceive<'_, P> {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        if !self.user.running()? {
            return Ok(0);
        }
        let units = match self.queue.lend(budget, &mut sink) {
            Ok(units) => units,
            Err(fault) => return self.user.fail(fault).map(|_| 0),
        };
        if self.queue.free_len > 0 {
            // `sink` may have met a fault while it was sending.
            if self.user.running()? {
                self.queue.refill(self.user.shared);
            }
            self.queue.empty_bursts = 0;
        } else {
            self.queue.empty_bursts += 1;
            if self.queue.empty_bursts == EMPTY_BURSTS_CHECK {
                self.queue.empty_bursts = 0;
                self.user.check()?;
            }
        }
        Ok(units)
    }
}
