//! DHCP options: RFC 2132 and those of network boot.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::name;

/// Subnet mask of the client's network, 4 bytes (RFC 2132 section 3.3).
pub const SUBNET_MASK: u8 = 1;
/// Routers, the preferred one first.
pub const ROUTERS: u8 = 3;
/// Domain name servers, the preferred one first.
pub const DNS_SERVERS: u8 = 6;
/// Host name of the client (RFC 2132 section 3.14).
pub const HOST_NAME: u8 = 12;
/// Domain that the client completes names with (RFC 2132 section 3.17).
pub const DOMAIN_NAME: u8 = 15;
/// Interface MTU, in bytes.
pub const MTU: u8 = 26;
/// Broadcast address of the client's subnet (RFC 2132 section 5.3).
pub const BROADCAST: u8 = 28;
/// Vendor-specific information; PXE's sub-options for PXE clients ([`super::PxeOptions`]).
pub const VENDOR: u8 = 43;
/// Address that the client would like.
pub const REQUESTED_ADDRESS: u8 = 50;
/// Lease time, in seconds.
pub const LEASE_TIME: u8 = 51;
/// Option overload (RFC 2132 section 9.3): options go on in the file field (1), in sname (2) or in both (3).
pub const OVERLOAD: u8 = 52;
/// DHCP message type.
pub const MESSAGE_TYPE: u8 = 53;
/// Server identifier: its address.
pub const SERVER_ID: u8 = 54;
/// Parameter request list.
pub const PARAMETERS: u8 = 55;
/// Message of the server to the user, or of the client to the server.
pub const MESSAGE: u8 = 56;
/// Largest DHCP message that the client takes, IP and UDP headers included, in bytes.
pub const MAX_SIZE: u8 = 57;
/// Time to renewal, in seconds.
pub const RENEWAL_TIME: u8 = 58;
/// Time to rebinding, in seconds.
pub const REBINDING_TIME: u8 = 59;
/// Vendor class: `PXEClient:...`, `HTTPClient:...`.
pub const VENDOR_CLASS: u8 = 60;
/// Client identifier, a type and what tells clients apart (RFC 2132 section 9.14).
pub const CLIENT_ID: u8 = 61;
/// TFTP server name.
pub const TFTP_SERVER: u8 = 66;
/// Boot file name.
pub const BOOT_FILE: u8 = 67;
/// User class (RFC 3004).
pub const USER_CLASS: u8 = 77;
/// Relay agent information (RFC 3046), which a server echoes.
pub const RELAY_AGENT: u8 = 82;
/// Client system architecture (RFC 4578).
pub const ARCHITECTURE: u8 = 93;
/// Client network interface (RFC 4578).
pub const NETWORK_INTERFACE: u8 = 94;
/// Client machine identifier (RFC 4578).
pub const MACHINE_ID: u8 = 97;
/// Domain search list (RFC 3397).
pub const DOMAIN_SEARCH: u8 = 119;
/// Classless static routes (RFC 3442).
pub const CLASSLESS_ROUTES: u8 = 121;
/// iPXE's encapsulated options.
pub const IPXE: u8 = 175;
/// End of the options.
pub const END: u8 = 255;

const PAD: u8 = 0;
/// Limits of RFC 1035 section 2.3.4.
const MAX_LABEL: u8 = 63;
const MAX_NAME: usize = 253;

/// A classless static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination network; the bits behind the prefix are 0.
    pub destination: Ipv4Addr,
    /// Bits of the destination that count, 0 to 32.
    pub prefix: u8,
    /// Gateway; 0.0.0.0 for a network on the link itself.
    pub router: Ipv4Addr,
}

/// Steps through code, length, value triples up to the end option or the end of the bytes.
pub(super) struct Tlv<'a> {
    rest: &'a [u8],
    cut_off: Option<u8>,
}

impl<'a> Tlv<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            cut_off: None,
        }
    }

    /// The option that ran past the end of the bytes, once the iteration has ended.
    pub(super) fn cut_off(&self) -> Option<u8> {
        self.cut_off
    }
}

impl<'a> Iterator for Tlv<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&code, rest) = self.rest.split_first()?;
            self.rest = rest;
            match code {
                PAD => {}
                END => self.rest = &[],
                code => {
                    let value = rest
                        .split_first()
                        .and_then(|(&len, rest)| rest.split_at_checked(len.into()));
                    let Some((value, rest)) = value else {
                        self.cut_off = Some(code);
                        self.rest = &[];
                        return None;
                    };
                    self.rest = rest;
                    return Some((code, value));
                }
            }
        }
    }
}

/// Appends one option, in pieces of 255 bytes (RFC 3396).
pub(super) fn emit(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    let mut piece = |value: &[u8]| {
        out.extend_from_slice(&[code, value.len() as u8]);
        out.extend_from_slice(value);
    };
    if value.is_empty() {
        piece(value);
    }
    value.chunks(255).for_each(piece);
}

/// The options of a message by code. The typed accessors answer `None` (or nothing) for an option that is missing or
/// whose length is not what its RFC says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<u8, Vec<u8>>);

impl Options {
    pub(super) fn from_raw(raw: BTreeMap<u8, Vec<u8>>) -> Self {
        Self(raw)
    }

    /// Appends all options, the message type first: there are clients that look no further.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        if let Some(kind) = self.get(MESSAGE_TYPE) {
            emit(out, MESSAGE_TYPE, kind);
        }
        for (&code, value) in self.0.iter().filter(|(code, _)| **code != MESSAGE_TYPE) {
            emit(out, code, value);
        }
    }

    /// The option's bytes, put together where it came in several pieces (RFC 3396). `None` where it is missing.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.get(&code).map(Vec::as_slice)
    }

    /// Sets an option, instead of any former value. Pad (0), overload (52) and end (255) are the codec's own and are
    /// ignored.
    pub fn set(&mut self, code: u8, value: impl AsRef<[u8]>) {
        if !matches!(code, PAD | OVERLOAD | END) {
            self.0.insert(code, value.as_ref().to_vec());
        }
    }

    /// Sets an option that is a list of addresses.
    pub fn set_addresses(&mut self, code: u8, addresses: &[Ipv4Addr]) {
        let bytes: Vec<u8> = addresses.iter().flat_map(Ipv4Addr::octets).collect();
        self.set(code, bytes);
    }

    /// All options in the order of their codes.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.0.iter().map(|(&code, value)| (code, value.as_slice()))
    }

    fn array<const N: usize>(&self, code: u8) -> Option<[u8; N]> {
        self.get(code)?.try_into().ok()
    }

    /// An option of one byte.
    pub fn u8(&self, code: u8) -> Option<u8> {
        self.array(code).map(u8::from_be_bytes)
    }

    /// An option of two bytes.
    pub fn u16(&self, code: u8) -> Option<u16> {
        self.array(code).map(u16::from_be_bytes)
    }

    /// An option of four bytes: lease times in seconds ([`LEASE_TIME`], [`RENEWAL_TIME`], [`REBINDING_TIME`]).
    pub fn u32(&self, code: u8) -> Option<u32> {
        self.array(code).map(u32::from_be_bytes)
    }

    /// An option that is one address: [`SERVER_ID`], [`REQUESTED_ADDRESS`], [`BROADCAST`].
    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        self.array::<4>(code).map(Ipv4Addr::from)
    }

    /// An option that is a list of addresses: [`ROUTERS`], [`DNS_SERVERS`].
    pub fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let bytes = self.get(code).unwrap_or_default();
        let (addresses, rest) = bytes.as_chunks::<4>();
        if rest.is_empty() {
            addresses.iter().map(|&octets| octets.into()).collect()
        } else {
            Vec::new()
        }
    }

    /// An option that is text: up to the first NUL, UTF-8, not empty and without control characters.
    pub fn text(&self, code: u8) -> Option<&str> {
        self.get(code).and_then(name)
    }

    /// Prefix length of the subnet mask; `None` for a mask with holes, too.
    pub fn prefix(&self) -> Option<u8> {
        let mask = u32::from(self.address(SUBNET_MASK)?);
        let prefix = mask.leading_ones();
        (mask.count_ones() == prefix).then_some(prefix as u8)
    }

    /// MTU in bytes; RFC 2132 section 5.1 allows no less than 68.
    pub fn mtu(&self) -> Option<u16> {
        self.u16(MTU).filter(|&mtu| mtu >= 68)
    }

    /// User classes: the list of RFC 3004, or the single bare name that most clients really send.
    pub fn user_classes(&self) -> Vec<&[u8]> {
        let Some(bytes) = self.get(USER_CLASS).filter(|bytes| !bytes.is_empty()) else {
            return Vec::new();
        };
        let mut classes = Vec::new();
        let mut rest = bytes;
        while let Some((&len, after)) = rest.split_first() {
            match after.split_at_checked(len.into()) {
                Some((class, after)) if len > 0 => {
                    classes.push(class);
                    rest = after;
                }
                _ => return alloc::vec![bytes],
            }
        }
        classes
    }

    /// System architectures of the client, preferred first: 0 BIOS, 7 or 9 x64 UEFI, 16 x64 UEFI HTTP, 11 arm64 UEFI.
    pub fn architectures(&self) -> Vec<u16> {
        let bytes = self.get(ARCHITECTURE).unwrap_or_default();
        let (words, rest) = bytes.as_chunks::<2>();
        if rest.is_empty() {
            words.iter().map(|&word| u16::from_be_bytes(word)).collect()
        } else {
            Vec::new()
        }
    }

    /// Network interface of the client: type (1 is UNDI), major and minor version.
    pub fn network_interface(&self) -> Option<[u8; 3]> {
        self.array(NETWORK_INTERFACE)
    }

    /// Machine identifier: the bytes of the GUID as SMBIOS has them.
    pub fn machine_id(&self) -> Option<[u8; 16]> {
        match self.array::<17>(MACHINE_ID)? {
            [0, guid @ ..] => Some(guid),
            _ => None,
        }
    }

    /// Domain search list, names without the final dot. `None` if it is missing or malformed.
    pub fn domain_search(&self) -> Option<Vec<String>> {
        domains(self.get(DOMAIN_SEARCH)?)
    }

    /// Classless static routes. `None` if they are missing or malformed.
    pub fn classless_routes(&self) -> Option<Vec<Route>> {
        let mut rest = self.get(CLASSLESS_ROUTES)?;
        let mut routes = Vec::new();
        while let Some((&prefix, after)) = rest.split_first() {
            if prefix > 32 {
                return None;
            }
            let (significant, after) = after.split_at_checked(prefix.div_ceil(8).into())?;
            let (router, after) = after.split_first_chunk::<4>()?;
            let mut octets = [0; 4];
            for (to, from) in octets.iter_mut().zip(significant) {
                *to = *from;
            }
            // Bits beyond the prefix must not count.
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            let destination = Ipv4Addr::from(u32::from_be_bytes(octets) & mask);
            routes.push(Route {
                destination,
                prefix,
                router: (*router).into(),
            });
            rest = after;
        }
        Some(routes)
    }
}

/// The domain names that fill `bytes`, without their final dots; the root is left out. `None` if one is malformed.
pub(crate) fn domains(bytes: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (name, next) = domain(bytes, at)?;
        if !name.is_empty() {
            names.push(name);
        }
        at = next;
    }
    Some(names)
}

/// The domain name at `at` (RFC 1035 section 4.1.4) and where the next one begins.
fn domain(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut next = None;
    // Each pointer must lead further back than all before it, so this ends.
    let mut limit = at;
    loop {
        let &len = bytes.get(at)?;
        match len {
            0 => return Some((name, next.unwrap_or(at + 1))),
            1..=MAX_LABEL => {
                let start = at + 1;
                let label = bytes.get(start..start + usize::from(len))?;
                let label = str::from_utf8(label).ok()?;
                if label.contains(|c: char| c == '.' || !c.is_ascii_graphic()) {
                    return None;
                }
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(label);
                if name.len() > MAX_NAME {
                    return None;
                }
                at = start + usize::from(len);
            }
            0xc0.. => {
                let &low = bytes.get(at + 1)?;
                next.get_or_insert(at + 2);
                at = usize::from(u16::from_be_bytes([len & 0x3f, low]));
                if at >= limit {
                    return None;
                }
                limit = at;
            }
            _ => return None,
        }
    }
}
