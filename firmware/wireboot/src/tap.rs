//! The tap on the engine's link, by which a boot loader sends and receives frames and packets itself.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::Cell;
use wireboot_net::TapPort;

/// Payload of a loader's frames in bytes at most, whatever the link carries: loaders are written for this.
pub(crate) const MTU: u16 = 1500;

/// Where a loader's link finds the port of its tap, and that of another one later.
pub(crate) type PortPlace = Rc<Cell<Option<Box<TapPort>>>>;
