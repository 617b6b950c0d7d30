//! Ethernet frames as a loader with a network stack of its own makes and reads them.

use alloc::vec::Vec;

/// Who speaks with whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub mac: [u8; 6],
    pub address: [u8; 4],
    pub port: u16,
    pub server: [u8; 4],
    pub server_mac: [u8; 6],
}

const BROADCAST: [u8; 6] = [0xff; 6];
const IPV4: [u8; 2] = [8, 0];
const ARP: [u8; 2] = [8, 6];
/// IPv4 over Ethernet, a request.
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const ARP_REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];
/// Ethernet takes no shorter frames.
const SHORTEST: usize = 60;
const UDP: u8 = 17;

fn sum(words: u32, bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(words, |sum, pair| {
        let (high, low) = (pair.first(), pair.get(1));
        let word = [high, low].map(|byte| byte.copied().unwrap_or(0));
        sum + u32::from(u16::from_be_bytes(word))
    })
}

fn checksum(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Who has the server's address?
pub(crate) fn arp_request(path: &Path) -> Vec<u8> {
    let parts: [&[u8]; 8] = [
        &BROADCAST,
        &path.mac,
        &ARP,
        &ARP_REQUEST,
        &path.mac,
        &path.address,
        &[0; 6],
        &path.server,
    ];
    let mut frame = parts.concat();
    frame.resize(SHORTEST, 0);
    frame
}

/// The server's answer.
pub(crate) fn arp_reply(frame: &[u8], path: &Path) -> Option<[u8; 6]> {
    let arp = behind(frame, ARP)?.strip_prefix(&ARP_REPLY)?;
    let (mac, rest) = arp.split_first_chunk::<6>()?;
    rest.starts_with(&path.server).then_some(*mac)
}

fn behind(frame: &[u8], kind: [u8; 2]) -> Option<&[u8]> {
    frame.get(12..)?.strip_prefix(&kind)
}

/// A datagram to a port of the server.
pub(crate) fn datagram(path: &Path, port: u16, data: &[u8]) -> Vec<u8> {
    let udp_len = (8 + data.len()) as u16;
    let ip_len = (20 + udp_len).to_be_bytes();
    let mut ip = [&[0x45, 0][..], &ip_len, &[0, 1, 0, 0, 64, UDP, 0, 0]].concat();
    ip.extend(path.address);
    ip.extend(path.server);
    let ip_sum = checksum(sum(0, &ip)).to_be_bytes();
    let mut udp = Vec::new();
    for word in [path.port, port, udp_len, 0] {
        udp.extend(word.to_be_bytes());
    }
    udp.extend_from_slice(data);
    let pseudo = sum(sum(0, &path.address), &path.server) + u32::from(UDP) + u32::from(udp_len);
    let udp_sum = match checksum(sum(pseudo, &udp)) {
        0 => 0xffff,
        sum => sum,
    };
    for (bytes, at, value) in [(&mut ip, 10, ip_sum), (&mut udp, 6, udp_sum.to_be_bytes())] {
        if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = value;
        }
    }
    let mut frame = [&path.server_mac[..], &path.mac, &IPV4, &ip, &udp].concat();
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

/// A datagram from the server to us: its port there and its data.
pub(crate) fn from_server<'a>(frame: &'a [u8], path: &Path) -> Option<(u16, &'a [u8])> {
    let ip = behind(frame, IPV4)?;
    let header = usize::from(*ip.first()? & 0xf) * 4;
    let addresses = [path.server, path.address].concat();
    if *ip.get(9)? != UDP || ip.get(12..20)? != addresses {
        return None;
    }
    let (head, _) = ip.get(header..)?.split_first_chunk::<8>()?;
    let &[
        source_high,
        source_low,
        to_high,
        to_low,
        len_high,
        len_low,
        ..,
    ] = head;
    if u16::from_be_bytes([to_high, to_low]) != path.port {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let data = ip.get(header + 8..header + len)?;
    Some((u16::from_be_bytes([source_high, source_low]), data))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path = Path {
        mac: [2, 0, 0, 0, 0, 1],
        address: [10, 0, 0, 2],
        port: 2000,
        server: [10, 0, 0, 1],
        server_mac: [2, 0, 0, 0, 0, 9],
    };

    /// The other end's view.
    const BACK: Path = Path {
        mac: PATH.server_mac,
        address: PATH.server,
        port: 69,
        server: PATH.address,
        server_mac: PATH.mac,
    };

    #[test]
    fn the_other_end_reads_what_was_sent() {
        for data in [&b""[..], b"a", b"some bytes more"] {
            let frame = datagram(&PATH, 69, data);
            assert_eq!(from_server(&frame, &BACK), Some((2000, data)));
            assert_eq!(from_server(&frame, &PATH), None);
            assert_eq!(checksum(sum(0, &frame[14..34])), 0);
            let len = 8 + data.len();
            let pseudo = sum(0, &frame[26..34]) + 17 + len as u32;
            assert_eq!(checksum(sum(pseudo, &frame[34..34 + len])), 0);
        }
    }

    #[test]
    fn truncated_frames_are_nothing() {
        let frame = datagram(&PATH, 69, &[7; 40]);
        for len in 0..frame.len() {
            assert_eq!(from_server(&frame[..len], &BACK), None, "{len}");
        }
    }

    #[test]
    fn only_the_server_answers_for_itself() {
        let mut frame = arp_request(&PATH);
        assert_eq!(arp_reply(&frame, &BACK), None);
        frame[21] = 2;
        assert_eq!(arp_reply(&frame, &BACK), Some(PATH.mac));
        assert_eq!(arp_reply(&frame, &PATH), None);
    }
}
