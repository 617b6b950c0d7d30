//! EFI_PXE_BASE_CODE_MODE: what callers read in it, at first and after calls.

use super::Packets;
use crate::shared::Station;
use core::mem::MaybeUninit;
use core::net::IpAddr;
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeArpEntry, PxeBaseCodeIpFilter, PxeBaseCodeIpFilterFlags, PxeBaseCodeMode,
    PxeBaseCodePacket, PxeBaseCodeRouteEntry,
};
use uefi_raw::{Boolean, IpAddress, MacAddress};
use wireboot_protocols::base_code::Host;
use wireboot_protocols::packet::{self, Packet};

/// Time to live, unless a caller sets it.
pub(super) const TTL: u8 = 64;

/// Bytes of an ICMP error before its data.
const ICMP_HEADER: usize = 8;

/// An address as the protocol has it.
pub(super) fn ip_address(address: IpAddr) -> IpAddress {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(v4) => {
            if let Some(first) = bytes.first_chunk_mut() {
                *first = v4.octets();
            }
        }
        IpAddr::V6(v6) => bytes = v6.octets(),
    }
    bytes.into()
}

/// An address of the protocol's.
pub(super) fn address(bytes: [u8; 16], ipv6: bool) -> IpAddr {
    match (ipv6, bytes.first_chunk::<4>()) {
        (false, Some(v4)) => (*v4).into(),
        _ => bytes.into(),
    }
}

/// An Ethernet address as the protocol has it.
pub(super) fn mac_address(address: [u8; 6]) -> MacAddress {
    let mut bytes = [0; 32];
    if let Some(first) = bytes.first_chunk_mut() {
        *first = address;
    }
    MacAddress(bytes)
}

fn mask(address: IpAddr, prefix_len: u8) -> IpAddress {
    let len = u32::from(prefix_len);
    ip_address(match address {
        IpAddr::V4(_) => {
            let bits = u32::MAX.checked_shl(32_u32.saturating_sub(len));
            IpAddr::V4(bits.unwrap_or(0).into())
        }
        IpAddr::V6(_) => {
            let bits = u128::MAX.checked_shl(128_u32.saturating_sub(len));
            IpAddr::V6(bits.unwrap_or(0).into())
        }
    })
}

/// Of a base code that nobody has started.
pub(super) fn stopped() -> PxeBaseCodeMode {
    // SAFETY: integers, bytes, and booleans that are bytes: all of them may be zero.
    let mut mode: PxeBaseCodeMode = unsafe { MaybeUninit::zeroed().assume_init() };
    mode.ipv6_available = Boolean::TRUE;
    mode.ipv6_supported = Boolean::TRUE;
    mode.auto_arp = Boolean::TRUE;
    mode.ttl = TTL;
    mode
}

/// Shows a packet, or that there is none.
pub(super) fn show(packet: Option<&Packet>, place: &mut PxeBaseCodePacket, flag: &mut Boolean) {
    if let Some(raw) = packet {
        *place = PxeBaseCodePacket { raw: *raw };
    }
    *flag = packet.is_some().into();
}

/// Of one that has been started, and has done DHCP.
pub(super) fn new(station: &Station, packets: &Packets) -> PxeBaseCodeMode {
    let mut mode = stopped();
    let m = &mut mode;
    m.started = Boolean::TRUE;
    m.using_ipv6 = station.address.is_ipv6().into();
    m.station_ip = ip_address(station.address);
    m.subnet_mask = mask(station.address, station.prefix_len);
    m.ip_filter.filters = PxeBaseCodeIpFilterFlags::STATION_IP;
    let p = packets;
    show(
        p.discover.as_ref(),
        &mut m.dhcp_discover,
        &mut m.dhcp_discover_valid,
    );
    show(p.ack.as_ref(), &mut m.dhcp_ack, &mut m.dhcp_ack_received);
    show(
        p.proxy_offer.as_ref(),
        &mut m.proxy_offer,
        &mut m.proxy_offer_received,
    );
    show(
        p.pxe_discover.as_ref(),
        &mut m.pxe_discover,
        &mut m.pxe_discover_valid,
    );
    show(
        p.pxe_reply.as_ref(),
        &mut m.pxe_reply,
        &mut m.pxe_reply_received,
    );
    mode
}

/// Has the mode say what the host knows.
pub(super) fn publish(mode: &mut PxeBaseCodeMode, host: &Host) {
    let (address, prefix_len) = host.address();
    mode.station_ip = ip_address(address);
    mode.subnet_mask = mask(address, prefix_len);
    let filter = host.filter();
    let mut list = [IpAddress::default(); 8];
    let places = list.iter_mut().zip(&filter.list);
    places.for_each(|(place, address)| *place = ip_address(*address));
    mode.ip_filter = PxeBaseCodeIpFilter {
        filters: PxeBaseCodeIpFilterFlags::from_bits_retain(filter.bits),
        ip_cnt: filter.list.len() as u8,
        reserved: 0,
        ip_list: list,
    };
    let neighbors = host.neighbors();
    mode.arp_cache_entries = neighbors.len() as u32;
    for (place, (address, mac)) in mode.arp_cache.iter_mut().zip(neighbors) {
        *place = PxeBaseCodeArpEntry {
            ip_addr: ip_address(*address),
            mac_addr: mac_address(*mac),
        };
    }
    mode.route_table_entries = u32::from(host.router().is_some());
    if let (Some(place), Some(router)) = (mode.route_table.first_mut(), host.router()) {
        *place = PxeBaseCodeRouteEntry {
            ip_addr: IpAddress::default(),
            subnet_mask: IpAddress::default(),
            gw_addr: ip_address(router),
        };
    }
    mode.icmp_error_received = host.icmp_error().is_some().into();
    if let Some(error) = host.icmp_error() {
        let place = &mut mode.icmp_error;
        if let Some((&[ty, code, c0, c1, a, b, c, d], data)) =
            error.message.split_first_chunk::<ICMP_HEADER>()
        {
            (place.ty, place.code) = (ty, code);
            // As they lie in the packet.
            place.checksum = u16::from_ne_bytes([c0, c1]);
            place.u.reserved = u32::from_ne_bytes([a, b, c, d]);
            place.data.fill(0);
            place
                .data
                .iter_mut()
                .zip(data)
                .for_each(|(to, byte)| *to = *byte);
        }
    }
    let error = host.tftp_error();
    mode.tftp_error_received = error.is_some().into();
    if let Some(error) = error {
        tftp_error(mode, error.code as u8, &error.text);
    }
}

/// Has the mode tell of a server's TFTP error.
pub(super) fn tftp_error(mode: &mut PxeBaseCodeMode, code: u8, text: &[u8]) {
    mode.tftp_error_received = Boolean::TRUE;
    mode.tftp_error.error_code = code;
    let places = mode.tftp_error.error_string.iter_mut();
    for (place, byte) in places.zip(text.iter().copied().take(126).chain([0])) {
        *place = byte;
    }
}

/// A packet as a loader sees it: over IPv4 with an end behind its options.
pub(super) fn shown(raw: &[u8], ipv6: bool) -> Packet {
    let mut packet = packet::padded(raw);
    if !ipv6 {
        packet::end_options(&mut packet);
    }
    packet
}

/// The message in a packet that the mode shows.
pub(super) fn message(packet: &PxeBaseCodePacket, ipv6: bool) -> &[u8] {
    let bytes: &Packet = packet.as_ref();
    if ipv6 { packet::message6(bytes) } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(address: IpAddress) -> [u8; 16] {
        // SAFETY: a union of plain bytes.
        unsafe { core::mem::transmute(address) }
    }

    #[test]
    fn masks_have_as_many_ones_as_the_prefix() {
        let v4 = |len| octets(mask("10.0.0.1".parse().unwrap(), len))[..4].to_vec();
        assert_eq!(v4(24), [255, 255, 255, 0]);
        assert_eq!(v4(0), [0, 0, 0, 0]);
        assert_eq!(v4(32), [255; 4]);
        assert_eq!(v4(9), [255, 128, 0, 0]);
        let v6 = octets(mask("fd00::1".parse().unwrap(), 64));
        assert_eq!(v6, [[0xff; 8], [0; 8]].concat()[..]);
    }

    #[test]
    fn addresses_are_of_the_version_in_use() {
        for text in ["10.1.2.3", "fd00::1"] {
            let there: IpAddr = text.parse().unwrap();
            assert_eq!(address(octets(ip_address(there)), there.is_ipv6()), there);
        }
    }

    /// EFI_PXE_BASE_CODE_TFTP_ERROR: ErrorString has 127 bytes, the zero that ends it included.
    #[test]
    fn a_servers_text_ends_with_a_zero() {
        let mut mode = stopped();
        tftp_error(&mut mode, 1, &[b'a'; 200]);
        let error = &mode.tftp_error;
        assert_eq!((error.error_code, error.error_string[125]), (1, b'a'));
        assert_eq!(error.error_string[126], 0);
        tftp_error(&mut mode, 2, b"no");
        assert_eq!(mode.tftp_error.error_string[..3], *b"no\0");
    }
}
