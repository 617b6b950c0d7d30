//! DHCP Unique Identifiers (RFC 8415 section 11, RFC 6355).

/// Bytes of a DUID, its type included.
const LENGTHS: core::ops::RangeInclusive<usize> = 3..=130;
/// Link-layer address plus time.
const LLT: [u8; 2] = [0, 1];
const LL: [u8; 2] = [0, 3];
const UUID: [u8; 2] = [0, 4];
/// Hardware type.
const ETHERNET: [u8; 2] = [0, 1];

/// True for bytes that may be a DUID: a type of two bytes and 1 to 128 more.
pub fn is_valid(duid: &[u8]) -> bool {
    LENGTHS.contains(&duid.len())
}

/// DUID-UUID of the machine with this UUID, in the byte order of RFC 9562. SMBIOS and EFI hold the first three fields the other way round.
pub fn from_uuid(uuid: [u8; 16]) -> [u8; 18] {
    let mut duid = [0; 18];
    let parts = UUID.iter().chain(&uuid);
    duid.iter_mut()
        .zip(parts)
        .for_each(|(to, from)| *to = *from);
    duid
}

/// DUID-LL of the interface with this Ethernet address.
pub fn from_mac(mac: [u8; 6]) -> [u8; 10] {
    let mut duid = [0; 10];
    let parts = LL.iter().chain(&ETHERNET).chain(&mac);
    duid.iter_mut()
        .zip(parts)
        .for_each(|(to, from)| *to = *from);
    duid
}

/// The UUID of a DUID-UUID.
pub fn uuid(duid: &[u8]) -> Option<[u8; 16]> {
    duid.strip_prefix(&UUID)?.try_into().ok()
}

/// The Ethernet address in a DUID-LL or DUID-LLT. It need not be that of the interface in use.
pub fn mac(duid: &[u8]) -> Option<[u8; 6]> {
    let after_type = duid.strip_prefix(&LL).or_else(|| duid.strip_prefix(&LLT))?;
    let address = after_type.strip_prefix(&ETHERNET)?;
    match duid.starts_with(&LLT) {
        true => address.get(4..)?.try_into().ok(),
        false => address.try_into().ok(),
    }
}
