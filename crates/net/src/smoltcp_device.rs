//! smoltcp's view of the NIC: one received frame at a time, and transmit memory lent by the driver.
//!
//! Transport checksums are the engine's business both ways: verified in [`crate::ethernet`], completed here.

use crate::checksum;
use crate::ethernet::{ETHERNET_HEADER, IPV4_HEADER, PROTOCOL_TCP, PROTOCOL_UDP, be16, be32, put};
use crate::tcp::Connections;
use alloc::vec::Vec;
use smoltcp::phy::{self, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use wireboot_nic::{Offload, Transmit};

/// What smoltcp may touch during one call into it.
pub struct Port<'a, T> {
    /// The frame that smoltcp shall receive, if any.
    pub frame: Option<&'a [u8]>,
    pub transmit: &'a mut T,
    /// The connections whose sequence numbers differ between smoltcp and the wire.
    pub connections: &'a mut Connections,
    /// Where smoltcp builds a frame before it is known what the device shall do to it.
    pub scratch: &'a mut Vec<u8>,
    pub mtu: u16,
    pub offload: bool,
}

/// Capabilities that smoltcp is told for a link of this MTU.
pub fn capabilities(mtu: u16) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ethernet;
    capabilities.max_transmission_unit = usize::from(mtu) + ETHERNET_HEADER;
    capabilities.checksum = ChecksumCapabilities::default();
    capabilities.checksum.tcp = phy::Checksum::None;
    capabilities.checksum.udp = phy::Checksum::None;
    capabilities
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
        Some((RxToken(frame), self.token()))
    }

    fn transmit(&mut self, _: Instant) -> Option<Self::TxToken<'_>> {
        (self.transmit.room() > 0).then(|| self.token())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu)
    }
}

impl<T> Port<'_, T> {
    fn token(&mut self) -> TxToken<'_, T> {
        TxToken {
            transmit: self.transmit,
            connections: self.connections,
            scratch: self.scratch,
            offload: self.offload,
        }
    }
}

pub struct RxToken<'a>(&'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

pub struct TxToken<'a, T> {
    transmit: &'a mut T,
    connections: &'a mut Connections,
    scratch: &'a mut Vec<u8>,
    offload: bool,
}

impl<T: Transmit> phy::TxToken for TxToken<'_, T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let frame = self.scratch;
        frame.clear();
        frame.resize(len, 0);
        let result = f(frame);
        self.connections.leaving(frame);
        let offload = complete_checksum(frame, self.offload);
        // When the ring is full the frame is lost, as on any network, and sent again later. A fault shows
        // at the next burst, which reports it.
        let _ = self
            .transmit
            .send(len, offload, |memory| memory.copy_from_slice(frame));
        result
    }
}

/// Fills in the transport checksum of an outgoing IPv4 frame, or asks the device to.
pub fn complete_checksum(frame: &mut [u8], device: bool) -> Offload {
    checksum_field(frame, device).unwrap_or(Offload::None)
}

fn checksum_field(frame: &mut [u8], device: bool) -> Option<Offload> {
    const START: usize = ETHERNET_HEADER + IPV4_HEADER;
    if be16(frame, 12)? != 0x0800 || *frame.get(ETHERNET_HEADER)? != 0x45 {
        return None;
    }
    let protocol = *frame.get(ETHERNET_HEADER + 9)?;
    let offset: usize = match protocol {
        PROTOCOL_UDP => 6,
        PROTOCOL_TCP => 16,
        _ => return None,
    };
    let len = usize::from(be16(frame, ETHERNET_HEADER + 2)?).checked_sub(IPV4_HEADER)?;
    let source = be32(frame, ETHERNET_HEADER + 12)?.into();
    let destination = be32(frame, ETHERNET_HEADER + 16)?.into();
    let pseudo = checksum::pseudo_header(source, destination, protocol, len);
    let segment = frame.get_mut(START..START + len)?;
    if device {
        put(segment, offset, pseudo.to_be_bytes());
        return Some(Offload::L4Checksum {
            start: START as u16,
            offset: offset as u16,
        });
    }
    put(segment, offset, [0, 0]);
    let mut sum = checksum::compute(pseudo, segment);
    if sum == 0 && protocol == PROTOCOL_UDP {
        // RFC 768: zero on the wire would mean "no checksum".
        sum = 0xffff;
    }
    put(segment, offset, sum.to_be_bytes());
    Some(Offload::None)
}
