//! Cuts TCP segments out of large frames, as a device with HOST_TSO4 and HOST_TSO6 does.

use alloc::vec::Vec;

use crate::checksum;
use crate::vlan::TAG_LEN;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;

// Offsets in the TCP header.
const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
const CHECKSUM: usize = 16;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
/// SYN, RST, URG and CWR.
const NEVER: u8 = 0x02 | 0x04 | 0x20 | 0x80;

/// The frames that `unit` becomes by [`crate::Offload::TcpSegmentation`]; `None` where it contradicts its own headers.
pub(super) fn cut(
    unit: &[u8],
    start: usize,
    header_len: usize,
    mss: usize,
) -> Option<Vec<Vec<u8>>> {
    let (headers, payload) = unit.split_at_checked(header_len)?;
    let ip = match headers.get(12..14)? {
        [0x81, 0x00] => ETHERNET + TAG_LEN,
        _ => ETHERNET,
    };
    let network = headers.get(ip..start)?;
    let tcp = headers.get(start..)?;
    let whole_tcp = u16::try_from(unit.len() - start).ok()?;
    let told = |at: usize| Some(usize::from(word(network, at)?));
    let is_ipv4 = match *headers.get(ip - 2..ip)? {
        [0x08, 0x00] => {
            let len = usize::from(network.first()? & 0x0f) * 4;
            if network.len() < IPV4 || len != network.len() || told(2)? != unit.len() - ip {
                return None;
            }
            true
        }
        [0x86, 0xdd] => {
            if network.len() < IPV6 || told(4)? != unit.len() - ip - IPV6 {
                return None;
            }
            false
        }
        _ => return None,
    };
    let tcp_len = usize::from(tcp.get(12)? >> 4) * 4;
    if tcp_len < TCP || tcp_len != tcp.len() || tcp[FLAGS] & NEVER != 0 || mss == 0 {
        return None;
    }
    let count = payload.len().div_ceil(mss).max(1);
    let segment = |n: usize| {
        let piece = payload.get(n * mss..)?;
        let piece = piece.get(..mss).unwrap_or(piece);
        let mut frame = headers.to_vec();
        frame.extend_from_slice(piece);
        let len = frame.len();
        if is_ipv4 {
            put(&mut frame, ip + 2, (len - ip) as u16);
            put(&mut frame, ip + 4, word(network, 4)?.wrapping_add(n as u16));
            put(&mut frame, ip + 10, 0);
            let sum = !(checksum::sum(&frame[ip..start], 0) as u16);
            put(&mut frame, ip + 10, sum);
        } else {
            put(&mut frame, ip + 4, (len - ip - IPV6) as u16);
        }
        let (high, low) = (word(tcp, SEQUENCE)?, word(tcp, SEQUENCE + 2)?);
        let sequence = (u32::from(high) << 16 | u32::from(low)).wrapping_add((n * mss) as u32);
        put(&mut frame, start + SEQUENCE, (sequence >> 16) as u16);
        put(&mut frame, start + SEQUENCE + 2, sequence as u16);
        if n + 1 < count {
            frame[start + FLAGS] &= !(FIN | PSH);
        }
        // The pseudo-header sum is the sender's, but for the length.
        let pseudo = u32::from(word(tcp, CHECKSUM)?) + u32::from(!whole_tcp) + (len - start) as u32;
        put(
            &mut frame,
            start + CHECKSUM,
            checksum::sum(&[], pseudo) as u16,
        );
        checksum::complete(&mut frame, start, CHECKSUM);
        Some(frame)
    };
    (0..count).map(segment).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}
