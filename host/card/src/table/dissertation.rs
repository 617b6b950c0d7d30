//! The source's figures, and what the model makes of the same experiments.

use wireboot_card::coalesce::{Coalescer, Limits};
use wireboot_card::model::Arrival;
use wireboot_card::model::bus::MEASURED;
use wireboot_card::model::line::OVERHEAD;
use wireboot_card::model::receive::receive;
use wireboot_card::model::send::{SendingCard, send};
use wireboot_card::model::traffic::stream;
use wireboot_card::model::{Bus, LINK_HEADER, Line, Picos, Throughput, on_bus};

use super::runs::{PAYLOAD, TRANSFER, behind_the_first, by_formula, gathering};
use super::sheet::{Cell, Sheet};

/// The source's line, on which jumbo frames are allowed.
const LINE: Line = Line {
    mtu: 9100,
    ..Line::PRESETS[0].1
};
const BUS: Bus = Bus::PCI32_33;
/// The source's frames in a transfer of 64 KB.
const OUT: u32 = 43;
const IN: u32 = 42;
/// The room that a received frame takes on the card, so that 42 of them are in 64 KB: our inference.
const SLOT: usize = 1536;
/// Frames of a run.
const FRAMES: u32 = 2000;

/// Payload, and the limit as the source gives it.
const LIMITS: [(u32, &str); 4] = [
    (754, "952.0202"),
    (1010, "963.7405"),
    (1498, "975.2604"),
    (9058, "995.8223"),
];
/// Payload, and what came from card to card.
const CARD_TO_CARD: [(u32, &str); 2] = [(1498, "975.0565"), (9054, "995.1155")];

pub(super) fn sheet() -> Sheet {
    let mut sheet = Sheet::new(
        "dissertation",
        "The dissertation's experiments, PCI with 32 bits at 33 MHz, gigabit Ethernet; Mbit/s",
        &[
            ("what", "what"),
            ("source", "source"),
            ("model", "model"),
            ("virtual_time", "virtual time"),
        ],
    );
    for (payload, source) in LIMITS {
        let frame = payload + OVERHEAD;
        sheet.row(vec![
            Cell::words(format!("limit, frame of {frame} bytes")),
            Cell::figure(source),
            Cell::figure(LINE.limit(payload)),
            Cell::figure(on_the_line(payload)),
        ]);
    }
    for (payload, source) in CARD_TO_CARD {
        sheet.row(vec![
            Cell::words(format!("card to card, payload {payload}")),
            Cell::figure(source),
            Cell::figure(LINE.limit(payload)),
            Cell::figure(on_the_line(payload)),
        ]);
    }
    bus(&mut sheet);
    techniques(&mut sheet);
    sheet.row(vec![
        Cell::words("conventional host, quoted from others"),
        Cell::figure(409),
        Cell::None,
        Cell::None,
    ]);
    sheet.notes([
        "Source: W. Wadge, \"Achieving Gigabit Performance on Programmable Ethernet Network Interface Cards\", the project's page. Its other \
         results are drawings. Limits: bytes on the line, 38 of them besides the payload.",
        "Card to host: the bus has two parameters, fitted to these two figures. That they come out again proves nothing; 125 MB/s had no part in it.",
        "The page has payloads of 9058 and of 9054 bytes. 42 frames in: if each takes 1536 bytes, which the page does not say.",
        "Host to card, the page has no figures: the same bus is assumed.",
    ]);
    sheet
}

/// What comes from card to card: no bus.
fn on_the_line(payload: u32) -> Throughput {
    let arrivals = stream(LINE, payload, FRAMES, Picos::ZERO, 0);
    behind_the_first(&arrivals, 1)
}

fn bus(sheet: &mut Sheet) {
    let mut rates = Vec::new();
    for measured in MEASURED {
        let bytes = measured.bytes as usize;
        // The source counts the link header, too.
        let payload = measured.bytes - LINK_HEADER;
        let arrivals = stream(LINE, payload, FRAMES, Picos::ZERO, 0);
        let came = receive(&gathering(BUS, 1, Picos::ZERO), &arrivals).throughput;
        let frames = came.bytes / u64::from(payload);
        let whole = Throughput {
            bytes: frames * u64::from(measured.bytes),
            ..came
        };
        sheet.row(vec![
            Cell::words(format!("card to host, {bytes} bytes a transfer")),
            Cell::figure(in_mbit_s(measured.in_100_bit_s.into())),
            Cell::figure(BUS.limit(bytes, bytes)),
            Cell::figure(whole),
        ]);
        rates.push((BUS.limit(bytes, bytes), whole));
    }
    let percent = |short: Throughput, long: Throughput| {
        let ratio = long.in_100_bit_s() as f64 / short.in_100_bit_s() as f64;
        format!("{:.4}", (ratio - 1.0) * 100.0)
    };
    if let [short, long] = rates.as_slice() {
        sheet.row(vec![
            Cell::words("  the longer ones faster by, %"),
            Cell::words("more than 38.6"),
            Cell::figure(percent(short.0, long.0)),
            Cell::figure(percent(short.1, long.1)),
        ]);
    }
    sheet.row(vec![
        Cell::words("bus, at most, MB/s"),
        Cell::words("about 125"),
        Cell::figure(format!("{:.2}", BUS.rate.get() as f64 / 8e6)),
        Cell::None,
    ]);
}

fn in_mbit_s(in_100_bit_s: u64) -> String {
    format!("{}.{:04}", in_100_bit_s / 10_000, in_100_bit_s % 10_000)
}

fn techniques(sheet: &mut Sheet) {
    let fragments = |fragments| {
        let sent = send(
            &SendingCard {
                bus: BUS,
                fragments,
            },
            LINE,
            PAYLOAD,
            FRAMES / fragments,
            0,
        );
        (
            behind_the_first(&sent.arrivals, fragments as usize),
            sent.arrivals,
        )
    };
    let coalesced = |arrivals: &[Arrival], frames: u32| {
        receive(&gathering(BUS, frames as usize, Picos::MAX), arrivals).throughput
    };
    let limit = LINE.limit(PAYLOAD);
    let through = |frames| by_formula(BUS, LINE, PAYLOAD, frames);
    let full = stream(LINE, PAYLOAD, FRAMES, Picos::ZERO, 0);
    let (out, sent) = fragments(OUT);
    sheet.row(vec![
        Cell::words("frames in a chunk of 64 KB, out"),
        Cell::figure(OUT),
        Cell::figure(TRANSFER / on_bus(PAYLOAD)),
        Cell::figure(gathered(on_bus(PAYLOAD))),
    ]);
    sheet.row(vec![
        Cell::words("frames in a chunk of 64 KB, in"),
        Cell::figure(IN),
        Cell::figure(TRANSFER / SLOT),
        Cell::figure(gathered(SLOT)),
    ]);
    let reaches = "Ethernet limit";
    for (what, source, frames, virtual_time) in [
        ("  one frame a transfer, out", None, 1, fragments(1).0),
        ("  fragmentation, 43 a transfer", Some(reaches), OUT, out),
        ("  one frame a transfer, in", None, 1, coalesced(&full, 1)),
        (
            "  coalescing, 42 a transfer",
            Some(reaches),
            IN,
            coalesced(&full, IN),
        ),
        (
            "  both, host to host",
            Some(reaches),
            IN,
            coalesced(&sent, IN),
        ),
    ] {
        sheet.row(vec![
            Cell::words(what),
            source.map_or(Cell::None, Cell::words),
            Cell::figure(through(frames)),
            Cell::figure(virtual_time),
        ]);
    }
    let by = |reached: &dyn Fn(u32) -> Throughput| {
        (1..=OUT)
            .find(|frames| reached(*frames) >= limit)
            .map_or(Cell::None, Cell::figure)
    };
    sheet.row(vec![
        Cell::words("  line takes over at, frames a transfer"),
        Cell::words("in a drawing"),
        by(&through),
        by(&|frames| fragments(frames).0),
    ]);
}

/// So many frames that take `len` bytes each are gathered before there is no room.
fn gathered(len: usize) -> usize {
    let mut coalescer = Coalescer::new(Limits {
        frames: usize::MAX,
        bytes: TRANSFER,
        wait: Picos::MAX,
    });
    loop {
        if let Some(batch) = coalescer.add(len, Picos::ZERO) {
            return batch.frames;
        }
    }
}
