//! A report on a terminal of 80 columns.

use std::fmt::Write;

use crate::{
    costs as services, ladder as of_ladder, memory as of_memory, modules as of_modules,
    servers as of_servers, throughput,
};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};
use wireboot_report::network::{Dhcpv6Answer, Router};
use wireboot_report::{DryBoot, Finding, Memory, Phase, PhaseKind, Profile, Report, Surroundings};

/// Columns of a terminal.
const COLUMNS: u16 = 80;
/// Columns of the drawing of when things happened.
const DRAWN: usize = 24;
/// So many spans are all shown; of more, those below this part of the whole are left out.
const ROWS: usize = 30;
const SHOWN: f64 = 0.002;

/// The report as text: the verdict, the findings, what happened when.
pub fn shown(report: &Report) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    if !machine.mac.is_empty() {
        let class = machine.vendor_class.as_deref().unwrap_or("no vendor class");
        let _ = writeln!(out, "{} ({class})", machine.mac);
    }
    if let Some(neighbour) = report.neighbour() {
        let _ = writeln!(out, "{}", wrapped(&format!("at {neighbour}")));
    }
    let _ = writeln!(out, "{}", wrapped(&wireboot_diagnosis::verdict(report)));
    for (finding, number) in report.findings.iter().zip(1..) {
        out.push('\n');
        self::finding(&mut out, number, finding);
    }
    for remark in report.remarks() {
        let _ = writeln!(out, "\n{}", wrapped(&remark));
    }
    if !report.timeline.is_empty() {
        out.push('\n');
        timeline(&mut out, &report.timeline, report.network.span_s);
    }
    modules(&mut out, report);
    if let Some(heard) = &report.surroundings {
        out.push('\n');
        surroundings(&mut out, heard);
    }
    servers(&mut out, report);
    dry_boots(&mut out, report);
    costs(&mut out, report);
    if let Some(memory) = &report.memory {
        out.push('\n');
        self::memory(&mut out, memory);
    }
    if let Some(ladder) = &report.ladder {
        out.push('\n');
        numbers(&mut out, of_ladder::HEADS, of_ladder::rows(ladder));
        let _ = writeln!(out, "{}", wrapped(&of_ladder::sentence(ladder)));
    }
    if let Some(trace) = &report.trace {
        out.push('\n');
        crate::trace::text(&mut out, trace, wrapped);
    }
    if !report.throughput.is_empty() {
        out.push('\n');
        throughput(&mut out, report);
    }
    if !report.sweep.is_empty() {
        out.push('\n');
        crate::sweep::text(&mut out, &report.sweep, wrapped);
    }
    if let Some(profile) = &report.profile {
        out.push('\n');
        self::profile(&mut out, profile);
    }
    out
}

/// What was heard without a boot: who offered what when, who told of itself, how far others are.
fn surroundings(out: &mut String, heard: &Surroundings) {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["heard", "", "at, s"]);
    for [what, said, at] in heard_rows(heard) {
        table.add_row([what, said, at]);
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    lines(out, &table);
}

/// The boot servers that were asked without a boot.
fn servers(out: &mut String, report: &Report) {
    if report.servers.is_empty() {
        return;
    }
    out.push('\n');
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(of_servers::HEADS)
        .add_rows(of_servers::rows(report));
    lines(out, &table);
}

/// Rows of what was heard: what, from whom, when first.
pub(crate) fn heard_rows(heard: &Surroundings) -> Vec<[String; 3]> {
    let at = |seconds: f64| format!("{seconds:.2}");
    let network = &heard.network;
    let mut rows = Vec::new();
    let mut row = |what: &str, said: String, when: String| rows.push([what.to_owned(), said, when]);
    let link = match heard.link_after_s {
        Some(after) => {
            let speed = heard.link_mbit_s.map(|speed| format!("{speed} Mbit/s"));
            let speed = speed.unwrap_or_else(|| "speed not told".to_owned());
            format!("up {after:.2} s after the card's start, {speed}")
        }
        None => "none".to_owned(),
    };
    row("link", link, String::new());
    if let Some(link) = &heard.pcie {
        let said = format!("{} lanes at {} GT/s", link.lanes, link.gt_per_s);
        row("PCI Express", said, String::new());
    }
    if let Some(neighbour) = &network.neighbour {
        row("switch", neighbour.to_string(), at(neighbour.first_s));
    }
    if let Some(tree) = &network.spanning_tree {
        row("spanning tree", tree.bridge.clone(), at(tree.first_s));
    }
    if let Some(lacp) = &network.lacp {
        let waits = if lacp.waits { ", which waits" } else { "" };
        let said = format!("{}, group {}{waits}", lacp.system, lacp.key);
        row("LACP", said, at(lacp.first_s));
    }
    for offer in network.dhcp.iter().flat_map(|one| &one.offers) {
        let address = offer.address.as_deref().unwrap_or("no address");
        let file = offer.boot_file.as_deref().unwrap_or("no boot file");
        let said = format!("{}: {address}, {file}", offer.server);
        row("offer", said, at(offer.at_s));
    }
    for router in &network.routers {
        let first = router.advertised_s.first().copied().unwrap_or_default();
        row("IPv6 router", routed(router), at(first));
    }
    for answer in network.dhcpv6.iter().flat_map(|one| &one.answers) {
        row("DHCPv6", answered(answer), at(answer.at_s));
    }
    for one in &heard.round_trips {
        let fastest = one.took_us.iter().min();
        let answers = one.took_us.len();
        let said = match fastest {
            Some(took) => format!("{took} µs and longer; {answers} of {} answers", one.asked),
            None => "no answer".to_owned(),
        };
        row(
            &format!("{} {}", one.what, one.address),
            said,
            String::new(),
        );
    }
    rows
}

/// What an IPv6 router says.
fn routed(router: &Router) -> String {
    let addresses = match (router.managed, router.other) {
        (true, _) => "addresses by DHCPv6",
        (false, true) => "boot file by DHCPv6, no addresses",
        (false, false) => "nothing by DHCPv6",
    };
    let default = match router.lifetime_s {
        0 => ", no default router",
        _ => "",
    };
    format!(
        "{}: {addresses}{default}; {}{} advertisements",
        router.address,
        delayed(router.delay_s),
        router.advertised_s.len()
    )
}

/// A server's message by DHCPv6.
pub(crate) fn answered(answer: &Dhcpv6Answer) -> String {
    let address = answer.address.as_deref().unwrap_or("no address");
    let file = answer.boot_file.as_deref().unwrap_or("no boot file");
    format!(
        "{}, {}: {address}, {file}; {}preference {}",
        answer.kind,
        answer.server,
        delayed(answer.delay_s),
        answer.preference
    )
}

fn delayed(delay_s: Option<f64>) -> String {
    delay_s.map_or_else(String::new, |delay| {
        format!("{delay:.3} s after the question, ")
    })
}

/// `25.0 % of them with interrupts off, 3 missed`.
pub(crate) fn how_sampled(profile: &Profile) -> String {
    if profile.by_timer {
        return format!(
            "{} a second by the firmware's timer: code with interrupts off counts where they come on again",
            profile.hertz
        );
    }
    let off = profile.interrupts_off as f64 * 100.0 / (profile.samples as f64).max(1.0);
    format!(
        "{off:.1} % of them with interrupts off, {} missed",
        profile.missed
    )
}

/// Images of a profile below this share are left out.
const LEAST_SHARE: f64 = 0.005;

fn profile(out: &mut String, profile: &Profile) {
    let percent =
        |part: u64, whole: u64| format!("{:.1} %", part as f64 * 100.0 / (whole as f64).max(1.0));
    let mut cost = profile.overhead().map_or_else(String::new, |part| {
        format!(
            "; looking cost {:.1} % of {:.2} s",
            part * 100.0,
            profile.plain_s
        )
    });
    let of_work = profile.work.and_then(|work| work.overhead());
    if let Some(part) = of_work {
        cost.push_str(&format!("; {:.1} % of a packet's work", part * 100.0));
    }
    let heading = format!(
        "The processor while the firmware fetched {} by TFTP, {} times: {} samples, {}{cost}",
        profile.file,
        profile.turns,
        profile.samples,
        how_sampled(profile)
    );
    let _ = writeln!(out, "{}", wrapped(&heading));
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["share", "", "in", "off there"]);
    let most = profile
        .images
        .iter()
        .map(|image| profile.share(image))
        .fold(1e-9, f64::max);
    for image in profile
        .images
        .iter()
        .filter(|image| profile.share(image) >= LEAST_SHARE)
    {
        let share = profile.share(image);
        let width = (share / most * DRAWN as f64).round() as usize;
        let name = if image.name.is_empty() {
            "no image"
        } else {
            &image.name
        };
        let off = match profile.by_timer {
            true => "-".to_owned(),
            false => percent(image.interrupts_off, image.samples),
        };
        table.add_row([
            format!("{:.1} %", share * 100.0),
            "█".repeat(width.clamp(1, DRAWN)),
            name.to_owned(),
            off,
        ]);
    }
    for column in [0, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(out, &table);
}

/// A table of names and, in all other columns, numbers.
fn numbers<const N: usize>(
    out: &mut String,
    heads: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(heads)
        .add_rows(rows);
    for column in 1..N {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(out, &table);
}

fn modules(out: &mut String, report: &Report) {
    let mut rows = of_modules::rows(report).peekable();
    if rows.peek().is_some() {
        out.push('\n');
        numbers(out, of_modules::HEADS, rows);
    }
}

fn costs(out: &mut String, report: &Report) {
    if !report.costs.is_empty() {
        out.push('\n');
        numbers(out, services::HEADS, report.costs.iter().map(services::row));
    }
    for sentence in services::sentences(report) {
        let _ = writeln!(out, "{}", wrapped(&sentence));
    }
}

fn memory(out: &mut String, memory: &Memory) {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(of_memory::TYPES)
        .add_rows(of_memory::types(memory));
    lines(out, &table);
    if of_memory::rates(memory).next().is_some() {
        out.push('\n');
        numbers(out, of_memory::RATES, of_memory::rates(memory));
    }
    if !memory.receive.is_empty() {
        out.push('\n');
        numbers(out, of_memory::WAYS, of_memory::ways(memory));
    }
    for sentence in of_memory::sentences(memory) {
        let _ = writeln!(out, "{}", wrapped(&sentence));
    }
}

fn throughput(out: &mut String, report: &Report) {
    let rows = report.throughput.iter().map(throughput::row);
    numbers(out, throughput::HEADS, rows);
    for fit in throughput::fits(&report.throughput) {
        let _ = writeln!(out, "{fit}");
    }
}

/// The boot options that were loaded and not started, and what the one went through that a boot would use.
fn dry_boots(out: &mut String, report: &Report) {
    let Some(used) = report.dry_boot() else {
        return;
    };
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["loaded, s", "runs", "packets", "", "boot option"]);
    for boot in &report.dry_boots {
        table.add_row([
            format!("{:.2} ± {:.2}", boot.mean_s(), boot.spread_s()),
            boot.runs_s.len().to_string(),
            boot.packets.to_string(),
            outcome(boot),
            boot.option.clone(),
        ]);
    }
    out.push('\n');
    lines(out, &table);
    if !used.timeline.is_empty() {
        let _ = writeln!(out, "\n{}", used.option);
        timeline(out, &used.timeline, used.last_s());
    }
}

/// What became of a dry boot.
pub(crate) fn outcome(boot: &DryBoot) -> String {
    match (&boot.failure, boot.bytes) {
        (Some(failure), _) => failure.clone(),
        (None, Some(bytes)) => format!("{bytes} bytes"),
        (None, None) => String::new(),
    }
}

fn finding(out: &mut String, number: usize, finding: &Finding) {
    let _ = write!(out, "{number}. {}", finding.label);
    if finding.seconds > 0.0 {
        let _ = write!(out, ": {:.1} s", finding.seconds);
        if let Some(left) = finding.expected_s {
            let _ = write!(out, ", {left:.1} s when changed");
        }
    }
    out.push('\n');
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .add_row(["  seen", &finding.evidence]);
    for (line, advice) in finding.advice.iter().enumerate() {
        table.add_row([if line == 0 { "  change" } else { "" }, advice]);
    }
    table.add_row(["  more", &finding.doc]);
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(10)));
        column.set_padding((0, 1));
    }
    lines(out, &table);
}

fn timeline(out: &mut String, phases: &[Phase], span_s: f64) {
    let span = span_s.max(1e-9);
    let mut rows = merged(phases);
    if rows.len() > ROWS {
        let phases = phases.iter();
        let long = phases.filter(|phase| phase.seconds() >= span * SHOWN);
        rows = merged(&long.cloned().collect::<Vec<_>>());
    }
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["at, s", "took, s", "", "what"]);
    for row in rows {
        table.add_row([
            format!("{:.2}", row.phase.start_s),
            format!("{:.2}", row.phase.seconds()),
            bar(&row.phase, span),
            row.text(),
        ]);
    }
    for column in 0..2 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(out, &table);
}

/// The table's lines without blanks at their ends.
fn lines(out: &mut String, table: &Table) {
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// A text in lines that fit.
fn wrapped(text: &str) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(COLUMNS)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .add_row([text]);
    if let Some(column) = table.column_mut(0) {
        column.set_padding((0, 0));
    }
    let rows: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    rows.join("\n")
}

fn bar(phase: &Phase, span_s: f64) -> String {
    let column = |at: f64| ((at / span_s * DRAWN as f64) as usize).min(DRAWN);
    let start = column(phase.start_s).min(DRAWN - 1);
    let end = column(phase.end_s).max(start + 1);
    let drawn = match phase.kind {
        PhaseKind::Quiet => "·",
        _ => "█",
    };
    format!("{}{}", " ".repeat(start), drawn.repeat(end - start))
}

/// Phases of one kind in a row.
pub(crate) struct PhaseRow {
    pub(crate) phase: Phase,
    pub(crate) count: usize,
}

impl PhaseRow {
    /// The phase in words.
    pub(crate) fn text(&self) -> String {
        let Phase { kind, what, .. } = &self.phase;
        let name = kind_name(*kind);
        match (self.count, what.is_empty()) {
            (_, true) => name.to_owned(),
            (1, false) => format!("{name}: {what}"),
            (count, _) => format!("{name}, {count} times; last {what}"),
        }
    }
}

/// The phases, those of a kind that follow each other as one.
pub(crate) fn merged(timeline: &[Phase]) -> Vec<PhaseRow> {
    let mut rows: Vec<PhaseRow> = Vec::new();
    for phase in timeline {
        match rows.last_mut() {
            // Files are told one by one, unless they came to nothing.
            Some(row) if row.phase.kind == phase.kind && phase.kind != PhaseKind::Transfer => {
                row.phase.end_s = row.phase.end_s.max(phase.end_s);
                row.phase.what.clone_from(&phase.what);
                row.count += 1;
            }
            _ => rows.push(PhaseRow {
                phase: phase.clone(),
                count: 1,
            }),
        }
    }
    rows
}

/// A kind of phase, for people.
pub(crate) fn kind_name(kind: PhaseKind) -> &'static str {
    match kind {
        PhaseKind::DhcpUnanswered => "DHCP, no answer",
        PhaseKind::DhcpOffer => "DHCP, waiting for an offer",
        PhaseKind::OfferWait => "DHCP, waiting with an offer",
        PhaseKind::DhcpRequest => "DHCP, request",
        PhaseKind::BootServer => "boot server",
        PhaseKind::Ipv6Unanswered => "IPv6, no answer",
        PhaseKind::Dhcpv6 => "DHCPv6",
        PhaseKind::Name => "name",
        PhaseKind::SizeProbe => "size of a file",
        PhaseKind::Transfer => "file",
        PhaseKind::Refused => "refused",
        PhaseKind::Card => "network card and link",
        PhaseKind::Address => "addresses",
        PhaseKind::Choice => "what to boot",
        PhaseKind::Quiet => "nothing on the wire",
        PhaseKind::Other => "something newer than this program",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::network::{Dhcp, Dhcpv6, Lacp, Neighbour, Offer, SpanningTree};
    use wireboot_report::trace::PacketWork;
    use wireboot_report::{ProfiledImage, RoundTrip};

    #[test]
    fn what_was_heard_is_told_from_switch_to_round_trip() {
        let mut heard = Surroundings {
            link_after_s: Some(1.5),
            link_mbit_s: Some(2500),
            ..Surroundings::default()
        };
        heard.network.neighbour = Some(Neighbour {
            switch: "leaf-3".to_owned(),
            port: "Eth9".to_owned(),
            first_s: 7.25,
            ..Neighbour::default()
        });
        heard.network.spanning_tree = Some(SpanningTree {
            bridge: "02:00:00:00:00:03".to_owned(),
            ..SpanningTree::default()
        });
        heard.network.lacp = Some(Lacp {
            key: 17,
            waits: true,
            ..Lacp::default()
        });
        heard.network.routers.push(Router {
            address: "fe80::1".to_owned(),
            advertised_s: vec![3.0, 7.0],
            delay_s: Some(0.25),
            lifetime_s: 1800,
            managed: true,
            ..Router::default()
        });
        heard.network.dhcpv6.push(Dhcpv6 {
            answers: vec![Dhcpv6Answer {
                kind: "Advertise".to_owned(),
                server: "fe80::2".to_owned(),
                at_s: 1.5,
                delay_s: Some(0.5),
                preference: 255,
                address: Some("fd00::9".to_owned()),
                boot_file: Some("tftp://[fd00::2]/shimx64.efi".to_owned()),
            }],
            ..Dhcpv6::default()
        });
        heard.network.dhcp.push(Dhcp {
            offers: vec![Offer {
                at_s: 0.125,
                server: "10.0.0.1".to_owned(),
                boot_file: Some("shimx64.efi".to_owned()),
                ..Offer::default()
            }],
            ..Dhcp::default()
        });
        for took_us in [vec![300, 200], vec![]] {
            heard.round_trips.push(RoundTrip {
                what: "router".to_owned(),
                address: "10.0.0.254".to_owned(),
                asked: 2,
                took_us,
            });
        }
        let rows = heard_rows(&heard);
        for wanted in [
            "up 1.50 s after the card's start, 2500 Mbit/s",
            "fe80::1: addresses by DHCPv6; 0.250 s after the question, 2 advertisements",
            "Advertise, fe80::2: fd00::9, tftp://[fd00::2]/shimx64.efi; 0.500 s after the question, preference 255",
        ] {
            assert!(rows.iter().any(|[_, said, _]| said == wanted), "{rows:?}");
        }
        let report = Report {
            surroundings: Some(heard),
            ..Report::new()
        };
        let text = shown(&report);
        for wanted in [
            "at leaf-3, port Eth9, by LLDP",
            "up 1.50 s after",
            "7.25",
            "02:00:00:00:00:03",
            "group 17, which waits",
            "10.0.0.1: no address, shimx64.efi",
            "IPv6 router",
            "200 µs and longer; 2 of 2 answers",
            "no answer",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn a_profile_has_a_bar_for_each_image_that_counts() {
        let image = |name: &str, samples, interrupts_off| ProfiledImage {
            name: name.to_owned(),
            samples,
            interrupts_off,
            ..ProfiledImage::default()
        };
        let report = Report {
            profile: Some(Profile {
                file: "shimx64.efi".to_owned(),
                turns: 4,
                seconds: 0.51,
                plain_s: 0.5,
                work: Some(PacketWork {
                    plain: 1000,
                    looked: 1021,
                }),
                hertz: 1000,
                by_timer: false,
                samples: 2000,
                interrupts_off: 500,
                missed: 3,
                images: vec![
                    image("DxeCore", 1500, 500),
                    image("", 491, 0),
                    image("Rare", 9, 0),
                ],
            }),
            ..Report::new()
        };
        let text = shown(&report);
        let lines: Vec<&str> = text.lines().collect();
        let line = |word: &str| lines.iter().find(|line| line.contains(word)).copied();
        let first = line("DxeCore").unwrap();
        assert!(
            first.contains("75.0 %") && first.contains("33.3 %"),
            "{text}"
        );
        assert_eq!(first.matches('█').count(), DRAWN, "{text}");
        assert_eq!(line("no image").unwrap().matches('█').count(), 8, "{text}");
        assert!(line("Rare").is_none(), "{text}");
        assert!(
            text.replace('\n', " ").contains("25.0 % of them with"),
            "{text}"
        );
        assert!(
            text.replace('\n', " ").contains("2.1 % of a packet's work"),
            "{text}"
        );
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let by_timer = Profile {
            by_timer: true,
            hertz: 97,
            ..report.profile.clone().unwrap()
        };
        assert!(how_sampled(&by_timer).starts_with("97 a second by the firmware's timer"));
        let report = Report {
            profile: Some(by_timer),
            ..Report::new()
        };
        let text = shown(&report);
        let first = text.lines().find(|line| line.contains("DxeCore"));
        assert!(first.unwrap().trim_end().ends_with('-'), "{text}");
    }
}
