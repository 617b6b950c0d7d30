//! IPv6 routers, by their advertisements.

use alloc::string::ToString;
use alloc::vec::Vec;

use wireboot_report::network::Router;

use crate::frame::IpPacket;
use crate::keep;

/// Flags of an advertisement (RFC 4861, section 4.2): addresses, and all else, by DHCPv6.
const MANAGED: u8 = 0x80;
const OTHER: u8 = 0x40;

/// An advertisement at `at_s`, the machine having solicited last at `asked_s`. One that is cut off tells nothing.
pub(crate) fn advertised(
    routers: &mut Vec<Router>,
    at_s: f64,
    asked_s: Option<f64>,
    ip: &IpPacket<'_>,
) {
    // Type, code, checksum, hop limit, flags, lifetime.
    let Some(&[_, _, _, _, _, flags, high, low]) = ip.payload.first_chunk() else {
        return;
    };
    let address = ip.source.to_string();
    let known = routers.iter().position(|one| one.address == address);
    if known.is_none() {
        let new = Router {
            address: address.clone(),
            delay_s: asked_s.map(|asked| at_s - asked),
            ..Router::default()
        };
        keep(routers, new);
    }
    let router = match known {
        Some(place) => routers.get_mut(place),
        None => routers.last_mut().filter(|one| one.address == address),
    };
    let Some(router) = router else { return };
    keep(&mut router.advertised_s, at_s);
    router.lifetime_s = u16::from_be_bytes([high, low]);
    router.managed = flags & MANAGED != 0;
    router.other = flags & OTHER != 0;
}
