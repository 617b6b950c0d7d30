//! A report that a machine sends over a connection of the station's.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::event::Events;
use crate::http::status::Status;
use crate::http::{Head, Response, upload};
use crate::reports::{Reports, UploadPermit};

/// A report that has not come in this time does not come.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often there is a look whether it is written.
const LOOK: Duration = Duration::from_millis(10);

/// A report under way.
#[derive(Debug)]
pub(super) enum ReportUpload {
    Coming(Coming),
    /// A thread writes it: disks are slow. Its answer comes from there.
    Written(Receiver<Response>),
}

/// What has come of it.
#[derive(Debug)]
pub(super) struct Coming {
    permit: UploadPermit,
    client: IpAddr,
    length: usize,
    bytes: Vec<u8>,
    began: Instant,
}

impl ReportUpload {
    /// The one that follows this head, or why it is not read. It counts as one of `machine`, whatever address its client has.
    pub(super) fn begin(
        head: &Head,
        reports: Option<&Arc<Reports>>,
        (machine, client): (IpAddr, IpAddr),
        now: Instant,
    ) -> Result<Self, Box<Response>> {
        let permit = |reports: &Arc<Reports>| reports.permit_at_once(machine);
        let (length, permit) = upload::admitted(head, reports, permit)?;
        Ok(Self::Coming(Coming {
            permit,
            client,
            length,
            bytes: Vec::new(),
            began: now,
        }))
    }

    /// Takes what has come from `from`. The answer, when there is one. `ended`: nothing more comes.
    pub(super) fn take(
        &mut self,
        from: &mut Vec<u8>,
        ended: bool,
        events: &Events,
        now: Instant,
    ) -> ReportAnswer {
        let coming = match self {
            Self::Coming(coming) => coming,
            Self::Written(answer) => {
                return match answer.try_recv() {
                    Ok(answer) => ReportAnswer::Response(answer),
                    Err(TryRecvError::Empty) => ReportAnswer::Later,
                    Err(TryRecvError::Disconnected) => ReportAnswer::Response(failed()),
                };
            }
        };
        let left = coming.length - coming.bytes.len();
        coming.bytes.extend(from.drain(..left.min(from.len())));
        if coming.bytes.len() < coming.length {
            return match now.saturating_duration_since(coming.began) >= PATIENCE {
                _ if ended => ReportAnswer::None,
                true => ReportAnswer::Response(upload::late()),
                false => ReportAnswer::Later,
            };
        }
        let (sender, answer) = sync_channel(1);
        let Self::Coming(coming) = std::mem::replace(self, Self::Written(answer)) else {
            return ReportAnswer::Later;
        };
        let events = events.clone();
        // By the station's clock, which may stand still while the thread's goes on.
        let took = now.saturating_duration_since(coming.began);
        let write = move || {
            let Coming {
                permit,
                client,
                bytes,
                ..
            } = coming;
            let answer = upload::keep(&permit, &bytes, client, took, &events);
            // Nobody waits where the machine has begun anew.
            let _ = sender.send(answer);
        };
        match Builder::new().name("report".to_owned()).spawn(write) {
            Ok(_) => ReportAnswer::Later,
            Err(_) => ReportAnswer::Response(failed()),
        }
    }

    /// When there is to be a look though nothing comes.
    pub(super) fn due(&self, now: Instant) -> Instant {
        match self {
            Self::Coming(coming) => coming.began + PATIENCE,
            Self::Written(_) => now + LOOK,
        }
    }
}

/// What is said to a report, so far.
pub(super) enum ReportAnswer {
    /// Nothing yet: it is coming, or being written.
    Later,
    /// Nothing: its client has gone.
    None,
    Response(Response),
}

fn failed() -> Response {
    let why = "the report cannot be kept: there is no thread to write it";
    Response::refusal(Status::INTERNAL, why)
}
