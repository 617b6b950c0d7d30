//! What an UNDI asks of whoever started it: delays, a lock, registers and memory for its device (UEFI 2.10, appendix E.4.7).

use crate::claim::pci::Candidate;
use crate::clock::Clock;
use crate::pci::ADDRESS_SPACE_DESCRIPTOR;
use crate::raw::pci_io::{PciIoOperation, PciIoProtocol, PciIoWidth};
use crate::raw::undi::{PxeCpbStart, PxeDirection, PxeIo};
use alloc::vec::Vec;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::Status;
use uefi::boot::{self, Tpl, TplGuard};

/// Longest delay, in microseconds: longer than any device takes, shorter than a user waits.
const DELAY: u64 = 10_000_000;
/// Mappings at a time at most.
const MAPPINGS: usize = 1024;
/// PCI functions have so many BARs.
const BARS: u8 = 6;
/// `ResType` of memory and of I/O ports (ACPI 6.4, section 6.4.3.5.1).
const MEMORY: u8 = 0;
const PORTS: u8 = 1;

/// Has boot services run nothing else that could call the driver, until the value is dropped.
pub(super) fn raise(tpl: Tpl) -> Option<TplGuard> {
    // There is no firmware in tests on the host.
    uefi::table::system_table_raw()?;
    // SAFETY: to a level that the firmware's own network uses around the same calls, and never from above it: `Context::block` raises
    // once at most, and wireboot runs at the application's level.
    Some(unsafe { boot::raise_tpl(tpl) })
}

/// The PCI function behind an interface.
pub(super) struct Bus {
    io: NonNull<PciIoProtocol>,
    /// The first BAR of each kind, which is what the commands mean.
    memory: Option<u8>,
    ports: Option<u8>,
}

impl Bus {
    pub(super) fn of(function: &Candidate) -> uefi::Result<Self> {
        let io = function.io()?;
        let mut bus = Self {
            io,
            memory: None,
            ports: None,
        };
        for bar in 0..BARS {
            match kind(io, bar) {
                Some(MEMORY) => bus.memory = bus.memory.or(Some(bar)),
                Some(PORTS) => bus.ports = bus.ports.or(Some(bar)),
                _ => {}
            }
        }
        Ok(bus)
    }
}

/// What a BAR leads to.
fn kind(io: NonNull<PciIoProtocol>, bar: u8) -> Option<u8> {
    let mut resources: *mut c_void = ptr::null_mut();
    // SAFETY: the protocol is live; on success it allocates a descriptor list and points to it.
    let status = unsafe {
        (io.as_ref().get_bar_attributes)(io.as_ptr(), bar, ptr::null_mut(), &raw mut resources)
    };
    let (Status::SUCCESS, Some(list)) = (status, NonNull::new(resources.cast::<u8>())) else {
        return None;
    };
    // SAFETY: the list holds at least one descriptor, which is longer than this, or only the 2-byte end tag, which the first byte
    // tells apart. It was allocated from pool for us to free.
    unsafe {
        let kind = (list.read() == ADDRESS_SPACE_DESCRIPTOR).then(|| list.add(3).read());
        let _ = boot::free_pool(list);
        kind
    }
}

struct Mapping {
    address: u64,
    bytes: u64,
    device_address: u64,
    mapping: *mut c_void,
}

/// What the callbacks of one interface need. Its address is the interface's unique id.
pub(super) struct Context {
    clock: Clock,
    /// `None` in tests.
    bus: Option<Bus>,
    mappings: Cell<Vec<Mapping>>,
    blocked: Cell<Option<TplGuard>>,
}

impl Context {
    pub(super) fn new(clock: Clock, bus: Option<Bus>) -> Self {
        Self {
            clock,
            bus,
            mappings: Cell::new(Vec::new()),
            blocked: Cell::new(None),
        }
    }

    /// The parameters of the command Start. The context must stay where it is until the interface was stopped.
    pub(super) fn parameters(&self) -> PxeCpbStart {
        PxeCpbStart {
            delay,
            block,
            virt2phys: 0,
            mem_io,
            map_mem,
            unmap_mem,
            sync_mem,
            unique_id: ptr::from_ref(self).expose_provenance() as u64,
        }
    }

    /// The driver has returned, so that its lock is over.
    pub(super) fn unblock(&self) {
        self.blocked.set(None);
    }

    fn delay(&self, micros: u64) {
        let end = self.clock.micros() + micros.min(DELAY);
        while self.clock.micros() <= end {
            core::hint::spin_loop();
        }
    }

    fn block(&self, enable: bool) {
        // Nobody else calls the driver, except what the firmware's timer starts.
        match (self.blocked.take(), enable) {
            (None, true) => self.blocked.set(raise(Tpl::NOTIFY)),
            (held, true) => self.blocked.set(held),
            (held, false) => drop(held),
        }
    }

    fn register(&self, operation: PxeIo, bytes: u8, offset: u64, buffer: u64) {
        let width = match bytes {
            1 => PciIoWidth::UINT8,
            2 => PciIoWidth::UINT16,
            4 => PciIoWidth::UINT32,
            8 => PciIoWidth::UINT64,
            _ => return,
        };
        let Some(bus) = &self.bus else { return };
        // SAFETY: the protocol stays installed while its function exists, which the firmware's bus driver does not end.
        let io = unsafe { bus.io.as_ref() };
        let (access, bar) = match operation {
            PxeIo::IO_READ => (io.io.read, bus.ports),
            PxeIo::IO_WRITE => (io.io.write, bus.ports),
            PxeIo::MEM_READ => (io.mem.read, bus.memory),
            PxeIo::MEM_WRITE => (io.mem.write, bus.memory),
            _ => return,
        };
        let Some(bar) = bar else { return };
        let buffer = ptr::with_exposed_provenance_mut(buffer as usize);
        // SAFETY: one unit at an offset that the firmware checks against the BAR, to or from a buffer of the driver's of this width.
        let _ = unsafe { access(bus.io.as_ptr(), width, bar, offset, 1, buffer) };
    }

    /// The device's address of memory that the driver wants it to reach; 0 says that it cannot.
    fn map(&self, address: u64, bytes: u32, direction: PxeDirection) -> u64 {
        let operation = match direction {
            PxeDirection::TO_AND_FROM_DEVICE => PciIoOperation::BUS_MASTER_COMMON_BUFFER,
            PxeDirection::FROM_DEVICE => PciIoOperation::BUS_MASTER_WRITE,
            PxeDirection::TO_DEVICE => PciIoOperation::BUS_MASTER_READ,
            _ => return 0,
        };
        let Some(bus) = &self.bus else { return 0 };
        let mut mappings = self.mappings.take();
        let mut device_address = 0;
        if address != 0 && mappings.len() < MAPPINGS {
            let mut mapped = bytes as usize;
            let mut mapping = ptr::null_mut();
            let host = ptr::with_exposed_provenance_mut(address as usize);
            // SAFETY: as of `register`; the memory is the driver's own or what it was given, and the results are locals.
            let status = unsafe {
                (bus.io.as_ref().map)(
                    bus.io.as_ptr(),
                    operation,
                    host,
                    &raw mut mapped,
                    &raw mut device_address,
                    &raw mut mapping,
                )
            };
            if status == Status::SUCCESS && mapped >= bytes as usize {
                mappings.push(Mapping {
                    address,
                    bytes: u64::from(bytes),
                    device_address,
                    mapping,
                });
            } else {
                if status == Status::SUCCESS {
                    bus.unmap(mapping);
                }
                device_address = 0;
            }
        }
        self.mappings.set(mappings);
        device_address
    }

    fn unmap(&self, address: u64, device_address: u64) {
        let mut mappings = self.mappings.take();
        let place = mappings.iter().position(|mapping| {
            mapping.address == address && mapping.device_address == device_address
        });
        if let (Some(place), Some(bus)) = (place, &self.bus) {
            bus.unmap(mappings.swap_remove(place).mapping);
        }
        self.mappings.set(mappings);
    }

    /// Where the device has a copy of its own (a bounce buffer), brings one side up to date.
    fn sync(&self, address: u64, bytes: u32, direction: PxeDirection, device_address: u64) {
        let mappings = self.mappings.take();
        let within = mappings.iter().any(|mapping| {
            let (Some(offset), Some(device_offset)) = (
                address.checked_sub(mapping.address),
                device_address.checked_sub(mapping.device_address),
            ) else {
                return false;
            };
            let end = offset.checked_add(bytes.into());
            offset == device_offset && end.is_some_and(|end| end <= mapping.bytes)
        });
        self.mappings.set(mappings);
        if !within || address == device_address {
            return;
        }
        let host = ptr::with_exposed_provenance_mut::<u8>(address as usize);
        let device = ptr::with_exposed_provenance_mut::<u8>(device_address as usize);
        let (from, to) = match direction {
            PxeDirection::FROM_DEVICE => (device, host),
            PxeDirection::TO_DEVICE => (host, device),
            _ => return,
        };
        // SAFETY: both ends of a mapping, within it, and they differ; what the firmware maps elsewhere is memory of its own at the address
        // that it tells.
        unsafe { ptr::copy(from, to, bytes as usize) };
    }
}

impl Bus {
    fn unmap(&self, mapping: *mut c_void) {
        // SAFETY: as of `Context::register`; a mapping that was made and not yet ended.
        let _ = unsafe { (self.io.as_ref().unmap)(self.io.as_ptr(), mapping) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(bus) = &self.bus {
            for mapping in self.mappings.take() {
                bus.unmap(mapping.mapping);
            }
        }
    }
}

/// The context behind a unique id.
///
/// # Safety
/// `unique_id` is from [`Context::parameters`], and the context is where it was.
unsafe fn context<'a>(unique_id: u64) -> &'a Context {
    let context = ptr::with_exposed_provenance::<Context>(unique_id as usize);
    // SAFETY: the caller's promise.
    unsafe { &*context }
}

unsafe extern "efiapi" fn delay(unique_id: u64, microseconds: u64) {
    // SAFETY: the driver passes what it got at its start.
    unsafe { context(unique_id) }.delay(microseconds);
}

unsafe extern "efiapi" fn block(unique_id: u64, enable: u32) {
    // SAFETY: as above.
    unsafe { context(unique_id) }.block(enable != 0);
}

unsafe extern "efiapi" fn mem_io(
    unique_id: u64,
    operation: PxeIo,
    bytes: u8,
    port: u64,
    buffer: u64,
) {
    // SAFETY: as above.
    unsafe { context(unique_id) }.register(operation, bytes, port, buffer);
}

unsafe extern "efiapi" fn map_mem(
    unique_id: u64,
    address: u64,
    bytes: u32,
    direction: PxeDirection,
    mapped: *mut u64,
) {
    // SAFETY: as above.
    let device_address = unsafe { context(unique_id) }.map(address, bytes, direction);
    if !mapped.is_null() {
        // SAFETY: the driver's own variable.
        unsafe { mapped.write_unaligned(device_address) };
    }
}

unsafe extern "efiapi" fn unmap_mem(
    unique_id: u64,
    address: u64,
    _: u32,
    _: PxeDirection,
    mapped: u64,
) {
    // SAFETY: as above.
    unsafe { context(unique_id) }.unmap(address, mapped);
}

unsafe extern "efiapi" fn sync_mem(
    unique_id: u64,
    address: u64,
    bytes: u32,
    direction: PxeDirection,
    mapped: u64,
) {
    // SAFETY: as above.
    unsafe { context(unique_id) }.sync(address, bytes, direction, mapped);
}
