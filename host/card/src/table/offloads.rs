//! The receive offloads side by side.

use wireboot_card::coalesce::Limits;
use wireboot_card::model::Arrival;
use wireboot_card::model::receive::{Outcome, ReceivingCard, receive};
use wireboot_card::model::receive_offload::BUFFER;
use wireboot_card::model::traffic::{Frames, Mix, flows};
use wireboot_card::model::{Line, Picos, ReceiveOffload, Throughput};

use super::runs::TRANSFER;
use super::sheet::{Cell, Sheet};
use super::subject::Subject;

/// Frames of a run with an MTU of 1500 bytes.
const FRAMES: u32 = 40_000;
/// How long the card gathers.
const TIMER: u64 = 500;
const SEED: u64 = 1;
/// Of the line's time.
const PERCENT: u32 = 90;
/// Bytes of frames that the card holds: a datagram of each of 8 flows, and as many that are whole and wait.
const MEMORY: usize = 16 * TRANSFER;

/// What comes: its name, flows, payload of a frame, frames lost of a million.
const TRAFFIC: [(&str, u32, u32, u32); 6] = [
    ("one flow", 1, 1500, 0),
    ("8 flows mixed", 8, 1500, 0),
    ("8 flows, 64 bytes", 8, 46, 0),
    ("0.01 % lost", 1, 1500, 100),
    ("0.1 % lost", 1, 1500, 1000),
    ("1 % lost", 1, 1500, 10_000),
];

const JUMBO: u32 = 9000;

pub(super) fn sheet(subject: &Subject) -> Sheet {
    let mut sheet = Sheet::new(
        "offloads",
        format!(
            "Ways to receive, {}, {PERCENT} % of the line's time; for 1 MB of data",
            subject.title()
        ),
        &[
            ("way", "way"),
            ("transfers", "transfers"),
            ("buffers", "buffers"),
            ("headers", "headers"),
            ("copied_percent", "copied"),
            ("median_us", "median"),
            ("worst_us", "worst"),
            ("bus_percent", "bus"),
            ("mbit_s", "Mbit/s"),
            ("not_taken_percent", ""),
            ("traffic", ""),
        ],
    );
    for (traffic, count, payload, loss) in TRAFFIC {
        let line = Line {
            loss,
            mtu: JUMBO,
            ..subject.line
        };
        sheet.group(traffic);
        let mix = |of, frames| Mix {
            flows: count,
            of,
            frames,
            percent: PERCENT,
        };
        let segments = flows(line, mix(Frames::Segments(payload), FRAMES), SEED);
        for offload in ReceiveOffload::ALL {
            let name = match offload {
                ReceiveOffload::Single => "  single",
                ReceiveOffload::Segments => "  segments",
                ReceiveOffload::Datagrams => "  datagrams",
                ReceiveOffload::Chunks => "  chunks",
                ReceiveOffload::Placement => "  placement",
            };
            if offload != ReceiveOffload::Datagrams {
                row(&mut sheet, subject, traffic, name, offload, &segments);
            } else if payload == 1500 {
                let fragments = flows(line, mix(Frames::Fragments, FRAMES), SEED);
                row(&mut sheet, subject, traffic, name, offload, &fragments);
            }
        }
        if payload == 1500 {
            let frames = flows(line, mix(Frames::Segments(JUMBO), FRAMES / 6), SEED);
            row(
                &mut sheet,
                subject,
                traffic,
                "  MTU 9000",
                ReceiveOffload::Single,
                &frames,
            );
        }
    }
    sheet.notes([
        format!(
            "buffers: of the host, {BUFFER} bytes each, for chunks and placed headers 64 KB. headers: what its protocols look at. copied: % of the data, \
             by the host. median, worst: us from a frame's arrival until the host has it. bus: % of the time that it is busy. Up to 64 KB go \
             together, or what came in {TIMER} us; where a run of {FRAMES} frames is shorter, there is no rate. The card holds {} KB; what it does not take is a gap.",
            MEMORY / 1024
        ),
        "% lost: of one flow's frames. Data: TCP's payload; in datagrams, UDP's, of 65507 bytes. What is lost does not come again, and no sender slows down: a real one does. \
         placement: in each flow; two transfers, and an ordinary one behind a gap."
            .to_owned(),
        "Where chunks lose: they leave each frame's header and copy to the host, and headers cross the bus, which small frames feel. Segments and \
         datagrams take off the headers, placement the copy."
            .to_owned(),
    ]);
    sheet.notes(subject.note());
    sheet
}

fn row(
    sheet: &mut Sheet,
    subject: &Subject,
    traffic: &str,
    name: &str,
    offload: ReceiveOffload,
    arrivals: &[Arrival],
) {
    let card = ReceivingCard {
        bus: subject.bus,
        offload,
        limits: Limits {
            frames: usize::MAX,
            bytes: TRANSFER,
            wait: Picos::micros(TIMER),
        },
        memory: MEMORY,
    };
    let outcome = receive(&card, arrivals);
    let Outcome {
        cost, latencies, ..
    } = &outcome;
    let each_mb = |number: u64| {
        let number = number as f64 * 1e6 / outcome.data.max(1) as f64;
        Cell::rounded(Some(number), usize::from(number < 1000.0))
    };
    let percent = |part: u64, whole: u64, digits: usize| {
        let percent = part as f64 * 100.0 / whole.max(1) as f64;
        Cell::figure(format!("{percent:.digits$}"))
    };
    let not_taken = outcome.dropped + outcome.given_up;
    let last = arrivals.last().map_or(0, |frame| frame.at.get());
    // Nothing where the run is shorter than the gathering.
    let came = Some(outcome.throughput).filter(|came| *came > Throughput::NONE);
    sheet.row(vec![
        Cell::words(name),
        each_mb(cost.transfers),
        each_mb(cost.buffers),
        each_mb(cost.headers),
        percent(cost.copied, outcome.data, 1),
        Cell::rounded(latencies.median(), 1),
        Cell::rounded(latencies.worst(), 1),
        percent(cost.time.get().min(last), last, 1),
        Cell::rounded(came, 1),
        percent(not_taken, arrivals.len() as u64, 2),
        Cell::words(traffic),
    ]);
}
