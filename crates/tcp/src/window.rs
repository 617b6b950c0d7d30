//! The receive window as it was advertised (RFC 9293, section 3.8.6; scaled by RFC 7323).

use crate::sequence::{after, ahead};

/// Shift of our window fields: windows of up to 16 MiB, which is 1 Gbit/s over 130 ms.
pub const WINDOW_SCALE: u8 = 8;
/// Largest window in bytes.
pub const MAX_WINDOW: u32 = (u16::MAX as u32) << WINDOW_SCALE;

/// The right edge of the window, which never goes back (section 3.8.6.2.1).
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Shift of the field; 0 where the peer does not scale.
    pub scale: u8,
    edge: u32,
}

impl Window {
    /// The window that a SYN advertised.
    pub(crate) fn new(rcv_nxt: u32, advertised: u16) -> Self {
        Self {
            scale: WINDOW_SCALE,
            edge: rcv_nxt.wrapping_add(advertised.into()),
        }
    }

    /// RCV.WND: bytes behind `rcv_nxt` that the peer may send.
    #[inline]
    pub(crate) fn size(&self, rcv_nxt: u32) -> u32 {
        ahead(self.edge, rcv_nxt)
    }

    /// The edge that `limit` bytes behind `rcv_nxt` allow, in whole units of the field.
    fn allowed(&self, rcv_nxt: u32, limit: u32) -> u32 {
        let field = (limit >> self.scale).min(u16::MAX.into());
        rcv_nxt.wrapping_add(field << self.scale)
    }

    /// Moves the edge as far as `limit` bytes behind `rcv_nxt` allow.
    pub(crate) fn open(&mut self, rcv_nxt: u32, limit: u32) {
        let edge = self.allowed(rcv_nxt, limit);
        if after(edge, self.edge) {
            self.edge = edge;
        }
    }

    /// Advertises `window` bytes in a SYN, which does not scale.
    pub(crate) fn advertise(&mut self, rcv_nxt: u32, window: u16) {
        self.edge = rcv_nxt.wrapping_add(window.into());
    }

    /// Bytes by which `limit` bytes behind `rcv_nxt` would move the edge.
    pub(crate) fn growth(&self, rcv_nxt: u32, limit: u32) -> u32 {
        ahead(self.allowed(rcv_nxt, limit), self.edge)
    }

    /// SEG.WND of a segment that acknowledges up to `rcv_nxt`.
    pub(crate) fn field(&self, rcv_nxt: u32) -> u16 {
        (self.size(rcv_nxt) >> self.scale).min(u16::MAX.into()) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_never_goes_back() {
        let mut window = Window::new(1000, 500);
        assert_eq!(window.size(1000), 500);
        window.open(1000, 300);
        assert_eq!(window.size(1000), 500);
        window.open(1400, 1000);
        assert_eq!(window.size(1400), 768, "whole units of the field");
        assert_eq!(window.field(1400), 3);
        assert_eq!(window.size(3000), 0);
        assert_eq!(window.field(3000), 0);
        assert_eq!(window.growth(1400, 1024), 256);
        assert_eq!(window.growth(1400, 700), 0);
        window.open(u32::MAX, u32::MAX);
        assert_eq!(window.field(u32::MAX), u16::MAX);
        assert_eq!(window.size(u32::MAX), MAX_WINDOW);
    }
}
