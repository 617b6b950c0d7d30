//! What boot servers grant, and what the paths to them carry.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A boot server that was asked without a boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// The file that it was asked for.
    pub url: String,
    /// The IP address that was asked.
    pub address: String,
    /// What the path to it carries; `None` where it answers no echo request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// What it said by TFTP, where the file comes by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tftp: Option<TftpAnswer>,
    /// What it said by HTTP, where the file comes by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpAnswer>,
    /// Why it did not say that, or did no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The path to a host and back, by echo requests (RFC 792, RFC 4443) that nobody may cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// The host is on the machine's link: no router between.
    pub on_link: bool,
    /// The longest packet of the machine's link, in bytes.
    pub link_mtu_bytes: u16,
    /// The longest packet that came there and back, in bytes; `None` where not even those came that every host takes: somebody keeps long requests away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u16>,
    /// Where that is less than the link's: somebody on the path says so (ICMP Fragmentation Needed, ICMPv6 Packet Too Big).
    pub told: bool,
    /// Requests of one length each.
    pub echoes: Vec<Echoes>,
}

/// Echo requests of one length, at even distances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Echoes {
    /// Bytes of the IP packet.
    pub packet_bytes: u16,
    /// As many were sent.
    pub asked: u32,
    /// As many were answered.
    pub answered: u32,
    /// Answers that came behind that to a later request.
    pub reordered: u32,
    /// Answers that had come already.
    pub repeated: u32,
    /// The shortest way there and back, in microseconds. 0 where none was answered, as below.
    pub least_us: u64,
    /// The median of the ways there and back.
    pub median_us: u64,
    /// The longest way there and back.
    pub most_us: u64,
}

impl Echoes {
    /// The part that was not answered, in percent.
    pub fn lost_percent(&self) -> f64 {
        let lost = self.asked.saturating_sub(self.answered);
        f64::from(lost) * 100.0 / f64::from(self.asked.max(1))
    }
}

impl Path {
    /// The part of all echo requests that was not answered, in percent.
    pub fn lost_percent(&self) -> f64 {
        let sum = |of: fn(&Echoes) -> u32| self.echoes.iter().map(|one| u64::from(of(one))).sum();
        let (asked, answered): (u64, u64) = (sum(|one| one.asked), sum(|one| one.answered));
        asked.saturating_sub(answered) as f64 * 100.0 / asked.max(1) as f64
    }

    /// Packets that fit the machine's link vanish on the path, and nobody says so (RFC 2923, section 2.1).
    pub fn is_black_hole(&self) -> bool {
        self.mtu_bytes.is_some_and(|mtu| mtu < self.link_mtu_bytes) && !self.told
    }
}

/// What a server answered to a read request with options (RFC 2347). The transfer ended there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TftpAnswer {
    /// Bytes of a block that were asked for (`blksize`).
    pub asked_block_bytes: u16,
    /// Bytes of a block that it grants; `None` where it has blocks of 512.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u16>,
    /// Blocks of a window that were asked for (`windowsize`).
    pub asked_window: u16,
    /// Blocks of a window that it grants; `None` where it waits behind each block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u16>,
    /// Bytes of the file (`tsize`), where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// From the first request to an answer, in microseconds.
    pub answer_us: u64,
    /// From the acknowledgement of that to the first block; `None` where the answer was the first block, or none came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_block_us: Option<u64>,
}

/// What a server answered to HEAD, and to GET of the file's first byte (RFC 9110).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpAnswer {
    /// The answer's status.
    pub status: u16,
    /// What serves, by its own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// Bytes of the file, where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// It sends parts of a file.
    pub ranges: bool,
    /// It answers a second request on the same connection.
    pub keeps_alive: bool,
    /// How long it took to connect, in microseconds.
    pub connect_us: u64,
    /// From the request to the first byte of its answer.
    pub first_byte_us: u64,
}
