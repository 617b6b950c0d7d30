//! What a boot took, as a report that `wireboot report` reads (`crates/report`). Written by hand: a library for JSON would make wireboot.efi
//! larger by a tenth.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use wireboot_platform::boot_report::LONGEST;

/// Room for the end of the text, and for what stands for files that are left out.
const RESERVE: usize = 200;

/// Points and files so far. Times are microseconds since the program began.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    mac: [u8; 6],
    phases: Vec<Phase>,
    files: Vec<File>,
}

#[derive(Clone, Debug)]
struct Phase {
    kind: &'static str,
    end: u64,
    what: String,
}

#[derive(Clone, Debug)]
struct File {
    url: String,
    bytes: u64,
    start: u64,
    end: u64,
}

impl Account {
    /// Of a boot over the card with this Ethernet address.
    pub(crate) fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            phases: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Something is done, that began with the end of what was done before. `kind` is one of the report's kinds of phases.
    pub(crate) fn passed(&mut self, kind: &'static str, what: String, now: u64) {
        self.phases.push(Phase {
            kind,
            end: now,
            what,
        });
    }

    /// A file has come.
    pub(crate) fn file(&mut self, url: &str, bytes: u64, took: u64, end: u64) {
        self.files.push(File {
            url: url.into(),
            bytes,
            start: end.saturating_sub(took),
            end,
        });
    }

    /// The report at `now`, of [`LONGEST`] bytes at most. `since_reset`: when the program began and when it is done, in microseconds since
    /// the machine's start.
    pub(crate) fn json(&self, since_reset: Option<(u64, u64)>, now: u64) -> String {
        let [a, b, c, d, e, f] = self.mac;
        let mut out = format!(
            "{{\"schema\":1,\"version\":\"{}\",\"machine\":{{\"mac\":\"{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}\"}}",
            env!("CARGO_PKG_VERSION")
        );
        if let Some((began, done)) = since_reset {
            out += &format!(
                ",\"checkpoints\":{{\"loader_began_s\":{},\"loader_done_s\":{}}}",
                seconds(began),
                seconds(done)
            );
        }
        out += ",\"timeline\":[";
        let mut before = 0;
        let phases = self.phases.iter().map(|phase| {
            let start = core::mem::replace(&mut before, phase.end);
            phase_json(phase.kind, start, phase.end, &phase.what)
        });
        // Each file stands here twice.
        let room = (LONGEST - RESERVE).saturating_sub(out.len());
        let mut left = room;
        let fits = |text: &String| {
            let fits = text.len() < left;
            left = left.saturating_sub(text.len() + 1);
            fits
        };
        let mut lines: Vec<String> = phases.take_while(fits).collect();
        let mut transfers = Vec::new();
        let mut left_out = self.files.len();
        for file in &self.files {
            let phase = phase_json("transfer", file.start, file.end, &file.url);
            let transfer = format!(
                "{{\"protocol\":\"{}\",\"file\":{},\"start_s\":{},\"end_s\":{},\"outcome\":\"complete\",\"bytes\":{}}}",
                if file.url.starts_with("tftp") {
                    "tftp"
                } else {
                    "http"
                },
                quoted(&file.url),
                seconds(file.start),
                seconds(file.end),
                file.bytes
            );
            let Some(rest) = left.checked_sub(phase.len() + transfer.len() + 2) else {
                break;
            };
            left = rest;
            left_out -= 1;
            lines.push(phase);
            transfers.push(transfer);
        }
        if left_out > 0 {
            let what = format!("{left_out} files more");
            let end = self.files.iter().map(|file| file.end).max();
            lines.push(phase_json("transfer", 0, end.unwrap_or_default(), &what));
        }
        out += &lines.join(",");
        let _ = write!(
            out,
            "],\"network\":{{\"span_s\":{},\"transfers\":[{}]}}}}",
            seconds(now),
            transfers.join(",")
        );
        out
    }
}

fn phase_json(kind: &str, start: u64, end: u64, what: &str) -> String {
    format!(
        "{{\"kind\":\"{kind}\",\"start_s\":{},\"end_s\":{},\"what\":{}}}",
        seconds(start),
        seconds(end),
        quoted(what)
    )
}

/// Microseconds as seconds.
fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// A JSON string (RFC 8259 section 7).
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\0'..='\x1f' => out += &format!("\\u{:04x}", u32::from(c)),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::{PhaseKind, Report};

    const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

    #[test]
    fn it_is_a_report() {
        let mut account = Account::new(MAC);
        account.passed("card", "virtio-net \"1\" \\ \u{7}".into(), 250_000);
        account.passed("address", "10.0.0.9".into(), 300_000);
        account.file("http://a/linux", 8_000_000, 500_000, 900_000);
        account.file("tftp://a/initrd", 7, 600_000, 500_000);
        let text = account.json(Some((3_500_000, 4_600_001)), 1_100_001);
        let report = Report::from_json(&text).unwrap();
        assert_eq!(report.machine.mac, "52:54:00:12:34:56");
        let points = report.checkpoints.unwrap();
        assert_eq!(
            (points.loader_began_s, points.loader_done_s),
            (Some(3.5), Some(4.600001))
        );
        let phases = report.timeline.iter();
        let kinds: Vec<_> = phases
            .map(|phase| (phase.kind, phase.start_s, phase.end_s))
            .collect();
        assert_eq!(
            kinds,
            [
                (PhaseKind::Card, 0.0, 0.25),
                (PhaseKind::Address, 0.25, 0.3),
                (PhaseKind::Transfer, 0.4, 0.9),
                (PhaseKind::Transfer, 0.0, 0.5),
            ]
        );
        assert_eq!(report.timeline[0].what, "virtio-net \"1\" \\ \u{7}");
        assert_eq!(report.network.span_s, 1.100001);
        let [linux, initrd] = report.network.transfers.as_slice() else {
            panic!("{:?}", report.network.transfers)
        };
        assert_eq!((linux.bytes, linux.seconds()), (8_000_000, 0.5));
        assert_eq!(initrd.protocol, wireboot_report::network::Protocol::Tftp);
        assert_eq!(linux.protocol, wireboot_report::network::Protocol::Http);
        assert_eq!(initrd.file, "tftp://a/initrd");
        let without = Report::from_json(&Account::new(MAC).json(None, 0)).unwrap();
        assert_eq!(without.checkpoints, None);
    }

    #[test]
    fn more_files_than_there_is_room_for_are_counted() {
        for length in [1, 40, 3_000, 9_000] {
            let mut account = Account::new(MAC);
            account.passed("choice", "x".repeat(length), 5);
            for number in 0..200 {
                let name = format!("http://server/{}{number}", "\u{1}".repeat(length));
                account.file(&name, 1, 1, 1_000_000 + number);
            }
            let text = account.json(Some((1, 2)), 3);
            assert!(text.len() <= LONGEST, "{}", text.len());
            let report = Report::from_json(&text).unwrap();
            let told = report.network.transfers.len();
            let more = &report.timeline.last().unwrap().what;
            assert_eq!(*more, format!("{} files more", 200 - told));
        }
    }
}
