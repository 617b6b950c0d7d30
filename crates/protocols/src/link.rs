//! A link that a loader's own network stack is on.

use alloc::boxed::Box;
use wireboot_net::TapPort;

/// Where frames go and come from.
pub trait Link {
    /// Begins or ends to receive. What was received and not taken is forgotten.
    fn set_up(&mut self, up: bool);
    /// Sends a frame with all checksums: its Ethernet header, and what is behind. False when there is no room for it now.
    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool;
    /// The next frame, from its Ethernet header on; [`Self::skip`] leads to the one behind it.
    fn peek(&mut self) -> Option<&[u8]>;
    /// Forgets the frame that [`Self::peek`] has shown.
    fn skip(&mut self);
}

impl Link for TapPort {
    fn set_up(&mut self, up: bool) {
        self.set_up(up);
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        self.send(&[header, payload])
    }

    fn peek(&mut self) -> Option<&[u8]> {
        self.peek()
    }

    fn skip(&mut self) {
        self.skip();
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn set_up(&mut self, up: bool) {
        (**self).set_up(up);
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        (**self).send(header, payload)
    }

    fn peek(&mut self) -> Option<&[u8]> {
        (**self).peek()
    }

    fn skip(&mut self) {
        (**self).skip();
    }
}
