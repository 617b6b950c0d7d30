//! One read by TFTP, from the server's end: RFC 1350, 2347 (options), 2348 (block size), 2349 (size, timeout), 7440 (windows).

use super::datagram::answer;
use super::frames::Frames;
use super::{DownloadState, Files, Progress};
use alloc::vec::Vec;
use core::net::SocketAddr;
use wireboot_net::{Duration, Instant};
use wireboot_wire::tftp::{
    DATA_HEADER_LEN, DEFAULT_BLOCK_SIZE, ErrorCode, Options, Packet, Request, TransferOptions,
    data_header,
};

/// Blocks of a window at most: what waits for the loader takes memory.
const MOST_WINDOW: u16 = 64;
/// How long the loader may take to acknowledge until the blocks are sent again, unless it asks for another time.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long it may say nothing: then it has gone, or has what it wanted.
const SILENCE: Duration = Duration::from_secs(30);

/// What becomes of a session.
pub(super) enum Outcome {
    GoesOn,
    /// The loader has all, or an error, or is gone.
    Over,
    /// The request has to go to the server itself.
    ForTheWire,
}

enum Phase {
    /// Nothing has been answered.
    Asked,
    /// The option acknowledgement is to be acknowledged.
    Oack(TransferOptions),
    Data,
    Over,
}

pub(super) struct Session<F> {
    pub client: SocketAddr,
    /// The server's address, and a port of ours.
    pub server: SocketAddr,
    pub file: F,
    /// The Ethernet header of the request.
    header: [u8; 14],
    /// The IP packet of the request, and its payload.
    packet: Vec<u8>,
    request: Vec<u8>,
    wanted: TransferOptions,
    /// Largest payload of a block.
    room: usize,
    phase: Phase,
    block_size: usize,
    window: u64,
    timeout: Duration,
    /// Blocks that the loader has acknowledged, and that have been sent.
    acked: u64,
    sent: u64,
    /// The number of the last block, once it has been sent.
    last: Option<u64>,
    heard_at: Instant,
    sent_at: Instant,
}

impl<F> Session<F> {
    #[expect(clippy::too_many_arguments, reason = "they are the parts of a request")]
    pub(super) fn new(
        client: SocketAddr,
        server: SocketAddr,
        frame: (&[u8; 14], &[u8]),
        payload: &[u8],
        request: &Request<'_>,
        file: F,
        room: usize,
        now: Instant,
    ) -> Self {
        Self {
            client,
            server,
            file,
            header: *frame.0,
            packet: frame.1.into(),
            request: payload.into(),
            wanted: TransferOptions::from_request(request.options),
            room,
            phase: Phase::Asked,
            block_size: DEFAULT_BLOCK_SIZE.into(),
            window: 1,
            timeout: TIMEOUT,
            acked: 0,
            sent: 0,
            last: None,
            heard_at: now,
            sent_at: now,
        }
    }

    /// Whether this is its request, to which nothing has been answered.
    pub(super) fn asks(&self, payload: &[u8]) -> bool {
        matches!(self.phase, Phase::Asked) && payload == self.request
    }

    /// The payload of the request.
    pub(super) fn request(&self) -> &[u8] {
        &self.request
    }

    /// The request's frame, as the loader sent it.
    pub(super) fn request_frame(&self) -> (&[u8; 14], &[u8]) {
        (&self.header, &self.packet)
    }

    fn send(&self, packet: &Packet<'_>, frames: &mut Frames) {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        let (header, len) = (&self.header, bytes.len());
        let frame = answer(frames, header, self.server, self.client, len, |place| {
            place.copy_from_slice(&bytes);
        });
        frames.push(frame);
    }

    /// Tells the loader that nothing more comes.
    fn refuse(&self, code: ErrorCode, text: &str, frames: &mut Frames) {
        let text = text.as_bytes();
        self.send(&Packet::Error { code, text }, frames);
    }

    /// Takes a packet of the loader's. `drained`: nothing that was sent still waits for it.
    pub(super) fn hear(&mut self, packet: &Packet<'_>, now: Instant, drained: bool) {
        self.heard_at = now;
        match packet {
            Packet::Ack { block } => {
                let behind = u64::from(block.wrapping_sub(self.acked as u16));
                match self.phase {
                    Phase::Oack(_) if *block == 0 => self.phase = Phase::Data,
                    Phase::Data if behind <= self.sent - self.acked => {
                        self.acked += behind;
                        // A gap in its window (RFC 7440, section 4): once, when it has seen the window to its end. In lock-step an old
                        // acknowledgement means nothing (RFC 1123, section 4.2.3.1).
                        if self.window > 1 && drained {
                            self.sent = self.acked;
                        }
                    }
                    _ => {}
                }
                if self.last == Some(self.acked) {
                    self.phase = Phase::Over;
                }
            }
            Packet::Error { .. } => self.phase = Phase::Over,
            _ => {}
        }
    }

    /// What is granted of the options, where any is.
    fn granted(&self, size: Option<u64>) -> Option<TransferOptions> {
        let most = u16::try_from(self.room).unwrap_or(u16::MAX);
        let granted = TransferOptions {
            block_size: self.wanted.block_size.map(|size| size.min(most)),
            window_size: self.wanted.window_size.map(|size| size.min(MOST_WINDOW)),
            transfer_size: self.wanted.transfer_size.and(size),
            timeout: self.wanted.timeout,
            slide: None,
            variable_window: None,
        };
        (!granted.is_empty()).then_some(granted)
    }

    /// Sends what is to be sent.
    pub(super) fn turn(
        &mut self,
        files: &mut impl Files<File = F>,
        now: Instant,
        frames: &mut Frames,
    ) -> Outcome {
        if now >= self.heard_at + SILENCE && !matches!(self.phase, Phase::Asked) {
            self.phase = Phase::Over;
        }
        if let Phase::Over = self.phase {
            files.release(&self.file, self.acked * self.block_size as u64);
            return Outcome::Over;
        }
        let progress = files.progress(&self.file);
        if let Phase::Asked = self.phase {
            match &progress.state {
                DownloadState::Asked => return Outcome::GoesOn,
                DownloadState::ForTheWire => return Outcome::ForTheWire,
                DownloadState::Silent if progress.ready == 0 => return Outcome::Over,
                DownloadState::Refused { code, text } if progress.ready == 0 => {
                    self.refuse(ErrorCode(*code), text, frames);
                    return Outcome::Over;
                }
                _ => self.begin(&progress, now, frames),
            }
        }
        let late = now >= self.sent_at + self.timeout;
        match self.phase {
            Phase::Oack(granted) if late => self.acknowledge_options(&granted, now, frames),
            Phase::Data => {
                files.release(&self.file, self.acked * self.block_size as u64);
                if late && self.sent > self.acked {
                    self.sent = self.acked;
                }
                while self.sent < self.acked + self.window {
                    if self.send_block(files, &progress, frames) {
                        self.sent_at = now;
                        continue;
                    }
                    match &progress.state {
                        DownloadState::Refused { code, text } => {
                            self.refuse(ErrorCode(*code), text, frames);
                            return Outcome::Over;
                        }
                        DownloadState::ForTheWire => {
                            // In the middle there is no way to the server any more.
                            let text = "no memory for the rest";
                            self.refuse(ErrorCode::UNDEFINED, text, frames);
                            return Outcome::Over;
                        }
                        _ => break,
                    }
                }
            }
            _ => {}
        }
        Outcome::GoesOn
    }

    /// Answers the request, as the server has answered.
    fn begin(&mut self, progress: &Progress, now: Instant, frames: &mut Frames) {
        self.heard_at = now;
        let whole = matches!(progress.state, DownloadState::Whole).then_some(progress.ready);
        self.phase = match self.granted(progress.announced.or(whole)) {
            None => Phase::Data,
            Some(granted) => {
                self.block_size = granted.block_size.unwrap_or(DEFAULT_BLOCK_SIZE).into();
                self.window = granted.window_size.unwrap_or(1).into();
                let seconds = granted
                    .timeout
                    .map(|seconds| Duration::from_secs(seconds.into()));
                self.timeout = seconds.unwrap_or(TIMEOUT);
                self.acknowledge_options(&granted, now, frames);
                Phase::Oack(granted)
            }
        };
    }

    fn acknowledge_options(
        &mut self,
        granted: &TransferOptions,
        now: Instant,
        frames: &mut Frames,
    ) {
        let mut bytes = Vec::new();
        granted.emit(&mut bytes);
        self.send(&Packet::Oack(Options::new(&bytes)), frames);
        self.sent_at = now;
    }

    /// Sends the next block, if it is there.
    fn send_block(
        &mut self,
        files: &impl Files<File = F>,
        progress: &Progress,
        frames: &mut Frames,
    ) -> bool {
        if self.last == Some(self.sent) {
            return false;
        }
        let at = self.sent * self.block_size as u64;
        let rest = usize::try_from(progress.ready.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = rest.min(self.block_size);
        if len < self.block_size && progress.state != DownloadState::Whole {
            return false;
        }
        let number = self.sent + 1;
        let mut read = 0;
        let packet = DATA_HEADER_LEN + len;
        let (header, file) = (&self.header, &self.file);
        let frame = answer(frames, header, self.server, self.client, packet, |place| {
            if let Some((head, payload)) = place.split_first_chunk_mut() {
                *head = data_header(number as u16);
                read = files.read(file, at, payload);
            }
        });
        if read < len {
            return false;
        }
        if len < self.block_size {
            self.last = Some(number);
        }
        self.sent = number;
        frames.push(frame);
        true
    }
}
