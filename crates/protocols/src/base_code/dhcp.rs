//! An address and boot information by DHCP (RFC 2131, PXE 2.1), for EFI_PXE_BASE_CODE_PROTOCOL.Dhcp().

use super::{Host, Port, show, unspecified};
use crate::Refusal;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use wireboot_net::Duration;
use wireboot_wire::dhcp::{
    CLIENT_PORT, Message, MessageType, Operation, PxeOptions, SERVER_PORT, option,
};

/// How long offers are waited for, in seconds: 31 in all (UEFI 2.10, section 24.3.4).
const DISCOVER_WAITS: [u64; 5] = [1, 2, 4, 8, 16];
/// How long a server may take to confirm, in seconds.
const REQUEST_WAITS: [u64; 3] = [1, 2, 4];
/// How long an offer without a boot file waits for a proxy's.
const PROXY: Duration = Duration::from_secs(1);
/// The class of PXE's clients, and of the servers that serve them.
const PXE_CLASS: &[u8] = b"PXEClient";
const OWN_CLASS: &[u8] = b"PXEClient:Arch:00007:UNDI:003000";
const PARAMETERS: [u8; 12] = [1, 3, 6, 12, 15, 17, 43, 51, 54, 60, 66, 67];
const LARGEST: u16 = 1472;
/// Offers that are looked at, and as many of proxies: somebody may send them without end.
const OFFERS: usize = 16;

/// The packets of an exchange, each as on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// What was sent first.
    pub discover: Vec<u8>,
    /// The server's acknowledgement; over IPv6 its Reply.
    pub ack: Vec<u8>,
    /// A proxy's offer, or its answer where it was asked for more.
    pub proxy_offer: Option<Vec<u8>>,
}

/// A server's message, read and as it came.
pub(super) struct Answer {
    pub(super) source: IpAddr,
    pub(super) message: Message,
    pub(super) raw: Vec<u8>,
}

impl Answer {
    /// Whether it says what to boot.
    fn boots(&self) -> bool {
        let options = &self.message.options;
        let servers = options.get(option::VENDOR).and_then(PxeOptions::parse);
        self.message.boot_file().is_some()
            || is_pxe(&self.message)
                && servers.is_some_and(|options| !options.boot_servers.is_empty())
    }
}

fn is_pxe(message: &Message) -> bool {
    let class = message.options.get(option::VENDOR_CLASS);
    class.is_some_and(|class| class.starts_with(PXE_CLASS))
}

impl Host {
    /// A message with the options of `template`, an earlier one of this machine, that say who it is.
    pub(super) fn dhcp_message(
        &self,
        kind: MessageType,
        xid: u32,
        template: Option<&[u8]>,
    ) -> Message {
        let mut message = Message::request(kind, xid, self.mac);
        let template = template.and_then(|raw| Message::parse(raw).ok());
        let options = &mut message.options;
        match template.filter(|template| template.operation == Operation::Request) {
            Some(template) => {
                let about = [
                    option::MESSAGE_TYPE,
                    option::REQUESTED_ADDRESS,
                    option::SERVER_ID,
                    option::VENDOR,
                ];
                let kept = template
                    .options
                    .iter()
                    .filter(|(code, _)| !about.contains(code));
                kept.for_each(|(code, value)| options.set(code, value));
            }
            None => {
                options.set(option::PARAMETERS, PARAMETERS);
                options.set(option::MAX_SIZE, LARGEST.to_be_bytes());
                options.set(option::VENDOR_CLASS, OWN_CLASS);
                options.set(option::ARCHITECTURE, [0, 7]);
                options.set(option::NETWORK_INTERFACE, [1, 3, 0]);
                // A machine without a number: its Ethernet address.
                let mut id = [0; 17];
                super::packet::put(&mut id, 11, &self.mac);
                options.set(option::MACHINE_ID, id);
            }
        }
        message
    }

    /// The next answer to `xid`.
    pub(super) fn dhcp_answer(
        &mut self,
        port: &mut dyn Port,
        end: wireboot_net::Instant,
        xid: u32,
    ) -> Result<Option<Answer>, Refusal> {
        let mac = self.mac;
        let read = |payload: &[u8]| {
            Message::parse(payload).ok().filter(|message| {
                message.operation == Operation::Reply
                    && message.xid == xid
                    && message.mac() == Some(mac)
            })
        };
        let datagram = self.datagram(port, end, None, |_, datagram| {
            datagram.destination.port() == CLIENT_PORT && read(&datagram.payload).is_some()
        })?;
        Ok(datagram.and_then(|datagram| {
            Some(Answer {
                source: datagram.source.ip(),
                message: read(&datagram.payload)?,
                raw: datagram.payload,
            })
        }))
    }

    /// Sends a message of a client.
    pub(super) fn dhcp_send(
        &mut self,
        port: &mut dyn Port,
        to: SocketAddr,
        message: &[u8],
    ) -> Result<(), Refusal> {
        show(port, false, message)?;
        let from = SocketAddr::new(self.address, CLIENT_PORT);
        self.datagram_to(port, from, to, None, [&[], message], true)
    }

    /// Gets an address and boot information, and uses the address. `template`: an earlier message of this machine, which says who it is.
    /// `sort`: an offer that says what to boot is taken before others.
    ///
    /// # Errors
    /// [`Refusal::Timeout`]: no server. [`Refusal::NoResponse`]: none that says what to boot. [`Refusal::Aborted`].
    pub fn dhcp(
        &mut self,
        port: &mut dyn Port,
        template: Option<&[u8]>,
        sort: bool,
    ) -> Result<Exchange, Refusal> {
        let before = (self.address, self.prefix_len, self.router);
        self.flush();
        self.address = Ipv4Addr::UNSPECIFIED.into();
        let exchange = self.dora(port, template, sort, before.0);
        if exchange.is_err() {
            self.configure(before.0, before.1, before.2);
        }
        exchange
    }

    fn dora(
        &mut self,
        port: &mut dyn Port,
        template: Option<&[u8]>,
        sort: bool,
        before: IpAddr,
    ) -> Result<Exchange, Refusal> {
        let all = SocketAddr::new(Ipv4Addr::BROADCAST.into(), SERVER_PORT);
        for wait in DISCOVER_WAITS {
            let xid = self.random.next_u32();
            let mut message = self.dhcp_message(MessageType::Discover, xid, template);
            if let (IpAddr::V4(address), false) = (before, before.is_unspecified()) {
                message
                    .options
                    .set(option::REQUESTED_ADDRESS, address.octets());
            }
            let discover = message.emit();
            self.dhcp_send(port, all, &discover)?;
            let (offers, proxies) = self.offers(port, xid, wait)?;
            if offers.is_empty() {
                continue;
            }
            let best = offers.iter().find(|offer| sort && offer.boots());
            // With a proxy, any of them leads to a boot.
            let first = || {
                let mut usable = offers.iter();
                usable.find(|offer| offer.boots() || !proxies.is_empty())
            };
            let offer = best.or_else(first).ok_or(Refusal::NoResponse)?;
            let Some(ack) = self.confirm(port, xid, template, offer)? else {
                continue;
            };
            self.use_lease(&ack.message);
            let proxy_offer = match proxies.into_iter().next() {
                Some(proxy) if proxy.boots() => Some(proxy.raw),
                Some(proxy) => Some(self.ask_proxy(port, template, &proxy)?.unwrap_or(proxy.raw)),
                None => None,
            };
            return Ok(Exchange {
                discover,
                ack: ack.raw,
                proxy_offer,
            });
        }
        Err(Refusal::Timeout)
    }

    /// Offers of addresses, and of boot information alone.
    pub(super) fn offers(
        &mut self,
        port: &mut dyn Port,
        xid: u32,
        wait: u64,
    ) -> Result<(Vec<Answer>, Vec<Answer>), Refusal> {
        let mut end = port.now() + Duration::from_secs(wait);
        let (mut offers, mut proxies) = (Vec::new(), Vec::new());
        while let Some(answer) = self.dhcp_answer(port, end, xid)? {
            let kind = answer.message.message_type();
            if !matches!(kind, Some(MessageType::Offer) | None) {
                continue;
            }
            if !answer.message.yiaddr.is_unspecified() {
                if offers.len() < OFFERS {
                    offers.push(answer);
                }
                end = end.min(port.now() + PROXY);
            } else if is_pxe(&answer.message) && proxies.len() < OFFERS {
                proxies.push(answer);
            }
            let complete = offers.iter().any(Answer::boots) || !proxies.is_empty();
            if complete && !offers.is_empty() {
                break;
            }
        }
        Ok((offers, proxies))
    }

    /// Takes an offer. `None` where the server does not confirm it.
    fn confirm(
        &mut self,
        port: &mut dyn Port,
        xid: u32,
        template: Option<&[u8]>,
        offer: &Answer,
    ) -> Result<Option<Answer>, Refusal> {
        let mut message = self.dhcp_message(MessageType::Request, xid, template);
        let options = &mut message.options;
        options.set(option::REQUESTED_ADDRESS, offer.message.yiaddr.octets());
        if let Some(server) = offer.message.options.get(option::SERVER_ID) {
            options.set(option::SERVER_ID, server);
        }
        let request = message.emit();
        for wait in REQUEST_WAITS {
            let all = SocketAddr::new(Ipv4Addr::BROADCAST.into(), SERVER_PORT);
            self.dhcp_send(port, all, &request)?;
            let end = port.now() + Duration::from_secs(wait);
            while let Some(answer) = self.dhcp_answer(port, end, xid)? {
                match answer.message.message_type() {
                    Some(MessageType::Ack) if !answer.message.yiaddr.is_unspecified() => {
                        return Ok(Some(answer));
                    }
                    Some(MessageType::Nak) => return Ok(None),
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    fn use_lease(&mut self, ack: &Message) {
        let prefix_len = ack.options.prefix().unwrap_or(24);
        let router = ack.options.addresses(option::ROUTERS).first().copied();
        self.configure(ack.yiaddr.into(), prefix_len, router.map(IpAddr::V4));
    }

    /// Asks a proxy that has named nothing in its offer (PXE 2.1, section 2.2.3).
    fn ask_proxy(
        &mut self,
        port: &mut dyn Port,
        template: Option<&[u8]>,
        proxy: &Answer,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let server = proxy.message.options.address(option::SERVER_ID);
        let server = server.map_or(proxy.source, IpAddr::V4);
        if server == unspecified(server) {
            return Ok(None);
        }
        let xid = self.random.next_u32();
        let mut message = self.dhcp_message(MessageType::Request, xid, template);
        if let IpAddr::V4(own) = self.address {
            message.ciaddr = own;
        }
        let reply = self.inquire(port, &message, &[server], |_| true);
        match reply {
            Ok((_, answer)) => Ok(Some(answer.raw)),
            Err(Refusal::Timeout) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}
