//! UDP by our engine, for the rungs of frames: what leaves and what comes is counted as it is for the driver below.

use super::frame::{self, Datagram};
use super::frames::Tally;
use super::wire::Wire;
use crate::error::Error;
use crate::throughput::{configure, wait_for_router};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem::take;
use core::net::{IpAddr, SocketAddr};
use wireboot_boot::card::AnyNic;
use wireboot_boot::engine::{self, Cable};
use wireboot_fetch::Leases;
use wireboot_net::{DatagramSink, Ends, Engine, Instant, NetError, Parts, UdpSocket};
use wireboot_nic::{MacAddress, Nic, Transmit};
use wireboot_platform::{Clock, random};
use wireboot_wire::ladder::{DATA_PORT, PORT};

/// Answers that are kept until they are looked at; there is one for each request.
const ANSWERS: usize = 16;

/// An engine on this processor, with sockets on the ports of [`wireboot_wire::ladder`].
pub(crate) struct Udp {
    engine: Engine<Cable>,
    clock: Clock,
    sender: IpAddr,
    requests: UdpSocket,
    answers: Rc<RefCell<Answers>>,
    /// Open as long as this.
    _data: UdpSocket,
    count: Rc<RefCell<Count>>,
}

/// What came to [`PORT`] since it was last looked at.
#[derive(Default)]
struct Answers(Vec<(SocketAddr, Vec<u8>)>);

impl DatagramSink for Answers {
    fn datagram(&mut self, ends: &Ends, payload: Parts<'_>, _: Instant) {
        if self.0.len() < ANSWERS {
            let bytes = payload.chunks().flatten().copied().collect();
            self.0.push((ends.remote_end(), bytes));
        }
    }
}

/// What came to [`DATA_PORT`] since it was last looked at.
#[derive(Default)]
struct Count {
    datagrams: u64,
    bytes: u64,
}

impl DatagramSink for Count {
    fn datagram(&mut self, _: &Ends, payload: Parts<'_>, _: Instant) {
        self.datagrams += 1;
        self.bytes += payload.len() as u64;
    }
}

impl Udp {
    /// On a card, with addresses of the version of IP that `sender` has. Waits until it is known what is on the link.
    pub(crate) fn open(nic: AnyNic, leases: &Leases, sender: IpAddr, clock: Clock) -> Self {
        let mut engine = Engine::new(engine::cable(nic), random::seed().0);
        let stack = engine.stack();
        configure(&stack, leases);
        let (answers, count) = <(Rc<RefCell<Answers>>, Rc<RefCell<Count>>)>::default();
        let requests = stack.udp_on_with_sink(PORT, answers.clone());
        let data = stack.udp_on_with_sink(DATA_PORT, count.clone());
        let ready = Rc::new(Cell::new(false));
        let is_ready = ready.clone();
        engine.spawn(async move {
            wait_for_router(&stack, sender).await;
            is_ready.set(true);
        });
        let mut udp = Self {
            engine,
            clock,
            sender,
            requests,
            answers,
            _data: data,
            count,
        };
        // A card that fails is told of by what is measured.
        while udp.turn().is_ok() && !ready.get() {}
        udp
    }

    /// The card, still running.
    pub(crate) fn into_nic(self) -> AnyNic {
        self.engine.into_nic().into_nic()
    }

    fn turn(&mut self) -> Result<(), Error> {
        let now = Instant::from_micros(self.clock.micros() as i64);
        engine::turn(&mut self.engine, now)?;
        Ok(())
    }
}

impl Wire for Udp {
    fn mac(&mut self) -> MacAddress {
        self.engine.nic_mut().properties().mac
    }

    fn receive(&mut self, tally: &mut Tally<'_>) -> Result<(), Error> {
        self.turn()?;
        let came = take(&mut *self.count.borrow_mut());
        tally.add(came.datagrams, came.bytes);
        for (from, text) in take(&mut self.answers.borrow_mut().0) {
            // The engine alone needs to know which station it is.
            tally.answered(&text, (from.ip(), from.port()), MacAddress::default());
        }
        Ok(())
    }

    /// The engine asks for the sender's Ethernet address itself.
    fn send(&mut self, frame: &[u8]) -> Result<bool, Error> {
        let Some(Datagram { port, at, len }) = frame::parse(frame) else {
            return Ok(false);
        };
        let payload = frame.get(at..at + len).unwrap_or_default();
        let to = SocketAddr::new(self.sender, port);
        match self.requests.send_to(to, payload) {
            Ok(()) => Ok(true),
            Err(NetError::Full) => Ok(false),
            Err(error) => Err(Error::Sink(error)),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.turn()
    }

    fn sent(&mut self) -> Result<bool, Error> {
        self.turn()?;
        let (_, mut transmit) = self.engine.nic_mut().split();
        Ok(transmit.idle())
    }
}
