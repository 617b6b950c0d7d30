//! Every combination, and the numbers of its segment.

use crate::bench::{MAX_SND_WND, MSS};
use wireboot_tcp::Flags;

pub(crate) const TEXT: u32 = 100;
/// The window of a segment that does not close it: 3 full segments.
pub(crate) const SMALL: u32 = 3 * MSS as u32;

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) state: &'static str,
    /// Something is in flight, where the state permits both.
    pub(crate) flight: bool,
    /// SYN, ACK, RST, FIN.
    pub(crate) flags: [bool; 4],
    pub(crate) seq: &'static str,
    pub(crate) ack: &'static str,
    pub(crate) text: &'static str,
    pub(crate) rwnd: &'static str,
    /// SEG.WND.
    pub(crate) wnd: u32,
    /// ISS, IRS.
    pub(crate) origin: (u32, u32),
    /// Window scale and SACK.
    pub(crate) scale: bool,
    /// ESTABLISHED came from a passive OPEN.
    pub(crate) passive: bool,
}

impl Case {
    pub(crate) fn has(&self, flag: usize) -> bool {
        self.flags[flag]
    }

    pub(crate) fn flags(&self) -> Flags {
        let all = [Flags::SYN, Flags::ACK, Flags::RST, Flags::FIN];
        all.into_iter()
            .zip(self.flags)
            .filter(|(_, set)| *set)
            .fold(Flags::default(), |flags, (flag, _)| flags | flag)
    }
}

/// The numbers of a case's segment.
pub(crate) struct Numbers {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) len: u32,
    pub(crate) seg_len: u32,
    pub(crate) rcv_nxt: u32,
    /// The right edge of the window.
    pub(crate) edge: u32,
}

pub(crate) fn numbers(
    case: &Case,
    rcv_nxt: u32,
    window: u32,
    snd_una: u32,
    snd_nxt: u32,
) -> Numbers {
    let len = match case.text {
        "0" => 0,
        "+" => TEXT,
        "over" => window + 10,
        _ => unreachable!(),
    };
    let from = |offset: i64| rcv_nxt.wrapping_add(offset as u32);
    let w = i64::from(window);
    let seg_len = len + u32::from(case.has(0)) + u32::from(case.has(3));
    let seq = match case.seq {
        "old" => from(-1000),
        "again" => from(-i64::from(seg_len)),
        "ends" => from(-i64::from(len)),
        "edge" => from(-1),
        "next" => rcv_nxt,
        "window" => from(w / 2),
        "fits" => from(w - i64::from(len)),
        "last" => from(w - 1),
        "beyond" => from(w.max(1)),
        "opposite" => from(1 << 31),
        _ => unreachable!(),
    };
    let max_snd_wnd = if case.state == "SYN-SENT" {
        0
    } else {
        MAX_SND_WND
    };
    let ack = match case.ack {
        "old" => snd_una.wrapping_sub(max_snd_wnd + 1),
        "lowest" => snd_una.wrapping_sub(max_snd_wnd),
        "dup" => snd_una,
        "flight" => snd_una.wrapping_add(u32::from(MSS)),
        "next" => snd_nxt,
        "beyond" => snd_nxt.wrapping_add(1),
        "opposite" => snd_nxt.wrapping_add(1 << 31),
        _ => unreachable!(),
    };
    Numbers {
        seq,
        ack,
        len,
        seg_len,
        rcv_nxt,
        edge: rcv_nxt.wrapping_add(window),
    }
}

impl Numbers {
    /// The octets from RCV.NXT that sequence numbers `from..to` have inside the window.
    pub(crate) fn inside(&self, from: u32, to: u32) -> Option<(u32, u32)> {
        let place = |number: u32| i64::from(number.wrapping_sub(self.rcv_nxt) as i32);
        let low = place(from).max(0);
        let high = place(to).min(place(self.edge));
        (low < high).then_some((low as u32, high as u32))
    }

    pub(crate) fn text_begin(&self, case: &Case) -> u32 {
        self.seq.wrapping_add(u32::from(case.has(0)))
    }
}

/// States, and whether text is in flight.
pub(crate) const STATES: [(&str, bool); 18] = [
    ("CLOSED", false),
    ("LISTEN", false),
    ("SYN-SENT", false),
    ("SYN-RCVD/A", false),
    ("SYN-RCVD/P", false),
    ("ESTAB", false),
    ("ESTAB", true),
    ("FIN-WAIT-1", false),
    ("FIN-WAIT-1", true),
    ("FIN-WAIT-2", false),
    ("FIN-WAIT-2", true),
    ("CLOSE-WAIT", false),
    ("CLOSE-WAIT", true),
    ("CLOSING", false),
    ("CLOSING", true),
    ("LAST-ACK", false),
    ("LAST-ACK", true),
    ("TIME-WAIT", false),
];
pub(crate) const SEQ: [&str; 10] = [
    "old", "again", "ends", "edge", "next", "window", "fits", "last", "beyond", "opposite",
];
pub(crate) const ACK: [&str; 7] = [
    "old", "lowest", "dup", "flight", "next", "beyond", "opposite",
];

/// Whether there is such a segment.
pub(crate) fn possible(case: &Case) -> bool {
    let synchronized =
        !["CLOSED", "LISTEN", "SYN-SENT", "SYN-RCVD/A", "SYN-RCVD/P"].contains(&case.state);
    let all_acknowledged = ["FIN-WAIT-2", "TIME-WAIT"].contains(&case.state)
        || ["ESTAB", "CLOSE-WAIT"].contains(&case.state) && !case.flight;
    let seq = match (case.seq, case.text, case.rwnd) {
        ("next", _, _) => true,
        (_, "over", _) => false,
        ("again", "0", _) => false,
        ("again", _, _) => case.has(0) || case.has(3),
        ("ends", "0", _) | ("window" | "fits" | "last", _, "0") | ("fits", "0", _) => false,
        _ => true,
    };
    let ack = match case.ack {
        "flight" => case.flight && !all_acknowledged,
        "next" => !all_acknowledged,
        "lowest" => case.state != "SYN-SENT",
        _ => true,
    };
    // Without the bit, two values of the field will do.
    let field = case.has(1) || ["dup", "opposite"].contains(&case.ack);
    let rwnd = case.rwnd == "+"
        || synchronized && ["ESTAB", "FIN-WAIT-1", "FIN-WAIT-2"].contains(&case.state);
    seq && ack && field && rwnd
}

pub(crate) fn every_case(origin: (u32, u32), scale: bool, passive: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for (state, flight) in STATES {
        for bits in 0..16 {
            let flags = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, bits & 8 != 0];
            for seq in SEQ {
                for ack in ACK {
                    for text in ["0", "+", "over"] {
                        for rwnd in ["0", "+"] {
                            for wnd in [0, SMALL] {
                                let case = Case {
                                    state,
                                    flight,
                                    flags,
                                    seq,
                                    ack,
                                    text,
                                    rwnd,
                                    wnd,
                                    origin,
                                    scale,
                                    passive,
                                };
                                if possible(&case) {
                                    cases.push(case);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    cases
}
