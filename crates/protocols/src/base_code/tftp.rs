//! Files by TFTP (RFC 1350) block by block, where each packet is to be shown, and what only a host of its own does: writing, and lists of
//! folders.

use super::{Datagram, Host, Port, TftpError, show};
use crate::Refusal;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use wireboot_fetch::Floor;
use wireboot_net::{Duration, Instant};
use wireboot_wire::tftp::{self, Options, Packet, Request, TransferOptions};

/// How long an answer may take before it is asked for again, and how long a transfer may get nowhere, whatever the server sends: "up to 10
/// seconds" (UEFI 2.10, section 24.3.6). One that hardly gets on ends, too ([`Floor`]).
const RETRY: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);
const WRITE: u8 = 2;

/// What is read: the operation of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, by a read request (RFC 1350).
    File = 1,
    /// The list of a folder's files. PXE 2.1 has it, no RFC does.
    Directory = 7,
}

/// Of which server, and how.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// The server's address, of the IP version of the host's own.
    pub server: IpAddr,
    /// The file's name there.
    pub file: &'a str,
    /// Bytes of a block. `None`: 512, without asking.
    pub block_size: Option<u16>,
}

/// A transfer under way.
struct Session {
    local: u16,
    /// The port that the server has chosen.
    peer: Option<u16>,
    server: IpAddr,
    /// What the server has not answered yet.
    last: Vec<u8>,
    /// When that was sent.
    sent: Instant,
    /// When the transfer last got on.
    got_on: Instant,
    /// How long the server was waited for since enough had come last ([`Floor`]), and how many bytes have come since.
    waited: Duration,
    came: u64,
    block_size: u16,
}

/// A request of this operation.
fn request(what: &Transfer<'_>, operation: u8, size: u64) -> Vec<u8> {
    let mut options = Vec::new();
    TransferOptions {
        block_size: what.block_size,
        transfer_size: Some(size),
        ..TransferOptions::default()
    }
    .emit(&mut options);
    let mut packet = Vec::new();
    Packet::Rrq(Request {
        filename: what.file,
        mode: "octet",
        options: Options::new(&options),
    })
    .emit(&mut packet);
    super::packet::put(&mut packet, 1, &[operation]);
    packet
}

impl Session {
    /// So many bytes more have come, or have arrived there.
    fn gets_on(&mut self, bytes: usize, now: Instant) {
        self.got_on = now;
        self.came += bytes as u64;
        if self.came >= Floor::default().bytes {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
    }

    fn hears(&mut self, options: &TransferOptions, asked: Option<u16>) -> Result<(), Refusal> {
        if let Some(granted) = options.block_size {
            let asked = asked.unwrap_or(tftp::DEFAULT_BLOCK_SIZE);
            if granted > asked || granted < tftp::MIN_BLOCK_SIZE {
                return Err(Refusal::TftpError);
            }
            self.block_size = granted;
        }
        Ok(())
    }
}

impl Host {
    fn session(
        &mut self,
        port: &mut dyn Port,
        what: &Transfer<'_>,
        request: Vec<u8>,
    ) -> Result<Session, Refusal> {
        self.has_address()?;
        if what.server.is_ipv4() != self.address.is_ipv4() {
            return Err(Refusal::InvalidParameter);
        }
        let now = port.now();
        Ok(Session {
            local: self.port(),
            peer: None,
            server: what.server,
            last: request,
            sent: now,
            got_on: now,
            waited: Duration::ZERO,
            came: 0,
            block_size: tftp::DEFAULT_BLOCK_SIZE,
        })
    }

    /// Sends the session's last packet.
    fn say(&mut self, port: &mut dyn Port, session: &mut Session) -> Result<(), Refusal> {
        show(port, false, &session.last)?;
        session.sent = port.now();
        let to = SocketAddr::new(session.server, session.peer.unwrap_or(tftp::PORT));
        let from = SocketAddr::new(self.address, session.local);
        self.datagram_to(port, from, to, None, [&[], &session.last], true)
    }

    /// The server's next packet, from a port of its that may be the one. Asks again where it is silent. The caller's time to look at packets
    /// is none of the server's.
    fn answer(&mut self, port: &mut dyn Port, session: &mut Session) -> Result<Datagram, Refusal> {
        loop {
            let over = session.got_on + PATIENCE;
            let now = port.now();
            if now >= over || session.waited >= Floor::default().within {
                return Err(Refusal::Timeout);
            }
            if now >= session.sent + RETRY {
                self.say(port, session)?;
            }
            let end = (session.sent + RETRY).min(over);
            let (local, peer, server) = (session.local, session.peer, session.server);
            let began = port.now();
            let talk = Some((server, Some(local)));
            let found = self.arrival(port, end, talk, |_, datagram| {
                datagram.destination.port() == local
                    && datagram.source.ip() == server
                    && peer.is_none_or(|peer| peer == datagram.source.port())
            })?;
            session.waited += port.now() - began;
            if let Some(datagram) = found {
                show(port, true, &datagram.payload)?;
                let packet = Packet::parse(&datagram.payload);
                if let Ok(Packet::Error { code, text }) = packet {
                    self.tftp_error = Some(TftpError {
                        code: code.0,
                        text: text.to_vec(),
                    });
                    return Err(Refusal::TftpError);
                }
                if packet.is_ok() {
                    return Ok(datagram);
                }
            }
        }
    }

    /// Tells the server that it is over.
    fn refuse(&mut self, port: &mut dyn Port, session: &mut Session, code: tftp::ErrorCode) {
        session.last.clear();
        let text = code.meaning().as_bytes();
        Packet::Error { code, text }.emit(&mut session.last);
        let _ = self.say(port, session);
    }

    /// Reads a file, whose bytes `take` gets with their place. `room`: bytes that there is room for. Returns the file's size.
    ///
    /// # Errors
    /// [`Refusal::BufferTooSmall`] with the file's size: as soon as the server tells it, or in the end. [`Refusal::TftpError`],
    /// [`Refusal::IcmpError`], [`Refusal::Timeout`], [`Refusal::Aborted`].
    pub fn tftp_read(
        &mut self,
        port: &mut dyn Port,
        what: &Transfer<'_>,
        source: Source,
        room: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<u64, Refusal> {
        let first = request(what, source as u8, 0);
        let mut session = self.session(port, what, first)?;
        let fits = |size: u64| room.is_none_or(|room| size <= room);
        let small =
            |size: u64| Refusal::BufferTooSmall(usize::try_from(size).unwrap_or(usize::MAX));
        let (mut next, mut received) = (1_u16, 0_u64);
        self.say(port, &mut session)?;
        loop {
            let answer = self.answer(port, &mut session)?;
            match Packet::parse(&answer.payload) {
                Ok(Packet::Oack(options)) if received == 0 && next == 1 => {
                    session.peer = Some(answer.source.port());
                    let options = TransferOptions::from_acknowledgement(options);
                    let options = options.map_err(|_| Refusal::TftpError);
                    let read = options.and_then(|options| {
                        session.hears(&options, what.block_size)?;
                        match options.transfer_size {
                            Some(size) if !fits(size) => Err(small(size)),
                            _ => Ok(()),
                        }
                    });
                    if let Err(refusal) = read {
                        let code = match refusal {
                            Refusal::BufferTooSmall(_) => tftp::ErrorCode::DISK_FULL,
                            _ => tftp::ErrorCode::OPTIONS,
                        };
                        self.refuse(port, &mut session, code);
                        return Err(refusal);
                    }
                    session.last = tftp::ack(0).to_vec();
                }
                Ok(Packet::Data { block, payload })
                    if block == next && payload.len() <= session.block_size.into() =>
                {
                    session.peer = Some(answer.source.port());
                    let end = received + payload.len() as u64;
                    if fits(end) {
                        take(received, payload);
                    }
                    received = end;
                    next = next.wrapping_add(1);
                    session.gets_on(payload.len(), port.now());
                    session.last = tftp::ack(block).to_vec();
                    if payload.len() < session.block_size.into() {
                        // Where it is lost, the server gives up by itself.
                        let _ = self.say(port, &mut session);
                        return if fits(received) {
                            Ok(received)
                        } else {
                            Err(small(received))
                        };
                    }
                }
                // Our acknowledgement was lost.
                Ok(Packet::Data { block, .. }) if received > 0 && block == next.wrapping_sub(1) => {
                }
                _ => continue,
            }
            self.say(port, &mut session)?;
        }
    }

    /// Writes a file.
    ///
    /// # Errors
    /// [`Refusal::TftpError`], [`Refusal::IcmpError`], [`Refusal::Timeout`], [`Refusal::Aborted`].
    pub fn tftp_write(
        &mut self,
        port: &mut dyn Port,
        what: &Transfer<'_>,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let first = request(what, WRITE, bytes.len() as u64);
        let mut session = self.session(port, what, first)?;
        // Acknowledged blocks; the last one is shorter than a block.
        let (mut block, mut at) = (0_u16, 0);
        let mut begun = false;
        self.say(port, &mut session)?;
        loop {
            let answer = self.answer(port, &mut session)?;
            let before = at;
            match Packet::parse(&answer.payload) {
                Ok(Packet::Oack(options)) if !begun => {
                    session.peer = Some(answer.source.port());
                    let options = TransferOptions::from_acknowledgement(options);
                    let options = options.map_err(|_| Refusal::TftpError);
                    if let Err(refusal) =
                        options.and_then(|options| session.hears(&options, what.block_size))
                    {
                        self.refuse(port, &mut session, tftp::ErrorCode::OPTIONS);
                        return Err(refusal);
                    }
                }
                Ok(Packet::Ack { block: 0 }) if !begun => {}
                Ok(Packet::Ack {
                    block: acknowledged,
                }) if begun && acknowledged == block => {
                    let len = session.last.len() - tftp::DATA_HEADER_LEN;
                    at += len;
                    if len < session.block_size.into() {
                        return Ok(());
                    }
                }
                // An acknowledgement that came twice is answered by nobody (RFC 1123, section 4.2.3.1).
                _ => continue,
            }
            session.peer = Some(answer.source.port());
            begun = true;
            session.gets_on(at - before, port.now());
            block = block.wrapping_add(1);
            let rest = bytes.get(at..).unwrap_or_default();
            let part = rest.get(..session.block_size.into()).unwrap_or(rest);
            session.last = tftp::data_header(block).to_vec();
            session.last.extend_from_slice(part);
            self.say(port, &mut session)?;
        }
    }
}
