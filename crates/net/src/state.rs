//! The state of the network, which a turn of the engine and the tasks' handles change.

use crate::datagrams::{Binding, Queue};
use crate::echo;
use crate::interface::Interface;
use crate::random::Random;
use crate::tap::Tap;
use crate::tcp::flows::Flows;
use crate::team::{Peer, team};
use alloc::vec::Vec;
use wireboot_nic::{Properties, Steering};

/// Everything that a turn of the engine touches, but for the NIC and the tasks.
pub(crate) struct NetState {
    pub interface: Interface,
    pub udp: Vec<Binding>,
    pub echoes: Vec<echo::Binding>,
    pub flows: Flows,
    pub bootp: Option<Queue>,
    /// Where somebody else listens.
    pub tap: Option<Tap>,
    /// The engine's place among those on the same card.
    pub team: Peer,
    /// Contiguous copies of received packets that must be looked at in one piece.
    pub linear: Vec<u8>,
}

impl NetState {
    pub(crate) fn new(properties: &Properties, random: Random) -> Self {
        Self {
            interface: Interface::new(properties, random),
            udp: Vec::new(),
            echoes: Vec::new(),
            flows: Flows::default(),
            bootp: None,
            tap: None,
            team: team(&Steering::by_port(1)).0,
            linear: Vec::with_capacity(properties.max_receive),
        }
    }
}
