//! What DHCPv6 gives a machine that boots. The firmware or this program asked for it.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use wireboot_net::Stack;
use wireboot_wire::dhcpv6::option::{self, Options};
use wireboot_wire::dhcpv6::{Message, MessageType, ParseError, StatusCode};

use crate::dhcp_request::LeaseSource;

/// Addresses and servers kept of one message.
const MOST: usize = 8;

/// Addresses and all that came with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease6 {
    /// Our addresses: those that the server gave, else those of the routers' prefixes. Never none after
    /// [`discover`](super::discover).
    pub addresses: Vec<Ipv6Addr>,
    /// Name servers, the preferred one first (option 23).
    pub dns: Vec<Ipv6Addr>,
    /// Domains to try for names without a dot (option 24).
    pub search: Vec<String>,
    /// URL of the boot file (option 59).
    pub boot_file: Option<String>,
    /// What stands in its place and is not text. U+FFFD stands for what is not.
    pub unreadable_boot_file: Option<String>,
    /// Parameters for the boot file (option 60).
    pub parameters: Vec<String>,
    /// Vendor-specific information (option 17) of whoever named the boot file.
    pub vendor: Option<Vec<u8>>,
    /// The server's link-local address.
    pub server: Option<Ipv6Addr>,
    /// Where all this comes from.
    pub source: LeaseSource,
    /// The server's Reply; empty where there was none, or the firmware's.
    pub ack: Vec<u8>,
    /// The Solicit or Information-request that this program has sent last; empty where it is the firmware's lease.
    pub discover: Vec<u8>,
    /// The Advertise of a server without addresses, where it alone names the boot file.
    pub proxy_offer: Vec<u8>,
}

impl Lease6 {
    /// A lease without addresses or boot file, to be filled in.
    #[must_use]
    pub fn new(source: LeaseSource) -> Self {
        Self {
            addresses: Vec::new(),
            dns: Vec::new(),
            search: Vec::new(),
            boot_file: None,
            unreadable_boot_file: None,
            parameters: Vec::new(),
            vendor: None,
            server: None,
            source,
            ack: Vec::new(),
            discover: Vec::new(),
            proxy_offer: Vec::new(),
        }
    }

    /// The lease that firmware holds, from the DHCPv6 messages of its PXE base code (EFI_PXE_BASE_CODE_MODE `DhcpAck`, `ProxyOffer` and
    /// `PxeReply` while `UsingIpv6`). The last two are passed only when their `...Received` flags are set. A damaged one of them is
    /// passed over.
    ///
    /// The boot file is that of the last step that named one: the boot server, the proxy, the DHCPv6 server. Where the firmware asked
    /// for information alone, there is no address.
    ///
    /// # Errors
    /// [`ParseError`] when `ack` is no DHCPv6 message of a server.
    pub fn from_packets(
        ack: &[u8],
        proxy: Option<&[u8]>,
        pxe_reply: Option<&[u8]>,
    ) -> Result<Self, ParseError> {
        let ack = Message::parse(ack)?;
        if !from_server(&ack) {
            return Err(ParseError::MessageType(ack.kind.code()));
        }
        let mut lease = Self::read(ack.options, None, LeaseSource::Firmware);
        let guide = [pxe_reply, proxy]
            .into_iter()
            .flatten()
            .filter_map(|packet| Message::parse(packet).ok())
            .find(|message| from_server(message) && message.options.boot_file_url().is_some());
        if let Some(guide) = guide {
            lease.set_boot_file(guide.options);
        }
        Ok(lease)
    }

    /// Gives the stack the addresses. As with IPv4, a boot ends long before their lifetimes do.
    pub(crate) fn take_on(&self, stack: &Stack) {
        for &address in &self.addresses {
            if !stack.add_ipv6(address) {
                log::warn!("the address {address} that DHCPv6 gives cannot be used");
            }
        }
    }

    /// What a server's message says; addresses only of our association `iaid`, where it is known.
    pub(super) fn read(options: Options<'_>, iaid: Option<u32>, source: LeaseSource) -> Self {
        let mut lease = Self::new(source);
        let associations = options
            .ia_na()
            .filter(|ia| iaid.is_none_or(|iaid| ia.iaid == iaid))
            .filter(|ia| ia.options.status().code == StatusCode::SUCCESS);
        for address in associations.flat_map(|ia| ia.options.ia_addresses()) {
            let valid = address.valid_lifetime > 0
                && address.preferred_lifetime <= address.valid_lifetime
                && address.options.status().code == StatusCode::SUCCESS
                && is_host(address.address);
            if valid && !lease.addresses.contains(&address.address) && lease.addresses.len() < MOST
            {
                lease.addresses.push(address.address);
            }
        }
        let dns = options
            .dns_servers()
            .filter(|&server| is_host(server) || server.is_unicast_link_local());
        lease.dns = dns.take(MOST).collect();
        lease.search = options.domain_search().unwrap_or_default();
        lease.set_boot_file(options);
        lease
    }

    /// Takes the boot file and all about it, if `options` name one.
    fn set_boot_file(&mut self, options: Options<'_>) {
        let Some(url) = options.boot_file_url() else {
            self.unreadable_boot_file = options.unreadable_boot_file_url();
            return;
        };
        self.boot_file = Some(url.to_owned());
        let parameters = options.boot_file_parameters().unwrap_or_default();
        self.parameters = parameters.into_iter().map(ToOwned::to_owned).collect();
        self.vendor = options.get(option::VENDOR_OPTIONS).map(<[u8]>::to_vec);
    }

    /// Takes the boot file of another message if there is none here.
    pub(super) fn or_boot_file_of(&mut self, other: &Self) {
        if self.boot_file.is_none() {
            self.boot_file.clone_from(&other.boot_file);
            self.parameters.clone_from(&other.parameters);
            self.vendor.clone_from(&other.vendor);
            self.proxy_offer.clone_from(&other.proxy_offer);
        }
    }
}

fn from_server(message: &Message<'_>) -> bool {
    matches!(message.kind, MessageType::Advertise | MessageType::Reply)
}

/// True for an address that one host can have, and that is known beyond the link.
pub(super) fn is_host(address: Ipv6Addr) -> bool {
    !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !address.is_unicast_link_local()
        && address.to_ipv4_mapped().is_none()
}
