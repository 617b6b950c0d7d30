//! The DUID (RFC 8415 section 11) by which the firmware asks DHCPv6.

use alloc::vec::Vec;
use uefi::runtime::{self, VariableVendor};
use uefi::{Guid, cstr16, guid};

/// Vendor of the variable `ClientId`, in which EDK II keeps its DUID from boot to boot: the GUID of
/// `EFI_DHCP6_SERVICE_BINDING_PROTOCOL`.
const DHCP6_SERVICE_BINDING: Guid = guid!("9fb9a8a1-2f4a-43a6-889c-d0f7b6c47ad5");

/// The firmware's DUID; `None` where it has not needed one yet, or keeps it elsewhere.
#[must_use]
pub fn of_firmware() -> Option<Vec<u8>> {
    let vendor = VariableVendor(DHCP6_SERVICE_BINDING);
    let (variable, _) = runtime::get_variable_boxed(cstr16!("ClientId"), &vendor).ok()?;
    duid_in(&variable).map(<[u8]>::to_vec)
}

/// The DUID in an `EFI_DHCP6_DUID`: its length, then itself.
fn duid_in(variable: &[u8]) -> Option<&[u8]> {
    let (length, duid) = variable.split_first_chunk()?;
    (usize::from(u16::from_le_bytes(*length)) == duid.len()).then_some(duid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_as_long_as_it_says() {
        assert_eq!(duid_in(&[4, 0, 0, 3, 0, 1]), Some(&[0, 3, 0, 1][..]));
        for wrong in [
            &[][..],
            &[4],
            &[4, 0],
            &[4, 0, 0, 3, 0],
            &[4, 0, 0, 3, 0, 1, 0],
        ] {
            assert_eq!(duid_in(wrong), None, "{wrong:?}");
        }
    }
}
