//! What is asked of a link without an address of one's own, and what the answers tell.

use crate::ladder::frame::{FrameEndpoint, checksum, emit};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use wireboot_observe::{Content, Frame, IpPacket, LinkType};
use wireboot_report::RoundTrip;
use wireboot_wire::dhcp::{self, Message, MessageType, Operation, option};

/// So long after a DHCPDISCOVER without an offer, and a router solicitation without an answer, comes the next, in microseconds. EDK II's first
/// timer, and RTR_SOLICITATION_INTERVAL of RFC 4861, section 10.
const AGAIN: u64 = 4_000_000;
/// As many solicitations are sent (MAX_RTR_SOLICITATIONS).
const SOLICITATIONS: u32 = 3;
/// How often each station is asked by ARP, and how long an answer is waited for.
const PROBES: u32 = 10;
const PROBED: u64 = 500_000;
/// As many stations are asked.
const STATIONS: usize = 8;

const BROADCAST: [u8; 6] = [0xff; 6];
/// Frames shorter than this are padded (IEEE 802.3, without check sequence).
const SHORTEST: usize = 60;

/// As whom to ask.
pub(super) struct Client {
    pub mac: [u8; 6],
    /// As SMBIOS has it.
    pub uuid: Option<[u8; 16]>,
    /// Firmware that boots by HTTP, not PXE.
    pub http: bool,
    /// The transaction's number.
    pub xid: u32,
    /// By which the firmware asks DHCPv6; none where it has not yet.
    pub duid: Option<Vec<u8>>,
}

impl Client {
    /// What it says that it is, and its architecture (RFC 4578).
    pub(super) fn class(&self) -> (&'static str, u16) {
        if self.http {
            ("HTTPClient:Arch:00016:UNDI:003001", 16)
        } else {
            ("PXEClient:Arch:00007:UNDI:003001", 7)
        }
    }

    /// As EDK II's firmware asks.
    fn discover(&self) -> Message {
        let mut message = Message::request(MessageType::Discover, self.xid, self.mac);
        // Answers are to come to all: nobody has the address that is offered.
        message.flags = 0x8000;
        let (class, architecture) = self.class();
        let options = &mut message.options;
        options.set(
            option::PARAMETERS,
            [
                option::SUBNET_MASK,
                option::ROUTERS,
                option::DNS_SERVERS,
                option::VENDOR,
                option::SERVER_ID,
                option::VENDOR_CLASS,
                option::TFTP_SERVER,
                option::BOOT_FILE,
            ],
        );
        options.set(option::MAX_SIZE, 1472u16.to_be_bytes());
        options.set(option::VENDOR_CLASS, class);
        options.set(option::ARCHITECTURE, architecture.to_be_bytes());
        options.set(option::NETWORK_INTERFACE, [1, 3, 1]);
        if let Some(uuid) = self.uuid {
            let id = [[0].as_slice(), &uuid].concat();
            options.set(option::MACHINE_ID, id);
        }
        message
    }
}

/// A station on the link that is asked by ARP.
struct Station {
    address: Ipv4Addr,
    what: String,
    asked: u32,
    /// When it was asked, while there is no answer.
    open: Option<u64>,
    took: Vec<u64>,
}

/// Asks. All times are microseconds from when the link was up.
pub(super) struct Asker {
    mac: [u8; 6],
    discover: Message,
    next_discover: u64,
    /// An address was offered.
    is_offered: bool,
    next_solicitation: u64,
    solicitations: u32,
    stations: Vec<Station>,
}

impl Asker {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            mac: client.mac,
            discover: client.discover(),
            next_discover: 0,
            is_offered: false,
            next_solicitation: 0,
            solicitations: 0,
            stations: Vec::new(),
        }
    }

    /// The next frame that is to be sent by now.
    pub(super) fn due(&mut self, now: u64) -> Option<Vec<u8>> {
        if !self.is_offered && now >= self.next_discover {
            self.next_discover = now + AGAIN;
            self.discover.secs = u16::try_from(now / 1_000_000).unwrap_or(u16::MAX);
            let end = |mac, address: Ipv4Addr, port| FrameEndpoint {
                mac,
                address: IpAddr::V4(address),
                port,
            };
            return Some(emit(
                end(self.mac, Ipv4Addr::UNSPECIFIED, dhcp::CLIENT_PORT),
                end(BROADCAST, Ipv4Addr::BROADCAST, dhcp::SERVER_PORT),
                &self.discover.emit(),
            ));
        }
        if self.solicitations < SOLICITATIONS && now >= self.next_solicitation {
            self.solicitations += 1;
            self.next_solicitation = now + AGAIN;
            return Some(router_solicitation(self.mac));
        }
        let mac = self.mac;
        let mut stations = self.stations.iter_mut();
        stations.find_map(|station| {
            let waits = station.open.is_some_and(|asked| now < asked + PROBED);
            if waits || station.asked == PROBES {
                return None;
            }
            station.asked += 1;
            station.open = Some(now);
            Some(arp_probe(mac, station.address))
        })
    }

    /// Takes in a frame that came.
    pub(super) fn frame(&mut self, now: u64, frame: &[u8]) {
        if let Some(sender) = arp_answer(frame) {
            let mut stations = self.stations.iter_mut();
            if let Some(station) = stations.find(|one| one.address == sender)
                && let Some(asked) = station.open.take()
            {
                station.took.push(now - asked);
            }
            return;
        }
        let content = Frame::parse(LinkType::Ethernet, frame).map(|frame| frame.content);
        let Some(Content::Ip(ip)) = content else {
            return;
        };
        if is_router_advertisement(&ip) {
            self.solicitations = SOLICITATIONS;
        }
        let Some(udp) = ip.udp() else { return };
        if udp.destination_port != dhcp::CLIENT_PORT {
            return;
        }
        if let Ok(message) = Message::parse(udp.payload)
            && message.operation == Operation::Reply
            && message.xid == self.discover.xid
            && message.mac() == Some(self.mac)
        {
            self.offer(&message);
        }
    }

    /// Learns whom an offer names.
    fn offer(&mut self, offer: &Message) {
        self.is_offered |= !offer.yiaddr.is_unspecified();
        let options = &offer.options;
        let server = options.address(option::SERVER_ID);
        let boots = offer.boot_file().is_some_and(|file| !file.is_empty());
        let next = Some(offer.siaddr).filter(|next| !next.is_unspecified());
        let boot_server = next.or(server).filter(|_| boots);
        let routers = options.addresses(option::ROUTERS).into_iter();
        let names = options.addresses(option::DNS_SERVERS).into_iter();
        let on_link = |address: &Ipv4Addr| {
            let prefix = options.prefix().unwrap_or(32);
            let rest = 32_u32.saturating_sub(prefix.into());
            let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
            (address.to_bits() ^ offer.yiaddr.to_bits()) & mask == 0
        };
        let all = (routers.map(|one| ("router", one)))
            .chain(boot_server.map(|one| ("boot server", one)))
            .chain(server.map(|one| ("DHCP server", one)))
            .chain(names.map(|one| ("name server", one)));
        for (what, address) in all.filter(|(_, address)| on_link(address)) {
            if let Some(station) = self.stations.iter_mut().find(|one| one.address == address) {
                if !station.what.contains(what) {
                    station.what.push_str(", ");
                    station.what.push_str(what);
                }
            } else if self.stations.len() < STATIONS {
                self.stations.push(Station {
                    address,
                    what: what.to_string(),
                    asked: 0,
                    open: None,
                    took: Vec::new(),
                });
            }
        }
    }

    /// How far the stations are that were asked.
    pub(super) fn round_trips(self) -> Vec<RoundTrip> {
        let asked = self.stations.into_iter().filter(|one| one.asked > 0);
        asked
            .map(|station| RoundTrip {
                what: station.what,
                address: station.address.to_string(),
                asked: station.asked,
                took_us: station.took,
            })
            .collect()
    }
}

/// ARP over Ethernet for IPv4 (RFC 826), up to the operation.
const ARP: [u8; 8] = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4];

/// Who has `address`? From nobody (RFC 5227, section 1.1), so that no station learns anything of us.
fn arp_probe(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(SHORTEST);
    frame.extend(BROADCAST);
    frame.extend(mac);
    frame.extend(ARP);
    frame.extend([0, 1]);
    frame.extend(mac);
    frame.extend([0; 4]);
    frame.extend([0; 6]);
    frame.extend(address.octets());
    frame.resize(SHORTEST, 0);
    frame
}

/// Whose address an answer is.
fn arp_answer(frame: &[u8]) -> Option<Ipv4Addr> {
    let (operation, rest) = frame
        .get(12..)?
        .strip_prefix(&ARP)?
        .split_first_chunk::<2>()?;
    let address = rest.get(6..)?.first_chunk::<4>()?;
    (operation == &[0, 2]).then(|| Ipv4Addr::from(*address))
}

/// ICMPv6 and its messages of neighbour discovery (RFC 4861, sections 4.1 and 4.2).
pub(super) const ICMPV6: u8 = 58;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;

/// Asks all routers, from nobody.
fn router_solicitation(mac: [u8; 6]) -> Vec<u8> {
    const ROUTERS: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let mut message = [ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    let pseudo = [0, 0, 0, 8, 0, 0, 0, ICMPV6];
    let [high, low] = checksum([&[0; 16], &ROUTERS, &pseudo, &message]).to_be_bytes();
    let [_, _, place @ .., _, _, _, _] = &mut message;
    *place = [high, low];
    let mut frame = Vec::with_capacity(SHORTEST + 2);
    frame.extend([0x33, 0x33, 0, 0, 0, 2]);
    frame.extend(mac);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, ICMPV6, 255]);
    frame.extend([0; 16]);
    frame.extend(ROUTERS);
    frame.extend(message);
    frame
}

fn is_router_advertisement(ip: &IpPacket<'_>) -> bool {
    ip.protocol == ICMPV6 && ip.payload.first() == Some(&ROUTER_ADVERTISEMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_observe::{Mac, Observer};
    use wireboot_report::network::VendorOptions;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn asker() -> Asker {
        Asker::new(&Client {
            mac: MAC,
            uuid: Some([9; 16]),
            http: false,
            xid: 77,
            duid: None,
        })
    }

    /// Everything that is to be sent by `now`.
    fn due(asker: &mut Asker, now: u64) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| asker.due(now)).collect()
    }

    fn sent(frame: &[u8]) -> Message {
        let Content::Ip(ip) = Frame::parse(LinkType::Ethernet, frame).unwrap().content else {
            panic!("{frame:?}")
        };
        Message::parse(ip.udp().unwrap().payload).unwrap()
    }

    /// An offer of an address, as a frame.
    fn offer(change: impl Fn(&mut Message)) -> Vec<u8> {
        let request = Message::request(MessageType::Discover, 77, MAC);
        let mut message = Message::reply(MessageType::Offer, &request);
        message.yiaddr = Ipv4Addr::new(10, 0, 0, 50);
        message.file = b"shimx64.efi".to_vec();
        let options = &mut message.options;
        options.set(option::SERVER_ID, SERVER.octets());
        options.set(option::SUBNET_MASK, [255, 255, 255, 0]);
        options.set_addresses(option::ROUTERS, &[Ipv4Addr::new(10, 0, 0, 254)]);
        let names = [SERVER, Ipv4Addr::new(192, 0, 2, 53)];
        options.set_addresses(option::DNS_SERVERS, &names);
        change(&mut message);
        let end = |mac, address: Ipv4Addr, port| FrameEndpoint {
            mac,
            address: address.into(),
            port,
        };
        let (from, to) = (
            end([2, 0, 0, 0, 0, 1], SERVER, 67),
            end(BROADCAST, Ipv4Addr::BROADCAST, 68),
        );
        emit(from, to, &message.emit())
    }

    fn arp_reply(sender: Ipv4Addr) -> Vec<u8> {
        let head = [[7; 12].as_slice(), &ARP, &[0, 2], &[5; 6]].concat();
        [head.as_slice(), &sender.octets(), &[0; 10]].concat()
    }

    #[test]
    fn it_asks_as_the_firmware_until_an_address_is_offered() {
        let mut asker = asker();
        let first = due(&mut asker, 0);
        let message = sent(&first[0]);
        assert_eq!((message.secs, message.mac()), (0, Some(MAC)));
        let class = message.options.text(option::VENDOR_CLASS).unwrap();
        assert!(class.starts_with("PXEClient:Arch:00007"), "{class}");
        assert_eq!(message.options.machine_id(), Some([9; 16]));
        assert_eq!(due(&mut asker, 3_999_999), Vec::<Vec<u8>>::new());
        assert_eq!(sent(&due(&mut asker, 4_000_000)[0]).secs, 4);
        // A proxy's offer has no address, another machine's is not ours.
        asker.frame(5, &offer(|one| one.yiaddr = Ipv4Addr::UNSPECIFIED));
        asker.frame(5, &offer(|one| one.xid = 78));
        assert_eq!(sent(&due(&mut asker, 8_000_000)[0]).secs, 8);
        asker.frame(8_100_000, &offer(|_| {}));
        let behind = due(&mut asker, 12_000_000);
        assert!(behind.iter().all(|frame| frame[12..14] == [8, 6]));
    }

    #[test]
    fn an_observer_sees_a_conversation_in_it() {
        let mut asker = asker();
        let mut observer = Observer::new(Mac(MAC), 0.0);
        for frame in due(&mut asker, 0) {
            observer.frame(0.0, LinkType::Ethernet, &frame);
        }
        let foreign = offer(|one| one.options.set(option::VENDOR, [0xf1, 1, 2]));
        observer.frame(0.5, LinkType::Ethernet, &foreign);
        let network = observer.report().network;
        let [conversation] = network.dhcp.as_slice() else {
            panic!("{network:?}")
        };
        assert_eq!(conversation.discover_s, [0.0]);
        assert_eq!(
            conversation.offers[0].vendor_options,
            VendorOptions::Foreign
        );
        assert_eq!(network.router_solicitations_s, [0.0]);
    }

    #[test]
    fn stations_on_the_link_are_asked_so_often_and_timed() {
        let mut asker = asker();
        due(&mut asker, 0);
        asker.frame(1000, &offer(|_| {}));
        // The router, and who is all else; not the name server behind the router.
        let mut now = 2000;
        let probes = due(&mut asker, now);
        assert_eq!(probes.len(), 2, "{probes:?}");
        assert_eq!(probes[0][38..42], [10, 0, 0, 254]);
        assert_eq!(probes[0][28..32], [0; 4]);
        for took in 1..=20 {
            asker.frame(now + took, &arp_reply(SERVER));
            asker.frame(now + took + 1, &arp_reply(SERVER));
            now += took;
            due(&mut asker, now);
        }
        // One that does not answer is waited for.
        for _ in 0..20 {
            now += 500_000;
            due(&mut asker, now);
        }
        let told = asker.round_trips();
        assert_eq!(told[0].what, "router");
        assert_eq!((told[0].asked, told[0].took_us.len()), (10, 0));
        assert_eq!(told[1].what, "boot server, DHCP server, name server");
        assert_eq!(told[1].took_us, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn routers_are_asked_three_times_or_until_one_answers() {
        let mut asker = asker();
        let solicits = |frames: Vec<Vec<u8>>| {
            let mut kinds = frames.iter().map(|frame| frame.get(54).copied());
            kinds.any(|kind| kind == Some(ROUTER_SOLICITATION))
        };
        asker.is_offered = true;
        let first = due(&mut asker, 0);
        assert_eq!(first.len(), 1);
        // Its checksum is right: the sum over all is none.
        let frame = &first[0];
        let pseudo = [0, 0, 0, 8, 0, 0, 0, ICMPV6];
        assert_eq!(checksum([&frame[22..54], &pseudo, &frame[54..62]]), 0);
        assert!(solicits(due(&mut asker, 4_000_000)) && solicits(due(&mut asker, 8_000_000)));
        assert!(!solicits(due(&mut asker, 12_000_000)));
        asker.solicitations = 1;
        let mut advertisement = frame.clone();
        advertisement[54] = ROUTER_ADVERTISEMENT;
        asker.frame(13_000_000, &advertisement);
        assert!(!solicits(due(&mut asker, 16_000_000)));
    }
}
