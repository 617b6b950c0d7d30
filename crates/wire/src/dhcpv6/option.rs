//! DHCPv6 options: views over checked bytes.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::{ParseError, duid};
use crate::dhcp;

/// Client identifier: a DUID.
pub const CLIENT_ID: u16 = 1;
/// Server identifier: a DUID.
pub const SERVER_ID: u16 = 2;
/// Identity association for non-temporary addresses.
pub const IA_NA: u16 = 3;
/// Identity association for temporary addresses.
pub const IA_TA: u16 = 4;
/// Address of an identity association, with its lifetimes.
pub const IA_ADDRESS: u16 = 5;
/// Option request: codes of the options that the client wants.
pub const OPTION_REQUEST: u16 = 6;
/// Preference of the server, 0 to 255; a client takes 255 at once.
pub const PREFERENCE: u16 = 7;
/// Time since the client began, in hundredths of a second.
pub const ELAPSED_TIME: u16 = 8;
/// How it went: a code and a text (section 21.13).
pub const STATUS_CODE: u16 = 13;
/// A Reply to the Solicit is enough.
pub const RAPID_COMMIT: u16 = 14;
/// User classes of the client (section 21.15).
pub const USER_CLASS: u16 = 15;
/// Vendor classes: `PXEClient:...`, `HTTPClient:...`.
pub const VENDOR_CLASS: u16 = 16;
/// Vendor-specific information: an enterprise number and options of its own (section 21.17).
pub const VENDOR_OPTIONS: u16 = 17;
/// Name servers, the preferred one first (RFC 3646).
pub const DNS_SERVERS: u16 = 23;
/// Domain search list (RFC 3646).
pub const DOMAIN_SEARCH: u16 = 24;
/// URL of the boot file (RFC 5970).
pub const BOOT_FILE_URL: u16 = 59;
/// Parameters for the boot file (RFC 5970).
pub const BOOT_FILE_PARAMETERS: u16 = 60;
/// Client system architectures (RFC 5970).
pub const ARCHITECTURE: u16 = 61;
/// Client network interface (RFC 5970).
pub const NETWORK_INTERFACE: u16 = 62;

/// Options one after the other, each of which lies within its bytes. Where an option may be there once, the first counts.
///
/// The accessors answer `None`, or nothing, for an option that is missing or whose length is not what its RFC says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a>(&'a [u8]);

/// Steps through options.
#[derive(Clone, Debug)]
struct Iter<'a>(&'a [u8]);

impl<'a> Iterator for Iter<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[code_high, code_low, len_high, len_low], rest) = self.0.split_first_chunk::<4>()?;
        let length = u16::from_be_bytes([len_high, len_low]);
        let (value, rest) = rest.split_at_checked(length.into())?;
        self.0 = rest;
        Some((u16::from_be_bytes([code_high, code_low]), value))
    }
}

impl<'a> Options<'a> {
    /// # Errors
    /// When an option runs past the end.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut iter = Iter(bytes);
        iter.by_ref().for_each(drop);
        match iter.0 {
            [] => Ok(Self(bytes)),
            &[high, low, _, _, ..] => Err(ParseError::Option(u16::from_be_bytes([high, low]))),
            _ => Err(ParseError::Truncated),
        }
    }

    /// Checks what the accessors of a message rely on.
    pub(super) fn check_message(self) -> Result<(), ParseError> {
        for code in [CLIENT_ID, SERVER_ID] {
            let mut found = self.all(code);
            if found.next().is_some_and(|duid| !duid::is_valid(duid)) {
                return Err(ParseError::Length(code));
            }
            if found.next().is_some() {
                return Err(ParseError::Repeated(code));
            }
        }
        for value in self.all(IA_NA) {
            IaNa::parse(value)?.options.check_association()?;
        }
        for value in self.all(IA_TA) {
            let (_iaid, options) = value.split_at_checked(4).ok_or(ParseError::Length(IA_TA))?;
            Options::parse(options)?.check_association()?;
        }
        self.check_status()
    }

    /// Checks the options within an IA.
    fn check_association(self) -> Result<(), ParseError> {
        for value in self.all(IA_ADDRESS) {
            IaAddress::parse(value)?.options.check_status()?;
        }
        self.check_status()
    }

    fn check_status(self) -> Result<(), ParseError> {
        match self.all(STATUS_CODE).all(|value| value.len() >= 2) {
            true => Ok(()),
            false => Err(ParseError::Length(STATUS_CODE)),
        }
    }

    /// All options in their order.
    pub fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        Iter(self.0)
    }

    /// The values of all options with this code.
    pub fn all(self, code: u16) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter_map(move |(found, value)| (found == code).then_some(value))
    }

    /// The value of the first option with this code.
    pub fn get(self, code: u16) -> Option<&'a [u8]> {
        self.all(code).next()
    }

    fn array<const N: usize>(self, code: u16) -> Option<[u8; N]> {
        self.get(code)?.try_into().ok()
    }

    /// DUID of the client.
    pub fn client_id(self) -> Option<&'a [u8]> {
        self.get(CLIENT_ID).filter(|duid| duid::is_valid(duid))
    }

    /// DUID of the server.
    pub fn server_id(self) -> Option<&'a [u8]> {
        self.get(SERVER_ID).filter(|duid| duid::is_valid(duid))
    }

    /// The identity associations for non-temporary addresses.
    pub fn ia_na(self) -> impl Iterator<Item = IaNa<'a>> {
        self.all(IA_NA).filter_map(|value| IaNa::parse(value).ok())
    }

    /// The addresses of an identity association.
    pub fn ia_addresses(self) -> impl Iterator<Item = IaAddress<'a>> {
        self.all(IA_ADDRESS)
            .filter_map(|value| IaAddress::parse(value).ok())
    }

    /// The status; without the option all went well (section 21.13).
    pub fn status(self) -> Status<'a> {
        self.get(STATUS_CODE)
            .and_then(|value| value.split_first_chunk::<2>())
            .map_or(Status::default(), |(&code, message)| Status {
                code: StatusCode(u16::from_be_bytes(code)),
                message,
            })
    }

    /// Codes of the options that the client wants.
    pub fn option_request(self) -> impl Iterator<Item = u16> {
        words(self.get(OPTION_REQUEST).unwrap_or_default())
    }

    /// Preference of the server; 0 without the option (section 18.2.9).
    pub fn preference(self) -> u8 {
        self.array(PREFERENCE).map_or(0, u8::from_be_bytes)
    }

    /// Time since the client began, in hundredths of a second.
    pub fn elapsed_time(self) -> Option<u16> {
        self.array(ELAPSED_TIME).map(u16::from_be_bytes)
    }

    /// Whether a Reply to the Solicit is enough.
    pub fn rapid_commit(self) -> bool {
        self.get(RAPID_COMMIT).is_some_and(<[u8]>::is_empty)
    }

    /// User classes of the client, in their order. Empty if they are missing or malformed.
    pub fn user_classes(self) -> Vec<&'a [u8]> {
        self.get(USER_CLASS).and_then(counted).unwrap_or_default()
    }

    /// Vendor classes, those of each vendor together.
    pub fn vendor_classes(self) -> impl Iterator<Item = VendorClass<'a>> {
        self.all(VENDOR_CLASS).filter_map(|value| {
            let (&enterprise_number, classes) = value.split_first_chunk::<4>()?;
            Some(VendorClass {
                enterprise_number: u32::from_be_bytes(enterprise_number),
                classes: counted(classes)?,
            })
        })
    }

    /// Vendor-specific information: the enterprise number and its own options.
    pub fn vendor_options(self) -> impl Iterator<Item = (u32, Options<'a>)> {
        self.all(VENDOR_OPTIONS).filter_map(|value| {
            let (&enterprise_number, options) = value.split_first_chunk::<4>()?;
            Some((
                u32::from_be_bytes(enterprise_number),
                Options::parse(options).ok()?,
            ))
        })
    }

    /// Name servers, the preferred one first.
    pub fn dns_servers(self) -> impl Iterator<Item = Ipv6Addr> {
        let value = self.get(DNS_SERVERS).unwrap_or_default();
        let addresses = match value.as_chunks::<16>() {
            (addresses, []) => addresses,
            _ => &[],
        };
        addresses.iter().map(|&octets| octets.into())
    }

    /// Domain search list, names without the final dot. `None` if it is missing or malformed.
    pub fn domain_search(self) -> Option<Vec<String>> {
        dhcp::option::domains(self.get(DOMAIN_SEARCH)?)
    }

    /// URL of the boot file: UTF-8, not empty and without control characters.
    pub fn boot_file_url(self) -> Option<&'a str> {
        self.get(BOOT_FILE_URL).and_then(dhcp::name)
    }

    /// A URL of a boot file that is not text (UTF-8 without control characters), with U+FFFD for what is not.
    pub fn unreadable_boot_file_url(self) -> Option<String> {
        self.get(BOOT_FILE_URL).and_then(dhcp::unreadable)
    }

    /// Parameters for the boot file, in their order. `None` if they are missing or malformed.
    pub fn boot_file_parameters(self) -> Option<Vec<&'a str>> {
        counted(self.get(BOOT_FILE_PARAMETERS)?)?
            .into_iter()
            .map(|parameter| str::from_utf8(parameter).ok())
            .collect()
    }

    /// System architectures of the client, preferred first: 0 BIOS, 7 or 9 x64 UEFI, 16 x64 UEFI HTTP, 11 arm64 UEFI.
    pub fn architectures(self) -> impl Iterator<Item = u16> {
        words(self.get(ARCHITECTURE).unwrap_or_default())
    }

    /// Network interface of the client: type (1 is UNDI), major and minor version.
    pub fn network_interface(self) -> Option<[u8; 3]> {
        self.array(NETWORK_INTERFACE)
    }
}

/// The two-byte numbers of a value; none if half a one is left.
fn words(value: &[u8]) -> impl Iterator<Item = u16> {
    let words = match value.as_chunks::<2>() {
        (words, []) => words,
        _ => &[],
    };
    words.iter().map(|&word| u16::from_be_bytes(word))
}

/// Strings, each behind its length in two bytes. `None` if one runs past the end.
fn counted(mut value: &[u8]) -> Option<Vec<&[u8]>> {
    let mut strings = Vec::new();
    while !value.is_empty() {
        let (&length, rest) = value.split_first_chunk::<2>()?;
        let (string, rest) = rest.split_at_checked(u16::from_be_bytes(length).into())?;
        strings.push(string);
        value = rest;
    }
    Some(strings)
}

/// Identity association for non-temporary addresses (section 21.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IaNa<'a> {
    /// Which of the client's associations.
    pub iaid: u32,
    /// Seconds to renewal; 0 leaves it to the client.
    pub t1: u32,
    /// Seconds to rebinding; 0 leaves it to the client.
    pub t2: u32,
    /// [`Options::ia_addresses`] and [`Options::status`].
    pub options: Options<'a>,
}

impl<'a> IaNa<'a> {
    fn parse(value: &'a [u8]) -> Result<Self, ParseError> {
        let (fields, options) = value
            .split_first_chunk::<12>()
            .ok_or(ParseError::Length(IA_NA))?;
        let (&[iaid, t1, t2], _) = fields.as_chunks::<4>() else {
            return Err(ParseError::Length(IA_NA));
        };
        Ok(Self {
            iaid: u32::from_be_bytes(iaid),
            t1: u32::from_be_bytes(t1),
            t2: u32::from_be_bytes(t2),
            options: Options::parse(options)?,
        })
    }
}

/// An address of an identity association (section 21.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IaAddress<'a> {
    /// The IPv6 address; from a client, one that it has or would like.
    pub address: Ipv6Addr,
    /// Seconds until new connections should use another.
    pub preferred_lifetime: u32,
    /// Seconds until it is gone; 0 takes it back.
    pub valid_lifetime: u32,
    /// Options of the address: [`Options::status`].
    pub options: Options<'a>,
}

impl<'a> IaAddress<'a> {
    fn parse(value: &'a [u8]) -> Result<Self, ParseError> {
        const WRONG: ParseError = ParseError::Length(IA_ADDRESS);
        let (&address, rest) = value.split_first_chunk::<16>().ok_or(WRONG)?;
        let (&preferred, rest) = rest.split_first_chunk::<4>().ok_or(WRONG)?;
        let (&valid, options) = rest.split_first_chunk::<4>().ok_or(WRONG)?;
        Ok(Self {
            address: address.into(),
            preferred_lifetime: u32::from_be_bytes(preferred),
            valid_lifetime: u32::from_be_bytes(valid),
            options: Options::parse(options)?,
        })
    }
}

/// The vendor classes of one vendor (section 21.16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VendorClass<'a> {
    /// The vendor, by IANA's number.
    pub enterprise_number: u32,
    /// Classes of the machine, opaque bytes each, in their order.
    pub classes: Vec<&'a [u8]>,
}

/// How it went (section 21.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status<'a> {
    /// [`StatusCode::SUCCESS`], or what went wrong.
    pub code: StatusCode,
    /// Words for a person; [`crate::text::shown`] makes them fit to be shown.
    pub message: &'a [u8],
}

/// Status code (section 21.13). Any other value may arrive too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusCode(pub u16);

impl StatusCode {
    /// All went well.
    pub const SUCCESS: Self = Self(0);
    /// It failed for a reason that has no code.
    pub const UNSPEC_FAIL: Self = Self(1);
    /// The server has no address to give.
    pub const NO_ADDRS_AVAIL: Self = Self(2);
    /// The server knows nothing of the association.
    pub const NO_BINDING: Self = Self(3);
    /// The address does not belong to the link.
    pub const NOT_ON_LINK: Self = Self(4);
    /// The client is to send to the multicast address.
    pub const USE_MULTICAST: Self = Self(5);
}
