//! A TFTP client that reads one file and keeps nothing of it: a state machine without socket and clock.
//!
//! It does what RFC 1350, 2347, 2348 and 7440 ask of a client, and compares every byte with the file as it should be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wireboot_wire::text;
use wireboot_wire::tftp::{DEFAULT_BLOCK_SIZE, Options, Packet, Request, TransferOptions, ack};

/// Wait for a packet before the last answer is sent again; doubled each time, up to [`MAX_TIMEOUT`].
const TIMEOUT: Duration = Duration::from_secs(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(4);

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The file's name.
    pub file: String,
    /// Payload bytes of a block.
    pub block_size: u16,
    /// Blocks for one acknowledgement.
    pub window: u16,
    /// The file as it should be.
    pub content: Arc<[u8]>,
}

/// How far a client is with reading its file (RFC 1350's read request).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadState {
    /// It waits for the first answer, or for blocks.
    Reading,
    /// All bytes came, and were right, at this moment.
    Complete(Instant),
    /// It cannot go on.
    Failed(String),
}

/// A client, which reads one file.
#[derive(Debug)]
pub(super) struct Client {
    wanted: Wanted,
    state: ReadState,
    /// What was agreed: payload bytes and blocks for one acknowledgement; nothing before the first answer.
    agreed: Option<(u16, u16)>,
    /// The block awaited; numbers do not wrap here.
    next: u64,
    /// The last block acknowledged.
    acked: u64,
    gap_told: bool,
    heard_at: Instant,
    backoff: u32,
    /// Blocks that came again.
    pub doubled: u64,
    /// Times that a block did not come while a later one did.
    pub gaps: u64,
    /// Times that nothing came.
    pub timeouts: u64,
}

impl Client {
    /// A client that sends its [`Client::request`] now.
    pub(super) fn new(wanted: Wanted, now: Instant) -> Self {
        Self {
            wanted,
            state: ReadState::Reading,
            agreed: None,
            next: 1,
            acked: 0,
            gap_told: false,
            heard_at: now,
            backoff: 0,
            doubled: 0,
            gaps: 0,
            timeouts: 0,
        }
    }

    /// The packet to the server's well-known port.
    pub(super) fn request(&self) -> Vec<u8> {
        let mut options = Vec::new();
        let asked = TransferOptions {
            block_size: Some(self.wanted.block_size),
            window_size: (self.wanted.window > 1).then_some(self.wanted.window),
            ..TransferOptions::default()
        };
        asked.emit(&mut options);
        let mut packet = Vec::new();
        Packet::Rrq(Request {
            filename: &self.wanted.file,
            mode: "octet",
            options: Options::new(&options),
        })
        .emit(&mut packet);
        packet
    }

    /// How far the read is.
    pub(super) fn state(&self) -> &ReadState {
        &self.state
    }

    /// Whether the server has answered.
    pub(super) fn is_answered(&self) -> bool {
        self.agreed.is_some()
    }

    /// Bytes that came, in order.
    pub(super) fn bytes(&self) -> u64 {
        let block_size = self.agreed.map_or(DEFAULT_BLOCK_SIZE, |(size, _)| size);
        ((self.next - 1) * u64::from(block_size)).min(self.wanted.content.len() as u64)
    }

    /// Takes a datagram from the server; what comes back is to be sent to it.
    pub(super) fn receive(&mut self, datagram: &[u8], now: Instant) -> Option<[u8; 4]> {
        if matches!(self.state, ReadState::Failed(_)) {
            return None;
        }
        match Packet::parse(datagram) {
            Ok(Packet::Data { block, payload }) => self.data(block, payload, now),
            Ok(Packet::Oack(options)) if self.next == 1 => {
                let block_size = DEFAULT_BLOCK_SIZE;
                match TransferOptions::from_acknowledgement(options) {
                    Ok(granted) => {
                        self.agreed = Some((
                            granted.block_size.unwrap_or(block_size),
                            granted.window_size.unwrap_or(1),
                        ));
                        self.heard(now);
                        Some(ack(0))
                    }
                    Err(error) => self.fail(error.to_string()),
                }
            }
            Ok(Packet::Error { code, text }) if self.state == ReadState::Reading => {
                self.fail(format!(
                    "the server says: {} ({})",
                    text::shown(text),
                    code.meaning()
                ))
            }
            _ => None,
        }
    }

    /// What is to be sent when nothing has come for long: nothing yet, the request, or the last acknowledgement.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Vec<u8>> {
        let patience = TIMEOUT
            .saturating_mul(1 << self.backoff.min(8))
            .min(MAX_TIMEOUT);
        if self.state != ReadState::Reading
            || now.saturating_duration_since(self.heard_at) < patience
        {
            return None;
        }
        self.heard_at = now;
        self.backoff += 1;
        self.timeouts += 1;
        Some(match self.agreed {
            None => self.request(),
            Some(_) => self.acknowledge().to_vec(),
        })
    }

    fn data(&mut self, number: u16, payload: &[u8], now: Instant) -> Option<[u8; 4]> {
        // A server that knows no options begins with the first block.
        let (block_size, window) = *self.agreed.get_or_insert((DEFAULT_BLOCK_SIZE, 1));
        if self.state != ReadState::Reading {
            // The last acknowledgement may have been lost.
            return Some(self.acknowledge());
        }
        let ahead = number.wrapping_sub((self.next & 0xffff) as u16);
        if ahead >= 0x8000 {
            self.doubled += 1;
            return None;
        }
        if ahead > 0 {
            // RFC 7440: the sender is told once where to go on.
            return (!std::mem::replace(&mut self.gap_told, true)).then(|| {
                self.gaps += 1;
                self.acknowledge()
            });
        }
        let offset = (self.next - 1).saturating_mul(block_size.into()) as usize;
        let content = self.wanted.content.get(offset..).unwrap_or_default();
        let expected = content.get(..block_size.into()).unwrap_or(content);
        if payload != expected {
            return self.fail(format!("wrong content in the block at byte {offset}"));
        }
        self.heard(now);
        self.gap_told = false;
        self.next += 1;
        if payload.len() < block_size.into() {
            self.state = ReadState::Complete(now);
        } else if self.next - 1 - self.acked < window.into() {
            return None;
        }
        Some(self.acknowledge())
    }

    /// The acknowledgement of everything that has come.
    fn acknowledge(&mut self) -> [u8; 4] {
        self.acked = self.next - 1;
        ack((self.acked & 0xffff) as u16)
    }

    fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.backoff = 0;
    }

    fn fail(&mut self, reason: String) -> Option<[u8; 4]> {
        self.state = ReadState::Failed(reason);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_wire::tftp::data_header;

    /// A DATA packet, as a server would send it.
    fn data(block: u64, payload: &[u8]) -> Vec<u8> {
        [&data_header((block & 0xffff) as u16), payload].concat()
    }

    fn client(size: usize, block_size: u16, window: u16) -> (Client, Arc<[u8]>, Instant) {
        let content: Arc<[u8]> = (0..size).map(|i| (i * 7 / 3) as u8).collect();
        let wanted = Wanted {
            file: "f".into(),
            block_size,
            window,
            content: content.clone(),
        };
        let now = Instant::now();
        (Client::new(wanted, now), content, now)
    }

    fn granted(client: &mut Client, options: &[u8], now: Instant) {
        let oack = [b"\0\x06", options].concat();
        assert_eq!(client.receive(&oack, now), Some(ack(0)));
    }

    #[test]
    fn a_window_is_acknowledged_at_its_end_and_the_last_block_at_once() {
        let (mut client, content, now) = client(75, 10, 3);
        assert_eq!(
            client.request(),
            b"\0\x01f\0octet\0blksize\x0010\0windowsize\x003\0"
        );
        granted(&mut client, b"blksize\x0010\0windowsize\x003\0", now);
        let mut acks = Vec::new();
        for (block, payload) in (1..).zip(content.chunks(10)) {
            acks.extend(client.receive(&data(block, payload), now));
        }
        assert_eq!(acks, [ack(3), ack(6), ack(8)]);
        assert_eq!(*client.state(), ReadState::Complete(now));
        // The server did not hear the end.
        assert_eq!(
            client.receive(&data(7, &content[60..70]), now),
            Some(ack(8))
        );
    }

    #[test]
    fn a_gap_is_told_once_and_the_window_begins_anew() {
        let (mut client, content, now) = client(100, 10, 4);
        granted(&mut client, b"blksize\x0010\0windowsize\x004\0", now);
        let block = |n: u64| data(n, &content[(n as usize - 1) * 10..][..10]);
        assert_eq!(client.receive(&block(1), now), None);
        assert_eq!(client.receive(&block(3), now), Some(ack(1)));
        assert_eq!(client.receive(&block(4), now), None);
        let answers: Vec<_> = (2..=5)
            .filter_map(|n| client.receive(&block(n), now))
            .collect();
        assert_eq!(answers, [ack(5)]);
        assert_eq!(client.receive(&block(5), now), None);
        assert_eq!((client.gaps, client.doubled), (1, 1));
    }

    #[test]
    fn silence_repeats_the_request_then_the_acknowledgement() {
        let (mut client, content, now) = client(100, 10, 1);
        let later = now + TIMEOUT;
        assert_eq!(client.overdue(now), None);
        assert_eq!(client.overdue(later), Some(client.request()));
        assert_eq!(client.overdue(later + TIMEOUT), None, "the wait doubles");
        granted(&mut client, b"blksize\x0010\0", later);
        assert_eq!(
            client.receive(&data(1, &content[..10]), later),
            Some(ack(1))
        );
        assert_eq!(client.overdue(later + TIMEOUT), Some(ack(1).to_vec()));
        assert_eq!(client.timeouts, 2);
    }

    #[test]
    fn wrong_bytes_and_refusals_are_failures() {
        let (mut wrong, content, now) = client(100, 10, 1);
        granted(&mut wrong, b"blksize\x0010\0", now);
        assert_eq!(wrong.receive(&data(1, &content[1..11]), now), None);
        assert!(matches!(wrong.state(), ReadState::Failed(reason) if reason.contains("byte 0")));
        let (mut short, content, now) = client(100, 10, 1);
        granted(&mut short, b"blksize\x0010\0", now);
        short.receive(&data(1, &content[..9]), now);
        assert!(matches!(short.state(), ReadState::Failed(_)));
        let (mut refused, _, now) = client(100, 10, 1);
        refused.receive(b"\0\x05\0\x01gone\0", now);
        assert!(matches!(refused.state(), ReadState::Failed(reason) if reason.contains("gone")));
    }

    #[test]
    fn a_server_without_options_and_a_file_of_whole_blocks_beyond_the_wrap() {
        let (mut client, content, now) = client(512 * 65_540, 1468, 8);
        for (block, payload) in (1u64..).zip(content.chunks(512)) {
            let answer = client.receive(&data(block, payload), now);
            assert_eq!(answer, Some(ack((block & 0xffff) as u16)));
        }
        assert_eq!(*client.state(), ReadState::Reading);
        client.receive(&data(65_541, &[]), now);
        assert_eq!(*client.state(), ReadState::Complete(now));
        assert_eq!(client.bytes(), content.len() as u64);
    }
}
