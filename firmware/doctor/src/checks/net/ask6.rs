//! What is asked of DHCPv6's servers, from the link-local address that firmware makes of the card's own, and what keeps their answers coming.

use super::ask::{Client, ICMPV6};
use crate::ladder::frame::{FrameEndpoint, checksum, emit};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use wireboot_observe::{Content, Frame, IpPacket, LinkType};
use wireboot_wire::dhcpv6::{
    ALL_SERVERS, CLIENT_PORT, IaNa, Message, MessageType, Options, SERVER_PORT, Writer, duid,
    option,
};

/// The first wait for an answer, which is doubled each time, in microseconds (RFC 8415, section 7.6: SOL_TIMEOUT).
const SOL_TIMEOUT: u64 = 1_000_000;
/// Neighbours that are answered at once, at most: more than a link has routers and servers.
const NEIGHBOURS: usize = 8;
/// Of PXE's vendor class: Intel's enterprise number.
const INTEL: u32 = 343;
/// The transaction's number has so many bits.
const XID: u32 = 0x00ff_ffff;

/// Messages of neighbour discovery (RFC 4861, sections 4.3 and 4.4).
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// It answers a solicitation, and its Ethernet address holds.
const SOLICITED_OVERRIDE: u8 = 0x60;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

/// Asks. All times are microseconds from when the link was up.
pub(super) struct Asker6 {
    mac: [u8; 6],
    address: Ipv6Addr,
    client_id: Vec<u8>,
    class: &'static str,
    architecture: u16,
    xid: u32,
    next: u64,
    wait: u64,
    is_answered: bool,
    /// Frames that neighbours are to be answered with.
    answers: Vec<Vec<u8>>,
}

impl Asker6 {
    pub(super) fn new(client: &Client) -> Self {
        let client_id = client.duid.clone().unwrap_or_else(|| match client.uuid {
            Some(uuid) => duid::from_uuid(uuid).to_vec(),
            None => duid::from_mac(client.mac).to_vec(),
        });
        let (class, architecture) = client.class();
        Self {
            mac: client.mac,
            address: link_local(client.mac),
            client_id,
            class,
            architecture,
            xid: client.xid & XID,
            next: 0,
            wait: SOL_TIMEOUT,
            is_answered: false,
            answers: Vec::new(),
        }
    }

    /// The next frame that is to be sent by now.
    pub(super) fn due(&mut self, now: u64) -> Option<Vec<u8>> {
        if let Some(answer) = self.answers.pop() {
            return Some(answer);
        }
        if self.is_answered || now < self.next {
            return None;
        }
        self.next = now + self.wait;
        self.wait *= 2;
        let from = FrameEndpoint {
            mac: self.mac,
            address: IpAddr::V6(self.address),
            port: CLIENT_PORT,
        };
        let to = FrameEndpoint {
            mac: multicast(ALL_SERVERS),
            address: IpAddr::V6(ALL_SERVERS),
            port: SERVER_PORT,
        };
        Some(emit(from, to, &self.solicit(now)))
    }

    /// As EDK II's firmware asks; nothing is taken of what is offered.
    fn solicit(&self, now: u64) -> Vec<u8> {
        let [_, _, iaid @ ..] = self.mac;
        let association = IaNa {
            iaid: u32::from_be_bytes(iaid),
            t1: 0,
            t2: 0,
            options: Options::default(),
        };
        let elapsed = u16::try_from(now / 10_000).unwrap_or(u16::MAX);
        let mut message = Writer::new(MessageType::Solicit, self.xid);
        message
            .option(option::CLIENT_ID, &self.client_id)
            .option(option::ELAPSED_TIME, elapsed.to_be_bytes())
            .ia_na(&association, |_| {})
            .words(
                option::OPTION_REQUEST,
                &[
                    option::BOOT_FILE_URL,
                    option::BOOT_FILE_PARAMETERS,
                    option::DNS_SERVERS,
                ],
            )
            .words(option::ARCHITECTURE, &[self.architecture])
            .option(option::NETWORK_INTERFACE, [1, 3, 1])
            .vendor_class(INTEL, &[self.class]);
        message.finish()
    }

    /// Takes in a frame that came.
    pub(super) fn frame(&mut self, frame: &[u8]) {
        let parsed = Frame::parse(LinkType::Ethernet, frame);
        let Some(Content::Ip(ip)) = parsed.map(|frame| frame.content) else {
            return;
        };
        if ip.protocol == ICMPV6 {
            let answer = self.solicited(&ip, frame);
            if self.answers.len() < NEIGHBOURS {
                self.answers.extend(answer);
            }
            return;
        }
        let Some(udp) = ip.udp() else { return };
        if udp.destination_port == CLIENT_PORT
            && ip.destination == IpAddr::V6(self.address)
            && let Ok(message) = Message::parse(udp.payload)
        {
            self.is_answered |= message.transaction_id == self.xid
                && matches!(message.kind, MessageType::Advertise | MessageType::Reply);
        }
    }

    /// The answer to who asks for our Ethernet address. Whoever looks whether anybody has the address, and sends from none, may have it.
    fn solicited(&self, ip: &IpPacket<'_>, frame: &[u8]) -> Option<Vec<u8>> {
        let (head, rest) = ip.payload.split_first_chunk::<8>()?;
        let target = rest.first_chunk::<16>()?;
        let IpAddr::V6(asker) = ip.source else {
            return None;
        };
        let mac = frame.get(6..)?.first_chunk::<6>()?;
        let wanted = head[0] == NEIGHBOR_SOLICITATION && *target == self.address.octets();
        (wanted && !asker.is_unspecified()).then(|| self.advertisement(asker, *mac))
    }

    fn advertisement(&self, to: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
        const LENGTH: u8 = 32;
        let [own, to] = [self.address, to].map(|address| address.octets());
        let body = [
            [SOLICITED_OVERRIDE, 0, 0, 0].as_slice(),
            &own,
            &[TARGET_LINK_LAYER_ADDRESS, 1],
            &self.mac,
        ]
        .concat();
        let pseudo = [0, 0, 0, LENGTH, 0, 0, 0, ICMPV6];
        let head = [NEIGHBOR_ADVERTISEMENT, 0];
        let sum = checksum([&own, &to, &pseudo, &head, &body]);
        let ip = [0x86, 0xdd, 0x60, 0, 0, 0, 0, LENGTH, ICMPV6, 255];
        [
            mac.as_slice(),
            &self.mac,
            &ip,
            &own,
            &to,
            &head,
            &sum.to_be_bytes(),
            &body,
        ]
        .concat()
    }
}

/// The link-local address made of an Ethernet address (RFC 4291, appendix A).
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    Ipv6Addr::from([
        0xfe,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        a ^ 2,
        b,
        c,
        0xff,
        0xfe,
        d,
        e,
        f,
    ])
}

/// The Ethernet address of a group (RFC 2464, section 7).
fn multicast(group: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_observe::{Mac, Observer};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const SERVER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    fn asker() -> Asker6 {
        Asker6::new(&Client {
            mac: MAC,
            uuid: Some([9; 16]),
            http: false,
            xid: 0x7700_0077,
            duid: None,
        })
    }

    fn end(mac: [u8; 6], address: Ipv6Addr, port: u16) -> FrameEndpoint {
        FrameEndpoint {
            mac,
            address: address.into(),
            port,
        }
    }

    fn answer(xid: u32, to: Ipv6Addr) -> Vec<u8> {
        let mut message = Writer::new(MessageType::Advertise, xid);
        message.option(option::PREFERENCE, [7]);
        let from = end([2, 0, 0, 0, 0, 1], SERVER, SERVER_PORT);
        emit(from, end(MAC, to, CLIENT_PORT), &message.finish())
    }

    #[test]
    fn it_solicits_less_and_less_often_until_a_server_answers() {
        let mut asker = asker();
        let at: Vec<u64> = (0..20_000_000)
            .step_by(500_000)
            .filter(|now| asker.due(*now).is_some())
            .collect();
        assert_eq!(at, [0, 1_000_000, 3_000_000, 7_000_000, 15_000_000]);
        asker.frame(&answer(0x78, asker.address));
        asker.frame(&answer(0x77, SERVER));
        assert!(!asker.is_answered);
        asker.frame(&answer(0x77, asker.address));
        assert_eq!(asker.due(u64::MAX / 2), None);
    }

    #[test]
    fn an_observer_sees_who_answers_and_how_late() {
        let mut asker = asker();
        let mut observer = Observer::new(Mac(MAC), 0.0);
        let solicit = asker.due(0).unwrap();
        assert_eq!(solicit[..6], [0x33, 0x33, 0, 1, 0, 2]);
        observer.frame(0.0, LinkType::Ethernet, &solicit);
        observer.frame(0.25, LinkType::Ethernet, &answer(0x77, asker.address));
        let network = observer.report().network;
        let [asked] = network.dhcpv6.as_slice() else {
            panic!("{network:?}")
        };
        assert_eq!((asked.kind.as_str(), asked.xid), ("Solicit", 0x77));
        let told = &asked.answers[0];
        assert_eq!((told.preference, told.delay_s), (7, Some(0.25)));
        assert_eq!(told.server, "fe80::1");
    }

    #[test]
    fn the_firmwares_own_identifier_is_taken_where_there_is_one() {
        let id = |duid: Option<Vec<u8>>, uuid| {
            let asker = Asker6::new(&Client {
                mac: MAC,
                uuid,
                http: true,
                xid: 1,
                duid,
            });
            let bytes = asker.solicit(120_000);
            let message = Message::parse(&bytes).unwrap();
            assert_eq!(message.options.elapsed_time(), Some(12));
            assert!(message.options.architectures().eq([16]));
            assert!(!message.options.rapid_commit());
            message.options.client_id().unwrap().to_vec()
        };
        assert_eq!(id(Some([0, 4, 1, 2].into()), Some([9; 16])), [0, 4, 1, 2]);
        assert_eq!(id(None, Some([9; 16])), duid::from_uuid([9; 16]));
        assert_eq!(id(None, None), duid::from_mac(MAC));
    }

    #[test]
    fn neighbours_are_told_its_ethernet_address() {
        let solicitation = |source: Ipv6Addr, target: Ipv6Addr| {
            let ip = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, ICMPV6, 255];
            let head = [NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
            let group = [0xff; 16];
            let parts: [&[u8]; 7] = [
                &[0x33; 6],
                &[5; 6],
                &ip,
                &source.octets(),
                &group,
                &head,
                &target.octets(),
            ];
            parts.concat()
        };
        let mut asker = asker();
        asker.due(0);
        asker.frame(&solicitation(SERVER, SERVER));
        asker.frame(&solicitation(Ipv6Addr::UNSPECIFIED, asker.address));
        assert_eq!(asker.due(1), None);
        for _ in 0..100 {
            asker.frame(&solicitation(SERVER, asker.address));
        }
        assert_eq!(asker.answers.len(), NEIGHBOURS);
        let frame = asker.due(1).unwrap();
        assert_eq!((&frame[..6], &frame[6..12]), (&[5; 6][..], &MAC[..]));
        assert_eq!(frame[38..54], SERVER.octets());
        assert_eq!(
            (frame[54], &frame[80..]),
            (NEIGHBOR_ADVERTISEMENT, &MAC[..])
        );
        assert_eq!(frame[62..78], asker.address.octets());
        assert_eq!(asker.address.to_string(), "fe80::ff:fe00:7");
        // Its checksum is right: the sum over all is none.
        let pseudo = [0, 0, 0, 32, 0, 0, 0, ICMPV6];
        assert_eq!(checksum([&frame[22..54], &pseudo, &frame[54..]]), 0);
    }
}
