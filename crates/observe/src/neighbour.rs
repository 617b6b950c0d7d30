//! What a switch tells its neighbours of itself: LLDP (IEEE 802.1AB-2016 section 8) and CDP.
//!
//! ```text
//! LLDP  type (7 bits) length (9 bits) value | ... | end (type 0)
//! CDP   version (1) time to live (1) checksum (2) | type (2) length with these four (2) value | ...
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use core::net::{Ipv4Addr, Ipv6Addr};

use wireboot_report::network::{Discovery, Neighbour};
use wireboot_wire::text::shown;

use crate::Mac;

/// Types of LLDP's fields (table 8-1).
const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const PORT_DESCRIPTION: u8 = 4;
const SYSTEM_NAME: u8 = 5;

/// Kinds of a chassis or port ID that are no text (tables 8-2 and 8-3): an Ethernet address, a network address.
const CHASSIS_MAC: u8 = 4;
const CHASSIS_NETWORK: u8 = 5;
const PORT_MAC: u8 = 3;
const PORT_NETWORK: u8 = 4;

/// Address families by IANA's numbers.
const IPV4: u8 = 1;
const IPV6: u8 = 2;

/// Types of CDP's fields.
const CDP_DEVICE_ID: u16 = 1;
const CDP_PORT_ID: u16 = 3;

/// Reads what follows LLDP's EtherType, heard at `at_s`. `None` for what lacks a field that it must have, and for a goodbye.
pub(crate) fn lldp(mut rest: &[u8], at_s: f64) -> Option<Neighbour> {
    let (mut chassis, mut name, mut port, mut lives) = (None, None, None, false);
    let mut port_description = None;
    while let Some((&[high, low], behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(high & 1) << 8 | usize::from(low);
        // A capture may have cut off the end.
        let Some((value, behind)) = behind.split_at_checked(length) else {
            break;
        };
        rest = behind;
        match high >> 1 {
            0 => break,
            CHASSIS_ID => chassis = id(value, CHASSIS_MAC, CHASSIS_NETWORK),
            PORT_ID => port = id(value, PORT_MAC, PORT_NETWORK),
            TIME_TO_LIVE => lives = value.iter().any(|byte| *byte != 0),
            PORT_DESCRIPTION => port_description = text(value),
            SYSTEM_NAME => name = text(value),
            _ => {}
        }
    }
    Some(Neighbour {
        protocol: Discovery::Lldp,
        first_s: at_s,
        switch: name.or(chassis).filter(|_| lives)?,
        port: port?,
        port_description,
    })
}

/// Reads what follows CDP's SNAP header, heard at `at_s`. `None` for what names no device or no port.
pub(crate) fn cdp(packet: &[u8], at_s: f64) -> Option<Neighbour> {
    let (_, mut rest) = packet.split_first_chunk::<4>()?;
    let (mut switch, mut port) = (None, None);
    while let Some((&[t0, t1, l0, l1], behind)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let field = length
            .checked_sub(4)
            .and_then(|own| behind.split_at_checked(own));
        let Some((value, behind)) = field else { break };
        rest = behind;
        match u16::from_be_bytes([t0, t1]) {
            CDP_DEVICE_ID => switch = text(value),
            CDP_PORT_ID => port = text(value),
            _ => {}
        }
    }
    Some(Neighbour {
        protocol: Discovery::Cdp,
        first_s: at_s,
        switch: switch?,
        port: port?,
        port_description: None,
    })
}

fn text(value: &[u8]) -> Option<String> {
    Some(shown(value)).filter(|text| !text.is_empty())
}

/// A chassis or port ID, whose first byte says of which kind it is.
fn id(value: &[u8], mac: u8, network: u8) -> Option<String> {
    let (&kind, value) = value.split_first()?;
    if kind == mac {
        let address = <[u8; 6]>::try_from(value).ok()?;
        return Some(Mac(address).to_string());
    }
    if kind == network {
        let (&family, address) = value.split_first()?;
        return match family {
            IPV4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?).to_string()),
            IPV6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).to_string()),
            _ => Some(format!("an address of family {family}")),
        };
    }
    text(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A field of LLDP.
    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        let header = u16::from(kind) << 9 | u16::try_from(value.len()).unwrap();
        [&header.to_be_bytes(), value].concat()
    }

    /// A field of CDP.
    fn cdp_field(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        [&kind.to_be_bytes(), &length.to_be_bytes(), value].concat()
    }

    fn switch() -> Vec<Vec<u8>> {
        [
            tlv(1, &[4, 0, 0x1c, 0x73, 1, 2, 3]),
            tlv(2, b"\x05Ethernet12"),
            tlv(3, &[0, 120]),
            tlv(4, b"desk 4.017"),
            tlv(5, b"leaf-3.example.org"),
            tlv(6, b"a system description of no interest"),
            // Organisationally specific: IEEE 802.1, port VLAN ID.
            tlv(127, &[0, 0x80, 0xc2, 1, 0, 7]),
            tlv(0, &[]),
            b"padding".to_vec(),
        ]
        .into()
    }

    #[test]
    fn a_switch_tells_its_name_and_port() {
        let told = lldp(&switch().concat(), 2.5).unwrap();
        assert_eq!(
            told,
            Neighbour {
                protocol: Discovery::Lldp,
                first_s: 2.5,
                switch: "leaf-3.example.org".into(),
                port: "Ethernet12".into(),
                port_description: Some("desk 4.017".into()),
            }
        );
        // A capture that cuts off what follows the name.
        let cut = &switch().concat()[..70];
        assert_eq!(lldp(cut, 2.5).unwrap(), told);
    }

    #[test]
    fn ids_that_are_no_text_are_written_as_addresses() {
        let with = |chassis: &[u8], port: &[u8]| {
            let told = lldp(
                &[tlv(1, chassis), tlv(2, port), tlv(3, &[0, 9])].concat(),
                0.0,
            )?;
            Some((told.switch, told.port))
        };
        let both = |chassis: &str, port: &str| Some((chassis.to_string(), port.to_string()));
        assert_eq!(
            with(&[4, 2, 0, 0, 0, 0, 1], &[3, 2, 0, 0, 0, 0, 9]),
            both("02:00:00:00:00:01", "02:00:00:00:00:09")
        );
        let v6 = [[5, 2].as_slice(), &[0xfd; 16]].concat();
        assert_eq!(
            with(&v6, &[4, 1, 10, 0, 0, 1]),
            both("fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd", "10.0.0.1")
        );
        assert_eq!(
            with(&[5, 17, 1, 2], b"\x077"),
            both("an address of family 17", "7")
        );
        for wrong in [[4, 1].as_slice(), &[5], &[], &[7]] {
            assert_eq!(with(wrong, b"\x07x"), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_says_goodbye_or_lacks_a_field_is_no_neighbour() {
        let without = |missing: usize| {
            let mut fields = switch();
            fields.remove(missing);
            lldp(&fields.concat(), 0.0)
        };
        assert_eq!(without(1), None);
        assert_eq!(without(2), None);
        assert_eq!(without(4).unwrap().switch, "00:1c:73:01:02:03");
        let mut goodbye = switch();
        goodbye[2] = tlv(3, &[0, 0]);
        assert_eq!(lldp(&goodbye.concat(), 0.0), None);
        assert_eq!(lldp(&[], 0.0), None);
    }

    #[test]
    fn cisco_tells_its_name_and_port() {
        let packet = [
            b"\x02\xb4\x12\x34".to_vec(),
            cdp_field(1, b"access-2.example.org"),
            cdp_field(5, b"Cisco IOS Software"),
            cdp_field(3, b"GigabitEthernet1/0/7"),
            cdp_field(4, &[0, 0, 0, 0x28]),
        ]
        .concat();
        let told = cdp(&packet, 1.0).unwrap();
        assert_eq!(
            (told.switch.as_str(), told.port.as_str()),
            ("access-2.example.org", "GigabitEthernet1/0/7")
        );
        assert_eq!((told.protocol, told.first_s), (Discovery::Cdp, 1.0));
        assert_eq!(cdp(&packet[..40], 1.0), None);
        // A length that is too small for its own header.
        assert_eq!(cdp(&[2, 180, 0, 0, 0, 1, 0, 3], 1.0), None);
    }
}
