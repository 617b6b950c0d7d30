//! The events that are recorded of requests.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use super::head::Head;
use super::response;
use crate::event::{Event, Kind};

/// What was asked for, as events name it.
pub(crate) fn name(head: &Head) -> String {
    response::shown(&head.path)
}

/// A request is refused.
pub(crate) fn refused(client: IpAddr, name: &str, reason: &str) -> Event {
    Event::now(Kind::HttpError, client)
        .file(name)
        .message(reason)
}

/// A response with a file begins.
pub(crate) fn start(client: IpAddr, name: &str, range: &Range<u64>) -> Event {
    let event = Event::now(Kind::HttpStart, client).file(name);
    let event = event.bytes(range.end - range.start);
    match range.start {
        0 => event,
        from => event.message(format!("from byte {from} on")),
    }
}

/// Its last byte is sent.
pub(crate) fn done(client: IpAddr, name: &str, bytes: u64, took: Duration) -> Event {
    ended(Kind::HttpDone, client, name, bytes, took)
}

/// It broke off, for a reason that is still to be added.
pub(crate) fn broken_off(client: IpAddr, name: &str, sent: u64, took: Duration) -> Event {
    ended(Kind::HttpError, client, name, sent, took)
}

fn ended(kind: Kind, client: IpAddr, name: &str, bytes: u64, took: Duration) -> Event {
    let event = Event::now(kind, client).file(name).bytes(bytes);
    event.seconds(took.as_secs_f64())
}
