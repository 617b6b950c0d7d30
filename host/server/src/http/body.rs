//! Bytes of a file as the body of a response.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use crate::directory::Content;
use crate::event::{Event, Events, Kind};

/// Bytes read from a file at a time: long enough that the way to the reading thread and back does not count.
const PIECE: u64 = 512 * 1024;

/// Bytes of a file as a response body.
pub(super) struct FileBody {
    content: Option<Content>,
    /// First byte that no read was started for.
    next: u64,
    end: u64,
    unsent: u64,
    /// Reads under way, in order: the piece to be sent next, and the one after it.
    pieces: [Option<JoinHandle<io::Result<Bytes>>>; 2],
    report: Option<Report>,
}

impl FileBody {
    /// The bytes from `start` up to, not including, `end`.
    pub fn part(content: Content, start: u64, end: u64, report: Report) -> Self {
        Self {
            content: Some(content),
            next: start,
            end,
            unsent: end.saturating_sub(start),
            report: Some(report),
            ..Self::empty()
        }
    }

    /// No bytes.
    pub fn empty() -> Self {
        Self {
            content: None,
            next: 0,
            end: 0,
            unsent: 0,
            pieces: [None, None],
            report: None,
        }
    }

    /// These words.
    pub fn text(text: String) -> Self {
        let content = Content::from_bytes(text.into_bytes());
        Self {
            end: content.len(),
            unsent: content.len(),
            content: Some(content),
            ..Self::empty()
        }
    }

    fn start_reads(&mut self) {
        for place in &mut self.pieces {
            if place.is_none()
                && self.next < self.end
                && let Some(content) = self.content.clone()
            {
                let offset = self.next;
                let length = PIECE.min(self.end - offset);
                self.next += length;
                *place = Some(tokio::task::spawn_blocking(move || {
                    let mut piece = vec![0; length as usize];
                    content.read_exact_at(&mut [IoSliceMut::new(&mut piece)], offset)?;
                    Ok(piece.into())
                }));
            }
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.start_reads();
        let Some(piece) = &mut self.pieces[0] else {
            return Poll::Ready(None);
        };
        let read = ready!(Pin::new(piece).poll(context))
            .map_err(io::Error::other)
            .flatten();
        self.pieces.rotate_left(1);
        self.pieces[1] = None;
        self.start_reads();
        if let Ok(piece) = &read {
            self.unsent = self.unsent.saturating_sub(piece.len() as u64);
        }
        if let Some(report) = &mut self.report {
            match &read {
                Ok(piece) => report.sent += piece.len() as u64,
                Err(error) => report.failure = Some(error.to_string()),
            }
        }
        Poll::Ready(Some(read.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.unsent)
    }
}

/// Tells, when the body is dropped, whether all of it went out.
pub(super) struct Report {
    events: Events,
    client: SocketAddr,
    name: String,
    began: Instant,
    length: u64,
    sent: u64,
    failure: Option<String>,
}

impl Report {
    /// A report on sending `length` bytes of the file `name`.
    pub fn new(events: Events, client: SocketAddr, name: String, length: u64) -> Self {
        Self {
            events,
            client,
            name,
            began: Instant::now(),
            length,
            sent: 0,
            failure: None,
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let complete = self.sent == self.length;
        let kind = if complete {
            Kind::HttpDone
        } else {
            Kind::HttpError
        };
        let event = Event::now(kind, self.client.ip()).file(&self.name);
        let event = event
            .bytes(self.sent)
            .seconds(self.began.elapsed().as_secs_f64());
        self.events.record(match self.failure.take() {
            Some(failure) => event.message(failure),
            None if complete => event,
            None => event.message(format!(
                "the client closed the connection before all {} bytes were sent",
                self.length
            )),
        });
    }
}
