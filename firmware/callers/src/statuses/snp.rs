//! EFI_SIMPLE_NETWORK_PROTOCOL (section 24.1).

use super::{INVALID, SUCCESS, Walk};
use crate::efi;
use crate::report::{Failure, tell};
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::{Handle, Status};
use uefi_raw::protocol::network::snp::{NetworkState, ReceiveFlags, SimpleNetworkProtocol};
use uefi_raw::{Boolean, MacAddress};
use wireboot_platform::Clock;

/// On the device's own handle. It is as before behind.
pub(super) fn walk(walk: &mut Walk, device: Handle, _: Clock) -> Result<(), Failure> {
    let protocol: NonNull<SimpleNetworkProtocol> =
        efi::protocol(device, &SimpleNetworkProtocol::GUID, "SNP on the device")?;
    // SAFETY: the protocol stays while this program runs.
    let table = unsafe { protocol.as_ref() };
    let this = protocol.as_ptr().cast_const();
    // SAFETY: the producer's mode.
    let before = unsafe { (*table.mode).state };
    if before != NetworkState::STOPPED {
        tell(format_args!(
            "SNP is in use: its states are not walked through"
        ));
        return Ok(());
    }
    let nulls: *const SimpleNetworkProtocol = ptr::null();
    let stopped = &[Status::NOT_STARTED][..];
    let early = &[Status::DEVICE_ERROR][..];
    // While that is started, filters may be set at any time, as where both are EDK II's or iPXE's.
    let beside_base_code = &[Status::DEVICE_ERROR, Status::SUCCESS];
    let mut back: *mut c_void = ptr::null_mut();
    let mut room = [0_u8; 64];
    let mut len = room.len();
    let receive = |len: &mut usize, room: &mut [u8; 64]| {
        // SAFETY: room of at least so many bytes.
        unsafe {
            (table.receive)(
                this,
                ptr::null_mut(),
                len,
                room.as_mut_ptr().cast(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        }
    };
    let filters = |enable| {
        // SAFETY: no list.
        unsafe {
            (table.receive_filters)(
                this,
                enable,
                ReceiveFlags::empty(),
                Boolean::FALSE,
                0,
                ptr::null::<MacAddress>(),
            )
        }
    };
    // SAFETY: what the specification says about each argument, NULL included.
    unsafe {
        walk.expect("SNP Start(NULL)", (table.start)(nulls), INVALID);
        walk.expect("SNP Stop when stopped", (table.stop)(this), stopped);
        walk.expect(
            "SNP Initialize when stopped",
            (table.initialize)(this, 0, 0),
            stopped,
        );
        walk.expect("SNP Shutdown when stopped", (table.shutdown)(this), stopped);
        walk.expect(
            "SNP Reset when stopped",
            (table.reset)(this, Boolean::FALSE),
            stopped,
        );
        walk.expect(
            "SNP GetStatus when stopped",
            (table.get_status)(this, ptr::null_mut(), &mut back),
            stopped,
        );
        walk.expect(
            "SNP Receive when stopped",
            receive(&mut len, &mut room),
            stopped,
        );
        walk.expect("SNP Start", (table.start)(this), SUCCESS);
        walk.expect(
            "SNP Start twice",
            (table.start)(this),
            &[Status::ALREADY_STARTED],
        );
        walk.expect("SNP Receive too early", receive(&mut len, &mut room), early);
        walk.expect(
            "SNP ReceiveFilters too early",
            filters(ReceiveFlags::UNICAST),
            beside_base_code,
        );
        walk.expect("SNP Initialize", (table.initialize)(this, 0, 0), SUCCESS);
        walk.expect(
            "SNP GetStatus without a place",
            (table.get_status)(this, ptr::null_mut(), ptr::null_mut()),
            INVALID,
        );
        walk.expect(
            "SNP ReceiveFilters",
            filters(ReceiveFlags::UNICAST | ReceiveFlags::BROADCAST),
            SUCCESS,
        );
        walk.expect(
            "SNP ReceiveFilters of unknown bits",
            filters(ReceiveFlags::from_bits_retain(0x100)),
            INVALID,
        );
        walk.expect(
            "SNP Transmit without a buffer",
            (table.transmit)(
                this,
                0,
                60,
                ptr::null(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
            ),
            INVALID,
        );
        walk.expect(
            "SNP Transmit of less than a header",
            (table.transmit)(
                this,
                0,
                13,
                room.as_ptr().cast(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
            ),
            &[Status::BUFFER_TOO_SMALL],
        );
        walk.expect("SNP Shutdown", (table.shutdown)(this), SUCCESS);
        walk.expect("SNP Stop", (table.stop)(this), SUCCESS);
    }
    Ok(())
}
