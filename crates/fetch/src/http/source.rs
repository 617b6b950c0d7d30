//! What a connection or another engine must know to receive a part of a file, and statistics of a download.

use core::net::SocketAddr;

use super::head::Validator;
use crate::pace::Floor;
use crate::url::Url;

/// One version of a file on a server.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) url: Url,
    pub(crate) server: SocketAddr,
    pub(crate) validator: Validator,
    /// Size of the file in bytes.
    pub(crate) total: u64,
    /// Slower connections are given up.
    pub(crate) floor: Floor,
}

/// Requests and connections of a download.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpStats {
    /// Requests, those that got no answer included.
    pub requests: u32,
    /// Connections made (not those used again).
    pub connections: u32,
    /// Answers that led to another URL.
    pub redirects: u32,
    /// Times the transfer went on where it had broken off.
    pub resumed: u32,
    /// Times it started anew, what was received being of no use.
    pub restarted: u32,
}

impl HttpStats {
    /// Adds the counts of helpers.
    pub(crate) fn add_help(&mut self, helpers: &Self) {
        self.requests += helpers.requests;
        self.connections += helpers.connections;
        self.resumed += helpers.resumed;
    }
}
