//! The read request: to whom it goes, when again, and what may be answered to it.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::SocketAddr;
use wireboot_net::{Duration, Instant, NetError};
use wireboot_wire::tftp::{Options, Packet, Request, TransferOptions, VariableWindow};

use super::{FIRST_TIMEOUT, MAX_TIMEOUT, RETRIES, Run, TftpError};
use crate::race::ATTEMPT_DELAY;

/// Requests that the server's host may refuse: somebody may be starting it again.
const REFUSALS: u32 = 3;

impl Run<'_> {
    /// Sends the read request to one server after the other, and again, until something comes back.
    pub(super) async fn request(
        &self,
        servers: &[SocketAddr],
        file: &str,
        asked: &TransferOptions,
    ) -> Result<Vec<u8>, TftpError> {
        let mut options = Vec::new();
        asked.emit(&mut options);
        let mut packet = Vec::new();
        Packet::Rrq(Request {
            filename: file,
            mode: "octet",
            options: Options::new(&options),
        })
        .emit(&mut packet);
        let begin = self.stack.now();
        let mut attempts: Vec<RequestAttempt> = servers
            .iter()
            .zip(0..)
            .map(|(&server, number)| RequestAttempt::new(server, begin + ATTEMPT_DELAY * number))
            .collect();
        loop {
            // A block that is in doubt is an answer, too.
            if self.transfer.borrow().peer.is_none() {
                self.ask(&mut attempts, &packet, begin)?;
            }
            self.stack.next_turn().await;
            self.turn_strangers_away();
            let first = self.transfer.borrow_mut().answer(self.stack.now());
            if let Some(first) = first {
                return first;
            }
        }
    }

    /// Sends the requests that are due. Fails when all attempts have.
    fn ask(
        &self,
        attempts: &mut [RequestAttempt],
        packet: &[u8],
        begin: Instant,
    ) -> Result<(), TftpError> {
        let now = self.stack.now();
        for attempt in &mut *attempts {
            let server = attempt.server;
            if attempt.turn(now, || self.socket.send_to(server, packet)) {
                let mut transfer = self.transfer.borrow_mut();
                transfer.retransmissions += u64::from(attempt.requests > 1);
                transfer.sent = now;
            }
            if attempt.error.is_none() && self.socket.was_refused_by(server) {
                attempt.refused();
            }
        }
        if attempts.iter().any(|attempt| attempt.error.is_some()) {
            // Nobody waits for one that is out of the race.
            for attempt in attempts.iter_mut().filter(|attempt| attempt.requests == 0) {
                attempt.due = attempt.due.min(now);
            }
        }
        if attempts.iter().any(|attempt| attempt.error.is_none()) {
            return Ok(());
        }
        // The last one is the one that was waited for.
        let last = attempts.last_mut();
        Err(match last.and_then(|attempt| attempt.error.take()) {
            Some(TftpError::NoAnswer { requests, port, .. }) => TftpError::NoAnswer {
                requests,
                port,
                seconds: (now - begin).secs() as i64,
            },
            Some(error) => error,
            None => NetError::Unreachable.into(),
        })
    }
}

/// The requests to one of the server's addresses.
struct RequestAttempt {
    server: SocketAddr,
    requests: u32,
    /// When the next one leaves, and how long after the one before.
    due: Instant,
    patience: Duration,
    refusals: u32,
    /// Why there are no more.
    error: Option<TftpError>,
}

impl RequestAttempt {
    fn new(server: SocketAddr, due: Instant) -> Self {
        Self {
            server,
            requests: 0,
            due,
            patience: FIRST_TIMEOUT,
            refusals: 0,
            error: None,
        }
    }

    /// Sends a request if it is time. Returns whether it did.
    fn turn(&mut self, now: Instant, send: impl FnOnce() -> Result<(), NetError>) -> bool {
        if self.error.is_some() || now < self.due {
            return false;
        }
        if self.requests == RETRIES {
            self.error = Some(TftpError::NoAnswer {
                requests: self.requests,
                seconds: 0,
                port: self.server.port(),
            });
            return false;
        }
        if let Err(error) = send() {
            self.error = Some(error.into());
            return false;
        }
        self.requests += 1;
        self.due = now + self.patience;
        self.patience = (self.patience * 2).min(MAX_TIMEOUT);
        true
    }

    /// The host says that nobody listens.
    fn refused(&mut self) {
        self.refusals += 1;
        if self.refusals >= REFUSALS {
            self.error = Some(TftpError::Refused {
                requests: self.requests,
                port: self.server.port(),
            });
        }
    }
}

/// RFC 2347: a server may grant less than was asked, never more, and nothing that was not asked.
pub(super) fn within(granted: &TransferOptions, asked: &TransferOptions) -> Result<(), TftpError> {
    let check = |name, granted: Option<u16>, asked: Option<u16>| match (granted, asked) {
        (Some(granted), None) => Err((name, granted)),
        (Some(granted), Some(asked)) if granted > asked => Err((name, granted)),
        _ => Ok(()),
    };
    check("blksize", granted.block_size, asked.block_size)
        .and_then(|()| check("windowsize", granted.window_size, asked.window_size))
        .and_then(|()| check("slide", granted.slide, asked.slide))
        // The window would end before its acknowledgement is due.
        .and_then(|()| check("slide", granted.slide, granted.window_size))
        .and_then(
            |()| match (granted.variable_window, asked.variable_window) {
                (None, _) | (Some(VariableWindow::Granted), Some(_)) => Ok(()),
                (Some(other), _) => Err(("msftwindow", other.number())),
            },
        )
        .map_err(|(name, value)| TftpError::BadOption {
            name,
            value: value.to_string(),
        })
}
