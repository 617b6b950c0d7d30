//! What is asked of DHCP over either version of IP, and as whom.

use alloc::string::String;
use alloc::vec::Vec;

use wireboot_net::{Duration, Ipv4Addr};
use wireboot_wire::dhcpv6::Message;

/// Which kind of boot client to be for the server (option 60).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VendorClass {
    /// `PXEClient`: a boot file by TFTP, proxies and boot servers.
    Pxe,
    /// `HTTPClient`: a boot file by URL.
    Http,
}

impl VendorClass {
    /// What the option of a client and of a server that serves it begins with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Pxe => "PXEClient",
            Self::Http => "HTTPClient",
        }
    }
}

/// What to ask for, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpRequest {
    /// Client system architecture (option 93, and in option 60): 7 for x64 UEFI, 16 for x64 UEFI HTTP.
    pub architecture: u16,
    /// The machine's GUID as SMBIOS has it (option 97), if it has one.
    pub uuid: Option<[u8; 16]>,
    /// As whom the firmware asks DHCPv6, where that is known: a server is to know the machine again.
    pub client_id: Option<ClientId>,
    /// As which kind of boot client. Proxies that serve another kind are ignored.
    pub vendor_class: VendorClass,
    /// User class (option 77), sent as the bare name that servers' configurations compare with.
    pub user_class: String,
    /// An address that this machine had before (option 50).
    pub requested_address: Option<Ipv4Addr>,
    /// Whether the offer should name a boot file, and is worth a short wait for one that does.
    pub want_boot_file: bool,
    /// Whether a proxy of DHCP over IPv4 has led the firmware here: it is waited for.
    pub proxied: bool,
    /// How long to wait for an offer; `None`: 39 s, to outlast a switch port's spanning tree.
    pub patience: Option<Duration>,
}

/// The identity by which servers know a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientId {
    /// DHCP unique identifier (RFC 8415 section 11).
    pub duid: Vec<u8>,
    /// Identifier of the association that addresses are for, if it is known.
    pub iaid: Option<u32>,
}

impl ClientId {
    /// Whom a server's message was for.
    #[must_use]
    pub fn of_packet(packet: &[u8]) -> Option<Self> {
        let options = Message::parse(packet).ok()?.options;
        Some(Self {
            duid: options.client_id()?.to_vec(),
            iaid: options.ia_na().next().map(|ia| ia.iaid),
        })
    }
}

/// Where a lease comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSource {
    /// The firmware had it before this program began.
    Firmware,
    /// This program asked for it.
    Dhcp,
}
