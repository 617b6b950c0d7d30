//! A report as one page for a browser: no network, light and dark.

use std::fmt::Write;

use wireboot_report::network::{Outcome, Transfer};
use wireboot_report::{Ladder, Memory, Network, Phase, PhaseKind, Profile, Report, Surroundings};

use crate::escaped::escaped;
use crate::text::{merged, outcome};
use crate::{
    against, chart, fleet, ladder as of_ladder, memory as of_memory, modules as of_modules,
    servers as of_servers,
};

/// Rows of a table, and of the drawing, at most: the page stays below a megabyte.
const ROWS: usize = 400;
/// Machines of a fleet's page.
const FLEET: usize = 2000;
/// Boot options at most, each with a drawing of its own.
const DRY_BOOTS: usize = 16;
/// Characters of a drawing's line that there is room for.
const LABEL: usize = 51;
/// The report itself is in the page while it is shorter than this.
const LONGEST_JSON: usize = 600_000;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --faint: #8884; --bar: #2a6fb0; --wait: #c8552b; --quiet: #9998; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #161616; --bar: #6db0ee; --wait: #ef8c63; } }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.3em; } h2 { font-size: 1.1em; margin-top: 2em; } p.verdict { font-size: 1.2em; }
table { border-collapse: collapse; width: 100%; font-size: .85em; } td, th { text-align: left; padding: .2em .6em; border-bottom: 1px solid var(--faint); vertical-align: top; }
td { overflow-wrap: anywhere; min-width: 6em; } .n { text-align: right; } td.n { white-space: nowrap; min-width: 0; font-variant-numeric: tabular-nums; }
section { border-left: 4px solid var(--wait); padding-left: 1em; margin: 1.2em 0; } section h3 { margin: 0; font-size: 1em; } code { font-size: .9em; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 11px system-ui, sans-serif; } .bar { fill: var(--bar); } .wait { fill: var(--wait); } .quiet { fill: var(--quiet); } .grid { stroke: var(--faint); } .line { fill: none; stroke: var(--bar); stroke-width: 2; } .other { stroke: var(--wait); }
";

/// The page of a report.
pub(crate) fn page(report: &Report) -> String {
    let mut out = begun(&format!("Network boot of {}", report.machine.mac));
    body(&mut out, report);
    let json = report.to_json();
    if json.len() <= LONGEST_JSON {
        // Neither the end of the element nor a comment's beginning may stand in it.
        let json = json.replace('<', "\\u003c");
        let _ = writeln!(
            out,
            "<script type=\"application/json\" id=\"report\">\n{json}\n</script>"
        );
    }
    ended(out)
}

/// The page of two reports beside each other.
pub(crate) fn pair(names: [&str; 2], reports: [&Report; 2]) -> String {
    let [one, other] = names.map(escaped);
    let mut out = begun(&format!("Network boots: {} and {}", names[0], names[1]));
    let _ = writeln!(
        out,
        "<h1>{one} and {other}</h1>\n<table><tr><th></th><th class=\"n\">{one}</th><th class=\"n\">{other}</th></tr>"
    );
    for (what, figures) in against::rows(reports) {
        let [first, second] = figures.map(|figure| escaped(&figure));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{first}</td><td class=\"n\">{second}</td></tr>",
            escaped(&what)
        );
    }
    out.push_str("</table>\n");
    for report in reports {
        body(&mut out, report);
    }
    ended(out)
}

/// The page of many machines.
pub(crate) fn fleet(reports: &[Report]) -> String {
    let (machines, median) = fleet::sorted(reports);
    let longest = machines.first().and_then(|one| one.seconds);
    let longest = longest.unwrap_or(1.0).max(1e-6);
    let mut out = begun("Network boots");
    let _ = writeln!(
        out,
        "<h1>{} network boots</h1>\n<p class=\"verdict\">Median {} s.</p>\n\
         <table><tr><th>machine</th><th class=\"n\">s</th><th></th><th>of them</th></tr>",
        fleet::boots(&machines),
        fleet::seconds(median)
    );
    for machine in machines.iter().take(FLEET) {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td style=\"width:40%\"><svg viewBox=\"0 0 100 4\" preserveAspectRatio=\"none\">\
             <rect class=\"{}\" width=\"{:.1}\" height=\"4\"/></svg></td><td>{}</td></tr>",
            escaped(&machine.report.machine.mac),
            fleet::seconds(machine.seconds),
            if machine.outlier { "wait" } else { "bar" },
            machine.seconds.unwrap_or_default() / longest * 100.0,
            escaped(&machine.causes())
        );
    }
    out.push_str("</table>\n");
    if let Some(more) = machines.len().checked_sub(FLEET).filter(|more| *more > 0) {
        let _ = writeln!(out, "<p>{more} more were faster, or not looked at.</p>");
    }
    groups(&mut out, &machines);
    ended(out)
}

/// What machines have in common: how long each group takes, and who in it takes longer.
fn groups(out: &mut String, machines: &[fleet::Machine<'_>]) {
    let groups = fleet::groups(machines);
    if groups.is_empty() {
        return;
    }
    out.push_str(
        "<h2>By model, firmware and switch</h2>\n<table><tr><th>by</th><th></th><th class=\"n\">boots</th><th class=\"n\">median, s</th><th>outliers in it</th></tr>\n",
    );
    for group in groups.iter().take(FLEET) {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            group.what,
            escaped(group.name),
            group.count,
            fleet::seconds(group.median_s),
            escaped(&group.outliers())
        );
    }
    out.push_str("</table>\n");
}

fn begun(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{}</title><style>{STYLE}</style></head><body>\n",
        escaped(title)
    )
}

fn ended(mut page: String) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(
        page,
        "<p><small>wireboot {version}</small></p>\n</body></html>"
    );
    page
}

/// All of a report but its JSON.
fn body(out: &mut String, report: &Report) {
    let mac = escaped(&report.machine.mac);
    let class = escaped(report.machine.vendor_class.as_deref().unwrap_or_default());
    let _ = write!(
        out,
        "<h1>Network boot of {mac} {class}</h1>\n<p class=\"verdict\">{}</p>\n",
        escaped(&wireboot_diagnosis::verdict(report))
    );
    if let Some(neighbour) = report.neighbour() {
        let _ = writeln!(out, "<p>At {}</p>", escaped(&neighbour.to_string()));
    }
    chart::seconds(out, report);
    findings(out, report);
    for remark in report.remarks() {
        let _ = writeln!(out, "<p>{}</p>", escaped(&remark));
    }
    if !report.timeline.is_empty() {
        out.push_str("<h2>What happened when</h2>\n");
        drawing(out, &report.timeline, report.network.span_s);
    }
    transfers(out, &report.network.transfers);
    offers(out, &report.network);
    if let Some(heard) = &report.surroundings {
        surroundings(out, heard);
    }
    if !report.servers.is_empty() {
        out.push_str("<h2>Boot servers</h2>\n");
        table(out, of_servers::HEADS, of_servers::rows(report));
    }
    dry_boots(out, report);
    let mut modules = of_modules::rows(report).peekable();
    if modules.peek().is_some() {
        out.push_str("<h2>The firmware's modules</h2>\n");
        table(out, of_modules::HEADS, modules);
    }
    costs(out, report);
    if let Some(memory) = &report.memory {
        self::memory(out, memory);
    }
    if let Some(ladder) = &report.ladder {
        self::ladder(out, ladder);
    }
    if let Some(trace) = &report.trace {
        crate::trace::html(out, trace);
    }
    throughput(out, report);
    crate::sweep::html(out, &report.sweep);
    if let Some(profile) = &report.profile {
        self::profile(out, profile);
    }
}

/// What was heard without a boot.
fn surroundings(out: &mut String, heard: &Surroundings) {
    let _ = writeln!(
        out,
        "<h2>The network</h2>\n<p>Heard in {:.1} s, {} packets.</p>\n<table><tr><th>heard</th><th></th><th class=\"n\">at, s</th></tr>",
        heard.listened_s, heard.packets
    );
    for row in crate::text::heard_rows(heard).iter().take(ROWS) {
        let [what, said, at] = row.each_ref().map(|cell| escaped(cell));
        let _ = writeln!(
            out,
            "<tr><td>{what}</td><td>{said}</td><td class=\"n\">{at}</td></tr>"
        );
    }
    out.push_str("</table>\n");
}

/// A bar for each image that the processor was in.
fn profile(out: &mut String, profile: &Profile) {
    let _ = writeln!(
        out,
        "<h2>Where the processor was</h2>\n<p>{} samples, while the firmware fetched {} by TFTP, {} times; {}.</p>\n\
         <table><tr><th>program</th><th class=\"n\">%</th><th></th></tr>",
        profile.samples,
        escaped(&profile.file),
        profile.turns,
        crate::text::how_sampled(profile)
    );
    for image in profile.images.iter().take(ROWS) {
        let percent = profile.share(image) * 100.0;
        let name = if image.name.is_empty() {
            "no image"
        } else {
            &image.name
        };
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{percent:.1}</td><td style=\"width:50%\">{}</td></tr>",
            escaped(name),
            bar(percent)
        );
    }
    out.push_str("</table>\n");
}

fn costs(out: &mut String, report: &Report) {
    if !report.costs.is_empty() {
        out.push_str("<h2>What services cost</h2>\n");
        let rows = report.costs.iter().map(crate::costs::row);
        table(out, crate::costs::HEADS, rows);
    }
    for sentence in crate::costs::sentences(report) {
        let _ = writeln!(out, "<p>{sentence}</p>");
    }
}

/// What memory is, how fast, and what a frame costs in it.
fn memory(out: &mut String, memory: &Memory) {
    out.push_str("<h2>Memory</h2>\n");
    table(out, of_memory::TYPES, of_memory::types(memory));
    table(out, of_memory::RATES, of_memory::rates(memory));
    table(out, of_memory::WAYS, of_memory::ways(memory));
    for sentence in of_memory::sentences(memory) {
        let _ = writeln!(out, "<p>{}</p>", escaped(&sentence));
    }
}

/// What came through at each height, with a bar for each.
fn ladder(out: &mut String, ladder: &Ladder) {
    let sentence = of_ladder::sentence(ladder);
    let _ = writeln!(out, "<h2>The ladder</h2>\n<p>{}</p>", escaped(&sentence));
    table(out, of_ladder::HEADS, of_ladder::rows(ladder));
    let most = ladder
        .rungs
        .iter()
        .map(|rung| rung.mbit_s)
        .fold(1.0, f64::max);
    let _ = writeln!(
        out,
        "<table><tr><th>full frames</th><th class=\"n\">Mbit/s</th><th></th></tr>"
    );
    for rung in ladder.rungs.iter().filter(|rung| rung.full).take(ROWS) {
        let percent = rung.mbit_s / most * 100.0;
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{:.0}</td><td style=\"width:60%\">{}</td></tr>",
            escaped(&rung.what),
            rung.mbit_s,
            bar(percent)
        );
    }
    out.push_str("</table>\n");
}

/// A bar of so many percent.
fn bar(percent: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 100 4\" preserveAspectRatio=\"none\"><rect class=\"bar\" width=\"{percent:.1}\" height=\"4\"/></svg>"
    )
}

/// A table. Columns of figures stand to the right, heads and all.
fn table<const N: usize>(
    out: &mut String,
    heads: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let rows: Vec<_> = rows.take(ROWS).collect();
    let mut classes = [" class=\"n\""; N];
    for row in &rows {
        for (class, cell) in classes.iter_mut().zip(row) {
            if cell.contains(|letter: char| letter.is_alphabetic()) {
                *class = "";
            }
        }
    }
    out.push_str("<table><tr>");
    for (head, class) in heads.iter().zip(classes) {
        let _ = write!(out, "<th{class}>{head}</th>");
    }
    out.push_str("</tr>\n");
    for row in &rows {
        out.push_str("<tr>");
        for (cell, class) in row.iter().zip(classes) {
            let _ = write!(out, "<td{class}>{}</td>", escaped(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

fn throughput(out: &mut String, report: &Report) {
    if report.throughput.is_empty() {
        return;
    }
    out.push_str("<h2>Throughput</h2>\n");
    let rows = report.throughput.iter().map(crate::throughput::row);
    table(out, crate::throughput::HEADS, rows);
    chart::messages(out, &report.throughput);
    for fit in crate::throughput::fits(&report.throughput) {
        let _ = writeln!(out, "<p>{fit}</p>");
    }
}

/// The boot options that were loaded and not started, and what each went through.
fn dry_boots(out: &mut String, report: &Report) {
    if report.dry_boots.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Boot options, loaded and not started</h2>\n<table><tr><th>option</th><th class=\"n\">s</th><th class=\"n\">spread, s</th><th class=\"n\">runs</th><th class=\"n\">packets</th><th></th></tr>\n",
    );
    let boots = report.dry_boots.iter().take(DRY_BOOTS);
    for boot in boots.clone() {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{:.2}</td><td class=\"n\">{:.2}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escaped(&boot.option),
            boot.mean_s(),
            boot.spread_s(),
            boot.runs_s.len(),
            boot.packets,
            escaped(&outcome(boot))
        );
    }
    out.push_str("</table>\n");
    for boot in boots.filter(|boot| !boot.timeline.is_empty()) {
        let _ = writeln!(out, "<h3>{}</h3>", escaped(&boot.option));
        drawing(out, &boot.timeline, boot.last_s());
        transfers(out, &boot.network.transfers);
        offers(out, &boot.network);
    }
}

fn findings(out: &mut String, report: &Report) {
    for finding in &report.findings {
        let _ = write!(out, "<section><h3>{}", escaped(&finding.label));
        if finding.seconds > 0.0 {
            let _ = write!(out, ": {:.1} s", finding.seconds);
            if let Some(left) = finding.expected_s {
                let _ = write!(out, ", {left:.1} s when changed");
            }
        }
        let _ = write!(out, "</h3>\n<p>{}</p>\n<ul>", escaped(&finding.evidence));
        for advice in &finding.advice {
            let _ = write!(out, "<li>{}</li>", code(&escaped(advice)));
        }
        let _ = writeln!(
            out,
            "</ul>\n<p><small>{}</small></p></section>",
            escaped(&finding.doc)
        );
    }
}

/// Text between backquotes as code.
fn code(escaped: &str) -> String {
    let mut out = String::new();
    for (place, part) in escaped.split('`').enumerate() {
        out.push_str(match (place, place % 2) {
            (0, _) => "",
            (_, 1) => "<code>",
            _ => "</code>",
        });
        out.push_str(part);
    }
    if escaped.matches('`').count() % 2 == 1 {
        out.push_str("</code>");
    }
    out
}

/// A bar for each phase, below each other.
fn drawing(out: &mut String, timeline: &[Phase], span_s: f64) {
    const WIDTH: f64 = 900.0;
    const LEFT: f64 = 330.0;
    const LINE: f64 = 18.0;
    const TOP: f64 = 22.0;
    let rows = merged(timeline);
    let rows = rows.get(..ROWS).unwrap_or(&rows);
    let end = rows
        .iter()
        .map(|row| row.phase.end_s)
        .fold(span_s, f64::max)
        .max(1e-6);
    let x = |at: f64| LEFT + at / end * (WIDTH - LEFT);
    let height = TOP + LINE * rows.len() as f64 + 4.0;
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"timeline\">"
    );
    let step = step(end);
    let marks = (0_u16..).map(|count| f64::from(count) * step);
    for mark in marks.take_while(|mark| *mark <= end) {
        let at = x(mark);
        // Tenths added up are not tenths.
        let mark = (mark * 1e6).round() / 1e6;
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{height}\"/><text x=\"{at:.1}\" y=\"14\" text-anchor=\"middle\">{mark} s</text>"
        );
    }
    for (row, line) in rows.iter().zip(0_u16..) {
        let y = TOP + LINE * f64::from(line);
        let class = match row.phase.kind {
            PhaseKind::Quiet => "quiet",
            PhaseKind::Transfer
            | PhaseKind::SizeProbe
            | PhaseKind::DhcpRequest
            | PhaseKind::Dhcpv6 => "bar",
            _ => "wait",
        };
        let (from, to) = (x(row.phase.start_s), x(row.phase.end_s));
        let text = row.text();
        let short = match text.char_indices().nth(LABEL) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text.clone(),
        };
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\"><title>{}: {:.3} s at {:.3} s</title></rect>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + 2.0,
            (to - from).max(1.0),
            escaped(&text),
            row.phase.seconds(),
            row.phase.start_s,
            LEFT - 8.0,
            y + 12.0,
            escaped(&short)
        );
    }
    out.push_str("</svg>\n");
}

/// Seconds between two marks: five to ten of them.
fn step(end: f64) -> f64 {
    let decade = 10_f64.powf((end / 5.0).log10().floor());
    let fits = [1.0, 2.0, 5.0, 10.0].map(|times| times * decade);
    fits.into_iter()
        .rfind(|step| end / step >= 5.0)
        .unwrap_or(decade)
}

fn transfers(out: &mut String, transfers: &[Transfer]) {
    if transfers.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Files</h2>\n<table><tr><th class=\"n\">at, s</th><th class=\"n\">took, s</th><th>file</th><th>from</th><th class=\"n\">bytes</th><th class=\"n\">Mbit/s</th><th class=\"n\">block x window</th>\
         <th class=\"n\">waits: server, machine, s</th><th class=\"n\">again</th><th>end</th></tr>\n",
    );
    for one in transfers.iter().take(ROWS) {
        let rate = one.bytes as f64 * 8e-6 / one.seconds().max(1e-6);
        let end = match one.outcome {
            Outcome::Complete => "complete",
            Outcome::SizeProbe => "size only",
            Outcome::Refused => "refused",
            Outcome::BrokenOff => "broken off",
            Outcome::Unfinished | Outcome::Other => "unfinished",
        };
        let _ = writeln!(
            out,
            "<tr><td class=\"n\">{:.2}</td><td class=\"n\">{:.2}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{rate:.0}</td>\
             <td class=\"n\">{} x {}</td><td class=\"n\">{:.2}, {:.2}</td><td class=\"n\">{}</td><td>{end} {}</td></tr>",
            one.start_s,
            one.seconds(),
            escaped(&one.file),
            escaped(&one.server),
            one.bytes,
            one.block_bytes,
            one.window_blocks.max(1),
            one.server_wait_s,
            one.client_wait_s,
            one.repeated,
            escaped(one.message.as_deref().unwrap_or_default())
        );
    }
    out.push_str("</table>\n");
    if let Some(more) = transfers.len().checked_sub(ROWS).filter(|more| *more > 0) {
        let _ = writeln!(out, "<p>{more} more are in the JSON.</p>");
    }
}

fn offers(out: &mut String, network: &Network) {
    let conversations = network.dhcp.iter();
    let offers: Vec<_> = conversations
        .flat_map(|one| &one.offers)
        .take(ROWS)
        .collect();
    let answers = network.dhcpv6.iter().flat_map(|one| &one.answers);
    for answer in answers.take(ROWS) {
        let said = escaped(&crate::text::answered(answer));
        let _ = writeln!(out, "<p>DHCPv6 at {:.3} s: {said}</p>", answer.at_s);
    }
    if offers.is_empty() {
        return;
    }
    out.push_str("<h2>Offers</h2>\n<table><tr><th class=\"n\">at, s</th><th>server</th><th>address</th><th>boot file</th></tr>\n");
    for offer in offers {
        let _ = writeln!(
            out,
            "<tr><td class=\"n\">{:.3}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            offer.at_s,
            escaped(&offer.server),
            escaped(
                offer
                    .address
                    .as_deref()
                    .unwrap_or("none: a proxyDHCP server")
            ),
            escaped(offer.boot_file.as_deref().unwrap_or_default())
        );
    }
    out.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_boot_has_a_row_without_seconds() {
        let boot = |mac: &str, span_s| {
            let mut report = Report::new();
            report.machine.mac = mac.to_owned();
            report.network.span_s = span_s;
            report
        };
        let page = fleet(&[boot("a", 0.0), boot("b", 8.0)]);
        assert!(page.contains("<h1>1 network boots</h1>"), "{page}");
        assert!(page.contains("Median 8.0 s."), "{page}");
        let row = r#"<tr><td>a</td><td class="n">-</td>"#;
        assert!(
            page.contains(row) && page.contains(r#"width="0.0""#),
            "{page}"
        );
    }

    #[test]
    fn figures_stand_to_the_right_and_words_do_not() {
        let rows = [["ring", "write-back", "12.5"], ["BAR", "uncached", "-"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let mut page = String::new();
        table(&mut page, ["memory", "type", "MB/s"], rows.into_iter());
        let lines: Vec<_> = page.lines().collect();
        assert_eq!(
            lines,
            [
                r#"<table><tr><th>memory</th><th>type</th><th class="n">MB/s</th></tr>"#,
                r#"<tr><td>ring</td><td>write-back</td><td class="n">12.5</td></tr>"#,
                r#"<tr><td>BAR</td><td>uncached</td><td class="n">-</td></tr>"#,
                "</table>",
            ]
        );
    }
}
