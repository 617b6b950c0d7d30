//! A queue pair: its two queues, and one beyond the first as a NIC of its own.

use alloc::sync::Arc;

use super::device::{Device, SharedDevice, User};
use super::receive::{ReceiveQueue, VirtioReceive};
use super::ring::{Buffers, Ring, queue_size};
use super::shape::{LARGE_BUFFER, QUEUE_SIZE_MIN, Shape, TRANSMIT_QUEUE_MAX, TRANSMIT_UNITS};
use super::transmit::{TransmitQueue, VirtioTransmit};
use super::{CONFIG_STATUS, InitError, feature};
use crate::platform::PciFunction;
use crate::{Counters, Nic, Properties, Transmit as _};

const VIRTIO_NET_S_LINK_UP: u16 = 1;

/// The two queues of a pair.
pub(super) struct Queues {
    pub rx: ReceiveQueue,
    tx: TransmitQueue,
    pub properties: Properties,
    /// The device tells the state of its link.
    tells_link: bool,
}

impl Queues {
    /// Sets up the queues of pair `pair`.
    ///
    /// # Safety
    /// As for [`Ring::new`].
    pub(super) unsafe fn new<P: PciFunction>(
        device: &mut Device<P>,
        pair: u16,
        shape: &Shape,
    ) -> Result<Self, InitError> {
        let (receive, transmit) = (2 * pair, 2 * pair + 1);
        let transport = &device.shared.transport;
        let receive_max = shape.receive_queue_max();
        let receive_size = queue_size(transport, receive, QUEUE_SIZE_MIN, receive_max)?;
        let transmit_size = queue_size(transport, transmit, QUEUE_SIZE_MIN, TRANSMIT_QUEUE_MAX)?;
        let buffers = usize::from(receive_size);
        let buffer = shape.receive_buffer(buffers);
        // SAFETY: the caller's promise.
        let rx = unsafe { Ring::new(device, receive, receive_size, buffer)? };
        // SAFETY: the caller's promise.
        let tx = unsafe { Ring::new(device, transmit, transmit_size, shape.frame_buffer())? };
        let mut large = None;
        if shape.has(feature::SEGMENTATION) {
            // SAFETY: the caller's promise.
            large = Some(unsafe { Buffers::new(device, TRANSMIT_UNITS, LARGE_BUFFER)? });
        }
        Ok(Self {
            rx: ReceiveQueue::new(rx, shape.features, shape.max_receive()),
            tx: TransmitQueue::new(tx, shape.frame(), shape.has(feature::CSUM), large),
            properties: shape.properties(buffers),
            tells_link: shape.has(feature::STATUS),
        })
    }

    pub(super) fn split<'a, P: PciFunction>(
        &'a mut self,
        user: User<'a, P>,
    ) -> (VirtioReceive<'a, P>, VirtioTransmit<'a, P>) {
        self.tx.chunks = self.rx.hello.takes_chunks();
        let rx = VirtioReceive {
            queue: &mut self.rx,
            user,
        };
        let tx = VirtioTransmit {
            queue: &mut self.tx,
            user,
        };
        (rx, tx)
    }

    /// Also asks the device for its health.
    pub(super) fn link_up<P: PciFunction>(&self, user: User<'_, P>) -> bool {
        if user.running() != Ok(true) || user.check() != Ok(true) {
            return false;
        }
        let status = user.shared.transport.config16(CONFIG_STATUS);
        !self.tells_link || status & VIRTIO_NET_S_LINK_UP != 0
    }

    pub(super) fn counters(&self) -> Counters {
        let (rx, tx) = (self.rx.counters(), self.tx.counters());
        Counters {
            receive_units: rx.receive_units,
            receive_bytes: rx.receive_bytes,
            receive_dropped: rx.receive_dropped,
            receive_doorbells: rx.receive_doorbells,
            ..tx
        }
    }
}

/// A queue pair beyond the first: a NIC of its own, for any processor. Dropping it frees nothing that the device knows of.
pub struct VirtioPair<P: PciFunction> {
    pub(super) queues: Queues,
    /// Behind the queues: while it is held, their memory stays.
    shared: Arc<SharedDevice<P::Bar>>,
    stopped: bool,
}

impl<P: PciFunction> VirtioPair<P> {
    pub(super) fn new(queues: Queues, shared: Arc<SharedDevice<P::Bar>>) -> Self {
        Self {
            queues,
            shared,
            stopped: false,
        }
    }

    fn user(&self) -> User<'_, P> {
        User {
            shared: &self.shared,
            owner: None,
            stopped: self.stopped,
        }
    }
}

impl<P: PciFunction> Nic for VirtioPair<P> {
    type Rx<'a>
        = VirtioReceive<'a, P>
    where
        P: 'a;
    type Tx<'a>
        = VirtioTransmit<'a, P>
    where
        P: 'a;

    fn properties(&self) -> Properties {
        self.queues.properties
    }

    /// Also asks the device for its health: a fault found here is returned by the next call to each pair, and the first then resets the
    /// device.
    fn link_up(&mut self) -> bool {
        self.queues.link_up(self.user())
    }

    fn split(&mut self) -> (VirtioReceive<'_, P>, VirtioTransmit<'_, P>) {
        let user = User {
            shared: &self.shared,
            owner: None,
            stopped: self.stopped,
        };
        self.queues.split(user)
    }

    fn counters(&self) -> Counters {
        self.queues.counters()
    }

    /// Ends the use of this pair alone, and hands what is queued to the device before. The device goes on and still holds the pair's
    /// buffers: have it steer elsewhere first ([`VirtioNet::spread`](super::VirtioNet::spread)).
    fn stop(&mut self) {
        let _ = self.split().1.flush();
        self.stopped = true;
    }
}
