//! UDP by our engine, for the rungs of frames: what leaves and what comes is counted as it is for the driver below. What the engine sends of itself
//! meanwhile, a few questions for Ethernet addresses, counts at the sender, too.

use super::frame::{self, Datagram};
use super::tally::Tally;
use super::upload::drive;
use super::wire::Wire;
use crate::error::Error;
use crate::throughput::{configure, wait_for_router};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::mem::take;
use core::net::{IpAddr, SocketAddr};
use wireboot_boot::card::AnyNic;
use wireboot_boot::engine::{self, Cable};
use wireboot_fetch::Leases;
use wireboot_net::{DatagramSink, Ends, Engine, Instant, NetError, Parts, UdpSocket};
use wireboot_nic::{MacAddress, Nic, Transmit};
use wireboot_platform::{Clock, random};
use wireboot_wire::ladder::{DATA_PORT, PORT};

/// An engine on this processor, with sockets on the ports of [`wireboot_wire::ladder`].
pub(crate) struct Udp {
    engine: Engine<Cable>,
    clock: Clock,
    sender: IpAddr,
    requests: UdpSocket,
    /// Open as long as this.
    _data: UdpSocket,
    count: Rc<RefCell<Count>>,
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
        let count = Rc::<RefCell<Count>>::default();
        let requests = stack.udp_on(PORT);
        let data = stack.udp_on_with_sink(DATA_PORT, count.clone());
        // A card that fails is told of by what is measured.
        let _ = drive(&mut engine, clock, async move {
            wait_for_router(&stack, sender).await;
        });
        Self {
            engine,
            clock,
            sender,
            requests,
            _data: data,
            count,
        }
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
        while let Some((from, text)) = self.requests.try_receive() {
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
