//! Why a file could not be had by TFTP.

use alloc::string::String;
use wireboot_net::NetError;
use wireboot_wire::tftp::{BadOption, ErrorCode};

use super::ATTEMPTS;
use crate::destination::DestinationError;
use crate::pace::Floor;

/// Why a file could not be had by TFTP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TftpError {
    /// The server sent an ERROR packet.
    #[error("the TFTP server says: {text} (error {code})")]
    Server {
        /// The error code (RFC 1350 section 5, RFC 2347).
        code: u16,
        /// The server's text, or the code's meaning when it sent none.
        text: String,
    },
    /// Nothing came from the server.
    #[error(
        "no answer from the TFTP server after {requests} requests in {seconds} s: is it running, and does UDP port {port} pass the firewall?"
    )]
    NoAnswer {
        /// Requests sent to one address, repetitions included.
        requests: u32,
        /// Seconds waited in all.
        seconds: i64,
        /// The server's port.
        port: u16,
    },
    /// The server's host says that nobody listens there.
    #[error(
        "nobody listens on UDP port {port} of the TFTP server (asked {requests} times): is it running?"
    )]
    Refused {
        /// Requests sent to one address, repetitions included.
        requests: u32,
        /// The UDP port that was asked.
        port: u16,
    },
    /// The server stopped in the middle.
    #[error("the TFTP server fell silent after {received} bytes (tried {ATTEMPTS} times)")]
    Stalled {
        /// Bytes received by the last attempt.
        received: u64,
    },
    /// Two answers to one request have come from the server's address.
    #[error(
        "two files come from the TFTP server's address for one request (tried {ATTEMPTS} times): does somebody forge one?"
    )]
    Contested,
    /// The server answers, but no block of its file arrives.
    #[error(
        "the TFTP server answers, but no block of the file arrives, not even of {size} bytes: look at the server and at what is \
         between"
    )]
    NoBlock {
        /// The smallest block size that was tried, in bytes.
        size: usize,
    },
    /// The transfer hardly gets on.
    #[error("too slow: {received} bytes of the file are there, and less than {floor} came last")]
    Slow {
        /// Bytes of the file that are there.
        received: u64,
        /// The slowest transfer that goes on.
        floor: Floor,
    },
    /// The server granted an option value that was not asked for.
    #[error("the TFTP server answers {name}={value}, which this client did not ask for")]
    BadOption {
        /// Name of the option.
        name: &'static str,
        /// The server's value.
        value: String,
    },
    /// The server knows no windows that vary, which were asked for to measure them.
    #[error("not granted")]
    NotGranted,
    /// The size does not fit the announcement.
    #[error(
        "the TFTP server announced {announced} bytes but sends {received}: is the file being written?"
    )]
    WrongSize {
        /// Size in the option acknowledgement.
        announced: u64,
        /// Bytes that it sent, or would have to send next.
        received: u64,
    },
    /// The file's destination has no memory, or does not want the file any more.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// The network refused to send.
    #[error(transparent)]
    Net(#[from] NetError),
}

impl TftpError {
    /// Whether the server may serve later: it cannot be reached or says nothing.
    pub(super) fn is_of_a_server_to_wait_for(&self) -> bool {
        matches!(
            self,
            Self::NoAnswer { .. } | Self::Refused { .. } | Self::Stalled { .. }
        )
    }

    /// Whether the server has fallen silent, or gives up a transfer whose first blocks have `arrived`, for a reason of its own: it has a file
    /// and no objection to the request. Or nobody knows which file is the server's.
    pub(super) fn is_stall(&self, arrived: bool) -> bool {
        match self {
            Self::Stalled { .. } | Self::Contested => true,
            Self::Server { code, .. } => arrived && *code == ErrorCode::UNDEFINED.0,
            _ => false,
        }
    }

    /// Whether the server may serve a request with fewer options.
    pub(super) fn is_of_options(&self) -> bool {
        match self {
            Self::BadOption { .. } => true,
            Self::Server { code, .. } => *code == ErrorCode::OPTIONS.0,
            _ => false,
        }
    }
}

impl From<BadOption> for TftpError {
    fn from(option: BadOption) -> Self {
        Self::BadOption {
            name: option.name,
            value: option.value,
        }
    }
}
