//! The receive half: bursts of frames straight from the buffers that the chip filled.

use alloc::rc::Rc;
use core::slice;
use core::sync::atomic::{Ordering, fence};

use super::registers::{RECEIVE, TAIL};
use super::ring::{BUFFER_LEN, Ring};
use super::{ETHERNET_LEN, MAX_FRAME, REFILL, SharedChip};
use crate::platform::PciFunction;
use crate::{Checksum, Counters, Fault, Frame, Receive};

// Status, beside DD: the last buffer of a frame; no word on checksums; the transport checksum was looked at.
pub(crate) const EOP: u64 = 1 << 33;
pub(crate) const IXSM: u64 = 1 << 34;
pub(crate) const TCPCS: u64 = 1 << 37;
// Errors: CE, SE, SEQ, CXE and RXE are damage on the wire, which the chip is asked to keep to itself; the others
// are checksums.
pub(crate) const DAMAGED: u64 = 0x97 << 40;
pub(crate) const TCPE: u64 = 1 << 45;
pub(crate) const IPE: u64 = 1 << 46;

/// After this many empty bursts in a row the chip is asked whether it is still alive.
const EMPTY_BURSTS_CHECK: u32 = 1 << 16;

/// The receive half of an [`E1000e`](super::E1000e).
pub struct E1000eReceive<P: PciFunction> {
    shared: Rc<SharedChip<P>>,
    ring: Ring,
    /// The next descriptor that the chip will be done with.
    taken: u16,
    /// The tail that the chip was told: it has the descriptors from `taken` to here.
    given: u16,
    /// In the midst of a frame that is too long for a buffer.
    skipping: bool,
    empty_bursts: u32,
    counters: Counters,
}

impl<P: PciFunction> E1000eReceive<P> {
    pub(super) fn new(shared: Rc<SharedChip<P>>, ring: Ring) -> Self {
        Self {
            shared,
            ring,
            taken: 0,
            given: 0,
            skipping: false,
            empty_bursts: 0,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Gives all free buffers to the chip, if there are enough of them to be worth a register's write.
    pub(super) fn refill(&mut self) {
        // All but one: head and tail at the same place say that the chip has none.
        let end = self.taken.wrapping_add(self.ring.size() - 1);
        if end.wrapping_sub(self.given) < REFILL {
            return;
        }
        while self.given != end {
            self.ring.set(self.given, 0);
            self.given = self.given.wrapping_add(1);
        }
        fence(Ordering::Release);
        let chip = &self.shared.chip;
        chip.write(RECEIVE + TAIL, self.ring.position(self.given));
        self.counters.receive_doorbells += 1;
    }

    /// Lends up to `budget` frames; their buffers are free afterwards.
    fn lend(&mut self, budget: usize, sink: &mut impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        let mut units = 0;
        while units < budget && self.taken != self.given {
            let index = self.taken;
            let Some(word) = self.ring.done(index) else {
                break;
            };
            self.taken = index.wrapping_add(1);
            let len = usize::from(word as u16);
            if len > BUFFER_LEN {
                return Err(Fault::Misbehaved("it returned an impossible length"));
            }
            let first = !self.skipping;
            self.skipping = word & EOP == 0;
            let fits = (ETHERNET_LEN..=MAX_FRAME).contains(&len);
            if self.skipping || !first || !fits || word & DAMAGED != 0 {
                self.counters.receive_dropped += 1;
                continue;
            }
            // SAFETY: the buffer is `BUFFER_LEN` bytes long, initialised (zeroed at allocation) and lives in
            // `shared`. The chip had it and is done with it, and gets it again by `refill` only, which is not called before
            // the last use of the slice; until then nobody writes to it.
            let frame = unsafe { slice::from_raw_parts(self.ring.buffer(index).as_ptr(), len) };
            self.counters.receive_units += 1;
            self.counters.receive_bytes += len as u64;
            units += 1;
            sink(Frame {
                parts: &[frame],
                len,
                checksum: if word & (IXSM | TCPCS | TCPE | IPE) == TCPCS {
                    Checksum::Trusted
                } else {
                    Checksum::Unverified
                },
                udp_segment: None,
            });
        }
        Ok(units)
    }
}

impl<P: PciFunction> Receive for E1000eReceive<P> {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        if !self.shared.running()? {
            return Ok(0);
        }
        let before = self.taken;
        let units = match self.lend(budget, &mut sink) {
            Ok(units) => units,
            Err(fault) => return Err(self.shared.fail(fault)),
        };
        if self.taken != before {
            // `sink` may have met a fault while it was sending.
            if self.shared.running()? {
                self.refill();
            }
            self.empty_bursts = 0;
        } else {
            self.empty_bursts += 1;
            if self.empty_bursts == EMPTY_BURSTS_CHECK {
                self.empty_bursts = 0;
                self.shared.check()?;
            }
        }
        Ok(units)
    }
}
