//! `wireboot doctor pcap` and `wireboot report`: what they print, and how they exit.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

use wireboot_capture::testing::capture;
use wireboot_wire::dhcp::{Message, MessageType, option};

fn wireboot(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wireboot"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A DHCP message in a frame.
fn dhcp(kind: MessageType, reply: bool) -> Vec<u8> {
    let mut message = Message::request(kind, 7, [2, 0, 0, 0, 0, 1]);
    message.options.set(option::ARCHITECTURE, [0, 7]);
    if reply {
        message = Message::reply(kind, &message);
        message.yiaddr = [10, 0, 0, 50].into();
        message.file = b"shimx64.efi".to_vec();
    }
    let payload = message.emit();
    let (from, to) = if reply { (67_u16, 68_u16) } else { (68, 67) };
    let length = 8 + payload.len() as u16;
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, if reply { 9 } else { 1 }, 8, 0]);
    frame.extend([0x45, 0]);
    frame.extend((20 + length).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(if reply { [10, 0, 0, 1] } else { [0; 4] });
    frame.extend([255; 4]);
    for word in [from, to, length, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

/// A machine that took its offer after so many seconds.
fn boot(file: &Path, patience: u32) {
    let packets = [
        (1, dhcp(MessageType::Discover, false)),
        (1, dhcp(MessageType::Offer, true)),
        (1 + patience, dhcp(MessageType::Request, false)),
        (1 + patience, dhcp(MessageType::Ack, true)),
    ];
    let records: Vec<_> = packets
        .iter()
        .map(|(at, packet)| (*at, 0, packet.as_slice(), packet.len()))
        .collect();
    std::fs::write(file, capture(false, &records)).unwrap();
}

#[test]
fn an_examination_can_be_shown_again_in_each_format() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (capture, json, html) = (name("boot.pcap"), name("boot.json"), name("boot.html"));
    boot(Path::new(&capture), 4);
    let output = wireboot(&["doctor", "pcap", &capture, "--json", &json, "--html", &html]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let shown = text(&output.stdout);
    assert!(shown.contains("4.0 of them DHCP patience"), "{shown}");
    assert!(
        std::fs::read_to_string(&html)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );

    let again = wireboot(&["report", &json]);
    assert_eq!((again.status.code(), text(&again.stdout)), (Some(1), shown));
    let format = |option: &str| {
        let output = wireboot(&["report", &json, option]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stdout)
    };
    let file = std::fs::read_to_string(&json).unwrap();
    assert_eq!(format("--json"), file);
    let csv = format("--csv");
    assert!(
        csv.starts_with("kind,start_s,end_s,seconds,what\r\n"),
        "{csv}"
    );
    let waited = csv
        .lines()
        .any(|line| line.contains(",0.000000,4.000000,4.000000,"));
    assert!(waited, "{csv}");
    assert!(format("--markdown").contains("| 4.0 | DHCP patience |"));
    let metrics = format("--prometheus");
    let lost = "wireboot_boot_lost_seconds{mac=\"02:00:00:00:00:01\",finding=\"offer-wait\"} 4\n";
    assert!(metrics.contains(lost), "{metrics}");
    let anonymous = format("--anonymous");
    assert!(!anonymous.contains("02:00:00:00:00:01"), "{anonymous}");
    assert!(
        anonymous.contains("4.0 of them DHCP patience"),
        "{anonymous}"
    );
}

#[test]
fn reports_stand_beside_each_other_and_in_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (which, patience) in [("before", 4), ("after", 0)] {
        let capture = name("boot.pcap");
        boot(Path::new(&capture), patience);
        let json = name(&format!("{which}.json"));
        wireboot(&["doctor", "pcap", &capture, "--json", &json]);
    }
    let (before, after, html) = (name("before.json"), name("after.json"), name("page.html"));
    let both = wireboot(&["report", &before, "--against", &after, "--html", &html]);
    assert_eq!(both.status.code(), Some(1), "{both:?}");
    let shown = text(&both.stdout);
    let row = |what: &str| {
        let line = shown.lines().find(|line| line.contains(what)).unwrap();
        line.split_whitespace()
            .rev()
            .take(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(row("before"), ["after", "before"]);
    assert_eq!(row("the boot, s"), ["0.0", "4.0"]);
    assert_eq!(row("DHCP patience"), ["-", "4.0"]);
    assert_eq!(row("waiting with an offer"), ["-", "4.00"]);
    assert!(
        std::fs::read_to_string(&html)
            .unwrap()
            .contains("before and after")
    );

    // What is no report is passed over in a directory.
    std::fs::write(name("other.json"), "{}").unwrap();
    let directory = folder.path().to_str().unwrap();
    let fleet = wireboot(&["report", directory, "--html", &html]);
    assert_eq!(fleet.status.code(), Some(1), "{fleet:?}");
    assert!(text(&fleet.stdout).starts_with("2 boots, median 2.0 s; 1 took more"));
    assert!(text(&fleet.stderr).contains("other.json"), "{fleet:?}");
    assert!(
        std::fs::read_to_string(&html)
            .unwrap()
            .contains("2 network boots")
    );
    let metrics = text(&wireboot(&["report", directory, "--prometheus"]).stdout);
    assert_eq!(metrics.matches("# TYPE").count(), 5, "{metrics}");
    assert!(!metrics.contains("} -0\n"), "{metrics}");

    for wrong in [
        vec!["report", &before, &after, "--json"],
        vec!["report", &before, "--against", &after, "--csv"],
        vec!["report", directory, "--against", &after],
        vec!["report", &name("other.json")],
        vec!["report", "/nonexistent"],
    ] {
        assert_eq!(wireboot(&wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn the_exit_status_tells_nothing_found_from_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("boot.pcap");
    boot(&capture, 0);
    let capture = capture.to_str().unwrap();
    let output = wireboot(&["doctor", "pcap", capture]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = wireboot(&["doctor", "pcap", capture, "--client", "02:00:00:00:00:07"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        text(&output.stderr).contains("02:00:00:00:00:01"),
        "{output:?}"
    );
    let output = wireboot(&["report", capture]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("boot.pcap"), "{output:?}");
}
