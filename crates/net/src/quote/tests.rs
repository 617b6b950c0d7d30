use super::*;
use crate::ipv6::header;
use alloc::vec::Vec;
use proptest::prelude::*;

pub(crate) const US4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const US6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub(crate) const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// A packet of ours with the transport header's first 8 bytes 50,000 -> 69, sequence number 0x01020304, `len` long
/// altogether.
pub(crate) fn sent(version: IpVersion, protocol: u8, len: u16) -> Vec<u8> {
    let transport = [0xc3, 0x50, 0, 69, 1, 2, 3, 4];
    match version {
        IpVersion::V4 => {
            let mut bytes = Vec::from([0x45, 0]);
            bytes.extend(len.to_be_bytes());
            bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            bytes.extend(US4.octets());
            bytes.extend(HOST4.octets());
            bytes.extend(transport);
            bytes
        }
        IpVersion::V6 => {
            let mut bytes = header::packet(US6, HOST6, protocol, 64, &transport);
            bytes[4..6].copy_from_slice(&(len - 40).to_be_bytes());
            bytes
        }
    }
}

/// An error message about it.
pub(crate) fn about(kind: u8, code: u8, value: u32, sent: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from([kind, code, 0, 0]);
    bytes.extend(value.to_be_bytes());
    bytes.extend(sent);
    bytes
}

#[test]
fn the_flow_is_read() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let mut want = Quoted {
            local: match version {
                IpVersion::V4 => (US4, 50_000).into(),
                IpVersion::V6 => (US6, 50_000).into(),
            },
            remote: match version {
                IpVersion::V4 => (HOST4, 69).into(),
                IpVersion::V6 => (HOST6, 69).into(),
            },
            sequence: Some(0x0102_0304),
            len: 1500,
        };
        let bytes = sent(version, PROTOCOL_TCP, 1500);
        assert_eq!(read(version, &bytes), Some(want));
        for len in 0..bytes.len() {
            assert_eq!(read(version, &bytes[..len]), None, "{version:?} {len}");
        }
        want.sequence = None;
        assert_eq!(
            read(version, &sent(version, PROTOCOL_UDP, 1500)),
            Some(want)
        );
        for nothing_of_ours in [0, 1, 44, 58, 60] {
            let bytes = sent(version, nothing_of_ours, 1500);
            assert_eq!(read(version, &bytes), None, "{nothing_of_ours}");
        }
    }
    assert_eq!(
        read(IpVersion::V6, &sent(IpVersion::V4, PROTOCOL_UDP, 1500)),
        None
    );
    assert_eq!(
        read(IpVersion::V4, &sent(IpVersion::V6, PROTOCOL_UDP, 1500)),
        None
    );
}

#[test]
fn pieces() {
    // A later piece quotes no ports.
    let mut bytes = sent(IpVersion::V4, PROTOCOL_UDP, 1500);
    bytes[6..8].copy_from_slice(&[0x20, 0]);
    assert!(read(IpVersion::V4, &bytes).is_some());
    bytes[7] = 1;
    assert_eq!(read(IpVersion::V4, &bytes), None);
    // We send none over IPv6.
    let piece = [
        PROTOCOL_UDP,
        0,
        0,
        1,
        0,
        0,
        0,
        9,
        0xc3,
        0x50,
        0,
        69,
        0,
        0,
        0,
        0,
    ];
    let bytes = header::packet(US6, HOST6, 44, 64, &piece);
    assert_eq!(read(IpVersion::V6, &bytes), None);
    // A header of less than 20 bytes; groups.
    let mut bytes = sent(IpVersion::V4, PROTOCOL_UDP, 1500);
    bytes[0] = 0x44;
    assert_eq!(read(IpVersion::V4, &bytes), None);
    let mut bytes = sent(IpVersion::V4, PROTOCOL_UDP, 1500);
    bytes[16] = 224;
    assert_eq!(read(IpVersion::V4, &bytes), None);
    let mut bytes = sent(IpVersion::V6, PROTOCOL_UDP, 1500);
    bytes[24] = 0xff;
    assert_eq!(read(IpVersion::V6, &bytes), None);
}

#[test]
fn a_port_is_unreachable() {
    for (version, kind, code) in [(IpVersion::V4, 3, 3), (IpVersion::V6, 1, 4)] {
        let says = |kind, code, protocol| {
            port_unreachable(
                version,
                &about(kind, code, 0, &sent(version, protocol, 100)),
            )
        };
        assert_eq!(
            says(kind, code, PROTOCOL_UDP),
            read(version, &sent(version, PROTOCOL_UDP, 100))
        );
        assert!(says(kind, code, PROTOCOL_UDP).is_some());
        assert_eq!(says(kind, code, PROTOCOL_TCP), None);
        assert_eq!(says(kind, code - 1, PROTOCOL_UDP), None);
        assert_eq!(says(kind + 1, code, PROTOCOL_UDP), None);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0..48_usize, flip: u8) {
        for version in [IpVersion::V4, IpVersion::V6] {
            read(version, &bytes);
            port_unreachable(version, &bytes);
            let mut sent = sent(version, PROTOCOL_UDP, 100);
            if let Some(byte) = sent.get_mut(at) {
                *byte ^= flip;
            }
            read(version, &sent);
        }
    }
}
