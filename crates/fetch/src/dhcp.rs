//! The DHCP client (RFC 2131) with PXE's way to a boot file (PXE 2.1, RFC 4578).
//!
//! ```text
//! DISCOVER ->          repeated after 1, 2, 4, 8, 16 s
//!          <- OFFER    complete: taken at once
//!                      plain: taken after a short wait for a better one or for a proxy's
//! REQUEST  ->          and an ARP probe of the address offered, again if the answer comes after it
//!          <- ACK      NAK or nothing: again from the start, with another server where one offers
//!                      the address is taken: DECLINE, and the same
//! REQUEST  -> 4011     only when the boot file is a boot server's or a proxy's to name
//!          <- ACK
//! ```
//!
//! On a quiet network the first byte of a file is asked for some 15 ms after the DISCOVER, all of them the ARP probe's.
//!
//! A DHCP server that does not say our class (option 60), a router for one, may name a file for other clients. Where a proxy has led the
//! firmware, what a proxy names goes before that, as with the firmware.

mod lease;
mod offers;
#[cfg(test)]
mod tests;

pub use lease::Lease;

pub use crate::dhcp_request::{DhcpRequest, LeaseSource, VendorClass};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::pin::pin;
use core::task::Poll;

use wireboot_net::{Bootp, Duration, Instant, Ipv4Addr, Stack, UdpSocket};
use wireboot_wire::dhcp::pxe::{Item, discovery};
use wireboot_wire::dhcp::{
    Message, MessageType, Operation, PXE_PORT, ParseError, PxeOptions, option,
};

use lease::host_address;
pub(crate) use lease::is_host;
use offers::{Guide, Offer};

/// Seconds to wait after each DISCOVER. Six of them: a switch port that runs spanning tree forwards nothing for
/// its first 30 s, and the last DISCOVER leaves after 31.
const DISCOVER_WAITS: [u64; 6] = [1, 2, 4, 8, 16, 8];
/// Seconds to wait after each REQUEST to a server that has answered before.
const REQUEST_WAITS: [u64; 3] = [1, 2, 4];
/// The pause after a DECLINE, in which the server takes note (RFC 2131 section 3.1 asks for 10 s, for machines that go on
/// forever; the number of DISCOVERs ends this).
const DECLINE_PAUSE: Duration = Duration::from_secs(1);
/// Boot servers asked at the same time.
const MAX_BOOT_SERVERS: usize = 8;

/// Options to ask for. Classless routes before the router (RFC 3442).
const PARAMETERS: [u8; 17] = [
    option::SUBNET_MASK,
    option::CLASSLESS_ROUTES,
    option::ROUTERS,
    option::DNS_SERVERS,
    option::HOST_NAME,
    option::DOMAIN_NAME,
    option::MTU,
    option::BROADCAST,
    option::VENDOR,
    option::LEASE_TIME,
    option::SERVER_ID,
    option::VENDOR_CLASS,
    option::TFTP_SERVER,
    option::BOOT_FILE,
    option::MACHINE_ID,
    option::DOMAIN_SEARCH,
    option::IPXE,
];

/// Why there is no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DhcpError {
    /// Nobody offered anything.
    #[error(
        "no DHCP server answered {discovers} DISCOVERs over {seconds} s ({malformed} malformed answers); check the \
         cable, the switch port (VLAN, spanning tree) and that a DHCP server or relay serves this network"
    )]
    NoAnswer {
        /// DISCOVERs sent, repetitions included.
        discovers: usize,
        /// How long it took, in seconds.
        seconds: u64,
        /// Messages to us that were no usable DHCP replies.
        malformed: u32,
    },
    /// There is a proxyDHCP server but no DHCP server.
    #[error(
        "only the proxyDHCP server {proxy} answered {discovers} DISCOVERs over {seconds} s; it gives boot \
         information but no addresses, so check that the network's DHCP server runs and has free addresses"
    )]
    OnlyProxy {
        /// Its server identifier (option 54), else its source address.
        proxy: Ipv4Addr,
        /// DISCOVERs sent, repetitions included.
        discovers: usize,
        /// How long it took, in seconds.
        seconds: u64,
    },
    /// The server offered an address and then did not confirm it.
    #[error(
        "the DHCP server {server} offered {address} but answered no REQUEST for it; check the server's log, and \
         that no firewall drops broadcasts"
    )]
    NoAck {
        /// Its server identifier (option 54).
        server: Ipv4Addr,
        /// The offered address (`yiaddr`).
        address: Ipv4Addr,
    },
    /// The server refused what it had offered.
    #[error("the DHCP server {server} refused {address} (NAK: {message}); check its log")]
    Refused {
        /// Its server identifier (option 54).
        server: Ipv4Addr,
        /// The offered address (`yiaddr`).
        address: Ipv4Addr,
        /// Text of the NAK (option 56), or a substitute where it has none.
        message: String,
    },
    /// Somebody has the offered address already.
    #[error(
        "the DHCP server {server} offered {address}, which {} uses already; free that address, or exclude it \
         from the server's range", Mac(*.owner)
    )]
    AddressInUse {
        /// Its server identifier (option 54).
        server: Ipv4Addr,
        /// The offered address (`yiaddr`).
        address: Ipv4Addr,
        /// Ethernet address of the one that uses it.
        owner: [u8; 6],
    },
    /// The boot servers that the offer points to stayed silent.
    #[error(
        "DHCP gave the address {address}, but the PXE boot server {server} names no boot file (port 4011); \
         check that it runs and knows this architecture"
    )]
    NoBootServer {
        /// The address we got.
        address: Ipv4Addr,
        /// The (first) server asked.
        server: Ipv4Addr,
    },
    /// The firmware's packet is no DHCP message.
    #[error("the firmware's DHCP packet cannot be read: {0}")]
    Malformed(#[from] ParseError),
    /// The firmware's packet gives no address.
    #[error("the firmware's DHCP packet gives no address")]
    NoAddress,
}

/// A GUID for a machine without one: zeros and its Ethernet address.
fn uuid_of(mac: [u8; 6]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[10..].copy_from_slice(&mac);
    uuid
}

/// An Ethernet address as people write it.
struct Mac([u8; 6]);

impl core::fmt::Display for Mac {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Gets an address, and a boot file where the network has one. On success the stack is configured with the lease.
///
/// # Errors
/// [`DhcpError`] after [`DhcpRequest::patience`] without an offer, or at the end of as many attempts. The stack has the address then that it had
/// before; after [`DhcpError::NoBootServer`] it has the new one.
pub async fn discover(stack: &Stack, request: &DhcpRequest) -> Result<Lease, DhcpError> {
    let mut client = Client {
        stack,
        request,
        bootp: stack.bootp(),
        started: stack.now(),
        xid: stack.random() as u32,
        offers: Vec::new(),
        proxies: Vec::new(),
        failed: Vec::new(),
        declined: Vec::new(),
        malformed: 0,
        discovers: 0,
        sent: Vec::new(),
    };
    let mut setback = None;
    let last = request.patience.map(|patience| client.started + patience);
    for wait in DISCOVER_WAITS {
        if last.is_some_and(|last| stack.now() >= last) {
            break;
        }
        client.sent = client.discover_message().emit();
        client.bootp.broadcast(&client.sent);
        client.discovers += 1;
        let end = stack.now() + jittered(stack, wait);
        let end = last.map_or(end, |last| last.min(end));
        let Some(offer) = client.select(end).await else {
            continue;
        };
        let error = match client.obtain(&offer).await {
            Ok(lease) => return Ok(lease),
            Err(error) => error,
        };
        // It has been asked often enough, and the next lease would name it again.
        if matches!(error, DhcpError::NoBootServer { .. }) {
            return Err(error);
        }
        // A server that is told of an address in use has another one, most likely.
        let in_use = matches!(error, DhcpError::AddressInUse { .. });
        if in_use && !client.declined.contains(&offer.server) {
            client.declined.push(offer.server);
        } else {
            client.failed.push(offer.server);
        }
        setback = Some(error);
        client.xid = stack.random() as u32;
        client.offers.clear();
        client.proxies.clear();
    }
    Err(setback.unwrap_or_else(|| client.silence()))
}

struct Client<'a> {
    stack: &'a Stack,
    request: &'a DhcpRequest,
    bootp: Bootp,
    started: Instant,
    xid: u32,
    offers: Vec<Offer>,
    /// Offers of boot information alone, and their senders.
    proxies: Vec<Offer>,
    /// Servers that gave no lease for a REQUEST: others' offers go before theirs.
    failed: Vec<Ipv4Addr>,
    /// Servers of which an address was declined.
    declined: Vec<Ipv4Addr>,
    malformed: u32,
    discovers: usize,
    /// The last DISCOVER.
    sent: Vec<u8>,
}

impl Client<'_> {
    /// A message with the options that say who we are.
    fn message(&self, kind: MessageType) -> Message {
        let request = self.request;
        let mut message = Message::request(kind, self.xid, self.stack.mac());
        message.secs = u16::try_from(self.elapsed().secs()).unwrap_or(u16::MAX);
        let options = &mut message.options;
        options.set(option::PARAMETERS, PARAMETERS);
        options.set(option::MAX_SIZE, self.stack.mtu().to_be_bytes());
        let class = request.vendor_class.prefix();
        options.set(
            option::VENDOR_CLASS,
            format!("{class}:Arch:{:05}:UNDI:003000", request.architecture),
        );
        options.set(option::CLIENT_ID, client_id(self.stack.mac()));
        options.set(option::ARCHITECTURE, request.architecture.to_be_bytes());
        // UNDI 3.0, as the vendor class says.
        options.set(option::NETWORK_INTERFACE, [1, 3, 0]);
        let mut machine_id = alloc::vec![0];
        machine_id.extend(request.uuid.unwrap_or_else(|| uuid_of(self.stack.mac())));
        options.set(option::MACHINE_ID, machine_id);
        if !request.user_class.is_empty() {
            options.set(option::USER_CLASS, &request.user_class);
        }
        message
    }

    fn discover_message(&self) -> Message {
        let mut message = self.message(MessageType::Discover);
        if let Some(address) = self.request.requested_address {
            message
                .options
                .set(option::REQUESTED_ADDRESS, address.octets());
        }
        message
    }

    fn request_message(&self, offer: &Offer) -> Message {
        let mut message = self.message(MessageType::Request);
        let options = &mut message.options;
        options.set(option::REQUESTED_ADDRESS, offer.message.yiaddr.octets());
        options.set(option::SERVER_ID, offer.server.octets());
        message
    }

    fn decline_message(&self, offer: &Offer, address: Ipv4Addr) -> Message {
        // RFC 2131 table 5 allows hardly any other option.
        let mut message = Message::request(MessageType::Decline, self.xid, self.stack.mac());
        let options = &mut message.options;
        options.set(option::REQUESTED_ADDRESS, address.octets());
        options.set(option::SERVER_ID, offer.server.octets());
        options.set(option::CLIENT_ID, client_id(self.stack.mac()));
        message
    }

    fn elapsed(&self) -> Duration {
        self.stack.now() - self.started
    }

    /// The next reply to us that came before `end`, or that has come already.
    async fn reply(&mut self, end: Instant) -> Option<(Ipv4Addr, Message)> {
        loop {
            let left = remaining(self.stack, end);
            let (source, bytes) = self.stack.timeout(left, self.bootp.receive()).await?;
            match Message::parse(&bytes) {
                Ok(message) if is_for_us(&message, self.stack, self.xid) => {
                    return Some((source, message));
                }
                // Other machines' messages, broadcast.
                Ok(_) => {}
                Err(_) => self.malformed = self.malformed.saturating_add(1),
            }
        }
    }

    /// Turns an offer into a lease.
    async fn obtain(&mut self, offer: &Offer) -> Result<Lease, DhcpError> {
        let (stack, offered) = (self.stack, offer.message.yiaddr);
        let probing = async { (stack.arp_probe(offered).await, stack.now()) };
        let confirming = async { (self.confirm(offer).await, stack.now()) };
        let ((confirmed, acknowledged), (mut owner, probed)) =
            futures_util::future::join(confirming, probing).await;
        let (source, ack) = confirmed?;
        let Some(mut lease) = Lease::from_ack(&ack, LeaseSource::Dhcp) else {
            return Err(DhcpError::NoAck {
                server: offer.server,
                address: offer.message.yiaddr,
            });
        };
        let address = lease.address.address();
        // While a server took its time, somebody may have come.
        if address != offered || owner.is_none() && acknowledged > probed {
            owner = stack.arp_probe(address).await;
        }
        if let Some(owner) = owner
            && !self.answers_for_all(owner, &lease).await
        {
            self.bootp
                .broadcast(&self.decline_message(offer, address).emit());
            self.stack.sleep(DECLINE_PAUSE).await;
            return Err(DhcpError::AddressInUse {
                server: offer.server,
                address,
                owner,
            });
        }
        self.stack.configure(&lease.ipv4_config());
        // The acknowledgement has the last word, but there are servers that name the file in the offer alone.
        let ack = Offer {
            message: ack,
            server: offer.server,
        };
        lease.discover = core::mem::take(&mut self.sent);
        if let Some(proxy) = self.proxies.first() {
            lease.proxy_offer = proxy.message.emit();
        }
        let mut guides: Vec<Offer> = alloc::vec![ack, offer.clone()];
        // Those that count last.
        let mut plain = Vec::new();
        if guides.iter().all(|guide| self.awaits_proxy(guide)) {
            core::mem::swap(&mut guides, &mut plain);
        }
        guides.append(&mut self.proxies);
        let mut asked = Ok(());
        if let Some(guide) = guides.iter().find(|guide| self.names_file(guide)) {
            lease.set_boot_file(&guide.message, Some(guide.server));
        } else if self.request.want_boot_file {
            asked = self.ask_boot_servers(&mut lease, &guides).await;
        }
        if lease.boot_file.is_none()
            && let Some(guide) = plain.iter().find(|guide| self.names_file(guide))
        {
            lease.set_boot_file(&guide.message, Some(guide.server));
        }
        if lease.boot_file.is_none() && lease.unreadable_boot_file.is_none() {
            let mut messages = guides.iter().chain(&plain).map(|guide| &guide.message);
            lease.unreadable_boot_file = messages.find_map(Message::unreadable_boot_file);
            // What is named and cannot be read says more than a boot server that does not answer.
            if lease.unreadable_boot_file.is_none() {
                asked?;
            }
        }
        log::debug!("lease {} from {source}", lease.address);
        Ok(lease)
    }

    /// Whether who answers ARP for the lease's address does so for one at the network's other end, too: a router or switch with local proxy
    /// ARP, which has neither.
    async fn answers_for_all(&self, owner: [u8; 6], lease: &Lease) -> bool {
        let address = lease.address.address();
        let host = !lease.address.netmask().to_bits();
        let other = Ipv4Addr::from_bits(address.to_bits() ^ host);
        let both = other != address
            && lease.router != Some(other)
            && self.stack.arp_probe(other).await == Some(owner);
        if both {
            let owner = Mac(owner);
            log::warn!("{owner} answers ARP for {other} as for {address}; taking the lease");
        }
        both
    }

    /// REQUEST until ACK or NAK.
    async fn confirm(&mut self, offer: &Offer) -> Result<(Ipv4Addr, Message), DhcpError> {
        let Offer {
            message: Message {
                yiaddr: address, ..
            },
            server,
        } = *offer;
        for wait in REQUEST_WAITS {
            self.bootp.broadcast(&self.request_message(offer).emit());
            let end = self.stack.now() + jittered(self.stack, wait);
            while let Some((source, message)) = self.reply(end).await {
                let from_server = message.options.address(option::SERVER_ID) == Some(server);
                match message.message_type() {
                    Some(MessageType::Ack) if from_server && host_address(&message).is_some() => {
                        return Ok((source, message));
                    }
                    Some(MessageType::Nak) if from_server => {
                        let message = message.message();
                        let message = message.unwrap_or_else(|| String::from("no reason given"));
                        return Err(DhcpError::Refused {
                            server,
                            address,
                            message,
                        });
                    }
                    // A proxy may be slower than the DHCP server.
                    _ => self.keep(source, message),
                }
            }
        }
        Err(DhcpError::NoAck { server, address })
    }

    /// Gets the boot file from those that the messages point to (PXE 2.1 section 2.2.3).
    async fn ask_boot_servers(
        &mut self,
        lease: &mut Lease,
        guides: &[Offer],
    ) -> Result<(), DhcpError> {
        let address = lease.address.address();
        let mut silent = None;
        let mut asked: Vec<Ipv4Addr> = Vec::new();
        for guide in guides {
            let Some(way) = self.guide(&guide.message) else {
                continue;
            };
            let inquiry = self.inquiry(way, guide, address);
            // The acknowledgement and its offer point to the same server.
            if inquiry.servers.iter().all(|server| asked.contains(server)) && !inquiry.broadcast {
                continue;
            }
            asked.extend(&inquiry.servers);
            if let Some((server, reply)) = inquiry.ask(self.stack, &self.bootp).await {
                lease.set_boot_file(&reply, Some(server));
                return Ok(());
            }
            silent.get_or_insert(inquiry.servers.first().copied().unwrap_or(guide.server));
        }
        match silent {
            Some(server) => Err(DhcpError::NoBootServer { address, server }),
            None => Ok(()),
        }
    }

    fn inquiry(&self, way: Guide, guide: &Offer, address: Ipv4Addr) -> BootServerInquiry {
        let mut message = self.message(MessageType::Request);
        message.xid = self.stack.random() as u32;
        message.ciaddr = address;
        let mut servers = Vec::new();
        let mut broadcast = false;
        let mut list_only = true;
        if let Guide::BootServers { options, kind } = way {
            let item = Some(Item { kind, layer: 0 });
            let asked = PxeOptions {
                item,
                ..PxeOptions::default()
            };
            message.options.set(option::VENDOR, asked.emit());
            servers.extend(options.servers_of(kind).iter().filter(|&&a| is_host(a)));
            list_only = options.controls(discovery::LIST_ONLY) || !servers.is_empty();
            broadcast = !list_only && !options.controls(discovery::NO_BROADCAST);
        }
        if servers.is_empty() && !broadcast {
            servers.push(guide.server);
            list_only = true;
        }
        servers.truncate(MAX_BOOT_SERVERS);
        BootServerInquiry {
            message,
            servers,
            broadcast,
            list_only,
        }
    }

    fn silence(&self) -> DhcpError {
        let discovers = self.discovers;
        let seconds = self.elapsed().secs();
        match self.proxies.first() {
            Some(proxy) => DhcpError::OnlyProxy {
                proxy: proxy.server,
                discovers,
                seconds,
            },
            None => DhcpError::NoAnswer {
                discovers,
                seconds,
                malformed: self.malformed,
            },
        }
    }
}

/// A question to PXE boot servers.
struct BootServerInquiry {
    message: Message,
    servers: Vec<Ipv4Addr>,
    broadcast: bool,
    /// Only the servers asked may answer.
    list_only: bool,
}

impl BootServerInquiry {
    /// Asks until one names a boot file: who it is, and the reply.
    async fn ask(&self, stack: &Stack, bootp: &Bootp) -> Option<(Ipv4Addr, Message)> {
        let question = self.message.emit();
        let socket = stack.udp();
        for wait in REQUEST_WAITS {
            if self.broadcast {
                bootp.broadcast(&question);
            }
            for &server in &self.servers {
                // A server that cannot be reached is one that does not answer.
                let _ = socket.send_to(SocketAddr::new(server.into(), PXE_PORT), &question);
            }
            let end = stack.now() + jittered(stack, wait);
            let answer = async {
                loop {
                    let (source, bytes) = either(bootp, &socket).await;
                    if let Ok(reply) = Message::parse(&bytes)
                        && is_for_us(&reply, stack, self.message.xid)
                        && reply.message_type() == Some(MessageType::Ack)
                        && (reply.boot_file().is_some() || reply.unreadable_boot_file().is_some())
                        && (!self.list_only || self.servers.contains(&source))
                    {
                        return (source, reply);
                    }
                }
            };
            let answer = stack.timeout(remaining(stack, end), answer).await;
            if answer.is_some() {
                return answer;
            }
        }
        None
    }
}

/// The next datagram: some boot servers answer to the port that asked, some to port 68.
async fn either(bootp: &Bootp, socket: &UdpSocket) -> (Ipv4Addr, Vec<u8>) {
    loop {
        let mut to_client_port = pin!(bootp.receive());
        let mut to_socket = pin!(socket.receive());
        let (source, bytes) = core::future::poll_fn(|context| {
            if let Poll::Ready((source, bytes)) = to_client_port.as_mut().poll(context) {
                return Poll::Ready((IpAddr::V4(source), bytes));
            }
            let datagram = to_socket.as_mut().poll(context);
            datagram.map(|(source, bytes)| (source.ip(), bytes))
        })
        .await;
        if let IpAddr::V4(source) = source {
            return (source, bytes);
        }
    }
}

fn is_for_us(message: &Message, stack: &Stack, xid: u32) -> bool {
    message.operation == Operation::Reply
        && message.xid == xid
        && message.mac() == Some(stack.mac())
}

/// Hardware type 1 and the address (RFC 2132 section 9.14), as operating systems say it: they then keep our address.
fn client_id(mac: [u8; 6]) -> [u8; 7] {
    let [a, b, c, d, e, f] = mac;
    [1, a, b, c, d, e, f]
}

fn remaining(stack: &Stack, end: Instant) -> Duration {
    let now = stack.now();
    if end > now { end - now } else { Duration::ZERO }
}

/// `seconds`, give or take a tenth, so that machines that were switched on together do not ask together.
fn jittered(stack: &Stack, seconds: u64) -> Duration {
    Duration::from_millis(seconds * (900 + stack.random() % 201))
}
