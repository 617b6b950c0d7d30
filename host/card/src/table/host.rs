//! What a load makes of the host, by how it learns of frames.

use wireboot_card::coalesce::Limits;
use wireboot_card::model::Picos;
use wireboot_card::model::host::{Costs, Host, Load, Notice};

use super::sheet::{Cell, Sheet};

/// Parameters of ours; the source has none.
const HOST: Host = Host {
    costs: Costs {
        interrupt: Picos::micros(12),
        look: Picos::micros(1),
        packet: Picos::micros(24),
    },
    ring: 256,
    queue: 64,
    burst: 64,
};
const LIMITS: Limits<Picos> = Limits {
    frames: 32,
    bytes: usize::MAX,
    wait: Picos::micros(100),
};
/// Frames of a run.
const FRAMES: u32 = 10_000;

pub(super) fn sheet() -> Sheet {
    let mut sheet = Sheet::new(
        "host",
        "Offered load, and what of it the host works on: in % of what it does when frames cost their work alone",
        &[
            ("offered", "offered"),
            ("interrupts", "interrupts"),
            ("interrupts_median_us", "median"),
            ("polling", "polling"),
            ("polling_median_us", "median"),
            ("coalescing", "coalescing"),
            ("coalescing_median_us", "median"),
        ],
    );
    for offered in (10..=200).step_by(10) {
        let gap = Picos::new(HOST.costs.packet.get() * 100 / offered);
        let mut cells = vec![Cell::figure(offered)];
        for notice in [
            Notice::Interrupts,
            Notice::Polling,
            Notice::Coalescing(LIMITS),
        ] {
            let load = HOST.load(notice, gap, FRAMES);
            cells.push(Cell::figure(format!("{:.1}", worked(&load))));
            cells.push(Cell::rounded(load.latencies.median(), 1));
        }
        sheet.row(cells);
    }
    let Costs {
        interrupt,
        look,
        packet,
    } = HOST.costs;
    sheet.notes([
        format!(
            "The host is made of parameters of ours, the source has none: an interrupt costs {interrupt:.0} us and goes before all other work, a \
             look {look:.0} us, the work on a frame {packet:.0} us; {} frames wait in the card's ring, {} for work behind interrupts; a look takes \
             up to {}. coalescing: an interrupt for {} frames, or after {:.0} us.",
            HOST.ring, HOST.queue, HOST.burst, LIMITS.frames, LIMITS.wait
        ),
        format!(
            "{FRAMES} frames at equal distances, their second half. median: us from a frame's arrival to the end of its work. Where a frame comes \
             each {interrupt:.0} us, interrupts take all of the time."
        ),
    ]);
    sheet
}

/// The part of the time that went into work, in %.
fn worked(load: &Load) -> f64 {
    let work = HOST.costs.packet.times(load.worked);
    work.get() as f64 / load.time.get().max(1) as f64 * 100.0
}
