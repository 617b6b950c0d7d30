//! An address and boot information by DHCPv6 (RFC 8415, RFC 5970): Solicit, Advertise, Request, Reply; and boot servers.

use super::{Exchange, Host, Port, Reply, show};
use crate::Refusal;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use wireboot_fetch::ClientId;
use wireboot_net::Duration;
use wireboot_wire::dhcp::PXE_PORT;
use wireboot_wire::dhcpv6::{
    ALL_SERVERS, CLIENT_PORT, IaAddress, IaNa, Message, MessageType, Options, SERVER_PORT, Writer,
    duid, option,
};

/// How long answers are waited for, in seconds: 31 in all (UEFI 2.10, section 24.3.4).
const WAITS: [u64; 5] = [1, 2, 4, 8, 16];
/// How long an answer without a boot file waits for a proxy's.
const PROXY: Duration = Duration::from_secs(1);
const WANTED: [u16; 6] = [
    option::BOOT_FILE_URL,
    option::BOOT_FILE_PARAMETERS,
    option::VENDOR_CLASS,
    option::VENDOR_OPTIONS,
    option::DNS_SERVERS,
    option::DOMAIN_SEARCH,
];
/// Intel's enterprise number: the vendor of PXE.
const INTEL: u32 = 343;
const CLASS: &str = "PXEClient:Arch:00007:UNDI:003000";
const TRANSACTION_ID: u32 = 0x00ff_ffff;
/// Addresses have no prefix here; nearly all networks have this one (RFC 4291, section 2.5.1).
const PREFIX_LEN: u8 = 64;

/// A server's message, as it came.
struct Answer {
    source: IpAddr,
    raw: Vec<u8>,
}

impl Answer {
    fn options(&self) -> Options<'_> {
        Message::parse(&self.raw).map_or(Options::default(), |message| message.options)
    }

    fn kind(&self) -> Option<MessageType> {
        Message::parse(&self.raw).ok().map(|message| message.kind)
    }

    fn addresses(&self) -> Vec<Ipv6Addr> {
        let associations = self.options().ia_na();
        let addresses = associations.flat_map(|association| association.options.ia_addresses());
        addresses
            .filter(|address| address.valid_lifetime > 0)
            .map(|address| address.address)
            .collect()
    }

    fn boots(&self) -> bool {
        self.options().boot_file_url().is_some()
    }
}

impl Host {
    /// The address that it has by itself (RFC 4291, appendix A).
    pub(super) fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac;
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

    fn message6(
        &self,
        kind: MessageType,
        id: u32,
        client: &ClientId,
        to: Option<(&[u8], &[Ipv6Addr])>,
    ) -> Vec<u8> {
        let mut message = Writer::new(kind, id);
        message.option(option::CLIENT_ID, &client.duid);
        message.option(option::ELAPSED_TIME, [0, 0]);
        if let Some((server, _)) = to {
            message.option(option::SERVER_ID, server);
        }
        if kind != MessageType::InformationRequest {
            let [_, _, own @ ..] = self.mac;
            let association = IaNa {
                iaid: client.iaid.unwrap_or(u32::from_be_bytes(own)),
                t1: 0,
                t2: 0,
                options: Options::default(),
            };
            message.ia_na(&association, |message| {
                for &address in to.map_or(&[][..], |(_, addresses)| addresses) {
                    message.ia_address(&IaAddress {
                        address,
                        preferred_lifetime: 0,
                        valid_lifetime: 0,
                        options: Options::default(),
                    });
                }
            });
        }
        message.words(option::OPTION_REQUEST, &WANTED);
        message.words(option::ARCHITECTURE, &[7]);
        message.option(option::NETWORK_INTERFACE, [1, 3, 0]);
        message.vendor_class(INTEL, &[CLASS]);
        message.finish()
    }

    fn send6(
        &mut self,
        port: &mut dyn Port,
        to: SocketAddr,
        message: &[u8],
    ) -> Result<(), Refusal> {
        show(port, false, message)?;
        let from = SocketAddr::new(self.address, CLIENT_PORT);
        self.datagram_to(port, from, to, None, [&[], message], true)
    }

    /// The next answer to a message of this client's. Another's is none of ours (RFC 8415, sections 16.3 and 16.10).
    fn answer6(
        &mut self,
        port: &mut dyn Port,
        end: wireboot_net::Instant,
        id: u32,
        client: &ClientId,
    ) -> Result<Option<Answer>, Refusal> {
        let ours = |message: Message<'_>| {
            message.transaction_id == id && message.options.client_id() == Some(&client.duid)
        };
        let datagram = self.datagram(port, end, None, |_, datagram| {
            let message = Message::parse(&datagram.payload);
            datagram.destination.port() == CLIENT_PORT && message.is_ok_and(ours)
        })?;
        Ok(datagram.map(|datagram| Answer {
            source: datagram.source.ip(),
            raw: datagram.payload,
        }))
    }

    /// Gets an address and boot information by DHCPv6, and uses the address. `template`: an earlier message for this machine, which says
    /// who it is.
    ///
    /// # Errors
    /// [`Refusal::Timeout`]: no server. [`Refusal::NoResponse`]: none that says what to boot. [`Refusal::Aborted`].
    pub fn dhcp6(
        &mut self,
        port: &mut dyn Port,
        template: Option<&[u8]>,
    ) -> Result<Exchange, Refusal> {
        let before = (self.address, self.prefix_len, self.router);
        self.flush();
        self.configure(self.link_local().into(), PREFIX_LEN, before.2);
        let exchange = self.sarr(port, template);
        if exchange.is_err() {
            self.configure(before.0, before.1, before.2);
        }
        exchange
    }

    fn client(&self, template: Option<&[u8]>) -> ClientId {
        template
            .and_then(ClientId::of_packet)
            .unwrap_or_else(|| ClientId {
                duid: duid::from_mac(self.mac).to_vec(),
                iaid: None,
            })
    }

    fn sarr(&mut self, port: &mut dyn Port, template: Option<&[u8]>) -> Result<Exchange, Refusal> {
        let client = self.client(template);
        let all = SocketAddr::new(ALL_SERVERS.into(), SERVER_PORT);
        for wait in WAITS {
            let id = self.random.next_u32() & TRANSACTION_ID;
            let discover = self.message6(MessageType::Solicit, id, &client, None);
            self.send6(port, all, &discover)?;
            let mut end = port.now() + Duration::from_secs(wait);
            let (mut offer, mut proxy) = (None, None);
            while let Some(answer) = self.answer6(port, end, id, &client)? {
                if answer.kind() != Some(MessageType::Advertise) {
                    continue;
                }
                if answer.addresses().is_empty() {
                    proxy = Some(answer).filter(Answer::boots).or(proxy);
                } else {
                    let better = answer.boots() || offer.is_none();
                    offer = if better { Some(answer) } else { offer };
                    end = end.min(port.now() + PROXY);
                }
                if offer
                    .as_ref()
                    .is_some_and(|offer| offer.boots() || proxy.is_some())
                {
                    break;
                }
            }
            let Some(offer) = offer else { continue };
            if !offer.boots() && proxy.is_none() {
                return Err(Refusal::NoResponse);
            }
            let Some(ack) = self.confirm6(port, &client, &offer)? else {
                continue;
            };
            let address = ack.addresses().first().copied();
            self.configure(
                address.unwrap_or(self.link_local()).into(),
                PREFIX_LEN,
                self.router,
            );
            return Ok(Exchange {
                discover,
                ack: ack.raw,
                proxy_offer: proxy.map(|proxy| proxy.raw),
            });
        }
        Err(Refusal::Timeout)
    }

    fn confirm6(
        &mut self,
        port: &mut dyn Port,
        client: &ClientId,
        offer: &Answer,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(server) = offer.options().server_id() else {
            return Ok(None);
        };
        let addresses = offer.addresses();
        let all = SocketAddr::new(ALL_SERVERS.into(), SERVER_PORT);
        let id = self.random.next_u32() & TRANSACTION_ID;
        let request = self.message6(MessageType::Request, id, client, Some((server, &addresses)));
        for wait in WAITS.into_iter().take(3) {
            self.send6(port, all, &request)?;
            let end = port.now() + Duration::from_secs(wait);
            while let Some(answer) = self.answer6(port, end, id, client)? {
                if answer.kind() == Some(MessageType::Reply) {
                    return Ok(Some(answer).filter(|answer| !answer.addresses().is_empty()));
                }
            }
        }
        Ok(None)
    }

    /// Asks boot servers over IPv6, on the port that they have for that (as EDK II does).
    pub(super) fn discover6(
        &mut self,
        port: &mut dyn Port,
        template: Option<&[u8]>,
        to: &[IpAddr],
        layer: u16,
        right: impl Fn(IpAddr) -> bool,
    ) -> Result<Reply, Refusal> {
        let client = self.client(template);
        let id = self.random.next_u32() & TRANSACTION_ID;
        let discover = self.message6(MessageType::InformationRequest, id, &client, None);
        for wait in WAITS.into_iter().take(4) {
            for &server in to {
                match self.send6(port, SocketAddr::new(server, PXE_PORT), &discover) {
                    Ok(()) | Err(Refusal::Timeout) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            let end = port.now() + Duration::from_secs(wait);
            while let Some(answer) = self.answer6(port, end, id, &client)? {
                if answer.kind() == Some(MessageType::Reply) && right(answer.source) {
                    return Ok(Reply {
                        discover,
                        reply: answer.raw,
                        layer,
                    });
                }
            }
        }
        Err(Refusal::Timeout)
    }
}
