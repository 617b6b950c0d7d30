//! Boot servers and the paths to them, asked without a boot.

use wireboot_report::Report;
use wireboot_report::servers::Path;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Found, advice, count};

/// A path that loses less is healthy, in percent.
const LOST_PERCENT: f64 = 1.0;

/// As many lengths of packets are told.
const SHOWN: usize = 4;

/// The first server whose path is so, and the words for those beside it.
fn first(report: &Report, wanted: fn(&Path) -> bool) -> Option<(&Path, String)> {
    let known = report.servers.iter();
    let known = known.filter_map(|server| Some((server, server.path.as_ref()?)));
    let mut all = known.filter(|(_, path)| wanted(path));
    let (server, path) = all.next()?;
    let others = match all.count() {
        0 => String::new(),
        others => format!(", and {} more like it", count(others, "server")),
    };
    Some((path, format!("{}{others}", server.address)))
}

/// Packets that fit the link vanish on the path.
pub(super) fn path_mtu(report: &Report) -> Option<Found> {
    let (path, who) = first(report, Path::is_black_hole)?;
    let (fits, link) = (path.mtu_bytes?, path.link_mtu_bytes);
    Some(Found {
        label: "long packets that vanish".into(),
        seconds: 0.0,
        evidence: format!(
            "{who}: packets of {fits} bytes come there and back, those of {} do not, and the machine's link carries {link}; nobody on the path says so",
            fits.saturating_add(1)
        ),
        advice: advice([
            "the router before the narrow link has to say ICMP Fragmentation Needed (IPv6: Packet Too Big), and no firewall may drop that",
            "until it does: announce what the path carries, by DHCP's option 26 (dnsmasq: `dhcp-option=26,MTU`) and in router advertisements (radvd: `AdvLinkMTU`)",
            "a tunnel, PPPoE or a VLAN over a switch without long frames is the usual reason; firmware that fetches by TFTP in blocks of 1468 bytes hangs there",
        ]),
        expected_s: None,
    })
}

/// Packets are lost on the path.
pub(super) fn path_loss(report: &Report) -> Option<Found> {
    let (path, who) = first(report, |path| path.lost_percent() >= LOST_PERCENT)?;
    let parts = path.echoes.iter().take(SHOWN).map(|one| {
        format!(
            "{} of {} with {} bytes",
            one.asked.saturating_sub(one.answered),
            one.asked,
            one.packet_bytes
        )
    });
    Some(Found {
        label: "packets lost on the path".into(),
        seconds: 0.0,
        evidence: format!(
            "{who}: echo requests without an answer: {}",
            parts.collect::<Vec<_>>().join(", ")
        ),
        advice: advice([
            "look at the error counters of the switch's port, of the cable and of each link on the way; where long packets are lost more often than short ones, it is a \
             cable or a speed that the two ends have not agreed upon",
            "each lost packet costs TFTP a timer of a second or more: see the finding `loss` for what it cost a boot",
        ]),
        expected_s: None,
    })
}
