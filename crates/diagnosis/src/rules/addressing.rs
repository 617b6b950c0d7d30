//! Before the first file: the link, addresses, names.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::network::{Dhcp, VendorOptions};
use wireboot_report::{Phase, PhaseKind};

use super::{Boot, Found, advice, count, listed, time};

/// Below this, waiting for an address is not worth a word.
const WORTH_S: f64 = 0.3;

/// From this on requests without an answer are no accident.
const UNANSWERED_S: f64 = 1.0;

/// Seconds that phases of `kind` take before `until_s`, those that overlap counted once.
fn seconds(boot: &Boot<'_>, kind: PhaseKind, until_s: f64) -> f64 {
    let mut covered = 0.0;
    let mut behind = 0.0_f64;
    for phase in of(boot, kind) {
        let start = phase.start_s.max(behind);
        let end = phase.end_s.min(until_s);
        if end > start {
            covered += end - start;
            behind = end;
        }
    }
    covered
}

fn of<'a>(boot: &Boot<'a>, kind: PhaseKind) -> impl Iterator<Item = &'a Phase> + use<'a> {
    boot.timeline.iter().filter(move |phase| phase.kind == kind)
}

/// A conversation by DHCP that led to a request: what its waits were for.
struct Taken<'a> {
    dhcp: &'a Dhcp,
    /// From the first request to the machine's choice: its own patience, with offers in hand.
    patience_s: f64,
    /// The rest: nobody heard it, or the offer was late. Timers grow with each request that is not answered, and the machine waits for the one
    /// that runs even when an offer has come.
    rest_s: f64,
    /// How long it had a whole offer in hand.
    wait_s: f64,
    /// The server heard the first request, however late it answered.
    heard_first: bool,
}

/// When EDK II's firmware looks at the offers that it has, in seconds from its first request: its timer doubles.
const LOOKS_S: [f64; 4] = [4.0, 12.0, 28.0, 60.0];

impl<'a> Taken<'a> {
    fn of(dhcp: &'a Dhcp) -> Option<Self> {
        Self::at(dhcp, *dhcp.request_s.first()?)
    }

    /// The same of who took nothing, as EDK II's firmware would have taken it.
    fn of_listener(dhcp: &'a Dhcp) -> Option<Self> {
        let first = *dhcp.discover_s.first()?;
        let complete = dhcp.complete_s().or(dhcp.offered_s())?;
        let mut looks = LOOKS_S.into_iter().map(|look| first + look);
        let taken = Self::at(dhcp, looks.find(|look| *look >= complete)?)?;
        let all = taken.patience_s + taken.rest_s;
        let [patience_s, ..] = LOOKS_S;
        Some(Self {
            patience_s,
            rest_s: all - patience_s,
            ..taken
        })
    }

    fn at(dhcp: &'a Dhcp, taken: f64) -> Option<Self> {
        let first = *dhcp.discover_s.first()?;
        let complete = dhcp.complete_s().or(dhcp.offered_s())?;
        let wait_s = taken - complete;
        let all = (taken - first).max(0.0);
        let timer = dhcp.discover_s.get(1).map_or(all, |second| second - first);
        let patience_s = if wait_s < WORTH_S {
            0.0
        } else {
            all.min(timer)
        };
        Some(Self {
            dhcp,
            patience_s,
            rest_s: all - patience_s,
            wait_s,
            heard_first: dhcp.answered_s() == Some(first),
        })
    }
}

fn taken<'a>(boot: &Boot<'a>) -> impl Iterator<Item = Taken<'a>> + use<'a> {
    let of = if boot.listened {
        Taken::of_listener
    } else {
        Taken::of
    };
    boot.network.dhcp.iter().filter_map(of)
}

/// Requests by DHCP that nobody heard, before one that was answered; and how long the machine had tried before the capture saw it.
struct Unheard {
    seconds: f64,
    evidence: String,
    /// The first of them.
    began_s: f64,
    answered_s: f64,
    before_s: u16,
}

impl Unheard {
    fn of(boot: &Boot<'_>) -> Option<Self> {
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
    fn forever(boot: &Boot<'_>) -> Option<Self> {
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
fn in_time(own: bool, first_s: f64, forwards_s: Option<f64>, began_s: f64, until_s: f64) -> bool {
    let forwarded = forwards_s.is_some_and(|at| at <= began_s);
    !own || first_s <= until_s && !forwarded
}

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

/// The other version of IP was tried first, where nobody speaks it.
pub(super) fn ip_version(boot: &Boot<'_>) -> Option<Found> {
    let network = &boot.network;
    let first_v4 = network.dhcp.iter().find_map(|one| one.discover_s.first());
    let v4 = network.dhcp.iter().any(|one| !one.offers.is_empty());
    let v6 = network.dhcpv6.iter().any(|one| !one.answered_s.is_empty());
    let first_v6 = network.dhcpv6.iter().find_map(|one| one.asked_s.first());
    let (vain, used, lost) = match (v4, v6) {
        (true, false) => {
            let lost = seconds(boot, PhaseKind::Ipv6Unanswered, *first_v4?);
            ("IPv6", "IPv4", lost)
        }
        (false, true) => {
            let lost = seconds(boot, PhaseKind::DhcpUnanswered, *first_v6?);
            ("IPv4", "IPv6", lost)
        }
        _ => return None,
    };
    if lost < UNANSWERED_S {
        return None;
    }
    Some(Found {
        label: format!("{vain}, which nobody speaks here"),
        seconds: lost,
        evidence: format!(
            "the machine asked by {vain} for {} without an answer, before it came to {used}",
            time(lost)
        ),
        advice: Vec::from([
            format!(
                "in the firmware's setup, put the card's {used} boot option before the {vain} one, or switch {vain} network boot off"
            ),
            "from Linux: `efibootmgr -o` sets the order".into(),
        ]),
        expected_s: Some(0.0),
    })
}

/// The server takes its time before it offers, longer than the machine waits anyway.
pub(super) fn late_offer(boot: &Boot<'_>) -> Option<Found> {
    let late: Vec<Taken<'_>> = taken(boot)
        .filter(|one| one.heard_first && one.rest_s >= WORTH_S)
        .collect();
    let lost = late.iter().map(|one| one.rest_s).sum();
    let worst = late
        .iter()
        .max_by(|one, other| one.rest_s.total_cmp(&other.rest_s))?;
    let first = *worst.dhcp.discover_s.first()?;
    let offered = worst.dhcp.complete_s().or(worst.dhcp.offered_s())?;
    let server = worst.dhcp.offers.first().map(|offer| offer.server.as_str());
    let who = worst.dhcp.chosen.as_deref().or(server);
    let mut evidence = format!(
        "{} took {} from the request to a whole offer",
        who.unwrap_or("the server"),
        time(offered - first)
    );
    if boot.listened {
        evidence.push_str(&format!(
            "; EDK II's firmware, which waits {} anyway, asks again and waits for its next timer, {} in all",
            time(worst.patience_s),
            time(worst.patience_s + worst.rest_s)
        ));
    } else if worst.patience_s > 0.0 {
        evidence.push_str(&format!(
            "; the machine, which waits {} anyway, had asked again and waited for its next timer, {} in all",
            time(worst.patience_s),
            time(worst.patience_s + worst.rest_s)
        ));
    }
    Some(Found {
        label: "late DHCP offers".into(),
        seconds: lost,
        evidence,
        advice: advice([
            "most servers ping an address before they offer it. dnsmasq: `no-ping`. ISC dhcpd: `ping-check false;`. Kea: no `ping_check` hook",
            "a proxyDHCP server that answers late holds up the whole boot: its offer has the boot file",
        ]),
        expected_s: Some(0.0),
    })
}

/// The machine has all it needs, and waits for better offers.
pub(super) fn offer_wait(boot: &Boot<'_>) -> Option<Found> {
    if boot.listened {
        return None;
    }
    let waits: Vec<f64> = taken(boot)
        .map(|one| one.patience_s)
        .filter(|seconds| *seconds >= WORTH_S)
        .collect();
    if waits.is_empty() {
        return None;
    }
    let times: Vec<String> = waits.iter().copied().map(time).collect();
    Some(Found {
        label: "DHCP patience".into(),
        seconds: waits.iter().sum(),
        evidence: format!(
            "the machine collected offers for {} before it took one, though a whole one lay there",
            listed(times.iter().map(String::as_str))
        ),
        advice: advice([
            "the network program of the machine collects offers until its timer ends (EDK II's firmware: 4 s); nothing that a server sends shortens it",
            "wireboot takes a whole offer at once: start it from a stick, the disk's EFI partition or the card's ROM instead of over the network",
        ]),
        expected_s: Some(0.0),
    })
}

/// A proxyDHCP or boot server that was promised and does not answer.
pub(super) fn boot_server(boot: &Boot<'_>) -> Option<Found> {
    let silent: Vec<&str> = boot
        .network
        .boot_servers
        .iter()
        .filter(|one| one.answered_s.is_none())
        .map(|one| one.server.as_str())
        .collect();
    if silent.is_empty() {
        return None;
    }
    let lost = of(boot, PhaseKind::BootServer)
        .filter(|phase| silent.contains(&phase.what.as_str()))
        .map(Phase::seconds)
        .sum();
    Some(Found {
        label: "a boot server that does not answer".into(),
        seconds: lost,
        evidence: format!(
            "asked at port 4011, never answered: {}",
            listed(silent.iter().copied())
        ),
        advice: advice([
            "an offer that says `PXEClient` (option 60) and gives no boot file sends the machine to the server's UDP port 4011: let that be open, \
             or take option 60 out of the DHCP server's answers where it is not the boot server",
        ]),
        expected_s: Some(0.0),
    })
}

/// Several servers give addresses.
pub(super) fn several_servers(boot: &Boot<'_>) -> Option<Found> {
    let servers: BTreeSet<&str> = boot
        .offers()
        .filter(|offer| offer.address.is_some())
        .map(|offer| offer.server.as_str())
        .collect();
    if servers.len() < 2 {
        return None;
    }
    Some(Found {
        label: "several DHCP servers".into(),
        seconds: 0.0,
        evidence: format!(
            "addresses were offered by {}: which one the machine takes changes from boot to boot",
            listed(servers.into_iter())
        ),
        advice: advice([
            "let one server give addresses. A second one that has only boot files should be a proxyDHCP server (dnsmasq: `dhcp-range=NETWORK,proxy`; \
             `wireboot serve --proxy`)",
        ]),
        expected_s: None,
    })
}

/// Option 43 that is not PXE's.
pub(super) fn vendor_options(boot: &Boot<'_>) -> Option<Found> {
    let foreign: BTreeSet<&str> = boot
        .offers()
        .filter(|offer| offer.vendor_options == VendorOptions::Foreign)
        .map(|offer| offer.server.as_str())
        .collect();
    if foreign.is_empty() {
        return None;
    }
    Some(Found {
        label: "option 43 of another trade".into(),
        seconds: 0.0,
        evidence: format!(
            "{} gives vendor options (43) that are not PXE's to a machine that boots",
            listed(foreign.into_iter())
        ),
        advice: advice([
            "access points and telephones are told their controller by option 43. Some firmware takes it for PXE's list of boot servers and asks \
             those for minutes",
            "give it to their vendor class alone. dnsmasq: `dhcp-option=vendor:CLASS,...`. Kea and ISC dhcpd: within a class that tests option 60",
        ]),
        expected_s: None,
    })
}

/// Names that take long.
pub(super) fn names(boot: &Boot<'_>) -> Option<Found> {
    let slow: Vec<&Phase> = of(boot, PhaseKind::Name)
        .filter(|phase| phase.seconds() >= WORTH_S)
        .collect();
    let lost: f64 = slow.iter().map(|phase| phase.seconds()).sum();
    if slow.is_empty() {
        return None;
    }
    Some(Found {
        label: "names".into(),
        seconds: lost,
        evidence: format!(
            "looking up {} took {}",
            listed(slow.iter().map(|phase| phase.what.as_str())),
            time(lost)
        ),
        advice: advice([
            "is the first name server that DHCP gives reachable from the machine's network? A machine asks the second one only when its patience ends",
            "boot files by address need no name server",
        ]),
        expected_s: Some(0.0),
    })
}

/// Nothing is on the wire before the first file: the firmware waits of itself.
pub(super) fn silence(boot: &Boot<'_>) -> Option<Found> {
    let first = boot.network.transfers.first()?.start_s;
    let silent: Vec<&Phase> = of(boot, PhaseKind::Quiet)
        .filter(|phase| phase.end_s <= first && phase.seconds() >= UNANSWERED_S)
        .collect();
    let longest = silent
        .iter()
        .max_by(|one, other| one.seconds().total_cmp(&other.seconds()))?;
    Some(Found {
        label: "silence of the firmware".into(),
        seconds: silent.iter().map(|phase| phase.seconds()).sum(),
        evidence: format!(
            "{} of 1 s and more before the first file in which the machine sent nothing and nobody owed it an answer; the longest, {}, at {:.1} s",
            count(silent.len(), "wait"),
            time(longest.seconds()),
            longest.start_s
        ),
        advice: advice([
            "no server can help: the firmware starts drivers, checks its addresses (IPv6: seconds for each) or waits for the user",
            "wireboot from a stick, the disk's EFI partition or the card's ROM asks at once",
        ]),
        expected_s: None,
    })
}
