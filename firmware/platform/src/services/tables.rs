//! Services of the boot and runtime services' tables, and the keyboard.

use super::{Called, Service};
use crate::event::OwnEvent;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::boot::{EventType, Tpl};
use uefi::{Event, Status, table};
use uefi_raw::protocol::console::{InputKey, SimpleTextInputProtocol, SimpleTextOutputProtocol};
use uefi_raw::table::boot::{AllocateType, BootServices, MemoryType, TimerDelay};
use uefi_raw::table::runtime::RuntimeServices;
use uefi_raw::time::Time;

/// Bytes of an allocation, of the type that drivers allocate: EDK II has a pool for each type, and of one that nobody uses it frees the last page each time.
const POOL: usize = 256;
/// An hour, in units of 100 nanoseconds: it does not come.
const HOUR: u64 = 3600 * 10_000_000;

/// Those that need nothing but the tables.
pub(super) fn services() -> Vec<Service> {
    let Some(system) = table::system_table_raw() else {
        return Vec::new();
    };
    // SAFETY: the system table is live, as boot services run.
    let (boot, runtime, keyboard) = unsafe {
        let system = system.as_ref();
        (system.boot_services, system.runtime_services, system.stdin)
    };
    let mut services = Vec::new();
    // SAFETY: live while boot services run, in which alone the services are called; only members are read, by value.
    unsafe {
        if !runtime.is_null() {
            services.extend(of_runtime(runtime));
        }
        if !boot.is_null() {
            services.extend(of_time(boot));
            services.extend(of_events(boot));
            services.extend(of_memory(boot));
        }
    }
    services.extend(NonNull::new(keyboard).map(key));
    services
}

/// # Safety
/// The table is live as long as the services.
unsafe fn of_runtime(table: *const RuntimeServices) -> [Service; 1] {
    // SAFETY: the caller's word.
    let get_time = unsafe { (*table).get_time };
    let mut time = Time::invalid();
    [Service::new("GetTime", move || {
        // SAFETY: the time is written to a value of ours; the capabilities may be left out.
        unsafe { get_time(&raw mut time, ptr::null_mut()) }.into()
    })]
}

/// # Safety
/// As [`of_runtime`].
unsafe fn of_time(table: *const BootServices) -> [Service; 3] {
    // SAFETY: the caller's word.
    let (count, stall, raise, restore) = unsafe {
        (
            (*table).get_next_monotonic_count,
            (*table).stall,
            (*table).raise_tpl,
            (*table).restore_tpl,
        )
    };
    let mut number = 0;
    [
        Service::new("GetNextMonotonicCount", move || {
            // SAFETY: the number is written to a value of ours.
            unsafe { count(&raw mut number) }.into()
        }),
        Service::new("Stall, 1 us", move || {
            // SAFETY: it waits.
            unsafe { stall(1) }.into()
        }),
        Service::new("RaiseTPL + RestoreTPL", move || {
            // SAFETY: programs run below this level, and the one before comes back.
            unsafe { restore(raise(Tpl::NOTIFY)) };
            Called::Done
        }),
    ]
}

unsafe extern "efiapi" fn nothing(_: Event, _: Option<NonNull<c_void>>) {}
unsafe extern "efiapi" fn nothing_raw(_: uefi_raw::Event, _: *mut c_void) {}

/// # Safety
/// As [`of_runtime`].
unsafe fn of_events(table: *const BootServices) -> Vec<Service> {
    // SAFETY: the caller's word.
    let (create, close, signal, check, set_timer, locate) = unsafe {
        (
            (*table).create_event,
            (*table).close_event,
            (*table).signal_event,
            (*table).check_event,
            (*table).set_timer,
            (*table).locate_protocol,
        )
    };
    let mut services = Vec::from([
        Service::new("CreateEvent + CloseEvent", move || {
            let mut event = ptr::null_mut();
            // SAFETY: the function does nothing, and nobody signals the event before it is closed.
            unsafe {
                let status = create(
                    EventType::NOTIFY_SIGNAL,
                    Tpl::CALLBACK,
                    Some(nothing_raw),
                    ptr::null_mut(),
                    &raw mut event,
                );
                if status.is_success() {
                    close(event).into()
                } else {
                    Called::Refused
                }
            }
        }),
        Service::new("LocateProtocol", move || {
            let mut protocol = ptr::null_mut();
            // SAFETY: its address is written to a value of ours, and not used.
            unsafe {
                locate(
                    &SimpleTextOutputProtocol::GUID,
                    ptr::null(),
                    &raw mut protocol,
                )
            }
            .into()
        }),
    ]);
    // SAFETY: the function does nothing.
    let notified =
        unsafe { OwnEvent::new(EventType::NOTIFY_SIGNAL, Tpl::CALLBACK, Some(nothing), None) };
    services.extend(notified.ok().map(|event| {
        Service::new("SignalEvent", move || {
            // SAFETY: an event that is open.
            unsafe { signal(event.raw()) }.into()
        })
    }));
    // SAFETY: an event without a function.
    let plain = || unsafe { OwnEvent::new(EventType::TIMER, Tpl::APPLICATION, None, None) };
    services.extend(plain().ok().map(|event| {
        Service::new("CheckEvent", move || {
            // SAFETY: an event that is open.
            match unsafe { check(event.raw()) } {
                Status::NOT_READY => Called::Done,
                _ => Called::Refused,
            }
        })
    }));
    services.extend(plain().ok().map(|event| {
        Service::new("SetTimer", move || {
            // SAFETY: an event that is open, and a timer.
            unsafe { set_timer(event.raw(), TimerDelay::RELATIVE, HOUR) }.into()
        })
    }));
    services
}

/// # Safety
/// As [`of_runtime`].
unsafe fn of_memory(table: *const BootServices) -> [Service; 2] {
    // SAFETY: the caller's word.
    let (allocate_pool, free_pool, allocate_pages, free_pages) = unsafe {
        (
            (*table).allocate_pool,
            (*table).free_pool,
            (*table).allocate_pages,
            (*table).free_pages,
        )
    };
    [
        Service::new("AllocatePool + FreePool", move || {
            let mut memory = ptr::null_mut();
            // SAFETY: what is freed was just allocated, and nobody has used it.
            unsafe {
                let status = allocate_pool(MemoryType::BOOT_SERVICES_DATA, POOL, &raw mut memory);
                if status.is_success() {
                    free_pool(memory).into()
                } else {
                    Called::Refused
                }
            }
        }),
        Service::new("AllocatePages + FreePages", move || {
            let mut address = 0;
            // SAFETY: as above.
            unsafe {
                let status = allocate_pages(
                    AllocateType::ANY_PAGES,
                    MemoryType::BOOT_SERVICES_DATA,
                    1,
                    &raw mut address,
                );
                if status.is_success() {
                    free_pages(address, 1).into()
                } else {
                    Called::Refused
                }
            }
        }),
    ]
}

/// A key that is pressed meanwhile is lost.
fn key(keyboard: NonNull<SimpleTextInputProtocol>) -> Service {
    // SAFETY: the console is live while boot services run.
    let read = unsafe { (*keyboard.as_ptr()).read_key_stroke };
    let mut pressed = InputKey::default();
    Service::new("ConIn.ReadKeyStroke", move || {
        // SAFETY: as above; the key is written to a value of ours.
        match unsafe { read(keyboard.as_ptr(), &raw mut pressed) } {
            Status::NOT_READY => Called::Done,
            Status::SUCCESS => Called::Other,
            _ => Called::Refused,
        }
    })
}
