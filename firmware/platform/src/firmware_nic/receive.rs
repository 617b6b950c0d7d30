//! The receive half: one frame for each call, copied by the driver.

use super::{Driver, ERRORS_ONLY, ETHERNET_LEN, FAILURES, Port, Refusal};
use alloc::boxed::Box;
use wireboot_nic::{Checksum, Counters, Fault, Frame, Receive};

/// Longer than any frame of Ethernet: a driver that has a frame for which the buffer is too short may keep it, and then has
/// it before all others.
const BUFFER: usize = 16 * 1024;

/// The buffer, and what came through it.
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    /// Longest frame that is lent.
    max: usize,
    failures: u32,
    counters: Counters,
}

impl Inbox {
    pub(super) fn new(max: usize) -> Self {
        Self {
            buffer: alloc::vec![0; BUFFER].into(),
            max,
            failures: 0,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }
}

/// The receive half of an interface.
pub struct FirmwareNicReceive<'a, D> {
    port: &'a Port<D>,
    inbox: &'a mut Inbox,
}

impl<'a, D> FirmwareNicReceive<'a, D> {
    pub(super) fn new(port: &'a Port<D>, inbox: &'a mut Inbox) -> Self {
        Self { port, inbox }
    }
}

impl<D: Driver> Receive for FirmwareNicReceive<'_, D> {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        let mut lent = 0;
        for _ in 0..budget {
            // The sink may have met a fault while it was sending.
            if !self.port.running()? {
                break;
            }
            let inbox = &mut *self.inbox;
            let len = match self.port.driver.receive(&mut inbox.buffer) {
                Ok(len) => len,
                Err(Refusal::Later) => break,
                // A frame that came damaged, or does not fit.
                Err(Refusal::Lost) if inbox.failures < FAILURES => {
                    inbox.failures += 1;
                    inbox.counters.receive_dropped += 1;
                    continue;
                }
                Err(Refusal::Lost) => return Err(self.port.fail(ERRORS_ONLY)),
                Err(Refusal::Fault(fault)) => return Err(self.port.fail(fault)),
            };
            let Some(frame) = inbox.buffer.get(..len) else {
                let lie = Fault::Misbehaved("the firmware's driver tells an impossible length");
                return Err(self.port.fail(lie));
            };
            inbox.failures = 0;
            if !(ETHERNET_LEN..=inbox.max).contains(&len) {
                inbox.counters.receive_dropped += 1;
                continue;
            }
            inbox.counters.receive_units += 1;
            inbox.counters.receive_bytes += len as u64;
            lent += 1;
            sink(Frame {
                parts: &[frame],
                len,
                checksum: Checksum::Unverified,
                udp_segment: None,
            });
        }
        Ok(lent)
    }
}
