//! Reports that tell nothing of whose they are.

use std::hash::{BuildHasher, RandomState};
use std::iter;

use wireboot_report::{Network, Report};

/// Replaces addresses, serial numbers and names of files and servers by digests. The key is random and forgotten, as there are few enough
/// addresses to try them all: the same name has the same digest within a report alone. Findings quote names in their words, so those are
/// examined anew from what is left.
pub(crate) fn made(report: &Report) -> Report {
    let mut report = report.clone();
    let key = RandomState::new();
    let hash = |text: &mut String| *text = format!("{:016x}", key.hash_one(&*text));
    hash(&mut report.machine.mac);
    report.machine.uuid.iter_mut().for_each(hash);
    let boots = report.dry_boots.iter_mut().map(|boot| {
        // The firmware's names of boot options have addresses in them.
        hash(&mut boot.option);
        (&mut boot.network, &mut boot.timeline)
    });
    let captured = iter::once((&mut report.network, &mut report.timeline));
    for (network, timeline) in captured.chain(boots) {
        names(network, hash);
        for phase in timeline {
            if !phase.what.is_empty() {
                hash(&mut phase.what);
            }
        }
    }
    // So have these.
    if let Some(points) = &mut report.checkpoints {
        points.option.iter_mut().for_each(hash);
        points.options_before.iter_mut().for_each(hash);
        let attempts = points.attempts.iter_mut();
        attempts.for_each(|attempt| hash(&mut attempt.option));
        points.missing.clear();
    }
    for one in &mut report.throughput {
        hash(&mut one.server);
        for stream in &mut one.streams {
            hash(&mut stream.local);
        }
    }
    if let Some(trace) = &mut report.trace {
        let traced = trace.boot.iter_mut().chain(&mut trace.transfer);
        traced.for_each(|one| hash(&mut one.file));
    }
    if let Some(profile) = &mut report.profile {
        hash(&mut profile.file);
    }
    // A server's words may quote the file's name.
    let cells = report.sweep.iter_mut();
    cells.for_each(|cell| cell.failure.iter_mut().for_each(hash));
    report.findings = wireboot_diagnosis::examine(&report);
    report
}

/// Replaces the names in what was seen of a network.
fn names(network: &mut Network, hash: impl Fn(&mut String)) {
    if let Some(tree) = &mut network.spanning_tree {
        hash(&mut tree.bridge);
    }
    for one in &mut network.dhcp {
        one.chosen.iter_mut().for_each(&hash);
        one.user_class.iter_mut().for_each(&hash);
        for offer in &mut one.offers {
            hash(&mut offer.server);
            offer.address.iter_mut().for_each(&hash);
            offer.boot_file.iter_mut().for_each(&hash);
        }
    }
    for one in &mut network.dhcpv6 {
        one.boot_file.iter_mut().for_each(&hash);
    }
    for one in &mut network.boot_servers {
        hash(&mut one.server);
    }
    for one in &mut network.names {
        hash(&mut one.name);
        hash(&mut one.server);
    }
    for one in &mut network.transfers {
        hash(&mut one.server);
        hash(&mut one.client);
        hash(&mut one.file);
        // A server's words may quote the file's name.
        one.message.iter_mut().for_each(&hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::network::{BootServer, Dhcp, Offer, Transfer};
    use wireboot_report::trace::Traced;
    use wireboot_report::{DryBoot, Phase, Trace};

    #[test]
    fn no_name_is_left_and_the_findings_stay() {
        let secret = "s3cret";
        let name = || secret.to_owned();
        let mut report = Report::new();
        report.trace = Some(Trace {
            boot: Some(Traced {
                file: name(),
                ..Traced::default()
            }),
            transfer: Some(Traced {
                file: name(),
                ..Traced::default()
            }),
            ..Trace::default()
        });
        report.sweep.push(wireboot_report::sweep::Cell {
            failure: Some(format!("{secret} not found")),
            ..Default::default()
        });
        report.machine.mac = name();
        report.machine.uuid = Some(name());
        report.network.dhcp.push(Dhcp {
            discover_s: vec![0.0],
            offers: vec![Offer {
                at_s: 0.1,
                server: name(),
                address: Some(name()),
                boot_file: Some(name()),
                ..Offer::default()
            }],
            request_s: vec![4.1],
            chosen: Some(name()),
            ..Dhcp::default()
        });
        report.network.boot_servers.push(BootServer {
            server: name(),
            asked_s: vec![4.5],
            answered_s: None,
        });
        report.network.transfers.push(Transfer {
            server: name(),
            client: name(),
            file: name(),
            outcome: wireboot_report::network::Outcome::Refused,
            message: Some(format!("{secret} not found")),
            ..Transfer::default()
        });
        report.timeline.push(Phase {
            kind: wireboot_report::PhaseKind::BootServer,
            start_s: 4.5,
            end_s: 6.5,
            what: name(),
        });
        let mut dry = report.clone();
        dry.dry_boots.push(DryBoot {
            option: name(),
            network: std::mem::take(&mut dry.network),
            timeline: std::mem::take(&mut dry.timeline),
            ..DryBoot::default()
        });
        for mut report in [report, dry] {
            report.findings = wireboot_diagnosis::examine(&report);
            let before: Vec<_> = report.findings.iter().map(|one| one.id.clone()).collect();
            assert!(
                before.contains(&"refused".to_owned())
                    && before.contains(&"boot-server".to_owned())
            );
            let made = super::made(&report);
            assert!(!made.to_json().contains(secret), "{}", made.to_json());
            let after: Vec<_> = made.findings.iter().map(|one| one.id.clone()).collect();
            assert_eq!(after, before);
            // The same name is still the same.
            let seconds =
                |report: &Report| report.findings.iter().map(|one| one.seconds).sum::<f64>();
            assert!((seconds(&made) - seconds(&report)).abs() < 1e-9);
        }
    }
}
