//! TFTP client: RFC 1350 with options (2347), block size (2348), transfer size (2349) and windows (7440), which
//! slide where the server knows our option for it ([`TransferOptions::slide`]).
//!
//! DATA packets are taken in the middle of the engine's burst (`Transfer` is the port's sink) and copied
//! straight to their place in the file; the task around it acknowledges windows, asks for memory, keeps
//! time and handles everything that is not DATA.
//!
//! Where no block arrives, the path may not take packets of that size: smaller ones are asked for. Where the card puts datagrams together
//! ([`Stack::takes_long_datagrams`]), the largest blocks are asked for first. A server with several
//! addresses is asked at each, a quarter of a second apart; the first that answers has the transfer.

mod error;
mod request;
mod transfer;
mod window;

pub use error::TftpError;

use crate::destination::Destination;
use crate::pace::{Floor, Limits, Pace};
use crate::wait::{WORTHWHILE, Wait, pause_after};
use request::within;
use transfer::{DUPLICATE_AFTER, Transfer};
pub use window::Window;
use window::{MAX_LONG_WINDOW, MAX_WINDOW, slide, window_is_short};

use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, SocketAddr};
use wireboot_net::{Duration, Ends, Memory, NetError, Parts, Stack, UdpSocket};
use wireboot_wire::text;
use wireboot_wire::tftp::{
    DATA_HEADER_LEN, DEFAULT_BLOCK_SIZE, ErrorCode, MAX_BLOCK_SIZE, Packet, TransferOptions,
    VariableWindow, ack, ack_with_window,
};

/// Bytes of UDP and TFTP headers in a DATA packet.
const HEADERS: u16 = 8 + DATA_HEADER_LEN as u16;
/// Block sizes to go down to where larger ones do not arrive: for tunnels and PPPoE, for the smallest MTU of IPv6, for any
/// network.
const SMALLER: [u16; 3] = [1428, 1220, DEFAULT_BLOCK_SIZE];
/// How long the first block may take before a smaller one is asked for: two more requests for it have been sent by then.
const FIRST_BLOCK: Duration = Duration::from_millis(3500);
/// Receive memory that such a block takes, with all headers, in bytes.
const LONG_BLOCK_ROOM: usize = 1 << 16;
/// First wait for an answer to a request; doubled for each retransmission.
const FIRST_TIMEOUT: Duration = Duration::from_millis(1000);
/// Longest wait between two packets of ours, after any number of retransmissions.
const MAX_TIMEOUT: Duration = Duration::from_secs(4);
/// Retransmissions in a row without an answer before an attempt is given up.
const RETRIES: u32 = 6;
/// Attempts, each from the first byte: TFTP cannot resume.
const ATTEMPTS: u32 = 3;
/// Wait after a window that was too large, for the rest of it to arrive.
const DRAIN_PAUSE: Duration = Duration::from_millis(20);
/// Smallest MTU that a path is taken to have (RFC 791).
const MIN_PATH_MTU: u16 = 576;
/// First memory asked for when the server does not announce the size, in bytes.
const UNKNOWN_SIZE: u64 = 4 << 20;

/// A file received by TFTP.
#[derive(Debug)]
pub struct TftpFile {
    /// Memory whose first `len` bytes are the file.
    pub memory: Memory,
    /// Size of the file in bytes.
    pub len: u64,
    /// Acknowledgements and requests that had to be sent again.
    pub retransmissions: u64,
    /// Bytes of a block, and blocks of a window, as the server granted them.
    pub granted: Granted,
}

/// The sizes that a transfer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Bytes of each block but the last.
    pub block: u16,
    /// Blocks for one acknowledgement.
    pub window: u16,
}

/// Sizes to ask for, whatever the path and the card's buffers are known to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a block. Where no block of that size arrives, the transfer fails.
    pub block: Option<u16>,
    /// Blocks of a window.
    pub window: Window,
}

/// Which options a request carries: servers that dislike one, or answer it wrongly, are asked again with fewer.
#[derive(Clone, Copy, PartialEq)]
enum Ask {
    All,
    NoWindow,
    Nothing,
}

/// Gets `file` (its name as the server knows it) from the server at `servers`, its addresses in the order of preference; when one
/// has answered, that is the only one left. `sharers` is the number of downloads, this one included, whose windows must fit the
/// receive buffers together. `sizes` are for measurements of what others ask for.
///
/// # Errors
/// [`TftpError`], after retransmissions, plainer requests, smaller blocks and, where the server fell silent or gave up in the middle, further
/// attempts; and after as much patience with a server that is not there as the limits say, anew when twice as much of the file has come as
/// before an earlier wait.
pub async fn get(
    stack: &Stack,
    servers: &mut Vec<SocketAddr>,
    file: &str,
    sharers: usize,
    sizes: Sizes,
    limits: Limits,
    destination: &mut impl Destination,
) -> Result<TftpFile, TftpError> {
    let mut ask = Ask::All;
    let mut attempt = 1;
    let (mut wait, mut failures, mut reach) = (Wait::new(limits.patience), 0, 0);
    let mut most = MAX_BLOCK_SIZE;
    loop {
        let transfer = Rc::new(RefCell::new(Transfer::new(servers, stack.now())));
        let mut run = Run {
            stack,
            sharers,
            sizes,
            floor: limits.floor,
            socket: stack.udp_with_sink(transfer.clone()),
            transfer: transfer.clone(),
            announced: None,
            long: false,
            ended: false,
        };
        let result = run.run(servers, file, ask, most, destination).await;
        run.ended = true;
        let long = run.long;
        drop(run);
        let (peer, size, arrived, received, held) = {
            let transfer = transfer.borrow();
            (
                transfer.peer(),
                transfer.block_size,
                transfer.next > 1,
                transfer.received,
                transfer.held,
            )
        };
        if let Some(peer) = peer {
            servers.retain(|server| server.ip() == peer.ip());
            if most < MAX_BLOCK_SIZE && arrived {
                // The next file need not try.
                let mtu = size as u16 + headers(peer.ip());
                stack.set_path_mtu(peer.ip(), mtu.max(MIN_PATH_MTU));
            }
        }
        // Each attempt begins with the first byte. So it has to come twice as far: a server that breaks off a little later each time would
        // keep it going for days.
        if received >= WORTHWHILE.max(reach * 2) {
            (reach, failures) = (received, 0);
            wait.over();
        }
        match result {
            Ok(Ending::File(file)) => return Ok(file),
            Ok(Ending::ShortBlocks) => stack.give_up_long_datagrams(),
            Ok(Ending::TooFast) => {
                if long {
                    stack.give_up_long_datagrams();
                } else {
                    stack.stop_probing();
                }
                // What is still on its way would push the answer to the next request out of the buffers.
                stack.sleep(DRAIN_PAUSE).await;
            }
            Ok(Ending::NoBlock) if long => {
                log::warn!("{file}: no TFTP block of {size} bytes arrives; asking for short ones");
                stack.give_up_long_datagrams();
            }
            Ok(Ending::NoBlock) => {
                let mut smaller = SMALLER.into_iter().filter(|_| sizes.block.is_none());
                let smaller = smaller.find(|&less| usize::from(less) < size);
                let Some(smaller) = smaller else {
                    return Err(TftpError::NoBlock { size });
                };
                log::warn!(
                    "{file}: no TFTP block of {size} bytes arrives; asking for blocks of {smaller}"
                );
                most = smaller;
            }
            Err(error) if ask != Ask::Nothing && error.is_of_options() => {
                ask = match ask {
                    Ask::All => Ask::NoWindow,
                    _ => Ask::Nothing,
                };
            }
            // The server was kept waiting, for as long as the receiver had no room.
            Err(TftpError::Stalled { .. }) if held => attempt = 1,
            Err(error) if error.is_stall(arrived) && attempt < ATTEMPTS => attempt += 1,
            Err(error) => {
                let now = stack.now();
                let waits = error.is_of_a_server_to_wait_for();
                let Some(left) = waits.then(|| wait.failed(now)).flatten() else {
                    return Err(error);
                };
                failures += 1;
                if let Some(news) = wait.news(&error, left, now) {
                    log::warn!("{file}: {news}");
                }
                stack
                    .sleep(pause_after(stack, failures, Duration::ZERO).min(left))
                    .await;
            }
        }
    }
}

/// How an attempt ended without an error.
enum Ending {
    File(TftpFile),
    /// The window turned out to be too large for the receive buffers, or blocks in fragments too long for the path.
    TooFast,
    /// The server has no blocks longer than the MTU: with shorter ones, the window can be larger.
    ShortBlocks,
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
    sizes: Sizes,
    floor: Floor,
    socket: UdpSocket,
    transfer: Rc<RefCell<Transfer>>,
    announced: Option<u64>,
    /// Blocks are longer than the MTU.
    long: bool,
    /// It has come to an end of its own.
    ended: bool,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // The server would send its window again and again.
            self.refuse(ErrorCode::UNDEFINED, "cancelled");
        }
    }
}

impl Run<'_> {
    async fn run(
        &mut self,
        servers: &[SocketAddr],
        file: &str,
        ask: Ask,
        most: u16,
        destination: &mut impl Destination,
    ) -> Result<Ending, TftpError> {
        let asked = self.options(servers, ask, most);
        let first = self.request(servers, file, &asked).await?;
        let granted = self.granted(&first, &asked)?;
        let short = self.short_block(servers, most);
        self.long = granted.block_size > Some(short);
        if asked.block_size > Some(short) && !self.long && window_is_short(&asked, &granted) {
            self.refuse(
                ErrorCode::UNDEFINED,
                "short blocks: asking for a larger window",
            );
            return Ok(Ending::ShortBlocks);
        }
        self.begin(&first, &granted, destination).await?;
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
                transfer.commit();
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
            if self.transfer.borrow_mut().trial_failed() {
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
                now >= since + transfer.timeout()
            };
            if timed_out {
                silent += 1;
                if silent > RETRIES {
                    return match received {
                        0 => Ok(Ending::NoBlock),
                        _ => Err(TftpError::Stalled { received }),
                    };
                }
                self.transfer.borrow_mut().timed_out();
                self.acknowledge()?;
            }
            self.stack.next_turn().await;
        }
    }

    /// Where nobody knows what the receive buffers hold, or whether fragments arrive, the first windows show it.
    fn begin_trial(&self) {
        let probes = self.sizes.window == Window::Own && self.stack.probes_receive_frames();
        self.transfer.borrow_mut().begin_trial(self.long, probes);
    }

    /// The largest block of up to `most` bytes that is no longer than what the paths to all servers take.
    fn short_block(&self, servers: &[SocketAddr], most: u16) -> u16 {
        let room = |server: &SocketAddr| {
            let server = server.ip();
            self.stack.path_mtu(server).saturating_sub(headers(server))
        };
        servers
            .iter()
            .map(room)
            .fold(most, u16::min)
            .clamp(DEFAULT_BLOCK_SIZE, MAX_BLOCK_SIZE)
    }

    fn options(&self, servers: &[SocketAddr], ask: Ask, most: u16) -> TransferOptions {
        if ask == Ask::Nothing {
            return TransferOptions::default();
        }
        let own = self.sizes == Sizes::default();
        let long = own && most == MAX_BLOCK_SIZE && self.stack.takes_long_datagrams();
        let (block_size, blocks, most_blocks) = if long {
            let blocks = self.stack.receive_bytes() / LONG_BLOCK_ROOM;
            (MAX_BLOCK_SIZE, blocks, MAX_LONG_WINDOW)
        } else {
            let blocks = self.stack.receive_frames();
            (self.short_block(servers, most), blocks, MAX_WINDOW)
        };
        let honest = u16::try_from(blocks / self.sharers.max(1)).unwrap_or(u16::MAX);
        let honest = honest.clamp(1, most_blocks);
        let window = match self.sizes.window {
            Window::Own => Some(honest),
            Window::Of(blocks) => Some(blocks),
            Window::Variable => None,
        };
        let window = window.filter(|_| ask == Ask::All);
        TransferOptions {
            block_size: Some(self.sizes.block.unwrap_or(block_size)),
            window_size: window,
            transfer_size: Some(0),
            timeout: None,
            slide: window.and_then(|window| slide(self.sizes.window, window)),
            variable_window: (self.sizes.window == Window::Variable)
                .then_some(VariableWindow::Asked),
        }
    }

    /// What the first answer grants: an OACK, the first block of a server without options, or an error.
    fn granted(&self, first: &[u8], asked: &TransferOptions) -> Result<TransferOptions, TftpError> {
        match Packet::parse(first) {
            Ok(Packet::Oack(options)) => TransferOptions::from_acknowledgement(options)
                .map_err(TftpError::from)
                .and_then(|granted| within(&granted, asked).map(|()| granted))
                .inspect_err(|_| self.refuse(ErrorCode::OPTIONS, "option value not asked for")),
            Ok(Packet::Error { code, text }) => Err(server_error(code, text)),
            _ => Ok(TransferOptions::default()),
        }
    }

    /// Has the server begin by these terms, if it has not.
    async fn begin(
        &mut self,
        first: &[u8],
        granted: &TransferOptions,
        destination: &mut impl Destination,
    ) -> Result<(), TftpError> {
        let varies = granted.variable_window.is_some();
        if self.sizes.window == Window::Variable && !varies {
            self.refuse(ErrorCode::OPTIONS, "no windows that vary");
            return Err(TftpError::NotGranted);
        }
        self.announced = granted.transfer_size;
        {
            let mut transfer = self.transfer.borrow_mut();
            transfer.block_size = usize::from(granted.block_size.unwrap_or(DEFAULT_BLOCK_SIZE));
            transfer.window = granted.window_size.unwrap_or(1).max(1);
            if varies {
                transfer.vary();
            }
            transfer.slide = granted.slide;
        }
        self.grow(destination).await?;
        self.transfer.borrow_mut().streaming = true;
        if let Ok(Packet::Data { block, payload }) = Packet::parse(first) {
            let mut transfer = self.transfer.borrow_mut();
            let heard = transfer.heard;
            // A request that was sent again gives no sample (Karn's algorithm).
            transfer.timing = (transfer.retransmissions == 0).then_some((1, transfer.sent));
            transfer.data(block, Parts::new(&[payload]), heard);
            transfer.due = true;
            return Ok(());
        }
        self.acknowledge()?;
        let mut transfer = self.transfer.borrow_mut();
        // The first block answers that. It tells when the end of a window is missing: what finds no buffer is gone without a trace.
        transfer.timing = Some((1, transfer.sent));
        Ok(())
    }

    /// Sees to it that the next window has a place to go.
    async fn grow(&mut self, destination: &mut impl Destination) -> Result<(), TftpError> {
        let (wanted, capacity) = {
            let mut transfer = self.transfer.borrow_mut();
            let overflow = core::mem::take(&mut transfer.overflow);
            if overflow {
                // So servers answer that do not know it.
                self.announced.take_if(|size| *size == 0);
            }
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
            return self.room().await;
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
        if self.announced.is_some() {
            // Its receiver may have no room for so much.
            let received = previous.as_ref().map_or(0, |(_, received)| *received);
            destination.progress(received, self.announced);
        }
        let memory = destination.memory(bytes, previous).await?;
        self.transfer.borrow_mut().memory = Some(memory);
        self.room().await
    }

    /// Waits until a whole window has room. Until then the server is not acknowledged; one that gives up is gone.
    async fn room(&self) -> Result<(), TftpError> {
        let mut gone = false;
        while !self.transfer.borrow_mut().has_room(self.announced) {
            self.transfer.borrow_mut().held = true;
            self.turn_strangers_away();
            gone |= self.control().is_err();
            self.stack.next_turn().await;
        }
        if gone {
            let received = self.transfer.borrow().received;
            return Err(TftpError::Stalled { received });
        }
        Ok(())
    }

    /// Handles packets that are not DATA.
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
                        // The first block may answer either of two (Karn's algorithm).
                        transfer.timing = None;
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
        let window = transfer.told_window();
        drop(transfer);
        for _ in 0..copies {
            let sent = match window {
                Some(window) => self.send(&peer, &ack_with_window(block, window)),
                None => self.send(&peer, &ack(block)),
            };
            match sent {
                // The next retransmission comes by itself.
                Ok(()) | Err(NetError::Full) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Answers packets of other senders with an error (RFC 1350 section 4). Our transfer goes on.
    fn turn_strangers_away(&self) {
        loop {
            let stranger = self.transfer.borrow_mut().strangers.pop_front();
            let Some(stranger) = stranger else { return };
            self.send_error(&stranger, ErrorCode::UNKNOWN_ID, "unknown transfer ID");
        }
    }

    fn refuse(&self, code: ErrorCode, text: &str) {
        let peer = self.transfer.borrow().peer;
        if let Some(peer) = peer {
            self.send_error(&peer, code, text);
        }
    }

    fn send_error(&self, to: &Ends, code: ErrorCode, text: &str) {
        let mut packet = Vec::new();
        Packet::Error {
            code,
            text: text.as_bytes(),
        }
        .emit(&mut packet);
        // Nothing depends on its arrival.
        let _ = self.send(to, &packet);
    }

    /// Sends to the other end from the address by which it knows us: a better one may have come since.
    fn send(&self, ends: &Ends, packet: &[u8]) -> Result<(), NetError> {
        let (local, remote) = (ends.local_end().ip(), ends.remote_end());
        self.socket.send_from(local, remote, packet)
    }

    fn finish(&self) -> Result<TftpFile, TftpError> {
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
            granted: Granted {
                // From an option of as many bits.
                block: transfer.block_size as u16,
                window: transfer.window,
            },
        })
    }
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
