//! What the lab's instruments and networks need of both versions of the Internet Protocol.

use std::fmt;
use std::net::IpAddr;

use clap::ValueEnum;
use serde::Serialize;

/// A version of the Internet Protocol, as `--ip` takes it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize,
)]
pub enum IpVersion {
    /// IPv4 alone
    #[default]
    #[value(name = "4")]
    #[serde(rename = "4")]
    V4,
    /// IPv6 alone: no IPv4 address on the network
    #[value(name = "6")]
    #[serde(rename = "6")]
    V6,
}

impl IpVersion {
    /// The version of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// An address as a URL has it: IPv6 in brackets (RFC 3986 section 3.2.2).
#[must_use]
pub fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ipv6_stands_in_brackets() {
        assert_eq!(host("10.77.0.1".parse().unwrap()), "10.77.0.1");
        assert_eq!(host("fd00:77::1".parse().unwrap()), "[fd00:77::1]");
    }
}
