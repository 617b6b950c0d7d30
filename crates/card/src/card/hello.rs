//! What the driver asks of the card itself ([`wireboot_wire::card`]).

use core::sync::atomic::Ordering;
use core::time::Duration;

use wireboot_wire::card::hello::{self, Chunks, Hello, Kind};
use wireboot_wire::card::placement::{PlacementRequest, REQUEST_LEN};
use wireboot_wire::card::{ETHERTYPE, LINK_LEN, MARK, chunk, is_for_card};

use super::Beyond;
use crate::coalesce::Limits;
use crate::feature;
use crate::header::Header;
use crate::host_side::{Delivered, ReceiveQueue, Unit};
use crate::memory::{GuestMemory, Span, Unmapped, gather, scatter};
use crate::ring::RingFault;

/// Where the EtherType is in a link header.
const ETHERTYPE_AT: u64 = 12;

/// The link header is that of a frame between a driver and its card.
#[inline]
pub(super) fn for_card<M: GuestMemory>(
    memory: &M,
    frame: &[Span],
    len: usize,
) -> Result<bool, Unmapped> {
    // Nearly all others have another EtherType, which mostly takes one access.
    if let Some(first) = frame.first()
        && first.len as usize >= LINK_LEN
        && first.address.is_multiple_of(2)
    {
        // No overflow: the span lies in the guest's memory.
        let at = first.address.wrapping_add(ETHERTYPE_AT);
        if memory.load(at, Ordering::Relaxed)?.swap_bytes() != ETHERTYPE {
            return Ok(false);
        }
    }
    let mut link = [0; LINK_LEN];
    Ok(len >= LINK_LEN && gather(memory, frame, &mut link)? && is_for_card(&link))
}

/// What a driver says to its card.
pub(super) enum DriverMessage {
    /// It has asked, and this is the answer.
    Question(Hello),
    Request(PlacementRequest),
}

/// Takes what a guest that agreed on `features` says to its card, which offers this. `None` when that is nothing.
pub(super) fn driver_message<M: GuestMemory>(
    memory: &M,
    unit: &Unit<'_>,
    features: u64,
    offered: Beyond,
) -> Result<Option<DriverMessage>, Unmapped> {
    let mut bytes = [0; REQUEST_LEN];
    let len = unit.len.min(REQUEST_LEN);
    let frame = bytes.get_mut(..len).unwrap_or_default();
    if !gather(memory, unit.spans, frame)? {
        return Ok(None);
    }
    let frame = &*frame;
    if let Some(request) = PlacementRequest::parse(frame) {
        let may = offered.placement && placement_agreed(features);
        return Ok(may.then_some(DriverMessage::Request(request)));
    }
    let question = Hello::parse(frame).filter(|hello| hello.kind == Kind::Question);
    Ok(question.map(|question| {
        let mut does = 0;
        if features & feature::GUEST_UFO != 0 {
            does |= hello::DATAGRAMS;
        }
        let asks = question.features & hello::CHUNKS != 0;
        let long = Header::len(features) == chunk::HEADER_LEN;
        let limits = offered.chunks.filter(|_| asks && long);
        if limits.is_some() {
            does |= hello::CHUNKS;
        }
        if offered.placement && placement_agreed(features) {
            does |= hello::PLACEMENT;
        }
        DriverMessage::Question(Hello {
            kind: Kind::Answer,
            features: question.features & does,
            chunks: limits
                .map(|limits| least(limits, question.chunks))
                .unwrap_or_default(),
            ..question
        })
    }))
}

/// The card can place payload for a guest that agreed on these features.
fn placement_agreed(features: u64) -> bool {
    let long = Header::len(features) == chunk::HEADER_LEN;
    long && features & feature::GUEST_CSUM != 0
}

/// What is within both limits.
fn least(limits: Limits<Duration>, most: Chunks) -> Chunks {
    Chunks {
        frames: u16::try_from(limits.frames).map_or(most.frames, |frames| frames.min(most.frames)),
        bytes: u32::try_from(limits.bytes).map_or(most.bytes, |bytes| bytes.min(most.bytes)),
        micros: u32::try_from(limits.wait.as_micros())
            .map_or(most.micros, |micros| micros.min(most.micros)),
    }
}

/// How far frames are gathered by this answer; `None` when they are not.
pub(super) fn limits(answer: &Hello) -> Option<Limits<Duration>> {
    let Chunks {
        frames,
        bytes,
        micros,
    } = answer.chunks;
    (answer.features & hello::CHUNKS != 0).then(|| Limits {
        frames: frames.into(),
        bytes: bytes as usize,
        wait: Duration::from_micros(micros.into()),
    })
}

/// Gives the guest the answer, marked, in the buffers that were found last.
pub(super) fn deliver<M: GuestMemory>(
    queue: &mut ReceiveQueue,
    memory: &M,
    answer: &Hello,
) -> Result<Delivered, RingFault> {
    let header = Header {
        gso_type: MARK,
        ..Header::default()
    };
    scatter(memory, queue.found(), &answer.emit())?;
    let delivered = queue.put(memory, header, hello::LEN)?;
    queue.close(memory)?;
    Ok(delivered)
}
