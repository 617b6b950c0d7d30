//! What the firmware's own network boot learned: the packets that `EFI_PXE_BASE_CODE_PROTOCOL` keeps.

use crate::device_path;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use uefi::Handle;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::network::pxe::{BaseCode, Packet};

/// The packets of the firmware's DHCP exchange, in the version of [`Cached::station`]: over IPv4 complete as received, BOOTP header first
/// and padded with zeros; over IPv6 DHCPv6 messages, type first.
#[derive(Clone, Debug)]
pub struct Cached {
    /// The server's acknowledgement: over IPv6 its Reply.
    pub dhcp_ack: Vec<u8>,
    /// The proxy's offer, if one came: over IPv6 its Advertise or Reply.
    pub proxy_offer: Option<Vec<u8>>,
    /// The boot server's reply, if one was asked.
    pub pxe_reply: Option<Vec<u8>>,
    /// The address that the firmware has for the interface.
    pub station: IpAddr,
    mask: IpAddr,
    packets: Packets,
    path: Vec<u8>,
}

/// All packets in the protocol's own form.
#[derive(Clone, Debug)]
struct Packets {
    discover: Option<Packet>,
    ack: Packet,
    proxy_offer: Option<Packet>,
    pxe_discover: Option<Packet>,
    pxe_reply: Option<Packet>,
}

fn open(handle: Handle) -> Option<ScopedProtocol<BaseCode>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: used at once; nothing below removes the protocol while it is open. (Opening it exclusively
    // would disconnect the firmware's network.)
    unsafe { boot::open_protocol(params, OpenProtocolAttributes::GetProtocol) }.ok()
}

fn bytes(packet: &Packet, version: IpAddr) -> Vec<u8> {
    let bytes: &[u8; 1472] = packet.as_ref();
    match version {
        IpAddr::V4(_) => bytes.to_vec(),
        IpAddr::V6(_) => dhcpv6_message(bytes).to_vec(),
    }
}

/// The message at the beginning of a packet whose length nobody tells: type and transaction id, then options up to the zeros behind them
/// (no option has the number 0) or to one that is not whole.
fn dhcpv6_message(packet: &[u8]) -> &[u8] {
    const HEADER: usize = 4;
    let mut end = HEADER.min(packet.len());
    while let Some([c0, c1, l0, l1, value @ ..]) = packet.get(end..) {
        let length = usize::from(u16::from_be_bytes([*l0, *l1]));
        if (*c0, *c1) == (0, 0) || value.len() < length {
            break;
        }
        end += HEADER + length;
    }
    packet.get(..end).unwrap_or(packet)
}

/// What the firmware knows from the network boot that loaded this image from `device`. `None` when it did
/// not do one.
#[must_use]
pub fn cached(device: Handle) -> Option<Cached> {
    let base_code = open(device)?;
    let mode = base_code.get()?.mode();
    if !mode.started() || !mode.dhcp_ack_received() {
        return None;
    }
    // Both of the version that the firmware uses.
    let (station, mask) = (mode.station_ip(), mode.subnet_mask());
    let when = |valid: bool, packet: &Packet| valid.then_some(*packet);
    let packets = Packets {
        discover: when(mode.dhcp_discover_valid(), mode.dhcp_discover()),
        ack: *mode.dhcp_ack(),
        proxy_offer: when(mode.proxy_offer_received(), mode.proxy_offer()),
        pxe_discover: when(mode.pxe_discover_valid(), mode.pxe_discover()),
        pxe_reply: when(mode.pxe_reply_received(), mode.pxe_reply()),
    };
    Some(Cached {
        dhcp_ack: bytes(&packets.ack, station),
        proxy_offer: packets.proxy_offer.map(|packet| bytes(&packet, station)),
        pxe_reply: packets.pxe_reply.map(|packet| bytes(&packet, station)),
        station,
        mask,
        packets,
        path: device_path::of_handle(device)?.into_vec(),
    })
}

impl Cached {
    /// Tells the firmware's network, which has been connected anew since, what it knew before: the packets, and over IPv4
    /// the address. Boot loaders look there for their server.
    ///
    /// Best effort: a loader that finds nothing asks DHCP itself. `None` where the firmware does not take it.
    pub fn restore(&self) -> Option<()> {
        let handles = boot::locate_handle_buffer(SearchType::from_proto::<BaseCode>()).ok()?;
        let handle = handles.iter().find(|&&handle| {
            device_path::of_handle(handle).is_some_and(|path| *path == *self.path)
        })?;
        let mut base_code = open(*handle)?;
        let base_code = base_code.get_mut()?;
        if base_code.mode().started() {
            base_code.stop().ok()?;
        }
        base_code.start(self.station.is_ipv6()).ok()?;
        let p = &self.packets;
        base_code
            .set_packets(
                Some(p.discover.is_some()),
                Some(true),
                Some(p.proxy_offer.is_some()),
                Some(p.pxe_discover.is_some()),
                Some(p.pxe_reply.is_some()),
                Some(false),
                p.discover.as_ref(),
                Some(&p.ack),
                p.proxy_offer.as_ref(),
                p.pxe_discover.as_ref(),
                p.pxe_reply.as_ref(),
                None,
            )
            .ok()?;
        // Over IPv6 the firmware makes itself an address again once it has started. Told of one right after its drivers were connected,
        // OVMF 2022.11 runs into nowhere.
        if self.station.is_ipv4() {
            base_code
                .set_station_ip(Some(&self.station), Some(&self.mask))
                .ok()?;
        }
        Some(())
    }

    /// Discover, acknowledgement, proxy's offer, discover to a boot server and its reply, padded with zeros.
    #[must_use]
    pub fn raw(&self) -> [Option<[u8; 1472]>; 5] {
        let p = &self.packets;
        [
            p.discover.as_ref(),
            Some(&p.ack),
            p.proxy_offer.as_ref(),
            p.pxe_discover.as_ref(),
            p.pxe_reply.as_ref(),
        ]
        .map(|packet| packet.map(|packet| *packet.as_ref()))
    }

    /// The netmask of [`Cached::station`]; none of an address of IPv6.
    #[must_use]
    pub fn netmask(&self) -> Option<Ipv4Addr> {
        match self.mask {
            IpAddr::V4(mask) => Some(mask),
            IpAddr::V6(_) => None,
        }
    }

    /// Nodes of the device path that the firmware loaded us over.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_before_the_zeros() {
        // Reply; server id (2) of 3 bytes, one of them 0, and an empty rapid commit (14).
        let message = [7, 1, 2, 3, 0, 2, 0, 3, 9, 0, 9, 0, 14, 0, 0];
        let mut packet = message.to_vec();
        packet.resize(1472, 0);
        assert_eq!(dhcpv6_message(&packet), message);
        assert_eq!(dhcpv6_message(&message), message);
        // An option that says it is longer than what is there ends it too.
        packet[7] = 0xff;
        packet[6] = 0xff;
        assert_eq!(dhcpv6_message(&packet), &packet[..4]);
        for length in 0..message.len() {
            assert!(dhcpv6_message(&message[..length]).len() <= length);
        }
    }
}
