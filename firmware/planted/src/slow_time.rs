//! A slow clock that is asked for each frame, as EDK II did until May 2014.

use crate::{appearing, busy, services};
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use uefi::proto::network::snp::SimpleNetwork;
use uefi::{Handle, Identify, runtime};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use uefi_raw::table::runtime::TimeCapabilities;
use uefi_raw::time::Time;
use uefi_raw::{MacAddress, Status};
use wireboot_platform::shim::Original;

/// So much longer, in microseconds.
const LONGER: u64 = 1000;

type GetTime = unsafe extern "efiapi" fn(*mut Time, *mut TimeCapabilities) -> Status;
type Receive = unsafe extern "efiapi" fn(
    *const SimpleNetworkProtocol,
    *mut usize,
    *mut usize,
    *mut c_void,
    *mut MacAddress,
    *mut MacAddress,
    *mut u16,
) -> Status;

static GET_TIME: Original<GetTime> = Original::new();
/// The function of the driver whose interfaces came first.
static RECEIVE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Slows `GetTime` down, and has each interface that appears call it with each frame.
pub(crate) fn plant() -> uefi::Result {
    let system = services::system()?;
    // SAFETY: the table is the firmware's, live and long-lived; our function goes on to the firmware's.
    unsafe {
        let runtime = system.as_ref().runtime_services;
        let header = NonNull::new(&raw mut (*runtime).header);
        services::replace::<GetTime>(&raw mut (*runtime).get_time, header, get_time, &GET_TIME)?;
    }
    appearing::watch(&SimpleNetwork::GUID, on_interface)
}

unsafe extern "efiapi" fn get_time(time: *mut Time, capabilities: *mut TimeCapabilities) -> Status {
    let Some(firmwares) = GET_TIME.get() else {
        return Status::DEVICE_ERROR;
    };
    // SAFETY: the caller's own arguments.
    let status = unsafe { firmwares(time, capabilities) };
    busy::wait(LONGER);
    status
}

/// An interface's memory goes with its driver: nothing is put back there.
fn on_interface(_: Handle, interface: NonNull<c_void>) {
    let interface = interface.cast::<SimpleNetworkProtocol>().as_ptr();
    // SAFETY: the firmware has just given it out as this protocol's.
    let member = unsafe { NonNull::new_unchecked(&raw mut (*interface).receive) };
    // SAFETY: as above; a function pointer is an address.
    let found = unsafe { member.cast::<*mut c_void>().read() };
    let ours: Receive = receive;
    let first =
        RECEIVE.compare_exchange(ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire);
    // Another driver's function would be mistaken for the first one's; ours is there already.
    if first.is_ok() || first == Err(found) {
        // SAFETY: the member of a protocol in the driver's memory, which is written as the driver itself does; our function goes on to
        // the driver's.
        unsafe { member.cast::<Receive>().write(ours) };
    }
}

unsafe extern "efiapi" fn receive(
    this: *const SimpleNetworkProtocol,
    header_size: *mut usize,
    buffer_size: *mut usize,
    buffer: *mut c_void,
    source: *mut MacAddress,
    destination: *mut MacAddress,
    kind: *mut u16,
) -> Status {
    // SAFETY: stored before ours was put anywhere, from a member of this type.
    let drivers = unsafe { transmute::<*mut c_void, Receive>(RECEIVE.load(Ordering::Acquire)) };
    // SAFETY: the caller's own arguments.
    let status = unsafe {
        drivers(
            this,
            header_size,
            buffer_size,
            buffer,
            source,
            destination,
            kind,
        )
    };
    if status.is_success() {
        let _ = runtime::get_time();
    }
    status
}
