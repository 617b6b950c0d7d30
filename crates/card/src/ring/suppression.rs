//! Who wants to hear of what: doorbells for the card, calls for the guest (virtio 1.2, sections 2.7.7 and 2.7.10).

use core::sync::atomic::Ordering;
#[cfg(not(loom))]
use core::sync::atomic::fence;
#[cfg(loom)]
use loom::sync::atomic::fence;

use super::{Ring, RingFault};
use crate::memory::GuestMemory;

const VRING_AVAIL_F_NO_INTERRUPT: u16 = 1;
const VRING_USED_F_NO_NOTIFY: u16 = 1;

impl Ring {
    /// Whether the guest wants to be called for what [`Ring::publish`] has just shown it.
    pub(super) fn wants_call<M: GuestMemory>(&mut self, memory: &M) -> Result<bool, RingFault> {
        // The index must be out before the guest's wish is read, else both sides may wait for each other.
        fence(Ordering::SeqCst);
        if !self.event_idx {
            let flags = memory.load(self.layout.available, Ordering::Relaxed)?;
            return Ok(flags & VRING_AVAIL_F_NO_INTERRUPT == 0);
        }
        let event = memory.load(self.layout.used_event(), Ordering::Relaxed)?;
        let before = self.signalled.replace(self.used);
        Ok(before.is_none_or(|before| passed(event, before, self.used)))
    }

    /// Forgoes doorbells, as far as the guest obeys.
    pub(crate) fn forgo_doorbells<M: GuestMemory>(&self, memory: &M) -> Result<(), RingFault> {
        // With EVENT_IDX the index that was asked for last lies behind: it comes again after 65536 buffers.
        let flags = if self.event_idx {
            0
        } else {
            VRING_USED_F_NO_NOTIFY
        };
        memory.store(self.layout.used, flags, Ordering::Relaxed)?;
        Ok(())
    }

    /// Asks for a doorbell for the next buffer that the guest makes available. True when it has already done so: no doorbell need come.
    pub(crate) fn want_doorbell<M: GuestMemory>(&mut self, memory: &M) -> Result<bool, RingFault> {
        if self.event_idx {
            memory.store(self.layout.available_event(), self.seen, Ordering::Relaxed)?;
        } else {
            memory.store(self.layout.used, 0, Ordering::Relaxed)?;
        }
        // The wish must be out before the index is read, else both sides may wait for each other.
        fence(Ordering::SeqCst);
        let index = memory.load(self.layout.available_index(), Ordering::Relaxed)?;
        if let Some(liar) = &self.liar {
            return Ok(index != self.seen && !liar.is_silent());
        }
        Ok(index != self.seen)
    }
}

/// Whether the entry at `event` is among those from `before` up to `now`.
fn passed(event: u16, before: u16, now: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_passed_once() {
        assert!(passed(5, 5, 6));
        assert!(!passed(6, 5, 6));
        assert!(!passed(4, 5, 6));
        assert!(passed(0xffff, 0xfffe, 3));
        assert!(!passed(3, 0xfffe, 3));
    }
}
