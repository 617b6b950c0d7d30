//! Packets that came in fragments (RFC 791, section 3.2; RFC 8200, section 4.5).

use super::packet::{Fragment, Ip};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_net::{Duration, Instant};

/// Packets that are put together at the same time; the oldest makes room.
const PACKETS: usize = 8;
/// Bytes of a packet at most.
const LARGEST: usize = 0xffff;
/// How long fragments wait for the others.
const PATIENCE: Duration = Duration::from_secs(30);

/// One that is not whole yet.
struct Partial {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    id: u32,
    since: Instant,
    bytes: Vec<u8>,
    /// Start and end of what is there, in order and without overlap.
    there: Vec<(usize, usize)>,
    len: Option<usize>,
}

/// Those that are not whole yet.
#[derive(Default)]
pub(super) struct Fragments(Vec<Partial>);

impl Fragments {
    /// Takes a fragment. Returns the payload of its packet, once that is whole.
    pub(super) fn take(&mut self, ip: &Ip<'_>, part: Fragment, now: Instant) -> Option<Vec<u8>> {
        self.0.retain(|one| now < one.since + PATIENCE);
        let end = part.offset + ip.payload.len();
        if end > LARGEST
            || ip.payload.is_empty()
            || part.more && !ip.payload.len().is_multiple_of(8)
        {
            return None;
        }
        let same = |one: &Partial| {
            (one.source, one.destination, one.protocol, one.id)
                == (ip.source, ip.destination, ip.protocol, part.id)
        };
        let index = self.0.iter().position(same).unwrap_or_else(|| {
            if self.0.len() >= PACKETS {
                self.0.remove(0);
            }
            self.0.push(Partial {
                source: ip.source,
                destination: ip.destination,
                protocol: ip.protocol,
                id: part.id,
                since: now,
                bytes: Vec::new(),
                there: Vec::new(),
                len: None,
            });
            self.0.len() - 1
        });
        let packet = self.0.get_mut(index)?;
        if packet.there.contains(&(part.offset, end)) {
            return None;
        }
        if !packet.add(part.offset, ip.payload, part.more) {
            // Two that overlap, or disagree on where the packet ends: none of it can be trusted (RFC 5722).
            self.0.remove(index);
            return None;
        }
        let whole = packet.len.is_some_and(|len| {
            packet
                .there
                .iter()
                .map(|(start, end)| end - start)
                .sum::<usize>()
                == len
        });
        whole.then(|| self.0.remove(index).bytes)
    }
}

impl Partial {
    fn add(&mut self, start: usize, payload: &[u8], more: bool) -> bool {
        let end = start + payload.len();
        let ends = self
            .there
            .last()
            .is_some_and(|&(_, last)| !more && last > end);
        if self
            .there
            .iter()
            .any(|&(from, to)| start < to && from < end)
            || self.len.is_some_and(|len| !more || end > len)
            || ends
        {
            return false;
        }
        if !more {
            self.len = Some(end);
        }
        if self.bytes.len() < end {
            self.bytes.append(&mut vec![0; end - self.bytes.len()]);
        }
        super::packet::put(&mut self.bytes, start, payload);
        let at = self.there.partition_point(|&(from, _)| from < start);
        self.there.insert(at, (start, end));
        true
    }
}
