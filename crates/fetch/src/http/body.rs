//! The received part of a file, and how responses add to it.

use alloc::rc::Rc;

use wireboot_net::{NetError, Region, Stack, TcpStream};

use super::chunked::{ChunkReader, Next};
use super::connections;
use super::error::Problem;
use super::head::{Framing, Head, Validator};
use super::patience::Patience;
use super::ranges::Split;
use super::source::HttpStats;
use crate::destination::{Destination, DestinationError};

/// Memory asked first for a body of unknown length, in bytes; then twice as much as before, but at most
/// [`GROWTH_LIMIT`] more.
pub(super) const FIRST_GROWTH: u64 = 1024 * 1024;
/// See [`FIRST_GROWTH`].
const GROWTH_LIMIT: u64 = 256 * 1024 * 1024;

/// The received part of a file.
pub(super) struct Body<'a, D> {
    destination: &'a mut D,
    pub(super) region: Option<Region>,
    /// Bytes of the file at the start of the region.
    pub(super) filled: u64,
    /// Size of the whole file, if known.
    total: Option<u64>,
    /// Version of the file that the bytes are of.
    validator: Option<Validator>,
    /// Most bytes that were ever there: the measure of progress, which starting anew does not undo.
    pub(super) reach: u64,
    /// `Some` while helpers receive other parts. Then `filled` is the position of the first connection, whose part ends at
    /// [`Split::front`]'s end.
    pub(super) split: Option<Rc<Split>>,
    /// A split was given up. The file is not split again.
    pub(super) alone: bool,
    /// How often received bytes were discarded.
    pub(super) discarded: u32,
}

impl<'a, D: Destination> Body<'a, D> {
    pub(super) fn new(destination: &'a mut D) -> Self {
        Body {
            destination,
            region: None,
            filled: 0,
            total: None,
            validator: None,
            reach: 0,
            split: None,
            alone: false,
            discarded: 0,
        }
    }

    /// Ends the split for good. Helpers on this engine cannot write to the memory any more. Returns whether other engines can.
    fn unsplit(&mut self) -> bool {
        let Some(split) = self.split.take() else {
            return false;
        };
        split.refuse();
        self.alone = true;
        self.region = self.region.take().map(|region| Region::new(region.take()));
        split.lends()
    }

    /// After a part of a split file: waits until there is more to ask for (false), or the helpers are through and the file is there.
    pub(super) async fn join(
        &mut self,
        split: &Split,
        stack: &Stack,
        stats: &mut HttpStats,
    ) -> Result<bool, Problem> {
        loop {
            self.report(self.filled);
            if self.filled < split.front.end() as u64 {
                return Ok(false);
            }
            if let Some((start, end)) = split.hole() {
                self.filled = start;
                split.position.set(start);
                split.front.set_end(end as usize);
                return Ok(false);
            }
            if !split.busy() {
                split.account(stats);
                if let Some(start) = split.lost() {
                    // All before is there.
                    self.filled = start;
                    self.unsplit();
                    self.relocate(split.source.total).await?;
                    return Ok(false);
                }
                self.filled = split.source.total;
                self.split = None;
                return Ok(true);
            }
            stack.next_turn().await;
        }
    }

    /// Ends the split, and gives back the memory unless it is as it came: committed bytes are not written again, and
    /// lent ones not by us.
    fn discard(&mut self) {
        let lent = self.unsplit();
        if self.filled > 0 || lent {
            self.region = None;
            self.discarded += 1;
        }
        self.filled = 0;
    }

    /// Reports to the destination, and commits what has come without a gap. The first connection is at `position`.
    fn report(&mut self, position: u64) {
        let (received, committed) = match &self.split {
            Some(split) => (
                (position + split.tally.received.get()).min(split.source.total),
                split.committed(),
            ),
            None => (position, position),
        };
        if let Some(region) = &self.region {
            region.commit(committed as usize);
        }
        self.destination.progress(received, self.total);
    }

    /// The first byte to ask for and the file's version; `None` where the file has to be asked for from its start.
    pub(super) fn resume(&self) -> Option<(u64, &Validator)> {
        let validator = self.validator.as_ref().filter(|_| self.filled > 0)?;
        Some((self.filled, validator))
    }

    /// The response brings the file from its start.
    pub(super) fn start(&mut self, head: &Head) {
        self.discard();
        self.total = match head.framing {
            Framing::Length(length) => Some(length),
            _ => None,
        };
        self.validator = head.validator();
    }

    /// The response brings the bytes from `filled` to the returned end, or does not fit.
    pub(super) fn go_on(&mut self, head: &Head) -> Result<u64, Problem> {
        let fits = || {
            let (from, validator) = self.resume()?;
            let content = head.range?;
            let (first, last) = content.range?;
            let length = (last - first).checked_add(1)?;
            let framed = match head.framing {
                Framing::Length(framed) => framed == length,
                _ => true,
            };
            let same = !validator.contradicts(head)
                && (self.total.is_none() || content.total.is_none() || self.total == content.total);
            (first == from && framed && same).then_some((last.checked_add(1)?, content.total))
        };
        match fits() {
            Some((end, total)) if self.total.or(total).is_none_or(|total| end <= total) => {
                self.total = self.total.or(total);
                Ok(end)
            }
            _ => {
                self.forget();
                Err(Problem::Range)
            }
        }
    }

    /// Status 416: the server has no byte after those received.
    pub(super) fn refused(&mut self, head: &Head) -> Result<(), Problem> {
        let size = head.range.and_then(|range| range.total);
        match self.total {
            None if size == Some(self.filled) => Ok(()),
            None => {
                self.forget();
                Err(Problem::Range)
            }
            Some(announced) => {
                let received = size.unwrap_or(self.filled);
                self.forget();
                Err(Problem::Short {
                    received,
                    announced,
                })
            }
        }
    }

    /// Discards what was received. The next request asks for the file from its start.
    pub(super) fn forget(&mut self) {
        self.discard();
        self.total = None;
        self.validator = None;
    }

    /// After a partial response that should bring the bytes up to `end`.
    pub(super) fn check_end(&mut self, end: u64) -> Result<(), Problem> {
        if self.split.is_none() && self.filled != end {
            self.forget();
            return Err(Problem::Range);
        }
        // Where the size is not known, the server has to say that there is no more.
        if self.is_at_front() || self.total == Some(self.filled) {
            Ok(())
        } else {
            Err(self.ended_early())
        }
    }

    /// Whether the first connection has come to the end of its part of a split file.
    fn is_at_front(&self) -> bool {
        let split = self.split.as_ref();
        split.is_some_and(|split| self.filled >= split.front.end() as u64)
    }

    fn ended_early(&self) -> Problem {
        match self.total {
            Some(announced) => Problem::Short {
                received: self.filled,
                announced,
            },
            None => Problem::BrokeOff {
                received: self.filled,
            },
        }
    }

    /// Bytes of the file that are there, wherever in it.
    pub(super) fn position(&self) -> u64 {
        let helped = self
            .split
            .as_ref()
            .map_or(0, |split| split.tally.received.get());
        self.filled.saturating_add(helped)
    }

    pub(super) async fn receive(
        &mut self,
        stream: &mut TcpStream,
        framing: Framing,
        patience: &mut Patience<'_>,
    ) -> Result<(), Problem> {
        let announced = self.total.unwrap_or(0).max(self.filled);
        patience.pause(self.reserve(announced)).await?;
        match framing {
            Framing::Length(length) => self.receive_exactly(stream, length, patience).await,
            Framing::Chunked => self.receive_chunks(stream, patience).await,
            Framing::UntilClose => self.receive_until_close(stream, patience).await,
        }
    }

    async fn receive_exactly(
        &mut self,
        stream: &mut TcpStream,
        length: u64,
        patience: &mut Patience<'_>,
    ) -> Result<(), Problem> {
        let mut left = length;
        while left > 0 {
            patience.pause(self.grow()).await?;
            let count = self.fill(stream, left, patience).await?;
            if self.is_at_front() {
                return Ok(());
            }
            if count == 0 {
                return Err(self.ended_early());
            }
            left = left.saturating_sub(count);
        }
        Ok(())
    }

    async fn receive_until_close(
        &mut self,
        stream: &mut TcpStream,
        patience: &mut Patience<'_>,
    ) -> Result<(), Problem> {
        loop {
            patience.pause(self.grow()).await?;
            if self.fill(stream, u64::MAX, patience).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn receive_chunks(
        &mut self,
        stream: &mut TcpStream,
        patience: &mut Patience<'_>,
    ) -> Result<(), Problem> {
        let mut reader = ChunkReader::new();
        let received = stream.received();
        loop {
            let mut progress = Ok((0, Next::More));
            let read = stream.read(|bytes| {
                progress = reader.push(bytes);
                // A broken body ends the connection, so it does not matter what is consumed.
                progress.map_or(bytes.len(), |(taken, _)| taken)
            });
            let position = self.position();
            let consumed = patience
                .attend(received.clone(), read, || position)
                .await?
                .map_err(Problem::connection)?;
            if consumed == 0 {
                return Err(self.ended_early());
            }
            match progress?.1 {
                Next::More => {}
                Next::Data(length) => {
                    // Known here only for the rest of a file: the chunks must add up to it.
                    if self.total.is_some_and(|total| length > total - self.filled) {
                        self.forget();
                        return Err(Problem::Range);
                    }
                    self.receive_exactly(stream, length, patience).await?;
                    if self.is_at_front() {
                        return Ok(());
                    }
                }
                Next::End => return Ok(()),
            }
        }
    }

    /// Makes sure that there is room for one more byte. Never believes an announced length of a part: memory grows
    /// with what has come.
    async fn grow(&mut self) -> Result<(), Problem> {
        let size = self.size();
        if self.filled < size {
            return Ok(());
        }
        let step = size.clamp(FIRST_GROWTH, GROWTH_LIMIT);
        self.reserve(size.saturating_add(step)).await
    }

    fn size(&self) -> u64 {
        self.region.as_ref().map_or(0, |region| region.len() as u64)
    }

    /// Makes sure that there is memory for `bytes` in all.
    pub(super) async fn reserve(&mut self, bytes: u64) -> Result<(), Problem> {
        if self.size() >= bytes {
            return Ok(());
        }
        self.relocate(bytes).await
    }

    /// Takes what is there to other memory, of `bytes` in all.
    async fn relocate(&mut self, bytes: u64) -> Result<(), Problem> {
        let previous = self
            .region
            .take()
            .map(|region| (region.take(), self.filled));
        if self.total.is_some() {
            // Its receiver may have no room for so much.
            self.destination.progress(self.filled, self.total);
        }
        let memory = self.destination.memory(bytes, previous).await?;
        if (memory.len() as u64) < bytes {
            return Err(DestinationError::NoMemory { bytes }.into());
        }
        self.region = Some(Region::new(memory));
        Ok(())
    }

    /// Reads up to `limit` bytes of the file, as many as there is room for. Returns fewer when the server
    /// ended the stream; then, and at the end, 0.
    async fn fill(
        &mut self,
        stream: &mut TcpStream,
        limit: u64,
        patience: &mut Patience<'_>,
    ) -> Result<u64, Problem> {
        let Some(region) = &self.region else {
            return Ok(0);
        };
        let at = self.filled as usize;
        let end = at.saturating_add(usize::try_from(limit).unwrap_or(usize::MAX));
        let part = match &self.split {
            Some(split) => split.part(end),
            None => {
                let part = region.part(end);
                // What has come may have to go elsewhere while its length is not known.
                if self.total.is_some() {
                    part.by_device()
                } else {
                    part
                }
            }
        };
        let received = stream.received();
        let start = received.get();
        let mut reported = start;
        let read = stream.read_into(&part, at);
        let result = patience
            .attend(received.clone(), read, || {
                let now = received.get();
                if now != reported {
                    reported = now;
                    let position = self.filled + (now - start);
                    if let Some(split) = &self.split {
                        split.position.set(position);
                    }
                    self.report(position);
                }
                self.position() + (now - start)
            })
            .await;
        // What helpers have taken from the end meanwhile is theirs, even where some of it has come here, too.
        let len = part.end().saturating_sub(at);
        let count = match &result {
            Ok(Ok(count)) => *count,
            Ok(Err(_)) => 0,
            // The read was given up in the middle.
            Err(_) => (received.get() - start) as usize,
        };
        let count = count.min(len);
        self.filled += count as u64;
        self.reach = self.reach.max(self.filled);
        if let Some(split) = &self.split {
            split.position.set(self.filled);
        }
        self.report(self.filled);
        result?.map_err(Problem::connection)?;
        // It ended early: either nothing came for too long, or the next read tells why.
        let reported_next = |end| matches!(end, Some(Ok(0) | Err(_)));
        if count < len && !reported_next(connections::pending(stream)) {
            return Err(Problem::connection(NetError::TimedOut));
        }
        Ok(count as u64)
    }
}
