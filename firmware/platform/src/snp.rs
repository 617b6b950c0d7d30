//! Network interfaces that a driver of the firmware's drives, by `EFI_SIMPLE_NETWORK_PROTOCOL` (UEFI 2.10, section 24.1).
//!
//! An [`Snp`] takes the interface for us alone: what the firmware has built on it (MNP and all above) lets go, and comes back
//! when it is dropped. Every frame is a call of the firmware, so it belongs to the BSP (bootstrap processor) and is not `Send`.

#[cfg(test)]
mod tests;

use crate::claim::lent::Lent;
use crate::claim::snp::{Candidate, Claim};
use crate::firmware_nic::{Driver, DriverInfo, FirmwareNic, Refusal};
use core::ptr::NonNull;
use uefi::Status;
use uefi::proto::network::snp::{NetworkState, ReceiveFlags, SimpleNetwork};
use wireboot_nic::Fault;

/// A network interface in use. Dropping it stops it and gives it back to the firmware.
pub type Snp = FirmwareNic<SnpDriver, Option<Claim>>;

/// Calls `EFI_SIMPLE_NETWORK_PROTOCOL` of one interface.
pub struct SnpDriver {
    protocol: NonNull<SimpleNetwork>,
}

impl SnpDriver {
    /// Calls the protocol; `call` has the only reference to it meanwhile.
    fn call<R>(&self, call: impl FnOnce(&mut SimpleNetwork) -> R) -> R {
        // SAFETY: the protocol stays in memory while it is open, or lent (the claim of the `Snp` that owns this; a test's own
        // value). There is no other reference to it: `call` does not come here again, and the value does not leave it.
        call(unsafe { &mut *self.protocol.as_ptr() })
    }
}

/// The fault behind an answer that no frame of ours explains.
fn fault(status: Status) -> Fault {
    match status {
        Status::NOT_STARTED => Fault::Misbehaved("somebody else has stopped it"),
        _ => Fault::Misbehaved("the firmware's driver reports errors only"),
    }
}

impl Driver for SnpDriver {
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Refusal> {
        self.call(|snp| snp.receive(buffer, None, None, None, None))
            .map_err(|error| match error.status() {
                Status::NOT_READY => Refusal::Later,
                Status::DEVICE_ERROR | Status::BUFFER_TOO_SMALL => Refusal::Lost,
                status => Refusal::Fault(fault(status)),
            })
    }

    fn transmit(&self, mut frame: NonNull<[u8]>) -> Result<(), Refusal> {
        // SAFETY: the caller's, and initialised; nobody has it until the call below.
        let frame = unsafe { frame.as_mut() };
        self.call(|snp| snp.transmit(0, frame, None, None, None))
            .map_err(|error| match error.status() {
                // iPXE's drivers say the second.
                Status::NOT_READY | Status::OUT_OF_RESOURCES => Refusal::Later,
                Status::DEVICE_ERROR | Status::BUFFER_TOO_SMALL => Refusal::Lost,
                status => Refusal::Fault(fault(status)),
            })
    }

    fn recycle(&self, calls: usize, mut back: impl FnMut(NonNull<u8>)) -> Result<(), Fault> {
        for _ in 0..calls {
            let buffer = self.call(|snp| snp.get_recycled_transmit_buffer_status());
            let Some(buffer) = buffer.map_err(|error| fault(error.status()))? else {
                break;
            };
            back(buffer);
        }
        Ok(())
    }

    fn link_up(&self) -> bool {
        self.call(|snp| {
            let mode = snp.mode();
            !bool::from(mode.media_present_supported) || bool::from(mode.media_present)
        })
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
    /// Takes the interface and starts it.
    ///
    /// # Errors
    /// What the firmware answers when it does not let go of the interface or cannot start it; `UNSUPPORTED` for a link that
    /// carries no full IPv4 packets.
    pub fn open(interface: &Candidate) -> uefi::Result<Self> {
        Self::take(interface, |_| STATION)
    }

    /// The same, and frames to all groups of stations come, too; where the driver has no filter for these, those to all stations.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn listen(interface: &Candidate) -> uefi::Result<Self> {
        Self::take(interface, everything)
    }

    fn take(interface: &Candidate, wanted: Filters) -> uefi::Result<Self> {
        let claim = Claim::take(interface)?;
        let protocol = claim.protocol();
        // SAFETY: open as long as the claim is.
        unsafe { Self::start(protocol, Some(claim), wanted) }
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
        wanted: Filters,
    ) -> uefi::Result<Self> {
        let driver = SnpDriver { protocol };
        match driver.call(|snp| start(snp, wanted)) {
            Ok(info) => Self::new(driver, info, claim).ok_or(Status::UNSUPPORTED.into()),
            Err(error) => {
                driver.stop();
                Err(error)
            }
        }
    }
}

/// Which filters to switch on, of those that the driver knows.
type Filters = fn(ReceiveFlags) -> ReceiveFlags;

/// What is for this station.
const STATION: ReceiveFlags = ReceiveFlags::UNICAST.union(ReceiveFlags::BROADCAST);

fn everything(known: ReceiveFlags) -> ReceiveFlags {
    let groups = ReceiveFlags::PROMISCUOUS_MULTICAST;
    let all = ReceiveFlags::PROMISCUOUS;
    STATION | if known.contains(groups) { groups } else { all }
}

/// Starts the interface anew.
fn start(snp: &mut SimpleNetwork, wanted: Filters) -> uefi::Result<DriverInfo> {
    if snp.mode().state == NetworkState::INITIALIZED {
        // Somebody left it running, with filters and buffers of their own.
        snp.shutdown()?;
    }
    if snp.mode().state == NetworkState::STOPPED {
        snp.start()?;
    }
    snp.initialize(0, 0)?;
    let known = ReceiveFlags::from_bits_truncate(snp.mode().receive_filter_mask);
    let wanted = wanted(known);
    // Without filters all is received. U-Boot has none, and does not know the call either.
    if !known.is_empty() {
        snp.receive_filters(wanted & known, known - wanted, true, None)?;
    }
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
