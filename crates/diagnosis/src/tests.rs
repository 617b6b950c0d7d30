mod recorded;

use super::*;
use alloc::string::ToString;
use alloc::vec;
use wireboot_report::ladder::{Ladder, Rung};
use wireboot_report::memory::{CARDS, Memory, ORDINARY, Region};
use wireboot_report::network::{
    BootServer, Dhcp, Dhcpv6, Dhcpv6Answer, Lacp, NameQuery, Offer, Protocol, SpanningTree,
    Transfer, VendorOptions,
};
use wireboot_report::servers::{Echoes, Path};
use wireboot_report::sweep::{By, Cell};
use wireboot_report::{Attempt, Checkpoints, Module};
use wireboot_report::{DryBoot, Pcie, Phase, PhaseKind, Server, Surroundings};

fn phase(kind: PhaseKind, start_s: f64, end_s: f64, what: &str) -> Phase {
    Phase {
        kind,
        start_s,
        end_s,
        what: what.into(),
    }
}

fn offer(at_s: f64, server: &str) -> Offer {
    Offer {
        at_s,
        server: server.into(),
        address: Some("10.0.0.9".into()),
        boot_file: Some("shimx64.efi".into()),
        pxe: false,
        vendor_options: VendorOptions::Absent,
    }
}

/// An answer at once, taken at once.
fn healthy() -> Report {
    let mut report = Report::new();
    report.network.span_s = 2.0;
    report.network.dhcp.push(Dhcp {
        discover_s: vec![0.0],
        offers: vec![offer(0.01, "10.0.0.1")],
        request_s: vec![0.02],
        chosen: Some("10.0.0.1".into()),
        ack_s: Some(0.03),
        ..Dhcp::default()
    });
    report.network.transfers.push(file());
    report
}

/// 40 MB by TFTP in windows of 64, as fast as it goes.
fn file() -> Transfer {
    Transfer {
        protocol: Protocol::Tftp,
        server: "10.0.0.1".into(),
        file: "initrd.gz".into(),
        start_s: 0.1,
        answer_s: Some(0.101),
        end_s: 0.5,
        outcome: Outcome::Complete,
        bytes: 40 << 20,
        asked: "blksize=1468 windowsize=64".into(),
        granted: "blksize=1468 windowsize=64".into(),
        block_bytes: 1468,
        window_blocks: 64,
        data_packets: 28571,
        client_packets: 446,
        turns: 446,
        server_wait_s: 0.1,
        client_wait_s: 0.1,
        shortest_server_wait_s: Some(0.0001),
        ..Transfer::default()
    }
}

fn ids(report: &Report) -> Vec<String> {
    examine(report).into_iter().map(|one| one.id).collect()
}

fn found(report: &Report, id: &str) -> Finding {
    let all = examine(report);
    all.iter()
        .find(|one| one.id == id)
        .cloned()
        .unwrap_or_else(|| panic!("{id} is not among {all:?}"))
}

#[track_caller]
fn close(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one} is not {other}");
}

#[test]
fn nothing_is_found_in_a_healthy_boot() {
    let report = healthy();
    assert_eq!(ids(&report), Vec::<String>::new());
    assert_eq!(
        verdict(&report),
        "2.0 s on the network; nothing found that can be saved."
    );
}

#[test]
fn findings_stand_by_seconds_and_the_verdict_names_them() {
    let mut report = healthy();
    report.network.span_s = 64.0;
    report.network.dhcp[0].discover_s = vec![0.0, 4.0, 12.0, 28.0];
    report.network.dhcp[0].offers = vec![offer(28.1, "10.0.0.1")];
    // Its timer was at 32 s by then.
    report.network.dhcp[0].request_s = vec![60.0];
    report.network.spanning_tree = Some(SpanningTree {
        bridge: "02:00:00:00:00:07".into(),
        first_s: -1.0,
        forward_delay_s: 15.0,
        ..SpanningTree::default()
    });
    report.findings = examine(&report);
    let all: Vec<_> = report.findings.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(all, ["spanning-tree", "offer-wait"]);
    assert_eq!(
        verdict(&report),
        "64.0 s on the network; 56.0 of them spanning tree, 4.0 DHCP patience."
    );
    let tree = &report.findings[0];
    close(tree.seconds, 56.0);
    assert!(
        tree.evidence
            .starts_with("3 requests by DHCP had no answer; that at 28.0 s had, but"),
        "{}",
        tree.evidence
    );
    assert!(
        tree.evidence.contains("02:00:00:00:00:07") && tree.evidence.contains("listens for 15.0 s")
    );
    assert!(tree.advice.iter().any(|line| line.contains("portfast")));
    assert_eq!(tree.doc, "docs/doctor.md#spanning-tree");
}

/// A boot option, loaded with the network of [`healthy`], but for patience.
fn dry(option: &str, seconds: f64) -> DryBoot {
    let mut network = healthy().network;
    network.dhcp[0].request_s = vec![4.0];
    DryBoot {
        option: option.into(),
        runs_s: vec![seconds - 0.5, seconds + 0.5],
        bytes: Some(1 << 20),
        network,
        ..DryBoot::default()
    }
}

#[test]
fn a_dry_boot_is_examined_as_a_captured_one() {
    let mut report = Report::new();
    report.dry_boots.push(dry("UEFI PXEv4", 9.75));
    // One behind it would not be used.
    report.dry_boots.push(dry("UEFI HTTPv4", 20.0));
    report.findings = examine(&report);
    assert_eq!(
        verdict(&report),
        "9.8 s to load UEFI PXEv4; 4.0 of them DHCP patience."
    );
    // What a phase tells, too: silence before the first file.
    report.dry_boots[0].network.transfers[0].start_s = 9.0;
    report.dry_boots[0].timeline = vec![phase(PhaseKind::Quiet, 5.0, 8.0, "")];
    close(found(&report, "silence").seconds, 3.0);
}

#[test]
fn options_that_fail_before_one_that_loads_cost_their_time() {
    let mut report = Report::new();
    let failing = |option: &str, status: &str, seconds| DryBoot {
        failure: Some(status.into()),
        network: wireboot_report::Network::default(),
        ..dry(option, seconds)
    };
    report.dry_boots = vec![
        failing("UEFI HTTPv4", "TIMEOUT", 61.5),
        failing("UEFI HTTPv6", "NO_RESPONSE", 30.0),
    ];
    report.findings = examine(&report);
    assert_eq!(
        verdict(&report),
        "61.5 s until UEFI HTTPv4 failed: TIMEOUT; nothing found that can be saved."
    );
    report.dry_boots.push(dry("UEFI PXEv4", 5.0));
    report.findings = examine(&report);
    assert_eq!(
        verdict(&report),
        "96.5 s to load UEFI PXEv4; 91.5 of them options that fail before it, 4.0 DHCP patience."
    );
    let one = found(&report, "failing-options");
    assert!(
        one.evidence.ends_with(
            "UEFI HTTPv4 (TIMEOUT after 61.5 s), UEFI HTTPv6 (NO_RESPONSE after 30.0 s)"
        ),
        "{}",
        one.evidence
    );
    close(one.expected_s.unwrap(), 0.0);
}

#[test]
fn requests_without_an_answer_are_told_without_a_spanning_tree_too() {
    let mut report = healthy();
    report.network.dhcp[0].discover_s = vec![0.0, 4.0, 12.0];
    report.network.dhcp[0].offers = vec![offer(12.1, "10.0.0.1")];
    // One that takes an offer at once.
    report.network.dhcp[0].request_s = vec![12.2];
    let one = found(&report, "unanswered");
    close(one.seconds, 12.2);
    assert_eq!(one.expected_s, None);
    assert!(
        one.evidence.ends_with("that at 12.0 s had"),
        "{}",
        one.evidence
    );
    assert!(!ids(&report).contains(&"offer-wait".to_string()));
    // A capture at the server: the first request that it has was not the first.
    report.network.dhcp[0].discover_s = vec![12.1];
    report.network.dhcp[0].tried_before_s = 28;
    let one = found(&report, "unanswered");
    assert!(one.evidence.contains("trying for 28 s"), "{}", one.evidence);
    // Nobody at all.
    report.network.dhcp[0] = Dhcp {
        discover_s: vec![0.0, 4.0],
        ..Dhcp::default()
    };
    report.timeline = vec![phase(PhaseKind::DhcpUnanswered, 0.0, 4.0, "")];
    report.network.span_s = 4.0;
    let one = found(&report, "unanswered");
    assert!(one.evidence.contains("not one answer"), "{}", one.evidence);
    close(one.seconds, 4.0);
}

#[test]
fn a_late_offer_costs_what_is_beyond_the_machines_own_patience() {
    let mut report = healthy();
    let asked = |report: &mut Report, discover: &[f64], offers: &[f64], taken: f64| {
        report.network.dhcp[0].discover_s = discover.to_vec();
        report.network.dhcp[0].offers = offers.iter().map(|at| offer(*at, "10.0.0.1")).collect();
        report.network.dhcp[0].request_s = vec![taken];
    };
    // It waits 4 s anyway.
    asked(&mut report, &[0.0], &[3.0], 4.0);
    assert_eq!(ids(&report), ["offer-wait"]);
    close(found(&report, "offer-wait").seconds, 4.0);
    // Later than that: it asks again, and waits for that timer, too.
    asked(&mut report, &[0.0, 4.0], &[5.0, 9.0], 12.0);
    assert_eq!(ids(&report), ["late-offer", "offer-wait"]);
    close(found(&report, "late-offer").seconds, 8.0);
    close(found(&report, "offer-wait").seconds, 4.0);
    // One that takes it at once.
    asked(&mut report, &[0.0], &[3.0], 3.01);
    assert_eq!(ids(&report), ["late-offer"]);
    close(found(&report, "late-offer").seconds, 3.01);
    asked(&mut report, &[0.0], &[0.1], 0.11);
    assert_eq!(ids(&report), Vec::<String>::new());
}

#[test]
fn a_whole_attempt_in_vain_counts_before_one_that_was_heard() {
    let mut report = healthy();
    report.network.dhcp.insert(
        0,
        Dhcp {
            xid: 7,
            discover_s: vec![0.0, 4.0, 12.0, 28.0],
            ..Dhcp::default()
        },
    );
    report.network.dhcp[1].discover_s = vec![64.0];
    report.network.dhcp[1].offers = vec![offer(64.01, "10.0.0.1")];
    report.network.dhcp[1].request_s = vec![64.02];
    report.timeline = vec![phase(PhaseKind::DhcpUnanswered, 0.0, 64.0, "")];
    let one = found(&report, "unanswered");
    close(one.seconds, 64.0);
    assert!(
        one.evidence.starts_with("4 requests by DHCP"),
        "{}",
        one.evidence
    );
}

#[test]
fn a_port_that_says_that_it_forwards_is_no_spanning_trees_fault() {
    let mut report = healthy();
    report.network.dhcp[0].discover_s = vec![0.0, 4.0, 12.0];
    report.network.dhcp[0].offers = vec![offer(12.1, "10.0.0.1")];
    report.network.dhcp[0].request_s = vec![12.2];
    let tree = |forwards_s| {
        Some(SpanningTree {
            first_s: -5.0,
            forward_delay_s: 15.0,
            rapid: true,
            forwards_s,
            ..SpanningTree::default()
        })
    };
    report.network.spanning_tree = tree(Some(-5.0));
    assert_eq!(ids(&report), ["unanswered"]);
    report.network.spanning_tree = tree(Some(11.0));
    assert_eq!(ids(&report), ["spanning-tree"]);
    report.network.spanning_tree = tree(None);
    assert_eq!(ids(&report), ["spanning-tree"]);
}

#[test]
fn the_wrong_version_of_ip_first_costs_its_wait() {
    let mut report = healthy();
    report.network.dhcpv6.push(Dhcpv6 {
        kind: "Solicit".into(),
        asked_s: vec![0.0, 1.0, 3.0],
        ..Dhcpv6::default()
    });
    report.network.dhcp[0].discover_s = vec![8.0];
    report.network.dhcp[0].offers = vec![offer(8.01, "10.0.0.1")];
    report.timeline = vec![
        phase(PhaseKind::Ipv6Unanswered, 0.0, 8.0, "Solicit"),
        // Beside it: not twice.
        phase(PhaseKind::Ipv6Unanswered, 0.0, 4.0, "routers"),
    ];
    let one = found(&report, "ip-version");
    close(one.seconds, 8.0);
    assert_eq!(one.label, "IPv6, which nobody speaks here");
    // The other way round.
    report.network.dhcpv6[0].answered_s = vec![9.0];
    report.network.dhcpv6[0].asked_s = vec![9.0];
    report.network.dhcp[0] = Dhcp {
        discover_s: vec![0.0, 4.0],
        ..Dhcp::default()
    };
    report.timeline = vec![phase(PhaseKind::DhcpUnanswered, 0.0, 9.0, "")];
    let one = found(&report, "ip-version");
    assert_eq!(one.label, "IPv4, which nobody speaks here");
    close(one.seconds, 9.0);
}

#[test]
fn waits_for_addresses_and_names_are_told() {
    let mut report = healthy();
    report.timeline = vec![
        phase(PhaseKind::Name, 3.1, 8.1, "boot.example"),
        phase(PhaseKind::BootServer, 9.0, 13.0, "10.0.0.7"),
    ];
    report.network.names.push(NameQuery {
        name: "boot.example".into(),
        ..NameQuery::default()
    });
    report.network.boot_servers.push(BootServer {
        server: "10.0.0.7".into(),
        asked_s: vec![9.0, 10.0],
        answered_s: None,
    });
    close(found(&report, "names").seconds, 5.0);
    close(found(&report, "boot-server").seconds, 4.0);
    // Asked again in another conversation, it is named once.
    let again = report.network.boot_servers[0].clone();
    report.network.boot_servers.push(again);
    let silent = found(&report, "boot-server").evidence;
    assert!(silent.ends_with("never answered: 10.0.0.7"), "{silent}");
    report.network.boot_servers.pop();
    report.network.boot_servers[0].answered_s = Some(9.1);
    assert!(!ids(&report).contains(&"boot-server".to_string()));
    // Below what is worth a word.
    report.timeline = vec![phase(PhaseKind::Name, 3.1, 3.2, "boot.example")];
    assert_eq!(ids(&report), Vec::<String>::new());
}

#[test]
fn silence_before_the_first_file_is_the_firmwares() {
    let mut report = healthy();
    report.network.transfers[0].start_s = 17.0;
    report.timeline = vec![
        phase(PhaseKind::Quiet, 1.0, 3.0, ""),
        phase(PhaseKind::Quiet, 3.1, 4.0, ""),
        phase(PhaseKind::Quiet, 5.0, 15.2, ""),
        // GRUB's menu is nobody's fault.
        phase(PhaseKind::Quiet, 20.0, 30.0, ""),
    ];
    let one = found(&report, "silence");
    close(one.seconds, 12.2);
    assert!(one.evidence.starts_with("2 waits"), "{}", one.evidence);
    assert!(
        one.evidence.ends_with("the longest, 10.2 s, at 5.0 s"),
        "{}",
        one.evidence
    );
}

#[test]
fn what_misleads_is_told_without_seconds() {
    let mut report = healthy();
    report.network.dhcp[0].offers.push(Offer {
        vendor_options: VendorOptions::Foreign,
        ..offer(0.02, "10.0.0.2")
    });
    let one = found(&report, "several-servers");
    assert!(one.evidence.contains("10.0.0.1, 10.0.0.2") && one.seconds == 0.0);
    assert!(
        found(&report, "vendor-options")
            .evidence
            .starts_with("10.0.0.2 ")
    );
    // A proxy beside a server is as it should be.
    report.network.dhcp[0].offers[1].address = None;
    report.network.dhcp[0].offers[1].vendor_options = VendorOptions::Pxe;
    assert_eq!(ids(&report), Vec::<String>::new());
}

#[test]
fn boots_that_came_to_nothing_are_told_why() {
    let mut report = healthy();
    report.network.transfers.clear();
    report.network.dhcp[0].offers[0].boot_file = None;
    report.findings = examine(&report);
    assert!(found(&report, "no-boot-file").advice[0].contains("dhcp-boot"));
    assert_eq!(
        verdict(&report),
        "2.0 s on the network. Found, too: no boot file. Nothing was fetched."
    );
    report.network.transfers.push(Transfer {
        outcome: Outcome::Refused,
        message: Some("file not found".into()),
        ..file()
    });
    report.timeline = vec![phase(
        PhaseKind::Refused,
        0.1,
        0.4,
        "tftp 10.0.0.1 initrd.gz",
    )];
    let one = found(&report, "refused");
    assert!(one.evidence.contains("\"file not found\"") && one.evidence.contains("initrd.gz"));
    close(one.seconds, 0.3);
    assert!(!ids(&report).contains(&"no-boot-file".to_string()));
    // In passing, it is no fault.
    report.timeline = vec![phase(
        PhaseKind::Refused,
        0.1,
        0.11,
        "tftp 10.0.0.1 initrd.gz",
    )];
    assert!(ids(&report).contains(&"refused".to_string()));
    report.network.transfers.push(file());
    assert!(!ids(&report).contains(&"refused".to_string()));
}

/// A file as GRUB fetches it: block by block, of 1024 bytes, 4 s of 10 waiting for the server, 5 for the machine.
fn lockstep() -> Transfer {
    Transfer {
        asked: "blksize=1024 tsize=0".into(),
        granted: "blksize=1024 tsize=41943040".into(),
        block_bytes: 1024,
        window_blocks: 1,
        data_packets: 40960,
        turns: 40960,
        end_s: 10.1,
        server_wait_s: 4.0,
        client_wait_s: 5.0,
        ..file()
    }
}

#[test]
fn a_long_way_to_the_machine_is_no_slow_machine() {
    let mut report = healthy();
    // Captured at the server: 20 ms for each block, and 1 ms of the machine's own.
    report.network.transfers = vec![Transfer {
        turns: 1000,
        end_s: 23.1,
        server_wait_s: 1.0,
        client_wait_s: 21.0,
        shortest_client_wait_s: Some(0.02),
        block_bytes: 1468,
        ..lockstep()
    }];
    close(found(&report, "window").seconds, 21.0 * 63.0 / 64.0);
    assert!(!ids(&report).contains(&"slow-machine".to_string()));
    // A machine that takes 1.9 ms each time is slow.
    report.network.transfers[0].shortest_client_wait_s = Some(0.0019);
    close(found(&report, "slow-machine").seconds, 21.0);
    close(found(&report, "window").seconds, 63.0 / 64.0);
}

#[test]
fn little_is_not_worth_a_finding() {
    let mut report = healthy();
    // Each just below what is told.
    report.network.dhcp[0].discover_s = vec![0.0, 0.9];
    report.network.dhcp[0].offers = vec![offer(0.95, "10.0.0.1")];
    report.network.dhcp[0].request_s = vec![0.99];
    assert_eq!(ids(&report), Vec::<String>::new());
    report.network.spanning_tree = Some(SpanningTree::default());
    assert_eq!(ids(&report), Vec::<String>::new());
    // And above it.
    report.network.dhcp[0].request_s = vec![1.0];
    assert_eq!(ids(&report), ["spanning-tree"]);
    report.network.spanning_tree = None;
    assert_eq!(ids(&report), ["unanswered"]);

    let mut report = healthy();
    let small = |change: fn(&mut Transfer)| {
        let mut one = lockstep();
        change(&mut one);
        one
    };
    report.network.transfers = vec![small(|one| one.bytes = (1 << 18) - 1)];
    assert_eq!(ids(&report), Vec::<String>::new());
    // A boot file need not be long to be long on its way.
    report.network.transfers = vec![small(|one| one.bytes = 1 << 18)];
    assert_eq!(ids(&report), ["slow-machine", "window", "block-size"]);
    report.network.transfers = vec![small(|one| {
        (one.server_wait_s, one.client_wait_s) = (0.1, 0.1);
    })];
    assert_eq!(ids(&report), Vec::<String>::new());
    // HTTP's segments are no blocks.
    report.network.transfers = vec![small(|one| {
        one.protocol = Protocol::Http;
        one.window_bytes = 1 << 20;
    })];
    assert_eq!(ids(&report), ["slow-machine"]);
}

#[test]
fn figures_in_the_words_are_those_of_the_report() {
    let mut report = healthy();
    report.network.transfers = vec![lockstep()];
    let block = found(&report, "block-size");
    close(block.expected_s.unwrap(), 9.0 * 1024.0 / 1468.0);
    report.network.transfers = vec![Transfer {
        repeated: 200,
        data_packets: 10_000,
        server_stalled_s: 0.5,
        server_stalls: 1,
        ..file()
    }];
    let loss = found(&report, "loss");
    assert!(
        loss.evidence
            .contains("200 of 10000 packets came again (2.00 %), and 500 ms"),
        "{}",
        loss.evidence
    );
    report.network.transfers = vec![Transfer {
        protocol: Protocol::Http,
        window_bytes: 65535,
        server_wait_s: 3.2,
        shortest_server_wait_s: Some(0.005),
        end_s: 4.0,
        ..file()
    }];
    close(found(&report, "http-window").expected_s.unwrap(), 0.2);
    // Of many files the first four have names.
    let refused = |name: u8| Transfer {
        file: alloc::format!("file{name}"),
        outcome: Outcome::Refused,
        message: Some("no".into()),
        ..file()
    };
    report.network.transfers = (1..=4).map(refused).collect();
    let one = found(&report, "refused");
    assert!(
        one.evidence.ends_with("file1, file2, file3, file4"),
        "{}",
        one.evidence
    );
    report.network.transfers = (1..=6).map(refused).collect();
    let one = found(&report, "refused");
    assert!(
        one.evidence.ends_with("file3, file4 and 2 more"),
        "{}",
        one.evidence
    );
}

#[test]
fn what_leads_to_a_file_is_a_boot_file() {
    let mut report = healthy();
    report.network.transfers.clear();
    report.network.dhcp[0].offers[0].boot_file = None;
    assert_eq!(ids(&report), ["no-boot-file"]);
    let with = |change: fn(&mut Report)| {
        let mut report = report.clone();
        change(&mut report);
        ids(&report)
    };
    let none = Vec::<String>::new();
    assert_eq!(with(|one| one.network.dhcp[0].offers[0].pxe = true), none);
    assert_eq!(
        with(|one| one.network.dhcpv6.push(Dhcpv6 {
            boot_file: Some("x".into()),
            ..Dhcpv6::default()
        })),
        none
    );
    assert_eq!(
        with(|one| one.network.boot_servers.push(BootServer {
            answered_s: Some(1.0),
            ..BootServer::default()
        })),
        none
    );
    assert_eq!(
        with(|one| one.network.dhcp[0].offers.clear()),
        ["unanswered"]
    );
    let over_ipv6 = |boot_file: Option<&str>| {
        let mut report = report.clone();
        report.network.dhcp.clear();
        report.network.dhcpv6.push(Dhcpv6 {
            asked_s: vec![0.0],
            answered_s: vec![0.1, 0.2],
            answers: vec![Dhcpv6Answer::default(); 2],
            boot_file: boot_file.map(Into::into),
            ..Dhcpv6::default()
        });
        report
    };
    let one = found(&over_ipv6(None), "no-boot-file");
    assert!(
        one.evidence.starts_with("2 DHCPv6 answers with"),
        "{}",
        one.evidence
    );
    assert!(one.advice[0].contains("bootfile-url"));
    assert_eq!(ids(&over_ipv6(Some("tftp://[fd00::1]/x"))), none);
}

#[test]
fn a_server_that_never_answers_is_told() {
    let mut report = healthy();
    report.network.transfers = vec![Transfer {
        answer_s: None,
        outcome: Outcome::Unfinished,
        bytes: 0,
        end_s: 55.1,
        server_wait_s: 0.0,
        client_wait_s: 0.0,
        turns: 0,
        ..file()
    }];
    assert_eq!(ids(&report), ["no-answer"]);
    let one = found(&report, "no-answer");
    close(one.seconds, 55.0);
    assert!(
        one.evidence.contains("initrd.gz from 10.0.0.1 for 55.0 s"),
        "{}",
        one.evidence
    );
}

#[test]
fn numbers_of_a_strangers_report_do_not_overflow() {
    let mut report = healthy();
    let huge = Transfer {
        repeated: u64::MAX,
        data_packets: u64::MAX,
        turns: u64::MAX,
        bytes: u64::MAX,
        server_wait_s: 1e300,
        window_blocks: 1,
        block_bytes: 0,
        ..file()
    };
    report.network.transfers = vec![huge.clone(), huge];
    assert!(ids(&report).contains(&"loss".to_string()));
}

/// It takes minutes where a name is looked for among all others, or each file looks at all cells.
#[test]
fn many_names_and_sizes_of_a_strangers_report_take_no_time() {
    const MANY: usize = 100_000;
    let names = || (0..MANY).map(|number| format!("{number:06}"));
    let mut report = healthy();
    report.network_drivers = names().collect();
    report.network_drivers.push("000000".into());
    let receivers = names().map(|image| wireboot_report::Receiver {
        image,
        ether_type: 0,
    });
    report.receivers = receivers.collect();
    let asked = names().map(|server| BootServer {
        server,
        ..BootServer::default()
    });
    report.network.boot_servers = asked.collect();
    let phases = names().map(|server| phase(PhaseKind::BootServer, 0.0, 1.0, &server));
    report.timeline = phases.collect();
    // Cells of other sizes than the files'.
    report.network.transfers = vec![lockstep(); 2000];
    let cell = Cell {
        ip: 4,
        granted_block_bytes: Some(9000),
        bytes: 1,
        seconds: 1.0,
        ..Cell::default()
    };
    report.sweep = vec![cell; MANY];
    let all = examine(&report);
    let of = |id: &str| all.iter().find(|one| one.id == id).unwrap();
    let twice = &of("needless-drivers").evidence;
    assert_eq!(twice, "in memory twice: 000000");
    let receivers = &of("receivers").evidence;
    assert!(receivers.contains("000003 1 and 99996 more"), "{receivers}");
    close(of("boot-server").seconds, 100_000.0);
    assert!(!of("window").evidence.contains("measured"));
}

#[test]
fn windows_and_blocks_share_what_they_cost() {
    let mut report = healthy();
    report.network.transfers = vec![lockstep()];
    let block = found(&report, "block-size");
    close(block.seconds, 9.0 * (1.0 - 1024.0 / 1468.0));
    let window = found(&report, "window");
    close(window.seconds, 4.0 * (1024.0 / 1468.0) * (63.0 / 64.0));
    // Behind both changes.
    close(window.expected_s.unwrap(), 4.0 * (1024.0 / 1468.0) / 64.0);
    assert_eq!(window.label, "TFTP block by block");
    assert!(
        window
            .evidence
            .ends_with("the machine did not ask for a larger one")
    );
    // What is left of the machine's waits is its own.
    let machine = found(&report, "slow-machine");
    close(machine.seconds, 5.0 * (1024.0 / 1468.0));
    assert!(window.seconds + block.seconds + machine.seconds < 9.0);
    assert!(
        block
            .evidence
            .ends_with("the machine did not ask for larger ones")
    );
    report.network.transfers[0].asked = "blksize=1468".into();
    let block = found(&report, "block-size");
    let why = "asked for 1468, and the server granted no more";
    assert!(block.evidence.ends_with(why), "{}", block.evidence);

    let mut asked = lockstep();
    asked.asked.push_str(" windowsize=4");
    report.network.transfers = vec![asked.clone()];
    assert!(
        found(&report, "window")
            .evidence
            .ends_with("the server does not know them")
    );
    asked.granted.push_str(" windowsize=4");
    asked.window_blocks = 4;
    asked.block_bytes = 1468;
    report.network.transfers = vec![asked];
    let window = found(&report, "window");
    assert_eq!(window.label, "TFTP in windows of 4");
    close(window.seconds, 4.0 * 60.0 / 64.0);
    close(window.expected_s.unwrap(), 4.0 * 4.0 / 64.0);
    assert!(!ids(&report).contains(&"block-size".to_string()));
    // A small file is none of it.
    report.network.transfers[0].bytes = 100_000;
    assert!(!ids(&report).contains(&"window".to_string()));

    // On a short way a window costs nothing worth a word, but that the server knows none is said.
    let mut quick = lockstep();
    quick.server_wait_s /= 100.0;
    report.network.transfers = vec![quick];
    assert!(!ids(&report).contains(&"window".to_string()));
    report.network.transfers[0].asked.push_str(" windowsize=4");
    let window = found(&report, "window");
    assert!(window.seconds < 0.2, "{window:?}");
    let why = "the server does not know them";
    assert!(window.evidence.ends_with(why), "{}", window.evidence);
}

#[test]
fn what_the_sweep_has_measured_is_what_sizes_cost() {
    let cell = |by, block: u32, window: u32, seconds| Cell {
        by,
        ip: 4,
        granted_block_bytes: Some(block),
        granted_window: Some(window),
        bytes: 1_000_000,
        seconds,
        ..Cell::default()
    };
    let mut report = healthy();
    report.network.transfers = vec![lockstep()];
    report.sweep = vec![
        cell(By::Firmware, 1024, 1, 8.0),
        cell(By::Firmware, 1468, 1, 6.0),
        cell(By::Firmware, 1468, 64, 2.0),
        // Fragments, another block than fits, and wireboot's are no advice to the firmware.
        cell(By::Firmware, 8192, 1, 1.0),
        cell(By::Firmware, 1024, 64, 1.0),
        cell(By::Wireboot, 1468, 64, 1.0),
    ];
    let block = found(&report, "block-size");
    close(block.seconds, 10.0 * 2.0 / 8.0);
    let words =
        "8.0 s in blocks of 1024 and windows of 1, 6.0 s in blocks of 1468 and windows of 1";
    assert!(block.evidence.ends_with(words), "{}", block.evidence);
    let window = found(&report, "window");
    close(window.seconds, 10.0 * 4.0 / 8.0);
    let words = "1468 and windows of 1, 2.0 s in blocks of 1468 and windows of 64";
    assert!(window.evidence.ends_with(words), "{}", window.evidence);
    // One size alone compares with nothing: what is known without it is told.
    let all = report.sweep.split_off(1);
    let estimated = |report: &Report, id| {
        let one = found(report, id);
        one.seconds > 0.5 && !one.evidence.contains("measured")
    };
    assert!(estimated(&report, "block-size") && estimated(&report, "window"));
    // Blocks alone tell nothing of windows.
    report.sweep.push(all[0].clone());
    close(found(&report, "block-size").seconds, 10.0 * 2.0 / 8.0);
    assert!(estimated(&report, "window"));
    // Larger blocks that are slower are no advice.
    report.sweep[1].seconds = 8.1;
    assert!(!ids(&report).contains(&"block-size".to_string()));
    // Windows alone do not have the seconds of blocks, too.
    report.sweep = vec![report.sweep[0].clone(), cell(By::Firmware, 1024, 64, 0.5)];
    let parts = ["block-size", "window"].map(|id| found(&report, id).seconds);
    assert!(parts.iter().sum::<f64>() <= 10.0, "{parts:?}");
    report.sweep.truncate(1);
    report.sweep.extend_from_slice(&all);
    // Nothing was measured in the transfer's sizes.
    report.network.transfers[0].window_blocks = 2;
    assert!(!found(&report, "window").evidence.contains("measured"));
    report.network.transfers = vec![lockstep()];
    report.network.transfers[0].server = "fd00::1".into();
    assert!(!found(&report, "window").evidence.contains("measured"));
}

#[test]
fn a_server_with_a_slow_disk_is_no_matter_of_windows() {
    let mut report = healthy();
    report.network.transfers = vec![Transfer {
        turns: 500,
        server_wait_s: 5.0,
        end_s: 5.6,
        ..lockstep()
    }];
    // 10 ms a turn, where 0.1 ms were possible.
    let one = found(&report, "slow-server");
    close(one.seconds, 5.0 - 500.0 * 0.0001);
    assert!(!ids(&report).contains(&"window".to_string()));
    // 10 ms a turn because the way is so long: the windows'.
    report.network.transfers[0].shortest_server_wait_s = Some(0.009);
    assert!(ids(&report).contains(&"window".to_string()));
    assert!(!ids(&report).contains(&"slow-server".to_string()));
}

#[test]
fn loss_and_stalls_are_told_apart() {
    let mut report = healthy();
    let stalled = Transfer {
        server_stalls: 3,
        server_stalled_s: 3.0,
        server_wait_s: 3.1,
        ..file()
    };
    report.network.transfers = vec![Transfer {
        repeated: 40,
        ..stalled.clone()
    }];
    let one = found(&report, "loss");
    close(one.seconds, 3.0);
    assert!(
        one.evidence.contains("40 of 28571 packets"),
        "{}",
        one.evidence
    );
    assert!(!ids(&report).contains(&"slow-server".to_string()));
    // Where packets are lost, a timer that ran out elsewhere was for one, too.
    report.network.transfers[0].repeated = 80;
    report.network.transfers.push(stalled.clone());
    close(found(&report, "loss").seconds, 6.0);
    assert!(!ids(&report).contains(&"slow-server".to_string()));
    // One packet of very many, in another file, is not why.
    report.network.transfers[0] = Transfer {
        repeated: 1,
        ..file()
    };
    close(found(&report, "slow-server").seconds, 3.0);
    report.network.transfers = vec![stalled];
    close(found(&report, "slow-server").seconds, 3.0);
    // The machine's own pauses are not the server's.
    report.network.transfers[0].client_stalled_s = 9.0;
    close(found(&report, "slow-server").seconds, 3.0);
    assert!(!ids(&report).contains(&"loss".to_string()));
}

#[test]
fn a_machine_that_waits_for_a_lost_packet_is_not_slow() {
    let mut report = healthy();
    report.network.transfers = vec![Transfer {
        client_wait_s: 40.0,
        client_stalled_s: 38.0,
        end_s: 41.0,
        ..file()
    }];
    // Nothing was lost: the machine paused.
    close(found(&report, "slow-machine").seconds, 40.0);
    report.network.transfers[0].repeated = 80;
    close(found(&report, "loss").seconds, 38.0);
    assert!(!ids(&report).contains(&"slow-machine".to_string()));
    // What it took besides is its own all the same.
    report.network.transfers[0].client_wait_s = 68.0;
    report.network.transfers[0].end_s = 55.0;
    close(found(&report, "slow-machine").seconds, 30.0);
}

#[test]
fn fragments_slow_beginnings_slow_machines_and_small_tcp_windows_are_told() {
    let mut report = healthy();
    report.network.transfers = vec![Transfer {
        fragmented: 9,
        answer_s: Some(1.6),
        client_wait_s: 4.0,
        end_s: 6.0,
        ..file()
    }];
    assert!(found(&report, "fragments").evidence.contains("9 blocks"));
    close(found(&report, "slow-answer").seconds, 1.5);
    close(found(&report, "slow-machine").seconds, 4.0);
    report.network.transfers = vec![Transfer {
        protocol: Protocol::Http,
        window_blocks: 0,
        window_bytes: 65535,
        server_wait_s: 3.2,
        shortest_server_wait_s: Some(0.005),
        end_s: 4.0,
        ..file()
    }];
    let one = found(&report, "http-window");
    close(one.seconds, 3.0);
    // Where the way is short, the waits are the server's own.
    report.network.transfers[0].shortest_server_wait_s = Some(0.0001);
    assert_eq!(ids(&report), ["slow-server"]);
    report.network.transfers[0].shortest_server_wait_s = Some(0.005);
    report.network.transfers[0].window_bytes = 1 << 20;
    assert!(!ids(&report).contains(&"http-window".to_string()));
}

#[test]
fn many_small_reads_of_a_file_wait_for_each() {
    // 12.5 MiB in pieces, one behind the other, each of which waits for 10 ms.
    let pieces = |number: u32, bytes: u64| {
        let piece = |n: u32| Transfer {
            protocol: Protocol::Http,
            file: "/disk.iso".into(),
            window_blocks: 0,
            window_bytes: 1 << 20,
            start_s: f64::from(n) * 0.012,
            answer_s: Some(f64::from(n) * 0.012 + 0.01),
            end_s: f64::from(n) * 0.012 + 0.011,
            server_wait_s: 0.01,
            client_wait_s: 0.0,
            bytes,
            ..file()
        };
        (0..number).map(piece).collect::<Vec<_>>()
    };
    let mut report = healthy();
    report.network.transfers = pieces(400, 32 << 10);
    let one = found(&report, "http-reads");
    // Thirteen reads of a mebibyte are needed.
    close(one.seconds, 4.0 * 387.0 / 400.0);
    close(one.expected_s.unwrap(), 4.0 * 13.0 / 400.0);
    assert!(
        one.evidence
            .starts_with("/disk.iso: 400 requests of 32768 bytes on average"),
        "{}",
        one.evidence
    );
    // Where they overlap, the time that went by is all that they waited.
    for (at, one) in report.network.transfers.iter_mut().enumerate() {
        let start_s = at as f64 * 0.0025;
        (one.start_s, one.answer_s, one.end_s) = (start_s, Some(start_s + 0.25), start_s + 0.26);
    }
    let overlapping_s = 399.0 * 0.0025 + 0.25;
    close(
        found(&report, "http-reads").seconds,
        overlapping_s * 387.0 / 400.0,
    );
    // Another file's reads are its own, and so are another server's.
    report.network.transfers = pieces(40, 32 << 10);
    close(found(&report, "http-reads").seconds, 0.4 * 38.0 / 40.0);
    for one in &mut report.network.transfers[25..] {
        one.server = "10.0.0.2".into();
    }
    assert_eq!(ids(&report), Vec::<String>::new());
    // What is asked for again and again is small itself; a refusal has no byte of the file.
    report.network.transfers = pieces(400, 2 << 10);
    assert_eq!(ids(&report), Vec::<String>::new());
    report.network.transfers = pieces(400, 32 << 10);
    for one in &mut report.network.transfers {
        one.outcome = Outcome::Refused;
    }
    assert!(!ids(&report).contains(&"http-reads".to_string()));
    // Large ones are few, also beside small ones; TFTP's are files.
    report.network.transfers = pieces(400, LARGE_READ);
    assert_eq!(ids(&report), Vec::<String>::new());
    report.network.transfers = pieces(400, LARGE_READ - 1);
    report.network.transfers.extend(pieces(1, 200 << 20));
    assert!(ids(&report).contains(&"http-reads".to_string()));
    report.network.transfers = pieces(400, 32 << 10);
    for one in &mut report.network.transfers {
        one.protocol = Protocol::Tftp;
    }
    assert_eq!(ids(&report), Vec::<String>::new());
    // Slow answers are a finding of their own, and their seconds count once.
    report.network.transfers = pieces(40, 32 << 10);
    for one in &mut report.network.transfers {
        (one.answer_s, one.end_s) = (Some(one.start_s + 0.5), one.start_s + 0.5);
    }
    assert_eq!(ids(&report), ["slow-answer"]);
}

/// From this on a read is none of many small ones.
const LARGE_READ: u64 = 256 << 10;

#[test]
fn checkpoints_are_told_as_the_parts_between_them() {
    let mut report = Report::new();
    report.checkpoints = Some(Checkpoints {
        load_image_s: Some(7.0),
        start_image_s: Some(20.2),
        exit_entry_s: Some(40.4),
        option: Some("Boot0002 Net".into()),
        ..Checkpoints::default()
    });
    report.findings = examine(&report);
    assert_eq!(report.findings, []);
    assert_eq!(
        verdict(&report),
        "40.4 s from reset to the end of boot services: 7.0 firmware, 13.2 loading the boot loader, 20.2 system, until boot services end."
    );
    let points = report.checkpoints.as_mut().unwrap();
    points.loader_began_s = Some(21.2);
    points.loader_done_s = Some(30.2);
    points.options_before = vec!["Boot0001 Disk".into()];
    report.findings = examine(&report);
    assert!(
        found(&report, "options-before")
            .evidence
            .starts_with("Boot0002 Net was used.")
    );
    assert_eq!(
        verdict(&report),
        "40.4 s from reset to the end of boot services: 7.0 firmware, 13.2 loading the boot loader, 1.0 loaders before it, 9.0 boot loader, \
         10.2 system, until boot services end. Found, too: boot options before the right one."
    );
}

#[test]
fn points_of_the_boot_that_brought_the_examination_stand_before_what_it_measured() {
    let points = |load_image_s, attempts| Checkpoints {
        load_image_s,
        start_image_s: Some(8.25),
        attempts,
        ..Checkpoints::default()
    };
    let attempt = |ready_s| Attempt {
        option: "Boot0001 Disk".into(),
        ready_s,
        ..Attempt::default()
    };
    let mut report = Report::new();
    report.checkpoints = Some(points(Some(7.0), vec![]));
    report.findings = examine(&report);
    assert_eq!(
        verdict(&report),
        "8.2 s from reset to the boot loader's start: 7.0 firmware, 1.2 loading the boot loader."
    );
    report.findings = vec![Finding {
        label: "a slow clock".into(),
        seconds: 2.0,
        ..Finding::default()
    }];
    assert!(
        verdict(&report).ends_with("boot loader; a boot here loses 2.0 s by a slow clock."),
        "{}",
        verdict(&report)
    );
    report.dry_boots.push(dry("UEFI PXEv4", 9.75));
    report.findings = examine(&report);
    assert_eq!(
        verdict(&report),
        "7.0 s from reset to the boot option of this examination, then 9.8 s to load UEFI PXEv4; 4.0 of them DHCP patience."
    );
    // Which one is the right one nobody knows. The menu waits before the first.
    report.checkpoints = Some(points(Some(7.0), vec![attempt(5.5), attempt(7.0)]));
    report.machine.boot_menu_s = Some(3);
    report.findings = vec![];
    assert_eq!(examine(&report).len(), 2);
    assert_eq!(
        verdict(&report),
        "5.5 s from reset to the first boot option, then 9.8 s to load UEFI PXEv4; nothing found that can be saved."
    );
    // Where nothing is known of it, nothing is said.
    report.checkpoints = Some(Checkpoints::default());
    assert!(verdict(&report).starts_with("12.8 s to load UEFI PXEv4"));
    report.dry_boots.clear();
    assert_eq!(
        verdict(&report),
        "no network boot was looked at; nothing found that can be saved."
    );
    // Nothing was started.
    report.checkpoints = Some(Checkpoints {
        load_image_s: Some(7.0),
        ..Checkpoints::default()
    });
    assert_eq!(
        verdict(&report),
        "7.0 s from reset to the boot option: 7.0 firmware."
    );
}

#[test]
fn disks_that_a_network_boot_does_not_need_are_told() {
    let module = |name: &str, bind_before_s| Module {
        name: name.into(),
        load_s: 1.0,
        bind_s: bind_before_s + 5.0,
        bind_before_s,
        ..Module::default()
    };
    let mut report = Report::new();
    report.checkpoints = Some(Checkpoints {
        exit_entry_s: Some(40.0),
        option: Some("Boot0003 Onboard NIC".into()),
        over_network: true,
        modules: vec![
            module("XhciDxe", 3.0),
            module("UsbMassStorageDxe", 1.5),
            module("NvmExpressDxe", 0.25),
            module("Fat", 0.0),
        ],
        ..Checkpoints::default()
    });
    let findings = examine(&report);
    let [one] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert_eq!(
        (one.id.as_str(), one.expected_s),
        ("connected-disks", Some(0.0))
    );
    close(one.seconds, 1.75);
    assert_eq!(
        one.evidence,
        "before Boot0003 Onboard NIC the firmware began to drive disks: UsbMassStorageDxe 1.5 s, NvmExpressDxe 250 ms"
    );
    // Who boots from a disk needs one, and some milliseconds are not worth a word.
    let points = report.checkpoints.as_mut().unwrap();
    points.over_network = false;
    assert_eq!(examine(&report), []);
    let points = report.checkpoints.as_mut().unwrap();
    points.over_network = true;
    let modules = points.modules.iter_mut();
    modules.for_each(|one| one.bind_before_s /= 20.0);
    assert_eq!(examine(&report), []);
    let points = report.checkpoints.as_mut().unwrap();
    let modules = points.modules.iter_mut();
    modules.for_each(|one| one.bind_before_s = f64::MAX);
    assert_eq!(examine(&report), []);
}

#[test]
fn options_in_vain_are_told_with_their_seconds() {
    let attempt = |option: &str, ready_s, start_s, back_s| Attempt {
        option: option.into(),
        ready_s,
        start_s,
        back_s,
    };
    let mut report = Report::new();
    report.checkpoints = Some(Checkpoints {
        load_image_s: Some(77.5),
        start_image_s: Some(80.0),
        exit_entry_s: Some(90.0),
        option: Some("Boot0003 PXEv4".into()),
        options_before: vec!["Boot0001 Disk".into(), "Boot0007 Other".into()],
        attempts: vec![
            attempt("Boot0001 Disk", 7.0, None, None),
            attempt("Boot0002 HTTP", 7.5, Some(60.0), Some(61.0)),
            attempt("Boot0003 PXEv4", 77.5, Some(80.0), None),
        ],
        ..Checkpoints::default()
    });
    report.findings = examine(&report);
    let one = found(&report, "options-before");
    close(one.seconds, 70.5);
    assert_eq!(
        one.evidence,
        "the firmware tried before Boot0003 PXEv4: Boot0001 Disk 500 ms, Boot0002 HTTP 70.0 s, whose loader came back"
    );
    assert!(
        verdict(&report).starts_with(
            "90.0 s from reset to the end of boot services: 7.0 firmware, 70.5 boot options in vain, 2.5 loading the boot loader, 10.0 system, until boot \
             services end; 70.5 of them boot options before the right one."
        ),
        "{}",
        verdict(&report)
    );
    // Options that stand before it and were not tried cost nothing.
    let points = report.checkpoints.as_mut().unwrap();
    points.attempts.drain(..2);
    assert_eq!(examine(&report), []);
    // Nor does one that has nothing to boot.
    let points = report.checkpoints.as_mut().unwrap();
    points
        .attempts
        .insert(0, attempt("Boot0001 Disk", 77.45, None, None));
    assert_eq!(examine(&report), []);
}

#[test]
fn each_rule_has_its_own_name() {
    let mut all: Vec<_> = names().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), rules::ALL.len());
}

/// A boot of OVMF's: GetTime by nobody, the keyboard with each packet.
fn traced() -> wireboot_report::trace::Traced {
    wireboot_report::trace::Traced {
        took_s: 4.0,
        received: 700,
        ..wireboot_report::trace::Traced::default()
    }
}

fn called(service: &str, calls: u64, own_s: Option<f64>) -> wireboot_report::trace::Called {
    wireboot_report::trace::Called {
        service: service.into(),
        image: "SomeDxe".into(),
        calls,
        own_s,
    }
}

#[test]
fn what_the_firmware_asks_with_each_packet_is_told_with_its_seconds() {
    for (service, id, in_transfer) in [
        ("GetTime", "time-per-packet", true),
        ("ConIn.ReadKeyStroke", "keyboard-per-packet", false),
    ] {
        let report = |calls, own_s, received| {
            let mut traced = traced();
            traced.received = received;
            traced.calls = vec![called(service, calls, own_s), called("Stall", 9, own_s)];
            let mut report = healthy();
            let mut trace = wireboot_report::Trace::default();
            if in_transfer {
                trace.transfer = Some(traced);
            } else {
                trace.boot = Some(traced);
            }
            report.trace = Some(trace);
            report
        };
        let slow = found(&report(1400, Some(0.7), 700), id);
        close(slow.seconds, 0.7);
        assert_eq!(slow.expected_s, Some(0.0));
        let said =
            "is called 2.00 times for each packet received, 700 ms of 4.0 s; callers: SomeDxe";
        assert!(slow.evidence.ends_with(said), "{}", slow.evidence);
        // Counted only.
        let counted = found(&report(700, None, 700), id);
        assert_eq!((counted.seconds, counted.expected_s), (0.0, None));
        // Seldom, or of no weight, or too few packets to tell.
        for (calls, own_s, received) in [
            (349, Some(0.7), 700),
            (700, Some(0.039), 700),
            (19, Some(0.7), 19),
        ] {
            assert!(!ids(&report(calls, own_s, received)).contains(&id.to_string()));
        }
    }
}

#[test]
fn variables_that_a_boot_writes_are_told() {
    let mut report = healthy();
    let mut boot = traced();
    boot.calls = vec![called("GetVariable", 9, Some(0.1))];
    report.trace = Some(wireboot_report::Trace {
        boot: Some(boot.clone()),
        ..wireboot_report::Trace::default()
    });
    assert_eq!(ids(&report), Vec::<String>::new());
    boot.calls.push(called("SetVariable", 2, Some(0.5)));
    report.trace.as_mut().unwrap().boot = Some(boot);
    let written = found(&report, "variables-written");
    close(written.seconds, 0.5);
    assert_eq!(
        written.evidence,
        "SetVariable is called 2 times in a network boot, 500 ms; callers: SomeDxe"
    );
}

/// OVMF's figures under emulation, in nanoseconds, but for `median_ns` of `service`; a boot that makes so many calls of it.
fn cost(service: &str, median_ns: u64, calls: Option<u64>) -> Report {
    let mut report = healthy();
    for (name, own_ns) in [
        ("GetVariable", 10_000),
        ("GetVariable, none there", 10_233),
        ("SetVariable", 505_542),
        ("GetTime", 2381),
        ("ConIn.ReadKeyStroke", 538),
        ("ConOut.OutputString", 241_895),
        ("OutputString, screen", 150_571),
        ("OutputString, serial", 26_146),
    ] {
        report.costs.push(wireboot_report::Cost {
            service: name.into(),
            calls: 10_000,
            median_ns: if name == service { median_ns } else { own_ns },
            ..wireboot_report::Cost::default()
        });
    }
    report.trace = calls.map(|calls| {
        let mut boot = traced();
        boot.calls = vec![called(service, calls, None)];
        wireboot_report::Trace {
            boot: Some(boot),
            ..wireboot_report::Trace::default()
        }
    });
    report
}

#[test]
fn slow_services_are_told_with_what_a_boots_calls_lose() {
    // The service, what finds it, the largest time that is no matter, and what is sane.
    for (service, id, most_ns, sane_ns) in [
        ("GetTime", "slow-get-time", 200_000, 50_000),
        ("GetVariable", "slow-variables", 200_000, 20_000),
        ("ConOut.OutputString", "slow-console", 5_000_000, 2_000_000),
    ] {
        assert_eq!(ids(&cost(service, most_ns, None)), Vec::<String>::new());
        let slow_ns = most_ns + 100_000;
        let uncounted = found(&cost(service, slow_ns, None), id);
        assert_eq!((uncounted.seconds, uncounted.expected_s), (0.0, None));
        assert!(uncounted.evidence.ends_with("was not counted"));
        let slow = found(&cost(service, slow_ns, Some(100)), id);
        close(slow.seconds, (slow_ns - sane_ns) as f64 / 1e9 * 100.0);
        assert_eq!(slow.expected_s, Some(0.0));
        assert!(slow.evidence.contains(service), "{}", slow.evidence);
        assert!(slow.evidence.ends_with("makes 100 such calls"));
    }
    // Others of them are told without seconds, those that are slow alone.
    for (service, id, slow_ns) in [
        ("GetVariable, none there", "slow-variables", 300_000),
        ("SetVariable", "slow-variables", 3_000_000),
        ("OutputString, screen", "slow-console", 6_000_000),
        ("OutputString, serial", "slow-console", 6_000_000),
        ("ConIn.ReadKeyStroke", "slow-console", 600_000),
    ] {
        let report = cost(service, slow_ns, None);
        let slow = found(&report, id);
        let told = format!("half of the calls take longer than: {service} ");
        assert!(slow.evidence.starts_with(&told), "{}", slow.evidence);
        assert_eq!(ids(&report), [id]);
    }
    assert_eq!(ids(&healthy()), Vec::<String>::new());
}

#[test]
fn while_the_processor_is_away_a_service_is_judged_by_its_fastest_call() {
    let stolen = |stolen_s, smis, fastest_ns| {
        let mut report = cost("SetVariable", 3_000_000, None);
        report.stolen = Some(wireboot_report::Stolen {
            looked_s: 1.0,
            stolen_s,
            smis,
            ..wireboot_report::Stolen::default()
        });
        let mut costs = report.costs.iter_mut();
        let cost = costs.find(|cost| cost.service == "SetVariable");
        cost.unwrap().fastest_ns = fastest_ns;
        report
    };
    assert_eq!(ids(&stolen(0.6, None, 500_000)), ["stolen-time"]);
    // Where little is stolen, half of the calls are a measure.
    for (report, told) in [
        (stolen(0.6, None, 2_100_000), "each call takes at least: "),
        (
            stolen(0.02, Some(9), 500_000),
            "half of the calls take longer than: ",
        ),
    ] {
        let slow = found(&report, "slow-variables");
        assert!(slow.evidence.starts_with(told), "{}", slow.evidence);
    }
}

#[test]
fn what_each_packets_time_of_day_costs_is_not_counted_twice() {
    let mut report = cost("GetTime", 300_000, Some(700));
    let boot = report.trace.as_mut().unwrap().boot.as_mut().unwrap();
    boot.calls = vec![called("GetTime", 700, Some(0.21))];
    close(found(&report, "time-per-packet").seconds, 0.21);
    let clock = found(&report, "slow-get-time");
    close(clock.seconds, 0.0);
    assert!(clock.evidence.ends_with("makes 700 such calls"));
    // Where calls were only counted, their times are the clock's.
    let boot = report.trace.as_mut().unwrap().boot.as_mut().unwrap();
    boot.calls = vec![called("GetTime", 700, None)];
    close(found(&report, "slow-get-time").seconds, 0.000_25 * 700.0);
}

#[test]
fn slow_writes_cost_what_a_boot_writes_and_are_counted_once() {
    let mut report = cost("SetVariable", 5_200_000, Some(4));
    let slow = found(&report, "slow-variables");
    close(slow.seconds, 0.02);
    assert!(slow.evidence.ends_with("makes 4 such calls"));
    let boot = report.trace.as_mut().unwrap().boot.as_mut().unwrap();
    boot.calls = vec![called("SetVariable", 4, Some(0.022))];
    close(found(&report, "variables-written").seconds, 0.022);
    close(found(&report, "slow-variables").seconds, 0.0);
    let boot = report.trace.as_mut().unwrap().boot.as_mut().unwrap();
    boot.calls.clear();
    let none = found(&report, "slow-variables");
    close(none.seconds, 0.0);
    assert!(none.evidence.ends_with("a network boot makes no such call"));
    // A trace does not tell reads of what is not there from others.
    let absent = cost("GetVariable, none there", 300_000, Some(4));
    let absent = found(&absent, "slow-variables");
    assert!(absent.evidence.ends_with("was not counted"));
}

#[test]
fn signs_of_a_debug_build_are_told() {
    let built = |pool_filled, asserting: &[&str]| {
        let mut report = healthy();
        report.build = Some(wireboot_report::Build {
            pool_filled,
            images: 100,
            asserting: asserting.iter().map(ToString::to_string).collect(),
        });
        report
    };
    // OVMF's RELEASE builds fill memory, too.
    for filled in [false, true] {
        assert_eq!(ids(&built(filled, &[])), Vec::<String>::new());
    }
    let images = "2 of 100 images in memory have the words of ASSERT: DxeCore, MnpDxe";
    for (filled, more) in [(false, ""), (true, "; AllocatePool fills memory with 0xAF")] {
        let debug = found(&built(filled, &["DxeCore", "MnpDxe"]), "debug-build");
        assert_eq!(debug.evidence, format!("{images}{more}"));
    }
}

#[test]
fn receivers_beyond_the_stacks_own_are_told() {
    let asked = |all: &[(&str, u16)]| {
        let mut report = healthy();
        let receivers = all
            .iter()
            .map(|(image, ether_type)| wireboot_report::Receiver {
                image: image.to_string(),
                ether_type: *ether_type,
            });
        report.receivers = receivers.collect();
        report
    };
    let stock = [("ArpDxe", 0x0806), ("Ip4Dxe", 0x0800), ("Ip6Dxe", 0x86dd)];
    assert_eq!(ids(&asked(&stock)), Vec::<String>::new());
    assert_eq!(ids(&asked(&stock[..1])), Vec::<String>::new());
    let more = [
        &stock[..],
        &[("agent.efi", 0), ("agent.efi", 0), ("Ip4Dxe", 0x0800)],
    ]
    .concat();
    let more = found(&asked(&more), "receivers");
    assert!(
        more.evidence.starts_with(
            "the card's packet service (MNP) has 6 receivers, 3 more than one each for ARP, IPv4 and IPv6: agent.efi 2, Ip4Dxe 1;"
        ),
        "{}",
        more.evidence
    );
}

#[test]
fn drivers_that_are_there_twice_or_cost_time_for_nothing_are_told() {
    let mut report = healthy();
    let own = ["MnpDxe", "UefiPxeBcDxe", "HttpBootDxe"];
    report.network_drivers = own.map(ToString::to_string).into();
    let of = |image: &str, own_s| wireboot_report::trace::Called {
        image: image.into(),
        ..called("RaiseTPL", 9, Some(own_s))
    };
    let mut boot = traced();
    boot.calls = vec![of("MnpDxe", 2.0), of("HttpBootDxe", 0.039)];
    report.trace = Some(wireboot_report::Trace {
        boot: Some(boot),
        ..wireboot_report::Trace::default()
    });
    assert_eq!(ids(&report), Vec::<String>::new());

    let mut twice = report.clone();
    twice.network_drivers.push("UefiPxeBcDxe".into());
    let twice = found(&twice, "needless-drivers");
    assert_eq!((twice.seconds, twice.expected_s), (0.0, None));
    assert_eq!(twice.evidence, "in memory twice: UefiPxeBcDxe");

    let boot = report.trace.as_mut().unwrap().boot.as_mut().unwrap();
    boot.calls.push(of("Ip6Dxe", 0.1));
    let costly = found(&report, "needless-drivers");
    close(costly.seconds, 0.139);
    assert!(costly.evidence.ends_with("HttpBootDxe, Ip6Dxe"));
    // A boot over IPv6 needs that.
    let boot = report.trace.as_mut().unwrap().boot.as_mut().unwrap();
    boot.calls.push(of("Mtftp6Dxe", 0.1));
    assert_eq!(ids(&report), Vec::<String>::new());
    for name in own {
        assert!(is_network_driver(name), "{name}");
    }
    assert!(!is_network_driver("FatDxe"));
}

#[test]
fn firmware_without_random_numbers_is_told() {
    let mut report = healthy();
    report.machine.random = Some(true);
    assert_eq!(ids(&report), Vec::<String>::new());
    report.machine.random = Some(false);
    assert_eq!(ids(&report), ["no-rng"]);
}

#[test]
fn a_timer_is_slow_or_late() {
    let timed = |period_us, latest_us| {
        let mut report = healthy();
        report.timer = Some(wireboot_report::Timer {
            ticks: 66,
            period_us,
            latest_us,
        });
        report
    };
    assert_eq!(ids(&timed(17_000.0, 75_000.0)), Vec::<String>::new());
    assert_eq!(ids(&timed(25_001.0, 0.0)), ["slow-timer"]);
    let late = found(&timed(10_000.0, 250_000.0), "slow-timer");
    let said = "66 ticks, one each 10 ms, the latest 250 ms late";
    assert!(late.evidence.starts_with(said), "{}", late.evidence);
}

#[test]
fn time_is_stolen_by_the_firmware_itself_or_by_a_host() {
    let stolen = |stolen_s, smis| {
        let mut report = healthy();
        report.stolen = Some(wireboot_report::Stolen {
            looked_s: 2.0,
            stolen_s,
            gaps: 12,
            longest_us: 3000.0,
            smis,
        });
        report
    };
    assert_eq!(ids(&stolen(0.9, None)), Vec::<String>::new());
    assert_eq!(ids(&stolen(0.01, Some(9))), Vec::<String>::new());
    assert_eq!(ids(&stolen(1.1, None)), ["stolen-time"]);
    let by_smi = found(&stolen(0.1, Some(9)), "stolen-time");
    assert_eq!(
        by_smi.evidence,
        "the processor was away for 5 % of 2.0 s, with interrupts off: 12 gaps, the longest 3 ms; 9 interrupts of system management mode (SMI) meanwhile"
    );
    // One long gap is no accident.
    let mut stopped = stolen(0.3, None);
    stopped.stolen.as_mut().unwrap().longest_us = 300_000.0;
    close(found(&stopped, "stolen-time").seconds, 0.0);
    stopped.trace = Some(wireboot_report::Trace {
        transfer: Some(traced()),
        ..wireboot_report::Trace::default()
    });
    let of_file = found(&stopped, "stolen-time");
    close(of_file.seconds, 0.15 * 4.0);
    let told = "; a boot's files, which take 4.0 s, lose as much";
    assert!(of_file.evidence.ends_with(told), "{}", of_file.evidence);
    let network = core::mem::take(&mut stopped.network);
    let files_s: f64 = network.transfers.iter().map(Transfer::seconds).sum();
    stopped.dry_boots.push(DryBoot {
        network,
        runs_s: vec![5.0],
        ..DryBoot::default()
    });
    close(found(&stopped, "stolen-time").seconds, 0.15 * files_s);
    // A stranger's report that looked for no time.
    let mut none = stolen(1.0, None);
    let told = none.stolen.as_mut().unwrap();
    (told.looked_s, told.longest_us) = (0.0, 300_000.0);
    assert_eq!(ids(&none), Vec::<String>::new());
}

/// A port that waits for a partner, as told at `first_s`.
fn waiting(first_s: f64) -> Lacp {
    Lacp {
        system: "00:1c:73:01:02:03".into(),
        key: 17,
        first_s,
        waits: true,
        unheard: true,
        forwards_s: None,
    }
}

#[test]
fn a_group_without_fallback_is_told_instead_of_silence() {
    let mut report = healthy();
    report.network.transfers.clear();
    report.network.dhcp[0] = Dhcp {
        discover_s: vec![0.0, 4.0, 12.0, 28.0],
        ..Dhcp::default()
    };
    report.network.span_s = 60.0;
    report.timeline = vec![phase(PhaseKind::DhcpUnanswered, 0.0, 60.0, "")];
    assert_eq!(ids(&report), ["unanswered"]);
    report.network.lacp = Some(waiting(1.0));
    assert_eq!(ids(&report), ["lacp"]);
    let group = found(&report, "lacp");
    close(group.seconds, 60.0);
    assert_eq!(group.expected_s, Some(0.0));
    for figure in ["4 requests", "00:1c:73:01:02:03", "group 17", "no partner"] {
        assert!(group.evidence.contains(figure), "{}", group.evidence);
    }
    assert!(group.advice[0].contains("no lacp suspend-individual"));
    // A group that has its partner, or lets single ports forward.
    for lacp in [
        Lacp {
            waits: false,
            ..waiting(1.0)
        },
        Lacp {
            forwards_s: Some(-0.5),
            ..waiting(-1.0)
        },
    ] {
        report.network.lacp = Some(lacp);
        assert_eq!(ids(&report), ["unanswered"]);
    }
}

#[test]
fn a_group_that_falls_back_costs_its_seconds_and_comes_before_the_tree() {
    let mut report = healthy();
    report.network.dhcp[0].discover_s = vec![0.0, 4.0, 12.0];
    report.network.dhcp[0].offers = vec![offer(12.01, "10.0.0.1")];
    report.network.dhcp[0].request_s = vec![12.02];
    report.network.spanning_tree = Some(SpanningTree::default());
    assert_eq!(ids(&report), ["spanning-tree"]);
    report.network.lacp = Some(Lacp {
        forwards_s: Some(11.0),
        ..waiting(0.5)
    });
    assert_eq!(ids(&report), ["lacp"]);
    close(found(&report, "lacp").seconds, 12.02);
    // It was told of after the answer.
    report.network.lacp = Some(waiting(12.5));
    assert_eq!(ids(&report), ["spanning-tree"]);
    // Requests that were heard at once have nothing to do with it.
    let mut report = healthy();
    report.network.lacp = Some(waiting(-1.0));
    assert_eq!(ids(&report), Vec::<String>::new());
}

/// Heard in 35 s of listening, with a whole offer after so many seconds.
fn listened(offered_s: Option<f64>) -> Report {
    let mut heard = Surroundings {
        listened_s: 35.0,
        ..Surroundings::default()
    };
    heard.network.span_s = 35.0;
    let until = offered_s.unwrap_or(35.0);
    let asked = (0..9).map(|number| f64::from(number) * 4.0);
    heard.network.dhcp.push(Dhcp {
        discover_s: asked.filter(|at| *at < until).collect(),
        offers: offered_s
            .map(|at| offer(at, "10.0.0.1"))
            .into_iter()
            .collect(),
        ..Dhcp::default()
    });
    if offered_s.is_none() {
        heard.timeline = vec![phase(PhaseKind::DhcpUnanswered, 0.0, 35.0, "")];
    }
    let mut report = Report::new();
    report.surroundings = Some(heard);
    report
}

#[test]
fn who_listens_tells_what_a_boot_would_lose() {
    let healthy = listened(Some(0.01));
    assert_eq!(ids(&healthy), Vec::<String>::new());
    assert_eq!(
        verdict(&healthy),
        "35.0 s of listening to the network; nothing found that can be saved."
    );
    // Within the firmware's own patience it costs nothing.
    assert_eq!(ids(&listened(Some(3.9))), Vec::<String>::new());
    let mut late = listened(Some(5.0));
    let heard = late.surroundings.as_mut().unwrap();
    heard.network.dhcp[0].offers.push(offer(9.1, "10.0.0.1"));
    late.findings = examine(&late);
    assert_eq!(late.findings[0].id, "late-offer");
    close(late.findings[0].seconds, 8.0);
    let evidence = &late.findings[0].evidence;
    assert!(
        evidence.starts_with("10.0.0.1 took 5.0 s") && evidence.ends_with("12.0 s in all"),
        "{evidence}"
    );
    assert_eq!(
        verdict(&late),
        "35.0 s of listening to the network; a boot here loses 8.0 s by late DHCP offers."
    );
    let mut tree = listened(Some(32.01));
    let heard = tree.surroundings.as_mut().unwrap();
    heard.network.spanning_tree = Some(SpanningTree::default());
    close(found(&tree, "spanning-tree").seconds, 56.0);
    let nobody = found(&listened(None), "unanswered");
    assert!(
        nobody.evidence.ends_with("not one answer in 35.0 s"),
        "{}",
        nobody.evidence
    );
    let mut group = listened(None);
    let heard = group.surroundings.as_mut().unwrap();
    heard.network.lacp = Some(waiting(30.0));
    assert_eq!(ids(&group), ["lacp"]);
}

#[test]
fn what_was_heard_explains_a_dry_boot() {
    let mut report = Report::new();
    let mut boot = dry("UEFI PXEv4", 60.0);
    boot.network.dhcp[0].discover_s = vec![0.0, 4.0, 12.0, 28.0];
    boot.network.dhcp[0].offers = vec![offer(28.1, "10.0.0.1")];
    boot.network.dhcp[0].request_s = vec![60.0];
    report.dry_boots.push(boot);
    assert!(ids(&report).contains(&"unanswered".to_string()));
    let mut heard = listened(Some(0.01)).surroundings.unwrap();
    heard.network.dhcp[0].offers.push(Offer {
        vendor_options: VendorOptions::Foreign,
        ..offer(0.02, "10.0.0.3")
    });
    heard.network.spanning_tree = Some(SpanningTree {
        first_s: 30.0,
        ..SpanningTree::default()
    });
    report.surroundings = Some(heard);
    let all = ids(&report);
    for id in ["spanning-tree", "several-servers", "vendor-options"] {
        assert!(all.contains(&id.to_string()), "{id} in {all:?}");
    }
    assert!(!all.contains(&"unanswered".to_string()));
    let heard = report.surroundings.as_mut().unwrap();
    heard.network.lacp = Some(waiting(30.0));
    assert!(ids(&report).contains(&"lacp".to_string()));
    assert!(
        verdict(&report).starts_with("60.0 s to load"),
        "{}",
        verdict(&report)
    );
}

#[test]
fn a_menu_that_waits_costs_its_seconds() {
    let report = |seconds| {
        let mut report = Report::new();
        report.machine.boot_menu_s = Some(seconds);
        report.findings = examine(&report);
        report
    };
    let menu = |seconds| report(seconds).findings;
    assert_eq!(menu(0), []);
    let [finding] = menu(5).try_into().unwrap();
    assert_eq!((finding.id.as_str(), finding.seconds), ("boot-menu", 5.0));
    assert_eq!(finding.expected_s, Some(1.0));
    assert_eq!(menu(0xffff)[0].seconds, 0.0);
    assert_eq!(
        verdict(&report(5)),
        "no network boot was looked at; a boot here loses 5.0 s by the firmware's menu."
    );
    let mut with_boot = report(5);
    with_boot.dry_boots.push(dry("UEFI PXEv4", 10.0));
    assert!(
        verdict(&with_boot).starts_with("15.0 s to load"),
        "{}",
        verdict(&with_boot)
    );
}

#[test]
fn a_link_below_what_the_card_can_is_told() {
    let found = |gt_per_s, lanes| {
        let mut report = listened(Some(0.01));
        report.surroundings.as_mut().unwrap().pcie = Some(Pcie {
            gt_per_s,
            lanes,
            most_gt_per_s: 8.0,
            most_lanes: 4,
        });
        ids(&report)
    };
    assert_eq!(found(8.0, 4), Vec::<String>::new());
    assert_eq!(found(2.5, 4), ["pcie"]);
    assert_eq!(found(8.0, 1), ["pcie"]);
}

/// A report of memory in which the card's buffers and ordinary pages are so.
fn of_memory(cards: Region, ordinary: Region) -> Report {
    let mut report = Report::new();
    report.memory = Some(Memory {
        regions: vec![
            Region {
                what: ORDINARY.into(),
                ..ordinary
            },
            Region {
                what: CARDS.into(),
                ..cards
            },
            // What a card's registers are in is never cached.
            Region {
                what: "BAR 1".into(),
                memory_type: Some("UC".into()),
                ..Region::default()
            },
        ],
        ..Memory::default()
    });
    report
}

#[test]
fn packets_in_memory_that_is_not_write_back_are_told() {
    let of = |kind: Option<&str>| Region {
        memory_type: kind.map(Into::into),
        page_type: Some("WB".into()),
        range_type: kind.map(Into::into),
        ..Region::default()
    };
    let found = |cards, ordinary| ids(&of_memory(of(cards), of(ordinary)));
    for known in [Some("WB"), Some("unknown"), None] {
        assert_eq!(found(known, known), Vec::<String>::new());
    }
    for slow in ["UC", "WC", "WT", "WP", "mixed"] {
        assert_eq!(found(Some(slow), Some("WB")), ["uncached-memory"]);
        assert_eq!(found(Some("WB"), Some(slow)), ["uncached-memory"]);
    }
    let findings = examine(&of_memory(of(Some("UC")), of(Some("WB"))));
    assert_eq!(
        findings[0].evidence,
        "card's buffers: UC instead of WB (page tables WB, MTRRs UC)"
    );
}

#[test]
fn memory_that_the_card_has_elsewhere_is_told() {
    let at = |mapped_elsewhere| Region {
        mapped_elsewhere,
        ..Region::default()
    };
    let found = |cards, ordinary| ids(&of_memory(at(cards), at(ordinary)));
    assert_eq!(found(Some(false), None), Vec::<String>::new());
    assert_eq!(found(Some(true), Some(false)), ["bounced-dma"]);
    assert_eq!(found(Some(false), Some(true)), ["bounced-dma"]);
}

#[test]
fn a_link_that_is_late_is_told() {
    let found = |after| {
        let mut report = healthy();
        report.surroundings = Some(wireboot_report::Surroundings {
            link_after_s: Some(after),
            ..Default::default()
        });
        let findings = crate::examine(&report).into_iter();
        let mut findings = findings.filter(|one| one.id == "slow-link");
        findings.next().map(|one| (one.seconds, one.expected_s))
    };
    assert_eq!(found(0.1), None);
    assert_eq!(found(1.5), None);
    assert_eq!(found(4.5), Some((4.5, Some(1.5))));
}

/// What full frames came to, in Mbit/s, and the link's speed.
fn of_ladder(rungs: &[(&str, f64)], link: Option<u32>) -> Report {
    let mut report = healthy();
    report.ladder = Some(Ladder {
        sender: "10.77.0.1".into(),
        rungs: rungs
            .iter()
            .flat_map(|(what, mbit_s)| {
                // The smallest frames carry little, with any driver.
                [true, false].map(|full| Rung {
                    what: (*what).into(),
                    full,
                    mbit_s: if full { *mbit_s } else { 1.0 },
                    ..Rung::default()
                })
            })
            .collect(),
    });
    report.surroundings = link.map(|mbit_s| wireboot_report::Surroundings {
        link_after_s: Some(0.1),
        link_mbit_s: Some(mbit_s),
        ..Default::default()
    });
    report
}

#[test]
fn a_driver_of_the_firmware_that_brings_a_tenth_of_ours_is_told() {
    let slow = |rungs: &[(&str, f64)], link| {
        let found = ids(&of_ladder(rungs, link));
        found.iter().any(|id| id == "slow-driver")
    };
    assert!(slow(&[("driver", 4000.0), ("SNP", 399.0)], None));
    assert!(!slow(&[("driver", 4000.0), ("SNP", 401.0)], None));
    // The better of its two ways counts. The packet service is no driver.
    assert!(!slow(
        &[("driver", 4000.0), ("SNP", 10.0), ("UNDI", 2000.0)],
        None
    ));
    assert!(!slow(&[("driver", 4000.0), ("MNP", 10.0)], None));
    // Without a driver of ours, the link tells.
    assert!(slow(&[("SNP", 990.0)], Some(10_000)));
    assert!(!slow(&[("SNP", 1010.0)], Some(10_000)));
    // Where the network is slower than the link, no driver is to blame.
    assert!(!slow(&[("driver", 940.0), ("SNP", 930.0)], Some(10_000)));
    assert!(!slow(&[("SNP", 990.0)], None) && !slow(&[], Some(10_000)));
    let report = of_ladder(&[("driver", 4000.0), ("SNP", 300.0)], None);
    assert_eq!(
        found(&report, "slow-driver").evidence,
        "the firmware's driver (SNP) brings 300 Mbit/s of full frames from 10.77.0.1; wireboot's driver, on the same card, 4000"
    );
}

/// A server and its path: the longest packet, whether somebody says so, and how many of 100 echo requests are answered.
fn server(mtu_bytes: u16, told: bool, answered: u32) -> Report {
    let mut report = Report::new();
    report.servers.push(Server {
        address: "10.0.0.1".into(),
        path: Some(Path {
            link_mtu_bytes: 1500,
            mtu_bytes: Some(mtu_bytes),
            told,
            echoes: vec![Echoes {
                packet_bytes: mtu_bytes,
                asked: 100,
                answered,
                ..Echoes::default()
            }],
            ..Path::default()
        }),
        ..Server::default()
    });
    report
}

#[test]
fn paths_that_swallow_or_lose_packets_are_named() {
    let ids =
        |report: &Report| -> Vec<_> { examine(report).into_iter().map(|one| one.id).collect() };
    assert_eq!(ids(&server(1500, false, 100)), Vec::<String>::new());
    assert_eq!(ids(&server(1400, true, 100)), Vec::<String>::new());
    assert_eq!(ids(&server(1400, false, 100)), ["path-mtu"]);
    assert_eq!(ids(&server(1500, false, 99)), ["path-loss"]);
    let report = server(1400, false, 100);
    let [found] = &examine(&report)[..] else {
        panic!("{report:?}")
    };
    assert!(
        found.evidence.contains("10.0.0.1: packets of 1400 bytes"),
        "{found:?}"
    );
    assert!(found.evidence.contains("those of 1401 do not"), "{found:?}");
    let [found] = &examine(&server(1500, false, 93))[..] else {
        panic!("no loss")
    };
    assert!(
        found.evidence.contains("7 of 100 with 1500 bytes"),
        "{found:?}"
    );
    // Of two, one is told with its figures.
    let mut both = report.clone();
    both.servers.push(both.servers[0].clone());
    let evidence = &examine(&both)[0].evidence;
    assert!(
        evidence.starts_with("10.0.0.1, and 1 server more like it: "),
        "{evidence}"
    );
    // Who keeps long requests away hides what the path carries.
    let mut filtered = report.clone();
    filtered.servers[0].path.as_mut().unwrap().mtu_bytes = None;
    assert_eq!(ids(&filtered), Vec::<String>::new());
    // A host that answers nothing is no path.
    let mut silent = report;
    silent.servers[0].path = None;
    assert_eq!(ids(&silent), Vec::<String>::new());
}
