//! The end on the AP (application processor), which runs the engine.

use core::cell::Cell;

use alloc::vec::Vec;
use wireboot_ring::{Receiver, Sender};

use super::{Answer, Arrival, Buffer, FRAMES, HEADER, Request};
use crate::{
    Counters, Fault, Frame, Nic, NicState, Offload, Properties, Receive, SendError, Transmit,
};

/// The end for the engine. Counts what goes through itself; what the driver threw away, [`DriverEnd::counters`](super::DriverEnd::counters) tells.
pub struct EngineEnd {
    properties: Properties,
    state: Cell<NicState>,
    rx: Inbox,
    tx: Outbox,
}

struct Inbox {
    arrivals: Receiver<Arrival>,
    empty: Sender<Buffer>,
    units: u64,
    bytes: u64,
}

struct Outbox {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    free: Vec<Buffer>,
    /// As the driver end last answered.
    link: bool,
    link_asked: bool,
    frames: u64,
    bytes: u64,
    full: u64,
    /// How many of the frames are known to have left the device.
    left: u64,
    /// How many there were when the driver end was last asked.
    idle_asked: Option<u64>,
}

impl Outbox {
    /// Takes what the driver end answers.
    fn hear(&mut self) {
        while let Some(answer) = self.answers.pop() {
            match answer {
                Answer::Taken(buffer) => self.free.push(buffer),
                Answer::Idle => self.left = self.idle_asked.take().unwrap_or(self.left),
                Answer::Link(up) => {
                    self.link = up;
                    self.link_asked = false;
                }
            }
        }
    }
}

impl EngineEnd {
    pub(super) fn new(
        properties: Properties,
        link: bool,
        arrivals: Receiver<Arrival>,
        empty: Sender<Buffer>,
        requests: Sender<Request>,
        answers: Receiver<Answer>,
    ) -> Self {
        Self {
            properties,
            state: Cell::new(NicState::Running),
            rx: Inbox {
                arrivals,
                empty,
                units: 0,
                bytes: 0,
            },
            tx: Outbox {
                requests,
                answers,
                free: Buffer::pool(FRAMES, usize::from(properties.mtu) + HEADER),
                link,
                link_asked: false,
                frames: 0,
                bytes: 0,
                full: 0,
                left: 0,
                idle_asked: None,
            },
        }
    }
}

impl Nic for EngineEnd {
    type Rx<'a> = EngineEndReceive<'a>;
    type Tx<'a> = EngineEndTransmit<'a>;

    fn properties(&self) -> Properties {
        self.properties
    }

    /// What the driver end answered last; each call asks anew.
    fn link_up(&mut self) -> bool {
        if self.state.get().running() != Ok(true) {
            return false;
        }
        self.tx.hear();
        if !self.tx.link_asked {
            self.tx.link_asked = self.tx.requests.push(Request::Link).is_ok();
        }
        self.tx.link
    }

    fn split(&mut self) -> (EngineEndReceive<'_>, EngineEndTransmit<'_>) {
        (
            EngineEndReceive {
                state: &self.state,
                inbox: &mut self.rx,
            },
            EngineEndTransmit {
                state: &self.state,
                outbox: &mut self.tx,
            },
        )
    }

    fn counters(&self) -> Counters {
        Counters {
            receive_units: self.rx.units,
            receive_bytes: self.rx.bytes,
            transmit_frames: self.tx.frames,
            transmit_bytes: self.tx.bytes,
            transmit_full: self.tx.full,
            ..Counters::default()
        }
    }

    /// Has the driver end stop the device at its next turn, and does not wait for it.
    fn stop(&mut self) {
        if self.state.get().running() == Ok(true) {
            self.state.set(NicState::Stopped);
            let _ = self.tx.requests.push(Request::Stop);
        }
    }
}

/// The receive half of an [`EngineEnd`].
pub struct EngineEndReceive<'a> {
    state: &'a Cell<NicState>,
    inbox: &'a mut Inbox,
}

impl Receive for EngineEndReceive<'_> {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        if !self.state.get().running()? {
            return Ok(0);
        }
        let mut lent = 0;
        while lent < budget {
            match self.inbox.arrivals.pop() {
                None => break,
                Some(Arrival::Unit(buffer)) => {
                    lent += 1;
                    self.inbox.units += 1;
                    self.inbox.bytes += buffer.len as u64;
                    sink(Frame {
                        parts: &[buffer.content()],
                        len: buffer.len,
                        checksum: buffer.checksum,
                        udp_segment: buffer.udp_segment,
                    });
                    // There is room for all.
                    let _ = self.inbox.empty.push(buffer);
                }
                Some(Arrival::Fault(fault)) => {
                    self.state.set(NicState::Failed(fault));
                    return Err(fault);
                }
            }
        }
        Ok(lent)
    }
}

/// The transmit half of an [`EngineEnd`].
pub struct EngineEndTransmit<'a> {
    state: &'a Cell<NicState>,
    outbox: &'a mut Outbox,
}

impl Transmit for EngineEndTransmit<'_> {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        if !self.state.get().running()? {
            return Err(Fault::Removed.into());
        }
        if matches!(offload, Offload::TcpSegmentation { .. }) {
            return Err(SendError::TooLong);
        }
        let outbox = &mut *self.outbox;
        if outbox.free.is_empty() {
            outbox.hear();
        }
        let Some(mut buffer) = outbox.free.pop() else {
            outbox.full += 1;
            return Err(SendError::Full);
        };
        let Some(memory) = buffer.bytes.get_mut(..len) else {
            outbox.free.push(buffer);
            return Err(SendError::TooLong);
        };
        fill(memory);
        buffer.len = len;
        // There is room for all.
        let _ = outbox.requests.push(Request::Send(buffer, offload));
        outbox.frames += 1;
        outbox.bytes += len as u64;
        Ok(())
    }

    fn room(&mut self) -> usize {
        if self.outbox.free.is_empty() {
            self.outbox.hear();
        }
        self.outbox.free.len()
    }

    /// The driver end has heard of each frame already.
    fn flush(&mut self) -> Result<(), Fault> {
        if self.state.get().running()? {
            Ok(())
        } else {
            Err(Fault::Removed)
        }
    }

    /// Asks the driver end, so it is true some calls later.
    fn idle(&mut self) -> bool {
        if self.state.get().running() != Ok(true) {
            return true;
        }
        let outbox = &mut *self.outbox;
        outbox.hear();
        if outbox.left == outbox.frames {
            return true;
        }
        if outbox.idle_asked.is_none() && outbox.requests.push(Request::Idle).is_ok() {
            outbox.idle_asked = Some(outbox.frames);
        }
        false
    }
}
