//! What the virtio-net model does that no device should.

use super::Model;

impl Model {
    /// Lies: puts any number and length into the used ring. Nothing happens when the queue is off.
    pub fn lie_used(&self, queue: usize, id: u32, len: u32) {
        let mut state = self.state();
        state.lied = true;
        if state.queues[queue].enabled {
            state.put_used(queue, id, len);
            state.publish_used(queue);
        }
    }

    /// Lies: moves the used index by any step.
    pub fn lie_index(&self, queue: usize, step: u16) {
        let mut state = self.state();
        state.lied = true;
        if state.queues[queue].enabled {
            state.queues[queue].used = state.queues[queue].used.wrapping_add(step);
            state.publish_used(queue);
        }
    }

    /// Lies: writes to the first bytes of the `n`th buffer that a queue has available.
    pub fn lie_buffer(&self, queue: usize, n: u16, bytes: &[u8]) {
        let mut state = self.state();
        state.lied = true;
        if state.queues[queue].enabled && n < state.available(queue) {
            let (_, address, len) = state.buffer(queue, n);
            state.write(address, &bytes[..bytes.len().min(len as usize)]);
        }
    }

    /// Lies: writes any flags.
    pub fn lie_wishes(&self, queue: usize, flags: u16) {
        let mut state = self.state();
        state.lied = true;
        let queue = state.queues[queue];
        if queue.enabled {
            state.write(queue.addresses[2], &flags.to_le_bytes());
        }
    }
}
