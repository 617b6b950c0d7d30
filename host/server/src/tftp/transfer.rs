//! One transfer: a thread that does what its [`Sender`] says.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use wireboot_wire::tftp::{
    DATA_HEADER_LEN, ErrorCode, MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, Packet, TransferOptions,
    data_header,
};

use super::places::Place;
use super::sender::{Action, Sender};
use super::{acknowledgement, agree, told};
use crate::content::Content;
use crate::event::Events;
use crate::listen::{Path, is_transient};
use crate::read_ahead::ReadAhead;
use crate::stop::Stop;

/// Bytes of IPv4 and UDP headers.
const IPV4_UDP_HEADERS: usize = 28;
/// Bytes of IPv6 and UDP headers.
const IPV6_UDP_HEADERS: usize = 48;
/// Most bytes of one send: the kernel makes it one packet first, of at most 65535 bytes with its headers.
const MAX_SEND: usize = 65_535 - IPV6_UDP_HEADERS;
/// Most packets of one send (the kernel's UDP_MAX_SEGMENTS).
const MAX_SEGMENTS: usize = 64;
/// MTU when the kernel does not know the path's.
const ETHERNET_MTU: usize = 1500;

/// A transfer to be made.
pub(super) struct Job {
    pub path: Path,
    pub asked: TransferOptions,
    pub max_window: u16,
    pub file: Content,
    pub name: String,
    pub events: Events,
    pub stop: Stop,
}

impl Job {
    /// Makes the transfer, and tells how it ended.
    pub(super) fn run(&self, place: &Place) {
        let began = Instant::now();
        let client = self.path.client.ip();
        let event = match self.transfer(place) {
            Ok(sender) => match sender.end() {
                Some(end) => told::end(end, &sender, client, &self.name, began.elapsed()),
                None if self.stop.is_set() => {
                    told::broken_off(&sender, client, &self.name, began.elapsed())
                        .message("the server was stopped")
                }
                None => told::broken_off(&sender, client, &self.name, began.elapsed())
                    .message(told::REVOKED),
            },
            Err(error) => told::failed(client, &self.name, began.elapsed()).message(error),
        };
        self.events.record(event);
    }

    fn transfer(&self, place: &Place) -> io::Result<Sender> {
        let socket = UdpSocket::bind(self.path.local)?;
        socket.connect(self.path.client)?;
        let (terms, granted) = agree(
            self.asked,
            self.file.len(),
            max_block_size(&socket, self.path),
            self.max_window,
        );
        let mut batch = Batch::new(socket, terms.block_size.into());
        let mut sender = Sender::new(terms, Instant::now());
        let mut ahead = ReadAhead::default();
        let mut told = false;
        let mut datagram = [0; 2048];
        while !self.stop.is_set() && !place.is_revoked() {
            match sender.next_action(Instant::now()) {
                Action::SendOptions => {
                    batch.send_one(&acknowledgement(granted))?;
                    sender.sent(0, Instant::now());
                }
                Action::Send { first, count } => {
                    if !std::mem::replace(&mut told, true) {
                        self.events
                            .record(told::start(&terms, self.path.client.ip(), &self.name));
                    }
                    ahead.before(&self.file, sender.offset(first));
                    match batch.send_blocks(&sender, &self.file, first, count) {
                        Ok(sent) => sender.sent(sent, Instant::now()),
                        Err(error) => {
                            batch.tell(ErrorCode::UNDEFINED, &error.to_string())?;
                            return Err(error);
                        }
                    }
                }
                Action::Wait(until) => batch.wait(until)?,
                Action::Ended(_) => break,
            }
            while let Some(length) = batch.receive(&mut datagram)? {
                sender.receive(datagram.get(..length).unwrap_or_default(), Instant::now());
            }
            if sender.is_answered() {
                place.answered();
            }
        }
        if let Some((code, text)) = sender.farewell() {
            batch.tell(code, text)?;
        }
        Ok(sender)
    }
}

/// MTU of the path of a connected IPv6 socket, as [`sockopt::IpMtu`] is for IPv4.
#[derive(Clone, Copy, Debug)]
struct Ipv6Mtu;

nix::getsockopt_impl!(
    Ipv6Mtu,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU,
    libc::c_int,
    sockopt::GetStruct<libc::c_int>
);

/// The largest block that crosses the path to the client in one piece.
fn max_block_size(socket: &UdpSocket, path: Path) -> u16 {
    let (mtu, headers) = match path.client.is_ipv6() {
        true => (getsockopt(socket, Ipv6Mtu), IPV6_UDP_HEADERS),
        false => (getsockopt(socket, sockopt::IpMtu), IPV4_UDP_HEADERS),
    };
    let payload = mtu
        .ok()
        .and_then(|mtu| usize::try_from(mtu).ok())
        .unwrap_or(ETHERNET_MTU)
        .saturating_sub(headers + DATA_HEADER_LEN);
    u16::try_from(payload)
        .unwrap_or(MAX_BLOCK_SIZE)
        .clamp(MIN_BLOCK_SIZE, MAX_BLOCK_SIZE)
}

/// The socket, and the packets of one send side by side.
struct Batch {
    socket: UdpSocket,
    /// Bytes of a full DATA packet.
    stride: usize,
    /// Packets in one send; 1 when the kernel does not cut a long send into packets.
    segments: usize,
    buffer: Vec<u8>,
}

impl Batch {
    fn new(socket: UdpSocket, block_size: usize) -> Self {
        let stride = block_size + DATA_HEADER_LEN;
        let mut batch = Self {
            socket,
            stride,
            segments: (MAX_SEND / stride).clamp(1, MAX_SEGMENTS),
            buffer: Vec::new(),
        };
        batch.buffer = vec![0; batch.segments * stride];
        if setsockopt(&batch.socket, sockopt::UdpGsoSegment, &(stride as i32)).is_err() {
            batch.segments = 1;
        }
        batch
    }

    fn send_one(&self, packet: &[u8]) -> io::Result<()> {
        self.send(packet)
    }

    /// Tells the client why the transfer ends.
    fn tell(&self, code: ErrorCode, text: &str) -> io::Result<()> {
        let mut packet = Vec::new();
        let text = text.as_bytes();
        Packet::Error { code, text }.emit(&mut packet);
        self.send_one(&packet)
    }

    /// Sends blocks from `first` on, at most `count` and as many as one send takes. Returns how many.
    fn send_blocks(
        &mut self,
        sender: &Sender,
        file: &Content,
        first: u64,
        count: u64,
    ) -> io::Result<u64> {
        let count = count.min((self.buffer.len() / self.stride) as u64);
        let mut length = 0;
        let mut payloads = Vec::with_capacity(count as usize);
        for (block, packet) in (first..first + count).zip(self.buffer.chunks_exact_mut(self.stride))
        {
            let (header, payload) = packet.split_at_mut(DATA_HEADER_LEN);
            header.copy_from_slice(&data_header(Sender::wire_number(block)));
            let (payload, _) = payload.split_at_mut(sender.length(block));
            length += DATA_HEADER_LEN + payload.len();
            payloads.push(IoSliceMut::new(payload));
        }
        file.read_exact_at(&mut payloads, sender.offset(first))?;
        drop(payloads);
        let packets = self.buffer.get(..length).unwrap_or_default();
        if self.segments > 1 {
            match self.send(packets) {
                // The device below computes no checksums (EIO), or the path takes shorter packets by now (EINVAL).
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP)
                    ) =>
                {
                    self.segments = 1;
                    setsockopt(&self.socket, sockopt::UdpGsoSegment, &0)?;
                }
                result => return result.map(|()| count),
            }
        }
        for packet in packets.chunks(self.stride) {
            self.send(packet)?;
        }
        Ok(count)
    }

    /// Sends; a queue that is full loses the packets, as any queue on their way might.
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match self.socket.send(bytes) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            // Tells of an earlier packet: the client's port is closed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(closed()),
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next datagram that is already there.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        use nix::sys::socket::{MsgFlags, recv};
        use std::os::fd::AsRawFd;
        match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => Ok(Some(length)),
            Err(nix::Error::ECONNREFUSED) => Err(closed()),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sleeps until a datagram is there or the moment comes, but not longer than the stop flag may wait.
    fn wait(&self, until: Instant) -> io::Result<()> {
        let left = until
            .saturating_duration_since(Instant::now())
            .min(Stop::CHECK_EVERY);
        // Rounded up, so that a wait of less than a millisecond does not become a busy loop.
        let left =
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
        match poll(
            &mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)],
            left,
        ) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionRefused,
        "the client closed its port",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_whose_port_is_closed_ends_its_transfer() {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(client.local_addr().unwrap()).unwrap();
        drop(client);
        let batch = Batch::new(socket, 512);
        // What the first one is answered by, the second one learns.
        batch.send_one(b"one").unwrap();
        let error = batch.send_one(b"two").unwrap_err();
        assert_eq!(error.to_string(), "the client closed its port");
    }
}
