//! Reports that tell nothing of whose they are.

use std::hash::{BuildHasher, RandomState};

use wireboot_report::Report;

/// Replaces addresses, serial numbers and names of files and servers by digests. The key is random and forgotten, as there are few enough
/// addresses to try them all: the same name has the same digest within a report alone. Findings quote names in their words, so those are
/// examined anew from what is left.
pub(crate) fn made(report: &Report) -> Report {
    let mut report = report.clone();
    let key = RandomState::new();
    let hash = |text: &mut String| *text = format!("{:016x}", key.hash_one(&*text));
    hash(&mut report.machine.mac);
    report.machine.uuid.iter_mut().for_each(hash);
    let network = &mut report.network;
    if let Some(tree) = &mut network.spanning_tree {
        hash(&mut tree.bridge);
    }
    for one in &mut network.dhcp {
        one.chosen.iter_mut().for_each(hash);
        one.user_class.iter_mut().for_each(hash);
        for offer in &mut one.offers {
            hash(&mut offer.server);
            offer.address.iter_mut().for_each(hash);
            offer.boot_file.iter_mut().for_each(hash);
        }
    }
    for one in &mut network.dhcpv6 {
        one.boot_file.iter_mut().for_each(hash);
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
        one.message.iter_mut().for_each(hash);
    }
    for phase in &mut report.timeline {
        if !phase.what.is_empty() {
            hash(&mut phase.what);
        }
    }
    // The firmware's names of boot options have addresses in them.
    if let Some(points) = &mut report.checkpoints {
        points.option.iter_mut().for_each(hash);
        points.options_before.iter_mut().for_each(hash);
        points.missing.clear();
    }
    report.findings = wireboot_diagnosis::examine(&report);
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::Phase;
    use wireboot_report::network::{BootServer, Dhcp, Offer, Transfer};

    #[test]
    fn no_name_is_left_and_the_findings_stay() {
        let secret = "s3cret";
        let name = || secret.to_owned();
        let mut report = Report::new();
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
        report.findings = wireboot_diagnosis::examine(&report);
        let before: Vec<_> = report.findings.iter().map(|one| one.id.clone()).collect();
        assert!(
            before.contains(&"refused".to_owned()) && before.contains(&"boot-server".to_owned())
        );
        let made = made(&report);
        assert!(!made.to_json().contains(secret), "{}", made.to_json());
        let after: Vec<_> = made.findings.iter().map(|one| one.id.clone()).collect();
        assert_eq!(after, before);
        // The same name is still the same.
        let seconds = |report: &Report| report.findings.iter().map(|one| one.seconds).sum::<f64>();
        assert!((seconds(&made) - seconds(&report)).abs() < 1e-9);
    }
}
