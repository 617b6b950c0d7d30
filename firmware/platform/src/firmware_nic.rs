//! Our [`Nic`] over a driver of the firmware's: a call for each frame, which copies it.
//!
//! What differs between the firmware's interfaces ([`snp`](crate::snp), [`undi`](crate::undi)) is a [`Driver`]; what they have in common,
//! buffers, counters and when to give up, is here.

mod receive;
mod transmit;

pub(crate) use receive::FirmwareNicReceive;
pub(crate) use transmit::FirmwareNicTransmit;

use core::cell::Cell;
use core::ptr::NonNull;
use wireboot_nic::vlan::TAG_LEN;
use wireboot_nic::{Counters, Fault, Nic, NicState, Properties};

pub(crate) const ETHERNET_LEN: usize = 14;
/// The largest MTU that is used. What drivers tell counts the header with some and not with others, so nothing above plain
/// Ethernet can be told for sure.
const MAX_MTU: u16 = 1500;
/// The least that IPv4 asks of every host (RFC 791).
const MIN_MTU: u16 = 576;
/// Frames that the driver's receive buffers are taken to hold where it does not tell. Of the drivers looked at, iPXE's have the
/// fewest: several of them keep no more than 8 buffers filled.
const RECEIVE_FRAMES: usize = 8;
/// How many more most of them hold, or what is before them. It is tried.
const RECEIVE_FRAMES_PROBE: usize = 56;

/// So many errors of the driver's in a row, with no success between them, mean that no more will come.
const FAILURES: u32 = 1 << 16;
/// The fault behind them.
pub(crate) const ERRORS_ONLY: Fault =
    Fault::Misbehaved("the firmware's driver reports errors only");

/// Why a call did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing has come, or there is no room now.
    Later,
    /// This frame is lost, as on any network; of a question, the answer is.
    Lost,
    /// No other will come through either.
    Fault(Fault),
}

/// The firmware's driver of an interface that it has started for us alone. For the BSP.
pub trait Driver {
    /// Copies the next frame into `buffer`; its length.
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Refusal>;

    /// Gives a frame to the driver, which may read it until its buffer comes back by [`recycle`](Self::recycle).
    fn transmit(&self, frame: NonNull<[u8]>) -> Result<(), Refusal>;

    /// Asks, at most `calls` times, for the buffers of frames that have left, and looks at the link on the way.
    fn recycle(&self, calls: usize, back: impl FnMut(NonNull<u8>)) -> Result<(), Refusal>;

    /// Whether the link was up at the last look, or nobody can tell.
    fn link_up(&self) -> bool;

    /// Stops the device. False when it may still use the buffers that it was given.
    fn stop(&self) -> bool;
}

/// The driver, and whether it may still be called.
struct Port<D> {
    driver: D,
    state: Cell<NicState>,
    /// The device may use transmit buffers, or will when it is started.
    using: Cell<bool>,
}

impl<D: Driver> Port<D> {
    /// `Ok(false)` when the interface was stopped.
    fn running(&self) -> Result<bool, Fault> {
        self.state.get().running()
    }

    fn fail(&self, fault: Fault) -> Fault {
        self.end(NicState::Failed(fault));
        fault
    }

    /// Has the driver stop the device.
    fn end(&self, state: NicState) {
        self.state.set(state);
        self.using.set(!self.driver.stop());
    }
}

/// What a driver says of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverInfo {
    /// The current station address, which may differ from the permanent one.
    pub mac: [u8; 6],
    /// Its largest packet, with or without the link's header.
    pub packet: usize,
    /// Frames that its receive buffers hold; `None` where it does not say.
    pub receive_frames: Option<usize>,
    /// It takes a frame before it has been asked for the buffer of the one before.
    pub transmits_several: bool,
}

impl DriverInfo {
    /// `None` for a link that carries no full IPv4 packets.
    fn properties(self) -> Option<Properties> {
        let mtu = u16::try_from(self.packet).unwrap_or(u16::MAX).min(MAX_MTU);
        if mtu < MIN_MTU {
            return None;
        }
        let (receive_frames, receive_frames_probe) = match self.receive_frames {
            Some(frames) => (frames, 0),
            None => (RECEIVE_FRAMES, RECEIVE_FRAMES_PROBE),
        };
        Some(Properties {
            mac: self.mac,
            mtu,
            max_receive: usize::from(mtu) + ETHERNET_LEN + TAG_LEN,
            receive_frames,
            receive_frames_probe,
            receive_bytes: receive_frames * (usize::from(mtu) + ETHERNET_LEN),
            transmit_checksum: false,
            transmit_unit: 0,
        })
    }
}

/// A network interface in use. Dropping it stops it and gives it back to the firmware.
pub struct FirmwareNic<D: Driver, C> {
    port: Port<D>,
    properties: Properties,
    receive: receive::Inbox,
    transmit: transmit::Outbox,
    /// Behind all that the firmware may know of.
    claim: C,
}

impl<D: Driver, C> FirmwareNic<D, C> {
    /// An interface that was started. `None`, with the interface stopped, for a link that carries no full IPv4 packets.
    pub(crate) fn new(driver: D, info: DriverInfo, claim: C) -> Option<Self> {
        let several = info.transmits_several;
        let Some(properties) = info.properties() else {
            driver.stop();
            // The claim goes last.
            drop(driver);
            return None;
        };
        Some(Self {
            port: Port {
                driver,
                state: Cell::new(NicState::Running),
                using: Cell::new(true),
            },
            receive: receive::Inbox::new(properties.max_receive),
            transmit: transmit::Outbox::new(properties.max_receive, several),
            properties,
            claim,
        })
    }

    pub(crate) fn claim_mut(&mut self) -> &mut C {
        &mut self.claim
    }
}

impl<D: Driver, C> Nic for FirmwareNic<D, C> {
    type Rx<'a>
        = FirmwareNicReceive<'a, D>
    where
        Self: 'a;
    type Tx<'a>
        = FirmwareNicTransmit<'a, D>
    where
        Self: 'a;

    fn properties(&self) -> Properties {
        self.properties
    }

    fn link_up(&mut self) -> bool {
        // The driver looks at the link when it is asked for its status.
        if self.port.running() != Ok(true) || self.transmit.recycle(&self.port).is_err() {
            return false;
        }
        self.port.driver.link_up()
    }

    fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>) {
        (
            FirmwareNicReceive::new(&self.port, &mut self.receive),
            FirmwareNicTransmit::new(&self.port, &mut self.transmit),
        )
    }

    fn counters(&self) -> Counters {
        let (rx, tx) = (self.receive.counters(), self.transmit.counters());
        Counters {
            receive_units: rx.receive_units,
            receive_bytes: rx.receive_bytes,
            receive_dropped: rx.receive_dropped,
            ..tx
        }
    }

    fn stop(&mut self) {
        if self.port.running() == Ok(true) {
            self.port.end(NicState::Stopped);
        }
    }
}

impl<D: Driver, C> Drop for FirmwareNic<D, C> {
    fn drop(&mut self) {
        self.stop();
        if !self.port.using.get() {
            self.transmit.free();
        }
    }
}
