//! What programs do with the card and with others' handles while a loader's network stands: connecting all controllers, disconnecting the
//! card, handing the machine over as ESXi does, and ending boot services in the middle of a call.

use crate::base_code::{self, BaseCode};
use crate::report::{self, Failure, succeeded, tell};
use crate::{efi, left_open, snp};
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use uefi::boot::{self, SearchType};
use uefi::runtime::{self, ResetType};
use uefi::{Handle, Status};
use uefi_raw::Boolean;
use uefi_raw::protocol::network::pxe::{PxeBaseCodePacket, PxeBaseCodeProtocol};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use wireboot_platform::Clock;
use wireboot_platform::raw::pci_io::{
    ATTRIBUTE_BUS_MASTER, PciIoAttributeOperation, PciIoProtocol,
};
use wireboot_platform::raw::pxe_callback::{
    PxeBaseCodeCallbackProtocol, PxeBaseCodeCallbackStatus, PxeBaseCodeFunction,
};

/// Type and subtype of a device path's MAC node (UEFI 2.10, section 10.3.4.10).
const MAC: (u8, u8) = (3, 11);

/// Connects drivers to all handles, as iPXE does when it ends, and then reads the file.
pub(crate) fn connect(device: Handle, file: &str) -> Result<Vec<u8>, Failure> {
    let all = boot::locate_handle_buffer(SearchType::AllHandles);
    let all = all.map_err(|error| Failure::Refused("LocateHandleBuffer", error.status()))?;
    for handle in all.iter() {
        let _ = boot::connect_controller(*handle, &[], None, true);
    }
    base_code::openbsd(device, file)
}

/// Disconnects the card's driver while its network interface is open and started, and a request under way: that refuses from then on, and the card is
/// free. Then has the firmware's drivers take the card, and reads the file over them.
pub(crate) fn disconnect(device: Handle, file: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let card = efi::on_the_way(device, &PciIoProtocol::GUID, "PCI function")?;
    let base_code = BaseCode::of(device)?;
    let interface = snp::interface(device)?;
    let snp = snp::Snp::open(interface, clock)?;
    let tokens = left_open::ask_nobody(device, None)?;
    let status = boot::disconnect_controller(card, None, None);
    status.map_err(|error| Failure::Refused("DisconnectController", error.status()))?;
    let this = snp.protocol().as_ptr();
    // SAFETY: the protocol is open, so that its producer keeps it.
    unsafe {
        refuses("Reset of SNP", ((*this).reset)(this, Boolean::FALSE))?;
        refuses(
            "GetStatus of SNP",
            ((*this).get_status)(this, ptr::null_mut(), &mut ptr::null_mut()),
        )?;
    }
    // SAFETY: the producer's table is there as long as its image, which is below this one.
    refuses("Stop of PXE", unsafe {
        (base_code.table().stop)(base_code.0.as_ptr())
    })?;
    let absent = BaseCode::of(device).is_err();
    absent
        .then_some(())
        .ok_or(Failure::Wrong("the handle of the base code stays"))?;
    efi::exclusively::<PciIoProtocol>(card, &PciIoProtocol::GUID)?;
    efi::close(card, &PciIoProtocol::GUID);
    tell(format_args!("disconnect: the card is free"));
    // A callback that tells would do so in the midst of somebody else's line.
    left_open::tell_answers(tokens, clock)?;
    let connected = boot::connect_controller(card, &[], None, true);
    connected.map_err(|error| Failure::Refused("ConnectController", error.status()))?;
    drop(snp);
    let of_firmware = efi::handles(&PxeBaseCodeProtocol::GUID);
    let of_firmware = of_firmware.first().copied();
    let of_firmware = of_firmware.ok_or(Failure::Absent("the firmware's base code"))?;
    let base_code = BaseCode::of(of_firmware)?;
    let table = base_code.table();
    // SAFETY: the firmware's protocol.
    unsafe {
        succeeded("Start", (table.start)(base_code.0.as_ptr(), Boolean::FALSE))?;
        succeeded("Dhcp", (table.dhcp)(base_code.0.as_ptr(), Boolean::FALSE))?;
    }
    base_code::openbsd(of_firmware, file)
}

/// As the functions of a card that is gone do.
fn refuses(what: &'static str, status: Status) -> Result<(), Failure> {
    if [Status::DEVICE_ERROR, Status::NOT_STARTED].contains(&status) {
        Ok(())
    } else {
        Err(Failure::Refused(what, status))
    }
}

/// Reads the file, and leaves as ESXi's loader does: drivers off the network interfaces, their cards' DMA off, boot services ended. Then it
/// switches the machine off.
pub(crate) fn hand_over(device: Handle, file: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let begin = clock.micros();
    let bytes = base_code::esxi(device, file)?;
    report::file("hand-over", file, &bytes, clock.micros() - begin);
    for interface in efi::handles(&SimpleNetworkProtocol::GUID) {
        // Those of cards, not those above.
        if efi::nodes(interface).last().map(|(kind, _)| *kind) != Some(MAC) {
            continue;
        }
        let card = efi::on_the_way(interface, &PciIoProtocol::GUID, "PCI function")?;
        let status = boot::disconnect_controller(interface, None, None);
        status.map_err(|error| Failure::Refused("DisconnectController", error.status()))?;
        let io: NonNull<PciIoProtocol> = efi::protocol(card, &PciIoProtocol::GUID, "PCI function")?;
        // SAFETY: the firmware's protocol.
        let status = unsafe {
            (io.as_ref().attributes)(
                io.as_ptr(),
                PciIoAttributeOperation::DISABLE,
                ATTRIBUTE_BUS_MASTER,
                ptr::null_mut(),
            )
        };
        succeeded("Attributes", status)?;
        tell(format_args!("hand-over: DMA is off"));
    }
    end_boot_services()?;
    runtime::reset(ResetType::SHUTDOWN, Status::SUCCESS, None)
}

static CALLBACK: PxeBaseCodeCallbackProtocol = PxeBaseCodeCallbackProtocol {
    revision: 0x1_0000,
    callback: on_packet,
};

/// Ends boot services in the middle of a call, and switches the machine off: by the callback that is shown the first packet of the file.
pub(crate) fn end_within(device: Handle, file: &str) -> Result<Vec<u8>, Failure> {
    let base_code = BaseCode::of(device)?;
    let (guid, callback) = (&PxeBaseCodeCallbackProtocol::GUID, &raw const CALLBACK);
    // SAFETY: a static of this image. Nobody looks for it once that has returned, which it does only where something is wrong.
    let status = unsafe { boot::install_protocol_interface(Some(device), guid, callback.cast()) };
    status.map_err(|error| Failure::Refused("InstallProtocolInterface", error.status()))?;
    let yes = Boolean::TRUE;
    // SAFETY: the producer's table, null, and a variable of ours.
    let status = unsafe {
        (base_code.table().set_parameters)(
            base_code.0.as_ptr(),
            ptr::null(),
            ptr::null(),
            ptr::null(),
            ptr::null(),
            &yes,
        )
    };
    succeeded("SetParameters", status)?;
    base_code::openbsd(device, file)?;
    Err(Failure::Wrong("boot services did not end"))
}

unsafe extern "efiapi" fn on_packet(
    _this: *mut PxeBaseCodeCallbackProtocol,
    _function: PxeBaseCodeFunction,
    _received: Boolean,
    _packet_len: u32,
    _packet: *const PxeBaseCodePacket,
) -> PxeBaseCodeCallbackStatus {
    tell(format_args!("end-within: in the middle of a call"));
    match end_boot_services() {
        Ok(()) => runtime::reset(ResetType::SHUTDOWN, Status::SUCCESS, None),
        Err(_) => PxeBaseCodeCallbackStatus::ABORT,
    }
}

/// GetMemoryMap and ExitBootServices, until the map did not change between.
fn end_boot_services() -> Result<(), Failure> {
    const ROOM: usize = 1 << 17;
    const TRIES: u32 = 8;
    let services = efi::services()?;
    let mut map = vec![0_u64; ROOM / size_of::<u64>()];
    let mut status = Status::ABORTED;
    for _ in 0..TRIES {
        let (mut size, mut key, mut descriptor, mut version) = (ROOM, 0, 0, 0);
        // SAFETY: room of so many bytes, aligned as descriptors are, and variables of ours. After a success nothing is called but the runtime.
        unsafe {
            let told = (services.get_memory_map)(
                &mut size,
                map.as_mut_ptr().cast(),
                &mut key,
                &mut descriptor,
                &mut version,
            );
            succeeded("GetMemoryMap", told)?;
            status = (services.exit_boot_services)(boot::image_handle().as_ptr(), key);
        }
        if status == Status::SUCCESS {
            // What is dropped now would call boot services.
            core::mem::forget(map);
            return Ok(());
        }
    }
    Err(Failure::Refused("ExitBootServices", status))
}
