//! Spanning tree (IEEE 802.1D) at the switch's port.

use alloc::format;

use super::addressing::UNANSWERED_S;
use super::lacp::lacp;
use super::unheard::{Unheard, in_time};
use super::{Boot, Found, advice, time};

/// The switch's port does not forward yet.
pub(super) fn spanning_tree(boot: &Boot<'_>) -> Option<Found> {
    if lacp(boot).is_some() {
        return None;
    }
    let own = boot.network.spanning_tree.as_ref();
    let tree = own.or_else(|| boot.heard?.spanning_tree.as_ref())?;
    let unheard = Unheard::of(boot)?;
    // An edge port sends these packets, too, but forwards from the beginning.
    if unheard.seconds < UNANSWERED_S
        || !in_time(
            own.is_some(),
            tree.first_s,
            tree.forwards_s,
            unheard.began_s,
            unheard.answered_s,
        )
    {
        return None;
    }
    let protocol = if tree.rapid { "rapid " } else { "" };
    Some(Found {
        label: "spanning tree".into(),
        seconds: unheard.seconds,
        evidence: format!(
            "{}. The switch (bridge {}) speaks the {protocol}spanning tree protocol: a port on which a link comes up listens for {} and learns \
             for {}, and forwards nothing meanwhile",
            unheard.evidence,
            tree.bridge,
            time(tree.forward_delay_s),
            time(tree.forward_delay_s),
        ),
        advice: advice([
            "make the machine's port an edge port, which forwards at once. Cisco: `spanning-tree portfast` at the interface",
            "Juniper: `set protocols rstp interface NAME edge`. Arista: `spanning-tree portfast`. HPE/Aruba: `spanning-tree PORT admin-edge-port`",
            "a Linux bridge of virtual machines: `ip link set BRIDGE type bridge stp_state 0 forward_delay 0`",
        ]),
        expected_s: Some(0.0),
    })
}
