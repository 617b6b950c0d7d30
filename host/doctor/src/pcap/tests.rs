use super::*;
use crate::{html, text};
use etherparse::PacketBuilder;
use wireboot_capture::testing::capture;
use wireboot_report::words;
use wireboot_wire::dhcp::{Message, MessageType, option};

/// A DHCP packet of the machine `last`, or of a server for it.
fn dhcp(last: u8, kind: MessageType, server: Option<u8>) -> Vec<u8> {
    let mac = [2, 0, 0, 0, 0, last];
    let mut message = Message::request(kind, 7, mac);
    message.options.set(option::ARCHITECTURE, [0, 7]);
    message.options.set(option::VENDOR_CLASS, b"PXEClient:<b>&");
    let (from, to) = match server {
        Some(server) => {
            message = Message::reply(kind, &message);
            message.yiaddr = [10, 0, 0, 50].into();
            message.file = b"shimx64.efi".to_vec();
            message.options.set(option::SERVER_ID, [10, 0, 0, server]);
            (([2, 0, 0, 0, 1, server], [10, 0, 0, server], 67), 68)
        }
        None => ((mac, [0; 4], 68), 67),
    };
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(from.0, [0xff; 6])
        .ipv4(from.1, [255; 4], 64)
        .udp(from.2, to)
        .write(&mut frame, &message.emit())
        .unwrap();
    frame
}

fn file(packets: &[(u32, Vec<u8>)]) -> tempfile::NamedTempFile {
    let records: Vec<_> = packets
        .iter()
        .map(|(tenths, packet)| {
            (
                tenths / 10,
                tenths % 10 * 100_000,
                packet.as_slice(),
                packet.len(),
            )
        })
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture(false, &records)).unwrap();
    file
}

/// A machine that waits 4 s with an offer.
fn boot(last: u8) -> Vec<(u32, Vec<u8>)> {
    vec![
        (10, dhcp(last, MessageType::Discover, None)),
        (11, dhcp(last, MessageType::Offer, Some(1))),
        (51, dhcp(last, MessageType::Request, None)),
        (52, dhcp(last, MessageType::Ack, Some(1))),
    ]
}

fn error(packets: &[(u32, Vec<u8>)], client: Option<Mac>) -> String {
    format!("{:#}", examine(file(packets).path(), client).unwrap_err())
}

#[test]
fn a_capture_gets_a_verdict() {
    let file = file(&boot(1));
    let report = examine(file.path(), None).unwrap();
    let ids: Vec<_> = report.findings.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["offer-wait"]);
    let shown = text::shown(&report);
    assert!(
        shown.starts_with("02:00:00:00:00:01 (PXEClient:<b>&)\n"),
        "{shown}"
    );
    assert!(
        shown.contains("4.1 s on the network; 4.1 of them DHCP patience."),
        "{shown}"
    );
    assert!(shown.contains("docs/doctor.md#offer-wait"), "{shown}");
    let wide = shown
        .lines()
        .filter(|line| line.chars().count() > 80)
        .count();
    assert_eq!(wide, 0, "{shown}");
    let page = html::page(&report);
    assert!(
        page.contains("PXEClient:&lt;b&gt;&amp;") && !page.contains("<b>"),
        "{page}"
    );
    assert!(page.contains("4.1 of them DHCP patience"));
}

#[test]
fn of_several_machines_one_is_named() {
    let both: Vec<_> = boot(1).into_iter().chain(boot(2)).collect();
    let said = error(&both, None);
    assert!(
        said.contains("--client") && said.contains("02:00:00:00:00:02"),
        "{said}"
    );
    let second = Mac([2, 0, 0, 0, 0, 2]);
    let report = examine(file(&both).path(), Some(second)).unwrap();
    assert_eq!(report.machine.mac, "02:00:00:00:00:02");
    let said = error(&both, Some(Mac([9; 6])));
    assert!(said.contains("09:09:09:09:09:09 does not ask"), "{said}");
}

#[test]
fn a_capture_without_a_boot_says_what_to_do() {
    let said = error(&[(10, vec![0; 60])], None);
    assert!(
        said.contains("1 packets") && said.contains("Was the capture running"),
        "{said}"
    );
    assert!(error(&[], None).contains("without packets"));
    let nothing = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(nothing.path(), "GIF89a, and more than twenty-four bytes").unwrap();
    assert!(format!("{:#}", examine(nothing.path(), None).unwrap_err()).contains("no capture"));
    assert!(examine(Path::new("/nonexistent.pcap"), None).is_err());
}

#[test]
fn an_address_is_read_with_colons_and_dashes() {
    assert_eq!(
        mac("52:54:00:AB:cd:01"),
        Ok(Mac([0x52, 0x54, 0, 0xab, 0xcd, 1]))
    );
    assert_eq!(mac("52-54-00-ab-cd-01"), mac("52:54:00:ab:cd:01"));
    for wrong in [
        "",
        "52:54:00:ab:cd",
        "52:54:00:ab:cd:01:02",
        "52:54:00:ab:cd:100",
        "xx:54:00:ab:cd:01",
    ] {
        assert!(mac(wrong).is_err(), "{wrong}");
    }
}

/// What a finding refers to is there, with its words in the verdict.
#[test]
fn each_rule_has_a_section_in_the_documents() {
    let document = include_str!("../../../../docs/doctor.md");
    for name in wireboot_diagnosis::names() {
        assert!(document.contains(&format!("\n### {name}\n\n*")), "{name}");
    }
}

/// What doctor.efi can be told is there.
#[test]
fn each_check_and_each_word_is_in_the_documents() {
    let document = include_str!("../../../../docs/doctor.md");
    for check in words::CHECKS {
        assert!(document.contains(&format!("`{check}`")), "{check}");
    }
    for key in words::KEYS {
        assert!(document.contains(&format!("`{key}=")), "{key}");
    }
}
