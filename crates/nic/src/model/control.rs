//! The control queue of the virtio-net model, and how the device chooses the pair that receives.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use super::{BUFFER_MAX, Model, UnitHeader, VirtioModelState};
use crate::virtio::feature;

const CLASS_MQ: u8 = 4;
const VQ_PAIRS_SET: u8 = 0;
const RSS_CONFIG: u8 = 1;
const OK: u8 = 0;
const ERR: u8 = 1;

/// What the device does with commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// What they say.
    Obey,
    /// The same, but it does not steer by hash.
    RefuseHash,
    /// Nothing, and says so.
    Refuse,
    /// Nothing, and says nothing.
    Ignore,
    /// Nothing, and returns any buffer with any answer.
    Lie {
        /// The number of the buffer.
        id: u32,
        /// Status that the device writes: 0 is VIRTIO_NET_OK, 1 VIRTIO_NET_ERR (virtio 1.2, section 5.1.6.5).
        ack: u8,
    },
}

/// Addresses and ports of a packet, as it arrives: of IPv4 12 bytes, of IPv6 36.
type Flow = Vec<u8>;

/// Which pairs the device uses, and for what.
#[derive(Default)]
pub(super) enum Receivers {
    /// The first alone.
    #[default]
    First,
    /// So many, for the flows that they have sent last.
    BySender(u16, BTreeMap<Flow, usize>),
    /// So many, by hash: table and key.
    ByHash(u16, Vec<u16>, Vec<u8>),
}

impl Receivers {
    pub(super) fn pairs(&self) -> usize {
        match self {
            Self::First => 1,
            Self::BySender(pairs, _) | Self::ByHash(pairs, ..) => (*pairs).into(),
        }
    }

    /// Learns from a frame that a pair has sent.
    pub(super) fn saw(&mut self, pair: usize, frame: &[u8]) {
        if let (Self::BySender(_, flows), Some(sent)) = (self, tcp_flow(frame)) {
            let (addresses, ports) = sent.split_at(sent.len() - 4);
            let (from, to) = addresses.split_at(addresses.len() / 2);
            flows.insert([to, from, &ports[2..], &ports[..2]].concat(), pair);
        }
    }

    /// The pair for a frame that arrives.
    fn choose(&self, frame: &[u8]) -> usize {
        let flow = tcp_flow(frame);
        match (self, flow) {
            (Self::First, _) | (Self::ByHash(..), None) => 0,
            // Any pair will do for what nobody sent.
            (Self::BySender(pairs, flows), flow) => flow
                .and_then(|flow| flows.get(&flow).copied())
                .unwrap_or(frame.len() % usize::from(*pairs)),
            (Self::ByHash(_, table, key), Some(flow)) => {
                let hash = toeplitz(key, &flow) as usize;
                table[hash % table.len()].into()
            }
        }
    }
}

/// The flow of a frame of TCP without IP options or extension headers.
fn tcp_flow(frame: &[u8]) -> Option<Flow> {
    if frame.len() >= 74 && frame[12..14] == [0x86, 0xdd] && frame[20] == 6 {
        return Some(frame[22..58].to_vec());
    }
    let is_tcp = frame.len() >= 54
        && frame[12..15] == [0x08, 0x00, 0x45]
        && frame[23] == 6
        // No fragment.
        && frame[20] & 0x3f == 0
        && frame[21] == 0;
    is_tcp.then(|| frame[26..38].to_vec())
}

/// Bit by bit: bit `n` of the hash is the parity of what input and key, from its bit `n` on, have in common.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], n: usize| {
        bytes
            .get(n / 8)
            .is_some_and(|byte| byte << (n % 8) & 0x80 != 0)
    };
    (0..32).fold(0, |hash, n| {
        let common = (0..8 * input.len()).filter(|i| bit(input, *i) && bit(key, i + n));
        hash << 1 | (common.count() % 2) as u32
    })
}

impl Model {
    /// Sets what the device does with commands.
    pub fn set_commands(&self, commands: Commands) {
        let mut state = self.state();
        state.lied |= matches!(commands, Commands::Lie { .. });
        state.commands = commands;
    }

    /// Queue pairs that the device was told to use.
    pub fn pairs_used(&self) -> usize {
        self.state().receivers.pairs()
    }

    /// Puts a unit into receive buffers of the pair that the device chooses, which it tells; `None` when there are too few.
    pub fn arrive(&self, header: UnitHeader, unit: &[u8]) -> Option<usize> {
        let pair = self.state().receivers.choose(unit);
        self.deliver_to(pair, header, unit).then_some(pair)
    }
}

impl VirtioModelState {
    /// Pairs that there are by the features accepted.
    pub(super) fn pairs(&self) -> usize {
        let several = self.driver_features & (feature::MQ | feature::RSS) != 0;
        if several { self.config.pairs.into() } else { 1 }
    }

    /// The number of the control queue, if there is one.
    pub(super) fn control(&self) -> Option<usize> {
        let there = self.driver_features & feature::CTRL_VQ != 0;
        there.then(|| 2 * self.pairs())
    }

    /// Does what the control queue says.
    pub(super) fn work(&mut self) {
        let Some(queue) = self.control() else {
            return;
        };
        while self.is_running() && self.commands != Commands::Ignore && self.available(queue) > 0 {
            let (head, bytes, ack_address) = self.command(queue);
            let (id, ack) = match self.commands {
                Commands::Lie { id, ack } => (id, ack),
                Commands::Refuse | Commands::Ignore => (head.into(), ERR),
                Commands::Obey | Commands::RefuseHash => (head.into(), self.obey(&bytes)),
            };
            self.write(ack_address, &[ack]);
            self.put_used(queue, id, 1);
            self.consume(queue, 1);
            self.publish_used(queue);
        }
    }

    /// The number of the next command's first descriptor, what it says, and where the answer goes.
    fn command(&self, queue: usize) -> (u16, Vec<u8>, u64) {
        let q = &self.queues[queue];
        let slot = u64::from(q.seen % q.size);
        let head = self.read16(q.addresses[1] + 4 + 2 * slot);
        let (mut id, mut said) = (head, vec![]);
        for _ in 0..q.size {
            self.demand(id < q.size, "chained an impossible buffer");
            let bytes = self.read(q.addresses[0] + 16 * u64::from(id), 16);
            let address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let len = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            let flags = u16::from_le_bytes([bytes[12], bytes[13]]);
            if flags == 2 {
                self.demand(len == 1, "wants an odd answer");
                return (head, said, address);
            }
            self.demand(flags == 1, "set odd flags");
            said.extend(self.read(address, (len as usize).min(BUFFER_MAX)));
            id = u16::from_le_bytes([bytes[14], bytes[15]]);
        }
        self.demand(false, "left no room for an answer");
        (head, said, 0)
    }

    /// Carries out a command, and tells how that went.
    fn obey(&mut self, said: &[u8]) -> u8 {
        let word = |at: usize| {
            said.get(at..at + 2)
                .map(|b| u16::from_le_bytes([b[0], b[1]]))
        };
        let receivers = match said {
            [CLASS_MQ, VQ_PAIRS_SET, _, _] => word(2).map(|pairs| match pairs {
                1 => Receivers::First,
                _ => Receivers::BySender(pairs, BTreeMap::new()),
            }),
            [CLASS_MQ, RSS_CONFIG, rss @ ..] if self.commands != Commands::RefuseHash => {
                self.demand(
                    self.driver_features & feature::RSS != 0,
                    "sets RSS without it",
                );
                self.parse_rss(rss)
            }
            _ => None,
        };
        match receivers {
            Some(receivers) if (1..=self.pairs()).contains(&receivers.pairs()) => {
                self.receivers = receivers;
                OK
            }
            _ => ERR,
        }
    }

    /// `struct virtio_net_rss_config`, if it is one that this device can do.
    fn parse_rss(&self, bytes: &[u8]) -> Option<Receivers> {
        let (max_key, max_table, hashes) = self.config.rss;
        let (fixed, rest) = bytes.split_at_checked(8)?;
        let types = u32::from_le_bytes(fixed[..4].try_into().unwrap());
        let mask = u16::from_le_bytes([fixed[4], fixed[5]]);
        let len = mask.checked_add(1).filter(|len| len.is_power_of_two())?;
        let (table, rest) = rest.split_at_checked(2 * usize::from(len))?;
        let table: Vec<_> = table
            .chunks(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
            .collect();
        let (tail, key) = rest.split_at_checked(3)?;
        let pairs = u16::from_le_bytes([tail[0], tail[1]]);
        // Else what is no TCP would not come to the first pair.
        self.demand(
            types == 0x12 && fixed[6..] == [0, 0],
            "spreads something else than TCP",
        );
        let fits = types & !hashes == 0
            && len <= max_table
            && table.iter().all(|pair| *pair < pairs)
            && key.len() == usize::from(tail[2])
            && tail[2] <= max_key;
        fits.then(|| Receivers::ByHash(pairs, table, key.to_vec()))
    }
}
