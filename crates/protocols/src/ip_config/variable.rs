//! The variable in which the firmware's network stack keeps these settings, in the form that EDK II gives it: the settings of its menu.
//!
//! ```text
//! v4: checksum u16, count u16            record: offset u16, 2 unused, size u32, type i32
//! v6: IAID u32, checksum u16, count u16  then the records, then their data, the first record's last
//! ```

use super::{FIXED, Kind};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const RECORD: usize = 12;

/// What is kept from boot to boot: of each kind its data, as callers set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    v6: bool,
    /// The firmware's identity association in DHCPv6.
    ia_id: u32,
    /// In the order of the kinds' numbers.
    records: Vec<(Kind, Vec<u8>)>,
}

/// The variable's name: the Ethernet address in hexadecimal, and the VLAN.
#[must_use]
pub fn name(mac: [u8; 6], vlan: Option<u16>) -> String {
    let mut name: String = mac.iter().map(|byte| format!("{byte:02X}")).collect();
    if let Some(vlan) = vlan {
        name += &format!("\\{vlan:04X}");
    }
    name
}

impl Stored {
    /// As the firmware begins, on a card that it does not know.
    pub(super) fn new(v6: bool, mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        let mut new = Self {
            v6,
            ia_id: if v6 {
                u32::from_le_bytes([a | e, b | f, c, d])
            } else {
                0
            },
            records: Vec::new(),
        };
        new.set(Kind::Policy, &FIXED.to_le_bytes());
        new
    }

    /// Reads the variable of IPv4, or of IPv6 if `v6`. `None` for what the firmware would not take either.
    #[must_use]
    pub fn read(v6: bool, bytes: &[u8]) -> Option<Self> {
        let (ia_id, rest) = if v6 {
            let (ia_id, rest) = bytes.split_first_chunk()?;
            (u32::from_le_bytes(*ia_id), rest)
        } else {
            (0, bytes)
        };
        let ([_, _, c0, c1], mut rest) = rest.split_first_chunk()?;
        if sum(bytes) != u16::MAX {
            return None;
        }
        let mut stored = Self {
            v6,
            ia_id,
            records: Vec::new(),
        };
        for _ in 0..u16::from_le_bytes([*c0, *c1]) {
            let (record, behind) = rest.split_first_chunk::<RECORD>()?;
            rest = behind;
            let [o0, o1, _, _, s0, s1, s2, s3, t0, t1, t2, t3] = *record;
            let at = usize::from(u16::from_le_bytes([o0, o1]));
            let size = usize::try_from(u32::from_le_bytes([s0, s1, s2, s3])).ok()?;
            let data = bytes.get(at..)?.get(..size)?;
            let of = if v6 { Kind::of_v6 } else { Kind::of_v4 };
            if let Some(kind) = of(i32::from_le_bytes([t0, t1, t2, t3])) {
                stored.set(kind, data);
            }
        }
        Some(stored)
    }

    /// The variable. `None` for more than it can tell.
    #[must_use]
    pub fn write(&self) -> Option<Vec<u8>> {
        let Self { v6, ia_id, records } = self;
        let mut bytes = Vec::new();
        if *v6 {
            bytes.extend(ia_id.to_le_bytes());
        }
        let checksum = bytes.len();
        bytes.extend([0; 2]);
        bytes.extend(u16::try_from(records.len()).ok()?.to_le_bytes());
        let data: usize = records.iter().map(|(_, data)| data.len()).sum();
        let mut at = bytes.len() + records.len() * RECORD + data;
        for (kind, data) in records {
            at = at.checked_sub(data.len())?;
            bytes.extend(u16::try_from(at).ok()?.to_le_bytes());
            bytes.extend([0; 2]);
            bytes.extend(u32::try_from(data.len()).ok()?.to_le_bytes());
            bytes.extend(kind.number(*v6)?.to_le_bytes());
        }
        for (_, data) in records.iter().rev() {
            bytes.extend(data);
        }
        let complement = (!sum(&bytes)).to_le_bytes();
        *bytes.get_mut(checksum..)?.first_chunk_mut()? = complement;
        Some(bytes)
    }

    /// Keeps the identity association of `other`.
    pub(super) fn take_ia_id(&mut self, other: &Self) {
        self.ia_id = other.ia_id;
    }

    /// The data of a kind.
    pub(super) fn get(&self, kind: Kind) -> Option<&[u8]> {
        let mut records = self.records.iter();
        let record = records.find(|(of, _)| *of == kind);
        record.map(|(_, data)| &**data)
    }

    /// Keeps data of a kind; no data for nothing.
    pub(super) fn set(&mut self, kind: Kind, data: &[u8]) {
        self.records.retain(|(of, _)| *of != kind);
        if kind != Kind::Info && !data.is_empty() {
            let number = |kind: Kind| kind.number(self.v6);
            let mut records = self.records.iter();
            let behind = records.position(|(of, _)| number(*of) > number(kind));
            let index = behind.unwrap_or(self.records.len());
            self.records.insert(index, (kind, data.to_vec()));
        }
    }
}

/// Gives bytes the checksum with which they are read.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fill_checksum(v6: bool, bytes: &mut [u8]) {
    let at = if v6 { 4 } else { 0 };
    let place = |bytes: &mut [u8], checksum: u16| {
        if let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = checksum.to_le_bytes();
        }
    };
    place(bytes, 0);
    let complement = !sum(bytes);
    place(bytes, complement);
}

/// The sum of the Internet checksum (RFC 1071), over little-endian words.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [low, high] => u32::from(u16::from_le_bytes([low, high])),
        [low] => u32::from(low),
        _ => 0,
    });
    let mut sum: u64 = words.map(u64::from).sum();
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As EDK II writes what a menu's user has set: policy static, an address, two name servers.
    #[test]
    fn a_variable_is_what_edk_2_writes() {
        let mut stored = Stored::new(false, [0; 6]);
        stored.set(Kind::Dns, &[10, 0, 0, 2, 10, 0, 0, 3]);
        stored.set(Kind::Address, &[10, 0, 0, 5, 255, 255, 255, 0]);
        let bytes = stored.write().unwrap();
        let expected = [
            &[3, 0][..],
            &[56, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0],
            &[48, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0],
            &[40, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0],
            &[10, 0, 0, 2, 10, 0, 0, 3],
            &[10, 0, 0, 5, 255, 255, 255, 0],
            &[0; 4],
        ]
        .concat();
        assert_eq!(bytes[2..], expected);
        assert_eq!(sum(&bytes), u16::MAX);
        assert_eq!(Stored::read(false, &bytes), Some(stored));
    }

    #[test]
    fn of_ipv6_it_has_an_iaid_before_it() {
        let mut stored = Stored::new(true, [2, 0, 0, 0x10, 0x20, 0x31]);
        stored.set(Kind::AltInterfaceId, &[1; 8]);
        let bytes = stored.write().unwrap();
        assert_eq!(bytes[..4], [0x22, 0x31, 0, 0x10]);
        assert_eq!(bytes[6..8], [2, 0]);
        assert_eq!((bytes[16], bytes[28]), (1, 2));
        assert_eq!(Stored::read(true, &bytes), Some(stored));
    }

    /// As OVMF wrote it: what is not used of a record holds anything.
    #[test]
    fn a_firmwares_own_variable_is_read() {
        const VARIABLE: &[u8] = b"\
            \xf7\x5e\x2b\x77\x64\xe7\x06\x00\x8a\x00\xaf\xaf\x08\x00\x00\x00\
            \x01\x00\x00\x00\x86\x00\xaf\xaf\x04\x00\x00\x00\x02\x00\x00\x00\
            \x82\x00\xaf\xaf\x04\x00\x00\x00\x03\x00\x00\x00\x70\x00\xaf\xaf\
            \x12\x00\x00\x00\x04\x00\x00\x00\x60\x00\xaf\xaf\x10\x00\x00\x00\
            \x05\x00\x00\x00\x50\x00\xaf\xaf\x10\x00\x00\x00\x06\x00\x00\x00\
            \xfd\x00\x00\x98\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x53\
            \xfe\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\
            \xfd\x00\x00\x98\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\
            \x00\x40\x01\x00\x00\x00\x00\x00\x00\x00\x50\x54\x00\xff\xfe\x77\
            \x00\x02";
        let stored = Stored::read(true, VARIABLE).unwrap();
        assert_eq!(stored.ia_id, 0x772b_5ef7);
        assert_eq!(stored.get(Kind::Policy), Some(&[0; 4][..]));
        assert_eq!(stored.get(Kind::DupAddrDetect), Some(&[1, 0, 0, 0][..]));
        let address = stored.get(Kind::Address).unwrap();
        assert_eq!(
            (address[0], address[3], &address[15..]),
            (0xfd, 0x98, &[7, 0, 64][..])
        );
        let gateway = stored.get(Kind::Gateway).unwrap();
        assert_eq!((gateway[0], gateway[1], gateway[15]), (0xfe, 0x80, 7));
        assert_eq!(stored.get(Kind::Dns).unwrap()[15], 0x53);
        let written = stored.write().unwrap();
        assert_eq!(written.len(), VARIABLE.len());
        assert_eq!(Stored::read(true, &written), Some(stored));
    }

    #[test]
    fn names_are_the_cards_address_and_its_vlan() {
        let mac = [0x52, 0x54, 0, 0xab, 0, 2];
        assert_eq!(name(mac, None), "525400AB0002");
        assert_eq!(name(mac, Some(5)), "525400AB0002\\0005");
        assert_eq!(name(mac, Some(4094)), "525400AB0002\\0FFE");
    }

    #[test]
    fn what_is_broken_is_not_taken() {
        let mut stored = Stored::new(false, [0; 6]);
        stored.set(Kind::Gateway, &[10, 0, 0, 1]);
        let bytes = stored.write().unwrap();
        for len in 0..bytes.len() {
            assert_eq!(Stored::read(false, &bytes[..len]), None);
        }
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            assert_eq!(Stored::read(false, &broken), None, "byte {at}");
        }
        let with_sum = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            fill_checksum(false, &mut bytes);
            Stored::read(false, &bytes)
        };
        // More records, data that lies behind the end, more of it than there is.
        assert_eq!(with_sum(&|bytes| bytes[2] = 3), None);
        assert_eq!(with_sum(&|bytes| bytes[4] = 255), None);
        assert_eq!(with_sum(&|bytes| bytes[9] = 1), None);
        // A type that there is not, and one that nobody keeps.
        for kind in [5, 255, 0] {
            let other = with_sum(&|bytes| bytes[12] = kind).unwrap();
            assert_eq!(other.get(Kind::Policy), None);
            assert_eq!(other.get(Kind::Gateway), Some(&[10, 0, 0, 1][..]));
        }
    }
}
