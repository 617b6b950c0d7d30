//! The protocols by which a measurement or a boot fetches its files.

use serde::Serialize;

/// How a file is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferProtocol {
    /// TFTP (RFC 1350), with whatever options the client asks for.
    Tftp,
    /// HTTP/1.1 without TLS.
    Http,
}

impl TransferProtocol {
    /// `TFTP` or `HTTP`, as texts write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tftp => "TFTP",
            Self::Http => "HTTP",
        }
    }

    /// As URLs begin with it.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Tftp => "tftp",
            Self::Http => "http",
        }
    }
}
