//! How the firmware is built: DEBUG's checks, its network drivers, who gets its frames, random numbers.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::Report;
use wireboot_report::firmware::Receiver;
use wireboot_report::trace::Traced;

use super::{Found, advice, count, listed, time};

/// Network drivers of EDK II that each boot by PXE needs.
const NEEDED: [&str; 10] = [
    "DpcDxe",
    "SnpDxe",
    "MnpDxe",
    "ArpDxe",
    "Ip4Dxe",
    "Ip4ConfigDxe",
    "Udp4Dxe",
    "Dhcp4Dxe",
    "Mtftp4Dxe",
    "UefiPxeBcDxe",
];
/// Those that one over IPv6 needs, too.
const NEEDED_BY_IPV6: [&str; 4] = ["Ip6Dxe", "Udp6Dxe", "Dhcp6Dxe", "Mtftp6Dxe"];
/// Those that no boot by PXE needs.
const OTHERS: [&str; 12] = [
    "VlanConfigDxe",
    "Tcp4Dxe",
    "TcpDxe",
    "DnsDxe",
    "HttpDxe",
    "HttpUtilitiesDxe",
    "HttpBootDxe",
    "IScsi4Dxe",
    "IScsiDxe",
    "TlsDxe",
    "TlsAuthConfigDxe",
    "WifiConnectionManagerDxe",
];

/// Whether this is the name of a network driver of EDK II's.
pub(crate) fn is_network_driver(name: &str) -> bool {
    let mut all = NEEDED.iter().chain(&NEEDED_BY_IPV6).chain(&OTHERS);
    all.any(|one| *one == name)
}

/// By name, the sum of the numbers beside it, in the order in which the names first came.
fn sums<'a>(all: &mut dyn Iterator<Item = (&'a str, f64)>) -> Vec<(&'a str, f64)> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, number) in all {
        let place = *places.entry(name).or_insert(sums.len());
        match sums.get_mut(place) {
            Some((_, sum)) => *sum += number,
            None => sums.push((name, number)),
        }
    }
    sums
}

/// A smaller part of a boot's time is not worth a word.
const SHARE: f64 = 0.01;

/// EDK II's stack has a receiver for each of these EtherTypes: IPv4, ARP, IPv6.
const USUAL: [u16; 3] = [0x0800, 0x0806, 0x86dd];

/// The firmware is a DEBUG build, in whole or in part.
pub(super) fn debug_build(report: &Report) -> Option<Found> {
    // That AllocatePool fills memory is no sign alone: OVMF's RELEASE builds do so, too.
    let build = report
        .build
        .as_ref()
        .filter(|build| !build.asserting.is_empty())?;
    let filled = if build.pool_filled {
        "; AllocatePool fills memory with 0xAF"
    } else {
        ""
    };
    Some(Found {
        label: "a DEBUG build".into(),
        seconds: 0.0,
        evidence: format!(
            "{} of {} images in memory have the words of ASSERT: {}{filled}",
            build.asserting.len(),
            build.images,
            listed(build.asserting.iter().map(String::as_str))
        ),
        advice: advice([
            "ask the firmware's vendor for a RELEASE build: DEBUG checks each allocation and each list, for each packet, too",
        ]),
        expected_s: None,
    })
}

/// Others get the card's frames, too.
pub(super) fn receivers(report: &Report) -> Option<Found> {
    let mut usual = Vec::from(USUAL);
    let is_more = |one: &&Receiver| {
        let first = usual.iter().position(|kind| *kind == one.ether_type);
        first.map(|place| usual.swap_remove(place)).is_none()
    };
    let more: Vec<&Receiver> = report.receivers.iter().filter(is_more).collect();
    if more.is_empty() {
        return None;
    }
    let images = sums(&mut more.iter().map(|one| (one.image.as_str(), 1.0)));
    let images: Vec<String> = images
        .iter()
        .map(|(image, times)| format!("{image} {times}"))
        .collect();
    Some(Found {
        label: "more receivers".into(),
        seconds: 0.0,
        evidence: format!(
            "the card's packet service (MNP) has {}, {} more than one each for ARP, IPv4 and IPv6: {}; each frame that they ask for is copied for them",
            count(report.receivers.len(), "receiver"),
            more.len(),
            listed(images.iter().map(String::as_str))
        ),
        advice: advice([
            "switch off what looks at the network before the boot in the firmware's setup: remote management, diagnosis, discovery",
            "or ask the firmware's vendor what these drivers are for",
        ]),
        expected_s: None,
    })
}

/// A network driver stands there twice, or costs time though the boot does not need it.
pub(super) fn needless_drivers(report: &Report) -> Option<Found> {
    let drivers = report.network_drivers.iter();
    let mut twice = sums(&mut drivers.map(|name| (name.as_str(), 1.0)));
    twice.retain(|(_, times)| *times > 1.0);
    let boot = report.trace.as_ref().and_then(|trace| trace.boot.as_ref());
    let costly = boot.map(of_needless).unwrap_or_default();
    let cost_s: f64 = costly.iter().map(|(_, own_s)| own_s).sum();
    let is_costly = boot.is_some_and(|boot| cost_s >= boot.took_s * SHARE && cost_s > 0.0);
    let mut seen: Vec<String> = Vec::new();
    if !twice.is_empty() {
        seen.push(format!(
            "in memory twice: {}",
            listed(twice.iter().map(|(name, _)| *name))
        ));
    }
    if is_costly {
        seen.push(format!(
            "a traced boot spends {} in calls of drivers that it does not need: {}",
            time(cost_s),
            listed(costly.iter().map(|(name, _)| *name))
        ));
    }
    (!seen.is_empty()).then(|| Found {
        label: "needless network drivers".into(),
        seconds: if is_costly { cost_s } else { 0.0 },
        evidence: seen.join("; "),
        advice: advice([
            "switch them off in the firmware's setup (IPv6, HTTP Boot, iSCSI), or ask its vendor: a boot by PXE needs SNP, MNP, ARP, IP, UDP, DHCP, MTFTP and PXE alone",
            "of two drivers for the same, the one in EDK II's NetworkPkg is the newer",
        ]),
        expected_s: is_costly.then_some(0.0),
    })
}

/// Seconds of a boot's calls by driver, of those that it does not need.
fn of_needless(boot: &Traced) -> Vec<(&str, f64)> {
    let over_ipv6 = boot.calls.iter().any(|one| one.image == "Mtftp6Dxe");
    let needless =
        |image: &str| OTHERS.contains(&image) || (!over_ipv6 && NEEDED_BY_IPV6.contains(&image));
    let calls = boot.calls.iter().filter(|one| needless(&one.image));
    sums(&mut calls.filter_map(|one| Some((one.image.as_str(), one.own_s?))))
}

/// The firmware has no random numbers, which newer network drivers need.
pub(super) fn no_rng(report: &Report) -> Option<Found> {
    if report.machine.random != Some(false) {
        return None;
    }
    Some(Found {
        label: "no random numbers".into(),
        seconds: 0.0,
        evidence: "no driver of the firmware offers EFI_RNG_PROTOCOL; EDK II of May 2024 and later has no network without it".into(),
        advice: advice([
            "where the firmware offers no network boot: ask its vendor for a driver of the processor's RDRAND (RngDxe)",
            "a virtual machine: give it a random number generator (QEMU: -device virtio-rng-pci)",
        ]),
        expected_s: None,
    })
}
