//! Deferred procedure calls, by which EDK II's network drivers call each other: its own `EFI_DPC_PROTOCOL`, in no specification.

use super::{Called, Service};
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, Tpl};
use uefi::proto::unsafe_protocol;
use uefi_raw::Status;

#[repr(C)]
#[unsafe_protocol("480f8ae9-0c46-4aa9-bc89-db9fba619806")]
struct Dpc {
    queue: unsafe extern "efiapi" fn(
        this: *mut Self,
        level: Tpl,
        procedure: unsafe extern "efiapi" fn(context: *mut c_void),
        context: *mut c_void,
    ) -> Status,
    dispatch: unsafe extern "efiapi" fn(this: *mut Self) -> Status,
}

unsafe extern "efiapi" fn nothing(_: *mut c_void) {}

/// A procedure that does nothing, queued and called. `None` where the firmware has no such protocol.
pub(super) fn service() -> Option<Service> {
    let handle = boot::get_handle_for_protocol::<Dpc>().ok()?;
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: its driver keeps it while boot services run: it cannot be unloaded.
    let protocol =
        unsafe { boot::open_protocol::<Dpc>(params, OpenProtocolAttributes::GetProtocol) }.ok()?;
    let dpc = NonNull::from(protocol.get()?);
    drop(protocol);
    Some(Service::new("QueueDpc + DispatchDpc", move || {
        // SAFETY: as above; the procedure is called before this image can leave memory, by the second call.
        unsafe {
            let (queue, dispatch) = (dpc.as_ref().queue, dpc.as_ref().dispatch);
            let status = queue(dpc.as_ptr(), Tpl::CALLBACK, nothing, ptr::null_mut());
            if status.is_success() {
                match dispatch(dpc.as_ptr()) {
                    // A driver at the firmware's tick has had it called in between.
                    Status::NOT_FOUND => Called::Other,
                    status => status.into(),
                }
            } else {
                Called::Refused
            }
        }
    }))
}
