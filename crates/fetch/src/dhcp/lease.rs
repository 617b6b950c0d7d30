//! What DHCP gives a machine that boots. The firmware or this program asked for it.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_net::{Ipv4Addr, Ipv4Cidr, Ipv4Config};
use wireboot_wire::dhcp::{Message, MessageType, Operation, option};

use super::DhcpError;
use crate::dhcp_request::LeaseSource;

/// An address and all that came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Our address and the prefix of the link.
    pub address: Ipv4Cidr,
    /// Default gateway (option 3, or the default route in option 121).
    pub router: Option<Ipv4Addr>,
    /// Other routes (option 121): destination, and gateway or 0.0.0.0 for what is on the link. Of option 3, the other gateways of all
    /// destinations.
    pub routes: Vec<(Ipv4Cidr, Ipv4Addr)>,
    /// Name servers, the preferred one first.
    pub dns: Vec<Ipv4Addr>,
    /// Domains to try for names without a dot (option 119, else 15).
    pub search: Vec<String>,
    /// MTU of the network in bytes (option 26).
    pub mtu: Option<u16>,
    /// The DHCP server (option 54).
    pub server: Option<Ipv4Addr>,
    /// The server that `boot_file` is on: `siaddr`, else option 66 or `sname` if that is an address, else the server that
    /// named the file.
    pub next_server: Option<Ipv4Addr>,
    /// That server as a host name, where option 66 or `sname` gives one and `siaddr` is not set. `next_server` is
    /// `None` then.
    pub next_server_name: Option<String>,
    /// Boot file: a path on the next server, or a URL.
    pub boot_file: Option<String>,
    /// What is named as boot file and is not text, where nobody names another. U+FFFD stands for what is not.
    pub unreadable_boot_file: Option<String>,
    /// Vendor-specific information (option 43) of whoever named the boot file.
    pub vendor: Option<Vec<u8>>,
    /// Where all this comes from.
    pub source: LeaseSource,
    /// The server's acknowledgement, BOOTP header first; empty where there was none.
    pub ack: Vec<u8>,
    /// What this program has sent first; empty where it is the firmware's lease.
    pub discover: Vec<u8>,
    /// A proxy's offer; empty where there was none, or the firmware's.
    pub proxy_offer: Vec<u8>,
}

impl Lease {
    /// An address and nothing else.
    #[must_use]
    pub fn new(address: Ipv4Cidr, source: LeaseSource) -> Self {
        Self {
            address,
            router: None,
            routes: Vec::new(),
            dns: Vec::new(),
            search: Vec::new(),
            mtu: None,
            server: None,
            next_server: None,
            next_server_name: None,
            boot_file: None,
            unreadable_boot_file: None,
            vendor: None,
            source,
            ack: Vec::new(),
            discover: Vec::new(),
            proxy_offer: Vec::new(),
        }
    }

    /// The lease that firmware holds, from the BOOTP messages of its PXE base code (EFI_PXE_BASE_CODE_MODE
    /// `DhcpAck`, `ProxyOffer` and `PxeReply`). The last two are passed only when their `...Received` flags are set.
    ///
    /// The boot file is that of the last step of PXE that named one: the boot server, the proxy, the DHCP server.
    ///
    /// # Errors
    /// [`DhcpError::Malformed`] or [`DhcpError::NoAddress`] when `ack` does not hold a lease. A damaged `proxy` or
    /// `pxe_reply` is passed over: the lease is of use without it.
    pub fn from_packets(
        ack: &[u8],
        proxy: Option<&[u8]>,
        pxe_reply: Option<&[u8]>,
    ) -> Result<Self, DhcpError> {
        let ack = Message::parse(ack)?;
        // A plain BOOTP server sends no message type.
        if !matches!(ack.message_type(), None | Some(MessageType::Ack)) {
            return Err(DhcpError::NoAddress);
        }
        let mut lease = Self::from_ack(&ack, LeaseSource::Firmware).ok_or(DhcpError::NoAddress)?;
        let guide = [pxe_reply, proxy]
            .into_iter()
            .flatten()
            .filter_map(|packet| Message::parse(packet).ok())
            .find(|message| message.operation == Operation::Reply && message.boot_file().is_some());
        lease.set_boot_file(guide.as_ref().unwrap_or(&ack), None);
        Ok(lease)
    }

    /// The lease, without a boot file; `None` if the message gives no address that a host can have.
    pub(super) fn from_ack(ack: &Message, source: LeaseSource) -> Option<Self> {
        if ack.operation != Operation::Reply {
            return None;
        }
        let address = host_address(ack)?;
        let options = &ack.options;
        let mut routes = Vec::new();
        let mut router = None;
        match options.classless_routes() {
            // RFC 3442: these replace the router option.
            Some(classless) => {
                for route in classless {
                    let has_router = is_host(route.router);
                    if has_router && route.prefix == 0 && router.is_none() {
                        router = Some(route.router);
                    } else if has_router || route.router.is_unspecified() {
                        routes.push((Ipv4Cidr::new(route.destination, route.prefix), route.router));
                    }
                }
            }
            None => {
                let routers = options.addresses(option::ROUTERS).into_iter();
                let mut routers = routers.filter(|&a| is_host(a));
                router = routers.next();
                let everywhere = Ipv4Cidr::new(Ipv4Addr::UNSPECIFIED, 0);
                routes.extend(routers.map(|other| (everywhere, other)));
            }
        }
        let search = options
            .domain_search()
            .filter(|list| !list.is_empty())
            .or_else(|| Some(alloc::vec![options.text(option::DOMAIN_NAME)?.to_owned()]))
            .unwrap_or_default();
        let mut dns = options.addresses(option::DNS_SERVERS);
        dns.retain(|&a| is_host(a));
        Some(Self {
            router,
            routes,
            dns,
            search,
            mtu: options.mtu(),
            server: options.address(option::SERVER_ID),
            ack: ack.emit(),
            ..Self::new(address, source)
        })
    }

    /// Takes the boot file and its server from `message`, which came from `sender`.
    pub(super) fn set_boot_file(&mut self, message: &Message, sender: Option<Ipv4Addr>) {
        self.unreadable_boot_file = message.unreadable_boot_file();
        let Some(file) = message.boot_file() else {
            return;
        };
        self.boot_file = Some(file.to_owned());
        self.vendor = message.options.get(option::VENDOR).map(<[u8]>::to_vec);
        let name = message.boot_server_name();
        let literal = || name.and_then(|name| name.parse().ok());
        self.next_server = Some(message.siaddr)
            .filter(|&a| is_host(a))
            .or_else(literal);
        self.next_server_name = None;
        if self.next_server.is_none() {
            self.next_server_name = name.map(ToOwned::to_owned);
            if name.is_none() {
                self.next_server = message.options.address(option::SERVER_ID).or(sender);
            }
        }
    }

    /// The lease as the engine's configuration.
    pub fn ipv4_config(&self) -> Ipv4Config {
        Ipv4Config {
            address: self.address,
            router: self.router,
            routes: self.routes.clone(),
            mtu: self.mtu,
        }
    }
}

/// True for an address that one host can have.
pub(crate) fn is_host(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    // Networks 0 and 127, multicast, class E and broadcast are for other purposes (RFC 6890).
    first != 0 && first != 127 && first < 224
}

/// `yiaddr` and its prefix, if a host can have it there.
pub(super) fn host_address(message: &Message) -> Option<Ipv4Cidr> {
    let address = Some(message.yiaddr).filter(|&a| is_host(a))?;
    // Without a mask, or with one that says nothing, the classes of RFC 791 are what is left.
    let prefix = message
        .options
        .prefix()
        .filter(|&p| p > 0)
        .unwrap_or_else(|| match address.octets()[0] {
            ..128 => 8,
            128..192 => 16,
            _ => 24,
        });
    let host_bits = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let host = u32::from(address) & host_bits;
    // The network's own and its broadcast address belong to no host; links of two hosts have neither (RFC 3021).
    (prefix >= 31 || (host != 0 && host != host_bits)).then(|| Ipv4Cidr::new(address, prefix))
}
