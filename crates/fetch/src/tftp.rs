//! TFTP client: RFC 1350 with options (2347), block size (2348), transfer size (2349) and windows (7440), which
//! slide where the server knows our option for it ([`TransferOptions::slide`]).
//!
//! DATA packets are taken in the middle of the engine's burst (`Transfer` is the port's sink) and copied
//! straight to their place in the file; the task around it acknowledges windows, asks for memory, keeps
//! time and understands everything that is not DATA.
//!
//! Where no block arrives, the path may not take packets of that size: smaller ones are asked for. A server with several
//! addresses is asked at each, a quarter of a second apart; the first that answers has the transfer.

use crate::destination::{Destination, DestinationError};
use crate::pace::{Floor, Pace};
use crate::race::ATTEMPT_DELAY;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, SocketAddr};
use wireboot_net::{DatagramSink, Duration, Instant, Memory, NetError, Parts, Stack, UdpSocket};
use wireboot_wire::text;
use wireboot_wire::tftp::{
    BadOption, DATA_HEADER_LEN, DEFAULT_BLOCK_SIZE, ErrorCode, MAX_BLOCK_SIZE, Options, Packet,
    Request, TransferOptions, ack,
};

/// Bytes of UDP and TFTP headers in a DATA packet.
const HEADERS: u16 = 8 + DATA_HEADER_LEN as u16;
/// Block sizes to go down to where larger ones do not arrive: for tunnels and PPPoE, for the smallest MTU of IPv6, for any
/// network.
const SMALLER: [u16; 3] = [1428, 1220, DEFAULT_BLOCK_SIZE];
/// How long the first block may take before a smaller one is asked for: two more requests for it have been sent by then.
const FIRST_BLOCK: Duration = Duration::from_millis(3500);
/// Largest window asked for, in blocks. Twice as many bring nothing more, and a burst must fit the buffers of the
/// switches on the way.
const MAX_WINDOW: u16 = 256;
/// First wait for an answer to a request; doubled for each retransmission.
const FIRST_TIMEOUT: Duration = Duration::from_millis(1000);
/// Shortest wait for the next packet of a running transfer: servers stall for tens of milliseconds.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Longest single wait.
const MAX_TIMEOUT: Duration = Duration::from_secs(4);
/// Retransmissions in a row without an answer before an attempt is given up.
const RETRIES: u32 = 6;
/// Requests that the server's host may refuse: somebody may be starting it again.
const REFUSALS: u32 = 3;
/// Attempts, each from the first byte: TFTP cannot resume.
const ATTEMPTS: u32 = 3;
/// Wait after a window that was too large.
const SETTLE: Duration = Duration::from_millis(20);
/// Windows after which one that was tried is known to fit.
const TRIAL: u64 = 4;
/// A duplicate so long after our acknowledgement means that the acknowledgement was lost. Sooner, the network
/// duplicated a packet, and answering would start the sorcerer's apprentice.
const DUPLICATE_AFTER: Duration = Duration::from_millis(50);
/// Smallest MTU that a path is taken to have (RFC 791).
const MIN_PATH_MTU: u16 = 576;
/// First memory asked for when the server does not tell the size.
const UNKNOWN_SIZE: u64 = 4 << 20;
/// Packets that are not DATA kept for the task.
const CONTROL_QUEUE: usize = 8;

/// A file received by TFTP.
#[derive(Debug)]
pub struct TftpFile {
    /// Memory whose first `len` bytes are the file.
    pub memory: Memory,
    /// Size of the file in bytes.
    pub len: u64,
    /// Acknowledgements and requests that had to be sent again.
    pub retransmissions: u64,
}

/// Why a file could not be had by TFTP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TftpError {
    /// The server sent an ERROR packet.
    #[error("the TFTP server says: {text} (error {code})")]
    Server {
        /// TFTP error code.
        code: u16,
        /// The server's text, or the code's meaning when it sent none.
        text: String,
    },
    /// Nothing came from the server.
    #[error(
        "no answer from the TFTP server after {requests} requests in {seconds} s: is it running, and does UDP port {port} pass the firewall?"
    )]
    NoAnswer {
        /// Requests sent.
        requests: u32,
        /// Seconds waited in all.
        seconds: i64,
        /// The server's port.
        port: u16,
    },
    /// The server's host says that nobody listens there.
    #[error(
        "nobody listens on UDP port {port} of the TFTP server (asked {requests} times): is it running?"
    )]
    Refused {
        /// Requests sent.
        requests: u32,
        /// The port.
        port: u16,
    },
    /// The server stopped in the middle.
    #[error("the TFTP server fell silent after {received} bytes (tried {ATTEMPTS} times)")]
    Stalled {
        /// Bytes received by the last attempt.
        received: u64,
    },
    /// The server answers, but no block of its file arrives.
    #[error(
        "the TFTP server answers, but no block of the file arrives, not even of {size} bytes: look at the server and at what is \
         between"
    )]
    NoBlock {
        /// The smallest block size that was tried, in bytes.
        size: usize,
    },
    /// The transfer hardly gets on.
    #[error("too slow: {received} bytes of the file are there, and less than {floor} came last")]
    Slow {
        /// Bytes received.
        received: u64,
        /// What there must be.
        floor: Floor,
    },
    /// The server granted an option value that was not asked for.
    #[error("the TFTP server answers {name}={value}, which this client did not ask for")]
    BadOption {
        /// Name of the option.
        name: &'static str,
        /// The server's value.
        value: String,
    },
    /// The size does not fit the announcement.
    #[error(
        "the TFTP server announced {announced} bytes but sends {received}: is the file being written?"
    )]
    WrongSize {
        /// Size in the option acknowledgement.
        announced: u64,
        /// Bytes that it sent, or would have to send next.
        received: u64,
    },
    /// No memory, or no interest any more.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// The network refused to send.
    #[error(transparent)]
    Net(#[from] NetError),
}

impl From<BadOption> for TftpError {
    fn from(option: BadOption) -> Self {
        Self::BadOption {
            name: option.name,
            value: option.value,
        }
    }
}

/// What became of a transfer, as far as the sink can tell.
struct Transfer {
    /// Those that are asked.
    servers: Vec<IpAddr>,
    /// The one that has answered, by the port that it chose for this transfer (its transfer ID).
    peer: Option<SocketAddr>,
    /// DATA may go to memory.
    streaming: bool,
    memory: Option<Memory>,
    block_size: usize,
    window: u16,
    /// Acknowledgements of its multiples slide the window on.
    slide: Option<u16>,
    /// Next block expected, counted from 1 without wrapping.
    next: u64,
    received: u64,
    /// A block found no room.
    overflow: bool,
    /// The last block has come.
    complete: bool,
    /// The block of our last acknowledgement.
    acknowledged: u64,
    /// In-order blocks since our last acknowledgement.
    unacknowledged: u16,
    /// Acknowledge in this turn.
    due: bool,
    /// The server shall go on after the last block in order, whatever it has sent.
    again: bool,
    /// A gap in this window has been reported.
    gap: bool,
    /// When anything of this transfer last came, and when we last sent.
    heard: Instant,
    sent: Instant,
    /// The round trip is being measured: from an acknowledgement to the first block that could not come without it.
    timing: Option<(u64, Instant)>,
    round_trip: Option<Duration>,
    retransmissions: u64,
    trial: Option<Trial>,
    control: VecDeque<Vec<u8>>,
    /// Senders that are not our peer and shall be told so.
    strangers: VecDeque<SocketAddr>,
}

/// A window of which nobody knows whether the receive buffers hold it.
struct Trial {
    /// The block at which it is over, and well.
    end: u64,
    /// When it began.
    retransmissions: u64,
}

impl DatagramSink for Transfer {
    fn datagram(&mut self, source: SocketAddr, payload: Parts<'_>, now: Instant) {
        let known = match self.peer {
            Some(peer) => (peer.ip(), peer.port()) == (source.ip(), source.port()),
            None => self.servers.contains(&source.ip()),
        };
        if !known {
            if self.strangers.len() < CONTROL_QUEUE {
                self.strangers.push_back(source);
            }
            return;
        }
        if self.streaming
            && let Some([0, 3, high, low]) = payload.first::<DATA_HEADER_LEN>()
        {
            let data = payload.slice(DATA_HEADER_LEN, usize::MAX);
            self.data(u16::from_be_bytes([high, low]), data, now);
        } else if self.control.len() < CONTROL_QUEUE {
            let mut bytes = alloc::vec![0; payload.len()];
            payload.copy_to(&mut bytes);
            if self.peer.is_none() {
                if !is_answer(&bytes) {
                    return;
                }
                self.peer = Some(source);
            }
            self.control.push_back(bytes);
        }
    }
}

/// Whether a request can have this answer.
fn is_answer(packet: &[u8]) -> bool {
    matches!(
        Packet::parse(packet),
        Ok(Packet::Oack(_) | Packet::Error { .. } | Packet::Data { block: 1, .. })
    )
}

impl Transfer {
    fn new(servers: &[SocketAddr], now: Instant) -> Self {
        Self {
            servers: servers.iter().map(SocketAddr::ip).collect(),
            peer: None,
            streaming: false,
            memory: None,
            block_size: usize::from(DEFAULT_BLOCK_SIZE),
            window: 1,
            slide: None,
            next: 1,
            received: 0,
            overflow: false,
            complete: false,
            acknowledged: 0,
            unacknowledged: 0,
            due: false,
            again: false,
            gap: false,
            heard: now,
            sent: now,
            timing: None,
            round_trip: None,
            retransmissions: 0,
            trial: None,
            control: VecDeque::new(),
            strangers: VecDeque::new(),
        }
    }

    /// One DATA packet, on loan.
    fn data(&mut self, block: u16, data: Parts<'_>, now: Instant) {
        if data.len() > self.block_size || self.complete {
            return;
        }
        self.heard = now;
        // The block number is 16 bits of the count (files beyond 65535 blocks wrap to 0).
        let ahead = block.wrapping_sub(self.next as u16) as i16;
        if ahead < 0 {
            // Only the newest block tells that our acknowledgement was lost: one answer for a whole window.
            if ahead == -1 && now >= self.sent + DUPLICATE_AFTER {
                self.retransmissions += 1;
                self.due = true;
                self.again = true;
            }
            return;
        }
        if ahead > 0 {
            if !self.gap {
                self.gap = true;
                self.due = true;
                self.again = true;
                self.retransmissions += 1;
            }
            return;
        }
        let room = self
            .memory
            .as_mut()
            .map(|memory| memory.rest_mut(self.received as usize))
            .unwrap_or_default();
        if room.len() < data.len() {
            // The task finds memory and asks for the block again.
            self.overflow = true;
            self.due = true;
            self.again = true;
            return;
        }
        if let Some((_, since)) = self.timing.take_if(|(block, _)| *block == self.next) {
            let sample = now - since;
            self.round_trip = Some(match self.round_trip {
                Some(smooth) => (smooth * 7 + sample) / 8,
                None => sample,
            });
        }
        data.copy_to(room);
        self.received += data.len() as u64;
        self.next += 1;
        self.unacknowledged += 1;
        self.gap = false;
        self.complete = data.len() < self.block_size;
        let window_ends = match self.slide {
            Some(slide) => (self.next - 1).is_multiple_of(slide.into()),
            None => self.unacknowledged >= self.window,
        };
        if self.complete || window_ends {
            self.due = true;
        }
    }

    /// What has been received is final.
    fn settle(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.settle(self.received as usize);
        }
    }

    /// The block to acknowledge now, and how often.
    fn acknowledgements(&mut self, now: Instant) -> (u16, usize) {
        let newest = self.next - 1;
        let again = core::mem::take(&mut self.again) || self.complete;
        let (block, copies) = match self.slide.map(u64::from) {
            None => {
                let whole = self.unacknowledged >= self.window;
                self.timing = whole.then_some((self.next, now));
                (newest, 1)
            }
            Some(slide) if again => {
                self.timing = None;
                // The first acknowledgement of a multiple slides the window on; only the next one takes it back.
                let slides = newest.is_multiple_of(slide) && newest != self.acknowledged;
                let twice = slides && !self.complete;
                (newest, if twice { 2 } else { 1 })
            }
            Some(slide) => {
                // A burst may go beyond the multiple, but only a multiple slides the window on.
                let block = newest - newest % slide;
                if self.timing.is_none() && block > self.acknowledged {
                    let window = u64::from(self.window);
                    self.timing = Some((self.acknowledged + window + 1, now));
                }
                (block, 1)
            }
        };
        self.sent = now;
        self.acknowledged = block;
        self.unacknowledged = 0;
        (block as u16, copies)
    }

    /// Room that a whole window beyond the last block in order needs, which is all that a server may have on its way.
    fn wanted(&self) -> u64 {
        self.received + u64::from(self.window) * self.block_size as u64
    }

    fn capacity(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.len() as u64)
    }

    /// How long to wait for the next packet.
    fn patience(&self) -> Duration {
        if self.trial.is_some() && self.next > 1 {
            // The end of a window that was too large is gone without a trace.
            return MIN_TIMEOUT;
        }
        self.round_trip
            .map_or(FIRST_TIMEOUT, |smooth| (smooth * 3).max(MIN_TIMEOUT))
            .min(MAX_TIMEOUT)
    }
}

/// Which options a request carries: servers that dislike one are asked again with fewer.
#[derive(Clone, Copy, PartialEq)]
enum Ask {
    All,
    NoWindow,
    Nothing,
}

/// Gets `file` (its name as the server knows it) from the server at `servers`, its addresses in the order of preference; when one
/// has answered, that is the only one left. `sharers` is the number of downloads, this one included, whose windows must fit the
/// receive buffers together.
///
/// # Errors
/// [`TftpError`], after retransmissions, smaller blocks and, where the server fell silent in the middle, further attempts.
pub async fn get(
    stack: &Stack,
    servers: &mut Vec<SocketAddr>,
    file: &str,
    sharers: usize,
    floor: Floor,
    destination: &mut impl Destination,
) -> Result<TftpFile, TftpError> {
    let mut ask = Ask::All;
    let mut attempt = 1;
    let mut most = MAX_BLOCK_SIZE;
    loop {
        let transfer = Rc::new(RefCell::new(Transfer::new(servers, stack.now())));
        let run = Run {
            stack,
            sharers,
            floor,
            socket: stack.udp_with_sink(transfer.clone()),
            transfer: transfer.clone(),
            announced: None,
        };
        let result = run.run(servers, file, ask, most, destination).await;
        let (peer, size, arrived) = {
            let transfer = transfer.borrow();
            (transfer.peer, transfer.block_size, transfer.next > 1)
        };
        if let Some(peer) = peer {
            servers.retain(|server| server.ip() == peer.ip());
            if most < MAX_BLOCK_SIZE && arrived {
                // The next file need not try.
                let mtu = size as u16 + headers(peer.ip());
                stack.set_path_mtu(peer.ip(), mtu.max(MIN_PATH_MTU));
            }
        }
        match result {
            Ok(Ending::File(file)) => return Ok(file),
            Ok(Ending::TooFast) => {
                stack.try_less();
                // What is still on its way would push the answer to the next request out of the buffers.
                stack.sleep(SETTLE).await;
            }
            Ok(Ending::NoBlock) => {
                let smaller = SMALLER.into_iter().find(|&less| usize::from(less) < size);
                let Some(smaller) = smaller else {
                    return Err(TftpError::NoBlock { size });
                };
                log::warn!(
                    "{file}: no TFTP block of {size} bytes arrives; asking for blocks of {smaller}"
                );
                most = smaller;
            }
            Err(TftpError::Server { code, .. })
                if ask != Ask::Nothing && code == ErrorCode::OPTIONS.0 =>
            {
                ask = match ask {
                    Ask::All => Ask::NoWindow,
                    _ => Ask::Nothing,
                };
            }
            Err(TftpError::Stalled { .. }) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// How an attempt ended without an error.
enum Ending {
    File(TftpFile),
    /// The window turned out to be too large for the receive buffers.
    TooFast,
    /// The server answers, but no block arrives.
    NoBlock,
}

/// Bytes of headers in a DATA packet.
fn headers(server: IpAddr) -> u16 {
    match server {
        IpAddr::V4(_) => 20 + HEADERS,
        IpAddr::V6(_) => 40 + HEADERS,
    }
}

struct Run<'a> {
    stack: &'a Stack,
    sharers: usize,
    floor: Floor,
    socket: UdpSocket,
    transfer: Rc<RefCell<Transfer>>,
    announced: Option<u64>,
}

impl Run<'_> {
    async fn run(
        mut self,
        servers: &[SocketAddr],
        file: &str,
        ask: Ask,
        most: u16,
        destination: &mut impl Destination,
    ) -> Result<Ending, TftpError> {
        let asked = self.options(servers, ask, most);
        let first = self.request(servers, file, &asked).await?;
        self.begin(&first, &asked, destination).await?;
        self.begin_trial();
        let began = self.stack.now();
        let mut pace = Pace::new(self.floor, 0, began);
        let (mut silent, mut newest) = (0, 0);
        loop {
            self.turn_strangers_away();
            self.control()?;
            let now = self.stack.now();
            let (due, complete, received) = {
                let mut transfer = self.transfer.borrow_mut();
                let due = core::mem::take(&mut transfer.due);
                transfer.settle();
                (due, transfer.complete, transfer.received)
            };
            destination.progress(received, self.announced);
            if received > newest {
                (silent, newest) = (0, received);
            }
            if due || complete {
                if !complete {
                    self.grow(destination).await?;
                    pace.paused(now, self.stack.now());
                }
                self.acknowledge()?;
            }
            if complete {
                return self.finish().map(Ending::File);
            }
            if self.trial_failed() {
                // Any error ends the transfer (RFC 1350, section 7).
                self.refuse(
                    ErrorCode::UNDEFINED,
                    "too fast: asking for a smaller window",
                );
                return Ok(Ending::TooFast);
            }
            let size = self.transfer.borrow().block_size;
            let large = size > usize::from(DEFAULT_BLOCK_SIZE);
            if received == 0 && large && now >= began + FIRST_BLOCK {
                self.refuse(
                    ErrorCode::UNDEFINED,
                    "no block arrives: asking for smaller ones",
                );
                return Ok(Ending::NoBlock);
            }
            if !pace.holds(received, now) {
                self.refuse(ErrorCode::UNDEFINED, "too slow");
                let floor = self.floor;
                return match received {
                    0 => Ok(Ending::NoBlock),
                    _ => Err(TftpError::Slow { received, floor }),
                };
            }
            let timed_out = {
                let transfer = self.transfer.borrow();
                let since = transfer.heard.max(transfer.sent);
                let patience = (transfer.patience() * (1 << silent)).min(MAX_TIMEOUT);
                now >= since + patience
            };
            if timed_out {
                silent += 1;
                if silent > RETRIES {
                    return match received {
                        0 => Ok(Ending::NoBlock),
                        _ => Err(TftpError::Stalled { received }),
                    };
                }
                {
                    let mut transfer = self.transfer.borrow_mut();
                    transfer.retransmissions += 1;
                    transfer.again = true;
                    // If our report of a gap was lost, what slides in now shall be reported, too.
                    transfer.gap &= transfer.slide.is_none();
                }
                self.acknowledge()?;
            }
            self.stack.next_turn().await;
        }
    }

    /// Where the receive buffers are but hoped for, the first windows tell.
    fn begin_trial(&self) {
        let mut transfer = self.transfer.borrow_mut();
        let trial = self.stack.tries() && transfer.window > 1;
        transfer.trial = trial.then_some(Trial {
            end: TRIAL * u64::from(transfer.window),
            retransmissions: transfer.retransmissions,
        });
    }

    /// Whether frames were lost in the first windows.
    fn trial_failed(&self) -> bool {
        let mut transfer = self.transfer.borrow_mut();
        let next = transfer.next;
        transfer.trial.take_if(|trial| next > trial.end);
        let before = transfer.trial.as_ref().map(|trial| trial.retransmissions);
        before.is_some_and(|before| transfer.retransmissions > before)
    }

    fn options(&self, servers: &[SocketAddr], ask: Ask, most: u16) -> TransferOptions {
        if ask == Ask::Nothing {
            return TransferOptions::default();
        }
        let room = |server: &SocketAddr| {
            let server = server.ip();
            self.stack.path_mtu(server).saturating_sub(headers(server))
        };
        let block_size = servers
            .iter()
            .map(room)
            .fold(most, u16::min)
            .clamp(DEFAULT_BLOCK_SIZE, MAX_BLOCK_SIZE);
        let honest = self.stack.receive_frames() / self.sharers.max(1);
        let honest = u16::try_from(honest).unwrap_or(u16::MAX);
        let window = (ask == Ask::All).then_some(honest.clamp(1, MAX_WINDOW));
        TransferOptions {
            block_size: Some(block_size),
            window_size: window,
            transfer_size: Some(0),
            timeout: None,
            // Half a window is on its way while the other half is acknowledged.
            slide: window
                .filter(|&window| window >= 4)
                .map(|window| 1 << (window / 2).ilog2()),
        }
    }

    /// Sends the read request to one server after the other, and again, until something comes back.
    async fn request(
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
        let mut inquiries: Vec<Inquiry> = servers
            .iter()
            .zip(0..)
            .map(|(&server, number)| Inquiry::new(server, begin + ATTEMPT_DELAY * number))
            .collect();
        loop {
            let now = self.stack.now();
            for inquiry in &mut inquiries {
                let server = inquiry.server;
                if inquiry.turn(now, || self.socket.send_to(server, &packet)) {
                    let mut transfer = self.transfer.borrow_mut();
                    transfer.retransmissions += u64::from(inquiry.requests > 1);
                    transfer.sent = now;
                }
                if inquiry.error.is_none() && self.socket.was_refused_by(inquiry.server) {
                    inquiry.refused();
                }
            }
            if inquiries.iter().any(|inquiry| inquiry.error.is_some()) {
                // Nobody waits for one that is out of the race.
                for inquiry in inquiries.iter_mut().filter(|inquiry| inquiry.requests == 0) {
                    inquiry.due = inquiry.due.min(now);
                }
            }
            if inquiries.iter().all(|inquiry| inquiry.error.is_some()) {
                // The last one is the one that was waited for.
                let error = inquiries.pop().and_then(|inquiry| inquiry.error);
                return Err(match error {
                    Some(TftpError::NoAnswer { requests, port, .. }) => TftpError::NoAnswer {
                        requests,
                        port,
                        seconds: (now - begin).secs() as i64,
                    },
                    Some(error) => error,
                    None => NetError::Unreachable.into(),
                });
            }
            self.stack.next_turn().await;
            self.turn_strangers_away();
            let first = self.transfer.borrow_mut().control.pop_front();
            if let Some(first) = first {
                return Ok(first);
            }
        }
    }

    /// Understands the first answer: an OACK, the first block of a server without options, or an error.
    async fn begin(
        &mut self,
        first: &[u8],
        asked: &TransferOptions,
        destination: &mut impl Destination,
    ) -> Result<(), TftpError> {
        let granted = match Packet::parse(first) {
            Ok(Packet::Oack(options)) => {
                let granted = TransferOptions::from_acknowledgement(options)
                    .map_err(TftpError::from)
                    .and_then(|granted| within(&granted, asked).map(|()| granted));
                match granted {
                    Ok(granted) => granted,
                    Err(error) => {
                        self.refuse(ErrorCode::OPTIONS, "option value not asked for");
                        return Err(error);
                    }
                }
            }
            Ok(Packet::Error { code, text }) => return Err(server_error(code, text)),
            _ => TransferOptions::default(),
        };
        self.announced = granted.transfer_size;
        {
            let mut transfer = self.transfer.borrow_mut();
            transfer.block_size = usize::from(granted.block_size.unwrap_or(DEFAULT_BLOCK_SIZE));
            transfer.window = granted.window_size.unwrap_or(1).max(1);
            transfer.slide = granted.slide;
            transfer.timing = Some((1, transfer.sent));
        }
        self.grow(destination).await?;
        self.transfer.borrow_mut().streaming = true;
        let now = self.stack.now();
        if let Ok(Packet::Data { block, payload }) = Packet::parse(first) {
            let mut transfer = self.transfer.borrow_mut();
            transfer.data(block, Parts::new(&[payload]), now);
            transfer.due = true;
            return Ok(());
        }
        self.acknowledge()
    }

    /// Sees to it that the next window has a place to go.
    async fn grow(&self, destination: &mut impl Destination) -> Result<(), TftpError> {
        let (wanted, capacity) = {
            let mut transfer = self.transfer.borrow_mut();
            let overflow = core::mem::take(&mut transfer.overflow);
            if let Some(announced) = self.announced
                && overflow
            {
                return Err(TftpError::WrongSize {
                    announced,
                    received: transfer.wanted(),
                });
            }
            let wanted = self.announced.unwrap_or_else(|| transfer.wanted());
            (wanted, transfer.capacity())
        };
        if wanted <= capacity {
            return Ok(());
        }
        let bytes = match self.announced {
            Some(total) => total,
            None => wanted.max(capacity * 2).max(UNKNOWN_SIZE),
        };
        // While the memory is away, DATA finds no room and is asked for again.
        let previous = {
            let mut transfer = self.transfer.borrow_mut();
            let received = transfer.received;
            transfer.memory.take().map(|memory| (memory, received))
        };
        let memory = destination.memory(bytes, previous).await?;
        self.transfer.borrow_mut().memory = Some(memory);
        Ok(())
    }

    /// Understands what is not DATA.
    fn control(&self) -> Result<(), TftpError> {
        loop {
            let packet = self.transfer.borrow_mut().control.pop_front();
            let Some(packet) = packet else { return Ok(()) };
            match Packet::parse(&packet) {
                Ok(Packet::Error { code, text }) => return Err(server_error(code, text)),
                Ok(Packet::Oack(_)) => {
                    let mut transfer = self.transfer.borrow_mut();
                    // Our ACK of the OACK was lost, unless the network made two of one.
                    let lost = self.stack.now() >= transfer.sent + DUPLICATE_AFTER;
                    if transfer.next == 1 && lost {
                        transfer.due = true;
                    }
                }
                _ => {}
            }
        }
    }

    /// Acknowledges what has come in order.
    fn acknowledge(&self) -> Result<(), TftpError> {
        let mut transfer = self.transfer.borrow_mut();
        let Some(peer) = transfer.peer else {
            return Ok(());
        };
        let (block, copies) = transfer.acknowledgements(self.stack.now());
        drop(transfer);
        for _ in 0..copies {
            match self.socket.send_to(peer, &ack(block)) {
                // The next retransmission comes by itself.
                Ok(()) | Err(NetError::Full) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// RFC 1350 section 4: whoever is not our peer is told so, and our transfer goes on.
    fn turn_strangers_away(&self) {
        loop {
            let stranger = self.transfer.borrow_mut().strangers.pop_front();
            let Some(stranger) = stranger else { return };
            self.send_error(stranger, ErrorCode::UNKNOWN_ID, "unknown transfer ID");
        }
    }

    fn refuse(&self, code: ErrorCode, text: &str) {
        let peer = self.transfer.borrow().peer;
        if let Some(peer) = peer {
            self.send_error(peer, code, text);
        }
    }

    fn send_error(&self, to: SocketAddr, code: ErrorCode, text: &str) {
        let mut packet = Vec::new();
        Packet::Error {
            code,
            text: text.as_bytes(),
        }
        .emit(&mut packet);
        // Nothing depends on its arrival.
        let _ = self.socket.send_to(to, &packet);
    }

    fn finish(self) -> Result<TftpFile, TftpError> {
        let mut transfer = self.transfer.borrow_mut();
        let received = transfer.received;
        if let Some(announced) = self.announced
            && announced != received
        {
            return Err(TftpError::WrongSize {
                announced,
                received,
            });
        }
        Ok(TftpFile {
            memory: transfer
                .memory
                .take()
                .unwrap_or_else(|| Memory::from(Vec::new())),
            len: received,
            retransmissions: transfer.retransmissions,
        })
    }
}

/// The requests to one of the server's addresses.
struct Inquiry {
    server: SocketAddr,
    requests: u32,
    /// When the next one leaves, and how long after the one before.
    due: Instant,
    patience: Duration,
    refusals: u32,
    /// Why there are no more.
    error: Option<TftpError>,
}

impl Inquiry {
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
fn within(granted: &TransferOptions, asked: &TransferOptions) -> Result<(), TftpError> {
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
        .map_err(|(name, value)| TftpError::BadOption {
            name,
            value: value.to_string(),
        })
}

fn server_error(code: ErrorCode, message: &[u8]) -> TftpError {
    let shown = text::shown(message);
    TftpError::Server {
        code: code.0,
        text: if shown.is_empty() {
            code.meaning().to_string()
        } else {
            shown.to_string()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests;
