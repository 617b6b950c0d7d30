//! Which machines boot over the network in a capture.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_wire::dhcp::{self, Operation, option};
use wireboot_wire::dhcpv6::{self, duid};
use wireboot_wire::text;

use crate::frame::{Content, Frame, LinkType, Mac};

/// The most Ethernet addresses that are looked after.
const MOST: usize = 1 << 16;

/// A machine that asks for a boot.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// Its card's address.
    pub mac: Mac,
    /// What it says that it is: option 60 of DHCP, or `DHCPv6`.
    pub vendor_class: String,
    /// Its first packet in the capture, in seconds since 1970.
    pub began_unix_s: f64,
}

/// Finds the machines that ask for a boot. Give it all frames, in order.
#[derive(Debug, Default)]
pub struct Clients {
    first: BTreeMap<Mac, f64>,
    found: Vec<Client>,
    known: BTreeSet<Mac>,
}

impl Clients {
    /// Takes a frame in.
    pub fn frame(&mut self, time_unix_s: f64, link: LinkType, bytes: &[u8]) {
        let Some(frame) = Frame::parse(link, bytes) else {
            return;
        };
        if let Some(source) = frame.source
            && self.first.len() < MOST
        {
            self.first.entry(source).or_insert(time_unix_s);
        }
        let Content::Ip(ip) = frame.content else {
            return;
        };
        let Some(udp) = ip.udp() else { return };
        let asks = match udp.destination_port {
            dhcp::SERVER_PORT | dhcp::PXE_PORT => by_dhcp(udp.payload),
            dhcpv6::SERVER_PORT => by_dhcpv6(udp.payload, frame.source),
            _ => None,
        };
        let Some((mac, vendor_class)) = asks else {
            return;
        };
        if self.found.len() < MOST && self.known.insert(mac) {
            self.found.push(Client {
                mac,
                vendor_class,
                began_unix_s: self.first.get(&mac).copied().unwrap_or(time_unix_s),
            });
        }
    }

    /// The machines found, in the order in which they asked first.
    pub fn found(self) -> Vec<Client> {
        self.found
    }
}

/// Who asks for a boot by DHCP.
fn by_dhcp(payload: &[u8]) -> Option<(Mac, String)> {
    let message = dhcp::Message::parse(payload).ok()?;
    if message.operation != Operation::Request || !boots(&message) {
        return None;
    }
    let class = message.options.get(option::VENDOR_CLASS);
    Some((Mac(message.mac()?), text::shown(class.unwrap_or_default())))
}

/// The message is a boot program's, not an operating system's: it names an architecture (RFC 4578), or a class of boot programs.
pub(crate) fn boots(message: &dhcp::Message) -> bool {
    let class = message
        .options
        .get(option::VENDOR_CLASS)
        .unwrap_or_default();
    message.options.get(option::ARCHITECTURE).is_some()
        || class.starts_with(b"PXEClient")
        || class.starts_with(b"HTTPClient")
        || message
            .options
            .user_classes()
            .iter()
            .any(|class| [b"iPXE".as_slice(), b"wireboot"].contains(class))
}

/// Who asks for a boot by DHCPv6: an architecture is given (RFC 5970), or a boot file wanted.
fn by_dhcpv6(payload: &[u8], source: Option<Mac>) -> Option<(Mac, String)> {
    let message = dhcpv6::Message::parse(payload).ok()?;
    let wanted = message
        .options
        .option_request()
        .any(|code| code == dhcpv6::option::BOOT_FILE_URL);
    let boots = wanted || message.options.architectures().next().is_some();
    let named = message.options.client_id().and_then(duid::mac).map(Mac);
    boots.then_some((source.or(named)?, "DHCPv6".into()))
}
