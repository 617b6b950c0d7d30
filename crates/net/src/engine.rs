//! The engine's turn: receive a burst, run the tasks, send.

use crate::bootp::CLIENT_PORT;
use crate::datagrams::DatagramSink;
use crate::echo;
use crate::interface::Delivery;
use crate::packet::{
    self, Arp, ETHERNET_HEADER, Ends, Ip, IpVersion, PROTOCOL_TCP, PROTOCOL_UDP, Received, Tcp, Udp,
};
use crate::parts::Parts;
use crate::path_mtu::TooBig;
use crate::stack::Stack;
use crate::state::NetState;
use crate::tap::Tap;
use crate::tcp::mss::mss;
use crate::team::{Forwarded, Passed, Peer};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use wireboot_nic::{Checksum, Fault, Frame, MacAddress, Nic, Properties, Receive, Transmit};
use wireboot_tcp::Instant;

/// Received units a turn. Large enough to spread the cost of a turn, small enough that buffers go
/// back and acknowledgements leave in time.
const BURST: usize = 64;

/// A NIC, the network on it, and the tasks that use it: all that one processor owns.
pub struct Engine<N: Nic> {
    nic: N,
    properties: Properties,
    stack: Stack,
    tasks: Vec<Task>,
}

/// What an [`Engine`] runs until it is over. It need not be `Send`.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

impl<N: Nic> Engine<N> {
    /// An engine on `nic`, without an address. `seed` comes from the best source of randomness that the machine has.
    pub fn new(nic: N, seed: [u8; 32]) -> Self {
        let properties = nic.properties();
        Self {
            properties,
            stack: Stack::new(properties, seed),
            nic,
            tasks: Vec::new(),
        }
    }

    /// Makes this the engine `peer` of a team, whose NIC is that pair of the card. To be called before it is used. An engine that
    /// joins none is a team of its own.
    pub fn join(&mut self, peer: Peer) {
        self.stack.state().team = peer;
    }

    /// Puts a tap on the link, instead of any former one. In a team, the leader's is the one that receives.
    pub fn set_tap(&mut self, tap: Tap) {
        self.stack.state().tap = Some(tap);
    }

    /// Frames that it gave to others of its team.
    pub fn forwarded(&self) -> Forwarded {
        self.stack.state().team.forwarded
    }

    /// TCP's segments are cut here from now on, whatever the card could do.
    pub fn without_segmentation_offload(&mut self) {
        self.properties.transmit_unit = 0;
    }

    /// The network, for a task.
    pub fn stack(&self) -> Stack {
        self.stack.clone()
    }

    /// Adds a task. It runs for the first time in the next turn.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        self.add(Box::pin(task));
    }

    /// The same of one that is in a box already.
    pub fn add(&mut self, task: Task) {
        self.tasks.push(task);
    }

    /// The NIC, for its counters and link state.
    pub fn nic_mut(&mut self) -> &mut N {
        &mut self.nic
    }

    /// Ends all tasks and gives the NIC back, still running.
    pub fn into_nic(self) -> N {
        self.nic
    }

    /// One turn: takes what has arrived, runs every task, sends what there is to send. Never blocks. `now`
    /// must not go backwards. Returns whether anything arrived, from the NIC or from others of the team.
    ///
    /// # Errors
    /// [`Fault`] when the NIC failed; the engine is of no more use then.
    pub fn poll(&mut self, now: Instant) -> Result<bool, Fault> {
        self.stack.set_now(now);
        let received = {
            let (mut rx, _) = self.nic.split();
            let state = &mut *self.stack.state();
            let mut ingress = Ingress {
                state,
                properties: &self.properties,
                now,
                ours: None,
                tapped: false,
            };
            let passed = ingress.passed();
            rx.burst(BURST, |frame| ingress.frame(&frame))? + passed
        };
        self.stack.set_joins_datagrams(self.nic.joins_datagrams());
        let mut context = Context::from_waker(Waker::noop());
        self.tasks
            .retain_mut(|task| task.as_mut().poll(&mut context) == Poll::Pending);
        if let Some(placer) = self.nic.placer() {
            self.stack.state().flows.place(placer, now);
        }
        let (_, mut tx) = self.nic.split();
        let state = &mut *self.stack.state();
        let interface = &mut state.interface;
        let tapped = match &mut state.tap {
            Some(tap) => {
                let worked = tap.turn(&mut tx)?;
                interface.mute = tap.is_up();
                worked
            }
            None => false,
        };
        state
            .flows
            .transmit(interface, &mut tx, &self.properties, now);
        interface.turn(now);
        interface.transmit(&mut tx, now)?;
        state.flows.reap(now);
        tx.flush()?;
        Ok(received > 0 || tapped)
    }
}

struct Ingress<'a> {
    state: &'a mut NetState,
    properties: &'a Properties,
    now: Instant,
    /// An address of ours, as a datagram of this burst has shown: the next one is likely to come there too.
    ours: Option<u128>,
    /// What the frame at hand was made of has gone to the tap already.
    tapped: bool,
}

impl Ingress<'_> {
    /// Takes what others of the team received for this engine.
    fn passed(&mut self) -> usize {
        let passed = self.state.team.take(BURST);
        for one in &passed {
            match one {
                Passed::Frame(unit) => unit.with(|frame| self.frame(frame)),
                Passed::Neighbor(update) => self.state.interface.update_neighbor(update, self.now),
                Passed::TooBig(too_big) => self.too_big(too_big),
            }
        }
        passed.len()
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        let usual = match packet::parse(frame, &self.properties.mac) {
            Some(Received::V4(ip)) => self.usual(frame, &ip),
            Some(Received::V6(ip)) => self.usual(frame, &ip),
            _ => false,
        };
        if !usual {
            self.any(frame);
        }
    }

    /// Takes the next data of the connection that had the segment before, or a datagram to a port of ours; false when it is neither.
    #[inline(always)]
    fn usual<'a>(&mut self, frame: &Frame<'a>, ip: &Ip<'a>) -> bool {
        match ip.protocol {
            PROTOCOL_TCP => {
                packet::tcp(frame, ip).is_some_and(|tcp| self.state.flows.take_next(&tcp, self.now))
            }
            PROTOCOL_UDP => {
                packet::udp(frame, ip).is_some_and(|udp| self.udp(&udp, frame.udp_segment))
            }
            _ => false,
        }
    }

    /// Takes any other unit. It is read once more: that costs less than to keep what has been read for so few.
    #[inline(never)]
    fn any(&mut self, frame: &Frame<'_>) {
        match packet::parse(frame, &self.properties.mac) {
            Some(Received::V4(ip)) => self.packet(frame, IpVersion::V4, &ip),
            Some(Received::V6(ip)) => self.packet(frame, IpVersion::V6, &ip),
            Some(Received::Odd(version)) => self.odd(frame, version),
            Some(Received::Arp(arp)) => self.arp(frame, &arp),
            None => self.foreign(frame),
        }
    }

    /// What nobody here takes is whose the tap is.
    #[cold]
    fn tap(&mut self, frame: &Frame<'_>) {
        if let (Some(tap), false) = (&mut self.state.tap, self.tapped) {
            tap.give(frame, &mut self.state.linear);
        }
    }

    /// A frame of another protocol, of another station, or broken.
    #[cold]
    fn foreign(&mut self, frame: &Frame<'_>) {
        let to: Option<MacAddress> = Parts::new(frame.parts).first();
        let ours = to.is_some_and(|to| to == self.properties.mac || to[0] & 1 == 1);
        if ours && !self.state.team.give_leader(frame) {
            self.tap(frame);
        }
    }

    fn is_tapped(&self) -> bool {
        self.state.tap.as_ref().is_some_and(Tap::is_up)
    }

    fn packet<'a>(&mut self, frame: &Frame<'a>, version: IpVersion, ip: &Ip<'a>) {
        match ip.protocol {
            PROTOCOL_TCP => {
                if let Some(tcp) = packet::tcp(frame, ip)
                    && !self.state.flows.take(&tcp, self.now)
                {
                    self.stray(frame, &tcp);
                }
            }
            PROTOCOL_UDP => {
                if let Some(udp) = packet::udp(frame, ip)
                    && !self.udp(&udp, frame.udp_segment)
                    && !self.bootp(&udp)
                    && !self.state.team.give_leader(frame)
                {
                    self.nobody_listens(frame, &udp);
                }
            }
            _ => self.odd(frame, version),
        }
    }

    #[cold]
    fn arp(&mut self, frame: &Frame<'_>, arp: &Arp) {
        // The leader answers for the station.
        if self.state.team.give_leader(frame) {
            return;
        }
        self.tap(frame);
        if let Some(update) = self.state.interface.arp(arp, self.now) {
            self.state.team.tell_all(&update);
        }
    }

    /// A segment of no connection of this engine's goes towards the engine that it belongs to, or is refused.
    #[cold]
    fn stray(&mut self, frame: &Frame<'_>, tcp: &Tcp<'_>) {
        let local = tcp.ends.local_end().ip();
        if self.state.team.give_owner(frame, &tcp.ends) {
            return;
        }
        if self.is_tapped() {
            self.tap(frame);
            return;
        }
        let interface = &mut self.state.interface;
        let stranger = tcp.ends.remote_end().ip();
        if interface.is_ours(local, self.now) && interface.may_refuse(stranger, self.now) {
            self.state.flows.refuse(tcp);
        }
    }

    /// Gives datagrams of ports of ours to their sinks; false when the port is not ours.
    #[inline(always)]
    fn udp(&mut self, udp: &Udp<'_>, segment: Option<u16>) -> bool {
        let ends = udp.ends;
        let port = ends.ports as u16;
        let mut ports = self.state.udp.iter();
        let Some(binding) = ports.find(|binding| binding.port == port) else {
            return false;
        };
        if !udp.unicast {
            return true;
        }
        if self.ours != Some(ends.local) {
            let local = ends.local_end().ip();
            if !self.state.interface.is_ours(local, self.now) {
                return true;
            }
            self.ours = Some(ends.local);
        }
        let mut sink = binding.sink.borrow_mut();
        let Some(step) = segment else {
            sink.datagram(&ends, udp.payload, self.now);
            return true;
        };
        let step = usize::from(step).max(1);
        let mut at = 0;
        loop {
            sink.datagram(&ends, udp.payload.slice(at, step), self.now);
            at += step;
            if at >= udp.payload.len() {
                return true;
            }
        }
    }

    /// Keeps a datagram for the DHCP client, which has no address yet; false when it is none.
    #[cold]
    fn bootp(&mut self, udp: &Udp<'_>) -> bool {
        if udp.ends.local_end().port() == CLIENT_PORT
            && udp.ends.remote_end().is_ipv4()
            && let Some(queue) = &mut self.state.bootp
        {
            queue.datagram(&udp.ends, udp.payload, self.now);
            return true;
        }
        false
    }

    /// A packet of neither TCP nor UDP, or one in fragments or with options: looked at in one piece.
    #[cold]
    fn odd(&mut self, frame: &Frame<'_>, version: IpVersion) {
        if self.state.team.give_leader(frame) {
            return;
        }
        self.tap(frame);
        // It may say that an address is somebody else's.
        self.ours = None;
        let packet = linearize(&mut self.state.linear, frame);
        let unicast = Parts::new(frame.parts).first() == Some(self.properties.mac);
        let interface = &mut self.state.interface;
        let delivery = match version {
            IpVersion::V4 => interface.ipv4(packet, unicast, self.now),
            IpVersion::V6 => interface.ipv6(packet, unicast, self.now),
        };
        match delivery {
            None => {}
            Some(Delivery::Whole(bytes)) => {
                self.tapped = true;
                self.frame(&Frame {
                    parts: &[&bytes],
                    len: bytes.len(),
                    checksum: Checksum::Unverified,
                    udp_segment: None,
                });
                self.tapped = false;
            }
            Some(Delivery::Refused(quoted)) => {
                let mut ports = self.state.udp.iter_mut();
                if let Some(binding) = ports.find(|binding| binding.port == quoted.local.port()) {
                    binding.refused = Some(quoted.remote);
                }
            }
            Some(Delivery::TooBig(too_big)) => self.too_big(&too_big),
            Some(Delivery::Echo(news)) => echo::take(&mut self.state.echoes, &news),
            Some(Delivery::Neighbor(update)) => self.state.team.tell_all(&update),
        }
    }

    /// A datagram came to a port that nobody has: its sender is told.
    #[cold]
    fn nobody_listens(&mut self, frame: &Frame<'_>, udp: &Udp<'_>) {
        if self.is_tapped() {
            return self.tap(frame);
        }
        let interface = &mut self.state.interface;
        let local = udp.ends.local_end().ip();
        let stranger = udp.ends.remote_end().ip();
        let ours = udp.unicast && interface.is_ours(local, self.now);
        if ours && interface.may_refuse(stranger, self.now) {
            let packet = linearize(&mut self.state.linear, frame);
            match local {
                IpAddr::V4(_) => interface.port_unreachable4(packet, self.now),
                IpAddr::V6(_) => interface.port_unreachable6(packet, self.now),
            }
        }
    }

    /// Believes that a packet was too long for the path if it was one of a connection's under way (RFC 5927, section 4.1).
    fn too_big(&mut self, too_big: &TooBig) {
        let TooBig { quoted, mtu } = too_big;
        let remote = quoted.remote.ip();
        if self.state.team.give_sender(too_big) {
            return;
        }
        let ends = Ends::new(quoted.remote, quoted.local);
        if let Some(sequence) = quoted.sequence
            && let Some(flow) = self.state.flows.find(ends)
            && flow.connection.too_big(sequence, mss(remote, *mtu))
        {
            let path_mtus = &mut self.state.interface.path_mtus;
            path_mtus.lower(remote, *mtu, self.now);
        }
    }
}

/// The IP packet in a frame, in one piece.
fn linearize<'a>(linear: &'a mut Vec<u8>, frame: &Frame<'_>) -> &'a [u8] {
    linear.clear();
    for chunk in Parts::new(frame.parts).chunks() {
        linear.extend_from_slice(chunk);
    }
    linear.get(ETHERNET_HEADER..).unwrap_or_default()
}
