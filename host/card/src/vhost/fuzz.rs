//! The body of the fuzz target: a monitor that sends whatever it likes.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use wireboot_card::feature;

use super::{Connection, MAX_PAIRS, PairQueue, Rings, RunningRing, Session};
use crate::memory::Mapping;

/// A card that holds the session to its promises.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub memory: Option<Mapping>,
    /// By number of the ring.
    pub running: [Option<RunningRing>; 2 * MAX_PAIRS],
    pub base: u16,
    pub agreed: u64,
    pub starts: usize,
    pub calls_changed: usize,
}

impl Rings for Watched {
    fn set_memory(&mut self, memory: Option<Mapping>) {
        assert!(
            self.running.iter().all(Option::is_none),
            "memory of rings that run"
        );
        self.memory = memory;
    }

    fn agree(&mut self, features: u64) {
        assert!(
            self.running.iter().all(Option::is_none),
            "features of rings that run"
        );
        self.agreed = features;
    }

    fn start(&mut self, queue: PairQueue, ring: RunningRing) {
        assert!(self.memory.is_some(), "a ring without memory");
        self.starts += 1;
        let before = self.running[number(queue)].replace(ring);
        assert!(before.is_none(), "started twice");
    }

    fn set_call(&mut self, queue: PairQueue, _: Option<OwnedFd>) {
        assert!(self.running[number(queue)].is_some());
        self.calls_changed += 1;
    }

    fn stop(&mut self, queue: PairQueue) -> u16 {
        let ring = self.running[number(queue)].take();
        assert!(ring.is_some(), "stopped twice");
        self.base
    }
}

/// virtio 1.2, section 5.1.2: receiveq1, transmitq1, receiveq2 ...
fn number(queue: PairQueue) -> usize {
    2 * queue.pair + queue.queue as usize
}

/// Sends bytes with descriptors.
pub(crate) fn send(socket: &UnixStream, bytes: &[u8], fds: &[OwnedFd]) -> usize {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )
    .unwrap_or(0)
}

/// A session with a monitor that says what `data` says: pieces of bytes, each with a number of descriptors.
///
/// # Panics
/// When the session breaks a promise.
pub fn fuzz_card_vhost(data: &[u8]) {
    let (monitor, card) = UnixStream::pair().unwrap();
    let mut connection = Connection::new(card).unwrap();
    let mut session = Session::new(Watched::default(), feature::KNOWN, 3);
    let mut data = data;
    while let Some((&[head, request, size], rest)) = data.split_first_chunk() {
        let count = usize::from(head % 10);
        let fds: Vec<OwnedFd> = (0..count).map(|n| descriptor(head >> 4, n)).collect();
        // Mostly a length and a number that messages have.
        let lengths = [0, 8, 40, 72];
        let len = lengths.get(usize::from(size)).copied();
        let len = len.unwrap_or(usize::from(size)).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        data = rest;
        // Mostly a whole message.
        let mut bytes = Vec::new();
        if head & 0x80 == 0 {
            for word in [
                u32::from(request % 24),
                1u32 | u32::from(head & 8),
                payload.len() as u32,
            ] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes.extend(payload);
        send(&monitor, &bytes, &fds);
        loop {
            match connection.receive() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    let number = message.number;
                    match session.obey(message) {
                        Ok(reply) => {
                            if let Some(bytes) = reply.bytes() {
                                connection.reply(number, &bytes).ok();
                            }
                        }
                        Err(_) => return,
                    }
                }
                Err(_) => return,
            }
        }
    }
}

/// Memory for the first ones, eventfds behind.
fn descriptor(kind: u8, n: usize) -> OwnedFd {
    if usize::from(kind & 7) > n {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 0x10000).unwrap();
        file
    } else {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }
}
