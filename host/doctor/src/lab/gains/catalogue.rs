//! The faults that cost a boot time that can be had back.

use super::super::site::Fault;

/// A fault, and how it is measured.
#[derive(Debug)]
pub(super) struct Planted {
    pub(super) fault: Fault,
    /// What is wrong in both kinds of boots.
    pub(super) beside: &'static [Fault],
    /// The findings whose seconds are foretold.
    pub(super) findings: &'static [&'static str],
    pub(super) compared: ComparedBoots,
}

/// Which boots are compared, and by what the findings are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparedBoots {
    /// shim, GRUB, kernel and RAM disk; by the packets of these boots.
    Whole,
    /// wireboot.efi, until it is started; by packets. GRUB would ask for block after block for many minutes.
    First,
    /// shim, until it is started; by an examination inside with these words, which knows the firmware's own part of a boot alone.
    Inside(&'static str),
}

/// The machine's services, and how often a boot calls them.
pub(super) const SERVICES: &str = "check cost trace calls=200 rounds=1";
/// Each boot option, as those before the right one may fail.
pub(super) const OPTIONS: &str = "boot options=4";
/// The first boot option alone.
pub(super) const FIRST_OPTION: &str = "boot options=1";
/// The first option, and how much of the time somebody takes.
pub(super) const STOLEN: &str = "cost boot calls=200 options=1";

/// The network is far away.
const FAR: &[Fault] = &[Fault::Delay];

/// A fault of the driver that plants some, which takes no time: that driver is loaded in both kinds of boots.
const DRIVER: &[Fault] = &[Fault::DebugBuild];

/// Not among them: faults with which no boot arrives, and those that make nothing slower here.
pub(super) const PLANTED: &[Planted] = &[
    whole(Fault::Stp, &["spanning-tree"]),
    whole(Fault::Lacp, &["lacp"]),
    // A server that is late may answer the second request first: the first has no answer then.
    whole(Fault::LateDhcp, &["late-offer", "unanswered"]),
    whole(Fault::Ipv6First, &["ip-version"]),
    whole(Fault::SlowDisk, &["slow-server"]),
    whole(Fault::NoBlksize, &["block-size", "window"]),
    whole(Fault::NoWindowsize, &["window"]),
    whole(Fault::SmallMtu, &["fragments"]),
    first(Fault::Loss, &[], &["loss"]),
    first(Fault::Delay, &[], &["window"]),
    first(Fault::NoWindowsize, FAR, &["window"]),
    first(Fault::NoBlksize, FAR, &["block-size", "window"]),
    // shim takes no names: what is compared ends with its start.
    inside(Fault::SlowNames, &[], &["names"], FIRST_OPTION),
    inside(Fault::DeadOption, &[], &["failing-options"], OPTIONS),
    inside(Fault::MenuTimeout, &[], &["boot-menu"], SERVICES),
    inside(
        Fault::SlowTime,
        DRIVER,
        &["time-per-packet", "slow-get-time"],
        SERVICES,
    ),
    inside(
        Fault::SlowVariables,
        DRIVER,
        &["variables-written", "slow-variables"],
        SERVICES,
    ),
    inside(Fault::SlowConsole, DRIVER, &["slow-console"], SERVICES),
    inside(Fault::Receivers, DRIVER, &["receivers"], SERVICES),
    inside(Fault::StoppedMachine, &[], &["stolen-time"], STOLEN),
];

const fn whole(fault: Fault, findings: &'static [&'static str]) -> Planted {
    planted(fault, &[], findings, ComparedBoots::Whole)
}

const fn first(
    fault: Fault,
    beside: &'static [Fault],
    findings: &'static [&'static str],
) -> Planted {
    planted(fault, beside, findings, ComparedBoots::First)
}

const fn inside(
    fault: Fault,
    beside: &'static [Fault],
    findings: &'static [&'static str],
    words: &'static str,
) -> Planted {
    planted(fault, beside, findings, ComparedBoots::Inside(words))
}

const fn planted(
    fault: Fault,
    beside: &'static [Fault],
    findings: &'static [&'static str],
    compared: ComparedBoots,
) -> Planted {
    Planted {
        fault,
        beside,
        findings,
        compared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_findings_are_those_of_rules() {
        let names: Vec<_> = wireboot_diagnosis::names().collect();
        let mut findings = PLANTED.iter().flat_map(|one| one.findings);
        assert!(findings.all(|id| names.contains(id)));
    }
}
