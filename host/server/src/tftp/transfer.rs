//! One transfer: a thread that does what its [`Sender`] says.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use wireboot_wire::tftp::{
    DATA_HEADER_LEN, ErrorCode, MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, Packet, TransferOptions,
    data_header,
};

use super::admission::TransferSlot;
use super::sender::{Action, Sender};
use super::{acknowledgement, agree, events};
use crate::content::Content;
use crate::event::Events;
use crate::listen::{Path, is_transient, max_payload};
use crate::read_ahead::ReadAhead;
use crate::segmented::Segmented;
use crate::stop::Stop;

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
    pub(super) fn run(&self, slot: &TransferSlot) {
        let began = Instant::now();
        let client = self.path.client.ip();
        let event = match self.transfer(slot) {
            Ok(sender) => match sender.end() {
                Some(end) => events::end(end, &sender, client, &self.name, began.elapsed()),
                None => events::broken_off(&sender, client, &self.name, began.elapsed())
                    .message(self.why_broken_off(slot)),
            },
            Err(error) => events::failed(client, &self.name, began.elapsed()).message(error),
        };
        self.events.record(event);
    }

    /// Why the transfer has not come to its end.
    fn why_broken_off(&self, slot: &TransferSlot) -> &'static str {
        if self.stop.is_set() {
            "the server was stopped"
        } else if slot.is_revoked() {
            events::REVOKED
        } else {
            events::ASKED_ANEW
        }
    }

    /// Whether it is to be broken off.
    fn is_over(&self, slot: &TransferSlot) -> bool {
        self.stop.is_set() || slot.is_revoked() || slot.is_abandoned(Instant::now())
    }

    fn transfer(&self, slot: &TransferSlot) -> io::Result<Sender> {
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
        while !self.is_over(slot) {
            match sender.next_action(Instant::now()) {
                Action::SendOptions => {
                    batch.send_one(&acknowledgement(granted))?;
                    sender.sent(0, Instant::now());
                }
                Action::Send { first, count } => {
                    if !std::mem::replace(&mut told, true) {
                        self.events.record(events::start(
                            &terms,
                            self.path.client.ip(),
                            &self.name,
                        ));
                    }
                    ahead.before(&self.file, sender.offset(first));
                    let began = Instant::now();
                    match batch.send_blocks(&sender, &self.file, first, count) {
                        Ok(sent) => {
                            slot.kept_waiting(began.elapsed());
                            sender.sent(sent, Instant::now());
                        }
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
                // At its end, the client may have asked for its next file already.
                if sender.end().is_none() {
                    slot.goes_on();
                }
            }
            if sender.is_answered() {
                slot.acknowledged(sender.acknowledged_bytes(), Instant::now());
            }
        }
        if let Some((code, text)) = last_words(&sender, slot.is_revoked()) {
            batch.tell(code, text)?;
        }
        Ok(sender)
    }
}

/// What the client is told at the end. Who has not answered may be somebody who never asked.
fn last_words(sender: &Sender, revoked: bool) -> Option<(ErrorCode, &'static str)> {
    let gave_way = revoked && sender.is_answered();
    let of_the_slot = gave_way.then_some((ErrorCode::UNDEFINED, events::REVOKED));
    sender.farewell().or(of_the_slot)
}

/// The largest block that crosses the path to the client in one piece.
fn max_block_size(socket: &UdpSocket, path: Path) -> u16 {
    let payload = max_payload(socket, path.client).saturating_sub(DATA_HEADER_LEN);
    u16::try_from(payload)
        .unwrap_or(MAX_BLOCK_SIZE)
        .clamp(MIN_BLOCK_SIZE, MAX_BLOCK_SIZE)
}

/// The packets of one send side by side, and who sends them.
struct Batch {
    /// For full DATA packets.
    packets: Segmented,
    buffer: Vec<u8>,
}

impl Batch {
    fn new(socket: UdpSocket, block_size: usize) -> Self {
        let packets = Segmented::new(socket, block_size + DATA_HEADER_LEN);
        let buffer = vec![0; packets.most() * packets.stride()];
        Self { packets, buffer }
    }

    /// Sends options or an error, which may be longer than a block.
    fn send_one(&mut self, packet: &[u8]) -> io::Result<()> {
        went(self.packets.send_whole(packet))
    }

    /// Tells the client why the transfer ends.
    fn tell(&mut self, code: ErrorCode, text: &str) -> io::Result<()> {
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
        let stride = self.packets.stride();
        let count = count.min((self.buffer.len() / stride) as u64);
        let mut length = 0;
        let mut payloads = Vec::with_capacity(count as usize);
        for (block, packet) in (first..first + count).zip(self.buffer.chunks_exact_mut(stride)) {
            let (header, payload) = packet.split_at_mut(DATA_HEADER_LEN);
            header.copy_from_slice(&data_header(Sender::wire_number(block)));
            let (payload, _) = payload.split_at_mut(sender.length(block));
            length += DATA_HEADER_LEN + payload.len();
            payloads.push(IoSliceMut::new(payload));
        }
        file.read_exact_at(&mut payloads, sender.offset(first))?;
        drop(payloads);
        let packets = self.buffer.get(..length).unwrap_or_default();
        went(self.packets.send(packets)).map(|()| count)
    }

    /// The next datagram that is already there.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        use nix::sys::socket::{MsgFlags, recv};
        use std::os::fd::AsRawFd;
        match recv(
            self.packets.socket().as_raw_fd(),
            buffer,
            MsgFlags::MSG_DONTWAIT,
        ) {
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
            &mut [PollFd::new(
                self.packets.socket().as_fd(),
                PollFlags::POLLIN,
            )],
            left,
        ) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// What became of packets. Those that a full queue has lost come again.
fn went(sent: io::Result<u64>) -> io::Result<()> {
    match sent {
        // Tells of an earlier packet: the client's port is closed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(closed()),
        Err(error) if is_transient(&error) => Ok(()),
        sent => sent.map(drop),
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
    fn a_client_that_loses_its_slot_is_told_if_it_has_ever_answered() {
        let now = Instant::now();
        let (terms, _) = agree(TransferOptions::default(), 100_000, 512, 1);
        let mut sender = Sender::new(terms, now);
        sender.sent(1, now);
        assert_eq!(last_words(&sender, true), None);
        sender.receive(&wireboot_wire::tftp::ack(1), now);
        assert_eq!(last_words(&sender, false), None);
        let told = last_words(&sender, true);
        assert_eq!(told, Some((ErrorCode::UNDEFINED, events::REVOKED)));
    }

    #[test]
    fn a_client_whose_port_is_closed_ends_its_transfer() {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(client.local_addr().unwrap()).unwrap();
        drop(client);
        let mut batch = Batch::new(socket, 512);
        // What the first one is answered by, the second one learns.
        batch.send_one(b"one").unwrap();
        let error = batch.send_one(b"two").unwrap_err();
        assert_eq!(error.to_string(), "the client closed its port");
    }
}
