//! The transmit half: a buffer for a frame at each descriptor, and some for frames that the device cuts, which any descriptor may point to.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::slice;

use super::HEADER_LEN;
use super::device::User;
use super::ring::{Buffers, Ring};
use super::shape::TRANSMIT_UNIT;
use crate::platform::PciFunction;
use crate::vlan::TAG_LEN;
use crate::{Counters, Fault, Offload, SendError, Transmit, checksum};
use wireboot_wire::card::chunk;

/// In `struct virtio_net_hdr_v1`, whose words are: flags, GSO type, header length; GSO size, checksum start;
/// checksum offset, number of buffers.
const VIRTIO_NET_HDR_F_NEEDS_CSUM: u32 = 1;
const VIRTIO_NET_HDR_GSO_TCPV4: u32 = 1 << 8;
const VIRTIO_NET_HDR_GSO_TCPV6: u32 = 4 << 8;

/// Where the checksum is in a TCP header.
const TCP_CHECKSUM: u32 = 16;

/// The transmit half of a [`VirtioNet`](super::VirtioNet) or a [`VirtioPair`](super::VirtioPair), on loan.
pub struct VirtioTransmit<'a, P: PciFunction> {
    pub(super) queue: &'a mut TransmitQueue,
    pub(super) user: User<'a, P>,
}

/// A transmit queue and its buffers.
pub(super) struct TransmitQueue {
    ring: Ring,
    /// Buffers that the device does not have, as a stack: the first `free_len` are valid.
    free: Box<[u16]>,
    free_len: usize,
    /// For frames to be cut, where the device does that.
    large: Option<Large>,
    /// The device takes chunks.
    pub(super) chunks: bool,
    /// The last frame that the device has not been told of, when another may follow it in its buffer.
    open: Option<Open>,
    max_frame: usize,
    checksums: bool,
    counters: Counters,
}

/// A frame in a descriptor's own buffer.
#[derive(Clone, Copy)]
struct Open {
    id: u16,
    /// Where its header begins in the buffer.
    at: usize,
    len: usize,
}

/// Buffers for frames to be cut.
struct Large {
    buffers: Buffers,
    /// Those that no descriptor points to.
    free: Vec<u16>,
    /// By descriptor that the device has: the one that it points to.
    lent: Box<[Option<u16>]>,
}

impl TransmitQueue {
    pub(super) fn new(
        ring: Ring,
        max_frame: usize,
        checksums: bool,
        large: Option<Buffers>,
    ) -> Self {
        let size = ring.queue.size();
        Self {
            ring,
            free: (0..size).rev().collect(),
            free_len: size.into(),
            large: large.map(|buffers| Large {
                free: (0..buffers.count()).rev().collect(),
                buffers,
                lent: vec![None; size.into()].into_boxed_slice(),
            }),
            chunks: false,
            open: None,
            max_frame,
            checksums,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Where a frame of `len` bytes may follow in a chunk: the number of the buffer, and the place of its header there. What is there says then that
    /// something follows.
    fn behind(&mut self, len: usize) -> Option<(u16, usize)> {
        let Open {
            id,
            at,
            len: before,
        } = self.open.filter(|_| self.chunks)?;
        let place = chunk::behind(at, before);
        let fits = place + HEADER_LEN + len <= self.ring.buffers.len;
        if len < chunk::UNIT_MIN || before < chunk::UNIT_MIN || !fits {
            return None;
        }
        // SAFETY: as for the header in `send`, which has written it; the device does not know of the buffer.
        unsafe {
            let word = self.ring.buffers.at(id).add(at).cast::<u32>();
            word.write(word.read() | u32::from(chunk::MORE) | (before as u32) << 16);
        }
        Some((id, place))
    }

    /// Takes back the buffers of frames that the device has sent.
    fn reclaim(&mut self) -> Result<(), &'static Fault> {
        for _ in 0..self.ring.queue.returned()? {
            let (id, _) = self.ring.queue.peek()?;
            self.ring.queue.take(id);
            if let Some(large) = &mut self.large
                && let Some(lent) = large.lent.get_mut(usize::from(id))
            {
                large.free.extend(lent.take());
            }
            if let Some(slot) = self.free.get_mut(self.free_len) {
                *slot = id;
                self.free_len += 1;
            }
        }
        Ok(())
    }

    /// Length of the longest frame.
    fn longest(&self, to_cut: bool) -> usize {
        match (to_cut, &self.large) {
            (false, _) => self.max_frame,
            (true, Some(_)) => TRANSMIT_UNIT + TAG_LEN,
            (true, None) => 0,
        }
    }

    /// True when no buffer of the kind is free.
    fn lacks(&self, to_cut: bool) -> bool {
        self.free_len == 0 || to_cut && self.large.as_ref().is_none_or(|l| l.free.is_empty())
    }

    /// A free descriptor, and the buffer that it is to point to: as we and as the device see it.
    fn next_free(&mut self, to_cut: bool) -> Option<(u16, NonNull<u8>, u64)> {
        let at = self.free_len.checked_sub(1)?;
        let id = *self.free.get(at)?;
        let mut buffers = &self.ring.buffers;
        let mut buffer = id;
        if to_cut {
            let large = self.large.as_mut()?;
            let lent = large.lent.get_mut(usize::from(id))?;
            buffer = large.free.pop()?;
            *lent = Some(buffer);
            buffers = &large.buffers;
        }
        self.free_len = at;
        Some((id, buffers.at(buffer), buffers.address(buffer)))
    }
}

/// The words of a frame's `struct virtio_net_hdr_v1`.
fn header(frame: &[u8], offload: Offload) -> [u32; HEADER_LEN / 4] {
    match offload {
        Offload::None => [0; 3],
        Offload::L4Checksum { start, offset } => [
            VIRTIO_NET_HDR_F_NEEDS_CSUM,
            u32::from(start) << 16,
            u32::from(offset),
        ],
        Offload::TcpSegmentation {
            start,
            header_len,
            mss,
        } => {
            // Hosts throw away what is to be cut into one piece.
            let (gso, size) = if frame.len() > usize::from(header_len) + usize::from(mss) {
                (gso_type(frame) | u32::from(header_len) << 16, mss.into())
            } else {
                (0, 0)
            };
            [
                VIRTIO_NET_HDR_F_NEEDS_CSUM | gso,
                size | u32::from(start) << 16,
                TCP_CHECKSUM,
            ]
        }
    }
}

fn gso_type(frame: &[u8]) -> u32 {
    match frame.get(12..) {
        Some([0x86, 0xdd, ..] | [0x81, 0x00, _, _, 0x86, 0xdd, ..]) => VIRTIO_NET_HDR_GSO_TCPV6,
        _ => VIRTIO_NET_HDR_GSO_TCPV4,
    }
}

impl<P: PciFunction> VirtioTransmit<'_, P> {
    /// Takes back what the device has sent, if it is in use: `Ok(false)` when the driver was stopped.
    fn reclaim(&mut self) -> Result<bool, Fault> {
        if !self.user.running()? {
            return Ok(false);
        }
        match self.queue.reclaim() {
            Ok(()) => Ok(true),
            Err(fault) => self.user.fail(fault),
        }
    }
}

impl<P: PciFunction> Transmit for VirtioTransmit<'_, P> {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        if !self.user.running()? {
            return Err(Fault::Removed.into());
        }
        let to_cut = matches!(offload, Offload::TcpSegmentation { .. });
        if len > self.queue.longest(to_cut) {
            return Err(SendError::TooLong);
        }
        let chained = if to_cut { None } else { self.queue.behind(len) };
        if chained.is_none() && self.queue.lacks(to_cut) {
            self.reclaim()?;
        }
        let queue = &mut *self.queue;
        let (id, at, (buffer, address)) = if let Some((id, at)) = chained {
            let buffers = &queue.ring.buffers;
            (id, at, (buffers.at(id), buffers.address(id)))
        } else {
            let Some((id, buffer, address)) = queue.next_free(to_cut) else {
                queue.counters.transmit_full += 1;
                return Err(SendError::Full);
            };
            (id, 0, (buffer, address))
        };
        // SAFETY: a buffer holds the header and `longest` bytes, or has room for them at `at`, initialised (zeroed at allocation), and lives
        // as long as the ring. It was free, or the device has not been told of it, so the device does not have it; there is no other
        // reference to it.
        let (buffer, frame) = unsafe {
            let buffer = buffer.add(at);
            let frame = slice::from_raw_parts_mut(buffer.add(HEADER_LEN).as_ptr(), len);
            (buffer, frame)
        };
        fill(frame);
        let header = match offload {
            Offload::L4Checksum { start, offset } if !queue.checksums => {
                checksum::complete(frame, start.into(), offset.into());
                [0; 3]
            }
            offload => header(frame, offload),
        };
        // SAFETY: as for the frame, whose last use is above; a buffer is aligned to 2048 bytes, and `at` a multiple of 8.
        unsafe { buffer.cast::<[u32; HEADER_LEN / 4]>().write(header) };
        let described = (at + HEADER_LEN + len) as u32;
        queue.ring.queue.describe(id, address, described, 0);
        if chained.is_none() {
            queue.ring.queue.offer(id);
        }
        queue.open = (!to_cut).then_some(Open { id, at, len });
        queue.counters.transmit_frames += 1;
        queue.counters.transmit_bytes += len as u64;
        Ok(())
    }

    fn room(&mut self) -> usize {
        match self.reclaim() {
            Ok(true) => self.queue.free_len,
            _ => 0,
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if !self.reclaim()? {
            return Err(Fault::Removed);
        }
        let queue = &mut *self.queue;
        queue.open = None;
        if queue.ring.publish(self.user.shared) {
            queue.counters.transmit_doorbells += 1;
        }
        Ok(())
    }

    /// Frames that wait for [`Transmit::flush`] are not sent yet.
    fn idle(&mut self) -> bool {
        match self.reclaim() {
            Ok(true) => self.queue.free_len == self.queue.free.len(),
            _ => true,
        }
    }
}
