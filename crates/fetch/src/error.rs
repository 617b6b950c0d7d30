//! Why something could not be had: what was asked of whom, what happened, what to do.

use crate::dhcp::DhcpError;
use crate::dhcpv6::Dhcp6Error;
use crate::http::{HttpError, Problem};
use crate::tftp::TftpError;
use crate::url::{Url, UrlError};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Why a lease or a file could not be had. Its text is for the user and complete.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The text is no URL, or none that wireboot can fetch.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The URL's host has no address.
    #[error("{url}: {reason}")]
    Unresolved {
        /// What was asked for.
        url: Url,
        /// The resolver's error, as text for the user.
        reason: String,
    },
    /// An HTTP download failed. The error names URL and server.
    #[error(transparent)]
    Http(Box<HttpError>),
    /// A TFTP download failed.
    #[error("{url} (server {}): {error}", shown(.servers))]
    Tftp {
        /// What was asked for.
        url: Url,
        /// The address that answered, else all addresses that were asked.
        servers: Vec<SocketAddr>,
        /// The error of the last attempt.
        error: Box<TftpError>,
    },
    /// DHCP by IPv4 failed, and there was no DHCPv6 to try.
    #[error(transparent)]
    Dhcp(Box<DhcpError>),
    /// DHCP failed by both IP versions.
    #[error("{v4}; and by IPv6, {v6}")]
    NoLease {
        /// Why DHCP by IPv4 gave nothing.
        v4: Box<DhcpError>,
        /// Why DHCPv6 gave nothing.
        v6: Dhcp6Error,
    },
    /// The caller ended the job by [`Command::Cancel`](crate::Command::Cancel).
    #[error("{url}: cancelled")]
    Cancelled {
        /// What was asked for.
        url: Url,
    },
}

impl FetchError {
    /// Whether the server has said no: it is there, and says so to everybody.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Http(error) => matches!(error.problem, Problem::Status { .. }),
            Self::Tftp { error, .. } => matches!(**error, TftpError::Server { .. }),
            _ => false,
        }
    }
}

fn shown(servers: &[SocketAddr]) -> String {
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    servers.join(", ")
}

impl From<HttpError> for FetchError {
    fn from(error: HttpError) -> Self {
        Self::Http(Box::new(error))
    }
}

impl From<DhcpError> for FetchError {
    fn from(error: DhcpError) -> Self {
        Self::Dhcp(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_that_were_asked_are_named() {
        let error = FetchError::Tftp {
            url: Url::parse("tftp://boot/linux").unwrap(),
            servers: ["192.0.2.1:69", "[2001:db8::1]:69"]
                .map(|server| server.parse::<SocketAddr>().unwrap())
                .into(),
            error: Box::new(TftpError::NoBlock { size: 512 }),
        };
        let text = error.to_string();
        let begin = "tftp://boot/linux (server 192.0.2.1:69, [2001:db8::1]:69): the TFTP server";
        assert!(text.starts_with(begin), "{text}");
    }
}
