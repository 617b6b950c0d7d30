//! Stands between a NIC and its user: a [`Hook`] sees, changes, loses or refuses what goes through.
//!
//! Received units are copied on their way (their division into parts is kept), so this is for tests and
//! captures, not for speed.

use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::{
    Checksum, Counters, Fault, Frame, Nic, Offload, Properties, Receive, SendError, Transmit,
};

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the link.
    Receive,
    /// To the link.
    Transmit,
}

/// What a middleware does. Each method does nothing unless it is written.
pub trait Hook {
    /// Called at each burst, send and flush; a fault ends the use of the NIC.
    fn fault(&mut self) -> Option<Fault> {
        None
    }

    /// True when a send is to meet a full ring.
    fn full(&mut self) -> bool {
        false
    }

    /// True when the next frame is to be lost.
    fn lose(&mut self, _direction: Direction) -> bool {
        false
    }

    /// Sees a frame that goes through, and may change its bytes. On transmit with [`Offload::L4Checksum`]
    /// its checksum is not complete yet.
    fn frame(&mut self, _direction: Direction, _frame: &mut [u8]) {}
}

/// What both halves of a [`Hooked`] NIC share.
struct NicAndHook<N, H> {
    nic: N,
    hook: H,
    fault: Option<Fault>,
}

impl<N: Nic, H: Hook> NicAndHook<N, H> {
    fn check(&mut self) -> Result<(), Fault> {
        if self.fault.is_none() {
            self.fault = self.hook.fault();
            if self.fault.is_some() {
                self.nic.stop();
            }
        }
        self.fault.map_or(Ok(()), Err)
    }
}

/// A NIC behind a hook.
pub struct Hooked<N, H> {
    shared: Rc<RefCell<NicAndHook<N, H>>>,
    rx: HookedReceive<N, H>,
    tx: HookedTransmit<N, H>,
}

impl<N: Nic, H: Hook> Hooked<N, H> {
    /// Puts `hook` before `nic`.
    pub fn new(nic: N, hook: H) -> Self {
        let shared = Rc::new(RefCell::new(NicAndHook {
            nic,
            hook,
            fault: None,
        }));
        Self {
            rx: HookedReceive(shared.clone()),
            tx: HookedTransmit(shared.clone()),
            shared,
        }
    }

    /// Lends the NIC and the hook.
    pub fn with<R>(&mut self, f: impl FnOnce(&mut N, &mut H) -> R) -> R {
        let shared = &mut *self.shared.borrow_mut();
        f(&mut shared.nic, &mut shared.hook)
    }
}

impl<N: Nic, H: Hook> Nic for Hooked<N, H> {
    type Rx<'a>
        = &'a mut HookedReceive<N, H>
    where
        Self: 'a;
    type Tx<'a>
        = &'a mut HookedTransmit<N, H>
    where
        Self: 'a;

    fn properties(&self) -> Properties {
        self.shared.borrow().nic.properties()
    }

    fn link_up(&mut self) -> bool {
        self.shared.borrow_mut().nic.link_up()
    }

    fn joins_datagrams(&self) -> bool {
        self.shared.borrow().nic.joins_datagrams()
    }

    fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>) {
        (&mut self.rx, &mut self.tx)
    }

    fn counters(&self) -> Counters {
        self.shared.borrow().nic.counters()
    }

    fn stop(&mut self) {
        self.shared.borrow_mut().nic.stop();
    }
}

/// The receive half of a [`Hooked`] NIC.
pub struct HookedReceive<N, H>(Rc<RefCell<NicAndHook<N, H>>>);

/// A copy of a received unit.
struct Unit {
    bytes: Vec<u8>,
    part_lens: Vec<usize>,
    checksum: Checksum,
    udp_segment: Option<u16>,
}

impl<N: Nic, H: Hook> Receive for HookedReceive<N, H> {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        let mut units = Vec::new();
        {
            // Over before the sink runs, which may send.
            let shared = &mut *self.0.borrow_mut();
            shared.check()?;
            let hook = &mut shared.hook;
            shared.nic.split().0.burst(budget, |frame| {
                if hook.lose(Direction::Receive) {
                    return;
                }
                let mut bytes = frame.parts.concat();
                hook.frame(Direction::Receive, &mut bytes);
                units.push(Unit {
                    bytes,
                    part_lens: frame.parts.iter().map(|part| part.len()).collect(),
                    checksum: frame.checksum,
                    udp_segment: frame.udp_segment,
                });
            })?;
        }
        for unit in &units {
            let mut rest = unit.bytes.as_slice();
            let mut parts = Vec::new();
            for &len in &unit.part_lens {
                let (part, behind) = rest.split_at(len);
                parts.push(part);
                rest = behind;
            }
            sink(Frame {
                parts: &parts,
                len: unit.bytes.len(),
                checksum: unit.checksum,
                udp_segment: unit.udp_segment,
            });
        }
        Ok(units.len())
    }
}

/// The transmit half of a [`Hooked`] NIC.
pub struct HookedTransmit<N, H>(Rc<RefCell<NicAndHook<N, H>>>);

impl<N: Nic, H: Hook> Transmit for HookedTransmit<N, H> {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        let shared = &mut *self.0.borrow_mut();
        shared.check()?;
        if shared.hook.full() {
            return Err(SendError::Full);
        }
        if shared.hook.lose(Direction::Transmit) {
            fill(&mut vec![0; len]);
            return Ok(());
        }
        let hook = &mut shared.hook;
        shared.nic.split().1.send(len, offload, &mut |frame| {
            fill(frame);
            hook.frame(Direction::Transmit, frame);
        })
    }

    fn room(&mut self) -> usize {
        self.0.borrow_mut().nic.split().1.room()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let shared = &mut *self.0.borrow_mut();
        shared.check()?;
        shared.nic.split().1.flush()
    }

    fn idle(&mut self) -> bool {
        self.0.borrow_mut().nic.split().1.idle()
    }
}
