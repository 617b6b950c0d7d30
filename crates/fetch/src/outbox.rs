//! The sending end of a ring, which never blocks.

use alloc::collections::VecDeque;

use wireboot_ring::Sender;

/// A ring's sender, and the messages for which the ring had no room.
pub(crate) struct Outbox<T> {
    ring: Sender<T>,
    /// Messages that must not be lost, as some hold memory.
    waiting: VecDeque<T>,
}

impl<T: Send> Outbox<T> {
    pub(crate) fn new(ring: Sender<T>) -> Self {
        Self {
            ring,
            waiting: VecDeque::new(),
        }
    }

    /// Sends `message`, later where the ring is full.
    pub(crate) fn send(&mut self, message: T) {
        self.waiting.push_back(message);
        self.flush();
    }

    /// Sends a message that is useless later, if no other waits and the ring keeps room for one more. Else gives it back.
    pub(crate) fn offer(&mut self, message: T) -> Result<(), T> {
        if self.waiting.is_empty() && self.ring.room() > 1 {
            return self.ring.push(message);
        }
        Err(message)
    }

    /// Sends waiting messages, as far as there is room.
    pub(crate) fn flush(&mut self) {
        while let Some(message) = self.waiting.pop_front() {
            if let Err(message) = self.ring.push(message) {
                self.waiting.push_front(message);
                return;
            }
        }
    }

    /// Whether messages wait for room in the ring.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_ring::channel;

    #[test]
    fn what_may_be_lost_leaves_room_for_what_may_not() {
        let (ring, mut there) = channel(4);
        let mut outbox = Outbox::new(ring);
        for number in 0..3 {
            assert_eq!(outbox.offer(number), Ok(()));
        }
        assert_eq!(outbox.offer(3), Err(3));
        // The last place, and one behind it.
        outbox.send(4);
        outbox.send(5);
        assert!(outbox.waits());
        assert_eq!(
            [there.pop(), there.pop(), there.pop()].map(Option::unwrap),
            [0, 1, 2]
        );
        // Nothing overtakes what waits.
        assert_eq!(outbox.offer(6), Err(6));
        outbox.flush();
        assert!(!outbox.waits());
        assert_eq!(
            [there.pop(), there.pop(), there.pop()],
            [Some(4), Some(5), None]
        );
    }
}
