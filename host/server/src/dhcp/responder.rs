//! What to answer to a DHCP message: no socket, no clock of its own.
//!
//! What a client boots is `boot`'s choice: a URL for wireboot, iPXE and HTTP Boot, else the name of a file that comes by TFTP from siaddr.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wireboot_wire::dhcp::{
    BROADCAST_FLAG, CLIENT_PORT, Message, MessageType, Operation, PxeOptions, SERVER_PORT, option,
    pxe,
};
use wireboot_wire::text;

use crate::boot::{self, Boot, Machines};
use crate::boot_conf::BOOT_CONFIGURATION;
use crate::directory::Directory;
use crate::event::{Event, Kind};
use crate::interface::Networks;
use crate::leases::Lease;
use crate::other_servers::OtherServers;
use crate::pool::{Client, Pool};
use crate::ports::Port;

/// How long a client may use its address before it asks again.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(3600);
/// The hardware type (RFC 1700).
const ETHERNET: u8 = 1;
/// Bytes of the `file` field, its NUL included.
const FILE_FIELD: usize = 128;

/// What the answers are made of.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Address of this server.
    pub server: Ipv4Addr,
    /// Other addresses of this machine, which no client is given.
    pub own: Vec<Ipv4Addr>,
    /// Bits of the network's prefix.
    pub prefix: u8,
    /// Addresses to give; `None` for a proxyDHCP server, which gives none.
    pub range: Option<RangeInclusive<Ipv4Addr>>,
    /// Default gateway of the clients.
    pub router: Option<Ipv4Addr>,
    /// Name servers of the clients.
    pub dns: Vec<Ipv4Addr>,
    /// Where the boot files are.
    pub directory: Arc<Directory>,
    /// True when files can be had by TFTP.
    pub tftp: bool,
    /// `http://SERVER[:PORT]`, when there is an HTTP server.
    pub http: Option<String>,
}

/// Where a reply goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To an address that answers ARP.
    Unicast(SocketAddrV4),
    /// To 255.255.255.255, port 68.
    Broadcast,
    /// To a client that does not have this address yet: in a frame to its Ethernet address.
    Hardware([u8; 6], Ipv4Addr),
}

/// A reply to be sent.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Where the reply goes, by RFC 2131, section 4.1.
    pub destination: Destination,
    /// The DHCP message, not yet encoded.
    pub message: Message,
}

/// A DHCP or proxyDHCP server without its sockets.
#[derive(Debug)]
pub struct Responder {
    answers: Answers,
    pool: Option<Pool<Ipv4Addr>>,
    others: OtherServers,
    machines: Machines,
    /// Where answers are sent to; `None`: anywhere.
    networks: Option<Networks>,
}

/// What a client is known by: its hardware type and address.
fn client(hardware_type: u8, address: &[u8]) -> Client {
    [&[hardware_type], address].concat()
}

impl Responder {
    /// A server that answers so.
    pub fn new(answers: Answers) -> Self {
        let pool = answers
            .range
            .clone()
            .map(|range| Pool::new(range, excluded(&answers), LEASE_TIME));
        Self {
            answers,
            pool,
            others: OtherServers::default(),
            machines: Machines::default(),
            networks: None,
        }
    }

    /// With leases that were made before.
    pub(crate) fn with(mut self, leases: Vec<Lease<Ipv4Addr>>) -> Self {
        self.pool = self.pool.map(|pool| pool.with(leases));
        self
    }

    /// The leases that have begun or ended since the last call.
    pub(crate) fn changed(&mut self) -> Vec<Lease<Ipv4Addr>> {
        self.pool.as_mut().map(Pool::changed).unwrap_or_default()
    }

    /// Gives no addresses from when `others` has found another server that does.
    pub(crate) fn unless(mut self, others: OtherServers) -> Self {
        self.others = others;
        self
    }

    /// Sends no answer to an address beyond `networks`; `None`: to any.
    pub(crate) fn within(mut self, networks: Option<Networks>) -> Self {
        self.networks = networks;
        self
    }

    /// Somebody has `address`, whose Ethernet address is `mac`. True when nobody else is given it from now on.
    pub fn heard(&mut self, address: Ipv4Addr, mac: [u8; 6], now: Instant) -> bool {
        let client = client(ETHERNET, &mac);
        let pool = self.pool.as_mut();
        pool.is_some_and(|pool| pool.occupy(address, &client, now))
    }

    /// Whether it is a REQUEST to go on with an address of another network, sent from that address: a machine that was moved. It gets a NAK
    /// (RFC 2131 section 4.3.2).
    pub fn is_renewal_from_elsewhere(&self, datagram: &[u8], source: Ipv4Addr) -> bool {
        Message::parse(datagram).is_ok_and(|request| {
            request.message_type() == Some(MessageType::Request)
                && request.options.address(option::SERVER_ID).is_none()
                && request.giaddr.is_unspecified()
                && request.ciaddr == source
                && !self.is_on_network(source)
                && self.pool.is_some()
        })
    }

    /// The answer to a datagram that came from `source`, if there is one, and what there is to tell.
    pub fn answer(
        &mut self,
        datagram: &[u8],
        source: SocketAddrV4,
        port: Port,
        now: Instant,
    ) -> (Option<Reply>, Vec<Event>) {
        let Ok(request) = Message::parse(datagram) else {
            return (None, Vec::new());
        };
        let Some(kind) = request
            .message_type()
            .filter(|_| request.operation == Operation::Request)
        else {
            return (None, Vec::new());
        };
        let arrived = match kind {
            MessageType::Discover => Some(Kind::DhcpDiscover),
            MessageType::Request => Some(Kind::DhcpRequest),
            MessageType::Inform => Some(Kind::DhcpInform),
            MessageType::Decline => Some(Kind::DhcpDecline),
            MessageType::Release => Some(Kind::DhcpRelease),
            MessageType::Offer | MessageType::Ack | MessageType::Nak => None,
        };
        let Some(arrived) = arrived else {
            return (None, Vec::new());
        };
        if self.others.found() {
            self.pool = None;
        }
        let (boot, untold) = self.boot(&request, now);
        if self.pool.is_none() && boot == Boot::Nothing {
            return (None, Vec::new());
        }
        let arrived = Event::now(arrived, client_name(&request));
        let mut events = vec![arrived.message(describe(&request))];
        if let Some(untold) = untold {
            let event = Event::now(Kind::DhcpIgnored, client_name(&request));
            events.push(untold.told_by(event));
        }
        if let Some(beyond) = self.beyond(&request, kind, source, port) {
            let why = format!(
                "the answer would go to {beyond}, beyond this server's networks (--proxy --anyone sends it there)"
            );
            events.push(Event::now(Kind::DhcpIgnored, client_name(&request)).message(why));
            return (None, events);
        }
        let message = match (port, self.pool.is_some()) {
            (Port::Pxe, _) => self.boot_server_ack(&request, kind, &boot),
            (Port::Server, true) => self.server(&request, kind, &boot, now, &mut events),
            (Port::Server, false) => self.proxy(&request, kind, &boot),
        };
        let reply = message.map(|message| {
            events.push(sent(&message, &request));
            Reply {
                destination: destination(&request, &message, source, port),
                message,
            }
        });
        (reply, events)
    }

    /// The address that the answer would be sent to, if it is beyond the networks. The request alone tells it, and is easily forged.
    fn beyond(
        &self,
        request: &Message,
        kind: MessageType,
        source: SocketAddrV4,
        port: Port,
    ) -> Option<Ipv4Addr> {
        let networks = self.networks.as_ref()?;
        if port == Port::Pxe && !source.ip().is_unspecified() {
            return None;
        }
        // A machine that was moved and renews its old address is refused, and that is sent to all.
        let renews = port == Port::Server
            && kind == MessageType::Request
            && request.options.address(option::SERVER_ID).is_none();
        let client = (!renews).then_some(request.ciaddr);
        let mut named = [Some(request.giaddr), client].into_iter().flatten();
        let address = named.find(|address| !address.is_unspecified())?;
        (!networks.contain(address.into())).then_some(address)
    }

    /// RFC 2131 section 4.3.
    fn server(
        &mut self,
        request: &Message,
        kind: MessageType,
        boot: &Boot,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Option<Message> {
        if !request.giaddr.is_unspecified() && !self.is_on_network(request.giaddr) {
            let why = format!(
                "it comes from a relay at {}, in a network that this server has no addresses for",
                request.giaddr
            );
            events.push(Event::now(Kind::DhcpIgnored, client_name(request)).message(why));
            return None;
        }
        let client = client(request.hardware_type, &request.chaddr);
        let wish = request.options.address(option::REQUESTED_ADDRESS);
        let chosen_server = request.options.address(option::SERVER_ID);
        let for_me = chosen_server.is_none_or(|server| server == self.answers.server);
        // RFC 2131 section 4.3.2: who renews or rebinds says by `ciaddr` which address it uses.
        let renews = chosen_server.is_none() && !request.ciaddr.is_unspecified();
        let address = wish.filter(|_| !renews).unwrap_or(request.ciaddr);
        let is_here = self.is_on_network(address);
        let pool = self.pool.as_mut()?;
        match kind {
            MessageType::Discover => match pool.offer(&client, wish, now) {
                Some(address) => Some(self.reply(MessageType::Offer, request, Some(address), boot)),
                None => {
                    let why = "all addresses of the range are taken; give more with --range";
                    events.push(Event::now(Kind::DhcpIgnored, client_name(request)).message(why));
                    None
                }
            },
            MessageType::Request if !for_me => {
                self.others.named(Some(request));
                pool.release(&client, now);
                None
            }
            MessageType::Request => {
                let had = pool.had_by(&client);
                if (renews || had == Some(address)) && pool.lease(&client, address, now) {
                    return Some(self.reply(MessageType::Ack, request, Some(address), boot));
                }
                // Of an address that this server has not given to anybody, a client that it does not know may have a lease from elsewhere.
                // Nor has it asked whether that address is free: an offer is where it does.
                let unknown = chosen_server.is_none() && had.is_none() && is_here;
                if unknown && !(renews && pool.gives(address)) {
                    let why = format!("it was not given {address} here");
                    events.push(Event::now(Kind::DhcpIgnored, client_name(request)).message(why));
                    return None;
                }
                let mut nak = Message::reply(MessageType::Nak, request);
                if !request.giaddr.is_unspecified() {
                    // The relay is not to send it to an address that the client has not.
                    nak.flags |= BROADCAST_FLAG;
                }
                nak.options
                    .set_addresses(option::SERVER_ID, &[self.answers.server]);
                nak.options
                    .set(option::MESSAGE, format!("{address} is not to be had here"));
                Some(nak)
            }
            MessageType::Decline if for_me => {
                pool.decline(&client, wish?, now);
                None
            }
            MessageType::Release if for_me => {
                pool.release(&client, now);
                None
            }
            MessageType::Inform => Some(self.reply(MessageType::Ack, request, None, boot)),
            _ => None,
        }
    }

    /// PXE 2.1 section 2.2: beside a DHCP server, an offer without an address that says what to boot.
    fn proxy(&self, request: &Message, kind: MessageType, boot: &Boot) -> Option<Message> {
        let offers = kind == MessageType::Discover && matches!(boot, Boot::File(_));
        offers.then(|| self.reply(MessageType::Offer, request, None, boot))
    }

    fn boot_server_ack(
        &self,
        request: &Message,
        kind: MessageType,
        boot: &Boot,
    ) -> Option<Message> {
        let asked = matches!(kind, MessageType::Request | MessageType::Inform)
            && matches!(boot, Boot::File(_));
        asked.then(|| self.reply(MessageType::Ack, request, None, boot))
    }

    fn reply(
        &self,
        kind: MessageType,
        request: &Message,
        address: Option<Ipv4Addr>,
        boot: &Boot,
    ) -> Message {
        let answers = &self.answers;
        let mut reply = Message::reply(kind, request);
        // A client may know its boot file from elsewhere, and ask the server of the answer for it.
        reply.siaddr = answers.server;
        let options = &mut reply.options;
        options.set_addresses(option::SERVER_ID, &[answers.server]);
        if let Some(address) = address {
            reply.yiaddr = address;
            options.set(
                option::LEASE_TIME,
                (LEASE_TIME.as_secs() as u32).to_be_bytes(),
            );
        }
        if self.pool.is_some() {
            let mask = mask(answers.prefix);
            options.set(option::SUBNET_MASK, mask.to_be_bytes());
            options.set(
                option::BROADCAST,
                (u32::from(answers.server) | !mask).to_be_bytes(),
            );
            // No router that nobody named: this machine need not be one.
            if let Some(router) = answers.router {
                options.set_addresses(option::ROUTERS, &[router]);
            }
            if !answers.dns.is_empty() {
                options.set_addresses(option::DNS_SERVERS, &answers.dns);
            }
        }
        if let Some(machine) = request.options.get(option::MACHINE_ID) {
            options.set(option::MACHINE_ID, machine);
        }
        if let Boot::File(file) = boot {
            let server = answers.server.to_string();
            options.set(option::TFTP_SERVER, &server);
            options.set(option::BOOT_FILE, file);
            match request.options.text(option::VENDOR_CLASS) {
                Some(class) if class.starts_with("HTTPClient") => {
                    options.set(option::VENDOR_CLASS, "HTTPClient")
                }
                Some(class) if class.starts_with("PXEClient") => {
                    options.set(option::VENDOR_CLASS, "PXEClient");
                    let at_once = PxeOptions {
                        discovery_control: Some(pxe::discovery::USE_BOOT_FILE),
                        ..PxeOptions::default()
                    };
                    options.set(option::VENDOR, at_once.emit());
                }
                _ => {}
            }
            reply.sname = server.into_bytes();
            if file.len() < FILE_FIELD {
                reply.file = file.clone().into_bytes();
            }
        }
        reply
    }

    fn boot(&mut self, request: &Message, now: Instant) -> (Boot, Option<boot::Untold>) {
        let options = &request.options;
        let answers = &self.answers;
        let http = answers.http.as_ref().map(|http| format!("{http}/"));
        let tftp = || format!("tftp://{}/", answers.server);
        let url = http.clone().unwrap_or_else(tftp);
        let urls = boot::FileUrls {
            configuration: format!("{url}{BOOT_CONFIGURATION}"),
            http,
            tftp: answers.tftp.then(String::new),
            url,
        };
        let client = boot::Client {
            user_classes: options.user_classes(),
            vendor_class: options.text(option::VENDOR_CLASS).unwrap_or_default(),
            architectures: options.architectures(),
            has_ipxe_options: options.get(option::IPXE).is_some(),
        };
        let directory = &answers.directory;
        self.machines
            .boots(&request.chaddr, &client, urls, directory, now)
    }

    /// Whether it is an address of this machine.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        let Answers { server, own, .. } = &self.answers;
        address == *server || own.contains(&address)
    }

    fn is_on_network(&self, address: Ipv4Addr) -> bool {
        let network = |address: Ipv4Addr| u32::from(address) & mask(self.answers.prefix);
        network(address) == network(self.answers.server)
    }
}

/// What no client is given, even of the range: the addresses of machines that do not ask here, and those that no machine has.
fn excluded(answers: &Answers) -> BTreeSet<Ipv4Addr> {
    let (server, mask) = (u32::from(answers.server), mask(answers.prefix));
    // The network's and the broadcast address. RFC 3021: a network of two addresses has neither.
    let no_machine = (answers.prefix < 31).then_some([server & mask, server | !mask]);
    let no_machine = no_machine.into_iter().flatten().map(Ipv4Addr::from);
    let others = answers.own.iter().chain(&answers.dns).copied();
    let named = [answers.server].into_iter().chain(answers.router);
    named.chain(others).chain(no_machine).collect()
}

fn mask(prefix: u8) -> u32 {
    u32::MAX
        .checked_shl(32 - u32::from(prefix.min(32)))
        .unwrap_or(0)
}

/// RFC 2131 section 4.1.
fn destination(
    request: &Message,
    reply: &Message,
    source: SocketAddrV4,
    port: Port,
) -> Destination {
    if port == Port::Pxe && !source.ip().is_unspecified() {
        return Destination::Unicast(source);
    }
    if !request.giaddr.is_unspecified() {
        return Destination::Unicast(SocketAddrV4::new(request.giaddr, SERVER_PORT));
    }
    if reply.message_type() == Some(MessageType::Nak) {
        return Destination::Broadcast;
    }
    if !request.ciaddr.is_unspecified() {
        return Destination::Unicast(SocketAddrV4::new(request.ciaddr, CLIENT_PORT));
    }
    match request.mac() {
        Some(mac) if !request.wants_broadcast() && !reply.yiaddr.is_unspecified() => {
            Destination::Hardware(mac, reply.yiaddr)
        }
        _ => Destination::Broadcast,
    }
}

fn sent(reply: &Message, request: &Message) -> Event {
    let kind = match reply.message_type() {
        Some(MessageType::Offer) => Kind::DhcpOffer,
        Some(MessageType::Nak) => Kind::DhcpNak,
        _ => Kind::DhcpAck,
    };
    let mut event = Event::now(kind, client_name(request));
    if !reply.yiaddr.is_unspecified() {
        event = event.address(reply.yiaddr);
    }
    match (reply.boot_file(), reply.message()) {
        (Some(file), _) => event.message(format!("boot file {file}")),
        (None, Some(message)) => event.message(message),
        (None, None) => event,
    }
}

/// The client's hardware address as people write it.
fn client_name(message: &Message) -> String {
    hardware_address(&message.chaddr)
}

/// The bytes as people write an address: `52:54:00:12:34:56`.
pub(crate) fn hardware_address(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// The client, as lines in the log name it.
fn describe(request: &Message) -> String {
    let class = request
        .options
        .text(option::VENDOR_CLASS)
        .unwrap_or("no vendor class");
    let users: Vec<String> = request
        .options
        .user_classes()
        .into_iter()
        .map(text::shown)
        .collect();
    if users.is_empty() {
        class.to_owned()
    } else {
        format!("{class}, user class {}", users.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Events;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
    #[test]
    fn an_ethernet_address_is_shown_as_everywhere() {
        assert_eq!(
            hardware_address(&[0x52, 0x54, 0, 0x0a, 0xff, 1]),
            "52:54:00:0a:ff:01"
        );
        assert_eq!(hardware_address(&[]), "");
    }

    const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);

    fn answers(proxy: bool) -> Answers {
        Answers {
            server: SERVER,
            own: vec![],
            prefix: 24,
            range: (!proxy).then(|| Ipv4Addr::new(10, 0, 0, 100)..=Ipv4Addr::new(10, 0, 0, 199)),
            router: None,
            dns: vec![],
            directory: nothing(),
            tftp: true,
            http: Some("http://10.0.0.1".to_owned()),
        }
    }

    /// A directory that holds no boot file.
    fn nothing() -> Arc<Directory> {
        Arc::new(Directory::open(std::path::Path::new("/sys/class"), None).unwrap())
    }

    fn firmware(kind: MessageType, class: &str, architecture: u16) -> Message {
        let mut message = Message::request(kind, 77, MAC);
        message.options.set(option::VENDOR_CLASS, class);
        message
            .options
            .set(option::ARCHITECTURE, architecture.to_be_bytes());
        message
    }

    fn pxe(kind: MessageType) -> Message {
        firmware(kind, "PXEClient:Arch:00007:UNDI:003000", 7)
    }

    fn ask(responder: &mut Responder, request: &Message) -> Option<Reply> {
        responder
            .answer(&request.emit(), NOWHERE, Port::Server, Instant::now())
            .0
    }

    fn boot_file(request: &Message) -> Option<String> {
        let reply = ask(&mut Responder::new(answers(false)), request).unwrap();
        reply.message.boot_file().map(str::to_owned)
    }

    #[test]
    fn firmware_gets_address_and_boot_program_at_once() {
        let mut responder = Responder::new(answers(false));
        let mut discover = pxe(MessageType::Discover);
        discover.options.set(option::MACHINE_ID, [0; 17]);
        let reply = ask(&mut responder, &discover).unwrap();
        let offer = reply.message;
        assert_eq!(reply.destination, Destination::Hardware(MAC, offer.yiaddr));
        assert_eq!(offer.message_type(), Some(MessageType::Offer));
        assert_eq!(
            (offer.xid, offer.siaddr, offer.file.as_slice()),
            (77, SERVER, b"wireboot.efi".as_slice())
        );
        let options = &offer.options;
        assert_eq!(options.address(option::SERVER_ID), Some(SERVER));
        assert_eq!(options.prefix(), Some(24));
        assert_eq!(options.u32(option::LEASE_TIME), Some(3600));
        assert_eq!(options.text(option::VENDOR_CLASS), Some("PXEClient"));
        assert_eq!(options.text(option::TFTP_SERVER), Some("10.0.0.1"));
        assert_eq!(options.get(option::VENDOR), Some([6, 1, 8, 255].as_slice()));
        assert_eq!(options.machine_id(), Some([0; 16]));
        assert!(options.addresses(option::ROUTERS).is_empty());

        let mut request = pxe(MessageType::Request);
        request.options.set_addresses(option::SERVER_ID, &[SERVER]);
        request
            .options
            .set_addresses(option::REQUESTED_ADDRESS, &[offer.yiaddr]);
        let ack = ask(&mut responder, &request).unwrap().message;
        assert_eq!(
            (ack.message_type(), ack.yiaddr),
            (Some(MessageType::Ack), offer.yiaddr)
        );
        assert_eq!(ack.boot_file(), Some("wireboot.efi"));
    }

    #[test]
    fn each_kind_of_client_gets_its_boot_file() {
        let discover = MessageType::Discover;
        let http = firmware(discover, "HTTPClient:Arch:00016:UNDI:003000", 16);
        assert_eq!(
            boot_file(&http).as_deref(),
            Some("http://10.0.0.1/wireboot.efi")
        );
        let offer = ask(&mut Responder::new(answers(false)), &http)
            .unwrap()
            .message;
        assert_eq!(offer.options.text(option::VENDOR_CLASS), Some("HTTPClient"));
        assert_eq!(offer.options.get(option::VENDOR), None);
        for class in [b"wireboot".as_slice(), b"\x08wireboot"] {
            let mut wireboot = pxe(discover);
            wireboot.options.set(option::USER_CLASS, class);
            assert_eq!(
                boot_file(&wireboot).as_deref(),
                Some("http://10.0.0.1/wireboot.conf")
            );
        }
        assert_eq!(
            boot_file(&firmware(discover, "PXEClient", 9)).as_deref(),
            Some("wireboot.efi")
        );
        for (class, architecture) in [
            ("PXEClient", 0),
            ("PXEClient", 11),
            ("HTTPClient", 19),
            ("dhcpcd", 7),
        ] {
            assert_eq!(
                boot_file(&firmware(discover, class, architecture)),
                None,
                "{class} {architecture}"
            );
        }
        assert_eq!(boot_file(&Message::request(discover, 1, MAC)), None);
    }

    #[test]
    fn a_machine_that_cannot_be_served_is_told_of_once() {
        let discover = firmware(MessageType::Discover, "PXEClient:Arch:00000", 0);
        let mut responder = Responder::new(answers(false));
        for told in [true, false] {
            let (reply, events) =
                responder.answer(&discover.emit(), NOWHERE, Port::Server, Instant::now());
            let reply = reply.unwrap().message;
            assert!(!reply.yiaddr.is_unspecified(), "it gets an address");
            assert_eq!((reply.boot_file(), reply.siaddr), (None, SERVER));
            let mut events = events.iter();
            let why = events.find(|event| event.event == Kind::DhcpIgnored);
            let words = why.and_then(|event| event.message.as_deref());
            assert_eq!(words.is_some_and(|why| why.contains("pxelinux.0")), told);
            if let Some(why) = why {
                Events::default().record(why.clone());
            }
        }
    }

    #[test]
    fn what_the_directory_holds_is_for_those_who_can_run_it() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["lpxelinux.0", "grubaa64.efi", "boot.ipxe"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let directory = Arc::new(Directory::open(folder.path(), None).unwrap());
        let mut responder = Responder::new(Answers {
            directory,
            ..answers(false)
        });
        let mut ipxe = firmware(MessageType::Discover, "PXEClient:Arch:00000", 0);
        ipxe.options.set(option::IPXE, [1, 1, 0]);
        let script = "http://10.0.0.1/boot.ipxe";
        for (discover, expected) in [
            (
                firmware(MessageType::Discover, "PXEClient", 0),
                "lpxelinux.0",
            ),
            (
                firmware(MessageType::Discover, "PXEClient", 11),
                "grubaa64.efi",
            ),
            (ipxe, script),
        ] {
            let offer = ask(&mut responder, &discover).unwrap().message;
            assert_eq!((offer.boot_file(), offer.siaddr), (Some(expected), SERVER));
            assert_eq!(offer.options.text(option::BOOT_FILE), Some(expected));
        }
    }

    #[test]
    fn wrong_requests_are_refused() {
        let mut responder = Responder::new(answers(false));
        let request = |address: [u8; 4], server: Option<Ipv4Addr>| {
            let mut request = pxe(MessageType::Request);
            request.options.set(option::REQUESTED_ADDRESS, address);
            if let Some(server) = server {
                request.options.set_addresses(option::SERVER_ID, &[server]);
            }
            request
        };
        let foreign = [192, 168, 1, 5];
        for (wrong, server) in [
            (foreign, None),
            ([0, 0, 0, 0], None),
            (foreign, Some(SERVER)),
            ([10, 0, 0, 1], Some(SERVER)),
            ([10, 0, 0, 99], Some(SERVER)),
            // In the range, but not offered.
            ([10, 0, 0, 150], Some(SERVER)),
        ] {
            let reply = ask(&mut responder, &request(wrong, server)).unwrap();
            assert_eq!(reply.message.message_type(), Some(MessageType::Nak));
            assert_eq!(reply.destination, Destination::Broadcast);
            assert!(reply.message.yiaddr.is_unspecified());
        }
        // RFC 2131 section 4.1: also to a client that has an address, which may be of another network.
        for mac in [MAC, [2, 0, 0, 0, 0, 8]] {
            let mut renewal = Message::request(MessageType::Request, 1, mac);
            renewal.ciaddr = Ipv4Addr::new(192, 168, 1, 5);
            let reply = ask(&mut responder, &renewal).unwrap();
            assert_eq!(reply.message.message_type(), Some(MessageType::Nak));
            assert_eq!(reply.destination, Destination::Broadcast);
        }
        let other = Some(Ipv4Addr::new(10, 0, 0, 2));
        assert!(ask(&mut responder, &request([10, 0, 0, 100], other)).is_none());
    }

    /// RFC 2131 section 4.3.2: to a client that it does not know and that asks for an address which it had once, the server says nothing.
    #[test]
    fn an_address_is_given_to_whom_it_was_offered() {
        let mut responder = Responder::new(answers(false));
        let mut request = pxe(MessageType::Request);
        let wished = Ipv4Addr::new(10, 0, 0, 150);
        let wish = |message: &mut Message, address| {
            let options = &mut message.options;
            options.set_addresses(option::REQUESTED_ADDRESS, &[address]);
        };
        wish(&mut request, wished);
        assert!(ask(&mut responder, &request).is_none());
        let mut discover = pxe(MessageType::Discover);
        wish(&mut discover, wished);
        let offer = ask(&mut responder, &discover).unwrap().message;
        assert_eq!(offer.yiaddr, wished);
        let reply = ask(&mut responder, &request).unwrap();
        assert_eq!(reply.message.message_type(), Some(MessageType::Ack));
        wish(&mut request, Ipv4Addr::new(10, 0, 0, 151));
        request.giaddr = Ipv4Addr::new(10, 0, 0, 9);
        let reply = ask(&mut responder, &request).unwrap().message;
        assert_eq!(reply.message_type(), Some(MessageType::Nak));
        assert!(
            reply.wants_broadcast(),
            "RFC 2131 section 4.3.2, behind a relay"
        );
    }

    /// Who renews uses the address: it gets it unless somebody else has it.
    #[test]
    fn a_renewal_is_acknowledged_whether_its_lease_is_known_or_not() {
        let mut responder = Responder::new(answers(false));
        let mut renewed = |mac: u8, last: u8| {
            let mut renewal = Message::request(MessageType::Request, 1, [2, 0, 0, 0, 0, mac]);
            renewal.ciaddr = Ipv4Addr::new(10, 0, 0, last);
            let reply = ask(&mut responder, &renewal);
            reply.and_then(|reply| reply.message.message_type())
        };
        let (ack, nak) = (Some(MessageType::Ack), Some(MessageType::Nak));
        for (mac, last, answer) in [
            (1, 150, ack),
            (1, 150, ack),
            // It has moved to another, which is free.
            (1, 151, ack),
            (2, 151, nak),
            (2, 150, ack),
            // Beyond the range: perhaps another server's.
            (3, 250, None),
            (2, 250, nak),
        ] {
            assert_eq!(renewed(mac, last), answer, "{mac} {last}");
        }
        // It names this server, so it renews nothing.
        let mut request = pxe(MessageType::Request);
        request.ciaddr = Ipv4Addr::new(10, 0, 0, 160);
        request.options.set_addresses(option::SERVER_ID, &[SERVER]);
        let reply = ask(&mut responder, &request).unwrap().message;
        assert_eq!(reply.message_type(), nak);
    }

    #[test]
    fn inform_gets_no_address_and_renewal_goes_to_the_client() {
        let mut responder = Responder::new(answers(false));
        let mut inform = pxe(MessageType::Inform);
        inform.ciaddr = Ipv4Addr::new(10, 0, 0, 5);
        let reply = ask(&mut responder, &inform).unwrap();
        assert_eq!(
            reply.destination,
            Destination::Unicast(SocketAddrV4::new(inform.ciaddr, 68))
        );
        assert!(reply.message.yiaddr.is_unspecified());
        assert_eq!(reply.message.options.u32(option::LEASE_TIME), None);
        // After a restart, when its lease is forgotten, too.
        let mut renewal = pxe(MessageType::Request);
        renewal.ciaddr = Ipv4Addr::new(10, 0, 0, 105);
        let reply = ask(&mut responder, &renewal).unwrap();
        assert_eq!(
            reply.destination,
            Destination::Unicast(SocketAddrV4::new(renewal.ciaddr, 68))
        );
        assert_eq!(reply.message.yiaddr, renewal.ciaddr);
    }

    #[test]
    fn broadcast_when_the_client_says_so_and_relays_get_theirs() {
        let mut discover = pxe(MessageType::Discover);
        discover.flags = 0x8000;
        let reply = ask(&mut Responder::new(answers(false)), &discover).unwrap();
        assert_eq!(reply.destination, Destination::Broadcast);
        discover.giaddr = Ipv4Addr::new(10, 0, 0, 9);
        let reply = ask(&mut Responder::new(answers(false)), &discover).unwrap();
        assert_eq!(
            reply.destination,
            Destination::Unicast(SocketAddrV4::new(discover.giaddr, 67))
        );
        discover.giaddr = Ipv4Addr::new(10, 7, 0, 9);
        assert!(ask(&mut Responder::new(answers(false)), &discover).is_none());
    }

    #[test]
    fn no_answer_is_sent_beyond_the_networks() {
        let networks = || Some(Networks::from(vec![(SERVER.into(), 24)]));
        let answered = |proxy, request: &Message, port, networks| {
            let mut responder = Responder::new(answers(proxy)).within(networks);
            let answer = responder.answer(&request.emit(), NOWHERE, port, Instant::now());
            answer.0.is_some()
        };
        let relayed = |giaddr| Message {
            giaddr,
            ..pxe(MessageType::Discover)
        };
        let informed = |ciaddr| Message {
            ciaddr,
            ..pxe(MessageType::Inform)
        };
        let here = Ipv4Addr::new(10, 0, 0, 9);
        let beyond = Ipv4Addr::new(198, 51, 100, 9);
        type Naming<'a> = &'a dyn Fn(Ipv4Addr) -> Message;
        let cases: [(bool, Naming<'_>, Port); 3] = [
            (true, &relayed, Port::Server),
            (false, &informed, Port::Server),
            // From 0.0.0.0, so not to the source.
            (true, &informed, Port::Pxe),
        ];
        for (n, (proxy, request, port)) in cases.into_iter().enumerate() {
            let to = |address, networks| answered(proxy, &request(address), port, networks);
            assert!(to(here, networks()), "case {n}");
            assert!(!to(beyond, networks()), "case {n}");
            assert!(to(beyond, None), "case {n}: with --anyone");
        }
        // Who names this server does not renew: it would be acknowledged.
        let mut responder = Responder::new(answers(false)).within(networks());
        let offer = ask(&mut responder, &pxe(MessageType::Discover)).unwrap();
        let mut request = pxe(MessageType::Request);
        let options = &mut request.options;
        options.set_addresses(option::SERVER_ID, &[SERVER]);
        options.set_addresses(option::REQUESTED_ADDRESS, &[offer.message.yiaddr]);
        request.ciaddr = beyond;
        assert!(ask(&mut responder, &request).is_none());
        // A machine that was moved is told.
        let mut renewal = Message::request(MessageType::Request, 1, MAC);
        renewal.ciaddr = beyond;
        let reply = ask(&mut responder, &renewal).unwrap();
        assert_eq!(reply.message.message_type(), Some(MessageType::Nak));
        assert_eq!(reply.destination, Destination::Broadcast);
        // Port 4011 answers the source, which was looked at before.
        let mut proxy = Responder::new(answers(true)).within(networks());
        request.options = pxe(MessageType::Request).options;
        let source = SocketAddrV4::new(here, 4011);
        let (reply, _) = proxy.answer(&request.emit(), source, Port::Pxe, Instant::now());
        assert_eq!(reply.unwrap().destination, Destination::Unicast(source));
    }

    #[test]
    fn a_proxy_offers_boot_files_and_never_an_address() {
        let mut proxy = Responder::new(answers(true));
        let offer = ask(&mut proxy, &pxe(MessageType::Discover)).unwrap();
        assert_eq!(offer.destination, Destination::Broadcast);
        let offer = offer.message;
        assert!(offer.yiaddr.is_unspecified());
        assert_eq!(
            (offer.boot_file(), offer.siaddr),
            (Some("wireboot.efi"), SERVER)
        );
        for absent in [option::SUBNET_MASK, option::LEASE_TIME, option::ROUTERS] {
            assert_eq!(offer.options.get(absent), None);
        }
        assert!(ask(&mut proxy, &Message::request(MessageType::Discover, 1, MAC)).is_none());
        assert!(ask(&mut proxy, &firmware(MessageType::Discover, "PXEClient", 0)).is_none());
        assert!(
            ask(&mut proxy, &pxe(MessageType::Request)).is_none(),
            "that is the DHCP server's"
        );

        let mut request = pxe(MessageType::Request);
        request.ciaddr = Ipv4Addr::new(10, 0, 0, 50);
        let source = SocketAddrV4::new(request.ciaddr, 4011);
        let (reply, _) = proxy.answer(&request.emit(), source, Port::Pxe, Instant::now());
        let reply = reply.unwrap();
        assert_eq!(reply.destination, Destination::Unicast(source));
        assert_eq!(reply.message.message_type(), Some(MessageType::Ack));
        assert_eq!(reply.message.boot_file(), Some("wireboot.efi"));
    }

    #[test]
    fn a_client_that_takes_another_servers_address_is_a_sign_of_one() {
        let others = OtherServers::default();
        let mut responder = Responder::new(answers(false)).unless(others.clone());
        let heard = || others.is_time(Duration::from_secs(60));
        let mut request = firmware(MessageType::Request, "PXEClient", 7);
        let mut ask = |request: &Message| {
            let answer = responder.answer(&request.emit(), NOWHERE, Port::Server, Instant::now());
            answer.0.map(|reply| reply.message)
        };
        request.options.set_addresses(option::SERVER_ID, &[SERVER]);
        let _ = ask(&request);
        assert!(!heard());
        let another = Ipv4Addr::new(10, 0, 0, 2);
        request.options.set_addresses(option::SERVER_ID, &[another]);
        assert!(ask(&request).is_none());
        assert!(heard());
        let named = others.take_request().unwrap();
        assert_eq!(named.mac(), Some(MAC));

        let discover = firmware(MessageType::Discover, "PXEClient", 7);
        assert!(!ask(&discover).unwrap().yiaddr.is_unspecified());
        others.find();
        let offer = ask(&discover).unwrap();
        assert!(offer.yiaddr.is_unspecified());
        assert_eq!(offer.boot_file(), Some("wireboot.efi"));
        let other_system = Message::request(MessageType::Discover, 78, MAC);
        assert!(ask(&other_system).is_none());
    }

    #[test]
    fn an_address_that_answers_arp_is_given_to_nobody_else() {
        let mut responder = Responder::new(answers(false));
        let now = Instant::now();
        let ask = |responder: &mut Responder, request: &Message| {
            let answer = responder.answer(&request.emit(), NOWHERE, Port::Server, now);
            answer.0.unwrap().message
        };
        let discover = Message::request(MessageType::Discover, 78, MAC);
        let offered = ask(&mut responder, &discover).yiaddr;
        // The client itself, which has it from before.
        assert!(!responder.heard(offered, MAC, now));
        assert!(responder.heard(offered, [2, 0, 0, 0, 0, 8], now));
        let mut request = Message::request(MessageType::Request, 78, MAC);
        request.options.set_addresses(option::SERVER_ID, &[SERVER]);
        request
            .options
            .set_addresses(option::REQUESTED_ADDRESS, &[offered]);
        let answer = ask(&mut responder, &request);
        assert_eq!(answer.message_type(), Some(MessageType::Nak));
        assert_ne!(ask(&mut responder, &discover).yiaddr, offered);
    }

    /// The addresses that machines are offered, one each.
    fn offered(answers: Answers) -> Vec<Ipv4Addr> {
        let mut responder = Responder::new(answers);
        let offers = (0..9).filter_map(|mac| {
            let discover = Message::request(MessageType::Discover, 1, [2, 0, 0, 0, 0, mac]);
            ask(&mut responder, &discover)
        });
        let mut offered: Vec<_> = offers.map(|offer| offer.message.yiaddr).collect();
        offered.sort();
        offered
    }

    #[test]
    fn what_others_have_or_nobody_can_have_is_offered_to_nobody() {
        let at = |last| Ipv4Addr::new(10, 0, 0, last);
        let two = |first| Answers {
            range: Some(at(first)..=at(first + 1)),
            ..answers(false)
        };
        assert_eq!(offered(two(100)), [at(100), at(101)]);
        let own = Answers {
            own: vec![SERVER, at(100)],
            ..two(100)
        };
        assert_eq!(offered(own), [at(101)]);
        let router = Answers {
            router: Some(at(101)),
            ..two(100)
        };
        assert_eq!(offered(router), [at(100)]);
        let dns = Answers {
            dns: vec![at(100), at(53)],
            ..two(100)
        };
        assert_eq!(offered(dns), [at(101)]);
        assert_eq!(offered(two(254)), [at(254)], "the broadcast address");
        let none = offered(two(0));
        assert!(none.is_empty(), "the network's and the server's: {none:?}");
        let of_two = Answers {
            prefix: 31,
            ..two(0)
        };
        assert_eq!(offered(of_two), [at(0)], "the broadcast address of none");
    }

    #[test]
    fn a_declined_address_is_not_offered_again() {
        let mut responder = Responder::new(answers(false));
        let offered = ask(&mut responder, &pxe(MessageType::Discover))
            .unwrap()
            .message
            .yiaddr;
        let mut decline = pxe(MessageType::Decline);
        decline.options.set_addresses(option::SERVER_ID, &[SERVER]);
        decline
            .options
            .set_addresses(option::REQUESTED_ADDRESS, &[offered]);
        assert!(ask(&mut responder, &decline).is_none());
        let next = ask(&mut responder, &pxe(MessageType::Discover))
            .unwrap()
            .message
            .yiaddr;
        assert_ne!(offered, next);
    }
}
