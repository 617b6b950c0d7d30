//! Reports that machines send (`POST /report`).

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::head::{Head, Method};
use super::response::Response;
use super::status::Status;
use super::{Connection, Service};
use crate::event::{Event, Events, Kind};
use crate::reports::{LONGEST, Refusal, Reports, UploadPermit};

/// Where they are sent.
pub(crate) const PATH: &str = "/report";
/// What a client that asks first is told.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Whether the client waits to be told that its report is read.
pub(crate) fn asks_first(head: &Head) -> bool {
    head.fields.lists("expect", "100-continue")
}

/// Whether a request sends a report.
pub(crate) fn is_report(head: &Head) -> bool {
    head.method == Method::Post && head.path == PATH
}

/// How many bytes the body has, or why it is not read.
fn length(head: &Head) -> Result<usize, (Status, &'static str)> {
    let field = head.fields.get("content-length");
    let length = field.and_then(|length| length.parse::<u64>().ok());
    if head.fields.get("transfer-encoding").is_some() {
        let why = "a report comes in one piece, with a Content-Length";
        return Err((Status::LENGTH_REQUIRED, why));
    }
    let length = length.ok_or((
        Status::LENGTH_REQUIRED,
        "a report has a Content-Length, which is a number",
    ))?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err((Status::TOO_LARGE, "a report has 16 MiB at most"));
    }
    Ok(length)
}

fn refusal(refused: &Refusal) -> Response {
    let status = match refused {
        Refusal::NoReport(_) | Refusal::NoText => Status::BAD_REQUEST,
        Refusal::Busy => Status::BUSY,
        Refusal::OfClient => Status::TOO_MANY,
        Refusal::Full => Status::NO_ROOM,
        Refusal::Io(_) => Status::INTERNAL,
    };
    let response = Response::refusal(status, &refused.to_string());
    match refused {
        Refusal::Busy => response.with("Retry-After", super::RETRY_AFTER.as_secs()),
        _ => response,
    }
}

/// How many bytes the body has, and a permit for them from `permit`, or why it is not read.
pub(crate) fn admitted(
    head: &Head,
    reports: Option<&Arc<Reports>>,
    permit: impl FnOnce(&Arc<Reports>) -> Result<UploadPermit, Refusal>,
) -> Result<(usize, UploadPermit), Box<Response>> {
    let refused = |(status, why): (Status, &str)| Box::new(Response::refusal(status, why));
    let why = "this server takes no reports; it does with --reports";
    let reports = reports.ok_or_else(|| refused((Status::NOT_FOUND, why)))?;
    let length = length(head).map_err(refused)?;
    let permit = permit(reports);
    Ok((length, permit.map_err(|error| Box::new(refusal(&error)))?))
}

/// The answer to a report that did not come in time.
pub(crate) fn late() -> Response {
    Response::refusal(Status::TIMEOUT, "the report did not come in time")
}

/// Keeps the report in `bytes`, which took so long to come from `client`, and tells of it.
pub(crate) fn keep(
    permit: &UploadPermit,
    bytes: &[u8],
    client: IpAddr,
    took: Duration,
    events: &Events,
) -> Response {
    let came = Instant::now();
    match permit.keep(bytes, client, SystemTime::now()) {
        Ok(name) => {
            let event = Event::now(Kind::Report, client)
                .file(&name)
                .bytes(bytes.len() as u64)
                .seconds((took + came.elapsed()).as_secs_f64());
            events.record(event);
            Response::created(&name)
        }
        Err(refused) => refusal(&refused),
    }
}

impl Connection {
    /// Takes a report in, and answers. Nothing else comes on this connection.
    pub(super) fn take_report(&mut self, head: &Head, service: &Service) -> io::Result<()> {
        let client = self.client.ip();
        match admitted(head, service.reports.as_ref(), |reports| {
            reports.permit(client)
        }) {
            Err(refused) => self.conclude(&refused, service),
            Ok((length, permit)) => {
                let response = self.report(head, length, &permit, service)?;
                // The permit is given back when all is written: an answer takes memory, too.
                self.conclude(&response, service)
            }
        }
    }

    fn conclude(&mut self, response: &Response, service: &Service) -> io::Result<()> {
        if let Some(reason) = &response.refusal {
            service.refused(self.client, PATH, reason);
        }
        super::write(&mut self.stream, response, true)
    }

    /// Reads a report of so many bytes and keeps it.
    fn report(
        &mut self,
        head: &Head,
        length: usize,
        permit: &UploadPermit,
        service: &Service,
    ) -> io::Result<Response> {
        if asks_first(head) {
            self.stream.write_all(CONTINUE)?;
        }
        let began = Instant::now();
        if let Err(error) = self.read_body(length) {
            return match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Ok(late()),
                _ => Err(error),
            };
        }
        let body = std::mem::take(&mut self.buffer);
        let client = self.client.ip();
        let took = began.elapsed();
        Ok(keep(permit, &body, client, took, &service.events))
    }

    /// Has the body in the buffer, and nothing else.
    fn read_body(&mut self, length: usize) -> io::Result<()> {
        let deadline = Instant::now() + self.limits.body_timeout;
        self.buffer.truncate(length);
        let mut bytes = [0; 16 * 1024];
        while self.buffer.len() < length {
            let left = bytes.len().min(length - self.buffer.len());
            let room = bytes.get_mut(..left).unwrap_or_default();
            let count = self.read(room, deadline)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer
                .extend_from_slice(bytes.get(..count).unwrap_or_default());
        }
        Ok(())
    }
}
