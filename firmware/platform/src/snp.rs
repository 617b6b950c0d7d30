//! Network interfaces that a driver of the firmware's drives, by `EFI_SIMPLE_NETWORK_PROTOCOL` (UEFI 2.10, section 24.1).
//!
//! An [`Snp`] takes the interface for us alone: what the firmware has built on it (MNP and all above) lets go, and comes back
//! when it is dropped. Every frame is a call of the firmware, so it belongs to the boot processor and is not `Send`.

mod claim;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

#[cfg(target_os = "uefi")]
pub(crate) use claim::release_in_panic;
pub use claim::{Candidate, interfaces};
pub use receive::SnpReceive;
pub use transmit::SnpTransmit;

use claim::Claim;
use core::cell::Cell;
use core::ptr::NonNull;
use uefi::Status;
use uefi::proto::network::snp::{NetworkState, ReceiveFlags, SimpleNetwork};
use wireboot_nic::vlan::TAG_LEN;
use wireboot_nic::{Counters, Fault, Nic, Properties};

const ETHERNET_LEN: usize = 14;
/// The largest MTU that is used. The protocol tells one figure, and drivers do not agree whether it counts the header, so
/// nothing above plain Ethernet can be told for sure.
const MAX_MTU: u16 = 1500;
/// The least that IPv4 asks of every host (RFC 791).
const MIN_MTU: u16 = 576;
/// Frames that the driver's receive buffers are taken to hold. The protocol does not tell. Of the drivers looked at, iPXE's have
/// the fewest: several of them keep no more than 8 buffers filled.
const RECEIVE_FRAMES: usize = 8;
/// How many more most of them hold, or what is before them. It is tried.
const RECEIVE_FRAMES_HOPED: usize = 56;

#[derive(Clone, Copy)]
enum State {
    Running,
    Stopped,
    Failed(Fault),
}

/// The protocol, and whether it may still be called.
struct Port {
    protocol: NonNull<SimpleNetwork>,
    state: Cell<State>,
}

impl Port {
    /// One call.
    fn call<R>(&self, call: impl FnOnce(&mut SimpleNetwork) -> R) -> R {
        // SAFETY: the protocol stays installed while it is open (the claim of the `Snp` that owns this port; a test's own
        // value). There is no other reference to it: `call` does not come here again, and the value does not leave it.
        call(unsafe { &mut *self.protocol.as_ptr() })
    }

    /// `Ok(false)` when the interface was stopped.
    fn running(&self) -> Result<bool, Fault> {
        match self.state.get() {
            State::Running => Ok(true),
            State::Stopped => Ok(false),
            State::Failed(fault) => Err(fault),
        }
    }

    fn fail(&self, fault: Fault) -> Fault {
        self.end(State::Failed(fault));
        fault
    }

    /// Has the driver stop the device.
    fn end(&self, state: State) {
        self.state.set(state);
        self.call(|snp| {
            let _ = snp.shutdown();
            let _ = snp.stop();
        });
    }
}

/// The fault behind an answer that no frame of ours explains.
fn fault(status: Status) -> Fault {
    match status {
        Status::NOT_STARTED => Fault::Misbehaved("somebody else has stopped it"),
        _ => Fault::Misbehaved("the firmware's driver reports errors only"),
    }
}

/// A network interface in use. Dropping it stops it and gives it back to the firmware.
pub struct Snp {
    port: Port,
    properties: Properties,
    receive: receive::Inbox,
    transmit: transmit::Outbox,
    /// Behind all that the firmware may know of. `None` in tests.
    _claim: Option<Claim>,
}

impl Snp {
    /// Takes the interface and starts it.
    ///
    /// # Errors
    /// What the firmware answers when it does not let go of the interface or cannot start it; `UNSUPPORTED` for a link that
    /// carries no full IPv4 packets.
    pub fn open(interface: &Candidate) -> uefi::Result<Self> {
        let claim = Claim::take(interface)?;
        let protocol = claim.protocol()?;
        // SAFETY: open as long as the claim is.
        unsafe { Self::start(protocol, Some(claim)) }
    }

    /// # Safety
    /// `protocol` must be valid, and nobody else may use it, as long as the value lives.
    unsafe fn start(protocol: NonNull<SimpleNetwork>, claim: Option<Claim>) -> uefi::Result<Self> {
        let port = Port {
            protocol,
            state: Cell::new(State::Running),
        };
        let started = port.call(start);
        let (mac, mtu) = match started {
            Ok(told) => told,
            Err(error) => {
                port.end(State::Stopped);
                return Err(error);
            }
        };
        let properties = Properties {
            mac,
            mtu,
            max_receive: usize::from(mtu) + ETHERNET_LEN + TAG_LEN,
            receive_frames: RECEIVE_FRAMES,
            receive_frames_hoped: RECEIVE_FRAMES_HOPED,
            receive_bytes: RECEIVE_FRAMES * (usize::from(mtu) + ETHERNET_LEN),
            transmit_checksum: false,
        };
        Ok(Self {
            port,
            receive: receive::Inbox::new(properties.max_receive),
            transmit: transmit::Outbox::new(properties.max_receive),
            properties,
            _claim: claim,
        })
    }
}

/// Starts the interface anew; its address and MTU.
fn start(snp: &mut SimpleNetwork) -> uefi::Result<([u8; 6], u16)> {
    if snp.mode().state == NetworkState::INITIALIZED {
        // Somebody left it running, with filters and buffers of their own.
        snp.shutdown()?;
    }
    if snp.mode().state == NetworkState::STOPPED {
        snp.start()?;
    }
    snp.initialize(0, 0)?;
    let known = ReceiveFlags::from_bits_truncate(snp.mode().receive_filter_mask);
    let wanted = ReceiveFlags::UNICAST | ReceiveFlags::BROADCAST;
    snp.receive_filters(wanted & known, known - wanted, true, None)?;
    let mode = snp.mode();
    let mac = *mode
        .current_address
        .0
        .first_chunk()
        .ok_or(Status::UNSUPPORTED)?;
    let mtu = u16::try_from(mode.max_packet_size)
        .unwrap_or(u16::MAX)
        .min(MAX_MTU);
    if mtu < MIN_MTU {
        return Err(Status::UNSUPPORTED.into());
    }
    Ok((mac, mtu))
}

impl Nic for Snp {
    type Rx<'a> = SnpReceive<'a>;
    type Tx<'a> = SnpTransmit<'a>;

    fn properties(&self) -> Properties {
        self.properties
    }

    fn link_up(&mut self) -> bool {
        // The driver looks at the link when it is asked for its status.
        if self.port.running() != Ok(true) || self.transmit.recycle(&self.port).is_err() {
            return false;
        }
        self.port.call(|snp| {
            let mode = snp.mode();
            !bool::from(mode.media_present_supported) || bool::from(mode.media_present)
        })
    }

    fn split(&mut self) -> (SnpReceive<'_>, SnpTransmit<'_>) {
        (
            SnpReceive::new(&self.port, &mut self.receive),
            SnpTransmit::new(&self.port, &mut self.transmit),
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
            self.port.end(State::Stopped);
        }
    }
}

impl Drop for Snp {
    fn drop(&mut self) {
        self.stop();
    }
}
