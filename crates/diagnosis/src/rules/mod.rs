//! The rules, each a function of the report, or of the boot in it.

mod addressing;
mod checkpoints;
mod dry_boots;
mod files;
mod firmware;
mod http;
mod lacp;
mod ladder;
mod machine;
mod memory;
mod servers;
mod services;
mod spanning_tree;
mod trace;
mod transfer;
mod unanswered;
mod unheard;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub(crate) use firmware::is_network_driver;
use wireboot_report::network::Offer;
use wireboot_report::sweep::Cell;
use wireboot_report::{Finding, Network, Phase, Report};

/// Something to look for in a report, and what to say when it is there.
pub(crate) struct Rule {
    /// Its name, the same in all versions, and its section in the documents.
    pub(crate) id: &'static str,
    find: Find,
}

/// What a rule looks at.
enum Find {
    Report(fn(&Report) -> Option<Found>),
    Boot(fn(&Boot<'_>) -> Option<Found>),
}

/// A network boot as its packets show it.
struct Boot<'a> {
    network: &'a Network,
    timeline: &'a [Phase],
    /// What was heard of the same network without a boot.
    heard: Option<&'a Network>,
    /// This is no boot: the machine asked, took nothing, and listened.
    listened: bool,
    /// A file by TFTP in blocks and windows of many sizes, on this machine and network.
    sweep: &'a [Cell],
}

/// More cells than any sweep has. Those behind them, in a stranger's report, are not looked at: each file may look at all.
const MOST_CELLS: usize = 512;

impl<'a> Boot<'a> {
    /// The one in the report: a dry boot, else what was heard without one, else the one that was captured.
    fn of(report: &'a Report) -> Self {
        let heard = report.surroundings.as_ref();
        let sweep = report.sweep.get(..MOST_CELLS).unwrap_or(&report.sweep);
        if let Some(dry) = report.dry_boot() {
            return Self {
                network: &dry.network,
                timeline: &dry.timeline,
                heard: heard.map(|one| &one.network),
                listened: false,
                sweep,
            };
        }
        let (network, timeline) = match heard {
            Some(heard) => (&heard.network, &heard.timeline),
            None => (&report.network, &report.timeline),
        };
        Self {
            network,
            timeline,
            heard: None,
            listened: heard.is_some(),
            sweep,
        }
    }

    /// All offers by DHCP, those to who listened, too.
    fn offers(&self) -> impl Iterator<Item = &'a Offer> + use<'a> {
        let networks = [Some(self.network), self.heard].into_iter().flatten();
        networks
            .flat_map(|one| &one.dhcp)
            .flat_map(|one| &one.offers)
    }
}

/// What a rule has found.
struct Found {
    label: String,
    seconds: f64,
    evidence: String,
    advice: Vec<String>,
    expected_s: Option<f64>,
}

impl Rule {
    /// What it finds in `report`.
    pub(crate) fn examine(&self, report: &Report) -> Option<Finding> {
        let found = match self.find {
            Find::Report(find) => find(report),
            Find::Boot(find) => find(&Boot::of(report)),
        }?;
        Some(Finding {
            id: self.id.into(),
            label: found.label,
            seconds: found.seconds,
            evidence: found.evidence,
            advice: found.advice,
            expected_s: found.expected_s,
            doc: format!("docs/doctor.md#{}", self.id),
        })
    }
}

/// In the order of a boot; findings are sorted by seconds afterwards.
pub(crate) const ALL: &[Rule] = &[
    rule("options-before", checkpoints::options_before),
    rule("connected-disks", checkpoints::connected_disks),
    rule("failing-options", dry_boots::failing_options),
    rule("boot-menu", machine::boot_menu),
    rule("slow-link", machine::slow_link),
    of_boot("spanning-tree", spanning_tree::spanning_tree),
    of_boot("lacp", lacp::lacp),
    of_boot("unanswered", unanswered::unanswered),
    of_boot("ip-version", addressing::ip_version),
    of_boot("late-offer", addressing::late_offer),
    of_boot("offer-wait", addressing::offer_wait),
    of_boot("boot-server", addressing::boot_server),
    of_boot("several-servers", addressing::several_servers),
    of_boot("vendor-options", addressing::vendor_options),
    of_boot("names", addressing::names),
    of_boot("silence", addressing::silence),
    of_boot("no-boot-file", files::no_boot_file),
    of_boot("refused", files::refused),
    of_boot("no-answer", files::no_answer),
    of_boot("slow-answer", files::slow_answer),
    rule("path-mtu", servers::path_mtu),
    rule("path-loss", servers::path_loss),
    of_boot("window", transfer::window),
    of_boot("block-size", transfer::block_size),
    of_boot("fragments", transfer::fragments),
    of_boot("loss", transfer::loss),
    of_boot("slow-server", transfer::slow_server),
    of_boot("slow-machine", transfer::slow_machine),
    of_boot("http-window", http::http_window),
    of_boot("http-reads", http::http_reads),
    rule("pcie", machine::pcie),
    rule("uncached-memory", memory::uncached),
    rule("bounced-dma", memory::bounced),
    rule("slow-driver", ladder::slow_driver),
    rule("time-per-packet", trace::time_per_packet),
    rule("keyboard-per-packet", trace::keyboard_per_packet),
    rule("variables-written", trace::variables_written),
    rule("slow-get-time", services::slow_get_time),
    rule("slow-variables", services::slow_variables),
    rule("slow-console", services::slow_console),
    rule("slow-timer", services::slow_timer),
    rule("stolen-time", services::stolen_time),
    rule("debug-build", firmware::debug_build),
    rule("receivers", firmware::receivers),
    rule("needless-drivers", firmware::needless_drivers),
    rule("no-rng", firmware::no_rng),
];

const fn rule(id: &'static str, find: fn(&Report) -> Option<Found>) -> Rule {
    Rule {
        id,
        find: Find::Report(find),
    }
}

const fn of_boot(id: &'static str, find: fn(&Boot<'_>) -> Option<Found>) -> Rule {
    Rule {
        id,
        find: Find::Boot(find),
    }
}

/// A time as people say it.
fn time(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.1} s")
    } else if seconds >= 0.001 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{:.0} us", seconds * 1e6)
    }
}

/// Names in a row, the first few.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 4;
    let all: Vec<&str> = names.collect();
    let shown = all.iter().take(SHOWN).copied();
    let mut out = shown.collect::<Vec<_>>().join(", ");
    if let Some(more) = all.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        out.push_str(&format!(" and {more} more"));
    }
    out
}

fn advice<const N: usize>(lines: [&str; N]) -> Vec<String> {
    lines.map(|line| line.to_string()).into()
}

/// `1 request`, `2 requests`.
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
