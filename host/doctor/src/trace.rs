//! What the firmware called, for the terminal and the page.

use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use wireboot_report::Trace;
use wireboot_report::trace::{PacketWork, Traced};

use crate::escaped::escaped;

/// Services that are shown.
const SERVICES: usize = 16;
/// Images that are named behind a service.
const IMAGES: usize = 3;

/// What is counted for each packet, and the services that it is.
const PER_PACKET: &[(&str, &[&str])] = &[
    ("time of day", &["GetTime"]),
    ("keyboard", &["ConIn.ReadKeyStroke"]),
    ("doorbells", &["PciIo.Mem.Write", "PciIo.Io.Write"]),
    ("register reads", &["PciIo.Mem.Read", "PciIo.Io.Read"]),
    ("SNP.Receive", &["SNP.Receive"]),
    ("SNP.GetStatus", &["SNP.GetStatus"]),
    ("TPL raised", &["RaiseTPL"]),
    ("events made", &["CreateEvent", "CreateEventEx"]),
    ("signalled", &["SignalEvent"]),
    ("allocations", &["AllocatePool", "AllocatePages"]),
];

/// What is counted for the whole boot.
const PER_BOOT: &[(&str, &str)] = &[
    ("variables read", "GetVariable"),
    ("written", "SetVariable"),
    ("time of day asked", "GetTime"),
    ("keyboard asked", "ConIn.ReadKeyStroke"),
    ("waits by Stall", "Stall"),
];

/// For a packet received, in the order above.
fn each_packet(traced: &Traced) -> String {
    let figures = per_packet(traced).map(|(name, calls)| format!("{name} {calls:.2}"));
    figures.collect::<Vec<_>>().join(", ")
}

fn per_packet(traced: &Traced) -> impl Iterator<Item = (&'static str, f64)> {
    PER_PACKET.iter().map(|(name, services)| {
        let calls: u64 = services.iter().map(|one| traced.calls_of(one)).sum();
        (*name, traced.per_packet(calls as f64))
    })
}

/// The same as rows of a table.
pub(crate) fn of_packets(traced: &Traced) -> impl Iterator<Item = (String, String)> {
    per_packet(traced).map(|(name, calls)| (format!("each packet: {name}"), format!("{calls:.2}")))
}

/// What the whole boot called, as rows of a table.
pub(crate) fn of_boot(boot: &Traced) -> impl Iterator<Item = (String, String)> {
    PER_BOOT.iter().map(|(name, service)| {
        let calls = boot.calls_of(service).to_string();
        (format!("in the boot: {name}"), calls)
    })
}

/// For the boot, in the order above.
fn whole_boot(boot: &Traced) -> String {
    let figures = PER_BOOT
        .iter()
        .map(|(name, service)| format!("{name} {}", boot.calls_of(service)));
    figures.collect::<Vec<_>>().join(", ")
}

/// What looking costs, as far as it is known.
fn looking(trace: &Trace) -> Option<String> {
    let looking = trace.looking.as_ref()?;
    let part =
        |name: &str, part: Option<f64>| part.map(|part| format!("{name} {:+.0} %", part * 100.0));
    let parts = [
        part("counting", looking.counting()),
        part("timing", looking.timing()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        let rounds = looking.plain_s.len();
        let mut text = format!(
            "looking costs: {} of the transfer, the fastest of {rounds} runs each",
            parts.join(", ")
        );
        let of_work = |name: &str, work: Option<PacketWork>| {
            let part = work?.overhead()?;
            Some(format!("{name} {:+.1} %", part * 100.0))
        };
        let parts = [
            of_work("counting", looking.counting_work),
            of_work("timing", looking.timing_work),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            text.push_str(&format!("; {} of a packet's work", parts.join(", ")));
        }
        text
    })
}

/// Headings of the table.
const COLUMNS: [&str; 6] = ["service", "calls", "/packet", "us/packet", "share", "from"];

/// The services that cost most.
fn rows(traced: &Traced) -> Vec<[String; 6]> {
    let services = traced.services().into_iter().take(SERVICES);
    let row = |one: wireboot_report::trace::Called| {
        let mut callers: Vec<_> = traced.calls.iter().collect();
        callers.retain(|call| call.service == one.service && !call.image.is_empty());
        let names = callers.iter().take(IMAGES).map(|call| call.image.as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        let more = callers.len().saturating_sub(IMAGES);
        let seconds = |figure: fn(&Traced, f64) -> f64, digits: usize| {
            one.own_s.map_or("-".to_owned(), |own_s| {
                format!("{:.digits$}", figure(traced, own_s))
            })
        };
        [
            one.service.clone(),
            one.calls.to_string(),
            format!("{:.2}", traced.per_packet(one.calls as f64)),
            seconds(|traced, own_s| traced.per_packet(own_s) * 1e6, 1),
            seconds(|traced, own_s| own_s / traced.took_s.max(1e-9) * 100.0, 1),
            if more > 0 {
                format!("{names} and {more} more")
            } else {
                names
            },
        ]
    };
    services.map(row).collect()
}

fn heading(traced: &Traced) -> String {
    format!(
        "{}: {} bytes in {:.2} s, {} packets received, {} sent",
        traced.file, traced.bytes, traced.took_s, traced.received, traced.sent
    )
}

/// Paragraphs about the boot and the transfer, and the one of which the services are shown.
fn words(trace: &Trace) -> (Vec<String>, Option<&Traced>) {
    let mut out = Vec::new();
    if let Some(boot) = &trace.boot {
        out.push(format!(
            "whole boot, {}: {}",
            heading(boot),
            whole_boot(boot)
        ));
    }
    let shown = trace.transfer.as_ref().or(trace.boot.as_ref());
    if let Some(traced) = shown {
        if trace.transfer.is_some() {
            out.push(format!("by TFTP alone, {}", heading(traced)));
        }
        out.push(format!("for each packet received: {}", each_packet(traced)));
        if traced.lost > 0 {
            out.push(format!(
                "{} calls had no room and are not here",
                traced.lost
            ));
        }
    }
    out.extend(looking(trace));
    (out, shown)
}

/// For the terminal: `wrapped` makes lines of a text.
pub(crate) fn text(out: &mut String, trace: &Trace, wrapped: impl Fn(&str) -> String) {
    let (words, shown) = words(trace);
    let _ = writeln!(out, "What the firmware called");
    for paragraph in &words {
        let _ = writeln!(out, "{}", wrapped(paragraph));
    }
    let Some(traced) = shown else { return };
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(80)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(COLUMNS);
    for row in rows(traced) {
        table.add_row(row);
    }
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// Adds the trace to the report's page.
pub(crate) fn html(out: &mut String, trace: &Trace) {
    let (words, shown) = words(trace);
    out.push_str("<h2>What the firmware called</h2>\n");
    for paragraph in &words {
        let _ = writeln!(out, "<p>{}</p>", escaped(paragraph));
    }
    let Some(traced) = shown else { return };
    out.push_str("<table><tr>");
    let [service, figures @ .., from] = COLUMNS;
    let _ = write!(out, "<th>{service}</th>");
    for figure in figures {
        let _ = write!(out, "<th class=\"n\">{figure}</th>");
    }
    let _ = write!(out, "<th>{from}</th>");
    out.push_str("</tr>\n");
    for [service, figures @ .., from] in rows(traced) {
        let _ = write!(out, "<tr><td>{}</td>", escaped(&service));
        for figure in figures {
            let _ = write!(out, "<td class=\"n\">{}</td>", escaped(&figure));
        }
        let _ = writeln!(out, "<td>{}</td></tr>", escaped(&from));
    }
    out.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_terminal_says;
    use wireboot_report::Report;
    use wireboot_report::trace::{Called, Looking};

    fn report() -> Report {
        let called = |service: &str, image: &str, calls, own_s| Called {
            service: service.to_owned(),
            image: image.to_owned(),
            calls,
            own_s: Some(own_s),
        };
        let mut calls = vec![
            called("PciIo.Io.Write", "VirtioPciDeviceDxe", 2563, 0.133_869),
            called("GetTime", "Udp4Dxe", 2049, 0.05),
            called("RaiseTPL", "MnpDxe", 80_000, 0.01),
        ];
        for image in ["DpcDxe", "VirtioNetDxe", "<b>", "Udp4Dxe", ""] {
            calls.push(called("RaiseTPL", image, 500, 0.001));
        }
        let traced = Traced {
            file: "<script>.efi".to_owned(),
            bytes: 1_048_504,
            took_s: 0.4,
            received: 2049,
            sent: 514,
            calls,
            lost: 7,
        };
        let mut report = Report::new();
        report.trace = Some(Trace {
            boot: Some(traced.clone()),
            transfer: Some(traced),
            looking: Some(Looking {
                plain_s: vec![0.40, 0.5],
                counted_s: vec![0.41],
                timed_s: vec![0.44],
                counting_work: None,
                timing_work: Some(PacketWork {
                    plain: 1000,
                    looked: 1234,
                }),
            }),
        });
        report
    }

    #[test]
    fn the_terminal_has_80_columns_and_answers() {
        let said = [
            "time of day 1.00, keyboard 0.00, doorbells 1.25",
            "variables read 0, written 0",
            "counting +2 %, timing +10 % of the transfer, the fastest of 2 runs each; timing +23.4 % of a packet's work",
            "7 calls had no room",
            "PciIo.Io.Write 2563 1.25 65.3 33.5 VirtioPciDeviceDxe",
        ];
        assert_terminal_says(&report(), &said);
    }

    #[test]
    fn a_strangers_names_are_no_elements() {
        let page = crate::html::page(&report());
        assert!(page.contains("What the firmware called"));
        for wrong in ["<script>.efi", "<b>"] {
            assert!(!page.contains(wrong), "{wrong}");
        }
    }
}
