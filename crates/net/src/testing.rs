//! smoltcp on a simulated NIC: the opposite end in tests.

use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use std::vec;
use wireboot_nic::{Offload, Transmit};

/// What smoltcp may touch during one call into it. It makes and verifies all checksums itself.
pub(crate) struct Port<'a, T> {
    /// The frame that smoltcp shall receive, if any.
    pub frame: Option<&'a [u8]>,
    pub transmit: &'a mut T,
    pub mtu: u16,
}

/// smoltcp's word for a time of ours.
pub(crate) fn instant(now: wireboot_tcp::Instant) -> Instant {
    Instant::from_micros(now.total_micros())
}

impl<T: Transmit> phy::Device for Port<'_, T> {
    type RxToken<'b>
        = RxToken<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = TxToken<'b, T>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let frame = self.frame.take()?;
        Some((RxToken(frame), TxToken(self.transmit)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Self::TxToken<'_>> {
        (self.transmit.room() > 0).then_some(TxToken(self.transmit))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = usize::from(self.mtu) + 14;
        capabilities
    }
}

pub(crate) struct RxToken<'a>(&'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

pub(crate) struct TxToken<'a, T>(&'a mut T);

impl<T: Transmit> phy::TxToken for TxToken<'_, T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        // When the ring is full the frame is lost, as on any network.
        let _ = self.0.send(len, Offload::None, &mut |memory| {
            memory.copy_from_slice(&frame)
        });
        result
    }
}
