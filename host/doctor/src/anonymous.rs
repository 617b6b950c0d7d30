//! Reports that tell nothing of whose they are.

use std::hash::{BuildHasher, RandomState};
use std::iter;

use wireboot_report::sweep::NOT_GRANTED;
use wireboot_report::{Network, Report};

/// Replaces addresses, serial numbers and names of files and servers by digests. The key is to be random and forgotten, as there are few
/// enough addresses to try them all: a name has the same digest in reports with the same key alone. Findings quote names in their words, so
/// those are examined anew from what is left.
pub(crate) fn made(report: &Report, key: &RandomState) -> Report {
    let mut report = report.clone();
    let hash = |text: &mut String| digest(text, key);
    hash(&mut report.machine.mac);
    report.machine.uuid.iter_mut().for_each(hash);
    let boots = report.dry_boots.iter_mut().map(|boot| {
        // The firmware's names of boot options have addresses in them.
        hash(&mut boot.option);
        (&mut boot.network, &mut boot.timeline)
    });
    let captured = iter::once((&mut report.network, &mut report.timeline));
    let heard = report.surroundings.iter_mut().map(|heard| {
        hash(&mut heard.mac);
        for one in &mut heard.round_trips {
            hash(&mut one.address);
        }
        (&mut heard.network, &mut heard.timeline)
    });
    for (network, timeline) in captured.chain(heard).chain(boots) {
        names(network, key);
        for phase in timeline {
            hash(&mut phase.what);
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
    if let Some(ladder) = &mut report.ladder {
        hash(&mut ladder.sender);
    }
    if let Some(trace) = &mut report.trace {
        let traced = trace.boot.iter_mut().chain(&mut trace.transfer);
        traced.for_each(|one| hash(&mut one.file));
    }
    if let Some(profile) = &mut report.profile {
        hash(&mut profile.file);
    }
    // Errors quote what was asked for, and from whom.
    for one in &mut report.not_measured {
        one.reason.clear();
    }
    for one in &mut report.servers {
        hash(&mut one.url);
        hash(&mut one.address);
        one.failure.iter_mut().for_each(hash);
        // Whoever runs it chooses its words.
        let software = one.http.iter_mut().flat_map(|http| &mut http.software);
        software.for_each(hash);
    }
    // A server's words may quote the file's name.
    let failures = report.sweep.iter_mut().flat_map(|cell| &mut cell.failure);
    failures.filter(|one| *one != NOT_GRANTED).for_each(hash);
    files(images(&mut report), key);
    report.findings = wireboot_diagnosis::examine(&report);
    report
}

/// The names of images in memory, wherever they stand.
fn images(report: &mut Report) -> impl Iterator<Item = &mut String> {
    let traces = report.trace.iter_mut();
    let traced = traces.flat_map(|trace| trace.boot.iter_mut().chain(&mut trace.transfer));
    let calls = traced.flat_map(|traced| &mut traced.calls);
    let profiled = report.profile.iter_mut();
    let profiled = profiled.flat_map(|profile| &mut profile.images);
    let receivers = report.receivers.iter_mut();
    let builds = report.build.iter_mut();
    calls
        .map(|call| &mut call.image)
        .chain(profiled.map(|image| &mut image.name))
        .chain(receivers.map(|receiver| &mut receiver.image))
        .chain(builds.flat_map(|build| &mut build.asserting))
}

/// Replaces names of images that are names of files: `BOOTX64.EFI`. The firmware's own are not, and findings know them by their names.
fn files<'a>(images: impl Iterator<Item = &'a mut String>, key: &RandomState) {
    let is_file = |name: &str| name.to_ascii_lowercase().ends_with(".efi");
    for name in images.filter(|name| is_file(name)) {
        digest(name, key);
    }
}

/// Replaces a text. Whether there is one, and whether it has a colon, as addresses of IPv6 have, is still told.
fn digest(text: &mut String, key: &RandomState) {
    if text.is_empty() {
        return;
    }
    let colon = if text.contains(':') { ":" } else { "" };
    *text = format!("{:016x}{colon}", key.hash_one(&*text));
}

/// Replaces a transaction's number: some programs make it of the Ethernet address.
fn transaction(xid: &mut u32, key: &RandomState) {
    let digest = key.hash_one(*xid);
    *xid = u32::try_from(digest >> 32).unwrap_or_default();
}

/// Replaces the names in what was seen of a network.
fn names(network: &mut Network, key: &RandomState) {
    let hash = |text: &mut String| digest(text, key);
    if let Some(tree) = &mut network.spanning_tree {
        hash(&mut tree.bridge);
    }
    if let Some(neighbour) = &mut network.neighbour {
        hash(&mut neighbour.switch);
        hash(&mut neighbour.port);
        neighbour.port_description.iter_mut().for_each(&hash);
    }
    if let Some(lacp) = &mut network.lacp {
        hash(&mut lacp.system);
    }
    for one in &mut network.dhcp {
        transaction(&mut one.xid, key);
        one.chosen.iter_mut().for_each(&hash);
        one.user_class.iter_mut().for_each(&hash);
        for offer in &mut one.offers {
            hash(&mut offer.server);
            offer.address.iter_mut().for_each(&hash);
            offer.boot_file.iter_mut().for_each(&hash);
        }
    }
    for one in &mut network.dhcpv6 {
        transaction(&mut one.xid, key);
        one.boot_file.iter_mut().for_each(&hash);
        for answer in &mut one.answers {
            hash(&mut answer.server);
            answer.address.iter_mut().for_each(&hash);
            answer.boot_file.iter_mut().for_each(&hash);
        }
    }
    for one in &mut network.routers {
        hash(&mut one.address);
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
        numbers(&mut one.asked);
        numbers(&mut one.granted);
    }
}

/// Leaves options of TFTP whose values are numbers. That of a multicast (RFC 2090) is an address.
fn numbers(options: &mut String) {
    let is_number = |value: &str| value.bytes().all(|byte| byte.is_ascii_digit());
    let all = options.split(' ');
    let left = all.filter(|one| {
        one.split_once('=')
            .is_some_and(|(_, value)| is_number(value))
    });
    *options = left.collect::<Vec<_>>().join(" ");
}

#[cfg(test)]
mod filled;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use wireboot_report::network::{BootServer, Dhcp, Lacp, Neighbour, Offer, Transfer};
    use wireboot_report::sweep::Cell;
    use wireboot_report::trace::{Called, Traced};
    use wireboot_report::{
        Build, DryBoot, Phase, Profile, ProfiledImage, Receiver, RoundTrip, Server, Surroundings,
        Trace,
    };

    /// With a key of its own.
    fn unknown(report: &Report) -> Report {
        made(report, &RandomState::new())
    }

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
            granted: format!("tsize=7 multicast={secret} blksize=1468"),
            ..Transfer::default()
        });
        report.timeline.push(Phase {
            kind: wireboot_report::PhaseKind::BootServer,
            start_s: 4.5,
            end_s: 6.5,
            what: name(),
        });
        report.network.neighbour = Some(Neighbour {
            switch: name(),
            port: name(),
            port_description: Some(name()),
            ..Neighbour::default()
        });
        report.network.lacp = Some(Lacp {
            system: name(),
            ..Lacp::default()
        });
        let mut dry = report.clone();
        dry.dry_boots.push(DryBoot {
            option: name(),
            network: std::mem::take(&mut dry.network),
            timeline: std::mem::take(&mut dry.timeline),
            ..DryBoot::default()
        });
        let mut listened = report.clone();
        listened.surroundings = Some(Surroundings {
            mac: name(),
            network: std::mem::take(&mut listened.network),
            timeline: std::mem::take(&mut listened.timeline),
            round_trips: vec![RoundTrip {
                address: name(),
                ..RoundTrip::default()
            }],
            ..Surroundings::default()
        });
        for mut report in [report, dry, listened] {
            report.findings = wireboot_diagnosis::examine(&report);
            let before: Vec<_> = report.findings.iter().map(|one| one.id.clone()).collect();
            assert!(
                before.contains(&"refused".to_owned())
                    && before.contains(&"boot-server".to_owned())
            );
            let made = unknown(&report);
            assert!(!made.to_json().contains(secret), "{}", made.to_json());
            assert!(made.to_json().contains(r#""tsize=7 blksize=1468""#));
            let after: Vec<_> = made.findings.iter().map(|one| one.id.clone()).collect();
            assert_eq!(after, before);
            // The same name is still the same.
            let seconds =
                |report: &Report| report.findings.iter().map(|one| one.seconds).sum::<f64>();
            assert!((seconds(&made) - seconds(&report)).abs() < 1e-9);
        }
    }

    #[test]
    fn what_findings_are_made_of_stays() {
        let cell = |ip, window, seconds| Cell {
            ip,
            granted_block_bytes: Some(1468),
            granted_window: Some(window),
            bytes: 1_000_000,
            seconds,
            ..Cell::default()
        };
        let mut report = Report::new();
        report.sweep = vec![
            cell(4, 1, 8.0),
            cell(4, 64, 7.0),
            cell(6, 1, 8.0),
            cell(6, 64, 2.0),
        ];
        report.network.transfers.push(Transfer {
            answer_s: Some(0.0),
            end_s: 10.0,
            bytes: 40 << 20,
            block_bytes: 1468,
            window_blocks: 1,
            turns: 30_000,
            server_wait_s: 5.0,
            ..Transfer::default()
        });
        // The sweep of the server's version of IP says what a window costs.
        for (server, lost_s) in [("10.0.0.1", 1.25), ("fd00::1", 7.5)] {
            report.network.transfers[0].server = server.to_owned();
            let made = unknown(&report);
            assert_ne!(made.network.transfers[0].server, server);
            let found: Vec<_> = made.findings.iter().map(|one| one.id.as_str()).collect();
            assert_eq!(found, ["window"]);
            let seconds = made.findings[0].seconds;
            assert!((seconds - lost_s).abs() < 1e-9, "{server}: {seconds}");
        }
        // One whose name nobody knows was not asked.
        report.servers.push(Server {
            url: "tftp://boot.lab/a".to_owned(),
            ..Server::default()
        });
        let made = unknown(&report);
        let [url, path, _] = crate::servers::rows(&made).next().unwrap();
        assert_ne!(url, "tftp://boot.lab/a");
        assert_eq!(path, "not asked");
    }

    #[test]
    fn an_image_loses_the_name_of_a_file_and_keeps_that_of_a_driver() {
        let names = ["S3CRET.EFI", "s3cret.efi", "MnpDxe", ""];
        let calls = names.map(|image| Called {
            image: image.to_owned(),
            ..Called::default()
        });
        let traced = Traced {
            calls: calls.into(),
            ..Traced::default()
        };
        let mut report = Report::new();
        report.trace = Some(Trace {
            boot: Some(traced.clone()),
            transfer: Some(traced),
            ..Trace::default()
        });
        report.profile = Some(Profile {
            images: names
                .map(|name| ProfiledImage {
                    name: name.to_owned(),
                    ..ProfiledImage::default()
                })
                .into(),
            ..Profile::default()
        });
        report.receivers = names
            .map(|image| Receiver {
                image: image.to_owned(),
                ..Receiver::default()
            })
            .into();
        report.build = Some(Build {
            asserting: names.map(str::to_owned).into(),
            ..Build::default()
        });
        let mut made = unknown(&report);
        let told = made.to_json().to_ascii_lowercase();
        assert!(!told.contains("s3cret"), "{told}");
        let kept: Vec<String> = images(&mut made).map(|name| name.clone()).collect();
        assert_eq!(kept.len(), 5 * names.len());
        // The same image has the same name everywhere.
        for kept in kept.chunks(names.len()) {
            assert_ne!(kept[0], kept[1]);
            assert_eq!(kept[2..], names[2..]);
            assert_eq!(kept, made.build.as_ref().unwrap().asserting);
        }
    }

    /// Words of firmware and protocols: none has a name or an address in it. An image's is replaced where it is a file's.
    const WORDS: [&str; 29] = [
        "Build.asserting",
        "Called.image",
        "Called.service",
        "Cost.service",
        "Dhcp.vendor_class",
        "Dhcpv6.kind",
        "Dhcpv6Answer.kind",
        "DryBoot.failure",
        "Machine.firmware",
        "Machine.model",
        "Machine.vendor_class",
        "Module.name",
        "NotMeasured.check",
        "ProfiledImage.name",
        "Receiver.image",
        "Report.network_drivers",
        "Rate.what",
        "Receive.memory_type",
        "Receive.what",
        "Region.gcd",
        "Region.memory_type",
        "Region.page_type",
        "Region.range_type",
        "Region.what",
        "Report.version",
        "RoundTrip.what",
        "Rung.what",
        "Throughput.check",
        "Throughput.driver",
    ];

    /// The fields whose texts are in a report.
    fn texts(report: &Report) -> BTreeSet<String> {
        let text = report.to_json();
        let parts = text.split(filled::SECRET).skip(1);
        let fields = parts.filter_map(|part| part.split_once(filled::END));
        fields.map(|(field, _)| field.to_owned()).collect()
    }

    #[test]
    fn no_field_keeps_its_text_but_those_that_are_words() {
        let report: Report = filled::filled();
        let before = texts(&report);
        for field in ["Machine.mac", "NotMeasured.reason", "Offer.boot_file"] {
            assert!(before.contains(field), "{field}");
        }
        // Whoever adds a field of text replaces it above, or says here that it has no name in it.
        assert_eq!(texts(&unknown(&report)), WORDS.map(str::to_owned).into());
    }

    /// Numbers of 32 bits that count and measure: none is made of an address.
    const COUNTS: [&str; 23] = [
        "echoes.answered",
        "echoes.asked",
        "echoes.reordered",
        "echoes.repeated",
        "machine.processors",
        "profile.hertz",
        "profile.turns",
        "report.schema",
        "round_trips.asked",
        "rungs.receivers",
        "streams.id",
        "surroundings.link_mbit_s",
        "sweep.block_bytes",
        "sweep.granted_block_bytes",
        "sweep.granted_window",
        "sweep.runs",
        "sweep.window",
        "throughput.asked_s",
        "throughput.message_bytes",
        "throughput.mss_bytes",
        "throughput.parallel",
        "transfers.block_bytes",
        "transfers.window_blocks",
    ];

    /// The fields below `within` that have the secret number, by what they are in.
    fn numbered(within: &str, value: &Value, fields: &mut BTreeSet<String>) {
        match value {
            Value::Array(items) => {
                for item in items {
                    numbered(within, item, fields);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    if member.as_u64() == Some(u64::from(filled::NUMBER)) {
                        fields.insert(format!("{within}.{name}"));
                    }
                    numbered(name, member, fields);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn no_field_keeps_its_number_but_those_that_count() {
        let fields = |report: &Report| {
            let mut fields = BTreeSet::new();
            let value = serde_json::to_value(report).unwrap();
            numbered("report", &value, &mut fields);
            fields
        };
        let report: Report = filled::filled();
        let before = fields(&report);
        for field in ["dhcp.xid", "dhcpv6.xid"] {
            assert!(before.contains(field), "{field}");
        }
        // Whoever adds a number of 32 bits replaces it above, or says here that it only counts.
        let left: BTreeSet<String> = COUNTS.map(str::to_owned).into();
        assert_eq!(fields(&unknown(&report)), left);
    }
}
