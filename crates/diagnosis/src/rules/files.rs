//! Files that were not there, or late.

use wireboot_report::PhaseKind;
use wireboot_report::network::{Outcome, Transfer};

use alloc::format;
use alloc::vec::Vec;

use super::{Boot, Found, advice, count, listed, time};

/// Below this, a file that is not there is not worth a word.
const WORTH_S: f64 = 0.2;

/// A server that begins within this is quick.
pub(super) const QUICK_S: f64 = 0.3;

/// Addresses were given and no boot file.
pub(super) fn no_boot_file(boot: &Boot<'_>) -> Option<Found> {
    let network = &boot.network;
    let offers: Vec<_> = network.dhcp.iter().flat_map(|one| &one.offers).collect();
    let booted = offers
        .iter()
        .any(|offer| offer.boot_file.is_some() || offer.pxe)
        || network.dhcpv6.iter().any(|one| one.boot_file.is_some())
        || network
            .boot_servers
            .iter()
            .any(|one| one.answered_s.is_some())
        || !network.transfers.is_empty();
    let answers = network.dhcpv6.iter().map(|one| one.answers.len()).sum();
    let (said, setting) = match (offers.len(), answers) {
        _ if booted => return None,
        (0, 0) => return None,
        (0, answers) => (
            count(answers, "DHCPv6 answer"),
            "dnsmasq: `dhcp-option=option6:bootfile-url,tftp://[SERVER]/FILE`. Kea: `bootfile-url`. ISC dhcpd: `dhcp6.bootfile-url`",
        ),
        (offers, _) => (
            count(offers, "offer"),
            "dnsmasq: `dhcp-boot=FILE,,SERVER`. Kea: `boot-file-name` and `next-server`. ISC dhcpd: `filename` and `next-server`",
        ),
    };
    Some(Found {
        label: "no boot file".into(),
        seconds: 0.0,
        evidence: format!("{said} with an address, and none names a boot file"),
        advice: advice([
            setting,
            "where it depends on the machine's architecture (option 93, in DHCPv6 61), the one of this machine may be missing: 7 is x86-64 by TFTP, 16 by HTTP",
        ]),
        expected_s: None,
    })
}

/// Files that the server has not.
pub(super) fn refused(boot: &Boot<'_>) -> Option<Found> {
    let refused: Vec<&Transfer> = boot
        .network
        .transfers
        .iter()
        .filter(|one| one.outcome == Outcome::Refused)
        .collect();
    let message = refused.iter().find_map(|one| one.message.as_deref())?;
    let phases = boot.timeline.iter();
    let lost: f64 = phases
        .filter(|phase| phase.kind == PhaseKind::Refused)
        .map(wireboot_report::Phase::seconds)
        .sum();
    // A name that is tried in passing is no fault, unless it was the boot's last.
    let transfers = &boot.network.transfers;
    let fatal = transfers.last()?.outcome == Outcome::Refused;
    if lost < WORTH_S && !fatal {
        return None;
    }
    Some(Found {
        label: "files that the server has not".into(),
        seconds: lost,
        evidence: format!(
            "{} refused (\"{message}\"): {}",
            count(refused.len(), "request"),
            listed(refused.iter().map(|one| one.file.as_str()))
        ),
        advice: advice([
            "a boot program that looks for its configuration under many names (pxelinux, GRUB) finds it at once under the first: the machine's UUID \
             or Ethernet address",
            "is it the boot file itself: its name is case-sensitive, and relative to the server's own root",
        ]),
        expected_s: Some(0.0),
    })
}

/// Servers that never answer.
pub(super) fn no_answer(boot: &Boot<'_>) -> Option<Found> {
    let silent: Vec<&Transfer> = boot
        .network
        .transfers
        .iter()
        .filter(|one| one.answer_s.is_none() && one.seconds() >= QUICK_S)
        .collect();
    let lost: f64 = silent.iter().map(|one| one.seconds()).sum();
    let worst = silent
        .iter()
        .max_by(|one, other| one.seconds().total_cmp(&other.seconds()))?;
    Some(Found {
        label: "file servers that do not answer".into(),
        seconds: lost,
        evidence: format!(
            "{} asked for without one packet in return; {} from {} for {}",
            count(silent.len(), "file"),
            worst.file,
            worst.server,
            time(worst.seconds())
        ),
        advice: advice([
            "is the server that DHCP names (siaddr, option 66, a URL) the right one, and does its service run? A firewall that drops UDP port 69, or the \
             ports from which a TFTP server sends, looks the same",
        ]),
        expected_s: Some(0.0),
    })
}

/// Servers that take long to begin.
pub(super) fn slow_answer(boot: &Boot<'_>) -> Option<Found> {
    let slow: Vec<&Transfer> = boot
        .network
        .transfers
        .iter()
        .filter(|one| one.answer_delay_s().is_some_and(|delay| delay >= QUICK_S))
        .collect();
    let lost: f64 = slow.iter().filter_map(|one| one.answer_delay_s()).sum();
    let worst = slow.iter().max_by(|one, other| {
        let delay = |one: &Transfer| one.answer_delay_s().unwrap_or_default();
        delay(one).total_cmp(&delay(other))
    })?;
    Some(Found {
        label: "servers slow to begin".into(),
        seconds: lost,
        evidence: format!(
            "{} had its first answer after {QUICK_S} s or more; {} from {} after {}",
            count(slow.len(), "file"),
            worst.file,
            worst.server,
            time(worst.answer_delay_s().unwrap_or_default())
        ),
        advice: advice([
            "a TFTP server that is started for each client (inetd), or looks the client's name up, begins late: run it as a service of its own, and \
             switch name lookup off",
            "where the first request was lost, the machine's next one came seconds later: see the finding `loss`",
        ]),
        expected_s: Some(0.0),
    })
}
