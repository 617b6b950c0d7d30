//! The firmware's own network boot, to be looked at while it works: the card that it uses, and the file that it is told to fetch.

use crate::error::Error;
use crate::examination::Examination;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_boot::error::Error as BootError;
use wireboot_boot::origin::boot_files;
use wireboot_fetch::url::{Host, Scheme};
use wireboot_fetch::{Lease, Lease6, Leases};
use wireboot_net::sort;
use wireboot_platform::claim::pci::{self, Candidate};
use wireboot_platform::firmware_net::NetworkBoot;
use wireboot_platform::pxe::Cached;
use wireboot_platform::trace::PacketWork;
use wireboot_report::trace::PacketWork as Work;

/// The card that we came by, else the first whose firmware offers a network boot.
pub(super) fn first(examination: &Examination<'_>) -> Result<(Candidate, NetworkBoot), Error> {
    first_with(examination, NetworkBoot::of)
}

/// The same where `of` has its network boot.
pub(super) fn first_with(
    examination: &Examination<'_>,
    of: fn(&Candidate) -> Result<NetworkBoot, wireboot_platform::Error>,
) -> Result<(Candidate, NetworkBoot), Error> {
    // Where none has a link, the firmware says so.
    let _ = examination.card(None);
    for card in cards(examination) {
        if examination.origin.network.mac.is_none() {
            card.connect();
        }
        if let Ok(boot) = of(&card) {
            return Ok((card, boot));
        }
    }
    Err(Error::Boot(BootError::NoInterface))
}

/// The card that we came by, else the first that has a link.
pub(super) fn linked(examination: &Examination<'_>) -> Result<Candidate, Error> {
    let card = examination.card(None)?;
    let function = pci::function_of(card.path()).filter(Candidate::is_network);
    Ok(function.ok_or(BootError::NoInterface)?)
}

/// The card that we came by, else all: the one first that is known to have a link.
pub(super) fn cards(examination: &Examination<'_>) -> impl Iterator<Item = Candidate> {
    let origin = examination.origin;
    let came_by = origin
        .network
        .mac
        .and_then(|_| pci::function_of(&origin.path));
    let cards = match came_by {
        Some(card) => Vec::from([card]),
        None => pci::functions(),
    };
    let cards = cards.into_iter().filter(Candidate::is_network);
    let has_link = |card: &Candidate| examination.linked.is(&card.path);
    let (linked, others): (Vec<_>, Vec<_>) = cards.partition(has_link);
    linked.into_iter().chain(others)
}

/// What `work` gives, and what a packet cost the firmware meanwhile at the least, in ticks; `None` where that cannot be counted.
pub(super) fn counted<T>(card: &Candidate, work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let counter = PacketWork::start(card).ok();
    let given = work();
    let worked = counter.map(PacketWork::finish);
    (given, worked.and_then(|worked| worked.least))
}

/// What looking costs of a packet's work: the least of all turns, with and without.
pub(super) fn cost_of_looking(plain: &[u64], looked: &[u64]) -> Option<Work> {
    let least = |turns: &[u64]| turns.iter().copied().min();
    Some(Work {
        plain: least(plain)?,
        looked: least(looked)?,
    })
}

/// The server and the file that the firmware was told to boot.
pub(super) fn named(learnt: &Cached) -> Option<(IpAddr, String)> {
    let url = boot_files(&leases(learnt)?).next()?;
    match (url.scheme(), url.host()) {
        (Scheme::Tftp, Host::Address(server)) => Some((*server, url.resource().to_string())),
        _ => None,
    }
}

/// Files that take longer would have the watchdog end the check before it has figures, in seconds.
const LONGEST_S: f64 = 60.0;

/// # Errors
/// When this is too long for a file that is fetched again and again.
pub(super) fn quick_enough(file: &str, seconds: f64) -> Result<(), Error> {
    if seconds > LONGEST_S {
        return Err(Error::Slow(file.to_string()));
    }
    Ok(())
}

/// The lease that the firmware has.
pub(super) fn leases(learnt: &Cached) -> Option<Leases> {
    let (ack, proxy) = (&learnt.dhcp_ack, learnt.proxy_offer.as_deref());
    let reply = learnt.pxe_reply.as_deref();
    match learnt.station {
        IpAddr::V4(_) => Lease::from_packets(ack, proxy, reply)
            .ok()
            .map(Leases::from),
        IpAddr::V6(station) => {
            let mut lease = Lease6::from_packets(ack, proxy, reply).ok()?;
            // Where DHCPv6 gives none, the firmware has one of a router's prefix.
            if lease.addresses.is_empty() {
                lease.addresses.push(station);
            }
            Some(Leases {
                v4: None,
                v6: Some(lease),
            })
        }
    }
}

/// The middle one; of an even number, the upper of both.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    sort::insertion(&mut values, |one, other| one < other);
    values.get(values.len() / 2).copied()
}

/// Microseconds as seconds.
pub(super) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_an_hour_is_not_fetched_again() {
        assert!(quick_enough("a", 59.0).is_ok());
        let said = quick_enough("boot.efi", 3600.0).unwrap_err().to_string();
        assert!(said.contains("boot.efi"), "{said}");
    }

    #[test]
    fn the_middle_is_no_outlier() {
        assert_eq!(median([3.0, 1.0, 90.0].into()), Some(3.0));
        assert_eq!(median([1.0].into()), Some(1.0));
        assert_eq!(median(Vec::new()), None);
    }
}
