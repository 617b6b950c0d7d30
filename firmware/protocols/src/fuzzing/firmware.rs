//! Boot services as far as the tables use them, which note what a caller of theirs must not do. One firmware for each thread.

mod handles;

use super::memory;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
pub(super) use handles::{install_on, uninstall_from};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::OnceLock;
use uefi_raw::protocol::rng::{RngAlgorithmType, RngProtocol};
use uefi_raw::table::boot::{
    BootServices, EventNotifyFn, EventType, MemoryDescriptor, MemoryType, TimerDelay, Tpl,
};
use uefi_raw::table::runtime::{RuntimeServices, VariableAttributes};
use uefi_raw::table::system::SystemTable;
use uefi_raw::{Char16, Event, Guid, Handle, Status};

/// Addresses of events and handles, which nobody may look behind.
const EVENTS: usize = 0x1000_0000;
const HANDLES: usize = 0x2000_0000;
const STEP: usize = 16;

struct EventState {
    kind: EventType,
    tpl: Tpl,
    notify: Option<EventNotifyFn>,
    context: *mut c_void,
    open: bool,
    timer: bool,
    /// Its function is to be called.
    pending: bool,
    /// Of those that are waited for.
    signaled: bool,
}

/// What the boot services of a thread have given out, and what they found wrong.
#[derive(Default)]
struct FakeFirmwareState {
    tpl: usize,
    events: Vec<EventState>,
    handles: Vec<Vec<(Guid, *mut c_void)>>,
    /// What was allocated, by address, and how large it is.
    pool: HashMap<usize, usize>,
    /// Allocations and installations that succeed before one fails.
    room: Option<u32>,
    /// Protocols that are not given back, as somebody uses them.
    in_use: Vec<Guid>,
    faults: Vec<String>,
    /// Regions of free memory in the memory map: their addresses and pages.
    free: Vec<(u64, u64)>,
    /// Boot services have ended.
    ended: bool,
}

std::thread_local! {
    static STATE: RefCell<FakeFirmwareState> = RefCell::default();
}

fn with<R>(work: impl FnOnce(&mut FakeFirmwareState) -> R) -> R {
    STATE.with(|state| work(&mut state.borrow_mut()))
}

/// Notes what must not be.
pub(super) fn fault(text: impl ToString) {
    with(|state| state.faults.push(text.to_string()));
}

/// What must not have been, since it was last asked for.
pub(super) fn faults() -> Vec<String> {
    with(|state| core::mem::take(&mut state.faults))
}

/// A machine that has just begun.
pub(super) fn begin() {
    install();
    with(|state| {
        *state = FakeFirmwareState {
            tpl: Tpl::APPLICATION.0,
            ..FakeFirmwareState::default()
        };
    });
    let _ = install_on(ptr::null_mut(), &RngProtocol::GUID, (&raw const RNG).cast());
}

/// Takes its own memory now, so that others' can be counted.
#[cfg(test)]
pub(super) fn reserve() {
    with(|state| {
        state.handles.reserve(0x4000);
        state.events.reserve(0x1000);
        state.pool.reserve(0x1000);
    });
}

/// The next `count` allocations and installations succeed, and the one after them fails.
pub(super) fn set_room(count: Option<u32>) {
    with(|state| state.room = count);
}

/// The memory map has this page among its free ones.
#[cfg(test)]
pub(super) fn set_free(address: usize) {
    let page = address as u64 & !0xfff;
    with(|state| state.free.push((page, 1)));
}

/// Whether `guid` can be taken off handles.
pub(super) fn set_in_use(guid: Guid, in_use: bool) {
    with(|state| {
        state.in_use.retain(|one| *one != guid);
        if in_use {
            state.in_use.push(guid);
        }
    });
}

/// Events that nobody has closed.
pub(super) fn open_events() -> usize {
    with(|state| state.events.iter().filter(|event| event.open).count())
}

/// Protocols on handles, apart from the firmware's own.
pub(super) fn protocols() -> usize {
    with(|state| state.handles.iter().map(Vec::len).sum::<usize>() - 1)
}

/// Pieces of pool memory that nobody has freed.
pub(super) fn pieces() -> usize {
    with(|state| state.pool.len())
}

/// The handles with a protocol, and its interface on each.
pub(super) fn find(guid: &Guid) -> Vec<(Handle, *mut c_void)> {
    with(|state| {
        let all = state.handles.iter().enumerate();
        all.flat_map(|(index, protocols)| {
            let ours = protocols.iter().filter(|(one, _)| one == guid);
            ours.map(move |(_, interface)| (handle(index), *interface))
        })
        .collect()
    })
}

/// The level that code runs at.
pub(super) fn tpl() -> usize {
    with(|state| state.tpl)
}

/// Runs `work` at a level.
pub(super) fn at<R>(tpl: Tpl, work: impl FnOnce() -> R) -> R {
    let before = tpl_of_raise(tpl);
    let result = work();
    lower(before);
    result
}

fn handle(index: usize) -> Handle {
    ptr::without_provenance_mut(HANDLES + index * STEP)
}

fn index_of(address: usize, from: usize) -> usize {
    address.wrapping_sub(from) / STEP
}

/// Calls the functions of events whose level is above the current one, the highest first.
fn dispatch() {
    loop {
        let next = with(|state| {
            let tpl = state.tpl;
            let pending = state.events.iter().enumerate();
            let (index, _) = pending
                .filter(|(_, event)| event.pending && event.open && event.tpl.0 > tpl)
                .max_by_key(|(index, event)| (event.tpl.0, core::cmp::Reverse(*index)))?;
            let event = state.events.get_mut(index)?;
            event.pending = false;
            let call = (event.notify, event.context, event.tpl.0);
            state.tpl = event.tpl.0;
            Some((index, call, tpl))
        });
        let Some((index, (notify, context, level), before)) = next else {
            return;
        };
        if let Some(notify) = notify {
            // SAFETY: as whoever created the event has said.
            unsafe { notify(ptr::without_provenance_mut(EVENTS + index * STEP), context) };
        }
        if tpl() != level {
            fault(format!("an event's function leaves TPL {}", tpl()));
        }
        with(|state| state.tpl = before);
    }
}

/// The timers have run out.
pub(super) fn tick() {
    with(|state| {
        let timers = state.events.iter_mut();
        for event in timers.filter(|event| event.open && event.timer) {
            event.pending = true;
        }
    });
    dispatch();
}

/// The events of the end of boot services are signalled.
#[cfg(test)]
pub(super) fn signal_exit() {
    with(|state| {
        for event in &mut state.events {
            event.pending |= event.open && event.kind == EventType::SIGNAL_EXIT_BOOT_SERVICES;
        }
    });
    dispatch();
}

/// Boot services end.
#[cfg(test)]
pub(super) fn exit_boot_services() {
    signal_exit();
    with(|state| state.ended = true);
}

/// A service was called that may be called no more.
fn check_running() {
    if with(|state| state.ended) {
        fault("a boot service is called after their end");
    }
}

fn tpl_of_raise(tpl: Tpl) -> usize {
    with(|state| {
        if tpl.0 < state.tpl {
            let text = format!("RaiseTPL lowers from {} to {}", state.tpl, tpl.0);
            state.faults.push(text);
        }
        core::mem::replace(&mut state.tpl, tpl.0)
    })
}

fn lower(tpl: usize) {
    with(|state| {
        if tpl > state.tpl {
            let text = format!("RestoreTPL raises from {} to {tpl}", state.tpl);
            state.faults.push(text);
        }
        state.tpl = tpl;
    });
    dispatch();
}

unsafe extern "efiapi" fn raise_tpl(tpl: Tpl) -> Tpl {
    check_running();
    Tpl(tpl_of_raise(tpl))
}

unsafe extern "efiapi" fn restore_tpl(tpl: Tpl) {
    check_running();
    lower(tpl.0);
}

/// Whether there is room for one thing more.
fn has_room() -> bool {
    with(|state| match &mut state.room {
        Some(0) => false,
        Some(room) => {
            *room -= 1;
            true
        }
        None => true,
    })
}

unsafe extern "efiapi" fn allocate_pool(_: MemoryType, size: usize, to: *mut *mut u8) -> Status {
    check_running();
    if tpl() > Tpl::NOTIFY.0 {
        fault("memory is allocated above TPL_NOTIFY");
    }
    if !has_room() {
        return Status::OUT_OF_RESOURCES;
    }
    let at = memory::allocate(size);
    with(|state| state.pool.insert(at.addr(), size));
    // SAFETY: the caller's variable.
    unsafe { to.write(at) };
    Status::SUCCESS
}

unsafe extern "efiapi" fn free_pool(at: *mut u8) -> Status {
    check_running();
    let Some(size) = with(|state| state.pool.remove(&at.addr())) else {
        fault("memory is freed that was not allocated");
        return Status::INVALID_PARAMETER;
    };
    // SAFETY: allocated with this size, and known no more.
    unsafe { memory::free(at, size) };
    Status::SUCCESS
}

/// FreePool.
pub(super) fn free(at: *mut u8) {
    // SAFETY: any address may be given.
    let _ = unsafe { free_pool(at) };
}

/// Whether it is memory of the pool's.
pub(super) fn is_allocated(at: *mut u8) -> bool {
    with(|state| state.pool.contains_key(&at.addr()))
}

unsafe extern "efiapi" fn create_event(
    kind: EventType,
    tpl: Tpl,
    notify: Option<EventNotifyFn>,
    context: *mut c_void,
    event: *mut Event,
) -> Status {
    check_running();
    if !has_room() {
        return Status::OUT_OF_RESOURCES;
    }
    let made = new_event(kind, tpl, notify, context);
    // SAFETY: the caller's variable.
    unsafe { event.write(made) };
    Status::SUCCESS
}

unsafe extern "efiapi" fn nothing(_: Event, _: *mut c_void) {}

/// An event whose function does nothing, the same for each kind.
pub(super) fn shared_event(kind: EventType, tpl: Tpl) -> Event {
    let there = with(|state| {
        let is = |event: &EventState| {
            event.open && event.context.is_null() && event.kind == kind && event.notify.is_some()
        };
        state.events.iter().position(is)
    });
    there.map_or_else(
        || new_event(kind, tpl, Some(nothing), ptr::null_mut()),
        |index| ptr::without_provenance_mut(EVENTS + index * STEP),
    )
}

pub(super) fn close_shared() {
    with(|state| {
        for event in &mut state.events {
            event.open &= !event.context.is_null();
        }
    });
}

/// A new event.
pub(super) fn new_event(
    kind: EventType,
    tpl: Tpl,
    notify: Option<EventNotifyFn>,
    context: *mut c_void,
) -> Event {
    with(|state| {
        state.events.push(EventState {
            kind,
            tpl,
            notify,
            context,
            open: true,
            timer: false,
            pending: false,
            signaled: false,
        });
        ptr::without_provenance_mut(EVENTS + (state.events.len() - 1) * STEP)
    })
}

fn event<R>(event: Event, work: impl FnOnce(&mut EventState) -> R) -> Option<R> {
    check_running();
    let done = with(|state| {
        let index = index_of(event.addr(), EVENTS);
        let found = state.events.get_mut(index).filter(|event| event.open);
        found.map(work)
    });
    if done.is_none() {
        fault("an event is used that is closed, or none");
    }
    done
}

unsafe extern "efiapi" fn set_timer(at: Event, kind: TimerDelay, _: u64) -> Status {
    if !has_room() {
        return Status::INVALID_PARAMETER;
    }
    let periodic = kind == TimerDelay::PERIODIC;
    match event(at, |event| event.timer = periodic) {
        Some(()) => Status::SUCCESS,
        None => Status::INVALID_PARAMETER,
    }
}

unsafe extern "efiapi" fn signal_event(at: Event) -> Status {
    let done = event(at, |event| {
        event.signaled = true;
        event.pending |= event.kind.contains(EventType::NOTIFY_SIGNAL);
    });
    dispatch();
    match done {
        Some(()) => Status::SUCCESS,
        None => Status::INVALID_PARAMETER,
    }
}

unsafe extern "efiapi" fn close_event(at: Event) -> Status {
    match event(at, |event| event.open = false) {
        Some(()) => Status::SUCCESS,
        None => Status::INVALID_PARAMETER,
    }
}

/// CheckEvent, of an event that can be waited for.
pub(super) fn check_event(at: Event) -> Status {
    let _ = event(at, |event| event.pending = !event.signaled);
    dispatch();
    match event(at, |event| core::mem::take(&mut event.signaled)) {
        Some(true) => Status::SUCCESS,
        Some(false) => Status::NOT_READY,
        None => Status::INVALID_PARAMETER,
    }
}

/// Closes an event of the loader's.
pub(super) fn close(at: Event) {
    let _ = event(at, |event| event.open = false);
}

/// What no table of ours calls.
unsafe extern "efiapi" fn other() -> Status {
    fault("a boot service that is not for tables is called");
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn get_info(
    _: *mut RngProtocol,
    _: *mut usize,
    _: *mut RngAlgorithmType,
) -> Status {
    Status::UNSUPPORTED
}

/// The same numbers each time, so that a failure comes again.
unsafe extern "efiapi" fn get_rng(
    _: *mut RngProtocol,
    _: *const RngAlgorithmType,
    len: usize,
    value: *mut u8,
) -> Status {
    // SAFETY: the caller's memory of so many bytes.
    unsafe { ptr::write_bytes(value, 7, len) };
    Status::SUCCESS
}

static RNG: RngProtocol = RngProtocol { get_info, get_rng };

/// The tables, which every thread has the same of.
struct Tables {
    system: SystemTable,
    _boot: Box<BootServices>,
    _runtime: Box<RuntimeServices>,
}

// SAFETY: nobody writes to them, and the functions have a state for each thread.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

/// Services of which each is one that no table of ours calls.
///
/// # Safety
/// `T` is [`BootServices`] or [`RuntimeServices`].
unsafe fn unused<T>() -> T {
    let mut services = MaybeUninit::<T>::uninit();
    let words = size_of::<T>() / size_of::<usize>();
    let unused: unsafe extern "efiapi" fn() -> Status = other;
    for index in 0..words {
        // SAFETY: within the structure, which consists of function pointers, null pointers and a header of integers.
        unsafe {
            let place = services.as_mut_ptr().cast::<*const ()>().add(index);
            place.write(unused as *const ());
        }
    }
    // SAFETY: each field is a function now, and takes any arguments by the convention, in which the caller cleans up.
    unsafe { services.assume_init() }
}

/// There is no variable.
unsafe extern "efiapi" fn get_variable(
    _: *const Char16,
    _: *const Guid,
    _: *mut VariableAttributes,
    _: *mut usize,
    _: *mut u8,
) -> Status {
    check_variables();
    Status::NOT_FOUND
}

unsafe extern "efiapi" fn set_variable(
    _: *const Char16,
    _: *const Guid,
    _: VariableAttributes,
    _: usize,
    _: *const u8,
) -> Status {
    check_variables();
    if has_room() {
        Status::SUCCESS
    } else {
        Status::OUT_OF_RESOURCES
    }
}

/// UEFI 2.10, section 7.1, table 7.3.
fn check_variables() {
    check_running();
    if with(|state| state.tpl) > Tpl::CALLBACK.0 {
        fault("a variable above TPL_CALLBACK");
    }
}

fn runtime_services() -> RuntimeServices {
    // SAFETY: of that type.
    let mut services: RuntimeServices = unsafe { unused() };
    services.get_variable = get_variable;
    services.set_variable = set_variable;
    services
}

/// One region that somebody has, and those that are free.
unsafe extern "efiapi" fn get_memory_map(
    size: *mut usize,
    map: *mut MemoryDescriptor,
    _key: *mut usize,
    descriptor: *mut usize,
    version: *mut u32,
) -> Status {
    check_running();
    let of = |ty, (phys_start, page_count)| MemoryDescriptor {
        ty,
        phys_start,
        page_count,
        ..MemoryDescriptor::default()
    };
    let free = with(|state| state.free.clone());
    let free = free
        .into_iter()
        .map(|one| of(MemoryType::CONVENTIONAL, one));
    let held = of(MemoryType::LOADER_DATA, (0x1000, 1));
    let all: Vec<_> = std::iter::once(held).chain(free).collect();
    // SAFETY: the caller's variables, and room of so many bytes.
    unsafe {
        let room = size.read();
        size.write(size_of_val(&*all));
        descriptor.write(size_of::<MemoryDescriptor>());
        version.write(1);
        if room < size_of_val(&*all) {
            return Status::BUFFER_TOO_SMALL;
        }
        map.copy_from_nonoverlapping(all.as_ptr(), all.len());
    }
    Status::SUCCESS
}

fn boot_services() -> BootServices {
    // SAFETY: of that type.
    let mut services: BootServices = unsafe { unused() };
    services.raise_tpl = raise_tpl;
    services.restore_tpl = restore_tpl;
    services.allocate_pool = allocate_pool;
    services.free_pool = free_pool;
    services.create_event = create_event;
    services.set_timer = set_timer;
    services.signal_event = signal_event;
    services.get_memory_map = get_memory_map;
    services.close_event = close_event;
    services.install_protocol_interface = handles::install_protocol_interface;
    services.uninstall_protocol_interface = handles::uninstall_protocol_interface;
    services.handle_protocol = handles::handle_protocol;
    services.open_protocol = handles::open_protocol;
    services.close_protocol = handles::close_protocol;
    services.locate_handle_buffer = handles::locate_handle_buffer;
    services
}

/// Has the `uefi` crate find this firmware.
fn install() {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    let tables = TABLES.get_or_init(|| {
        let mut boot = Box::new(boot_services());
        let mut runtime = Box::new(runtime_services());
        let system = SystemTable {
            boot_services: &raw mut *boot,
            runtime_services: &raw mut *runtime,
            ..SystemTable::default()
        };
        Tables {
            system,
            _boot: boot,
            _runtime: runtime,
        }
    });
    // SAFETY: the tables stay, and the handle is one that nobody looks behind.
    unsafe {
        uefi::table::set_system_table(&raw const tables.system);
        if let Some(image) = uefi::Handle::from_ptr(handle(0xffff)) {
            uefi::boot::set_image_handle(image);
        }
    }
}
