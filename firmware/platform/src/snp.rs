//! Network interfaces that a driver of the firmware's drives, by `EFI_SIMPLE_NETWORK_PROTOCOL` (UEFI 2.10, section 24.1).
//!
//! An [`Snp`] takes the interface for us alone: what the firmware has built on it (MNP and all above) lets go, and comes back
//! when it is dropped. Every frame is a call of the firmware, so it belongs to the BSP (bootstrap processor) and is not `Send`.

#[cfg(test)]
mod tests;

use crate::claim::lent::Lent;
use crate::claim::snp::{Candidate, Claim};
use crate::clock::ticks;
use crate::firmware_nic::{Driver, DriverInfo, ERRORS_ONLY, FirmwareNic, Refusal};
use core::cell::Cell;
use core::ptr::NonNull;
use uefi::Status;
use uefi::proto::network::snp::{NetworkState, ReceiveFlags, SimpleNetwork};
use wireboot_nic::Fault;

/// How long a link is waited for before the interface is started anew, at first, in ticks of the processor's counter: 2 to 5 s.
const PAUSE: u64 = 10_000_000_000;

/// A network interface in use. Dropping it stops it and gives it back to the firmware.
pub type Snp = FirmwareNic<SnpDriver, Option<Claim>>;

/// Calls `EFI_SIMPLE_NETWORK_PROTOCOL` of one interface.
pub struct SnpDriver {
    protocol: NonNull<SimpleNetwork>,
    /// When the interface was last started, in ticks of the processor's counter.
    started: Cell<u64>,
    /// After how many it is started anew while it has no link; `u64::MAX` once it had one, or has moved a frame.
    pause: Cell<u64>,
}

impl SnpDriver {
    /// Calls the protocol; `call` has the only reference to it meanwhile.
    fn call<R>(&self, call: impl FnOnce(&mut SimpleNetwork) -> R) -> R {
        // SAFETY: the protocol stays in memory while it is open, or lent (the claim of the `Snp` that owns this; a test's own
        // value). There is no other reference to it: `call` does not come here again, and the value does not leave it.
        call(unsafe { &mut *self.protocol.as_ptr() })
    }

    /// A call that moves a frame.
    fn move_frame<R>(
        &self,
        call: impl FnOnce(&mut SimpleNetwork) -> uefi::Result<R>,
    ) -> Result<R, Refusal> {
        let moved = self.call(call).map_err(refusal)?;
        self.pause.set(u64::MAX);
        Ok(moved)
    }
}

/// What an answer means for the frame or the buffers that it was about.
fn refusal(error: uefi::Error) -> Refusal {
    match error.status() {
        // iPXE's drivers say the second of a full queue.
        Status::NOT_READY | Status::OUT_OF_RESOURCES => Refusal::Later,
        // EDK II says the first of all that its UNDI refuses.
        Status::DEVICE_ERROR | Status::BUFFER_TOO_SMALL => Refusal::Lost,
        Status::NOT_STARTED => Refusal::Fault(Fault::Misbehaved("somebody else has stopped it")),
        _ => Refusal::Fault(ERRORS_ONLY),
    }
}

/// Not while it could not be started anew: what it tells of the cable may be old then.
fn has_link(snp: &SimpleNetwork) -> bool {
    let mode = snp.mode();
    mode.state == NetworkState::INITIALIZED
        && (!bool::from(mode.media_present_supported) || bool::from(mode.media_present))
}

impl Driver for SnpDriver {
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Refusal> {
        self.move_frame(|snp| snp.receive(buffer, None, None, None, None))
    }

    fn transmit(&self, mut frame: NonNull<[u8]>) -> Result<(), Refusal> {
        // SAFETY: the caller's, and initialised; nobody has it until the call below.
        let frame = unsafe { frame.as_mut() };
        self.move_frame(|snp| snp.transmit(0, frame, None, None, None))
    }

    fn recycle(&self, calls: usize, mut back: impl FnMut(NonNull<u8>)) -> Result<(), Refusal> {
        for _ in 0..calls {
            let buffer = self.call(|snp| snp.get_recycled_transmit_buffer_status());
            match buffer {
                Ok(Some(buffer)) => back(buffer),
                Ok(None) => break,
                // It has no frame of ours, and is started anew while it has no link: the last start may have failed.
                Err(_) if self.pause.get() != u64::MAX => break,
                Err(error) => return Err(refusal(error)),
            }
        }
        Ok(())
    }

    /// Starts the interface anew now and then before it first has a link: some drivers look for a cable at no other time (those of EDK II
    /// whose UNDI does not tell of it in its status). The pauses grow, as a start may break off what both ends of a cable agree on.
    fn link_up(&self) -> bool {
        let pause = self.pause.get();
        let is_due = ticks().saturating_sub(self.started.get()) >= pause;
        let up = self.call(|snp| has_link(snp) || is_due && restart(snp));
        if up {
            self.pause.set(u64::MAX);
        } else if is_due {
            self.started.set(ticks());
            self.pause.set(pause.saturating_mul(2));
        }
        up
    }

    fn stop(&self) -> bool {
        self.call(|snp| {
            let _ = snp.shutdown();
            let _ = snp.stop();
        });
        // What became of the buffers, the protocol has no way to tell.
        true
    }
}

impl Snp {
    /// Takes the interface and starts it. Frames to all groups of stations come, too; where the driver has no filter for these, all
    /// frames.
    ///
    /// # Errors
    /// What the firmware answers when it does not let go of the interface or cannot start it; `UNSUPPORTED` for a link that
    /// carries no full IPv4 packets.
    pub fn open(interface: &Candidate) -> uefi::Result<Self> {
        let claim = Claim::take(interface)?;
        let protocol = claim.protocol();
        // SAFETY: open as long as the claim is.
        unsafe { Self::start(protocol, Some(claim), PAUSE) }
    }

    /// Gives way on its handle: see [`Lent`]. `None` for one that was taken from nobody.
    pub fn lend(&mut self) -> Option<Lent> {
        self.claim_mut().as_mut().map(Claim::lend)
    }

    /// # Safety
    /// `protocol` must be valid, and nobody else may use it, as long as the value lives.
    unsafe fn start(
        protocol: NonNull<SimpleNetwork>,
        claim: Option<Claim>,
        pause: u64,
    ) -> uefi::Result<Self> {
        let driver = SnpDriver {
            protocol,
            started: Cell::new(ticks()),
            pause: Cell::new(pause),
        };
        match driver.call(start) {
            Ok(info) => Self::new(driver, info, claim).ok_or(Status::UNSUPPORTED.into()),
            Err(error) => {
                driver.stop();
                Err(error)
            }
        }
    }
}

/// What is for this station.
const STATION: ReceiveFlags = ReceiveFlags::UNICAST.union(ReceiveFlags::BROADCAST);

/// What is for groups of stations, as IPv6 needs it: the first that the driver takes, at last nothing.
const GROUPS: [ReceiveFlags; 3] = [
    ReceiveFlags::PROMISCUOUS_MULTICAST,
    ReceiveFlags::PROMISCUOUS,
    ReceiveFlags::empty(),
];

/// Chooses which frames come. A driver that refuses all that is asked may bring them all the same.
fn set_filters(snp: &mut SimpleNetwork) {
    let known = ReceiveFlags::from_bits_truncate(snp.mode().receive_filter_mask);
    // Without filters all is received. U-Boot has none, and does not know the call either.
    if known.is_empty() {
        return;
    }
    for groups in GROUPS {
        let wanted = (STATION | groups) & known;
        let others = known - wanted;
        if known.contains(groups) && snp.receive_filters(wanted, others, true, None).is_ok() {
            return;
        }
    }
    log::warn!("the firmware's driver of the network card takes no filters");
}

/// Starts the interface anew. Whether it has a link then.
fn restart(snp: &mut SimpleNetwork) -> bool {
    start(snp).is_ok() && has_link(snp)
}

/// Starts the interface anew.
fn start(snp: &mut SimpleNetwork) -> uefi::Result<DriverInfo> {
    if snp.mode().state == NetworkState::INITIALIZED {
        // Somebody left it running, with filters and buffers of their own.
        snp.shutdown()?;
    }
    if snp.mode().state == NetworkState::STOPPED {
        snp.start()?;
    }
    snp.initialize(0, 0)?;
    set_filters(snp);
    let mode = snp.mode();
    let mac = *mode
        .current_address
        .0
        .first_chunk()
        .ok_or(Status::UNSUPPORTED)?;
    Ok(DriverInfo {
        mac,
        packet: usize::try_from(mode.max_packet_size).unwrap_or(usize::MAX),
        receive_frames: None,
        transmits_several: mode.multiple_tx_supported.into(),
    })
}
