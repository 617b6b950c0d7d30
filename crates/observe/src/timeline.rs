//! What the time went into, from what was seen.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use wireboot_report::network::{Dhcp, Network, Outcome, Protocol, Transfer};
use wireboot_report::{Phase, PhaseKind};

/// Silence shorter than this is none.
const QUIET_S: f64 = 0.05;

/// The phases, in the order of beginning, with the silence between them.
pub(crate) fn of(network: &Network) -> Vec<Phase> {
    let mut phases = Phases::default();
    for conversation in &network.dhcp {
        phases.dhcp(conversation);
    }
    for one in &network.dhcpv6 {
        let answered = one.answered_s.last().copied();
        let kind = match answered {
            Some(_) => PhaseKind::Dhcpv6,
            None => PhaseKind::Ipv6Unanswered,
        };
        phases.question(kind, &one.asked_s, answered, &one.kind);
    }
    if network.router_advertisements_s.is_empty() {
        let asked = &network.router_solicitations_s;
        phases.question(PhaseKind::Ipv6Unanswered, asked, None, "routers");
    }
    for one in &network.boot_servers {
        phases.question(
            PhaseKind::BootServer,
            &one.asked_s,
            one.answered_s,
            &one.server,
        );
    }
    for one in &network.names {
        phases.question(PhaseKind::Name, &one.asked_s, one.answered_s, &one.name);
    }
    for one in &network.transfers {
        phases.add(kind(one), one.start_s, one.end_s, &named(one));
    }
    phases.finish(network.span_s)
}

/// Phases, and whether each ended without an answer.
#[derive(Default)]
struct Phases(Vec<(Phase, bool)>);

impl Phases {
    fn add(&mut self, kind: PhaseKind, start_s: f64, end_s: f64, what: &str) {
        // A capture whose clock was set back has times before its beginning.
        let start_s = start_s.max(0.0);
        let phase = Phase {
            kind,
            start_s,
            end_s: end_s.max(start_s),
            what: what.to_string(),
        };
        self.0.push((phase, false));
    }

    /// Something that was asked, several times perhaps, until the answer.
    fn question(&mut self, kind: PhaseKind, asked_s: &[f64], answered_s: Option<f64>, what: &str) {
        let (Some(first), Some(last)) = (asked_s.first(), asked_s.last()) else {
            return;
        };
        self.add(kind, *first, answered_s.unwrap_or(*last), what);
        if let (None, Some((_, open))) = (answered_s, self.0.last_mut()) {
            *open = true;
        }
    }

    fn dhcp(&mut self, one: &Dhcp) {
        let who = one.chosen.as_deref().unwrap_or_default();
        let Some(offered) = one.offered_s() else {
            let mut asked = one.discover_s.clone();
            asked.extend_from_slice(&one.request_s);
            self.question(PhaseKind::DhcpUnanswered, &asked, None, "");
            return;
        };
        let first = one.discover_s.first().copied();
        if let (Some(first), Some(answered)) = (first, one.answered_s())
            && first < answered
        {
            self.add(PhaseKind::DhcpUnanswered, first, answered, "");
        }
        let asked = one.request_s.first().copied();
        let complete = one.complete_s().unwrap_or(offered);
        // What was taken before it was complete was as good as needed.
        let ready = complete.min(asked.unwrap_or(complete));
        if let Some(answered) = one.answered_s() {
            self.add(PhaseKind::DhcpOffer, answered, ready, who);
        }
        if let (Some(asked), Some(last)) = (asked, one.request_s.last()) {
            self.add(PhaseKind::OfferWait, ready, asked, who);
            let end = one.ack_s.or(one.nak_s).unwrap_or(*last);
            self.add(PhaseKind::DhcpRequest, asked, end, who);
        }
    }

    fn finish(mut self, span_s: f64) -> Vec<Phase> {
        self.0
            .sort_by(|(one, _), (other, _)| one.start_s.total_cmp(&other.start_s));
        // Who is not answered waits until it does something else.
        let starts: Vec<f64> = self.0.iter().map(|(phase, _)| phase.start_s).collect();
        for (phase, open) in &mut self.0 {
            let next = starts.iter().copied().find(|start| *start > phase.end_s);
            if let Some(next) = next.filter(|_| *open) {
                phase.end_s = next;
            }
        }
        quiet(self.0.into_iter().map(|(phase, _)| phase), span_s)
    }
}

fn kind(transfer: &Transfer) -> PhaseKind {
    match transfer.outcome {
        Outcome::SizeProbe => PhaseKind::SizeProbe,
        Outcome::Refused => PhaseKind::Refused,
        _ => PhaseKind::Transfer,
    }
}

fn named(transfer: &Transfer) -> String {
    let protocol = match transfer.protocol {
        Protocol::Http => "http",
        _ => "tftp",
    };
    format!("{protocol} {} {}", transfer.server, transfer.file)
}

/// Puts the silence between.
fn quiet(phases: impl Iterator<Item = Phase>, span_s: f64) -> Vec<Phase> {
    let mut out = Vec::new();
    let mut until = 0.0;
    for phase in phases {
        if phase.start_s > until + QUIET_S && phase.start_s <= span_s {
            out.push(Phase {
                kind: PhaseKind::Quiet,
                start_s: until,
                end_s: phase.start_s,
                what: String::new(),
            });
        }
        until = phase.end_s.max(until);
        out.push(phase);
    }
    out
}
