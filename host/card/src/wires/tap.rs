//! A tap interface of Linux, with `struct virtio_net_hdr` in front of each frame. The kernel copies straight from and to the guest's
//! buffers.

mod ioctl;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use wireboot_card::{GuestMemory, Header, LONGEST_UNIT, Received, Span, Unit, feature};

use super::{headed, interface, throw_away};
use crate::memory::{Mapping, few};
use crate::say::say;

/// Link header and a tag.
const LINK: usize = 14 + 4;
/// The longest unit that a tap has, and the header in front.
const LONGEST: usize = LONGEST_UNIT + Header::LEN;
/// How long a tap may stay busy: the process that had it may be on its way out.
const BUSY: Duration = Duration::from_secs(2);

/// Why a tap cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TapError {
    #[error(
        "there is no interface {0}: `ip tuntap add dev {0} mode tap vnet_hdr && ip link set {0} up` makes one"
    )]
    Missing(String),
    #[error("{0:?} is no name of an interface: 1 to 15 bytes without a slash")]
    Name(String),
    #[error(
        "{0} is no tap with several queues: `ip tuntap add dev {0} mode tap vnet_hdr multi_queue` makes one"
    )]
    OneQueue(String),
    #[error("/dev/net/tun: {0}; a tap needs it, and the right to open it")]
    Device(io::Error),
    #[error("{0} is in use by another process")]
    Busy(String),
    #[error(
        "{0}: not permitted; run as root, or make the tap for this user: `ip tuntap add dev {0} mode tap vnet_hdr user $USER`"
    )]
    NotPermitted(String),
    #[error("{name}: {error}; is it a tap?")]
    Kernel { name: String, error: io::Error },
}

/// An open queue of a tap.
#[derive(Debug)]
pub(crate) struct Tap {
    name: String,
    file: File,
    mtu: usize,
    max_unit: usize,
    /// What the kernel does.
    offloads: u64,
    /// Where the end of a frame goes that is too long, and frames in very many pieces.
    aside: Box<[u8]>,
    failure: Failure,
    sending: Sending,
    receiving: Receiving,
}

/// Whether the kernel gives frames to this queue of the interface. It spreads them over all queues that take some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    /// It is the first.
    Always,
    /// While the guest receives by this pair.
    While(bool),
}

#[derive(Debug)]
enum Failure {
    None,
    New(io::Error),
    Told,
}

/// What became of what the guest sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Works,
    /// And nobody has looked whether the interface is up.
    Failed,
    /// The interface is down, and the user has been told.
    Told,
}

impl Tap {
    /// What each kernel does. It takes units that are fragments of a datagram, and has had none since 4.14.
    const OFFLOADS: u64 = feature::CSUM
        | feature::GUEST_CSUM
        | feature::GUEST_TSO4
        | feature::GUEST_TSO6
        | feature::GUEST_ECN
        | feature::HOST_TSO4
        | feature::HOST_TSO6
        | feature::HOST_ECN
        | feature::HOST_UFO;
    /// What those do that know units of datagrams: from 6.2 on.
    const USO: u64 = feature::GUEST_USO | feature::HOST_USO;

    /// Opens so many queues of the interface `name`, which must be there; a tap each. The kernel has a flow come by the queue that has sent its
    /// last frame.
    ///
    /// # Errors
    /// [`TapError`].
    pub(crate) fn open(name: &str, count: usize) -> Result<Vec<Self>, TapError> {
        let several = count > 1;
        let mut taps = (0..count)
            .map(|_| Self::open_queue(name, several))
            .collect::<Result<Vec<_>, _>>()?;
        for tap in taps.iter_mut().skip(1) {
            tap.receiving = Receiving::While(true);
            tap.set_receiving(false);
        }
        Ok(taps)
    }

    fn open_queue(name: &str, several: bool) -> Result<Self, TapError> {
        if !interface::is_name(name) {
            return Err(TapError::Name(name.to_owned()));
        }
        let kernel = |error| TapError::Kernel {
            name: name.to_owned(),
            error,
        };
        let missing = |error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::NODEV) => TapError::Missing(name.to_owned()),
            _ => kernel(error),
        };
        // Else the kernel would make one.
        let mtu = interface::mtu(name).map_err(missing)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(Path::new("/dev/net/tun"))
            .map_err(TapError::Device)?;
        attach(&file, name, several)?;
        ioctl::set_header_len(&file, Header::LEN).map_err(kernel)?;
        let uso = ioctl::set_offload(&file, feature::GUEST_CSUM | Self::USO).is_ok();
        ioctl::set_offload(&file, 0).map_err(kernel)?;
        Ok(Self {
            name: name.to_owned(),
            file,
            mtu,
            max_unit: mtu + LINK,
            offloads: Self::OFFLOADS | if uso { Self::USO } else { 0 },
            aside: vec![0; LONGEST].into_boxed_slice(),
            failure: Failure::None,
            sending: Sending::Works,
            receiving: Receiving::Always,
        })
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        matches!(self.failure, Failure::None).then(|| self.file.as_fd())
    }

    pub(super) fn offloads(&self) -> u64 {
        self.offloads
    }

    pub(super) fn max_unit(&self) -> usize {
        self.max_unit
    }

    pub(super) fn tell_failure(&mut self) {
        if let Failure::New(error) = &self.failure {
            say!(
                "wireboot nic: nothing comes by {} any more: {error}",
                self.name
            );
            self.failure = Failure::Told;
        }
        if self.sending == Sending::Failed {
            let is_down = interface::is_up(&self.name).is_ok_and(|up| !up);
            self.sending = if is_down {
                say!(
                    "wireboot nic: {0} is down: nothing goes through it until `ip link set {0} up`",
                    self.name
                );
                Sending::Told
            } else {
                Sending::Works
            };
        }
    }

    /// What came before is nobody's.
    pub(super) fn restart(&mut self) {
        throw_away(self.file.as_fd(), &mut self.aside);
    }

    /// Whether the guest receives by this queue.
    pub(super) fn set_receiving(&mut self, receiving: bool) {
        if self.receiving == Receiving::While(!receiving) {
            match ioctl::set_receiving(&self.file, receiving) {
                Ok(()) => self.receiving = Receiving::While(receiving),
                Err(error) => self.failure = Failure::New(error),
            }
        }
    }

    pub(super) fn agree(&mut self, features: u64) {
        if let Err(error) = ioctl::set_offload(&self.file, features) {
            self.failure = Failure::New(error);
        }
        let large = features & self.offloads & feature::LARGE_TO_GUEST != 0;
        self.max_unit = if large { LONGEST_UNIT } else { self.mtu + LINK };
    }

    pub(super) fn send(&mut self, memory: &Mapping, unit: &Unit<'_>) -> bool {
        let sent = headed::send(memory, self.file.as_fd(), unit, &mut self.aside);
        if sent {
            self.sending = Sending::Works;
        } else if self.sending == Sending::Works {
            self.sending = Sending::Failed;
        }
        sent
    }

    pub(super) fn receive(&mut self, memory: &Mapping, room: &[Span]) -> Received {
        if !matches!(self.failure, Failure::None) {
            return Received::Nothing;
        }
        let mut header = [0; Header::LEN];
        let room = first_spans(room, self.max_unit);
        let direct = few(room);
        let spans = if direct { room } else { &[] };
        let got = memory.read_from(self.file.as_fd(), &mut header, spans, &mut self.aside);
        let len = match got {
            Ok(got) => got.saturating_sub(header.len()),
            Err(error) => {
                // Else nothing has come, or a unit is lost: what the guest's memory is, the next one may have right.
                let gone = Some(Errno::BADFD);
                if Errno::from_io_error(&error) == gone {
                    self.failure = Failure::New(error);
                }
                return Received::Nothing;
            }
        };
        let space: usize = room.iter().map(|span| span.len as usize).sum();
        if len > space || (!direct && !self.put_aside(memory, room, len)) {
            return Received::TooLong;
        }
        Received::Unit {
            header: Header::parse(header),
            len,
        }
    }

    /// Copies what was read aside to the room. False when it is no room.
    #[cold]
    fn put_aside(&self, memory: &Mapping, room: &[Span], len: usize) -> bool {
        let mut from = self.aside.get(..len).unwrap_or_default();
        for span in room {
            let (now, later) = from.split_at(from.len().min(span.len as usize));
            if memory.write(span.address, now).is_err() {
                return false;
            }
            from = later;
        }
        from.is_empty()
    }
}

/// As many of the spans as `len` bytes need.
fn first_spans(spans: &[Span], len: usize) -> &[Span] {
    let mut total = 0;
    let enough = spans.iter().position(|span| {
        total += span.len as usize;
        total >= len
    });
    let count = enough.map_or(spans.len(), |n| n + 1);
    spans.get(..count).unwrap_or_default()
}

/// Ties the open device to the interface.
fn attach(file: &File, name: &str, several: bool) -> Result<(), TapError> {
    let begun = Instant::now();
    loop {
        let error = match ioctl::attach(file, name, several) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::INVAL) if several => return Err(TapError::OneQueue(name.to_owned())),
            Some(Errno::BUSY) if begun.elapsed() < BUSY => sleep(Duration::from_millis(20)),
            Some(Errno::BUSY) => return Err(TapError::Busy(name.to_owned())),
            Some(Errno::PERM | Errno::ACCESS) => {
                return Err(TapError::NotPermitted(name.to_owned()));
            }
            _ => {
                let name = name.to_owned();
                return Err(TapError::Kernel { name, error });
            }
        }
    }
}

#[cfg(test)]
mod tests;
