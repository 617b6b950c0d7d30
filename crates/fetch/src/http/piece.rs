//! A range of a file, received over a connection of its own: by a helper beside the first connection, or by a worker on
//! another AP (application processor).

use core::cell::Cell;

use wireboot_net::{NetError, Region, Stack, TcpStream};

use super::connections::{self, Connections};
use super::error::Problem;
use super::head::{Framing, Head};
use super::limits::{CONNECT_TIMEOUT, SILENCE};
use super::patience::Patience;
use super::request::{exchange, range_request};
use super::source::{HttpStats, Source};
use crate::wait::{FIRST_PAUSE, WORTHWHILE};

/// Requests for a piece that may fail in a row without progress.
const ATTEMPTS: u32 = 3;

/// Counts over all pieces that were received.
#[derive(Default)]
pub(crate) struct Tally {
    /// Bytes of the file, over all pieces.
    pub(crate) received: Cell<u64>,
    /// The server does not send ranges of this version: no more requests.
    pub(crate) refused: Cell<bool>,
    /// Requests, connections and resumptions.
    pub(crate) stats: Cell<HttpStats>,
}

impl Tally {
    pub(crate) fn count(&self, change: impl FnOnce(&mut HttpStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }
}

/// A range of the file that is still to be received.
pub(crate) struct Piece {
    /// First byte that is missing, in bytes from the start of the file.
    pub(crate) at: u64,
    /// The byte after its last, in bytes from the start of the file.
    pub(crate) end: u64,
    /// Memory that holds at least the piece.
    pub(crate) region: Region,
    /// The offset in the file of the region's first byte.
    pub(crate) origin: u64,
}

/// Receives pieces of one file, one after the other and on one connection as long as that lasts.
pub(crate) struct Carrier<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) pool: &'a Connections,
    pub(crate) source: &'a Source,
    pub(crate) tally: &'a Tally,
    stream: Option<TcpStream>,
}

impl<'a> Carrier<'a> {
    pub(crate) fn new(
        stack: &'a Stack,
        pool: &'a Connections,
        source: &'a Source,
        tally: &'a Tally,
    ) -> Self {
        Self {
            stack,
            pool,
            source,
            tally,
            stream: None,
        }
    }

    /// Returns the connection to the pool.
    pub(crate) fn finish(self) {
        if let Some(stream) = self.stream {
            self.pool.put(self.stack, self.source.server, stream);
        }
    }

    /// Receives a piece. When the connection breaks, only its rest is asked for again. After an error, [`Piece::at`] tells how far it
    /// came.
    pub(crate) async fn receive(&mut self, piece: &mut Piece) -> Result<(), Problem> {
        let mut failures = 0;
        let mut since = piece.at;
        while piece.at < piece.end {
            let Err(problem) = self.request(piece).await else {
                continue;
            };
            if piece.at >= since + WORTHWHILE {
                failures = 0;
                since = piece.at;
            }
            failures += 1;
            // A server that does not want so many connections says so by its status. What is slow has taken its time already.
            let passing = problem.is_transient()
                && !matches!(problem, Problem::Status { .. } | Problem::Slow { .. });
            if !passing || failures >= ATTEMPTS || self.tally.refused.get() {
                return Err(problem);
            }
            self.tally.count(|stats| stats.resumed += 1);
            self.stack.sleep(FIRST_PAUSE * failures).await;
        }
        Ok(())
    }

    async fn connection(&mut self) -> Result<TcpStream, Problem> {
        let server = self.source.server;
        let idle = || self.pool.take(self.stack, &[server]).map(|(_, idle)| idle);
        if let Some(stream) = self.stream.take().or_else(idle) {
            return Ok(stream);
        }
        self.tally.count(|stats| stats.connections += 1);
        let connected = self.stack.connect(server, CONNECT_TIMEOUT).await;
        let mut stream = connected.map_err(Problem::Connect)?;
        stream.set_idle_timeout(SILENCE);
        Ok(stream)
    }

    async fn request(&mut self, piece: &mut Piece) -> Result<(), Problem> {
        let mut stream = self.connection().await?;
        let Source { url, validator, .. } = self.source;
        let tally = self.tally;
        tally.count(|stats| stats.requests += 1);
        let request = range_request(url, piece.at, Some(piece.end), validator);
        let server = self.source.server.ip();
        let mut patience = Patience::new(self.stack, server, self.source.floor, piece.at);
        let head = exchange(&mut patience, &mut stream, &request).await?;
        self.pool.measured(server, &stream);
        if !piece.fits(self.source, &head) {
            if matches!(head.status, 200..=299) {
                tally.refused.set(true);
                return Err(Problem::Range);
            }
            return Err(Problem::Status {
                status: head.status,
                reason: head.reason,
                retry_after: head.retry_after,
            });
        }
        let received = stream.received();
        let mut reported = received.get();
        let start = reported;
        let at = piece.at.saturating_sub(piece.origin) as usize;
        let mut patience = Patience::new(self.stack, server, self.source.floor, piece.at);
        let read = stream.read_into(&piece.region, at);
        let begin = piece.at;
        let result = patience
            .attend(received.clone(), read, || {
                let now = received.get();
                if now != reported {
                    tally.received.set(tally.received.get() + (now - reported));
                    reported = now;
                }
                begin + (now - start)
            })
            .await;
        let count = match &result {
            Ok(Ok(count)) => *count as u64,
            Ok(Err(_)) => 0,
            // The read was given up in the middle.
            Err(_) => (received.get() - start).min(piece.end - piece.at),
        };
        tally
            .received
            .set((tally.received.get() + count).saturating_sub(reported - start));
        piece.at += count;
        result?.map_err(Problem::connection)?;
        if piece.at < piece.end {
            // It ended early: either nothing came for too long, or the next read tells why.
            let error = match connections::pending(&mut stream) {
                Some(Err(error)) => error,
                Some(Ok(_)) => NetError::Reset,
                None => NetError::TimedOut,
            };
            return Err(Problem::connection(error));
        }
        if head.keep_alive {
            self.stream = Some(stream);
        } else {
            stream.close();
        }
        Ok(())
    }
}

impl Piece {
    /// Whether a response brings exactly what is missing, of the right version.
    fn fits(&self, source: &Source, head: &Head) -> bool {
        let content = head
            .range
            .filter(|content| content.total.is_none_or(|total| total == source.total))
            .and_then(|content| content.range);
        head.status == 206
            && content == Some((self.at, self.end - 1))
            && head.framing == Framing::Length(self.end - self.at)
            && !source.validator.contradicts(head)
    }
}
