//! What the driver asks of the card itself ([`wireboot_wire::card`]).

use wireboot_wire::card::hello::{self, Hello, Kind};
use wireboot_wire::card::{LINK_LEN, MARK, is_for_card};

use crate::feature;
use crate::header::Header;
use crate::host_side::{Delivered, ReceiveQueue, Unit};
use crate::memory::{GuestMemory, Span, Unmapped, gather, scatter};
use crate::ring::RingFault;

/// The link header is that of a frame between a driver and its card.
pub(super) fn for_card<M: GuestMemory>(
    memory: &M,
    frame: &[Span],
    len: usize,
) -> Result<bool, Unmapped> {
    let mut link = [0; LINK_LEN];
    Ok(len >= LINK_LEN && gather(memory, frame, &mut link)? && is_for_card(&link))
}

/// The answer to what a guest that agreed on `features` says to its card. `None` when it asks nothing.
pub(super) fn answer<M: GuestMemory>(
    memory: &M,
    unit: &Unit<'_>,
    features: u64,
) -> Result<Option<Hello>, Unmapped> {
    let mut frame = [0; hello::LEN];
    if !gather(memory, unit.spans, &mut frame)? {
        return Ok(None);
    }
    let question = Hello::parse(&frame).filter(|hello| hello.kind == Kind::Question);
    Ok(question.map(|question| {
        let does = if features & feature::GUEST_UFO != 0 {
            hello::DATAGRAMS
        } else {
            0
        };
        Hello {
            kind: Kind::Answer,
            features: question.features & does,
            chunks: hello::Chunks::default(),
            ..question
        }
    }))
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
    queue.put(memory, header, hello::LEN)
}
