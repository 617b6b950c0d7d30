//! The VLAN (IEEE 802.1Q) in which the firmware's network boot brought this program: what is asked and sent here is in it, too.

use crate::error::Error;
use alloc::vec::Vec;
use wireboot_boot::card::AnyNic;
use wireboot_boot::engine::Cable;
use wireboot_boot::origin::Origin;
use wireboot_boot::settings::Settings;
use wireboot_nic::vlan::{TAG_LEN, Vlan, VlanId};

/// The EtherType that announces a tag.
const TPID: [u8; 2] = [0x81, 0x00];
/// Where a tag is: behind both addresses.
const TAG: usize = 12;
/// The VLAN's number in the second half of a tag; above it are priority and drop eligibility.
const VID: u16 = 0x0fff;

fn id(origin: &Origin) -> Option<VlanId> {
    origin.network.vlan.and_then(VlanId::new)
}

/// Its number; `None` where there is none.
pub(crate) fn number(origin: &Origin) -> Option<u16> {
    origin.network.vlan.filter(|_| id(origin).is_some())
}

/// The settings of wireboot's network.
pub(crate) fn settings(origin: &Origin) -> Settings {
    Settings {
        vlan: id(origin),
        ..Settings::default()
    }
}

/// A card as an engine of wireboot's has it.
pub(crate) fn cable(nic: AnyNic, origin: &Origin) -> Cable {
    Vlan::new(nic, id(origin))
}

/// For who measures frames, which have no tag.
///
/// # Errors
/// When there is a VLAN.
pub(crate) fn ensure_none(origin: &Origin) -> Result<(), Error> {
    match number(origin) {
        Some(vlan) => Err(Error::Vlan(vlan)),
        None => Ok(()),
    }
}

/// A frame as it is sent into a VLAN.
pub(crate) fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(frame.len().min(TAG));
    [addresses, &TPID, &vlan.to_be_bytes(), rest].concat()
}

/// A frame of a VLAN without its tag; `None` for every other frame.
pub(crate) fn untagged(frame: &[u8], vlan: u16) -> Option<Vec<u8>> {
    let (addresses, rest) = frame.split_at_checked(TAG)?;
    let (tag, rest) = rest.split_first_chunk::<TAG_LEN>()?;
    let [t0, t1, v0, v1] = *tag;
    let is_in_it = [t0, t1] == TPID && u16::from_be_bytes([v0, v1]) & VID == vlan;
    is_in_it.then(|| [addresses, rest].concat())
}

/// The packet in a frame that has this Ethernet header and `body` behind it.
pub(crate) fn packet<'a>(header: &[u8; 14], body: &'a [u8]) -> &'a [u8] {
    if header.ends_with(&TPID) {
        // The rest of the tag, and the packet's own EtherType, are as long as a tag.
        body.get(TAG_LEN..).unwrap_or_default()
    } else {
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_and_goes() {
        let frame: Vec<u8> = (0..60).collect();
        let with = tagged(&frame, 5);
        assert_eq!(with[..12], frame[..12]);
        assert_eq!(with[12..16], [0x81, 0, 0, 5]);
        assert_eq!(with[16..], frame[12..]);
        assert_eq!(untagged(&with, 5).as_deref(), Some(&frame[..]));
        // Of any priority.
        let mut urgent = with.clone();
        urgent[14] = 0xf0;
        assert_eq!(untagged(&urgent, 5).as_deref(), Some(&frame[..]));
        assert_eq!(untagged(&with, 6), None);
        assert_eq!(untagged(&frame, 5), None);
    }

    #[test]
    fn short_frames_are_no_harm() {
        let frame = tagged(&[7; 12], 5);
        for len in 0..frame.len() {
            assert_eq!(untagged(&frame[..len], 5), None);
            let _ = tagged(&frame[..len], 5);
        }
        assert_eq!(untagged(&frame, 5).as_deref(), Some(&[7; 12][..]));
    }

    #[test]
    fn a_packet_is_behind_its_tag() {
        let mut header = [0; 14];
        assert_eq!(packet(&header, &[0x45, 1]), [0x45, 1]);
        header[12] = 0x81;
        assert_eq!(packet(&header, &[0, 5, 8, 0, 0x45]), [0x45]);
        assert!(packet(&header, &[0, 5, 8]).is_empty());
    }
}
