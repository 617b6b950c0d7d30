//! Frames whose payload is not there yet.

use super::Cut;
use super::frame::Partial;
use super::step::FlowStep;

/// A frame of a flow that is made, and waits for its payload.
#[derive(Debug)]
pub(super) struct Held {
    pub head: Vec<u8>,
    pub made: Made,
    /// It is to be tried again.
    pub again: bool,
}

/// What was made of a frame besides its headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// Where its payload begins in the flow's parts.
    pub offset: u64,
    pub len: usize,
    pub cut: Option<Cut>,
    pub partial: Option<Partial>,
}

/// What a flow that may hold a frame does next; `None` where it holds none.
pub(super) fn step(
    held: &mut Option<Held>,
    head: &mut Vec<u8>,
) -> Option<(FlowStep, Option<Partial>)> {
    if !held.as_ref()?.again {
        return Some((FlowStep::Nothing(None), None));
    }
    let Held {
        head: kept, made, ..
    } = held.take()?;
    *head = kept;
    let Made {
        offset,
        len,
        cut,
        partial,
    } = made;
    Some((FlowStep::Frame { offset, len, cut }, partial))
}

/// `count` bytes of the flow's parts before the frame are gone. It is dropped where it began in them: its sender sends again what is missing.
pub(super) fn shift(held: &mut Option<Held>, count: u64) {
    *held = held.take().and_then(|mut held| {
        held.made.offset = held.made.offset.checked_sub(count)?;
        Some(held)
    });
}
