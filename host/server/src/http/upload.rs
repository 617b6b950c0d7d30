//! Reports that machines send (`POST /report`).

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use super::head::{Head, Method};
use super::response::Response;
use super::status::Status;
use super::{Connection, Service};
use crate::event::{Event, Kind};
use crate::reports::{LONGEST, Place, Refusal, Reports};

/// Where they are sent.
const PATH: &str = "/report";

/// Whether a request sends a report.
pub(super) fn is_report(head: &Head) -> bool {
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

/// How many bytes the body has, and a place for them, or why it is not read.
fn admitted<'a>(
    head: &Head,
    reports: Option<&'a Reports>,
    client: IpAddr,
) -> Result<(usize, Place<'a>), Box<Response>> {
    let refused = |(status, why): (Status, &str)| Box::new(Response::refusal(status, why));
    let why = "this server takes no reports; it does with --reports";
    let reports = reports.ok_or_else(|| refused((Status::NOT_FOUND, why)))?;
    let length = length(head).map_err(refused)?;
    let place = reports.place(client);
    Ok((length, place.map_err(|error| Box::new(refusal(&error)))?))
}

impl Connection {
    /// Takes a report in, and answers. Nothing else comes on this connection.
    pub(super) fn take_report(&mut self, head: &Head, service: &Service) -> io::Result<()> {
        match admitted(head, service.reports.as_deref(), self.client.ip()) {
            Err(refused) => self.conclude(&refused, service),
            Ok((length, place)) => {
                let response = self.report(head, length, &place, service)?;
                // The place is left when all is written: an answer takes memory, too.
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
        place: &Place<'_>,
        service: &Service,
    ) -> io::Result<Response> {
        if head.fields.lists("expect", "100-continue") {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let began = Instant::now();
        if let Err(error) = self.read_body(length) {
            return match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Ok(Response::refusal(
                    Status::TIMEOUT,
                    "the report did not come in time",
                )),
                _ => Err(error),
            };
        }
        let kept = place.keep(&self.buffer, SystemTime::now());
        self.buffer = Vec::new();
        Ok(match kept {
            Ok(name) => {
                let event = Event::now(Kind::Report, self.client.ip())
                    .file(&name)
                    .bytes(length as u64)
                    .seconds(began.elapsed().as_secs_f64());
                service.events.record(event);
                Response::created(&name)
            }
            Err(refused) => refusal(&refused),
        })
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
