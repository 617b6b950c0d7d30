//! An interface of this host's, by a packet socket (packet(7)) with `struct virtio_net_hdr` in front of each frame. The kernel copies straight from
//! and to the guest's buffers.
//!
//! The guest is one more station behind the interface: this host does not hear it by it, nor it this host.
//!
//! The kernel joins segments before a packet socket has them (GRO), takes tags out of frames, and may leave checksums open. What the guest
//! takes as it is goes straight to its buffers; the rest is made right aside.

mod socket;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use wireboot_card::{
    GsoFrames, Header, LONGEST_UNIT, MAX_HEAD, MAX_RING, Received, Span, Unit, feature,
};

use super::{headed, interface, throw_away};
use crate::memory::{Control, Mapping, few, part};
use crate::say::say;

/// Link header and a tag.
const LINK: usize = 14 + 4;
/// Bytes of both addresses, behind which a tag stands; and of one of them.
const ADDRESSES: usize = 12;
const ADDRESS: usize = 6;
/// Bytes of a tag.
const TAG: usize = 4;
/// The longest unit with its header in front, and a tag that was taken out of it.
const LONGEST: usize = Header::LEN + LONGEST_UNIT + TAG;

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PacketError {
    #[error("there is no interface {0}: `ip link` lists those of this host")]
    Missing(String),
    #[error("{0:?} is no name of an interface: 1 to 15 bytes without a slash")]
    Name(String),
    #[error(
        "{0}: a packet socket is not permitted; run as root, or with the capability CAP_NET_RAW"
    )]
    NotPermitted(String),
    #[error("{name}: {error}")]
    Kernel { name: String, error: io::Error },
}

/// A packet socket (packet(7)) at an interface.
#[derive(Debug)]
pub(crate) struct Packet {
    name: String,
    socket: OwnedFd,
    mtu: usize,
    /// The only address that the guest sends from, where that is known.
    mac: Option<[u8; ADDRESS]>,
    features: u64,
    /// What does not fit into the guest's buffers, and frames in very many pieces.
    aside: Box<[u8]>,
    /// A unit as it is to be, without its header.
    unit: Box<[u8]>,
    frames: GsoFrames,
    /// Of a unit, behind its addresses.
    spans: Vec<Span>,
    link: Link,
}

/// What the kernel says of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    /// And the user has not been told.
    Down,
    Told,
}

impl Packet {
    /// What the kernel does. Units of datagrams come from 6.2 on.
    pub(super) const OFFLOADS: u64 = feature::CSUM
        | feature::GUEST_CSUM
        | feature::GUEST_TSO4
        | feature::GUEST_TSO6
        | feature::GUEST_ECN
        | feature::GUEST_USO
        | feature::HOST_TSO4
        | feature::HOST_TSO6
        | feature::HOST_ECN;

    /// Has what comes to the interface `name`; with `mac`, only what is for this address or for many, and sends only what is from it.
    ///
    /// # Errors
    /// [`PacketError`].
    pub(crate) fn open(name: &str, mac: Option<[u8; 6]>) -> Result<Self, PacketError> {
        let name = name.to_owned();
        if !interface::is_name(&name) {
            return Err(PacketError::Name(name));
        }
        let opened =
            socket::open(&name, mac).and_then(|socket| Ok((socket, interface::mtu(&name)?)));
        let (socket, mtu) = opened.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NODEV) => PacketError::Missing(name.clone()),
            Some(Errno::PERM | Errno::ACCESS) => PacketError::NotPermitted(name.clone()),
            _ => PacketError::Kernel {
                name: name.clone(),
                error,
            },
        })?;
        Ok(Self {
            name,
            socket,
            mtu,
            mac,
            features: 0,
            aside: vec![0; LONGEST].into_boxed_slice(),
            unit: vec![0; LONGEST].into_boxed_slice(),
            frames: GsoFrames::new(),
            spans: Vec::with_capacity(MAX_RING.into()),
            link: Link::Up,
        })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn max_unit(&self) -> usize {
        if self.features & Self::OFFLOADS & feature::LARGE_TO_GUEST == 0 {
            self.mtu + LINK
        } else {
            LONGEST_UNIT
        }
    }

    pub(super) fn agree(&mut self, features: u64) {
        self.features = features;
        self.frames.clear();
    }

    pub(super) fn tell_failure(&mut self) {
        if self.link == Link::Down {
            say!(
                "wireboot nic: {} is down: nothing comes by it until it is up",
                self.name
            );
            self.link = Link::Told;
        }
    }

    /// What came before is nobody's.
    pub(super) fn restart(&mut self) {
        self.frames.clear();
        // An error that waits comes before the frames.
        for _ in 0..2 {
            if let Some(error) = throw_away(self.socket.as_fd(), &mut self.aside) {
                self.failed(&error.into());
            }
        }
    }

    pub(super) fn send(&mut self, memory: &Mapping, unit: &Unit<'_>) -> bool {
        match self.mac {
            Some(mac) => self.send_from(mac, memory, unit),
            None => headed::send(memory, self.socket.as_fd(), unit, &mut self.aside),
        }
    }

    /// Sends a unit, if it is from this address.
    fn send_from(&mut self, mac: [u8; ADDRESS], memory: &Mapping, unit: &Unit<'_>) -> bool {
        let ours = unit.head.len();
        let theirs = ADDRESSES.saturating_sub(ours);
        // A copy of the addresses goes out: the guest may change its own behind the look.
        let mut bytes = [0; MAX_HEAD];
        let Some((head, addresses)) = bytes
            .get_mut(..ours + theirs)
            .and_then(|bytes| bytes.split_at_mut_checked(ours))
        else {
            return false;
        };
        head.copy_from_slice(unit.head);
        if memory.gather(unit.spans, addresses).is_err() {
            return false;
        }
        let head = bytes.get(..ours + theirs).unwrap_or_default();
        if head.get(ADDRESS..ADDRESSES) != Some(&mac[..]) {
            return false;
        }
        self.spans.clear();
        self.spans.extend(part(unit.spans, theirs, unit.len));
        let unit = Unit {
            header: unit.header,
            head,
            spans: &self.spans,
            len: unit.len,
        };
        headed::send(memory, self.socket.as_fd(), &unit, &mut self.aside)
    }

    pub(super) fn receive(&mut self, memory: &Mapping, room: &[Span]) -> Received {
        if let Some(frame) = self.frames.next(memory, room) {
            return frame;
        }
        let mut header = [0; Header::LEN];
        let direct = few(room);
        let spans = if direct { room } else { &[] };
        let mut control = Control::new();
        let socket = self.socket.as_fd();
        let got = memory.receive_from(socket, &mut header, spans, &mut self.aside, &mut control);
        let len = match got {
            Ok(got) => got.saturating_sub(Header::LEN),
            Err(error) => return self.failed(&error),
        };
        self.link = Link::Up;
        let header = Header::parse(header);
        let tag = socket::tag(&control);
        let space: usize = room.iter().map(|span| span.len as usize).sum();
        let as_it_is = tag.is_none() && !GsoFrames::are_needed(header, self.features, len);
        if direct && as_it_is {
            return if len > space {
                Received::TooLong
            } else {
                Received::Unit { header, len }
            };
        }
        let in_room = if direct { len.min(space) } else { 0 };
        self.put_right(memory, room, header, (len, in_room), tag)
            .unwrap_or(Received::TooLong)
    }

    /// The kernel has nothing, or says what became of the interface, or has lost a unit of a kind for which there is no header.
    fn failed(&mut self, error: &io::Error) -> Received {
        if Errno::from_io_error(error) == Some(Errno::NETDOWN) && self.link == Link::Up {
            self.link = Link::Down;
        }
        Received::Nothing
    }

    /// Makes what the guest takes of a unit of `len` bytes, of which the first `in_room` are in the room, and the others aside. `None` when it takes
    /// nothing of it.
    #[cold]
    fn put_right(
        &mut self,
        memory: &Mapping,
        room: &[Span],
        mut header: Header,
        (mut len, in_room): (usize, usize),
        tag: Option<[u8; TAG]>,
    ) -> Option<Received> {
        let (first, rest) = self.unit.get_mut(..len)?.split_at_mut_checked(in_room)?;
        memory.gather(room, first).ok()?;
        rest.copy_from_slice(self.aside.get(..rest.len())?);
        if let Some(tag) = tag {
            let behind = ADDRESSES + TAG;
            self.unit.get_mut(..len + TAG)?;
            self.unit
                .copy_within(ADDRESSES.min(len)..len, behind.min(len + TAG));
            self.unit.get_mut(ADDRESSES..behind)?.copy_from_slice(&tag);
            len += TAG;
            if header.csum_start != 0 {
                header.csum_start = header.csum_start.checked_add(TAG as u16)?;
            }
            if header.hdr_len != 0 {
                header.hdr_len = header.hdr_len.checked_add(TAG as u16)?;
            }
        }
        let unit = self.unit.get(..len)?;
        if GsoFrames::are_needed(header, self.features, len) {
            if !self.frames.make(header, unit) {
                return None;
            }
            return self.frames.next(memory, room);
        }
        memory.scatter(room, 0, unit).ok()?;
        Some(Received::Unit { header, len })
    }
}

#[cfg(test)]
mod tests;
