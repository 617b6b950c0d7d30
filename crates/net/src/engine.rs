//! The engine's turn: receive a burst, run the tasks, send.

use crate::bootp::{CLIENT_PORT, QUEUE};
use crate::ethernet::{Received, Tcp, Udp, be32, parse, put};
use crate::icmp;
use crate::parts::Parts;
use crate::smoltcp_device::{Port, complete_checksum};
use crate::stack::{Inner, Stack};
use crate::team::{Forwarded, Member};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use smoltcp::iface::PollResult;
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use wireboot_nic::{Fault, Frame, Nic, Offload, Properties, Receive, SendError, Transmit};

/// Received units a turn. Large enough to spread the cost of a turn, small enough that buffers go
/// back and acknowledgements leave in time.
const BURST: usize = 64;
/// Offset of the IP header in a frame.
const IP: usize = 14;
/// Offset of the TCP header in a frame without IP options.
const TCP: usize = 34;

/// A NIC, the network on it, and the tasks that use it: all that one processor owns.
pub struct Engine<N: Nic> {
    nic: N,
    properties: Properties,
    stack: Stack,
    tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

impl<N: Nic> Engine<N> {
    /// An engine on `nic`, without an address. `seed` comes from the best source of randomness that the machine has.
    pub fn new(nic: N, seed: [u8; 32]) -> Self {
        Self {
            properties: nic.properties(),
            stack: Stack::new(&nic, seed),
            nic,
            tasks: Vec::new(),
        }
    }

    /// Makes this the engine at `place` of a team, whose NIC is that pair of the card. To be called before it is used.
    pub fn join(&mut self, place: Member) {
        self.stack.inner().team = Some(place);
    }

    /// Frames that it gave to others of its team.
    pub fn forwarded(&self) -> Forwarded {
        let inner = self.stack.inner();
        inner
            .team
            .as_ref()
            .map_or_else(Forwarded::default, Member::forwarded)
    }

    /// The network, for a task.
    pub fn stack(&self) -> Stack {
        self.stack.clone()
    }

    /// Adds a task. It runs for the first time in the next turn.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        self.tasks.push(Box::pin(task));
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
            let (mut rx, mut tx) = self.nic.split();
            let inner = &mut *self.stack.inner();
            let mut ingress = Ingress {
                inner,
                properties: &self.properties,
                mtu: self.stack.mtu(),
                now,
                from_lead: false,
            };
            let passed = ingress.passed(&mut tx);
            rx.burst(BURST, |frame| ingress.frame(&frame, &mut tx))? + passed
        };
        let mut context = Context::from_waker(Waker::noop());
        self.tasks
            .retain_mut(|task| task.as_mut().poll(&mut context) == Poll::Pending);
        let (_, mut tx) = self.nic.split();
        let mtu = self.stack.mtu();
        egress(&mut self.stack.inner(), &mut tx, &self.properties, mtu, now)?;
        Ok(received > 0)
    }
}

struct Ingress<'a> {
    inner: &'a mut Inner,
    properties: &'a Properties,
    mtu: u16,
    now: Instant,
    /// The frame at hand came to an assistant from the lead, not from its NIC.
    from_lead: bool,
}

impl Ingress<'_> {
    /// Takes what others of the team received for this engine.
    fn passed(&mut self, tx: &mut impl Transmit) -> usize {
        let Some(team) = &mut self.inner.team else {
            return 0;
        };
        let frames = team.take(BURST);
        self.from_lead = !team.leads();
        for frame in &frames {
            frame.with(|frame| self.frame(frame, tx));
        }
        self.from_lead = false;
        frames.len()
    }

    fn frame(&mut self, frame: &Frame<'_>, tx: &mut impl Transmit) {
        match parse(frame, self.properties.mac) {
            Received::Udp(udp) => {
                if !self.udp(&udp, frame.udp_segment) && !self.give_lead(frame) {
                    self.smoltcp(frame, 0, tx);
                }
            }
            Received::Tcp(segment) => {
                if !self.inner.connections.take(&segment, self.now) {
                    self.tcp(frame, &segment, tx);
                }
            }
            Received::Arp(arp) => {
                // The lead answers for the station; answers to one of us may come to any queue.
                if !self.from_lead && self.give_lead(frame) {
                    return;
                }
                if let Some(team) = self.inner.team.as_mut().filter(|_| arp.reply) {
                    team.give_all(frame);
                }
                self.inner.arp(&arp, self.properties.mac, self.now);
                self.smoltcp(frame, 0, tx);
            }
            Received::Other => {
                if !self.give_lead(frame) {
                    self.refused(frame);
                    self.smoltcp(frame, 0, tx);
                }
            }
            Received::Drop => {}
        }
    }

    /// Gives a frame to the lead if this engine is an assistant.
    #[cold]
    fn give_lead(&mut self, frame: &Frame<'_>) -> bool {
        let team = self.inner.team.as_mut();
        team.is_some_and(|team| team.give_lead(frame))
    }

    /// Gives a segment of no connection of this engine's towards the engine that it belongs to, if that is another one.
    #[cold]
    fn give_owner(&mut self, frame: &Frame<'_>, segment: &Tcp<'_>) -> bool {
        let Inner {
            team, connections, ..
        } = &mut *self.inner;
        let Some(team) = team else { return false };
        // A segment's head is in the first part.
        let destination = frame.parts.first().and_then(|head| be32(head, IP + 16));
        let Some(destination) = destination else {
            return false;
        };
        let remote = SocketAddrV4::new(segment.source, segment.source_port);
        let local = SocketAddrV4::new(destination.into(), segment.destination_port);
        !connections.knows(segment) && team.give_owner(frame, remote, local)
    }

    /// Tells a port of ours when a host says that nobody took its datagram.
    fn refused(&mut self, frame: &Frame<'_>) {
        let (Some(head), Some(address)) = (frame.parts.first(), self.inner.address()) else {
            return;
        };
        if let Some(refused) = icmp::refused(head, address) {
            let mut ports = self.inner.udp.iter_mut();
            if let Some(binding) = ports.find(|binding| binding.port == refused.port) {
                binding.refused = Some(refused.remote);
            }
        }
    }

    /// Gives datagrams of ports of ours to their sinks; false when the port is not ours.
    fn udp(&mut self, udp: &Udp<'_>, segment: Option<u16>) -> bool {
        if udp.destination_port == CLIENT_PORT
            && let Some(queue) = &mut self.inner.bootp
        {
            if queue.len() < QUEUE {
                let mut message = vec![0; udp.payload.len()];
                udp.payload.copy_to(&mut message);
                queue.push_back((udp.source, message));
            }
            return true;
        }
        if self.inner.address() != Some(udp.destination) {
            return false;
        }
        let Some(binding) = self
            .inner
            .udp
            .iter()
            .find(|binding| binding.port == udp.destination_port)
        else {
            return false;
        };
        let source = SocketAddrV4::new(udp.source, udp.source_port);
        let mut sink = binding.sink.borrow_mut();
        let step = segment.map_or(usize::MAX, |step| usize::from(step).max(1));
        let mut at = 0;
        loop {
            sink.datagram(source.into(), udp.payload.slice(at, step), self.now);
            at = at.saturating_add(step);
            if at >= udp.payload.len() {
                return true;
            }
        }
    }

    fn tcp(&mut self, frame: &Frame<'_>, segment: &Tcp<'_>, tx: &mut impl Transmit) {
        if self.give_owner(frame, segment) {
            return;
        }
        let behind = self.inner.connections.arriving(segment);
        self.smoltcp(frame, behind, tx);
        let Inner {
            connections,
            sockets,
            ..
        } = &mut *self.inner;
        connections.arrived(segment, sockets, self.now);
    }

    /// Shows a frame to smoltcp, TCP sequence numbers set back by `behind`.
    fn smoltcp(&mut self, frame: &Frame<'_>, behind: u32, tx: &mut impl Transmit) {
        let Inner {
            iface,
            sockets,
            connections,
            linear,
            scratch,
            ..
        } = &mut *self.inner;
        let contiguous = match frame.parts {
            [whole] if behind == 0 => *whole,
            _ => {
                linear.clear();
                for chunk in Parts::new(frame.parts).chunks() {
                    linear.extend_from_slice(chunk);
                }
                if behind != 0
                    && let Some(sequence) = be32(linear, TCP + 4)
                {
                    // The checksum was verified before, and smoltcp does not look at it.
                    put(linear, TCP + 4, sequence.wrapping_sub(behind).to_be_bytes());
                }
                linear
            }
        };
        let mut port = Port {
            frame: Some(contiguous),
            transmit: tx,
            connections,
            scratch,
            mtu: self.mtu,
            offload: self.properties.transmit_checksum,
        };
        iface.poll_ingress_single(self.now, &mut port, sockets);
    }
}

fn egress(
    inner: &mut Inner,
    tx: &mut impl Transmit,
    properties: &Properties,
    mtu: u16,
    now: Instant,
) -> Result<(), Fault> {
    inner.resolve(properties.mac, now);
    let Inner {
        iface,
        sockets,
        connections,
        outbox,
        scratch,
        closing,
        ..
    } = inner;
    let device = properties.transmit_checksum;
    let mut send = |frame: &mut [u8]| -> Result<(), SendError> {
        let offload: Offload = complete_checksum(frame, device);
        tx.send(frame.len(), offload, |memory| memory.copy_from_slice(frame))
    };
    while let Some(mut frame) = outbox.pop_front() {
        if send(&mut frame) == Err(SendError::Full) {
            outbox.push_front(frame);
            break;
        }
    }
    // An acknowledgement that finds the ring full is covered by the next one.
    connections.acknowledge(now, |frame| {
        let _ = send(frame);
    });
    let mut port = Port {
        frame: None,
        transmit: tx,
        connections,
        scratch,
        mtu,
        offload: device,
    };
    // Each call sends one packet of each socket that has any.
    for _ in 0..BURST {
        if iface.poll_egress(now, &mut port, sockets) == PollResult::None {
            break;
        }
    }
    iface.poll_maintenance(now);
    connections.reap(sockets, now);
    closing.retain(|(handle, until)| {
        let empty = sockets.get::<udp::Socket<'_>>(*handle).send_queue() == 0;
        let done = empty || now >= *until;
        if done {
            sockets.remove(*handle);
        }
        !done
    });
    tx.flush()
}
