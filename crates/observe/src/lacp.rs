//! What a switch's port says of its group: the Link Aggregation Control Protocol (IEEE 802.1AX-2020 section 6.4.2.3).
//!
//! ```text
//! 0 subtype (1) = 1 | version | actor: type = 1, length = 20, priority (2), system (6), key (2), port priority (2), port (2), state (1), 3 reserved
//!                             | partner: type = 2, length = 20, the same of the other end | collector, end
//! ```

use alloc::string::ToString;
use wireboot_report::network::Lacp;

use crate::Mac;

/// Bits of a state: the port distributes frames; what it knows of its partner is the default; or has run out.
const DISTRIBUTING: u8 = 0x20;
const DEFAULTED: u8 = 0x40;
const EXPIRED: u8 = 0x80;

/// Bytes up to the actor's state.
const ACTOR: usize = 19;

/// Reads what follows the EtherType of the slow protocols, heard at `at_s`. `None` for another of them.
pub(crate) fn parse(packet: &[u8], at_s: f64) -> Option<Lacp> {
    let &[
        1,
        _,
        1,
        20,
        _,
        _,
        ref system @ ..,
        k0,
        k1,
        _,
        _,
        _,
        _,
        state,
    ] = packet.first_chunk::<ACTOR>()?
    else {
        return None;
    };
    let distributes = state & DISTRIBUTING != 0;
    Some(Lacp {
        system: Mac(*system).to_string(),
        key: u16::from_be_bytes([k0, k1]),
        first_s: at_s,
        waits: !distributes,
        unheard: state & (DEFAULTED | EXPIRED) != 0,
        forwards_s: distributes.then_some(at_s),
    })
}

/// Takes in what a port says later, at `heard.first_s`.
pub(crate) fn heard_again(lacp: &mut Lacp, heard: &Lacp) {
    lacp.forwards_s = lacp.forwards_s.or(heard.forwards_s);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port of a switch that has heard nobody: active, to be aggregated, partner defaulted.
    const WAITING: [u8; 42] = [
        1, 1, // subtype, version
        1, 20, 0x80, 0, 0, 0x1c, 0x73, 1, 2, 3, 0, 17, 0x80, 0, 0, 12, 0x45, 0, 0, 0, // actor
        2, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, // partner
    ];

    #[test]
    fn a_port_that_has_heard_nobody_waits() {
        let told = parse(&WAITING, -1.5).unwrap();
        assert_eq!(
            told,
            Lacp {
                system: "00:1c:73:01:02:03".into(),
                key: 17,
                first_s: -1.5,
                waits: true,
                unheard: true,
                forwards_s: None,
            }
        );
        // What is behind the actor's state may be cut off.
        assert_eq!(parse(&WAITING[..19], -1.5), Some(told));
        assert_eq!(parse(&WAITING[..18], -1.5), None);
    }

    #[test]
    fn a_port_with_a_partner_forwards() {
        let mut joined = WAITING;
        // Active, aggregated, in sync, collecting, distributing.
        joined[18] = 0x3d;
        let told = parse(&joined, 4.0).unwrap();
        assert!(!told.waits && !told.unheard);
        assert_eq!(told.forwards_s, Some(4.0));
        let mut first = parse(&WAITING, 1.0).unwrap();
        heard_again(&mut first, &parse(&WAITING, 2.0).unwrap());
        assert_eq!(first.forwards_s, None);
        heard_again(&mut first, &told);
        heard_again(&mut first, &parse(&joined, 9.0).unwrap());
        assert_eq!((first.first_s, first.forwards_s), (1.0, Some(4.0)));
        assert!(first.waits && first.unheard);
        let mut expired = WAITING;
        expired[18] = 0x85;
        assert!(parse(&expired, 0.0).unwrap().unheard);
    }

    #[test]
    fn other_slow_protocols_are_none() {
        for (at, other) in [(0, 2), (0, 3), (2, 2), (3, 19)] {
            let mut packet = WAITING;
            packet[at] = other;
            assert_eq!(parse(&packet, 0.0), None);
        }
    }
}
