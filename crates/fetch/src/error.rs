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
    /// Whether a server says that there is no such file, or not for us: it will not have one a little later either.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Http(error) => {
                let refusals = [403, 404, 410];
                matches!(&error.problem, Problem::Status { status, .. } if refusals.contains(status))
            }
            // File not found, access violation (RFC 1350).
            Self::Tftp { error, .. } => matches!(**error, TftpError::Server { code: 1 | 2, .. }),
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

    #[test]
    fn an_answer_is_one_that_stays() {
        let by_http = |problem| {
            FetchError::Http(Box::new(HttpError {
                url: Url::parse("http://a/b").unwrap(),
                server: None,
                attempts: 1,
                problem,
            }))
        };
        let status = |status| Problem::Status {
            status,
            reason: String::new(),
            retry_after: None,
        };
        for (code, is_answer) in [
            (403, true),
            (404, true),
            (410, true),
            (407, false),
            (503, false),
        ] {
            assert_eq!(by_http(status(code)).is_answer(), is_answer, "{code}");
        }
        assert!(!by_http(Problem::NoAnswer).is_answer());
    }
}
