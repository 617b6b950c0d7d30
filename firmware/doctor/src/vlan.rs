//! The VLAN (IEEE 802.1Q) in which the firmware's network boot brought this program: what is asked and sent here is in it, too.

use crate::error::Error;
use wireboot_boot::card::AnyNic;
use wireboot_boot::engine::Cable;
use wireboot_boot::origin::Origin;
use wireboot_boot::settings::Settings;
use wireboot_nic::vlan::{TAG_LEN, TPID, Vlan, VlanId};

/// Its number; `None` where there is none.
pub(crate) fn id(origin: &Origin) -> Option<VlanId> {
    origin.network.vlan.and_then(VlanId::new)
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
    match id(origin) {
        Some(vlan) => Err(Error::Vlan(vlan)),
        None => Ok(()),
    }
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
    fn a_packet_is_behind_its_tag() {
        let mut header = [0; 14];
        assert_eq!(packet(&header, &[0x45, 1]), [0x45, 1]);
        header[12] = 0x81;
        assert_eq!(packet(&header, &[0, 5, 8, 0, 0x45]), [0x45]);
        assert!(packet(&header, &[0, 5, 8]).is_empty());
    }
}
