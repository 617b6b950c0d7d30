//! A learning switch between the ports of this process (IEEE 802.1D, clause 7, without a spanning tree: it has no loops).
//!
//! ```text
//!   guest A ──copy──> buffer ──queue of A to B──> port B ──copy──> guest B
//!                        ^────────queue back─────────┘
//! ```
//!
//! Each port is its own thread's. Between two ports are queues without locks; a buffer goes there full and comes back empty. A port learns from what
//! comes which port an address is behind, so there is no table that all share. An address that was said beforehand stays behind its port: that has
//! no other, and no other port has it.

mod table;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use wireboot_card::{Header, Received, Span, Unit};
use wireboot_ring::{Receiver, Sender, channel};

use self::table::{Mac, Table};
use crate::memory::Mapping;

/// Bytes of two addresses and a type.
const LINK: usize = 14;
/// Bytes of a tag.
const TAG: usize = 4;
/// Frames that may wait for a port, from each other one.
const WAITING: usize = 128;

/// A frame on its way.
struct QueuedFrame {
    len: usize,
    bytes: Box<[u8]>,
}

/// Ends a port's wait.
struct Waker {
    event: OwnedFd,
    /// Somebody has woken it since it was last emptied, or is about to have.
    woken: AtomicBool,
}

impl Waker {
    fn wake(&self) {
        // A full one wakes already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        // Behind the write: whoever sees it and empties the event leaves nothing in it for good.
        self.woken.store(true, Ordering::Release);
    }

    /// False when nobody has woken it.
    fn empty(&self) -> bool {
        let woken = self.woken.swap(false, Ordering::Acquire);
        if woken {
            // It does not block.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        woken
    }
}

/// Half of what connects two ports.
struct Link {
    /// Frames for the other, and what comes back of them.
    out: Sender<QueuedFrame>,
    spare: Receiver<QueuedFrame>,
    /// The same of the other.
    coming: Receiver<QueuedFrame>,
    done: Sender<QueuedFrame>,
    waker: Arc<Waker>,
    /// Bytes of a buffer.
    longest: usize,
    /// It has frames that the other was not woken for.
    touched: bool,
}

/// What a port is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortPlan {
    /// In bytes. What is longer, it loses.
    pub mtu: u16,
    /// The only address behind it, where that is known.
    pub mac: Option<[u8; 6]>,
}

/// A port of a switch.
pub(crate) struct SwitchPort {
    /// To each port, but for itself.
    links: Vec<Option<Link>>,
    waker: Arc<Waker>,
    /// The only address that it sends from, where that is known.
    mac: Option<Mac>,
    table: Table,
    /// Whose turn it is.
    turn: usize,
    /// Part of a frame may lie in the guest's memory in many pieces. As long as the longest frame of this port.
    aside: Box<[u8]>,
}

/// A switch with these ports.
///
/// # Errors
/// Those of the kernel's calls.
pub(crate) fn switch(plans: &[PortPlan]) -> io::Result<Vec<SwitchPort>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let known = plans.iter().enumerate();
    let known: Vec<_> = known
        .filter_map(|(port, plan)| Some((plan.mac?, port)))
        .collect();
    let mut all = Vec::with_capacity(plans.len());
    for plan in plans {
        let longest = LINK + TAG + usize::from(plan.mtu);
        all.push(SwitchPort {
            links: plans.iter().map(|_| None).collect(),
            waker: Arc::new(Waker {
                event: eventfd(0, flags)?,
                woken: AtomicBool::new(false),
            }),
            mac: plan.mac,
            table: Table::new(known.clone()),
            turn: 0,
            aside: vec![0; longest].into_boxed_slice(),
        });
    }
    for second in 1..plans.len() {
        let (before, from) = all.split_at_mut(second);
        let Some(two) = from.first_mut() else {
            continue;
        };
        for (first, one) in before.iter_mut().enumerate() {
            connect((one, first), (two, second));
        }
    }
    Ok(all)
}

fn connect((one, first): (&mut SwitchPort, usize), (two, second): (&mut SwitchPort, usize)) {
    // What one port has not, the other one does not get.
    let longest = one.max_unit().min(two.max_unit());
    let (there, arriving) = frame_channel(longest);
    let (back, leaving) = frame_channel(longest);
    let put = |port: &mut SwitchPort, other: usize, link| {
        if let Some(place) = port.links.get_mut(other) {
            *place = Some(link);
        }
    };
    let link = |(out, spare), (coming, done), waker| Link {
        out,
        spare,
        coming,
        done,
        waker,
        longest,
        touched: false,
    };
    put(one, second, link(there, leaving, two.waker.clone()));
    put(two, first, link(back, arriving, one.waker.clone()));
}

/// A channel for frames and the one on which their buffers come back: the sending port's ends, and the receiving port's.
type FrameChannel = (
    (Sender<QueuedFrame>, Receiver<QueuedFrame>),
    (Receiver<QueuedFrame>, Sender<QueuedFrame>),
);

/// From one port to another, for frames of up to `longest` bytes, with all buffers at the beginning.
fn frame_channel(longest: usize) -> FrameChannel {
    let (out, coming) = channel(WAITING);
    let (mut done, spare) = channel(WAITING);
    for _ in 0..WAITING {
        let empty = QueuedFrame {
            len: 0,
            bytes: vec![0; longest].into_boxed_slice(),
        };
        // There is room for all.
        let _ = done.push(empty);
    }
    ((out, spare), (coming, done))
}

impl SwitchPort {
    pub(super) fn max_unit(&self) -> usize {
        self.aside.len()
    }

    /// Readable when something has come.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.event.as_fd()
    }

    /// What has come for the guest before this one is nobody's any more.
    pub(super) fn restart(&mut self) {
        for link in self.links.iter_mut().flatten() {
            while let Some(queued) = link.coming.pop() {
                let _ = link.done.push(queued);
            }
        }
    }

    /// Gives a frame to the port that its address is behind; to all others, where that is not known or many are meant. False when nobody
    /// gets it, as where it is from another address than the port's own.
    pub(super) fn send(&mut self, memory: &Mapping, unit: &Unit<'_>, now: Duration) -> bool {
        let frame = self.aside.get_mut(..unit.len);
        let parts = frame.and_then(|frame| frame.split_at_mut_checked(unit.head.len()));
        let Some((head, rest)) = parts.filter(|_| unit.len >= LINK) else {
            return false;
        };
        head.copy_from_slice(unit.head);
        if memory.gather(unit.spans, rest).is_err() {
            return false;
        }
        let frame = self.aside.get(..unit.len).unwrap_or_default();
        if self.mac.is_some_and(|mac| mac != source(frame)) {
            return false;
        }
        let to = frame.first_chunk().copied().unwrap_or_default();
        match self.table.port(to, now) {
            Some(port) => {
                let link = self.links.get_mut(port).and_then(Option::as_mut);
                link.is_some_and(|link| link.give(frame))
            }
            None => {
                let links = self.links.iter_mut().flatten();
                links.fold(false, |given, link| link.give(frame) | given)
            }
        }
    }

    /// Rings for those that got frames.
    pub(super) fn flush(&mut self) {
        for link in self.links.iter_mut().flatten() {
            if std::mem::take(&mut link.touched) {
                link.waker.wake();
            }
        }
    }

    pub(super) fn receive(&mut self, memory: &Mapping, room: &[Span], now: Duration) -> Received {
        loop {
            if let Some(received) = self.next(memory, room, now) {
                return received;
            }
            // Who woke it before had put something there before.
            if !self.waker.empty() {
                return Received::Nothing;
            }
        }
    }

    /// The next frame of the port whose turn it is, or of one behind it.
    fn next(&mut self, memory: &Mapping, room: &[Span], now: Duration) -> Option<Received> {
        let ports = self.links.len();
        for _ in 0..ports {
            let from = self.turn;
            self.turn = (from + 1) % ports;
            let link = self.links.get_mut(from).and_then(Option::as_mut);
            let Some((link, queued)) = link
                .and_then(|link| Some((link.coming.pop()?, link)))
                .map(|(queued, link)| (link, queued))
            else {
                continue;
            };
            let frame = queued.bytes.get(..queued.len).unwrap_or_default();
            self.table.learn(source(frame), from, now);
            let put = memory.scatter(room, 0, frame);
            let len = queued.len;
            let _ = link.done.push(queued);
            return Some(match put {
                Ok(()) => Received::Unit {
                    header: Header::default(),
                    len,
                },
                Err(_) => Received::TooLong,
            });
        }
        None
    }
}

/// The address that a frame says it is from.
fn source(frame: &[u8]) -> Mac {
    let source = frame.get(6..).and_then(|rest| rest.first_chunk());
    source.copied().unwrap_or_default()
}

impl Link {
    /// False when too many wait there, or the frame is too long for it.
    fn give(&mut self, frame: &[u8]) -> bool {
        let fits = frame.len() <= self.longest;
        let Some(mut queued) = fits.then(|| self.spare.pop()).flatten() else {
            return false;
        };
        queued.len = frame.len();
        for (to, from) in queued.bytes.iter_mut().zip(frame) {
            *to = *from;
        }
        // There are no more buffers than places.
        let _ = self.out.push(queued);
        self.touched = true;
        true
    }
}

#[cfg(test)]
mod tests;
