//! Who takes the datagrams of a port.

use crate::packet::Ends;
use crate::parts::Parts;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddr;
use wireboot_tcp::Instant;

/// Takes the datagrams of a port while they are on loan: one copy, from DMA memory to their final place.
pub trait DatagramSink {
    /// One datagram's payload, and between whom. Called in the middle of a burst: it must not use the [`Stack`](crate::Stack).
    fn datagram(&mut self, ends: &Ends, payload: Parts<'_>, now: Instant);
}

/// A bound port.
pub struct Binding {
    pub port: u16,
    pub sink: Rc<RefCell<dyn DatagramSink>>,
    /// Who said last that nobody listens there.
    pub refused: Option<SocketAddr>,
}
