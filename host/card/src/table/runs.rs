//! What comes through bus and line, by formula and in runs of the model.

use wireboot_card::coalesce::Limits;
use wireboot_card::model::Arrival;
use wireboot_card::model::receive::ReceivingCard;
use wireboot_card::model::{Bus, Line, Picos, ReceiveOffload, Throughput, on_bus};

/// Bytes of a transfer at most.
pub(super) const TRANSFER: usize = 65_536;
/// Bytes of frames that a card holds: as much as three transfers.
pub(super) const MEMORY: usize = 3 * TRANSFER;
/// The payload of the source's frames.
pub(super) const PAYLOAD: u32 = 1498;

/// Payload that comes through: the slower of bus and line.
pub(super) fn by_formula(bus: Bus, line: Line, payload: u32, fragments: u32) -> Throughput {
    let frames = fragments as usize;
    let bus = bus.limit(on_bus(payload) * frames, payload as usize * frames);
    bus.min(line.limit(payload))
}

/// What comes in frames behind the first `skipped` of them.
pub(super) fn behind_the_first(arrivals: &[Arrival], skipped: usize) -> Throughput {
    let (before, counted) = arrivals.split_at(skipped.min(arrivals.len()));
    match (before, counted) {
        ([.., before], [.., last]) => Throughput {
            bytes: counted.iter().map(|frame| u64::from(frame.payload)).sum(),
            time: last.at.since(before.at),
        },
        _ => Throughput::NONE,
    }
}

/// A card that gathers so many frames, for so long.
pub(super) fn gathering(bus: Bus, frames: usize, wait: Picos) -> ReceivingCard {
    ReceivingCard {
        bus,
        offload: ReceiveOffload::Chunks,
        limits: Limits {
            frames,
            bytes: TRANSFER,
            wait,
        },
        memory: MEMORY,
    }
}
