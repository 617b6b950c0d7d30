//! What bridges say of the spanning tree (IEEE 802.1D-2004 section 9).
//!
//! ```text
//! 0 protocol (2) = 0 | version type flags | root (8) | path cost (4) | bridge (8) | port (2) | age max-age hello forward-delay (2 each)
//! ```

use alloc::string::ToString;
use wireboot_report::network::SpanningTree;

use crate::Mac;

/// The port that sends a rapid BPDU forwards.
const FORWARDING: u8 = 0x20;

/// Bytes of a configuration BPDU.
const CONFIGURATION: usize = 35;

/// Reads a configuration BPDU, or one of the rapid or multiple protocol, heard at `at_s`. `None` for what is neither.
pub(crate) fn parse(bpdu: &[u8], at_s: f64) -> Option<SpanningTree> {
    let fields = bpdu.first_chunk::<CONFIGURATION>()?;
    let [0, 0, version, kind, flags, ..] = *fields else {
        return None;
    };
    // Type 0: configuration; 2: rapid. The rest have no times.
    if kind != 0 && kind != 2 {
        return None;
    }
    let bridge = fields.get(19..25)?.try_into().ok()?;
    let delay = fields.get(33..35)?.try_into().ok()?;
    Some(SpanningTree {
        bridge: Mac(bridge).to_string(),
        first_s: at_s,
        // In units of 1/256 s.
        forward_delay_s: f64::from(u16::from_be_bytes(delay)) / 256.0,
        rapid: version >= 2,
        forwards_s: (version >= 2 && flags & FORWARDING != 0).then_some(at_s),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a Linux bridge with its spanning tree on sends it.
    const LINUX: [u8; 35] = [
        0, 0, 0, 0, 0, // protocol, version, type, flags
        0x80, 0, 0x52, 0x54, 0, 1, 2, 3, // root
        0, 0, 0, 0, // cost
        0x80, 0, 0x52, 0x54, 0, 1, 2, 3, // bridge
        0x80, 1, // port
        0, 0, 20, 0, 2, 0, 15, 0, // age, max age, hello, forward delay
    ];

    #[test]
    fn a_bridge_tells_how_long_its_ports_wait() {
        let tree = parse(&LINUX, 1.5).unwrap();
        assert_eq!(tree.bridge, "52:54:00:01:02:03");
        assert_eq!((tree.first_s, tree.forward_delay_s), (1.5, 15.0));
        assert!(!tree.rapid);
        let mut rapid = LINUX.to_vec();
        rapid.splice(2..4, [2, 2]);
        rapid.push(0);
        let tree = parse(&rapid, 0.0).unwrap();
        assert!(tree.rapid && tree.forwards_s.is_none());
        rapid[4] = 0x3c;
        assert_eq!(parse(&rapid, 7.0).unwrap().forwards_s, Some(7.0));
        // The old protocol has no such bit.
        let mut old = LINUX;
        old[4] = 0x3c;
        assert_eq!(parse(&old, 7.0).unwrap().forwards_s, None);
    }

    #[test]
    fn a_change_notice_and_what_is_cut_off_tell_nothing() {
        assert_eq!(parse(&[0, 0, 0, 0x80], 0.0), None);
        assert_eq!(parse(&LINUX[..34], 0.0), None);
        let mut other = LINUX;
        other[1] = 1;
        assert_eq!(parse(&other, 0.0), None);
    }
}
