//! DHCPv6 messages (RFC 8415) with the options of network boot (RFC 5970), for the client and the server.
//!
//! ```text
//! 0 msg-type | transaction-id (3) | options: option-code (2) option-len (2) option-data ...
//!
//! IA_NA:       IAID (4) | T1 (4) | T2 (4) | options: IA Address, Status Code
//! IA Address:  address (16) | preferred-lifetime (4) | valid-lifetime (4) | options: Status Code
//! ```
//!
//! [`Message::parse`] checks the lengths at all three levels; what it returns borrows from the bytes. [`Writer`] writes a message.

pub mod duid;
pub mod option;
mod writer;

use core::net::Ipv6Addr;

pub use option::{IaAddress, IaNa, Options, Status, StatusCode, VendorClass};
pub use writer::Writer;

/// UDP port of servers and relays.
pub const SERVER_PORT: u16 = 547;
/// UDP port of clients.
pub const CLIENT_PORT: u16 = 546;
/// All_DHCP_Relay_Agents_and_Servers: where clients send to.
pub const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// Bytes before the options.
const HEADER: usize = 4;
/// The transaction ID has 24 bits.
const TRANSACTION_ID: u32 = 0x00ff_ffff;

/// Why bytes are not a DHCPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The message ends within its header or within an option's.
    #[error("the DHCPv6 message is too short")]
    Truncated,
    /// No message between a client and a server: a relay's, or one that RFC 8415 does not know.
    #[error("DHCPv6 message type {0} is not between a client and a server")]
    MessageType(u8),
    /// An option runs past the end of what holds it.
    #[error("DHCPv6 option {0} is cut off")]
    Option(u16),
    /// An option is shorter than its fixed fields, or longer than a DUID may be.
    #[error("the length of DHCPv6 option {0} is wrong")]
    Length(u16),
    /// An identifier stands there twice: nobody knows which one holds.
    #[error("DHCPv6 option {0} is there twice")]
    Repeated(u16),
}

/// Message type (section 7.3), without those of relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// A client looks for servers.
    Solicit,
    /// A server is there.
    Advertise,
    /// A client takes what a server advertised.
    Request,
    /// A client asks whether its addresses fit the link.
    Confirm,
    /// A client asks its server for more time.
    Renew,
    /// A client asks any server for more time.
    Rebind,
    /// A server's answer to everything but Solicit, and to Solicit with Rapid Commit.
    Reply,
    /// A client gives its addresses back.
    Release,
    /// A client found an address in use.
    Decline,
    /// A server has something new; clients are to ask.
    Reconfigure,
    /// A client asks for all but addresses.
    InformationRequest,
}

impl MessageType {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Solicit,
            2 => Self::Advertise,
            3 => Self::Request,
            4 => Self::Confirm,
            5 => Self::Renew,
            6 => Self::Rebind,
            7 => Self::Reply,
            8 => Self::Release,
            9 => Self::Decline,
            10 => Self::Reconfigure,
            11 => Self::InformationRequest,
            _ => return None,
        })
    }

    /// The value of `msg-type`.
    pub fn code(self) -> u8 {
        match self {
            Self::Solicit => 1,
            Self::Advertise => 2,
            Self::Request => 3,
            Self::Confirm => 4,
            Self::Renew => 5,
            Self::Rebind => 6,
            Self::Reply => 7,
            Self::Release => 8,
            Self::Decline => 9,
            Self::Reconfigure => 10,
            Self::InformationRequest => 11,
        }
    }
}

/// A DHCPv6 message whose lengths have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `msg-type`.
    pub kind: MessageType,
    /// `transaction-id`, 24 bits, chosen by the client.
    pub transaction_id: u32,
    /// Options of the message itself, without those that lie within others.
    pub options: Options<'a>,
}

impl<'a> Message<'a> {
    /// Reads the payload of a UDP datagram, or a packet that firmware has kept.
    ///
    /// # Errors
    /// [`ParseError`] when it is no message between a client and a server, or a length in it is wrong: that of an option at any
    /// level, of an identifier, an IA, an IA Address or a Status Code. Other options with wrong lengths are ignored by their accessors.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (&[kind, a, b, c], options) = bytes
            .split_first_chunk::<HEADER>()
            .ok_or(ParseError::Truncated)?;
        let kind = MessageType::from_code(kind).ok_or(ParseError::MessageType(kind))?;
        let options = Options::parse(options)?;
        options.check_message()?;
        Ok(Self {
            kind,
            transaction_id: u32::from_be_bytes([0, a, b, c]),
            options,
        })
    }
}

#[cfg(test)]
mod tests;
