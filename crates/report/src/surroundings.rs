//! What a machine heard of its network while it listened.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::{Network, Phase};

/// What a machine heard of its network, with all multicast frames, and who answered what it asked. It took no address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Surroundings {
    /// The Ethernet address of the card that listened.
    pub mac: String,
    /// How long, in seconds.
    pub listened_s: f64,
    /// From the start of the card until its link was up. `None` where it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_after_s: Option<f64>,
    /// The link's speed in Mbit/s, where the card tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_mbit_s: Option<u32>,
    /// The card's link to the machine, where it has one of PCI Express.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
    /// Frames that came.
    pub packets: u64,
    /// What happened when, in seconds from when the link was up.
    pub timeline: Vec<Phase>,
    /// What the frames showed. Its times, too, are seconds from then.
    pub network: Network,
    /// How far others on the same link are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub round_trips: Vec<RoundTrip>,
}

/// A link of PCI Express.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pcie {
    /// Its rate, in gigatransfers a second of each lane.
    pub gt_per_s: f64,
    /// Lanes that the link uses now.
    pub lanes: u8,
    /// The rate that the card can have.
    pub most_gt_per_s: f64,
    /// The width that the card can have.
    pub most_lanes: u8,
}

/// The way to another station on the link and back, by ARP (RFC 826).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTrip {
    /// What it is: `router`, `boot server`, `name server`.
    pub what: String,
    /// Its IPv4 address.
    pub address: String,
    /// How often it was asked.
    pub asked: u32,
    /// How long each answer took, in microseconds; as many as came.
    pub took_us: Vec<u64>,
}
