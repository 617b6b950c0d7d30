//! What keeps the frames that it is given.

use std::vec;
use std::vec::Vec;
use wireboot_nic::{Fault, Offload, SendError, Transmit};

/// A card with room for so many frames.
#[derive(Default)]
pub(crate) struct Card {
    pub room: usize,
    pub frames: Vec<(Vec<u8>, Offload)>,
}

impl Transmit for Card {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        if self.room() == 0 {
            return Err(SendError::Full);
        }
        let mut frame = vec![0xee; len];
        fill(&mut frame);
        self.frames.push((frame, offload));
        Ok(())
    }
    fn room(&mut self) -> usize {
        self.room - self.frames.len()
    }
    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    fn idle(&mut self) -> bool {
        true
    }
}
