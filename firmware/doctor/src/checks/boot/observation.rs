//! What a machine's own frames show of its boot.

use crate::vlan;
use alloc::vec::Vec;
use wireboot_observe::{IpPacket, LinkType, Mac, Observer};
use wireboot_platform::frames::Frame;
use wireboot_report::{Network, Phase, PhaseKind};
use wireboot_wire::{dhcp, dhcpv6};

/// Bytes that are kept behind the Ethernet header of most frames: 256 with it.
const KEPT: usize = 242;

/// Silence shorter than this, in seconds, is none.
const QUIET_S: f64 = 0.05;

/// DNS (RFC 1035, section 4.2.1).
const DNS: u16 = 53;

/// The ports of DHCP's client and server, of PXE's boot servers, of DHCPv6's client and server, and of DNS.
const WHOLE: [u16; 6] = [
    dhcp::CLIENT_PORT,
    dhcp::SERVER_PORT,
    dhcp::PXE_PORT,
    dhcpv6::CLIENT_PORT,
    dhcpv6::SERVER_PORT,
    DNS,
];

/// With what HTTP/1's requests and responses begin.
const HEADS: [&[u8]; 3] = [b"GET ", b"HEAD ", b"HTTP/1."];

/// How much of a frame is kept: the whole where a boot begins and where HTTP's heads are, the headers of the rest.
pub(super) fn keep(header: &[u8; 14], body: &[u8]) -> usize {
    let Some(ip) = IpPacket::parse(vlan::packet(header, body)) else {
        return KEPT;
    };
    let is_whole = if let Some(udp) = ip.udp() {
        WHOLE.contains(&udp.source_port) || WHOLE.contains(&udp.destination_port)
    } else {
        ip.tcp().is_some_and(|tcp| {
            let payload = tcp.segment.payload();
            HEADS.iter().any(|head| payload.starts_with(head))
        })
    };
    if is_whole { body.len() } else { KEPT }
}

/// Seconds that so many ticks take of a counter with `hertz` of them in a second.
pub(super) fn seconds(ticks: u64, hertz: u64) -> f64 {
    ticks as f64 / hertz.max(1) as f64
}

/// How a boot went by its frames: their number, its phases, and its transfers.
pub(super) struct BootObservation {
    pub packets: u64,
    pub timeline: Vec<Phase>,
    pub network: Network,
}

impl BootObservation {
    /// By the frames of a card whose boot began at `began` ticks, which is second 0, and took so many seconds.
    pub(super) fn of(
        frames: impl Iterator<Item = Frame>,
        mac: [u8; 6],
        began: u64,
        took_s: f64,
        hertz: u64,
    ) -> Self {
        let mut observer = Observer::new(Mac(mac), 0.0);
        let mut packets = 0;
        for frame in frames {
            let at_s = seconds(frame.ticks.saturating_sub(began), hertz);
            observer.frame(at_s, LinkType::Ethernet, &frame.bytes);
            packets += 1;
        }
        let report = observer.report();
        let mut timeline = report.timeline;
        let until = timeline.iter().map(|phase| phase.end_s).fold(0.0, f64::max);
        if until + QUIET_S < took_s {
            timeline.push(Phase {
                kind: PhaseKind::Quiet,
                start_s: until,
                end_s: took_s,
                ..Phase::default()
            });
        }
        Self {
            packets,
            timeline,
            network: report.network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// An IPv4 packet with UDP, of so many bytes.
    fn udp(ports: (u16, u16), length: u16) -> Vec<u8> {
        let mut ip = vec![0x45, 0];
        ip.extend(length.to_be_bytes());
        ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1]);
        for field in [ports.0, ports.1, length - 20, 0] {
            ip.extend(field.to_be_bytes());
        }
        ip.resize(usize::from(length), 0);
        ip
    }

    #[test]
    fn what_a_boot_begins_with_is_kept_whole() {
        let kept = |ports| keep(&[0; 14], &udp(ports, 600));
        for ports in [(68, 67), (67, 68), (4011, 68), (546, 547), (1024, 53)] {
            assert_eq!(kept(ports), 600, "{ports:?}");
        }
        assert_eq!(kept((1069, 2070)), KEPT);
        assert_eq!(keep(&[0; 14], &[1, 2, 3]), KEPT);
        let mut in_a_vlan = [0; 14];
        in_a_vlan[12] = 0x81;
        let tagged = [&[0_u8, 5, 8, 0][..], &udp((68, 67), 600)].concat();
        assert_eq!(keep(&in_a_vlan, &tagged), 604);
        let tcp = |payload: &[u8]| {
            let mut ip = udp((49152, 80), 600);
            ip[9] = 6;
            // 20 bytes of header.
            ip[20 + 12] = 5 << 4;
            ip[40..][..payload.len()].copy_from_slice(payload);
            keep(&[0; 14], &ip)
        };
        for head in [&b"HTTP/1.1 200 OK\r\n"[..], b"GET /linux", b"HEAD /linux"] {
            assert_eq!(tcp(head), 600, "{head:?}");
        }
        assert_eq!(tcp(b"GETTING"), KEPT);
    }

    #[test]
    fn a_file_is_seen_from_its_request_on_and_silence_to_the_end() {
        const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
        let tftp = |sent: bool, text: &[u8]| {
            let ports = if sent { (1500, 69) } else { (2000, 1500) };
            let length = 28 + text.len() as u16;
            let mut ip = udp(ports, length);
            if !sent {
                // From the server.
                ip[12..20].rotate_left(4);
            }
            ip[28..].copy_from_slice(text);
            let ethernet = [[9; 6], MAC];
            let [to, from] = if sent { ethernet } else { [MAC, [9; 6]] };
            [to.as_slice(), &from, &[8, 0], &ip].concat()
        };
        let frame = |ticks, sent, text: &[u8]| {
            let bytes = tftp(sent, text);
            Frame {
                ticks,
                interface: 0,
                sent,
                length: bytes.len(),
                bytes,
            }
        };
        let frames = [
            frame(3000, true, b"\0\x01boot.efi\0octet\0"),
            frame(3500, false, b"\0\x05\0\x01not here\0"),
        ];
        // A thousand ticks a second; the run began at 1000 and took 10 seconds.
        let observed = BootObservation::of(frames.into_iter(), MAC, 1000, 10.0, 1000);
        assert_eq!(observed.packets, 2);
        let file = observed.network.transfers.first().unwrap();
        assert_eq!((file.file.as_str(), file.start_s), ("boot.efi", 2.0));
        let told: Vec<_> = observed
            .timeline
            .iter()
            .map(|one| (one.kind, one.start_s, one.end_s))
            .collect();
        assert_eq!(
            told,
            [
                (PhaseKind::Quiet, 0.0, 2.0),
                (PhaseKind::Refused, 2.0, 2.5),
                (PhaseKind::Quiet, 2.5, 10.0),
            ]
        );
    }
}
