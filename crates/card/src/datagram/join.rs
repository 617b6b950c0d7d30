//! Fragments to a datagram (RFC 791, RFC 815, RFC 8200; overlaps as in RFC 5722), in a table of bounded size.

use alloc::vec::Vec;
use core::time::Duration;

use super::{FRAGMENT, FRAGMENT_LEN, MORE, OFFSET, UDP_LEN};
use crate::frame::{Ip, MAX_HEAD, UDP, Version, put, u16_at, u32_at};
use crate::header::{GSO_UDP, Header, NEEDS_CSUM};

/// Datagrams that are put together at a time.
const DATAGRAMS: usize = 16;
/// Pieces of a datagram with gaps between them.
const PIECES: usize = 64;
/// Link header and a tag.
const LINK: usize = 14 + 4;
/// How long the fragments of a datagram may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A fragment of a UDP datagram.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    ip: Ip,
    id: u32,
    /// Where its data is in the frame.
    at: usize,
    /// Where its data belongs in the datagram.
    offset: usize,
    len: usize,
    more: bool,
}

impl Fragment {
    /// Reads the first bytes of a frame.
    fn parse(head: &[u8]) -> Option<Self> {
        let ip = Ip::parse(head)?;
        let (id, at, offset, more) = match ip.version {
            Version::V4 => {
                let field = u16_at(head, ip.at + 6)?;
                let id = u16_at(head, ip.at + 4)?.into();
                let offset = 8 * usize::from(field & OFFSET);
                if ip.protocol != UDP || !ip.is_intact(head) {
                    return None;
                }
                (id, ip.end, offset, field & MORE != 0)
            }
            Version::V6 => {
                if ip.protocol != FRAGMENT || *head.get(ip.end)? != UDP {
                    return None;
                }
                let field = u16_at(head, ip.end + 2)?;
                let id = u32_at(head, ip.end + 4)?;
                (
                    id,
                    ip.end + FRAGMENT_LEN,
                    usize::from(field & !7),
                    field & 1 != 0,
                )
            }
        };
        let fragment = Self {
            ip,
            id,
            at,
            offset,
            len: (ip.at + ip.len).checked_sub(at)?,
            more,
        };
        // What is whole is none.
        (offset != 0 || more).then_some(fragment)
    }

    /// Its data, if what it says can be.
    fn data<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let data = frame.get(self.at..self.at + self.len)?;
        let most = match self.ip.version {
            Version::V4 => 0xffff - (self.ip.end - self.ip.at),
            Version::V6 => 0xffff,
        };
        let possible = !data.is_empty()
            && (!self.more || data.len().is_multiple_of(8))
            && self.offset + data.len() <= most;
        possible.then_some(data)
    }
}

/// Whether [`Fragments::put`] takes the frame with this header and these first bytes.
pub(crate) fn is_fragment(header: Header, head: &[u8]) -> bool {
    header.flags & NEEDS_CSUM == 0 && Fragment::parse(head).is_some()
}

/// Which datagram a fragment is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Key {
    /// Ethernet's addresses and the tag: another station's fragments, or those of another VLAN, are not of it.
    link: [u8; LINK],
    addresses: [u8; 32],
    id: u32,
    /// Tells the IP versions apart, too.
    place: (usize, usize),
}

/// A datagram that is not whole.
#[derive(Debug, Default)]
struct Datagram {
    used: bool,
    key: Key,
    /// When its first fragment came.
    since: Duration,
    /// Headers of its first part, and their length once they are there.
    head: Vec<u8>,
    bytes: Vec<u8>,
    /// What is there, in order, with gaps between.
    pieces: Vec<(usize, usize)>,
    total: Option<usize>,
    /// Data of the first part.
    size: usize,
    frames: u64,
    /// Its fragments contradict each other: all of it is dropped.
    broken: bool,
}

enum Added {
    Yes,
    /// It brings nothing new, and is dropped.
    Again,
    Contradiction,
}

impl Datagram {
    fn begin(&mut self, key: Key, now: Duration) {
        self.used = true;
        self.key = key;
        self.since = now;
        self.head.clear();
        self.bytes.clear();
        self.pieces.clear();
        self.total = None;
        self.size = 0;
        self.frames = 0;
        self.broken = false;
    }

    fn add(&mut self, fragment: &Fragment, head: &[u8], data: &[u8]) -> Added {
        let (start, end) = (fragment.offset, fragment.offset + data.len());
        if self
            .pieces
            .iter()
            .any(|(from, to)| *from < end && start < *to)
        {
            let there = self
                .pieces
                .iter()
                .any(|(from, to)| *from <= start && end <= *to);
            let same = self.bytes.get(start..end) == Some(data);
            let last = fragment.more != (self.total == Some(end));
            return if there && same && last {
                Added::Again
            } else {
                Added::Contradiction
            };
        }
        let highest = self.pieces.last().map_or(0, |(_, to)| *to);
        let fits = match self.total {
            Some(total) => fragment.more && end < total,
            None => fragment.more || highest <= start,
        };
        if !fits {
            return Added::Contradiction;
        }
        let n = self.pieces.partition_point(|(from, _)| *from < start);
        let full = self.pieces.len() == PIECES;
        let before = n.checked_sub(1).and_then(|n| self.pieces.get_mut(n));
        match before {
            Some(before) if before.1 == start => before.1 = end,
            _ if full => return Added::Contradiction,
            _ => self.pieces.insert(n, (start, end)),
        }
        // A gap may be closed now.
        if let Some(n) = self.pieces.iter().position(|piece| piece.1 == end)
            && let Some(&(from, to)) = self.pieces.get(n + 1)
            && from == end
            && let Some(piece) = self.pieces.get_mut(n)
        {
            piece.1 = to;
            self.pieces.remove(n + 1);
        }
        if !fragment.more {
            self.total = Some(end);
        }
        if start == 0 {
            self.head.extend_from_slice(head);
            self.size = data.len();
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        match put(&mut self.bytes, start, data) {
            Some(()) => Added::Yes,
            None => Added::Contradiction,
        }
    }

    fn is_whole(&self) -> bool {
        self.total.is_some_and(|total| self.pieces == [(0, total)])
    }

    /// Makes the headers those of a packet that was never cut.
    fn finish(&mut self, ip: &Ip) -> Option<Header> {
        match ip.version {
            Version::V4 => put(&mut self.head, ip.at + 6, &[0; 2])?,
            Version::V6 => put(&mut self.head, ip.at + 6, &[UDP])?,
        }
        ip.set_len(&mut self.head, self.bytes.len())?;
        Some(Header {
            gso_type: GSO_UDP,
            hdr_len: u16::try_from(self.head.len() + UDP_LEN).ok()?,
            gso_size: u16::try_from(self.size).ok()?,
            ..Header::default()
        })
    }
}

/// What became of a fragment.
#[derive(Debug)]
pub(crate) enum Put<'a> {
    /// It waits for others, or was dropped.
    Kept,
    /// It was the last one of this unit.
    Whole {
        header: Header,
        head: &'a [u8],
        data: &'a [u8],
    },
}

/// Datagrams whose fragments are still coming.
#[derive(Debug)]
pub(crate) struct Fragments {
    table: [Datagram; DATAGRAMS],
    /// Datagrams put together.
    pub whole: u64,
    /// The fragments that they came in.
    pub joined: u64,
    /// Fragments of datagrams that contradict themselves, that are too late, or for which there is no room; those that came twice.
    pub dropped: u64,
}

impl Fragments {
    pub(crate) fn new() -> Self {
        Self {
            table: Default::default(),
            whole: 0,
            joined: 0,
            dropped: 0,
        }
    }

    /// Fragments that wait for others.
    pub(crate) fn waiting(&self) -> u64 {
        let used = self.table.iter().filter(|datagram| datagram.used);
        used.map(|datagram| datagram.frames).sum()
    }

    /// Drops all that wait.
    pub(crate) fn clear(&mut self) {
        self.dropped += self.waiting();
        for datagram in &mut self.table {
            datagram.used = false;
        }
    }

    /// Takes the fragment in `frame`.
    pub(crate) fn put(&mut self, frame: &[u8], now: Duration) -> Put<'_> {
        self.expire(now);
        let found = Fragment::parse(frame.get(..frame.len().min(MAX_HEAD)).unwrap_or_default());
        let Some((fragment, key)) = found.and_then(|found| Some((found, key(&found, frame)?)))
        else {
            self.dropped += 1;
            return Put::Kept;
        };
        let data = fragment.data(frame);
        let Some(datagram) = find(&mut self.table, key, now, &mut self.dropped, data.is_some())
        else {
            self.dropped += 1;
            return Put::Kept;
        };
        let head = frame.get(..fragment.ip.end).unwrap_or_default();
        let added = match data {
            _ if datagram.broken => Added::Again,
            Some(data) => datagram.add(&fragment, head, data),
            None => Added::Contradiction,
        };
        match added {
            Added::Yes => datagram.frames += 1,
            Added::Again => self.dropped += 1,
            Added::Contradiction => {
                // It stays, so that what is still to come of it does not begin another.
                datagram.broken = true;
                self.dropped += 1 + core::mem::take(&mut datagram.frames);
            }
        }
        if datagram.broken || !datagram.is_whole() {
            return Put::Kept;
        }
        datagram.used = false;
        let frames = datagram.frames;
        match datagram.finish(&fragment.ip) {
            Some(header) => {
                self.whole += 1;
                self.joined += frames;
                Put::Whole {
                    header,
                    head: &datagram.head,
                    data: &datagram.bytes,
                }
            }
            None => {
                self.dropped += frames;
                Put::Kept
            }
        }
    }

    fn expire(&mut self, now: Duration) {
        for datagram in self.table.iter_mut().filter(|datagram| datagram.used) {
            if now.saturating_sub(datagram.since) >= PATIENCE {
                datagram.used = false;
                self.dropped += datagram.frames;
            }
        }
    }
}

fn key(fragment: &Fragment, frame: &[u8]) -> Option<Key> {
    let mut key = Key {
        id: fragment.id,
        place: (fragment.ip.at, fragment.ip.end),
        ..Key::default()
    };
    put(&mut key.link, 0, frame.get(..fragment.ip.at)?)?;
    put(&mut key.addresses, 0, fragment.ip.addresses(frame)?)?;
    Some(key)
}

/// The datagram with this key. One begins when there is none and `begin` says so, in place of the oldest when the table is full.
fn find<'a>(
    table: &'a mut [Datagram],
    key: Key,
    now: Duration,
    dropped: &mut u64,
    begin: bool,
) -> Option<&'a mut Datagram> {
    let known = table
        .iter()
        .position(|datagram| datagram.used && datagram.key == key);
    if let Some(n) = known {
        return table.get_mut(n);
    }
    if !begin {
        return None;
    }
    // One that is free comes first.
    let datagram = table
        .iter_mut()
        .min_by_key(|datagram| (datagram.used, datagram.since))?;
    if datagram.used {
        *dropped += datagram.frames;
    }
    datagram.begin(key, now);
    Some(datagram)
}
