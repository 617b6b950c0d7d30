//! The network interface behind the driver's traits: PCI functions by `EFI_PCI_IO_PROTOCOL`.
//!
//! A [`Claim`] takes the function away from the firmware's drivers and gives it back on drop. Registers
//! are reached by pointer, with no firmware call.

use crate::bsp::on_bsp;
use crate::clock::Clock;
use crate::device_path;
use crate::dropped::DROPPED;
use crate::memory::PAGE;
use crate::raw::pci_io::{
    ATTRIBUTE_BUS_MASTER, ATTRIBUTE_MEMORY, ATTRIBUTE_MEMORY_CACHED, PciIoAttributeOperation,
    PciIoOperation, PciIoProtocol, PciIoWidth,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::unsafe_protocol;
use uefi::{Handle, Status, StatusExt};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol as NetworkInterface;
use uefi_raw::table::boot::{AllocateType, MemoryType};
use wireboot_nic::platform::{DmaMemory, PciFunction, PlatformError, Registers};

/// The base class of network controllers.
const CLASS_NETWORK: u8 = 0x02;

/// The protocol as the `uefi` crate opens it.
#[repr(transparent)]
#[unsafe_protocol(PciIoProtocol::GUID)]
struct PciIo(PciIoProtocol);

/// A PCI function that a driver may take.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub(crate) handle: Handle,
    /// Segment, bus, device and function.
    location: [usize; 4],
    /// Of PCI configuration space, offset 0.
    pub vendor: u16,
    /// Of PCI configuration space, offset 2.
    pub device: u16,
    /// Base class (PCI Code and ID Assignment Specification).
    class: u8,
    /// Its device path, without end node.
    pub path: Box<[u8]>,
}

impl Candidate {
    /// By its class, a network controller.
    #[must_use]
    pub fn is_network(&self) -> bool {
        self.class == CLASS_NETWORK
    }

    /// The firmware's interface to it, which stays the driver's that has it.
    pub(crate) fn io(&self) -> uefi::Result<NonNull<PciIoProtocol>> {
        let io = open(self.handle, OpenProtocolAttributes::GetProtocol)?;
        let io = io.get().ok_or(Status::UNSUPPORTED)?;
        Ok(NonNull::from(&io.0))
    }

    /// Has the firmware's drivers take it. At start-up some firmware does so only with what it boots from.
    pub fn connect(&self) {
        // NOT_FOUND says that it has none.
        let _ = boot::connect_controller(self.handle, &[], None, true);
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [segment, bus, device, function] = self.location;
        write!(
            f,
            "PCI device {segment:04x}:{bus:02x}:{device:02x}.{function:x} ({:04x}:{:04x})",
            self.vendor, self.device
        )
    }
}

/// Of the PCI functions that `path` (a device path's nodes) leads through, the last.
#[must_use]
pub fn function_of(path: &[u8]) -> Option<Candidate> {
    let on_it = |candidate: &Candidate| path.starts_with(&candidate.path);
    let found = functions().into_iter().filter(on_it);
    found.max_by_key(|candidate| candidate.path.len())
}

/// All PCI functions, in the firmware's order.
#[must_use]
pub fn functions() -> Vec<Candidate> {
    let Ok(handles) = boot::locate_handle_buffer(SearchType::from_proto::<PciIo>()) else {
        return Vec::new();
    };
    handles
        .iter()
        .filter_map(|&handle| {
            let path = device_path::of_handle(handle)?;
            let io = open(handle, OpenProtocolAttributes::GetProtocol).ok()?;
            let io = NonNull::from(&io.get()?.0);
            let id = config_read(io, 0);
            let [.., class] = config_read(io, 8).to_le_bytes();
            let mut location = [0; 4];
            let [segment, bus, device, function] = &mut location;
            // SAFETY: the protocol is live; the four results are written to locals.
            let told =
                unsafe { (io.as_ref().get_location)(io.as_ptr(), segment, bus, device, function) };
            told.is_success().then_some(())?;
            Some(Candidate {
                handle,
                location,
                vendor: id as u16,
                device: (id >> 16) as u16,
                class,
                path,
            })
        })
        .collect()
}

/// The network interfaces that the firmware's drivers made of the function at `path`.
fn interfaces_on(path: &[u8]) -> Vec<Handle> {
    let Ok(handles) = boot::locate_handle_buffer(SearchType::ByProtocol(&NetworkInterface::GUID))
    else {
        return Vec::new();
    };
    let below =
        |handle: &Handle| device_path::of_handle(*handle).is_some_and(|own| own.starts_with(path));
    handles.iter().copied().filter(below).collect()
}

fn open(handle: Handle, how: OpenProtocolAttributes) -> uefi::Result<ScopedProtocol<PciIo>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the interface stays installed: PCI functions of this machine are removed only by the
    // firmware's PCI bus driver, which nothing stops while this image runs.
    unsafe { boot::open_protocol::<PciIo>(params, how) }
}

fn config_read(io: NonNull<PciIoProtocol>, offset: u8) -> u32 {
    let mut value = u32::MAX;
    // SAFETY: the protocol is live (see `open`); one 32-bit unit is read into `value`.
    let status = unsafe {
        (io.as_ref().pci.read)(
            io.as_ptr(),
            PciIoWidth::UINT32,
            u32::from(offset & !3),
            1,
            (&raw mut value).cast(),
        )
    };
    if status == Status::SUCCESS {
        value
    } else {
        u32::MAX
    }
}

fn change_attributes(
    io: NonNull<PciIoProtocol>,
    operation: PciIoAttributeOperation,
    attributes: u64,
) -> uefi::Result<u64> {
    let mut result = 0;
    // SAFETY: the protocol is live (see `open`); `result` is written only by GET and SUPPORTED.
    unsafe { (io.as_ref().attributes)(io.as_ptr(), operation, attributes, &raw mut result) }
        .to_result_with_val(|| result)
}

/// What a panic has to undo: the one function claimed, if any.
static CLAIMED_HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CLAIMED_IO: AtomicPtr<PciIoProtocol> = AtomicPtr::new(ptr::null_mut());
static CLAIMED_ATTRIBUTES: AtomicU64 = AtomicU64::new(0);

/// A PCI function taken from the firmware's drivers. Dropping it gives it back: the firmware's own
/// drivers are connected again, and its network works as before.
///
/// The driver must have stopped the device, and its memory must have been dropped, before the claim is.
#[derive(Debug)]
pub struct Claim {
    /// Closed before the firmware's drivers are connected again, which they would otherwise be refused.
    io: Option<ScopedProtocol<PciIo>>,
    handle: Handle,
    original: u64,
}

impl fmt::Debug for PciIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PciIo")
    }
}

impl Claim {
    /// Disconnects the firmware's drivers from the function and turns on memory decoding and bus mastering.
    ///
    /// Handles and protocols above the function (network, PXE) are gone afterwards: what they hold is to be
    /// read before.
    ///
    /// # Errors
    /// What the firmware answers when a driver will not let go of the function.
    pub fn take(candidate: &Candidate) -> uefi::Result<Self> {
        let handle = candidate.handle;
        // From the top down: some drivers refuse to let go of a function while the network driver above has its
        // interface started.
        for interface in interfaces_on(&candidate.path) {
            let _ = boot::disconnect_controller(interface, None, None);
        }
        // Not connected is as good as disconnected; the exclusive open tells whether it worked.
        let _ = boot::disconnect_controller(handle, None, None);
        let io = open(handle, OpenProtocolAttributes::Exclusive).inspect_err(|_| {
            let _ = boot::connect_controller(handle, &[], None, true);
        })?;
        let raw = NonNull::from(&io.get().ok_or(Status::UNSUPPORTED)?.0);
        let original = change_attributes(raw, PciIoAttributeOperation::GET, 0)?;
        let claim = Self {
            io: Some(io),
            handle,
            original,
        };
        CLAIMED_ATTRIBUTES.store(original, Ordering::Relaxed);
        CLAIMED_IO.store(raw.as_ptr(), Ordering::Relaxed);
        CLAIMED_HANDLE.store(handle.as_ptr(), Ordering::Release);
        change_attributes(
            raw,
            PciIoAttributeOperation::ENABLE,
            ATTRIBUTE_MEMORY | ATTRIBUTE_BUS_MASTER,
        )?;
        Ok(claim)
    }

    /// The function, for the driver.
    ///
    /// # Errors
    /// `UNSUPPORTED` if the firmware has no interface for it.
    pub fn function(&self, clock: Clock) -> uefi::Result<Function> {
        let io = self
            .io
            .as_ref()
            .and_then(|io| io.get())
            .ok_or(Status::UNSUPPORTED)?;
        Ok(Function {
            io: NonNull::from(&io.0),
            clock,
        })
    }

    /// Turns bus mastering off: whatever the device still believes, it reaches memory no more. Allocates
    /// nothing, so it may be called while boot services end.
    pub fn stop_dma(&self) {
        if let Some(io) = self.io.as_ref().and_then(|io| io.get()) {
            let _ = change_attributes(
                NonNull::from(&io.0),
                PciIoAttributeOperation::DISABLE,
                ATTRIBUTE_BUS_MASTER,
            );
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED_HANDLE.store(ptr::null_mut(), Ordering::Release);
        if let Some(io) = self.io.take()
            && let Some(io) = io.get()
        {
            restore(NonNull::from(&io.0), self.original);
        }
        // NOT_FOUND says that the firmware has no driver for it, as before.
        let _ = boot::connect_controller(self.handle, &[], None, true);
    }
}

fn restore(io: NonNull<PciIoProtocol>, original: u64) {
    // Off first: `original` may have bus mastering on.
    let _ = change_attributes(io, PciIoAttributeOperation::DISABLE, ATTRIBUTE_BUS_MASTER);
    let _ = change_attributes(io, PciIoAttributeOperation::SET, original);
}

/// Takes the device off the bus and gives it back, when the claim's owner cannot: on a panic. The
/// device's memory is left allocated, as it may be in use.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    let handle = CLAIMED_HANDLE.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the pointer is null or came from a handle.
    let (Some(handle), Some(io)) = (
        unsafe { Handle::from_ptr(handle) },
        NonNull::new(CLAIMED_IO.load(Ordering::Relaxed)),
    ) else {
        return;
    };
    let _ = change_attributes(io, PciIoAttributeOperation::DISABLE, ATTRIBUTE_BUS_MASTER);
    // SAFETY: closes what `Claim::take` opened; the claim's owner will never run again.
    unsafe { close_raw(handle, &PciIoProtocol::GUID) };
    // The attributes are left to the firmware's driver, which enables what it needs.
    let _ = boot::connect_controller(handle, &[], None, true);
}

/// Closes the exclusive open of a claim.
///
/// # Safety
/// The claim must not be used again.
#[cfg(target_os = "uefi")]
pub(crate) unsafe fn close_raw(handle: Handle, protocol: &uefi::Guid) {
    let Some(table) = uefi::table::system_table_raw() else {
        return;
    };
    // SAFETY: the system table is live, and boot services too, as the caller is a running image.
    unsafe {
        if let Some(boot_services) = table.as_ref().boot_services.as_ref() {
            let _ = (boot_services.close_protocol)(
                handle.as_ptr(),
                protocol,
                boot::image_handle().as_ptr(),
                ptr::null_mut(),
            );
        }
    }
}

/// A claimed PCI function as the drivers see it. Of no use after its [`Claim`] is dropped.
#[derive(Clone, Debug)]
pub struct Function {
    io: NonNull<PciIoProtocol>,
    clock: Clock,
}

// SAFETY: a firmware protocol at a fixed address. (What calls the firmware, mapping and allocating, belongs to the boot
// processor, as all of setting up does.)
unsafe impl Send for Function {}

impl PciFunction for Function {
    type Dma = Dma;
    type Bar = Bar;

    fn config32(&self, offset: u8) -> u32 {
        config_read(self.io, offset)
    }

    fn map_bar(&self, index: u8) -> Result<Bar, PlatformError> {
        let mut resources: *mut c_void = ptr::null_mut();
        // SAFETY: the protocol is live; on success it allocates a descriptor list and points to it.
        let status = unsafe {
            (self.io.as_ref().get_bar_attributes)(
                self.io.as_ptr(),
                index,
                ptr::null_mut(),
                &raw mut resources,
            )
        };
        let resources = NonNull::new(resources.cast::<u8>());
        let (Status::SUCCESS, Some(resources)) = (status, resources) else {
            return Err(PlatformError::NoBar(index));
        };
        // SAFETY: the list holds at least one descriptor, which is 46 bytes long, or only the 2-byte end
        // tag, which the first byte tells apart.
        let range = unsafe {
            if resources.read() == ADDRESS_SPACE_DESCRIPTOR {
                memory_range(&resources.cast::<[u8; 46]>().read())
            } else {
                None
            }
        };
        // SAFETY: the protocol allocated the list from pool for us to free.
        let _ = unsafe { boot::free_pool(resources) };
        let (address, len) = range.ok_or(PlatformError::NoBar(index))?;
        let base = NonNull::new(address as *mut u8).ok_or(PlatformError::NoBar(index))?;
        Ok(Bar { base, len })
    }

    fn allocate(&self, len: usize) -> Result<Dma, PlatformError> {
        let pages = len.div_ceil(PAGE).max(1);
        let mut host = ptr::null_mut();
        // SAFETY: the protocol is live; it writes the address of fresh pages to `host`.
        let status = unsafe {
            (self.io.as_ref().allocate_buffer)(
                self.io.as_ptr(),
                AllocateType::ANY_PAGES,
                MemoryType::BOOT_SERVICES_DATA,
                pages,
                &raw mut host,
                ATTRIBUTE_MEMORY_CACHED,
            )
        };
        let (Status::SUCCESS, Some(start)) = (status, NonNull::new(host.cast::<u8>())) else {
            return Err(PlatformError::OutOfMemory);
        };
        let mut dma = Dma {
            io: self.io,
            start,
            pages,
            device_address: 0,
            mapping: ptr::null_mut(),
        };
        // SAFETY: the pages are fresh and ours.
        unsafe { start.write_bytes(0, pages * PAGE) };
        let mut bytes = pages * PAGE;
        // SAFETY: the protocol is live; the three results are written to locals.
        let status = unsafe {
            (self.io.as_ref().map)(
                self.io.as_ptr(),
                PciIoOperation::BUS_MASTER_COMMON_BUFFER,
                host,
                &raw mut bytes,
                &raw mut dma.device_address,
                &raw mut dma.mapping,
            )
        };
        if status != Status::SUCCESS || bytes < pages * PAGE {
            return Err(PlatformError::OutOfMemory);
        }
        Ok(dma)
    }

    fn stall_microsecond(&self) {
        // By the counter, as this may be an AP, where the firmware must not be called.
        let end = self.clock.micros() + 1;
        while self.clock.micros() <= end {
            core::hint::spin_loop();
        }
    }
}

/// First byte of an ACPI QWORD address space descriptor (ACPI 6.4, section 6.4.3.5.1).
pub(crate) const ADDRESS_SPACE_DESCRIPTOR: u8 = 0x8a;

/// Start and length of a memory BAR from its ACPI descriptor.
fn memory_range(descriptor: &[u8; 46]) -> Option<(usize, usize)> {
    const MEMORY: u8 = 0;
    let field = |offset: usize| {
        let bytes = descriptor.get(offset..offset + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (minimum, translation, len) = (field(14)?, field(30)?, field(38)?);
    if descriptor[3] != MEMORY || translation != 0 || len == 0 || minimum == 0 {
        return None;
    }
    minimum.checked_add(len)?;
    Some((usize::try_from(minimum).ok()?, usize::try_from(len).ok()?))
}

/// A memory BAR, reached by pointer: firmware maps device memory one to one.
#[derive(Debug)]
pub struct Bar {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: device registers at a fixed address; the one owner may be any processor.
unsafe impl Send for Bar {}

// SAFETY: no reference to a register is ever made; each access is one volatile load or store of a register's width, which processors may
// make at the same time. Whose a register is, is for the driver to say.
unsafe impl Sync for Bar {}

impl Bar {
    /// The register at `offset`, if all of it is inside the BAR and aligned.
    #[inline]
    fn at<T>(&self, offset: usize) -> Option<*mut T> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.len || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: within the BAR, as just checked; BARs are aligned to their size.
        Some(unsafe { self.base.as_ptr().add(offset).cast() })
    }
}

macro_rules! access {
    ($read:ident, $write:ident, $unit:ty) => {
        #[inline]
        fn $read(&self, offset: usize) -> $unit {
            match self.at::<$unit>(offset) {
                // SAFETY: a register of the claimed device, decoded by it (see `at`).
                Some(register) => unsafe { register.read_volatile() },
                None => <$unit>::MAX,
            }
        }

        #[inline]
        fn $write(&self, offset: usize, value: $unit) {
            if let Some(register) = self.at::<$unit>(offset) {
                // SAFETY: a register of the claimed device, decoded by it (see `at`).
                unsafe { register.write_volatile(value) }
            }
        }
    };
}

impl Registers for Bar {
    fn len(&self) -> usize {
        self.len
    }
    access!(read8, write8, u8);
    access!(read16, write16, u16);
    access!(read32, write32, u32);
}

/// Memory shared with the device, cached.
#[derive(Debug)]
pub struct Dma {
    io: NonNull<PciIoProtocol>,
    start: NonNull<u8>,
    pages: usize,
    device_address: u64,
    mapping: *mut c_void,
}

// SAFETY: plain memory at a fixed address; the one owner may be any processor. (What an AP drops waits for the BSP.)
unsafe impl Send for Dma {}

// SAFETY: the pages are allocated and mapped from creation to drop, zeroed at creation, page aligned, and
// no reference to them is ever made here. CommonBuffer mappings are contiguous for the device.
unsafe impl DmaMemory for Dma {
    fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }
    fn len(&self) -> usize {
        self.pages * PAGE
    }
    fn device_address(&self) -> u64 {
        self.device_address
    }
}

impl Drop for Dma {
    fn drop(&mut self) {
        if !on_bsp() {
            let owner = Dma { ..*self };
            // SAFETY: whole pages; their former owner has no references left, and the driver has stopped the device. The function that they
            // belong to stays (see `open`).
            unsafe { DROPPED.keep(self.start, owner) };
            return;
        }
        // SAFETY: mapped and allocated by the same protocol, not yet unmapped or freed.
        unsafe {
            if !self.mapping.is_null() {
                let _ = (self.io.as_ref().unmap)(self.io.as_ptr(), self.mapping);
            }
            let _ = (self.io.as_ref().free_buffer)(
                self.io.as_ptr(),
                self.pages,
                self.start.as_ptr().cast(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsp::ON_AP;
    use crate::dropped;
    use crate::raw::pci_io::{PciIoAccess, PciIoConfigAccess};

    fn descriptor(kind: u8, minimum: u64, len: u64) -> [u8; 46] {
        let mut bytes = [0; 46];
        bytes[0] = ADDRESS_SPACE_DESCRIPTOR;
        bytes[3] = kind;
        bytes[14..22].copy_from_slice(&minimum.to_le_bytes());
        bytes[38..46].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    /// A function of the protocol that has nothing to do with freeing memory.
    macro_rules! never {
        ($($parameter:ident)*) => {{
            unsafe extern "efiapi" fn never<$($parameter),*>($(_: $parameter),*) -> Status {
                unreachable!("memory is only freed")
            }
            never
        }};
    }

    /// Calls of `unmap`, and pages given to `free_buffer`.
    static FREED: AtomicU64 = AtomicU64::new(0);

    unsafe extern "efiapi" fn unmap(_: *mut PciIoProtocol, mapping: *mut c_void) -> Status {
        FREED.fetch_add(mapping as u64, Ordering::Relaxed);
        Status::SUCCESS
    }

    unsafe extern "efiapi" fn free_buffer(
        _: *mut PciIoProtocol,
        pages: usize,
        _: *mut c_void,
    ) -> Status {
        FREED.fetch_add(pages as u64, Ordering::Relaxed);
        Status::SUCCESS
    }

    /// A protocol with nothing but memory.
    fn protocol() -> PciIoProtocol {
        let access = || PciIoAccess {
            read: never!(A B C D E F),
            write: never!(A B C D E F),
        };
        PciIoProtocol {
            poll_mem: never!(A B C D E F G H),
            poll_io: never!(A B C D E F G H),
            mem: access(),
            io: access(),
            pci: PciIoConfigAccess {
                read: never!(A B C D E),
                write: never!(A B C D E),
            },
            copy_mem: never!(A B C D E F G),
            map: never!(A B C D E F),
            unmap,
            allocate_buffer: never!(A B C D E F),
            free_buffer,
            flush: never!(A),
            get_location: never!(A B C D E),
            attributes: never!(A B C D),
            get_bar_attributes: never!(A B C D),
            set_bar_attributes: never!(A B C D E),
            rom_size: 0,
            rom_image: ptr::null_mut(),
        }
    }

    #[test]
    fn memory_for_the_device_is_given_back_on_the_boot_processor_alone() {
        #[repr(align(4096))]
        struct Pages([u8; 2 * PAGE]);
        let (mut protocol, mut pages) = (protocol(), Box::new(Pages([0; 2 * PAGE])));
        let freed = || FREED.load(Ordering::Relaxed);
        for elsewhere in [false, true] {
            let before = freed();
            let dma = Dma {
                io: NonNull::from(&mut protocol),
                start: NonNull::from(&mut pages.0).cast(),
                pages: 2,
                device_address: 0,
                mapping: 0x100 as *mut c_void,
            };
            ON_AP.set(elsewhere);
            drop(dma);
            ON_AP.set(false);
            assert_eq!(freed() - before, if elsewhere { 0 } else { 0x102 });
            dropped::collect();
            assert_eq!(freed() - before, 0x102);
        }
    }

    #[test]
    fn memory_bars_only() {
        assert_eq!(
            memory_range(&descriptor(0, 0xc000_0000, 4096)),
            Some((0xc000_0000, 4096))
        );
        assert_eq!(memory_range(&descriptor(1, 0xc000, 32)), None);
        assert_eq!(memory_range(&descriptor(0, 0, 4096)), None);
        assert_eq!(memory_range(&descriptor(0, u64::MAX, 4096)), None);
    }
}
