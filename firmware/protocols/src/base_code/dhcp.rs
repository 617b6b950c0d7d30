//! Dhcp: addresses by DHCP or DHCPv6, whose messages the mode shows.

use super::{Face, mode, status, with};
use alloc::vec::Vec;
use uefi_raw::protocol::network::pxe::{PxeBaseCodeMode, PxeBaseCodeProtocol};
use uefi_raw::{Boolean, Status};
use wireboot_platform::raw::pxe_callback::PxeBaseCodeFunction;

/// A message in which this machine has said who it is: over IPv4 its own, over IPv6 what it was answered.
pub(super) fn template(mode: &PxeBaseCodeMode) -> Option<Vec<u8>> {
    let (valid, packet) = if bool::from(mode.using_ipv6) {
        (mode.dhcp_ack_received, &mode.dhcp_ack)
    } else {
        (mode.dhcp_discover_valid, &mode.dhcp_discover)
    };
    bool::from(valid).then(|| mode::message(packet, mode.using_ipv6.into()).to_vec())
}

pub(super) unsafe extern "efiapi" fn dhcp(this: *mut PxeBaseCodeProtocol, sort: Boolean) -> Status {
    with(this, |face| {
        face.started()?;
        let done = exchange(face, sort.into());
        face.leave();
        done
    })
}

fn exchange(face: &mut Face<'_>, sort: bool) -> Result<(), Status> {
    let template = template(face.mode());
    let ipv6 = bool::from(face.mode().using_ipv6);
    let done = face.work(PxeBaseCodeFunction::DHCP, |host, port| {
        if ipv6 {
            host.dhcp6(port, template.as_deref())
        } else {
            host.dhcp(port, template.as_deref(), sort)
        }
    });
    let exchange = done.map_err(status)?;
    face.use_address();
    let m = face.mode();
    let shown = |raw: &[u8]| mode::shown(raw, ipv6);
    let (discover, ack) = (shown(&exchange.discover), shown(&exchange.ack));
    let proxy_offer = exchange.proxy_offer.as_deref().map(shown);
    mode::show(
        Some(&discover),
        &mut m.dhcp_discover,
        &mut m.dhcp_discover_valid,
    );
    mode::show(Some(&ack), &mut m.dhcp_ack, &mut m.dhcp_ack_received);
    mode::show(
        proxy_offer.as_ref(),
        &mut m.proxy_offer,
        &mut m.proxy_offer_received,
    );
    // Of another lease.
    mode::show(None, &mut m.pxe_discover, &mut m.pxe_discover_valid);
    mode::show(None, &mut m.pxe_reply, &mut m.pxe_reply_received);
    Ok(())
}
