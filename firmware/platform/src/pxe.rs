//! What the firmware's own network boot learned: the packets that `EFI_PXE_BASE_CODE_PROTOCOL` keeps.

use crate::device_path;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use uefi::Handle;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::network::pxe::{BaseCode, Packet};

/// The packets of the firmware's DHCP exchange, complete as received (BOOTP header first).
#[derive(Clone, Debug)]
pub struct Cached {
    /// The server's acknowledgement.
    pub dhcp_ack: Vec<u8>,
    /// The proxy's offer, if one came.
    pub proxy_offer: Option<Vec<u8>>,
    /// The boot server's reply, if one was asked.
    pub pxe_reply: Option<Vec<u8>>,
    station: Ipv4Addr,
    mask: Ipv4Addr,
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

fn bytes(packet: &Packet) -> Vec<u8> {
    let bytes: &[u8; 1472] = packet.as_ref();
    bytes.to_vec()
}

/// What the firmware knows from the network boot that loaded this image from `device`. `None` when it did
/// not do one over IPv4.
#[must_use]
pub fn cached(device: Handle) -> Option<Cached> {
    let base_code = open(device)?;
    let mode = base_code.get()?.mode();
    if !mode.started() || mode.using_ipv6() || !mode.dhcp_ack_received() {
        return None;
    }
    let (IpAddr::V4(station), IpAddr::V4(mask)) = (mode.station_ip(), mode.subnet_mask()) else {
        return None;
    };
    let when = |valid: bool, packet: &Packet| valid.then_some(*packet);
    let packets = Packets {
        discover: when(mode.dhcp_discover_valid(), mode.dhcp_discover()),
        ack: *mode.dhcp_ack(),
        proxy_offer: when(mode.proxy_offer_received(), mode.proxy_offer()),
        pxe_discover: when(mode.pxe_discover_valid(), mode.pxe_discover()),
        pxe_reply: when(mode.pxe_reply_received(), mode.pxe_reply()),
    };
    Some(Cached {
        dhcp_ack: bytes(&packets.ack),
        proxy_offer: packets.proxy_offer.as_ref().map(bytes),
        pxe_reply: packets.pxe_reply.as_ref().map(bytes),
        station,
        mask,
        packets,
        path: device_path::of_handle(device)?.into_vec(),
    })
}

impl Cached {
    /// Tells the firmware's network, which has been connected anew since, what it knew before: the address
    /// and the packets. Boot loaders look there for their server.
    ///
    /// Best effort: a loader that finds nothing asks DHCP itself.
    pub fn restore(&self) -> Option<()> {
        let handles = boot::locate_handle_buffer(SearchType::from_proto::<BaseCode>()).ok()?;
        let handle = handles.iter().find(|&&handle| {
            device_path::of_handle(handle).is_some_and(|path| *path == *self.path)
        })?;
        let mut base_code = open(*handle)?;
        let base_code = base_code.get_mut()?;
        base_code.start(false).ok()?;
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
        let (station, mask) = (IpAddr::V4(self.station), IpAddr::V4(self.mask));
        base_code.set_station_ip(Some(&station), Some(&mask)).ok()
    }

    /// Nodes of the device path that the firmware loaded us over.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}
