//! What the packets of a boot showed: addresses, offers, names and files, each with its times.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What was seen of the network. Times are seconds from the machine's first packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// When that first packet was, in seconds since 1970.
    pub began_unix_s: f64,
    /// From that packet to the end of the last file.
    pub span_s: f64,
    /// When an operating system asked by DHCP for itself: the boot was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_s: Option<f64>,
    /// The spanning tree of the switch (IEEE 802.1D), where it told of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spanning_tree: Option<SpanningTree>,
    /// What is at the other end of the cable, where it told of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<Neighbour>,
    /// The group of ports (IEEE 802.1AX) to which the switch's port belongs, where it told of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp: Option<Lacp>,
    /// Conversations by DHCP, one for each transaction.
    pub dhcp: Vec<Dhcp>,
    /// Conversations by DHCPv6, one for each transaction.
    pub dhcpv6: Vec<Dhcpv6>,
    /// When the machine asked for IPv6 routers.
    pub router_solicitations_s: Vec<f64>,
    /// When IPv6 routers spoke.
    pub router_advertisements_s: Vec<f64>,
    /// Which IPv6 routers did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<Router>,
    /// Questions to a proxyDHCP or boot server (UDP port 4011).
    pub boot_servers: Vec<BootServer>,
    /// Names that were looked up.
    pub names: Vec<NameQuery>,
    /// Files, in the order of their requests.
    pub transfers: Vec<Transfer>,
}

/// A spanning tree, by what bridges say of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpanningTree {
    /// The Ethernet address of the bridge that spoke.
    pub bridge: String,
    /// When it first spoke, in seconds from the machine's first packet; negative before that.
    pub first_s: f64,
    /// How long a port listens, and then learns, before it forwards.
    pub forward_delay_s: f64,
    /// The rapid protocol (802.1w) or a newer one.
    pub rapid: bool,
    /// When the port first said that it forwards, which only the rapid protocol tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwards_s: Option<f64>,
}

/// By which protocol a neighbour told of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discovery {
    /// Link Layer Discovery Protocol, IEEE 802.1AB.
    #[default]
    Lldp,
    /// Cisco Discovery Protocol, version 1 or 2.
    Cdp,
    /// What a newer version knows.
    #[serde(other)]
    Other,
}

/// A switch, by what it says of itself and of the port at which the cable ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbour {
    /// By which protocol it told.
    pub protocol: Discovery,
    /// When it first spoke, in seconds from the machine's first packet; negative before that.
    pub first_s: f64,
    /// Its name: LLDP's system name, else the chassis ID; CDP's device ID.
    pub switch: String,
    /// Its port: the port ID.
    pub port: String,
    /// What people call that port: LLDP's port description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_description: Option<String>,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, port {}", self.switch, self.port)?;
        let description = self.port_description.as_ref();
        if let Some(description) = description.filter(|text| **text != self.port) {
            write!(f, " ({description})")?;
        }
        match self.protocol {
            Discovery::Lldp => f.write_str(", by LLDP"),
            Discovery::Cdp => f.write_str(", by CDP"),
            Discovery::Other => Ok(()),
        }
    }
}

/// The switch's port in a group of ports, by what its Link Aggregation Control Protocol says (IEEE 802.1AX).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lacp {
    /// The Ethernet address of the switch.
    pub system: String,
    /// The group's number there (the actor's key).
    pub key: u16,
    /// When it first spoke, in seconds from the machine's first packet; negative before that.
    pub first_s: f64,
    /// The port then waited for a partner: it did not distribute frames.
    pub waits: bool,
    /// It had heard no partner: its partner's state was the default, or had expired.
    pub unheard: bool,
    /// When it first said that it distributes frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwards_s: Option<f64>,
}

/// A conversation by DHCP (RFC 2131).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dhcp {
    /// The transaction's number.
    pub xid: u32,
    /// What the machine says that it is (option 60).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_class: Option<String>,
    /// Which program asks (option 77): `iPXE`, `wireboot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_class: Option<String>,
    /// When it asked.
    pub discover_s: Vec<f64>,
    /// How long it had tried when it asked first, as it says itself (`secs`).
    pub tried_before_s: u16,
    /// What it was offered.
    pub offers: Vec<Offer>,
    /// When it took an offer.
    pub request_s: Vec<f64>,
    /// Whose offer it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// When that was acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_s: Option<f64>,
    /// When it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_s: Option<f64>,
}

impl Dhcp {
    /// When the first offer came.
    pub fn offered_s(&self) -> Option<f64> {
        earliest(&self.offers, |_| true)
    }

    /// The request that this offer answers: the last before it, but the first where the server answers each request as late as the one
    /// before.
    pub fn answered_s(&self) -> Option<f64> {
        /// Two answers as late as each other may differ by this: some servers count in whole seconds.
        const SAME_S: f64 = 1.0;
        let first = self.offers.first()?;
        if let [asked, again, ..] = *self.discover_s {
            let mut answers = self.offers.iter().filter(|one| one.server == first.server);
            let delay = answers.next().map(|one| one.at_s - asked);
            let delay_again = answers.next().map(|one| one.at_s - again);
            if let (Some(one), Some(other)) = (delay, delay_again)
                && (one - other).abs() < SAME_S
            {
                return Some(asked);
            }
        }
        let offered = self.offered_s()?;
        let before = self.discover_s.iter().filter(|at| **at <= offered);
        before.copied().reduce(f64::max)
    }

    /// When the machine had all that a boot needs: an address and a boot file, or a word of PXE, from one server or from two.
    pub fn complete_s(&self) -> Option<f64> {
        let address = earliest(&self.offers, |offer| offer.address.is_some())?;
        let boot = earliest(&self.offers, |offer| offer.boot_file.is_some() || offer.pxe)?;
        Some(address.max(boot))
    }
}

fn earliest(offers: &[Offer], wanted: fn(&Offer) -> bool) -> Option<f64> {
    let times = offers.iter().filter(|offer| wanted(offer));
    times.map(|offer| offer.at_s).reduce(f64::min)
}

/// Vendor options (43) of an offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VendorOptions {
    /// There are none.
    #[default]
    Absent,
    /// They are PXE's: the offer says `PXEClient`, and they read as such.
    Pxe,
    /// They are something else's: an access point's, a telephone's.
    Foreign,
    /// What a newer version knows.
    #[serde(other)]
    Other,
}

/// An offer of a DHCP or proxyDHCP server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Offer {
    /// When it came.
    pub at_s: f64,
    /// Whose it is.
    pub server: String,
    /// The address offered; a proxyDHCP server offers none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The boot file offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file: Option<String>,
    /// It says `PXEClient` (option 60).
    pub pxe: bool,
    /// Its vendor options.
    pub vendor_options: VendorOptions,
}

/// A conversation by DHCPv6 (RFC 8415).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dhcpv6 {
    /// The transaction's number.
    pub xid: u32,
    /// The first message's name: `Solicit`, `Request`, `Information-request`.
    pub kind: String,
    /// When the machine asked.
    pub asked_s: Vec<f64>,
    /// When servers answered.
    pub answered_s: Vec<f64>,
    /// The boot file's URL in an answer (RFC 5970).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file: Option<String>,
    /// What servers answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Dhcpv6Answer>,
}

/// A server's message by DHCPv6 to the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dhcpv6Answer {
    /// When it came.
    pub at_s: f64,
    /// How long after the machine's last question; `None` where that was not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
    /// The message's name: `Advertise`, `Reply`.
    pub kind: String,
    /// The server's or its relay's address.
    pub server: String,
    /// How much the server wants to be chosen, from 0 to 255.
    pub preference: u8,
    /// The first address in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The boot file's URL (RFC 5970).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file: Option<String>,
}

/// An IPv6 router, by its last advertisement (RFC 4861, section 4.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Router {
    /// Its address on the link.
    pub address: String,
    /// When it advertised itself.
    pub advertised_s: Vec<f64>,
    /// How long after the machine's last solicitation it first did; `None` where none came before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
    /// For how many seconds it forwards; 0: it is no default router.
    pub lifetime_s: u16,
    /// Addresses are to be had by DHCPv6.
    pub managed: bool,
    /// All but addresses is to be had by DHCPv6.
    pub other: bool,
}

/// Questions to a server's port 4011.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootServer {
    /// Whom the machine asked.
    pub server: String,
    /// When it asked, and asked again.
    pub asked_s: Vec<f64>,
    /// When the answer came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_s: Option<f64>,
}

/// A name that was looked up (RFC 1035).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameQuery {
    /// The name in the question, without the final dot, fit to be shown.
    pub name: String,
    /// Whom the machine asked.
    pub server: String,
    /// When it asked, and asked again.
    pub asked_s: Vec<f64>,
    /// When the answer came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_s: Option<f64>,
}

/// The protocol of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Trivial File Transfer Protocol, RFC 1350.
    #[default]
    Tftp,
    /// HTTP/1 without encryption, RFC 9112.
    Http,
    /// What a newer version knows.
    #[serde(other)]
    Other,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The last byte was acknowledged.
    Complete,
    /// The machine learnt the size and broke off.
    SizeProbe,
    /// The server refused.
    Refused,
    /// The machine broke off.
    BrokenOff,
    /// It just stops, or the capture does.
    #[default]
    Unfinished,
    /// What a newer version knows.
    #[serde(other)]
    Other,
}

/// A file on its way to the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transfer {
    /// By which protocol the machine asked for the file.
    pub protocol: Protocol,
    /// The server's address.
    pub server: String,
    /// The machine's address and port.
    pub client: String,
    /// The file's name, or the request's target.
    pub file: String,
    /// When the machine asked for the file, or first tried to connect where nobody answered.
    pub start_s: f64,
    /// The first packet of the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_s: Option<f64>,
    /// The last acknowledgement.
    pub end_s: f64,
    /// How it ended.
    pub outcome: Outcome,
    /// The server's words where it refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Payload, each byte counted once. HTTP: with the response's head.
    pub bytes: u64,
    /// TFTP: options asked for, `blksize=1468 windowsize=4`.
    pub asked: String,
    /// TFTP: options granted.
    pub granted: String,
    /// TFTP: bytes in a block. HTTP: bytes in a segment.
    pub block_bytes: u32,
    /// TFTP: blocks in a window. HTTP: 0.
    pub window_blocks: u32,
    /// HTTP: the largest window that the machine offered. TFTP: 0.
    pub window_bytes: u64,
    /// Packets with data, as they pass on a real wire: what a large segment stands for, counted by the segment size.
    pub data_packets: u64,
    /// Packets from the machine after its request.
    pub client_packets: u64,
    /// Packets with data that brought nothing new.
    pub repeated: u64,
    /// Datagrams of the server's that were cut into IP fragments.
    pub fragmented: u64,
    /// How often the machine answered and the server had to go on.
    pub turns: u64,
    /// Between a packet of the machine's and the server's next one, added up: the server, and the way from here to it and back.
    pub server_wait_s: f64,
    /// Between the server's last packet and the machine's next one, added up: the machine, and the way from here to it and back.
    pub client_wait_s: f64,
    /// The shortest single wait for the server behind its first answer: hardly more than the way there and back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortest_server_wait_s: Option<f64>,
    /// The shortest single wait for the machine: hardly more than the way to it and back, where that is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortest_client_wait_s: Option<f64>,
    /// Waits for the server of [`STALL_S`] and more.
    pub server_stalls: u64,
    /// These added up.
    pub server_stalled_s: f64,
    /// Waits for the machine of [`STALL_S`] and more, added up.
    pub client_stalled_s: f64,
}

/// From this on a single wait is no round trip, but a timer that had to run out, or a server that slept.
pub const STALL_S: f64 = 0.2;

impl Transfer {
    /// Whether it ends no sooner than it begins, and no wait is negative.
    pub(crate) fn is_possible(&self) -> bool {
        let waits = [
            self.server_wait_s,
            self.client_wait_s,
            self.server_stalled_s,
            self.client_stalled_s,
            self.shortest_server_wait_s.unwrap_or_default(),
            self.shortest_client_wait_s.unwrap_or_default(),
        ];
        self.end_s >= self.start_s && waits.iter().all(|wait| *wait >= 0.0)
    }

    /// From the request to the last acknowledgement.
    pub fn seconds(&self) -> f64 {
        self.end_s - self.start_s
    }

    /// The port to which the machine had the file sent.
    pub fn client_port(&self) -> Option<u16> {
        self.client.rsplit_once(':')?.1.parse().ok()
    }

    /// From the request to the server's first packet.
    pub fn answer_delay_s(&self) -> Option<f64> {
        Some(self.answer_s? - self.start_s)
    }
}
