//! The end on the BSP (bootstrap processor), which calls the driver.

use alloc::vec::Vec;
use wireboot_ring::{Receiver, Sender};

use super::{Answer, Arrival, BURST, Buffer, Request, UNITS};
use crate::{Counters, Fault, Nic, Offload, Receive, SendError, Transmit};

/// The end that calls the driver.
pub struct DriverEnd<N> {
    nic: N,
    arrivals: Sender<Arrival>,
    empty: Receiver<Buffer>,
    free: Vec<Buffer>,
    requests: Receiver<Request>,
    answers: Sender<Answer>,
    /// A frame that the driver had no room for.
    waiting: Option<(Buffer, Offload)>,
    idle_asked: bool,
    /// The driver failed, or was stopped by the engine end.
    over: bool,
    /// Units that no buffer was long enough for.
    dropped: u64,
}

impl<N: Nic> DriverEnd<N> {
    pub(super) fn new(
        nic: N,
        arrivals: Sender<Arrival>,
        empty: Receiver<Buffer>,
        requests: Receiver<Request>,
        answers: Sender<Answer>,
    ) -> Self {
        Self {
            arrivals,
            empty,
            free: Buffer::pool(UNITS, nic.properties().max_receive),
            requests,
            answers,
            waiting: None,
            idle_asked: false,
            over: false,
            dropped: 0,
            nic,
        }
    }

    /// Hands the driver what the engine end sends, and the engine end what the driver receives. Returns whether there was anything. A fault of
    /// the driver ends it; the engine end is told.
    pub fn turn(&mut self) -> bool {
        if self.over {
            return false;
        }
        match self.pass() {
            Ok(busy) => busy,
            Err(fault) => {
                self.over = true;
                // There is room for one.
                let _ = self.arrivals.push(Arrival::Fault(fault));
                false
            }
        }
    }

    fn pass(&mut self) -> Result<bool, Fault> {
        let sent = self.outward()?;
        if self.over {
            return Ok(sent);
        }
        Ok(self.inward()? || sent)
    }

    /// Does what the engine end asks for.
    fn outward(&mut self) -> Result<bool, Fault> {
        let mut busy = false;
        let mut link_asked = false;
        let (_, mut tx) = self.nic.split();
        for _ in 0..BURST {
            let waiting = self.waiting.take();
            let request = waiting
                .map(|(buffer, offload)| Request::Send(buffer, offload))
                .or_else(|| self.requests.pop());
            match request {
                None => break,
                Some(Request::Send(buffer, offload)) => {
                    let content = buffer.content();
                    let sent = tx.send(content.len(), offload, &mut |memory| {
                        memory.copy_from_slice(content);
                    });
                    match sent {
                        // One that the link does not carry is lost, as on any network.
                        Ok(()) | Err(SendError::TooLong) => {
                            busy = true;
                            let _ = self.answers.push(Answer::Taken(buffer));
                        }
                        Err(SendError::Full) => {
                            self.waiting = Some((buffer, offload));
                            break;
                        }
                        Err(SendError::Fault(fault)) => return Err(fault),
                    }
                }
                Some(Request::Idle) => self.idle_asked = true,
                Some(Request::Link) => link_asked = true,
                Some(Request::Stop) => {
                    self.over = true;
                    break;
                }
            }
        }
        if !self.over {
            // Also for what an earlier turn left with the driver.
            tx.flush()?;
            if self.idle_asked && self.waiting.is_none() && tx.idle() {
                self.idle_asked = false;
                let _ = self.answers.push(Answer::Idle);
            }
        }
        drop(tx);
        if self.over {
            self.nic.stop();
        } else if link_asked {
            let up = self.nic.link_up();
            let _ = self.answers.push(Answer::Link(up));
        }
        Ok(busy)
    }

    /// Receives into free buffers.
    fn inward(&mut self) -> Result<bool, Fault> {
        while let Some(buffer) = self.empty.pop() {
            self.free.push(buffer);
        }
        let budget = self.free.len().min(BURST);
        if budget == 0 {
            return Ok(false);
        }
        let (mut rx, _) = self.nic.split();
        let received = rx.burst(budget, |frame| {
            let Some(mut buffer) = self.free.pop() else {
                return;
            };
            if buffer.fill(&frame) {
                let _ = self.arrivals.push(Arrival::Unit(buffer));
            } else {
                self.dropped += 1;
                self.free.push(buffer);
            }
        })?;
        Ok(received > 0)
    }

    /// What went through the driver so far.
    pub fn counters(&self) -> Counters {
        let counters = self.nic.counters();
        Counters {
            receive_dropped: counters.receive_dropped + self.dropped,
            ..counters
        }
    }

    /// The NIC, where it is.
    pub fn nic_mut(&mut self) -> &mut N {
        &mut self.nic
    }

    /// Ends the relay: the NIC, still running unless the engine end stopped it. What is still on its way between the ends is lost.
    #[must_use]
    pub fn into_nic(self) -> N {
        self.nic
    }
}
