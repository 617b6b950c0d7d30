//! What callers set: filter, parameters, address, packets.

use super::callback::Callback;
use super::{status, with};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ptr;
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeIpFilter, PxeBaseCodePacket, PxeBaseCodeProtocol,
};
use uefi_raw::{Boolean, IpAddress, Status};
use wireboot_platform::raw::pxe_callback::PxeBaseCodeFunction;
use wireboot_protocols::base_code::Filter;

pub(super) unsafe extern "efiapi" fn set_ip_filter(
    this: *mut PxeBaseCodeProtocol,
    filter: *const PxeBaseCodeIpFilter,
) -> Status {
    if filter.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: the caller's filter, of plain bytes, aligned or not.
    let filter = unsafe { filter.read_unaligned() };
    with(this, |face| {
        face.started()?;
        let list = filter.ip_list.get(..filter.ip_cnt.into());
        let list = list.ok_or(Status::INVALID_PARAMETER)?;
        let list: Vec<IpAddr> = list
            .iter()
            // SAFETY: a union of bytes, as many as the larger address has.
            .map(|ip| face.address(unsafe { ip.v6 }.0))
            .collect();
        let bits = filter.filters.bits();
        let host = face.host();
        host.set_filter(Filter { bits, list }).map_err(status)?;
        face.call.state.snp.link().set_host_up(true);
        // Routers and switches are told of its groups.
        let _ = face.listen();
        face.publish();
        Ok(())
    })
}

pub(super) unsafe extern "efiapi" fn set_parameters(
    this: *mut PxeBaseCodeProtocol,
    auto_arp: *const Boolean,
    send_guid: *const Boolean,
    ttl: *const u8,
    tos: *const u8,
    make_callback: *const Boolean,
) -> Status {
    // SAFETY: null or the caller's variables, which are bytes.
    let (auto_arp, send_guid, ttl, tos, make_callback) = unsafe {
        (
            auto_arp.as_ref().copied(),
            send_guid.as_ref().copied(),
            ttl.as_ref().copied(),
            tos.as_ref().copied(),
            make_callback.as_ref().copied(),
        )
    };
    with(this, |face| {
        face.started()?;
        if make_callback.is_some_and(bool::from)
            && Callback::find(this.cast(), PxeBaseCodeFunction::FIRST).is_none()
        {
            return Err(Status::INVALID_PARAMETER);
        }
        let mode = face.mode();
        mode.auto_arp = auto_arp.unwrap_or(mode.auto_arp);
        mode.send_guid = send_guid.unwrap_or(mode.send_guid);
        mode.ttl = ttl.unwrap_or(mode.ttl);
        mode.tos = tos.unwrap_or(mode.tos);
        mode.make_callbacks = make_callback.unwrap_or(mode.make_callbacks);
        let set = (mode.ttl, mode.tos, bool::from(mode.auto_arp));
        let host = face.host();
        (host.ttl, host.tos, host.auto_arp) = set;
        Ok(())
    })
}

pub(super) unsafe extern "efiapi" fn set_station_ip(
    this: *mut PxeBaseCodeProtocol,
    station: *const IpAddress,
    mask: *const IpAddress,
) -> Status {
    let read = |ip: *const IpAddress| {
        // SAFETY: null or the caller's address, aligned or not.
        (!ip.is_null()).then(|| unsafe { ip.cast::<[u8; 16]>().read_unaligned() })
    };
    let (station, mask) = (read(station), read(mask));
    with(this, |face| {
        face.started()?;
        let station = station.map(|bytes| face.address(bytes));
        let mask = mask.map(|bytes| face.address(bytes));
        face.host().set_station(station, mask).map_err(status)?;
        face.use_address();
        face.publish();
        Ok(())
    })
}

pub(super) unsafe extern "efiapi" fn set_packets(
    this: *mut PxeBaseCodeProtocol,
    discover_valid: *const Boolean,
    ack_received: *const Boolean,
    proxy_offer_received: *const Boolean,
    pxe_discover_valid: *const Boolean,
    pxe_reply_received: *const Boolean,
    bis_reply_received: *const Boolean,
    discover: *const PxeBaseCodePacket,
    ack: *const PxeBaseCodePacket,
    proxy_offer: *const PxeBaseCodePacket,
    pxe_discover: *const PxeBaseCodePacket,
    pxe_reply: *const PxeBaseCodePacket,
    bis_reply: *const PxeBaseCodePacket,
) -> Status {
    with(this, |face| {
        face.started()?;
        let flags = [
            discover_valid,
            ack_received,
            proxy_offer_received,
            pxe_discover_valid,
            pxe_reply_received,
            bis_reply_received,
        ];
        // SAFETY: null or the caller's flags, which are bytes.
        let flags = flags.map(|flag| unsafe { flag.as_ref() }.map(|flag| bool::from(*flag)));
        let packets = [
            discover,
            ack,
            proxy_offer,
            pxe_discover,
            pxe_reply,
            bis_reply,
        ];
        let mode = face.table.mode.get();
        // SAFETY: null or the caller's packets, which may be the mode's own; nobody else has the mode.
        unsafe {
            let places = [
                &raw mut (*mode).dhcp_discover,
                &raw mut (*mode).dhcp_ack,
                &raw mut (*mode).proxy_offer,
                &raw mut (*mode).pxe_discover,
                &raw mut (*mode).pxe_reply,
                &raw mut (*mode).pxe_bis_reply,
            ];
            for (packet, place) in packets.into_iter().zip(places) {
                if !packet.is_null() {
                    let bytes = packet.cast::<u8>();
                    ptr::copy(bytes, place.cast(), size_of::<PxeBaseCodePacket>());
                }
            }
        }
        let mode = face.mode();
        let places = [
            &mut mode.dhcp_discover_valid,
            &mut mode.dhcp_ack_received,
            &mut mode.proxy_offer_received,
            &mut mode.pxe_discover_valid,
            &mut mode.pxe_reply_received,
            &mut mode.pxe_bis_reply_received,
        ];
        for (flag, place) in flags.into_iter().zip(places) {
            *place = flag.map_or(*place, Boolean::from);
        }
        Ok(())
    })
}
