//! Guests for tests of wires.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wireboot_card::{GuestMemory, Header, Span, Unit};

use crate::memory::{Mapping, Place};

/// The memory of a guest, as each who maps it sees it.
pub(crate) struct GuestFile(OwnedFd);

impl GuestFile {
    pub(crate) fn new() -> Self {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 0x1_0000).unwrap();
        Self(file)
    }

    pub(crate) fn map(&self) -> Mapping {
        let place = Place {
            guest: 0,
            len: 0x1_0000,
            offset: 0,
        };
        Mapping::new(&[(place, &self.0)]).unwrap()
    }
}

pub(crate) fn memory() -> Mapping {
    GuestFile::new().map()
}

pub(crate) fn content(memory: &Mapping, room: &[Span], len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.gather(room, &mut bytes).unwrap();
    bytes
}

/// Calls `send` with a frame that lies in the guest's memory, but for its first ten bytes, in pieces of `each` bytes.
pub(crate) fn with_unit<T>(
    memory: &Mapping,
    frame: &[u8],
    each: usize,
    send: impl FnOnce(&Unit<'_>) -> T,
) -> T {
    let (head, rest) = frame.split_at(frame.len().min(10));
    memory.write(0, rest).unwrap();
    let span = |at: usize| Span {
        address: at as u64,
        len: (rest.len() - at).min(each) as u32,
    };
    let spans: Vec<Span> = (0..rest.len()).step_by(each).map(span).collect();
    send(&Unit {
        header: Header::default(),
        head,
        spans: &spans,
        len: frame.len(),
    })
}

/// Room for a frame, in buffers of `each` bytes.
pub(crate) fn room(each: u32) -> Vec<Span> {
    let at = |n| Span {
        address: 0x8000 + u64::from(n * each),
        len: each,
    };
    (0..1518u32.div_ceil(each)).map(at).collect()
}

/// Whether Linux is one that takes and gives units of datagrams: 6.2 or newer.
pub(super) fn kernel_knows_uso() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}
