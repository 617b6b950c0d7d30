//! Link aggregation (IEEE 802.1AX) at the switch's port.

use alloc::format;

use super::addressing::UNANSWERED_S;
use super::unheard::{Unheard, in_time};
use super::{Boot, Found, advice};

/// The switch's port belongs to a group, and waits for a partner that speaks LACP.
pub(super) fn lacp(boot: &Boot<'_>) -> Option<Found> {
    let own = boot.network.lacp.as_ref();
    let lacp = own.or_else(|| boot.heard?.lacp.as_ref())?;
    if !lacp.waits {
        return None;
    }
    let unheard = match Unheard::of(boot) {
        Some(unheard) => unheard,
        None => Unheard::forever(boot)?,
    };
    if unheard.seconds < UNANSWERED_S
        || !in_time(
            own.is_some(),
            lacp.first_s,
            lacp.forwards_s,
            unheard.began_s,
            unheard.answered_s,
        )
    {
        return None;
    }
    let partner = if lacp.unheard {
        ", and has heard no partner"
    } else {
        ""
    };
    Some(Found {
        label: "a group of ports that waits for LACP".into(),
        seconds: unheard.seconds,
        evidence: format!(
            "{}. The switch ({}) says by LACP that this port belongs to its group {}{partner}: it forwards nothing until somebody speaks LACP, \
             which firmware does not, or until it falls back",
            unheard.evidence, lacp.system, lacp.key,
        ),
        advice: advice([
            "let the group fall back to single ports where nobody speaks LACP. Cisco NX-OS: `no lacp suspend-individual` at the port channel; \
             Catalyst: `no port-channel standalone-disable`",
            "Arista: `port-channel lacp fallback individual` and a short `port-channel lacp fallback timeout`. Juniper: `force-up` at one of the links. \
             Aruba CX: `lacp fallback`. Dell OS10: `lacp fallback enable`",
            "or boot by a port that is in no group",
        ]),
        expected_s: Some(0.0),
    })
}
