//! The loader's end of the tap on the engine's link.

use crate::tap::PortPlace;
use alloc::boxed::Box;
use wireboot_net::TapPort;
use wireboot_protocols::link::Link;

/// The port of the tap that there is: another one after an AP (application processor) was lost.
pub(super) struct LoaderPort {
    port: Box<TapPort>,
    next: PortPlace,
    up: bool,
}

impl LoaderPort {
    /// The port that lies in `place` now, and those that will.
    pub(super) fn new(place: PortPlace) -> Option<Self> {
        Some(Self {
            port: place.take()?,
            next: place,
            up: false,
        })
    }

    fn port(&mut self) -> &mut TapPort {
        if let Some(mut port) = self.next.take() {
            port.set_up(self.up);
            self.port = port;
        }
        &mut self.port
    }
}

impl Link for LoaderPort {
    fn set_up(&mut self, up: bool) {
        self.up = up;
        self.port().set_up(up);
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        self.port().send(&[header, payload])
    }

    fn peek(&mut self) -> Option<&[u8]> {
        self.port().peek()
    }

    fn skip(&mut self) {
        self.port().skip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_net::tap;

    #[test]
    fn the_link_goes_on_by_the_tap_of_another_engine() {
        let place = PortPlace::default();
        let (_lost, port) = tap(1500);
        place.set(Some(Box::new(port)));
        let mut link = LoaderPort::new(place.clone()).unwrap();
        assert!(LoaderPort::new(place.clone()).is_none());
        link.set_up(true);
        // Nobody takes the frames.
        while link.send(&[0; 14], &[]) {}
        assert!(!link.send(&[0; 14], &[]));
        let (_tap, port) = tap(1500);
        place.set(Some(Box::new(port)));
        assert!(link.send(&[0; 14], &[]));
    }
}
