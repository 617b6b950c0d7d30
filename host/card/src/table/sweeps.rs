//! What the model gives when one thing is changed at a time.

use wireboot_card::model::receive::{Outcome, receive};
use wireboot_card::model::receive_offload::TCP_IP;
use wireboot_card::model::send::{SendingCard, send};
use wireboot_card::model::traffic::stream;
use wireboot_card::model::{Bus, Line, Picos, Throughput, on_bus};

use super::runs::{MEMORY, PAYLOAD, TRANSFER, behind_the_first, by_formula, gathering};
use super::sheet::{Cell, Sheet};
use super::subject::Subject;

/// Frames in a transfer that are shown, of those from 1 to 43.
const SHOWN: [u32; 9] = [1, 2, 4, 8, 16, 24, 31, 32, 43];
/// Frames in a transfer of 64 KB.
const MOST_OUT: u32 = 43;
const MOST_IN: usize = 42;
/// Frames of a run.
const FRAMES: u32 = 2000;
/// The same where the card's memory has to fill.
const COALESCED: u32 = 6000;

/// Sends: what comes, and what a frame's latency is.
fn sent(bus: Bus, line: Line, payload: u32, fragments: u32) -> (Throughput, Cell, Cell) {
    let transfers = (FRAMES / fragments.max(1)).max(10);
    let sent = send(&SendingCard { bus, fragments }, line, payload, transfers, 0);
    (
        // The first transfers fill the card.
        behind_the_first(&sent.arrivals, 3 * fragments as usize),
        Cell::rounded(sent.latencies.median(), 1),
        Cell::rounded(sent.latencies.worst(), 1),
    )
}

/// Finished frames of so much payload in a transfer, at most; one, if they are longer than that.
fn most(payload: u32) -> u32 {
    (TRANSFER / on_bus(payload)).max(1) as u32
}

pub(super) fn fragments(subject: &Subject) -> Sheet {
    let Subject { bus, line, .. } = *subject;
    let mut sheet = Sheet::new(
        "fragmentation",
        format!(
            "Fragmentation: frames of payload {PAYLOAD} in a transfer, {}, Mbit/s",
            subject.title()
        ),
        &[
            ("frames", "frames"),
            ("bytes", "bytes"),
            ("bus", "bus"),
            ("model", "model"),
            ("virtual_time", "virtual time"),
            ("limit", "limit"),
            ("median_us", "median"),
            ("worst_us", "worst"),
        ],
    );
    for frames in 1..=MOST_OUT {
        let bytes = on_bus(PAYLOAD) * frames as usize;
        let model = by_formula(bus, line, PAYLOAD, frames);
        let (came, median, worst) = sent(bus, line, PAYLOAD, frames);
        let limit = if model < line.limit(PAYLOAD) {
            "bus"
        } else {
            "line"
        };
        sheet.row_if(
            SHOWN.contains(&frames),
            vec![
                Cell::figure(frames),
                Cell::figure(bytes),
                Cell::figure(bus.limit(bytes, bytes)),
                Cell::figure(model),
                Cell::figure(came),
                Cell::words(limit),
                median,
                worst,
            ],
        );
    }
    sheet.note("bus: what it takes of frames. model, virtual time: of payload. median, worst: us from the start of a frame's transfer until it has left the card.");
    sheet.notes(subject.note());
    sheet
}

pub(super) fn coalesced(subject: &Subject) -> Sheet {
    let Subject { bus, line, .. } = *subject;
    let mut sheet = Sheet::new(
        "coalescing",
        format!(
            "Coalescing: frames of payload {PAYLOAD} in a transfer at most, timer in us, {}",
            subject.title()
        ),
        &[
            ("frames", "frames"),
            ("timer_us", "timer"),
            ("full_mbit_s", "Mbit/s"),
            ("full_median_us", "median"),
            ("full_99_us", "99 %"),
            ("full_worst_us", "worst"),
            ("full_dropped", "lost"),
            ("tenth_frames_a_transfer", "together"),
            ("tenth_median_us", "median"),
            ("tenth_99_us", "99 %"),
            ("tenth_worst_us", "worst"),
        ],
    );
    let full = stream(line, PAYLOAD, COALESCED, Picos::ZERO, 0);
    let tenth = stream(line, PAYLOAD, FRAMES, line.frame(PAYLOAD).times(10), 0);
    for frames in 1..=MOST_IN {
        for timer in [0, 10, 50, 100, 200, 500, 1000] {
            let card = gathering(bus, frames, Picos::micros(timer));
            let [full, tenth] = [&full, &tenth].map(|arrivals| receive(&card, arrivals));
            let each = tenth.delivered as f64 / tenth.cost.transfers.max(1) as f64;
            let shown = [1, 8, 32, 42].contains(&frames) && [0, 100, 500, 1000].contains(&timer);
            let mut cells = vec![
                Cell::figure(frames),
                Cell::figure(timer),
                Cell::rounded(Some(full.throughput), 2),
            ];
            cells.extend(latencies(&full));
            cells.push(Cell::figure(full.dropped));
            cells.push(Cell::rounded(Some(each), 1));
            cells.extend(latencies(&tenth));
            sheet.row_if(shown, cells);
        }
    }
    sheet.note(format!(
        "Mbit/s to lost: {COALESCED} frames as fast as the line, their second half, and those lost of all. together to worst: one frame where the line has \
         room for ten; so many go in a transfer. median, 99 %, worst: us from a frame's arrival until the host has it. While a transfer is \
         under way the next one is gathered, whatever the timer says. A card that holds {} KB loses what does not fit.",
        MEMORY / 1024
    ));
    sheet.notes(subject.note());
    sheet
}

fn latencies(outcome: &Outcome) -> [Cell; 3] {
    let times = &outcome.latencies;
    [times.median(), times.percentile_99(), times.worst()].map(|time| Cell::rounded(time, 1))
}

pub(super) fn payloads(subject: &Subject) -> Sheet {
    let mut sheet = Sheet::new(
        "payloads",
        format!("Payload of a frame, {}; Mbit/s of payload", subject.title()),
        &[
            ("payload", "payload"),
            ("line", "line"),
            ("single", "one a transfer"),
            ("chunk", "64 KB a transfer"),
            ("frames", "frames in it"),
        ],
    );
    let line = Line {
        mtu: 9000,
        ..subject.line
    };
    for payload in [
        46, 64, 128, 256, 512, 754, 1010, 1498, 1500, 2000, 3000, 4000, 6000, 9000,
    ] {
        let frames = most(payload);
        sheet.row(vec![
            Cell::figure(payload),
            Cell::figure(line.limit(payload)),
            Cell::figure(sent(subject.bus, line, payload, 1).0),
            Cell::figure(sent(subject.bus, line, payload, frames).0),
            Cell::figure(frames),
        ]);
    }
    sheet.note("More than 1500 bytes: as if the line had an MTU of 9000.");
    sheet.notes(subject.note());
    sheet
}

pub(super) fn mtus(subject: &Subject) -> Sheet {
    let mut sheet = Sheet::new(
        "mtus",
        format!(
            "MTU, {}; Mbit/s of TCP's data (MTU less {TCP_IP})",
            subject.title()
        ),
        &[
            ("mtu", "MTU"),
            ("line", "line"),
            ("single", "one a transfer"),
            ("chunk", "64 KB a transfer"),
            ("frames", "frames in it"),
        ],
    );
    for mtu in [576, 1500, 4000, 9000, 65_521] {
        let line = Line {
            mtu,
            ..subject.line
        };
        // Of whole payloads: both parts are exact ratios.
        let data = |came: Throughput| Throughput {
            bytes: came.bytes / u64::from(mtu) * u64::from(mtu - TCP_IP),
            ..came
        };
        sheet.row(vec![
            Cell::figure(mtu),
            Cell::figure(data(line.limit(mtu))),
            Cell::figure(data(sent(subject.bus, line, mtu, 1).0)),
            Cell::figure(data(sent(subject.bus, line, mtu, most(mtu)).0)),
            Cell::figure(most(mtu)),
        ]);
    }
    sheet.note("No Ethernet carries 65521 bytes; the model does.");
    sheet.notes(subject.note());
    sheet
}

pub(super) fn everywhere() -> Sheet {
    let mut sheet = Sheet::new(
        "buses_and_lines",
        format!("All buses and lines, payload {PAYLOAD}; Mbit/s"),
        &[
            ("bus", "bus"),
            ("line", "line"),
            ("limit", "limit"),
            ("single", "one a transfer"),
            ("chunk", "43 a transfer"),
            ("frames", "line from"),
        ],
    );
    for (bus_name, bus) in Bus::PRESETS {
        for (line_name, line) in Line::PRESETS {
            let limit = line.limit(PAYLOAD);
            let reached =
                (1..=MOST_OUT).find(|frames| by_formula(bus, line, PAYLOAD, *frames) == limit);
            sheet.row(vec![
                Cell::words(bus_name),
                Cell::words(line_name),
                Cell::figure(limit),
                Cell::figure(sent(bus, line, PAYLOAD, 1).0),
                Cell::figure(sent(bus, line, PAYLOAD, MOST_OUT).0),
                reached.map_or(Cell::None, Cell::figure),
            ]);
        }
    }
    sheet.note("limit: the line's. line from: frames a transfer with which the line is the limit, not the bus.");
    sheet
        .note("All buses but pci32-33 are assumptions: its start-up, its rate by width and clock.");
    sheet
}
