//! Transfers by HTTP/1 over TCP (RFC 9112, 9293).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use smoltcp::wire::{TcpOption, TcpSeqNumber};
use wireboot_report::network::{Outcome, Protocol};
use wireboot_wire::text;

use super::{Endpoint, MOST, Transfers, Turn};
use crate::frame::Tcp;

/// RFC 9293 section 3.7.1: the segment size where none is announced.
const DEFAULT_SEGMENT: u32 = 536;

/// What the ends of a connection announced, by the end that did.
#[derive(Debug, Default)]
pub(super) struct Connections {
    announced: BTreeMap<(Endpoint, Endpoint), Announced>,
    /// Connections to HTTP's port that nobody has answered yet, by client and server.
    pub(super) attempts: BTreeMap<(Endpoint, Endpoint), Attempt>,
}

/// A connection that a client tries to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// When the first SYN came, in seconds.
    pub(super) first_s: f64,
    /// When the last one came, in seconds.
    pub(super) last_s: f64,
}

/// The port of servers that are looked for; a file of any port is read once it is asked for.
const PORT: u16 = 80;

#[derive(Clone, Copy, Debug)]
struct Announced {
    /// The largest segment that it takes.
    segment: u32,
    /// By how many bits its windows are to be shifted (RFC 7323), if it said so.
    shift: Option<u8>,
}

impl Connections {
    /// The largest segment that `server` sends to `client`.
    fn segment(&self, client: Endpoint, server: Endpoint) -> u32 {
        let one = |from, to| self.announced.get(&(from, to)).map(|one| one.segment);
        match (one(client, server), one(server, client)) {
            (Some(one), Some(other)) => one.min(other),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => 1460,
        }
        .max(1)
    }

    /// The window in bytes that `client` offers with the field `window`.
    fn window(&self, client: Endpoint, server: Endpoint, window: u16) -> u64 {
        let shift = |from, to| self.announced.get(&(from, to)).and_then(|one| one.shift);
        // Only where both said so.
        let both = shift(client, server).filter(|_| shift(server, client).is_some());
        // RFC 7323 section 2.3: 14 at most.
        u64::from(window) << both.unwrap_or(0).min(14)
    }
}

/// How far a transfer by HTTP is. Sequence numbers are the response's.
#[derive(Debug, Default)]
pub(super) struct HttpTransferState {
    /// Of the first byte.
    first: u32,
    /// Behind the highest byte.
    highest: u32,
    /// The highest acknowledgement.
    acknowledged: u32,
    /// Bytes of the response, its head included, where the head told.
    whole: Option<u64>,
    /// The head alone was asked for.
    head_alone: bool,
    /// The server has ended its side.
    ended: bool,
    /// The client's window is shut: the server waits for it.
    shut: bool,
}

impl Transfers {
    pub(super) fn tcp(&mut self, at_s: f64, from: Endpoint, to: Endpoint, tcp: &Tcp<'_>) {
        if tcp.segment.syn() {
            self.announced(at_s, from, to, tcp);
        }
        // Whatever the server says is an answer.
        self.connections.attempts.remove(&(to, from));
        let payload = tcp.segment.payload();
        if payload.starts_with(b"GET ") || payload.starts_with(b"HEAD ") {
            self.request(at_s, from, to, tcp);
        } else if self.at(Protocol::Http, to, from.0).is_some() {
            self.response(at_s, from, to, tcp);
        } else if self.at(Protocol::Http, from, to.0).is_some() {
            self.acknowledgement(at_s, from, to, tcp);
        }
    }

    fn announced(&mut self, at_s: f64, from: Endpoint, to: Endpoint, tcp: &Tcp<'_>) {
        let mut announced = Announced {
            segment: DEFAULT_SEGMENT,
            shift: None,
        };
        let mut options = tcp.segment.options();
        while let Ok((rest, option)) = TcpOption::parse(options) {
            match option {
                TcpOption::MaxSegmentSize(size) => announced.segment = size.into(),
                TcpOption::WindowScale(shift) => announced.shift = Some(shift),
                TcpOption::EndOfList => break,
                _ => {}
            }
            options = rest;
        }
        let connections = &mut self.connections;
        if connections.announced.len() < MOST {
            connections.announced.insert((from, to), announced);
        }
        if !tcp.segment.ack() && to.1 == PORT && connections.attempts.len() < MOST {
            let attempt = connections.attempts.entry((from, to)).or_insert(Attempt {
                first_s: at_s,
                last_s: at_s,
            });
            attempt.last_s = at_s;
        }
    }

    fn request(&mut self, at_s: f64, from: Endpoint, to: Endpoint, tcp: &Tcp<'_>) {
        let mut words = tcp.segment.payload().split(|byte| *byte == b' ');
        let head_alone = words.next() == Some(b"HEAD");
        let file = text::shown(words.next().unwrap_or_default());
        let first = number(tcp.segment.ack_number());
        let segment = self.connections.segment(from, to);
        let window = self.connections.window(from, to, tcp.segment.window_len());
        if let Some(known) = self.at(Protocol::Http, from, to.0) {
            if known.http.first == first {
                return;
            }
            // The next request on the connection: the one before is over.
            if known.transfer.outcome == Outcome::Unfinished && known.transfer.bytes > 0 {
                known.transfer.outcome = Outcome::Complete;
            }
        }
        let Some(begun) = self.begin(Protocol::Http, at_s, from, to.0) else {
            return;
        };
        begun.transfer.file = if head_alone {
            format!("{file} (HEAD)")
        } else {
            file
        };
        begun.transfer.block_bytes = segment;
        begun.transfer.window_bytes = window;
        begun.http = HttpTransferState {
            first,
            highest: first,
            acknowledged: first,
            head_alone,
            ..HttpTransferState::default()
        };
    }

    fn response(&mut self, at_s: f64, from: Endpoint, to: Endpoint, tcp: &Tcp<'_>) {
        let Some(followed) = self.at(Protocol::Http, to, from.0) else {
            return;
        };
        let state = &mut followed.http;
        state.ended |= tcp.segment.fin() || tcp.segment.rst();
        // At most what an IP packet has.
        let length = tcp.length as u32;
        if length == 0 {
            return;
        }
        if number(tcp.segment.seq_number()) == state.first && followed.transfer.answer_s.is_none() {
            let head = Head::of(tcp.segment.payload());
            state.whole = if state.head_alone {
                head.length
            } else {
                head.length
                    .zip(head.body)
                    .and_then(|(head, body)| head.checked_add(body))
            };
            if let Some(status) = head.refusal {
                followed.transfer.outcome = Outcome::Refused;
                followed.transfer.message = Some(status);
            }
        }
        let end = number(tcp.segment.seq_number()).wrapping_add(length);
        // RFC 9293 section 3.4: sequence numbers compare modulo 2^32.
        let new = end.wrapping_sub(state.highest);
        let transfer = &mut followed.transfer;
        transfer.data_packets += u64::from(length.div_ceil(transfer.block_bytes.max(1)));
        if new != 0 && new < 1 << 31 {
            transfer.bytes += u64::from(new);
            state.highest = end;
        } else {
            transfer.repeated += 1;
        }
        followed.server_spoke(at_s);
    }

    fn acknowledgement(&mut self, at_s: f64, from: Endpoint, to: Endpoint, tcp: &Tcp<'_>) {
        let window = self.connections.window(from, to, tcp.segment.window_len());
        let Some(followed) = self.at(Protocol::Http, from, to.0) else {
            return;
        };
        followed.transfer.client_packets += 1;
        followed.transfer.window_bytes = followed.transfer.window_bytes.max(window);
        let acknowledged = number(tcp.segment.ack_number());
        let new = acknowledged.wrapping_sub(followed.http.acknowledged);
        if tcp.segment.ack() && new != 0 && new < 1 << 31 && followed.transfer.bytes > 0 {
            // The FIN takes a number too; its acknowledgement is no byte's.
            let covered = followed.http.acknowledged == followed.http.highest;
            followed.http.acknowledged = acknowledged;
            if !covered {
                followed.transfer.end_s = at_s;
                followed.client_spoke(at_s);
            }
        }
        // A shut window is the client's wait, up to the word that it is open.
        if window == 0 {
            if !followed.http.shut {
                followed.turn = Turn::Client { since_s: at_s };
            }
        } else if followed.http.shut {
            followed.client_spoke(at_s);
        }
        followed.http.shut = window == 0;
        let (transfer, state) = (&mut followed.transfer, &followed.http);
        if transfer.outcome != Outcome::Unfinished {
            return;
        }
        let all = match state.whole {
            Some(whole) => transfer.bytes >= whole,
            None => state.ended,
        };
        // The highest byte, or the FIN behind it.
        let unacknowledged = state.highest.wrapping_sub(state.acknowledged) as i32;
        if all && unacknowledged <= 0 {
            transfer.outcome = Outcome::Complete;
        } else if tcp.segment.rst() {
            transfer.outcome = Outcome::BrokenOff;
        }
    }
}

/// A sequence number as it stands in the segment.
fn number(number: TcpSeqNumber) -> u32 {
    number.0 as u32
}

/// What a response's head tells.
struct Head {
    /// The status line, where it is no success.
    refusal: Option<String>,
    /// Its own bytes, where its end is in sight.
    length: Option<u64>,
    /// Bytes of the body, where it tells.
    body: Option<u64>,
}

impl Head {
    fn of(payload: &[u8]) -> Self {
        let mut lines = payload.split(|byte| *byte == b'\n');
        let status = lines.next().unwrap_or_default().trim_ascii();
        let code = status
            .split(|byte| *byte == b' ')
            .nth(1)
            .unwrap_or_default();
        let refused =
            status.starts_with(b"HTTP/") && (code.starts_with(b"4") || code.starts_with(b"5"));
        let end = payload.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        Self {
            refusal: refused.then(|| text::shown(status)),
            length: end.map(|end| end as u64 + 4),
            body: lines
                .take_while(|line| !line.trim_ascii().is_empty())
                .find_map(content_length),
        }
    }
}

fn content_length(line: &[u8]) -> Option<u64> {
    let (name, value) = line.split_at_checked(15)?;
    if !name.eq_ignore_ascii_case(b"content-length:") {
        return None;
    }
    str::from_utf8(value.trim_ascii()).ok()?.parse().ok()
}
