//! A boot server behind the card. Frames go from the guest's buffers to it, and bytes of files from the kernel's cache to the guest's buffers.

mod cold;

use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::ReadWriteFlags;
use wireboot_card::{Header, Received, Span, Unit, feature};
use wireboot_server::directory::Lying;
use wireboot_server::station::{Cut, Frame, Longest, MTU, Partial, Piece, Station};

use self::cold::{ColdFiles, HostFiles, NotThere};
use crate::memory::{MAX_SPANS, Mapping};

/// Bytes of an Ethernet header.
const LINK: usize = 14;
/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// The longest unit of a guest.
const LONGEST: usize = 65_535 + LINK + 4;
/// In a header: the transport checksum is still to be completed.
const NEEDS_CSUM: u8 = 1;
/// In a header: the unit is data of TCP over that version, as long as several segments, or a UDP datagram longer than the MTU.
const TCPV4: u8 = 1;
const TCPV6: u8 = 4;
const UDP: u8 = 3;

/// The wire to a server.
pub(crate) struct ServerWire {
    station: Station,
    files: ColdFiles,
    /// What was agreed on with the guest.
    agreed: u64,
    /// A unit of the guest's, and frames that need all their bytes side by side.
    aside: Box<[u8]>,
}

/// Why a frame did not get to the guest.
enum NotPut {
    TooLong,
    /// Its payload is not to be had, or not yet.
    Payload(NotThere),
}

impl ServerWire {
    /// Units of TCP, long datagrams and checksums may be left to the guest, and the guest may leave checksums.
    pub(super) const OFFLOADS: u64 = feature::CSUM
        | feature::GUEST_CSUM
        | feature::GUEST_TSO4
        | feature::GUEST_TSO6
        | feature::GUEST_UFO;

    /// The wire to this station.
    ///
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn new(station: Station) -> io::Result<Self> {
        Ok(Self::with_files(
            station,
            ColdFiles::new(Arc::new(HostFiles))?,
        ))
    }

    fn with_files(station: Station, files: ColdFiles) -> Self {
        Self {
            station,
            files,
            agreed: 0,
            aside: vec![0; LONGEST].into_boxed_slice(),
        }
    }

    /// The guest's driver begins anew.
    pub(super) fn restart(&mut self) {
        self.station.forget_flows();
        self.files.forget();
    }

    /// Readable when a file that was waited for is there.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.files.descriptor()
    }

    /// When there may be a frame though the guest sends none.
    pub(super) fn due(&self) -> Option<Duration> {
        self.station.due()
    }

    pub(super) fn max_unit(&self) -> usize {
        LINK + MTU
    }

    pub(super) fn useful_room(&self) -> usize {
        let segments = feature::GUEST_TSO4 | feature::GUEST_TSO6;
        if self.takes_segments(segments) || self.takes_datagrams() {
            LONGEST
        } else {
            self.max_unit()
        }
    }

    pub(super) fn agree(&mut self, features: u64) {
        self.agreed = features;
        let long = self.takes_datagrams();
        self.station.send_long_datagrams(long);
    }

    /// The guest completes checksums.
    fn takes_partial(&self) -> bool {
        self.agreed & feature::GUEST_CSUM != 0
    }

    /// The guest takes units of TCP of these versions that are longer than a segment, whose checksums are not complete.
    fn takes_segments(&self, versions: u64) -> bool {
        self.takes_partial() && self.agreed & versions != 0
    }

    /// The guest takes datagrams longer than the MTU.
    fn takes_datagrams(&self) -> bool {
        self.takes_partial() && self.agreed & feature::GUEST_UFO != 0
    }

    pub(super) fn send(&mut self, memory: &Mapping, unit: &Unit<'_>, now: Duration) -> bool {
        let frame = self.aside.get_mut(..unit.len);
        let parts = frame.and_then(|frame| frame.split_at_mut_checked(unit.head.len()));
        let Some((head, rest)) = parts else {
            return false;
        };
        head.copy_from_slice(unit.head);
        if memory.gather(unit.spans, rest).is_err() {
            return false;
        }
        let frame = self.aside.get(..unit.len).unwrap_or_default();
        let partial = unit.header.flags & NEEDS_CSUM != 0;
        self.station.take(frame, partial, now);
        true
    }

    pub(super) fn receive(&mut self, memory: &Mapping, room: &[Span], now: Duration) -> Received {
        // What goes to the kernel in one call has room for a frame, unless buffers are very short.
        let near = room.get(..MAX_SPANS).unwrap_or(room);
        let direct = space(near) >= self.max_unit();
        let room = if direct { near } else { room };
        let takes_partial = self.takes_partial();
        let longest = |version| (self.takes_segments(version) && direct).then(|| space(room));
        let longest = Longest {
            ipv4: longest(feature::GUEST_TSO4),
            ipv6: longest(feature::GUEST_TSO6),
        };
        if self.files.collect() {
            self.station.go_on();
        }
        while let Some(frame) = self.station.next(now, longest) {
            let partial = frame.partial.filter(|_| takes_partial);
            let whole = direct && (frame.partial.is_none() || partial.is_some());
            let put = if whole {
                put(memory, room, &frame, &mut self.files)
            } else {
                put_aside(memory, room, &frame, &mut self.files, &mut self.aside)
            };
            match put {
                Ok(len) => {
                    // What was put aside on its way is complete.
                    let header = header(partial.filter(|_| whole), &frame);
                    return Received::Unit { header, len };
                }
                Err(NotPut::TooLong) => return Received::TooLong,
                Err(NotPut::Payload(NotThere::Yet)) => self.station.hold(),
                Err(NotPut::Payload(NotThere::Ever(error))) => self.station.fail(&error, now),
            }
        }
        Received::Nothing
    }
}

/// What is said of a frame, `partial` where the guest completes its checksum.
fn header(partial: Option<Partial>, frame: &Frame<'_>) -> Header {
    let Some(partial) = partial else {
        return Header::default();
    };
    let (gso_type, hdr_len, gso_size) = match frame.cut {
        Some(Cut::SegmentsIpv4(size)) => (TCPV4, frame.head.len() as u16, size),
        Some(Cut::SegmentsIpv6(size)) => (TCPV6, frame.head.len() as u16, size),
        Some(Cut::Fragments(size)) => (UDP, (partial.start + UDP_HEADER) as u16, size),
        None => (0, 0, 0),
    };
    Header {
        flags: NEEDS_CSUM,
        gso_type,
        hdr_len,
        gso_size,
        csum_start: partial.start as u16,
        csum_offset: partial.offset as u16,
    }
}

/// Puts a frame into the guest's buffers, each byte once.
fn put(
    memory: &Mapping,
    room: &[Span],
    frame: &Frame<'_>,
    files: &mut ColdFiles,
) -> Result<usize, NotPut> {
    if len_of(frame) > space(room) {
        return Err(NotPut::TooLong);
    }
    let lost = |_| NotPut::TooLong;
    memory.scatter(room, 0, frame.head).map_err(lost)?;
    let mut at = frame.head.len();
    for piece in frame.payload.pieces() {
        match piece {
            Piece::Bytes(bytes) => memory.scatter(room, at, bytes).map_err(lost)?,
            Piece::File {
                content,
                offset,
                len,
                looks,
            } => {
                let read = |lying: Lying<'_>, flags| match lying {
                    Lying::File(file) => memory.read_file(file, offset, room, (at, len), flags),
                    Lying::Bytes(bytes) => {
                        let put = memory.scatter(room, at, bytes);
                        put.map_err(|_| ErrorKind::InvalidInput)?;
                        Ok(bytes.len())
                    }
                };
                files
                    .read(content, offset, (len, looks), read)
                    .map_err(NotPut::Payload)?;
            }
        }
        at += piece.len();
    }
    Ok(at)
}

/// Puts a frame into the guest's buffers when its checksum is complete.
fn put_aside(
    memory: &Mapping,
    room: &[Span],
    frame: &Frame<'_>,
    files: &mut ColdFiles,
    aside: &mut [u8],
) -> Result<usize, NotPut> {
    let len = len_of(frame);
    let whole = aside.get_mut(..len).filter(|_| len <= space(room));
    let whole = whole.ok_or(NotPut::TooLong)?;
    let (head, mut rest) = whole.split_at_mut(frame.head.len());
    head.copy_from_slice(frame.head);
    for piece in frame.payload.pieces() {
        let (place, behind) = rest.split_at_mut(piece.len());
        match piece {
            Piece::Bytes(bytes) => place.copy_from_slice(bytes),
            Piece::File {
                content,
                offset,
                len,
                looks,
            } => {
                let read = |lying: Lying<'_>, flags| match lying {
                    Lying::File(file) => read_at(file, place, offset, flags),
                    Lying::Bytes(bytes) if bytes.len() == place.len() => {
                        place.copy_from_slice(bytes);
                        Ok(bytes.len())
                    }
                    Lying::Bytes(_) => Ok(0),
                };
                files
                    .read(content, offset, (len, looks), read)
                    .map_err(NotPut::Payload)?;
            }
        }
        rest = behind;
    }
    if let Some(partial) = frame.partial {
        partial.complete(whole);
    }
    memory
        .scatter(room, 0, whole)
        .map_err(|_| NotPut::TooLong)?;
    Ok(len)
}

fn read_at(
    file: BorrowedFd<'_>,
    place: &mut [u8],
    offset: u64,
    flags: ReadWriteFlags,
) -> io::Result<usize> {
    let mut places = [IoSliceMut::new(place)];
    Ok(rustix::io::preadv2(file, &mut places, offset, flags)?)
}

fn len_of(frame: &Frame<'_>) -> usize {
    let payload: usize = frame.payload.pieces().map(|piece| piece.len()).sum();
    frame.head.len() + payload
}

fn space(room: &[Span]) -> usize {
    room.iter().map(|span| span.len as usize).sum()
}

#[cfg(test)]
mod tests;
