//! The events that are recorded of a transfer.

use std::net::IpAddr;
use std::time::Duration;

use super::sender::{Sender, Terms, TransferEnd};
use crate::event::{Event, Kind};

/// Its first block is about to be sent.
pub(crate) fn start(terms: &Terms, client: IpAddr, name: &str) -> Event {
    let mut agreed = format!("block size {}, window {}", terms.block_size, terms.window);
    if let Some(slide) = terms.slide {
        agreed += &format!(" sliding by {slide}");
    }
    let event = Event::now(Kind::TftpStart, client);
    event.file(name).bytes(terms.size).message(agreed)
}

/// It has ended as `end` says, after so long.
pub(crate) fn end(
    end: TransferEnd,
    sender: &Sender,
    client: IpAddr,
    name: &str,
    took: Duration,
) -> Event {
    let event = |kind| Event::now(kind, client).file(name);
    let done = |kind| {
        event(kind)
            .bytes(sender.acknowledged_bytes())
            .seconds(took.as_secs_f64())
    };
    let again = sender.resent_blocks();
    match end {
        TransferEnd::Complete if again > 0 => {
            done(Kind::TftpDone).message(format!("{again} blocks sent again"))
        }
        TransferEnd::Complete => done(Kind::TftpDone),
        TransferEnd::SizeOnly => event(Kind::TftpSize).bytes(sender.size()),
        TransferEnd::Aborted => {
            done(Kind::TftpError).message(format!("the client ended it: {}", sender.error_text()))
        }
        TransferEnd::Illegal => {
            done(Kind::TftpError).message("the client sent a packet that has no place in a read")
        }
        TransferEnd::Silent => done(Kind::TftpError).message("the client stopped answering"),
    }
}

/// Why a transfer is broken off whose slot another client is given.
pub(crate) const REVOKED: &str =
    "the client did not answer or hardly read on, and others needed its slot";

/// Why a transfer is broken off whose client has started anew.
pub(crate) const ASKED_ANEW: &str =
    "the client said nothing more, and asked anew from the same port";

/// It is broken off, for a reason that is still to be added.
pub(crate) fn broken_off(sender: &Sender, client: IpAddr, name: &str, took: Duration) -> Event {
    failed(client, name, took).bytes(sender.acknowledged_bytes())
}

/// It has failed, for a reason that is still to be added.
pub(crate) fn failed(client: IpAddr, name: &str, took: Duration) -> Event {
    let event = Event::now(Kind::TftpError, client).file(name);
    event.seconds(took.as_secs_f64())
}
