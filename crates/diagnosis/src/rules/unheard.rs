//! Requests by DHCP that nobody hears, at first or ever: what a switch's port that does not forward yet leaves behind.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::PhaseKind;

use super::addressing::{WORTH_S, seconds, taken};
use super::{Boot, count, time};

/// Requests by DHCP that nobody heard, before one that was answered; and how long the machine had tried before the capture saw it.
pub(super) struct Unheard {
    pub(super) seconds: f64,
    pub(super) evidence: String,
    /// The first of them.
    pub(super) began_s: f64,
    pub(super) answered_s: f64,
    pub(super) before_s: u16,
}

impl Unheard {
    pub(super) fn of(boot: &Boot<'_>) -> Option<Self> {
        let dhcp = &boot.network.dhcp;
        let before_s = dhcp.first()?.tried_before_s;
        // Whole attempts that nobody answered, up to the one that was.
        let first = taken(boot).next();
        let begins_s = first.as_ref().and_then(|one| one.dhcp.discover_s.first());
        let vain = dhcp.iter().take_while(|one| one.offers.is_empty());
        let vain: usize = vain.map(|one| one.discover_s.len()).sum();
        let vain_s = begins_s.map_or(0.0, |until| {
            seconds(boot, PhaseKind::DhcpUnanswered, *until)
        });
        // And the requests of that one that came to nothing.
        let worst = taken(boot)
            .filter(|one| !one.heard_first)
            .max_by(|one, other| one.rest_s.total_cmp(&other.rest_s));
        let answered = worst.as_ref().or(first.as_ref());
        let answered_s = answered.and_then(|one| one.dhcp.answered_s());
        let unheard = worst.as_ref().zip(answered_s).map_or(0, |(one, until)| {
            let requests = one.dhcp.discover_s.iter();
            requests.filter(|at| **at < until).count()
        });
        let mut evidence = Vec::new();
        if let (Some(answered_s), 1..) = (answered_s, vain + unheard) {
            let mut text = format!(
                "{} by DHCP had no answer; that at {answered_s:.1} s had",
                count(vain + unheard, "request")
            );
            if let Some(worst) = &worst
                && worst.wait_s > worst.patience_s + WORTH_S
            {
                text.push_str(&if boot.listened {
                    format!(
                        "; EDK II's firmware, whose timer doubles, takes that {} after its first request",
                        time(worst.patience_s + worst.rest_s)
                    )
                } else {
                    format!(
                        ", but the machine's timer had grown meanwhile: it waited for {} with an offer in hand",
                        time(worst.wait_s)
                    )
                });
            }
            evidence.push(text);
        }
        if before_s > 0 {
            evidence.push(format!(
                "The first request seen here says that the machine had been trying for {before_s} s"
            ));
        }
        let begins = dhcp.iter().filter_map(|one| one.discover_s.first());
        (!evidence.is_empty() && first.is_some()).then(|| Self {
            seconds: vain_s + worst.map_or(0.0, |one| one.rest_s),
            evidence: evidence.join(". "),
            began_s: begins.copied().reduce(f64::min).unwrap_or_default(),
            answered_s: answered_s.unwrap_or_default(),
            before_s,
        })
    }

    /// The same where nobody ever answered, over either version of IP.
    pub(super) fn forever(boot: &Boot<'_>) -> Option<Self> {
        let network = &boot.network;
        let requests: usize = network.dhcp.iter().map(|one| one.discover_s.len()).sum();
        let answered = network.dhcp.iter().any(|one| !one.offers.is_empty());
        let answered_v6 = network.dhcpv6.iter().any(|one| !one.answered_s.is_empty());
        if requests == 0 || answered || answered_v6 {
            return None;
        }
        let begins = network.dhcp.iter().filter_map(|one| one.discover_s.first());
        let place = if boot.listened {
            format!(" in {}", time(network.span_s))
        } else {
            " in this capture".into()
        };
        Some(Self {
            seconds: seconds(boot, PhaseKind::DhcpUnanswered, network.span_s),
            evidence: format!(
                "{} by DHCP, and not one answer{place}",
                count(requests, "request")
            ),
            began_s: begins.copied().reduce(f64::min).unwrap_or_default(),
            answered_s: network.span_s,
            before_s: 0,
        })
    }
}

/// What a switch says of its port explains why nobody heard requests from `began_s` to `until_s`: it said so by then, and forwarded nothing at
/// first. What it said at another time, not in the boot's `own` frames, has no such times.
pub(super) fn in_time(
    own: bool,
    first_s: f64,
    forwards_s: Option<f64>,
    began_s: f64,
    until_s: f64,
) -> bool {
    let forwarded = forwards_s.is_some_and(|at| at <= began_s);
    !own || first_s <= until_s && !forwarded
}
