//! Segments to a unit.

use super::{ACK, CHECKSUM, PSH};
use crate::frame::{Ip, MAX_HEAD, TCP, Version, put, u16_at, u32_at};
use crate::header::{DATA_VALID, GSO_TCPV4, GSO_TCPV6, Header, NEEDS_CSUM};
use crate::memory::{GuestMemory, Span};

/// IPv4: do not fragment. The packet's identification then means nothing (RFC 6864).
const DF: u16 = 0x4000;

/// A segment that can be part of a unit: it carries data and an acknowledgement, and nothing else.
#[derive(Clone, Copy, Debug)]
struct Segment {
    ip: Ip,
    tcp: usize,
    /// The first byte of the payload.
    payload: usize,
    len: usize,
    pushed: bool,
}

impl Segment {
    /// Reads the frame of `len` bytes that begins with `head`.
    fn parse(head: &[u8], len: usize) -> Option<Self> {
        let ip = Ip::parse(head)?;
        let tcp = ip.end;
        let plain = match ip.version {
            Version::V4 => ip.end - ip.at == 20 && u16_at(head, ip.at + 6)? & !DF == 0,
            Version::V6 => true,
        };
        let flags = *head.get(tcp + 13)?;
        let payload = tcp + 4 * usize::from(head.get(tcp + 12)? >> 4);
        let segment = Self {
            ip,
            tcp,
            payload,
            len,
            pushed: flags & PSH != 0,
        };
        let usual = plain
            && ip.protocol == TCP
            && flags & !PSH == ACK
            // No urgent data.
            && u16_at(head, tcp + 18)? == 0
            && payload >= tcp + 20
            && payload <= head.len()
            && payload < len
            && ip.at + ip.len == len
            && ip.is_intact(head);
        usual.then_some(segment)
    }

    /// True when its checksum is right, by what the wire says or by its bytes, which are at the beginning of the spans.
    fn is_intact<M: GuestMemory>(
        &self,
        head: &[u8],
        header: Header,
        memory: &M,
        spans: &[Span],
    ) -> bool {
        if header.flags & NEEDS_CSUM != 0 {
            return usize::from(header.csum_start) == self.tcp && header.csum_offset == CHECKSUM;
        }
        if header.flags & DATA_VALID != 0 {
            return true;
        }
        let len = self.len - self.tcp;
        let Some(mut sum) = self.ip.pseudo(head, TCP, len) else {
            return false;
        };
        let added = sum.add_spans(memory, spans, self.tcp, len);
        added.is_ok() && sum.fold() == 0xffff
    }
}

/// Segments of a connection, each of which continues the one before. All have the same headers but for lengths, checksums, sequence numbers and
/// identifications, and the same length; the last may be shorter, or pushed.
#[derive(Debug)]
pub(crate) struct Run {
    first: Segment,
    /// The headers of the first.
    head: [u8; MAX_HEAD],
    /// Bytes of the unit.
    len: usize,
    segments: usize,
    /// Nothing can follow.
    closed: bool,
    pushed: bool,
}

impl Run {
    /// A run that begins with the frame of `len` bytes whose first ones are `head`, and which lies at the beginning of the spans.
    pub(crate) fn begin<M: GuestMemory>(
        header: Header,
        head: &[u8],
        len: usize,
        memory: &M,
        spans: &[Span],
    ) -> Option<Self> {
        let first = Segment::parse(head, len)?;
        if first.pushed || !first.is_intact(head, header, memory, spans) {
            return None;
        }
        let mut bytes = [0; MAX_HEAD];
        put(&mut bytes, 0, head.get(..first.payload)?)?;
        Some(Self {
            first,
            head: bytes,
            len,
            segments: 1,
            closed: false,
            pushed: false,
        })
    }

    /// Bytes in front of the payload.
    pub(crate) fn head_len(&self) -> usize {
        self.first.payload
    }

    /// Bytes of the unit so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many segments it has.
    pub(crate) fn segments(&self) -> usize {
        self.segments
    }

    /// True when no segment can follow.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Payload bytes of each segment but the last.
    fn size(&self) -> usize {
        self.first.len - self.first.payload
    }

    /// Adds the frame of `len` bytes whose first ones are `head`, and which lies at the beginning of the spans. False when it does not continue
    /// the run.
    pub(crate) fn push<M: GuestMemory>(
        &mut self,
        header: Header,
        head: &[u8],
        len: usize,
        memory: &M,
        spans: &[Span],
    ) -> bool {
        let Some(next) = Segment::parse(head, len) else {
            return false;
        };
        let payload = len - next.payload;
        let continues = !self.closed
            && payload <= self.size()
            && self.len + payload - self.first.ip.at <= 0xffff
            && self.has_headers_of(&next, head) == Some(true)
            && next.is_intact(head, header, memory, spans);
        if continues {
            self.len += payload;
            self.segments += 1;
            self.pushed = next.pushed;
            self.closed = next.pushed || payload < self.size();
        }
        continues
    }

    /// Whether the headers are those of the segment that is to follow.
    fn has_headers_of(&self, next: &Segment, head: &[u8]) -> Option<bool> {
        let Segment {
            ip, tcp, payload, ..
        } = self.first;
        if (next.ip.version, next.ip.at, next.tcp, next.payload)
            != (ip.version, ip.at, tcp, payload)
        {
            return Some(false);
        }
        let same = |from: usize, to: usize| {
            let (ours, theirs) = (self.head.get(from..to), head.get(from..to));
            ours.is_some() && ours == theirs
        };
        let internet = match ip.version {
            Version::V4 => {
                let first = u16_at(&self.head, ip.at + 4)?;
                let due = first.wrapping_add(self.segments as u16);
                let free = u16_at(head, ip.at + 6)? & DF != 0;
                // Type of service; fragments and time to live, protocol; addresses.
                same(ip.at, ip.at + 2)
                    && same(ip.at + 6, ip.at + 10)
                    && same(ip.at + 12, ip.end)
                    && (free || u16_at(head, ip.at + 4)? == due)
            }
            // Class and label; next header, hop limit, addresses.
            Version::V6 => same(ip.at, ip.at + 4) && same(ip.at + 6, ip.end),
        };
        let due = u32_at(&self.head, tcp + 4)?.wrapping_add((self.len - payload) as u32);
        // Ports; acknowledgement and data offset; window; options.
        Some(
            internet
                && same(0, ip.at)
                && same(tcp, tcp + 4)
                && u32_at(head, tcp + 4)? == due
                && same(tcp + 8, tcp + 13)
                && same(tcp + 14, tcp + 16)
                && same(tcp + 20, payload),
        )
    }

    /// The unit's header and first bytes; none where it is a single frame, which stays as it was.
    pub(crate) fn unit(&mut self) -> Option<(Header, &[u8])> {
        if self.segments == 1 {
            return None;
        }
        let Segment {
            ip, tcp, payload, ..
        } = self.first;
        let head = self.head.get_mut(..payload)?;
        ip.set_len(head, self.len - ip.end)?;
        if self.pushed {
            put(head, tcp + 13, &[ACK | PSH])?;
        }
        let sum = ip.pseudo(head, TCP, self.len - tcp)?.fold();
        put(head, tcp + usize::from(CHECKSUM), &sum.to_be_bytes())?;
        let header = Header {
            flags: NEEDS_CSUM,
            gso_type: match ip.version {
                Version::V4 => GSO_TCPV4,
                Version::V6 => GSO_TCPV6,
            },
            hdr_len: u16::try_from(payload).ok()?,
            gso_size: u16::try_from(self.first.len - payload).ok()?,
            csum_start: u16::try_from(tcp).ok()?,
            csum_offset: CHECKSUM,
        };
        Some((header, head))
    }
}
