//! Requests by DHCP without an answer, where nothing that the switch says explains it.

use super::addressing::UNANSWERED_S;
use super::lacp::lacp;
use super::spanning_tree::spanning_tree;
use super::unheard::Unheard;
use super::{Boot, Found, advice};

/// Nobody answers at first, or never, and nothing that the switch says explains it.
pub(super) fn unanswered(boot: &Boot<'_>) -> Option<Found> {
    if spanning_tree(boot).is_some() || lacp(boot).is_some() {
        return None;
    }
    let Some(unheard) = Unheard::of(boot) else {
        return Unheard::forever(boot).map(never_answered);
    };
    if unheard.seconds < UNANSWERED_S && f64::from(unheard.before_s) < UNANSWERED_S {
        return None;
    }
    Some(Found {
        label: "requests that nobody answered".into(),
        seconds: unheard.seconds,
        evidence: unheard.evidence,
        advice: advice([
            "most often the switch's port does not forward yet: make it an edge port (portfast), and let LACP fall back where the port is in a group",
            "a capture at the machine's own port shows whether its switch speaks spanning tree",
            "else the DHCP server or relay was not ready: its log tells whether it saw these requests",
        ]),
        expected_s: None,
    })
}

/// The machine asked, over both versions of IP, and heard nothing.
fn never_answered(unheard: Unheard) -> Found {
    Found {
        label: "requests that nobody answered".into(),
        seconds: unheard.seconds,
        evidence: unheard.evidence,
        advice: advice([
            "is a DHCP server in this network, or a relay to one? Is the machine known to it? Its log tells whether it saw the requests",
            "a server that gives addresses to known machines alone ignores others without a word",
        ]),
        expected_s: None,
    }
}
