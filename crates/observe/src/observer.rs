//! One machine's boot, as its packets show it.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::IpAddr;

use wireboot_report::network::{
    Dhcpv6, Discovery, Lacp, NameQuery, Neighbour, Network, Router, SpanningTree,
};
use wireboot_report::{Machine, Report};
use wireboot_wire::{dhcp, dhcpv6, tftp};

use crate::clients::boots;
use crate::dhcp::{Conversations, is_reply, of_machine};
use crate::frame::{Content, Frame, ICMPV6, IpPacket, LinkType, Mac, Udp};
use crate::transfers::Transfers;
use crate::{keep, lacp, names, neighbour, routers, spanning_tree, timeline};

/// The most addresses of a machine that are remembered.
const MOST_ADDRESSES: usize = 64;

/// ICMPv6 types (RFC 4861 section 4).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;

/// How GRUB names itself to HTTP servers.
const GRUB: &[u8] = b"User-Agent: GRUB";

/// Follows one machine. Give it all frames of the capture, in order.
#[derive(Debug)]
pub struct Observer {
    mac: Mac,
    began_unix_s: f64,
    /// Addresses that the machine has, or is given.
    addresses: Vec<IpAddr>,
    recent: Recent,
    spanning_tree: Option<SpanningTree>,
    neighbour: Option<Neighbour>,
    lacp: Option<Lacp>,
    conversations: Conversations,
    dhcpv6: Vec<Dhcpv6>,
    router_solicitations_s: Vec<f64>,
    router_advertisements_s: Vec<f64>,
    routers: Vec<Router>,
    names: Vec<NameQuery>,
    transfers: Transfers,
    /// The machine's last packet.
    last_s: f64,
    /// When an operating system asked for an address of its own: the boot is over.
    system_s: Option<f64>,
}

impl Observer {
    /// For the machine whose card is `mac` and whose boot began at `began_unix_s`, in seconds since 1970.
    pub fn new(mac: Mac, began_unix_s: f64) -> Self {
        Self {
            mac,
            began_unix_s,
            addresses: Vec::new(),
            recent: Recent::default(),
            spanning_tree: None,
            neighbour: None,
            lacp: None,
            conversations: Conversations::default(),
            dhcpv6: Vec::new(),
            router_solicitations_s: Vec::new(),
            router_advertisements_s: Vec::new(),
            routers: Vec::new(),
            names: Vec::new(),
            transfers: Transfers::default(),
            last_s: 0.0,
            system_s: None,
        }
    }

    /// Takes a frame in, captured at `time_unix_s`.
    pub fn frame(&mut self, time_unix_s: f64, link: LinkType, bytes: &[u8]) {
        let at_s = time_unix_s - self.began_unix_s;
        let Some(frame) = Frame::parse(link, bytes) else {
            return;
        };
        match frame.content {
            // What the machine tells of itself, and its card's own controller, is no switch's.
            Content::Lldp(_) | Content::Cdp(_) | Content::Slow(_)
                if frame.source == Some(self.mac) => {}
            Content::Lldp(packet) => self.neighbour(neighbour::lldp(packet, at_s)),
            Content::Cdp(packet) => self.neighbour(neighbour::cdp(packet, at_s)),
            Content::Slow(packet) => {
                if let Some(heard) = lacp::parse(packet, at_s) {
                    let known = self.lacp.get_or_insert_with(|| heard.clone());
                    lacp::heard_again(known, &heard);
                }
            }
            Content::Bpdu(bpdu) => {
                if let Some(heard) = spanning_tree::parse(bpdu, at_s) {
                    let tree = self.spanning_tree.get_or_insert_with(|| heard.clone());
                    tree.forwards_s = tree.forwards_s.or(heard.forwards_s);
                }
            }
            Content::Ip(ip) if !self.recent.has(at_s, &ip) => {
                if self.system_s.is_some() && self.is_a_loaders(frame.source, &ip) {
                    self.system_s = None;
                }
                if self.system_s.is_none() {
                    self.packet(at_s, frame.source, &ip);
                }
            }
            Content::Ip(_) | Content::Other => {}
        }
    }

    /// Keeps the first. LLDP, which tells more, takes the place of CDP.
    fn neighbour(&mut self, heard: Option<Neighbour>) {
        let known = self.neighbour.as_ref().map(|one| one.protocol);
        let better = heard.as_ref().map(|one| one.protocol) == Some(Discovery::Lldp)
            && known != Some(Discovery::Lldp);
        if known.is_none() || better {
            self.neighbour = heard;
        }
    }

    /// A boot program's, though one before asked by DHCP without a word of what it is, as GRUB does: a read by TFTP, or DHCP and HTTP by name.
    fn is_a_loaders(&self, source: Option<Mac>, ip: &IpPacket<'_>) -> bool {
        let from_machine = source == Some(self.mac) || self.addresses.contains(&ip.source);
        if let Some(udp) = ip.udp() {
            return match udp.destination_port {
                tftp::PORT => from_machine,
                dhcp::SERVER_PORT => {
                    of_machine(udp.payload, self.mac.0).is_some_and(|message| boots(&message))
                }
                _ => false,
            };
        }
        let names_grub = |payload: &[u8]| {
            payload.starts_with(b"GET ") && payload.windows(GRUB.len()).any(|part| part == GRUB)
        };
        from_machine
            && ip
                .tcp()
                .is_some_and(|tcp| names_grub(tcp.segment.payload()))
    }

    fn packet(&mut self, at_s: f64, source: Option<Mac>, ip: &IpPacket<'_>) {
        let own_frame = source == Some(self.mac);
        if own_frame {
            self.learn(ip.source);
        }
        let from_machine = own_frame || self.addresses.contains(&ip.source);
        if from_machine {
            self.last_s = self.last_s.max(at_s);
        }
        if let Some(udp) = ip.udp() {
            self.datagram(at_s, from_machine, ip, &udp);
        } else if ip.protocol == ICMPV6 {
            match ip.payload.first() {
                Some(&ROUTER_SOLICITATION) if from_machine => {
                    keep(&mut self.router_solicitations_s, at_s);
                }
                Some(&ROUTER_ADVERTISEMENT) => {
                    keep(&mut self.router_advertisements_s, at_s);
                    let asked = self.router_solicitations_s.last().copied();
                    routers::advertised(&mut self.routers, at_s, asked, ip);
                }
                _ => {}
            }
        }
        if from_machine || self.addresses.contains(&ip.destination) {
            self.transfers.packet(at_s, ip);
        }
    }

    fn datagram(&mut self, at_s: f64, from_machine: bool, ip: &IpPacket<'_>, udp: &Udp<'_>) {
        match (udp.source_port, udp.destination_port) {
            (dhcp::SERVER_PORT | dhcp::CLIENT_PORT | dhcp::PXE_PORT, _)
            | (_, dhcp::SERVER_PORT | dhcp::PXE_PORT) => self.dhcp(at_s, ip, udp),
            (_, dhcpv6::SERVER_PORT) if from_machine => {
                if let Ok(message) = dhcpv6::Message::parse(udp.payload) {
                    crate::dhcpv6::asked(&mut self.dhcpv6, at_s, &message);
                }
            }
            (dhcpv6::SERVER_PORT, _) if self.addresses.contains(&ip.destination) => {
                if let Ok(message) = dhcpv6::Message::parse(udp.payload) {
                    crate::dhcpv6::answered(&mut self.dhcpv6, at_s, ip.source, &message);
                }
            }
            (_, names::PORT) if from_machine => {
                names::asked(&mut self.names, at_s, ip.destination, udp.payload);
            }
            (names::PORT, _) if self.addresses.contains(&ip.destination) => {
                names::answered(&mut self.names, at_s, ip.source, udp.payload);
            }
            _ => {}
        }
    }

    fn dhcp(&mut self, at_s: f64, ip: &IpPacket<'_>, udp: &Udp<'_>) {
        let Some(message) = of_machine(udp.payload, self.mac.0) else {
            return;
        };
        if is_reply(&message) {
            // A relay's address is no server's; the option in the message tells.
            if udp.source_port == dhcp::PXE_PORT {
                self.conversations.boot_server_answered(at_s, ip.source);
            } else {
                self.conversations.answered(at_s, ip.source, &message);
                if !message.yiaddr.is_unspecified() {
                    self.learn(message.yiaddr.into());
                }
            }
            return;
        }
        self.last_s = self.last_s.max(at_s);
        if !boots(&message) && self.transfers.any() {
            self.system_s = Some(at_s);
        } else if udp.destination_port == dhcp::PXE_PORT {
            self.conversations.boot_server_asked(at_s, ip.destination);
        } else {
            self.conversations.asked(at_s, &message);
        }
    }

    fn learn(&mut self, address: IpAddr) {
        let known = self.addresses.contains(&address);
        if !known && !address.is_unspecified() && self.addresses.len() < MOST_ADDRESSES {
            self.addresses.push(address);
        }
    }

    /// The same where frames were waited for until `until_s` seconds from the beginning, whatever the machine sent meanwhile.
    pub fn report_until(mut self, until_s: f64) -> Report {
        self.last_s = self.last_s.max(until_s);
        self.report()
    }

    /// What there is to report, without findings.
    pub fn report(self) -> Report {
        let transfers = self.transfers.finish();
        let fetched_s = transfers.iter().map(|one| one.end_s).fold(0.0, f64::max);
        let mut network = Network {
            began_unix_s: self.began_unix_s,
            span_s: if transfers.is_empty() {
                self.last_s
            } else {
                fetched_s
            }
            .max(0.0),
            system_s: self.system_s,
            spanning_tree: self.spanning_tree,
            neighbour: self.neighbour,
            lacp: self.lacp,
            dhcp: self.conversations.dhcp,
            dhcpv6: self.dhcpv6,
            router_solicitations_s: self.router_solicitations_s,
            router_advertisements_s: self.router_advertisements_s,
            routers: self.routers,
            boot_servers: self.conversations.boot_servers,
            names: self.names,
            transfers,
        };
        // Tree and group are told of when they may have had to do with this boot.
        network.spanning_tree = network
            .spanning_tree
            .filter(|tree| tree.first_s <= network.span_s);
        network.lacp = network.lacp.filter(|lacp| lacp.first_s <= network.span_s);
        let timeline = timeline::of(&network);
        Report {
            machine: Machine {
                mac: self.mac.to_string(),
                uuid: self.conversations.uuid,
                vendor_class: self.conversations.vendor_class,
                ..Machine::default()
            },
            timeline,
            network,
            ..Report::new()
        }
    }
}

/// How many packets back a second sight of one is looked for, and for how long.
const RECENT: usize = 16;
const RECENT_S: f64 = 0.001;

/// Bytes of a packet that are compared: all headers, and a block's number.
const COMPARED: usize = 96;

/// The last packets. A capture of all interfaces of a bridge, or of both directions of a mirrored port, has each packet several times.
#[derive(Debug, Default)]
struct Recent(VecDeque<(f64, usize, Vec<u8>)>);

impl Recent {
    /// Whether this very packet has just been seen; remembers it.
    fn has(&mut self, at_s: f64, ip: &IpPacket<'_>) -> bool {
        let head = ip.payload.get(..COMPARED).unwrap_or(ip.payload);
        let twice = self.0.iter().any(|(before_s, length, bytes)| {
            at_s - before_s < RECENT_S && *length == ip.length && bytes == head
        });
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back((at_s, ip.length, head.to_vec()));
        twice
    }
}

#[cfg(test)]
mod tests;
