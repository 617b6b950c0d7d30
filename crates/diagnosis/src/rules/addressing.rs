//! Before the first file: the link, addresses, names.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::network::{Dhcp, Offer, VendorOptions};
use wireboot_report::{Phase, PhaseKind};

use super::{Boot, Found, advice, count, listed, time};

/// Below this, waiting for an address is not worth a word.
pub(super) const WORTH_S: f64 = 0.3;

/// From this on requests without an answer are no accident.
pub(super) const UNANSWERED_S: f64 = 1.0;

/// Seconds that phases of `kind` take before `until_s`, those that overlap counted once.
pub(super) fn seconds(boot: &Boot<'_>, kind: PhaseKind, until_s: f64) -> f64 {
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
pub(super) struct Taken<'a> {
    pub(super) dhcp: &'a Dhcp,
    /// From the first request to the machine's choice: its own patience, with offers in hand.
    pub(super) patience_s: f64,
    /// The rest: nobody heard it, or the offer was late. Timers grow with each request that is not answered, and the machine waits for the one
    /// that runs even when an offer has come.
    pub(super) rest_s: f64,
    /// How long it had a whole offer in hand.
    pub(super) wait_s: f64,
    /// The server heard the first request, however late it answered.
    pub(super) heard_first: bool,
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

pub(super) fn taken<'a>(boot: &Boot<'a>) -> impl Iterator<Item = Taken<'a>> + use<'a> {
    let of = if boot.listened {
        Taken::of_listener
    } else {
        Taken::of
    };
    boot.network.dhcp.iter().filter_map(of)
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
    let asked = boot.network.boot_servers.iter();
    let unanswered = asked.filter(|one| one.answered_s.is_none());
    let silent = once(unanswered.map(|one| one.server.as_str()));
    if silent.is_empty() {
        return None;
    }
    let lost = of(boot, PhaseKind::BootServer)
        .filter(|phase| silent.contains(phase.what.as_str()))
        .map(Phase::seconds)
        .sum();
    Some(Found {
        label: "a boot server that does not answer".into(),
        seconds: lost,
        evidence: format!(
            "asked at port 4011, never answered: {}",
            listed(silent.into_iter())
        ),
        advice: advice([
            "an offer that says `PXEClient` (option 60) and gives no boot file sends the machine to the server's UDP port 4011: let that be open, \
             or take option 60 out of the DHCP server's answers where it is not the boot server",
        ]),
        expected_s: Some(0.0),
    })
}

/// The servers whose offers are such, each once.
fn servers<'a>(boot: &Boot<'a>, are: impl Fn(&Offer) -> bool) -> BTreeSet<&'a str> {
    let offers = boot.offers().filter(|offer| are(offer));
    once(offers.map(|offer| offer.server.as_str()))
}

fn once<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    // One by one: to collect them is to sort them, 4 kB of a program.
    let mut once = BTreeSet::new();
    once.extend(names);
    once
}

/// Several servers give addresses.
pub(super) fn several_servers(boot: &Boot<'_>) -> Option<Found> {
    let servers = servers(boot, |offer| offer.address.is_some());
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
    let foreign = servers(boot, |offer| offer.vendor_options == VendorOptions::Foreign);
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
