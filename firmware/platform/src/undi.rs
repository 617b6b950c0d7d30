//! Network interfaces that a driver of the firmware's drives, by its software UNDI (UEFI 2.10, appendix E), which
//! `EFI_NETWORK_INTERFACE_IDENTIFIER_PROTOCOL` leads to.
//!
//! An [`Undi`] takes the interface for us alone and starts it with callbacks of ours. Every frame is a call of the driver, which may call the
//! firmware, so it belongs to the BSP (bootstrap processor) and is not `Send`. A call ends when the driver ends it; what it asks for meanwhile
//! (delays, mappings) is bounded.

mod callbacks;
mod structure;
#[cfg(test)]
mod tests;

use crate::claim::lent::Lent;
use crate::claim::snp::ETHERNET;
use crate::claim::undi::{Candidate, Claim};
use crate::clock::Clock;
use crate::firmware_nic::{Driver, DriverInfo, ERRORS_ONLY, FirmwareNic, Refusal};
use crate::memory::Pages;
use crate::raw::undi::{
    OPFLAGS_GET_MEDIA_STATUS, OPFLAGS_GET_TRANSMITTED_BUFFERS,
    OPFLAGS_INITIALIZE_DO_NOT_DETECT_CABLE, OPFLAGS_RECEIVE_FILTER_ALL_MULTICAST,
    OPFLAGS_RECEIVE_FILTER_BROADCAST, OPFLAGS_RECEIVE_FILTER_ENABLE,
    OPFLAGS_RECEIVE_FILTER_PROMISCUOUS, OPFLAGS_RECEIVE_FILTER_UNICAST, PxeCpbInitialize,
    PxeCpbReceive, PxeCpbTransmit, PxeDbGetInitInfo, PxeDbGetStatus, PxeDbInitialize, PxeDbReceive,
    PxeDbStationAddress, PxeEntryPoint, PxeOpcode, PxeStatcode, STATFLAGS_GET_STATE_INITIALIZED,
    STATFLAGS_GET_STATE_MASK, STATFLAGS_GET_STATE_STARTED, STATFLAGS_GET_STATUS_NO_MEDIA,
    STATFLAGS_GET_STATUS_NO_MEDIA_SUPPORTED, STATFLAGS_GET_STATUS_NO_TXBUFS_WRITTEN,
    STATFLAGS_GET_STATUS_TXBUF_QUEUE_EMPTY,
};
use crate::undi_commands::Commands;
use alloc::boxed::Box;
use callbacks::{Bus, Context};
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use structure::Software;
use uefi::Status;
use uefi::boot::Tpl;
use wireboot_nic::Fault;

/// Memory that a driver may ask for, in bytes at most.
const MEMORY: u32 = 16 << 20;

/// Why an UNDI is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UndiError {
    /// The firmware does not let go of it.
    #[error("the firmware does not give it up ({0})")]
    Refused(Status),
    /// What describes it is wrong.
    #[error("its !PXE structure {0}")]
    Structure(&'static str),
    /// Of this kind, nobody has seen one.
    #[error("it is in hardware, with no entry point in software")]
    Hardware,
    /// It does not do what it is asked to.
    #[error("it answers {code:?} to the command {command:?}")]
    Command {
        /// `OpCode` of the CDB.
        command: PxeOpcode,
        /// `StatCode` of the CDB afterwards.
        code: PxeStatcode,
    },
    /// It wants more memory than any device needs, or there is none.
    #[error("it wants {0} bytes of memory, which it does not get")]
    Memory(u32),
    /// Its hardware type is not Ethernet, or its longest frame is too short.
    #[error("its link carries no full IPv4 packets over Ethernet")]
    Link,
}

/// A network interface in use. Dropping it stops it and gives it back to the firmware.
pub type Undi = FirmwareNic<Interface, Option<Claim>>;

/// An interface that an UNDI drives.
pub struct Interface {
    commands: Commands,
    /// For its callbacks. Dropped when it has been stopped.
    context: ManuallyDrop<Box<Context>>,
    /// What the command Initialize gave it. As above.
    memory: ManuallyDrop<Option<Pages>>,
    /// Whether it tells what became of the link.
    tells_link: bool,
    link: Cell<bool>,
    /// The device uses nothing of ours.
    stopped: Cell<bool>,
}

impl Interface {
    /// # Safety
    /// `commands` are those of an UNDI, which nobody else may use as long as the value lives.
    unsafe fn new(commands: Commands, clock: Clock, bus: Option<Bus>) -> Self {
        Self {
            commands,
            context: ManuallyDrop::new(Box::new(Context::new(clock, bus))),
            memory: ManuallyDrop::new(None),
            tells_link: false,
            link: Cell::new(true),
            stopped: Cell::new(true),
        }
    }

    /// One command. What its parameters point to is valid for it, and stays so where it keeps it.
    fn issue<P, R>(
        &self,
        command: PxeOpcode,
        flags: u16,
        parameters: Option<&P>,
        results: Option<&mut R>,
    ) -> Result<u16, PxeStatcode> {
        // As the firmware's own network does: what runs by its timer may belong to the driver.
        let _level = callbacks::raise(Tpl::CALLBACK);
        // SAFETY: the promise of `new`, and the callers' here.
        let result = unsafe { self.commands.issue(command, flags, parameters, results) };
        self.context.unblock();
        result
    }

    /// As [`Self::issue`], on the way to the start.
    fn ask<P, R>(
        &self,
        command: PxeOpcode,
        flags: u16,
        parameters: Option<&P>,
        results: Option<&mut R>,
    ) -> Result<u16, UndiError> {
        self.issue(command, flags, parameters, results)
            .map_err(|code| UndiError::Command { command, code })
    }

    /// Starts it anew. It has these `filters`.
    fn start(&mut self, filters: u16) -> Result<DriverInfo, UndiError> {
        let state = self.ask::<(), ()>(PxeOpcode::GET_STATE, 0, None, None)?;
        // Somebody left it running, with callbacks of their own.
        match state & STATFLAGS_GET_STATE_MASK {
            STATFLAGS_GET_STATE_INITIALIZED => {
                self.ask::<(), ()>(PxeOpcode::SHUTDOWN, 0, None, None)?;
                self.ask::<(), ()>(PxeOpcode::STOP, 0, None, None)?;
            }
            STATFLAGS_GET_STATE_STARTED => {
                self.ask::<(), ()>(PxeOpcode::STOP, 0, None, None)?;
            }
            _ => {}
        }
        self.stopped.set(false);
        let callbacks = self.context.parameters();
        self.ask::<_, ()>(PxeOpcode::START, 0, Some(&callbacks), None)?;
        let mut info = PxeDbGetInitInfo::default();
        let flags = self.ask::<(), _>(PxeOpcode::GET_INIT_INFO, 0, None, Some(&mut info))?;
        if info.if_type != ETHERNET || info.hw_addr_len != 6 {
            return Err(UndiError::Link);
        }
        self.tells_link = flags & STATFLAGS_GET_STATUS_NO_MEDIA_SUPPORTED != 0;
        let driver_info = self.initialize(&info)?;
        self.set_filters(filters);
        Ok(driver_info)
    }

    /// Chooses by the filters that are `known` which frames come: for groups of stations, too, as IPv6 needs them, if there is a way. One
    /// that refuses all that is asked may bring them all the same.
    fn set_filters(&self, known: u16) {
        const STATION: u16 = OPFLAGS_RECEIVE_FILTER_ENABLE | OPFLAGS_RECEIVE_FILTER_UNICAST;
        for wanted in [
            OPFLAGS_RECEIVE_FILTER_BROADCAST | OPFLAGS_RECEIVE_FILTER_ALL_MULTICAST,
            OPFLAGS_RECEIVE_FILTER_BROADCAST & known | OPFLAGS_RECEIVE_FILTER_PROMISCUOUS,
            OPFLAGS_RECEIVE_FILTER_BROADCAST,
        ] {
            let flags = STATION | wanted;
            let command = PxeOpcode::RECEIVE_FILTERS;
            if wanted & !known == 0 && self.issue::<(), ()>(command, flags, None, None).is_ok() {
                return;
            }
        }
        log::warn!("the network card's UNDI takes no filters");
    }

    /// Has it start the device.
    fn initialize(&mut self, info: &PxeDbGetInitInfo) -> Result<DriverInfo, UndiError> {
        let mut parameters = PxeCpbInitialize::default();
        let bytes = info.memory_required;
        if bytes > 0 {
            let memory = (bytes <= MEMORY).then(|| Pages::allocate(bytes as usize).ok());
            let memory = memory.flatten().ok_or(UndiError::Memory(bytes))?;
            parameters.memory_addr = memory.start().as_ptr().expose_provenance() as u64;
            parameters.memory_length = bytes;
            *self.memory = Some(memory);
        }
        // Looking for a cable takes seconds with some drivers, in a call that cannot be left. The status tells later, and where it
        // does not, whether somebody answers.
        let mut results = PxeDbInitialize::default();
        self.ask(
            PxeOpcode::INITIALIZE,
            OPFLAGS_INITIALIZE_DO_NOT_DETECT_CABLE,
            Some(&parameters),
            Some(&mut results),
        )?;
        let mut addresses = PxeDbStationAddress::default();
        self.ask::<(), _>(PxeOpcode::STATION_ADDRESS, 0, None, Some(&mut addresses))?;
        let [a, b, c, d, e, f, ..] = addresses.station_addr;
        Ok(DriverInfo {
            mac: [a, b, c, d, e, f],
            packet: info.frame_data_len as usize,
            receive_frames: Some(usize::from(results.rx_buf_cnt)).filter(|&frames| frames > 0),
            transmits_several: true,
        })
    }
}

/// The fault behind an answer that no frame of ours explains.
fn fault(code: PxeStatcode) -> Fault {
    match code {
        PxeStatcode::NOT_STARTED | PxeStatcode::NOT_INITIALIZED => {
            Fault::Misbehaved("somebody else has stopped it")
        }
        PxeStatcode::INVALID_UNDI => Fault::Misbehaved("the firmware's driver does nothing"),
        _ => ERRORS_ONLY,
    }
}

/// What an answer means for the frame or the buffers that it was about. The catch-all of iPXE's drivers is INVALID_CDB.
fn refusal(code: PxeStatcode) -> Refusal {
    match code {
        PxeStatcode::NO_DATA | PxeStatcode::BUSY => Refusal::Later,
        PxeStatcode::INVALID_CDB | PxeStatcode::DEVICE_FAILURE | PxeStatcode::INVALID_PARAMETER => {
            Refusal::Lost
        }
        code => Refusal::Fault(fault(code)),
    }
}

impl Driver for Interface {
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Refusal> {
        let room = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let parameters = PxeCpbReceive {
            buffer_addr: buffer.as_mut_ptr().expose_provenance() as u64,
            buffer_len: room,
            reserved: 0,
        };
        let mut results = PxeDbReceive::default();
        self.issue(PxeOpcode::RECEIVE, 0, Some(&parameters), Some(&mut results))
            .map_err(|code| match code {
                PxeStatcode::BUFFER_FULL => Refusal::Lost,
                code => refusal(code),
            })?;
        // Longer than the buffer says that the rest of it is lost.
        if results.frame_len > room {
            return Err(Refusal::Lost);
        }
        Ok(results.frame_len as usize)
    }

    fn transmit(&self, frame: NonNull<[u8]>) -> Result<(), Refusal> {
        // The specification counts the header apart, EDK II's and iPXE's sides do not. With no header told, all mean the same.
        let parameters = PxeCpbTransmit {
            frame_addr: frame.cast::<u8>().as_ptr().expose_provenance() as u64,
            data_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            mediaheader_len: 0,
            reserved: 0,
        };
        self.issue::<_, ()>(PxeOpcode::TRANSMIT, 0, Some(&parameters), None)
            .map(drop)
            .map_err(|code| match code {
                PxeStatcode::BUFFER_FULL
                | PxeStatcode::QUEUE_FULL
                | PxeStatcode::NOT_ENOUGH_MEMORY => Refusal::Later,
                code => refusal(code),
            })
    }

    fn recycle(&self, calls: usize, mut back: impl FnMut(NonNull<u8>)) -> Result<(), Refusal> {
        let mut wanted = OPFLAGS_GET_TRANSMITTED_BUFFERS;
        if self.tells_link {
            wanted |= OPFLAGS_GET_MEDIA_STATUS;
        }
        for _ in 0..calls {
            let mut results = PxeDbGetStatus::default();
            let flags = self
                .issue::<(), _>(PxeOpcode::GET_STATUS, wanted, None, Some(&mut results))
                .map_err(refusal)?;
            self.link.set(flags & STATFLAGS_GET_STATUS_NO_MEDIA == 0);
            if flags & STATFLAGS_GET_STATUS_NO_TXBUFS_WRITTEN != 0 {
                break;
            }
            let mut none = true;
            for address in results.tx_buffer {
                if let Some(buffer) = NonNull::new(ptr::without_provenance_mut(address as usize)) {
                    none = false;
                    back(buffer);
                }
            }
            if none || flags & STATFLAGS_GET_STATUS_TXBUF_QUEUE_EMPTY != 0 {
                break;
            }
        }
        Ok(())
    }

    fn link_up(&self) -> bool {
        !self.tells_link || self.link.get()
    }

    fn stop(&self) -> bool {
        let _level = callbacks::raise(Tpl::CALLBACK);
        // SAFETY: the promise of `new`.
        let stopped = unsafe { self.commands.stop() };
        self.context.unblock();
        self.stopped.set(stopped);
        stopped
    }
}

impl Drop for Interface {
    /// It was stopped before, except where it refused: then the device may still use what it was given, which is left to it.
    fn drop(&mut self) {
        if self.stopped.get() {
            // SAFETY: neither is used again. The mappings of the memory go first.
            unsafe {
                ManuallyDrop::drop(&mut self.context);
                ManuallyDrop::drop(&mut self.memory);
            }
        }
    }
}

impl Undi {
    /// Takes the interface and starts it.
    ///
    /// # Errors
    /// Why it is not used; it is the firmware's again.
    pub fn open(interface: &Candidate, clock: Clock) -> Result<Self, UndiError> {
        let refused = |error: uefi::Error| UndiError::Refused(error.status());
        let claim = Claim::take(interface).map_err(refused)?;
        let identifier = claim.identifier();
        let identifier = identifier.ok_or(UndiError::Structure("is none"))?;
        let number = identifier.if_num;
        // SAFETY: the protocol says that an UNDI's structure is at this address. It does not change while the interface is not used.
        let Software { entry, filters } = unsafe { structure::at(identifier.id, number) }?;
        let function = interface.function.as_ref();
        let function = function.ok_or(UndiError::Refused(Status::UNSUPPORTED))?;
        let bus = Bus::of(function).map_err(refused)?;
        let entry = NonNull::new(entry as *mut ()).ok_or(UndiError::Structure("is none"))?;
        // SAFETY: the structure of an UNDI that the firmware has installed says that this is its entry point.
        let entry = unsafe { core::mem::transmute::<NonNull<()>, PxeEntryPoint>(entry) };
        let commands = Commands { entry, number };
        claim.stop_on_panic(commands);
        // SAFETY: the claim has taken it from everybody else.
        let interface = unsafe { Interface::new(commands, clock, Some(bus)) };
        Self::start(interface, filters, Some(claim))
    }

    /// Gives way on its handle: see [`Lent`]. `None` for one that was taken from nobody.
    pub fn lend(&mut self) -> Option<Lent> {
        self.claim_mut().as_mut().map(Claim::lend)
    }

    fn start(
        mut interface: Interface,
        filters: u16,
        claim: Option<Claim>,
    ) -> Result<Self, UndiError> {
        match interface.start(filters) {
            Ok(info) => Self::new(interface, info, claim).ok_or(UndiError::Link),
            Err(error) => {
                if !interface.stopped.get() {
                    interface.stop();
                }
                // The claim goes last.
                drop(interface);
                drop(claim);
                Err(error)
            }
        }
    }
}
