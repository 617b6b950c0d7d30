//! DHCP messages (RFC 2131) with the options of network boot, for the client and the server.
//!
//! ```text
//!   0 op htype hlen hops | xid | secs flags | ciaddr | yiaddr | siaddr | giaddr
//!  28 chaddr (16) | sname (64) | file (128)
//! 236 magic 63 82 53 63 | options: code length value ... ff
//! ```
//!
//! Options that appear several times are joined (RFC 3396), also those that option 52 puts into `file` and `sname`.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

pub mod option;
pub mod pxe;

pub use option::{Options, Route};
pub use pxe::PxeOptions;

use crate::text;

/// UDP port of servers and relays.
pub const SERVER_PORT: u16 = 67;
/// UDP port of clients.
pub const CLIENT_PORT: u16 = 68;
/// UDP port of PXE boot servers, a proxyDHCP among them (PXE 2.1 section 2.2).
pub const PXE_PORT: u16 = 4011;

const CHADDR: usize = 28;
const SNAME: usize = 44;
const FILE: usize = 108;
const MAGIC: usize = 236;
/// Bytes before the options.
const HEADER: usize = 240;
const MAGIC_COOKIE: [u8; 4] = [0x63, 0x82, 0x53, 0x63];
/// BOOTP's length (RFC 951): some relays and servers drop anything shorter.
const MIN_LEN: usize = 300;
/// In `flags`: to be answered by broadcast.
pub const BROADCAST_FLAG: u16 = 0x8000;
const ETHERNET: u8 = 1;

/// Why bytes are not a DHCP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The fixed fields are not all there.
    #[error("the DHCP message is too short")]
    Truncated,
    /// `op` is neither 1 nor 2, or `hlen` exceeds 16.
    #[error("the DHCP message's fixed fields are malformed")]
    Header,
    /// The magic cookie is missing: plain BOOTP, or something else.
    #[error("not a DHCP message: the magic cookie is missing")]
    Magic,
    /// An option runs past the end of its field: the message was cut off or damaged, and what is left of it
    /// cannot be trusted.
    #[error("DHCP option {0} is cut off")]
    Option(u8),
}

/// Who a message comes from (`op`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A client: BOOTREQUEST, 1.
    Request,
    /// A server: BOOTREPLY, 2.
    Reply,
}

/// DHCP message type (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// A client looks for servers.
    Discover,
    /// A server offers an address, or a proxy a boot file.
    Offer,
    /// A client takes an offer.
    Request,
    /// A client found the address in use.
    Decline,
    /// The server confirms.
    Ack,
    /// The server refuses.
    Nak,
    /// The client gives the address back.
    Release,
    /// A client with an address asks for the rest.
    Inform,
}

impl MessageType {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Discover,
            2 => Self::Offer,
            3 => Self::Request,
            4 => Self::Decline,
            5 => Self::Ack,
            6 => Self::Nak,
            7 => Self::Release,
            8 => Self::Inform,
            _ => return None,
        })
    }

    /// The value of option 53.
    pub fn code(self) -> u8 {
        match self {
            Self::Discover => 1,
            Self::Offer => 2,
            Self::Request => 3,
            Self::Decline => 4,
            Self::Ack => 5,
            Self::Nak => 6,
            Self::Release => 7,
            Self::Inform => 8,
        }
    }
}

/// A DHCP message (RFC 2131, section 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who it comes from.
    pub operation: Operation,
    /// Hardware type of `chaddr`; 1 is Ethernet.
    pub hardware_type: u8,
    /// Relays that have passed the message on, by their own count; 0 from a client.
    pub hops: u8,
    /// Transaction ID, chosen by the client.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// Flags; see [`Message::wants_broadcast`].
    pub flags: u16,
    /// Address the client uses already.
    pub ciaddr: Ipv4Addr,
    /// Address for the client.
    pub yiaddr: Ipv4Addr,
    /// Server to boot from.
    pub siaddr: Ipv4Addr,
    /// Relay that passed the message on.
    pub giaddr: Ipv4Addr,
    /// Hardware address of the client, at most 16 bytes.
    pub chaddr: Vec<u8>,
    /// Server's name without the NUL; empty if the field holds options.
    pub sname: Vec<u8>,
    /// Boot file without the NUL; empty if the field holds options.
    pub file: Vec<u8>,
    /// Options, whatever field they came in.
    pub options: Options,
}

impl Message {
    /// A request of the client with an Ethernet address.
    pub fn request(kind: MessageType, xid: u32, mac: [u8; 6]) -> Self {
        let mut options = Options::default();
        options.set(option::MESSAGE_TYPE, [kind.code()]);
        Self {
            operation: Operation::Request,
            hardware_type: ETHERNET,
            hops: 0,
            xid,
            secs: 0,
            flags: 0,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            chaddr: mac.to_vec(),
            sname: Vec::new(),
            file: Vec::new(),
            options,
        }
    }

    /// A reply to `request`: its fields as RFC 2131 section 4.3.1 (table 3) says, and its relay agent information
    /// (option 82) echoed as RFC 3046 demands.
    pub fn reply(kind: MessageType, request: &Self) -> Self {
        let mut options = Options::default();
        options.set(option::MESSAGE_TYPE, [kind.code()]);
        if let Some(relay) = request.options.get(option::RELAY_AGENT) {
            options.set(option::RELAY_AGENT, relay);
        }
        Self {
            operation: Operation::Reply,
            hardware_type: request.hardware_type,
            hops: 0,
            xid: request.xid,
            secs: 0,
            flags: request.flags,
            ciaddr: match kind {
                MessageType::Ack => request.ciaddr,
                _ => Ipv4Addr::UNSPECIFIED,
            },
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: request.giaddr,
            chaddr: request.chaddr.clone(),
            sname: Vec::new(),
            file: Vec::new(),
            options,
        }
    }

    /// Reads the payload of a UDP datagram, or a packet that firmware has kept.
    ///
    /// A missing end option (255) is tolerated, as is padding after it.
    ///
    /// # Errors
    /// [`ParseError`] when it is no DHCP message or was cut off.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (header, main) = bytes
            .split_first_chunk::<HEADER>()
            .ok_or(ParseError::Truncated)?;
        let [op, hardware_type, hlen, hops, ..] = *header;
        let operation = match op {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(ParseError::Header),
        };
        if header[MAGIC..] != MAGIC_COOKIE {
            return Err(ParseError::Magic);
        }
        let chaddr = header[CHADDR..SNAME]
            .get(..hlen.into())
            .ok_or(ParseError::Header)?;
        let sname = &header[SNAME..FILE];
        let file = &header[FILE..MAGIC];

        let mut raw = BTreeMap::new();
        collect(main, &mut raw)?;
        // RFC 2132 section 9.3: 1 the file field, 2 sname, 3 both.
        let overload = match raw.remove(&option::OVERLOAD).as_deref() {
            Some(&[fields @ 1..=3]) => fields,
            _ => 0,
        };
        if overload & 1 != 0 {
            collect(file, &mut raw)?;
        }
        if overload & 2 != 0 {
            collect(sname, &mut raw)?;
        }
        // One in an overloaded field says nothing about the fields.
        raw.remove(&option::OVERLOAD);

        let plain = |field, overloaded| {
            if overloaded {
                Vec::new()
            } else {
                until_nul(field).to_vec()
            }
        };
        Ok(Self {
            operation,
            hardware_type,
            hops,
            xid: u32::from_be_bytes(chunk(header, 4)),
            secs: u16::from_be_bytes(chunk(header, 8)),
            flags: u16::from_be_bytes(chunk(header, 10)),
            ciaddr: chunk::<4>(header, 12).into(),
            yiaddr: chunk::<4>(header, 16).into(),
            siaddr: chunk::<4>(header, 20).into(),
            giaddr: chunk::<4>(header, 24).into(),
            chaddr: chaddr.to_vec(),
            sname: plain(sname, overload & 2 != 0),
            file: plain(file, overload & 1 != 0),
            options: Options::from_raw(raw),
        })
    }

    /// The message as a UDP payload, at least 300 bytes. A server name or boot file too long for its field goes into
    /// option 66 or 67, which such a message must not hold already; a hardware address is cut at 16 bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut header = [0; HEADER];
        let hlen = self.chaddr.len().min(SNAME - CHADDR);
        header[0] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        header[1] = self.hardware_type;
        header[2] = hlen as u8;
        header[3] = self.hops;
        header[4..8].copy_from_slice(&self.xid.to_be_bytes());
        header[8..10].copy_from_slice(&self.secs.to_be_bytes());
        header[10..12].copy_from_slice(&self.flags.to_be_bytes());
        header[12..16].copy_from_slice(&self.ciaddr.octets());
        header[16..20].copy_from_slice(&self.yiaddr.octets());
        header[20..24].copy_from_slice(&self.siaddr.octets());
        header[24..28].copy_from_slice(&self.giaddr.octets());
        put(
            &mut header[CHADDR..SNAME],
            self.chaddr.get(..hlen).unwrap_or_default(),
        );
        header[MAGIC..].copy_from_slice(&MAGIC_COOKIE);
        let sname_fits = put(&mut header[SNAME..FILE], &self.sname);
        let file_fits = put(&mut header[FILE..MAGIC], &self.file);

        let mut out = header.to_vec();
        self.options.emit(&mut out);
        if !sname_fits {
            option::emit(&mut out, option::TFTP_SERVER, &self.sname);
        }
        if !file_fits {
            option::emit(&mut out, option::BOOT_FILE, &self.file);
        }
        out.push(option::END);
        out.resize(out.len().max(MIN_LEN), 0);
        out
    }

    /// Message type (option 53).
    pub fn message_type(&self) -> Option<MessageType> {
        self.options
            .u8(option::MESSAGE_TYPE)
            .and_then(MessageType::from_code)
    }

    /// The client cannot take unicast before it has its address.
    pub fn wants_broadcast(&self) -> bool {
        self.flags & BROADCAST_FLAG != 0
    }

    /// The client's Ethernet address.
    pub fn mac(&self) -> Option<[u8; 6]> {
        (self.hardware_type == ETHERNET)
            .then(|| self.chaddr.as_slice().try_into().ok())
            .flatten()
    }

    /// The boot file: option 67, else the `file` field. A name that is not text is no name.
    pub fn boot_file(&self) -> Option<&str> {
        self.options
            .text(option::BOOT_FILE)
            .or_else(|| name(&self.file))
    }

    /// A boot file whose name is not text (UTF-8 without control characters), with U+FFFD for what is not.
    pub fn unreadable_boot_file(&self) -> Option<String> {
        let named = self.options.get(option::BOOT_FILE);
        [named.unwrap_or_default(), &self.file]
            .into_iter()
            .find_map(unreadable)
            .filter(|_| self.boot_file().is_none())
    }

    /// The boot server's name or address as text: option 66, else the `sname` field.
    pub fn boot_server_name(&self) -> Option<&str> {
        self.options
            .text(option::TFTP_SERVER)
            .or_else(|| name(&self.sname))
    }

    /// What the server has to say (option 56), fit to be shown.
    pub fn message(&self) -> Option<String> {
        self.options.get(option::MESSAGE).map(text::shown)
    }
}

/// Printable text up to the first NUL; `None` when there is none.
pub(crate) fn name(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(until_nul(bytes))
        .ok()
        .filter(|text| !text.is_empty() && !text.contains(char::is_control))
}

/// A name that is there and is not text, with U+FFFD for what is not.
pub(crate) fn unreadable(bytes: &[u8]) -> Option<String> {
    let replaced = text::replaced(bytes);
    (!replaced.is_empty() && name(bytes).is_none()).then_some(replaced)
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

/// Writes `bytes` to the start of `field`, unless they do not fit.
fn put(field: &mut [u8], bytes: &[u8]) -> bool {
    match field.get_mut(..bytes.len()) {
        Some(start) => {
            start.copy_from_slice(bytes);
            true
        }
        None => false,
    }
}

/// `N` header bytes at `at`, both known when this is compiled.
fn chunk<const N: usize>(header: &[u8; HEADER], at: usize) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(header.iter().skip(at)) {
        *to = *from;
    }
    out
}

/// Appends the options of one field to what the fields before it held.
fn collect(field: &[u8], raw: &mut BTreeMap<u8, Vec<u8>>) -> Result<(), ParseError> {
    let mut options = option::Tlv::new(field);
    for (code, value) in &mut options {
        raw.entry(code).or_default().extend_from_slice(value);
    }
    match options.cut_off() {
        Some(code) => Err(ParseError::Option(code)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
