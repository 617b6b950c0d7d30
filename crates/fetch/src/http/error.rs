//! What can go wrong with a download by HTTP, in words for whoever stands before the machine.

use alloc::string::String;
use core::fmt;
use core::net::SocketAddr;

use wireboot_net::{Duration, NetError};

pub use super::chunked::ChunkError;
pub use super::head::HeadError;
use super::limits::{RETRY_AFTER_LIMIT, SILENCE};
use crate::destination::DestinationError;
use crate::pace::Floor;
use crate::url::{Url, UrlError};

/// A download that failed for good.
#[derive(Debug)]
pub struct HttpError {
    /// What was asked for (after redirects, the last one).
    pub url: Url,
    /// The address that was asked last; `None` before the host was resolved.
    pub server: Option<SocketAddr>,
    /// How many requests in a row failed without progress worth the name.
    pub attempts: u32,
    /// How the last of them ended.
    pub problem: Problem,
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)?;
        if let Some(server) = self.server {
            write!(f, " from {server}")?;
        }
        write!(f, ": {}", self.problem)?;
        if self.attempts > 1 {
            write!(f, " (tried {} times)", self.attempts)?;
        }
        Ok(())
    }
}

impl core::error::Error for HttpError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.problem)
    }
}

/// Why a request or a download ended.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The URL is of another scheme.
    #[error("this is no http URL")]
    NotHttp,
    /// No address for the host.
    #[error("cannot find the address of {host}: {reason}")]
    Resolve {
        /// As the URL names it.
        host: String,
        /// The resolver's error, as text for the user.
        reason: String,
        /// The name servers do not answer, or fail: they may know later.
        passing: bool,
    },
    /// None of the server's addresses accepted a TCP connection.
    #[error("cannot connect: {0}; is the server running, and does it listen on this port?")]
    Connect(NetError),
    /// The connection failed before the end of the file.
    #[error("the connection broke: {0}")]
    Connection(NetError),
    /// Nothing came for too long.
    #[error("the server went silent for {seconds} s; look at the server and the network")]
    Silent {
        /// How long was waited, in seconds.
        seconds: u64,
    },
    /// The transfer hardly gets on.
    #[error("too slow: less than {floor} came; look at the server and the network")]
    Slow {
        /// The slowest transfer that goes on.
        floor: Floor,
    },
    /// The server closed the connection instead of answering.
    #[error("the server closed the connection without an answer")]
    NoAnswer,
    /// The response head is unusable.
    #[error("the server's answer cannot be used: {0}")]
    Head(#[from] HeadError),
    /// The chunked body is unusable.
    #[error("the server's answer cannot be used: {0}")]
    Chunks(#[from] ChunkError),
    /// A final status other than success or redirect.
    #[error("the server says {status}{}{reason}; {}", if reason.is_empty() { "" } else { " " }, advice(*status))]
    Status {
        /// The status code (RFC 9110 section 15).
        status: u16,
        /// The reason phrase; may be empty.
        reason: String,
        /// `Retry-After` in seconds; `None` where it is missing or a date.
        retry_after: Option<u64>,
    },
    /// A redirect that leads nowhere.
    #[error("the server redirects without saying where to")]
    RedirectNowhere,
    /// A redirect to something that is no HTTP URL.
    #[error("the server redirects to a URL that cannot be fetched: {0}")]
    RedirectUrl(#[from] UrlError),
    /// A redirect to another protocol.
    #[error("the server redirects from http to {target}; only http is followed")]
    RedirectScheme {
        /// What the redirect points to.
        target: Url,
    },
    /// A redirect to a URL that was asked before.
    #[error("the server redirects in a circle, back to {target}")]
    RedirectLoop {
        /// The URL met twice.
        target: Url,
    },
    /// Too many redirects in a row.
    #[error("more than {limit} redirects, the last to {target}")]
    RedirectChain {
        /// Redirects followed in a row.
        limit: u32,
        /// What the next one points to.
        target: Url,
    },
    /// The body ended early, and asking for the rest did not help.
    #[error(
        "the file ended after {received} of {announced} bytes; is the file on the server complete and \
         unchanged?"
    )]
    Short {
        /// Bytes of the file that are there.
        received: u64,
        /// Size of the file by `Content-Length` or `Content-Range`.
        announced: u64,
    },
    /// The body broke off, and its size was never known.
    #[error("the file broke off after {received} bytes")]
    BrokeOff {
        /// Bytes of the file that are there.
        received: u64,
    },
    /// A partial response that does not continue what is there.
    #[error(
        "the server's answer to a request for the rest of the file does not fit what it sent before"
    )]
    Range,
    /// The file's destination has no memory, or does not want the file any more.
    #[error(transparent)]
    Destination(#[from] DestinationError),
}

impl Problem {
    /// What broke a read or write on a connection.
    pub(super) fn connection(error: NetError) -> Self {
        match error {
            NetError::TimedOut => Self::Silent {
                seconds: SILENCE.secs(),
            },
            error => Self::Connection(error),
        }
    }

    /// Whether asking again may help.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::Connection(_)
            | Self::Silent { .. }
            | Self::Slow { .. }
            | Self::NoAnswer
            | Self::Short { .. }
            | Self::BrokeOff { .. }
            | Self::Range => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Resolve { passing, .. } => *passing,
            _ => false,
        }
    }

    /// Whether the server may serve later: it is busy, cannot be reached, hangs up or says nothing, or a gateway says so of it.
    pub(super) fn is_of_a_server_to_wait_for(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Connection(_) | Self::NoAnswer | Self::Silent { .. } => true,
            Self::Status { status, .. } => matches!(status, 429 | 502..=504),
            Self::Resolve { passing, .. } => *passing,
            _ => false,
        }
    }

    /// How long the server asks to be left alone, as far as that is obeyed.
    pub(super) fn retry_after(&self) -> Duration {
        match self {
            Self::Status {
                retry_after: Some(seconds),
                ..
            } => Duration::from_secs(*seconds).min(RETRY_AFTER_LIMIT),
            _ => Duration::ZERO,
        }
    }
}

fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 | 407 => "let the server give the file to everybody",
        429 | 503 => "it is busy, or its limits are too low",
        404 | 410 => "check the path in the URL and the file on the server",
        500..=599 => "look at the server's log",
        _ => "check the URL and the server",
    }
}
