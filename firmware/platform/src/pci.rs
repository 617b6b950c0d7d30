//! A claimed PCI function behind the driver's traits: configuration space and DMA memory by `EFI_PCI_IO_PROTOCOL`, registers by pointer,
//! with no firmware call.

use crate::bsp::on_bsp;
use crate::clock::Clock;
use crate::dropped::DROPPED;
use crate::memory::PAGE;
use crate::raw::pci_io::{ATTRIBUTE_MEMORY_CACHED, PciIoOperation, PciIoProtocol, PciIoWidth};
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::{Status, boot};
use uefi_raw::table::boot::{AllocateType, MemoryType};
use wireboot_nic::platform::{DmaMemory, PciFunction, PlatformError, Registers};

pub(crate) fn config_read(io: NonNull<PciIoProtocol>, offset: u8) -> u32 {
    let mut value = u32::MAX;
    // SAFETY: the protocol is live (see `claim`); one 32-bit unit is read into `value`.
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

/// A claimed PCI function as the drivers see it. Of no use after its [`Claim`](crate::claim::pci::Claim) is dropped.
#[derive(Clone, Debug)]
pub struct Function {
    pub(crate) io: NonNull<PciIoProtocol>,
    pub(crate) clock: Clock,
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
        bar(self.io, index).ok_or(PlatformError::NoBar(index))
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

/// Whether the firmware would have the device write memory at another address than the processor does: to be copied from there, or through an
/// IOMMU. `None` where it does not map it. The device is not told of it.
pub(crate) fn maps_elsewhere(
    io: NonNull<PciIoProtocol>,
    memory: NonNull<u8>,
    len: usize,
) -> Option<bool> {
    let (mut bytes, mut address, mut mapping) = (len, 0, ptr::null_mut());
    // SAFETY: the protocol is live; the memory is the caller's, and the three results are written to locals. What is unmapped was just mapped.
    unsafe {
        let status = (io.as_ref().map)(
            io.as_ptr(),
            PciIoOperation::BUS_MASTER_WRITE,
            memory.as_ptr().cast(),
            &raw mut bytes,
            &raw mut address,
            &raw mut mapping,
        );
        if status != Status::SUCCESS {
            return None;
        }
        let _ = (io.as_ref().unmap)(io.as_ptr(), mapping);
    }
    Some(address != memory.as_ptr() as u64)
}

/// PCI functions have so many BARs.
const BARS: u8 = 6;
/// Where the first is in configuration space.
const FIRST_BAR: u8 = 0x10;
/// The bits of a memory BAR that are not of its address; those that tell its kind, and what they say of one whose next register has the
/// upper half of the address (PCI Local Bus Specification 3.0, section 6.2.5.1).
const BAR_FLAGS: u32 = 0xf;
const BAR_KIND: u32 = 0b111;
const BAR_64: u32 = 0b100;

/// The memory BAR with a number of configuration space.
pub(crate) fn bar(io: NonNull<PciIoProtocol>, number: u8) -> Option<Bar> {
    let config = |offset| config_read(io, offset);
    let (address, len) = find_range(number, config, |index| range(io, index))?;
    let base = NonNull::new(address as *mut u8)?;
    Some(Bar { base, len })
}

/// Start and length of the memory BAR with a number of configuration space. Firmware has an index of its own: EDK II counts a BAR of 64
/// bits as one, which takes two numbers. The address tells which it is.
fn find_range(
    number: u8,
    config: impl Fn(u8) -> u32,
    range: impl Fn(u8) -> Option<(usize, usize)>,
) -> Option<(usize, usize)> {
    if number >= BARS {
        return None;
    }
    let at = FIRST_BAR + 4 * number;
    let low = config(at);
    let high = if low & BAR_KIND == BAR_64 {
        config(at + 4)
    } else {
        0
    };
    let address = u64::from(high) << 32 | u64::from(low & !BAR_FLAGS);
    (0..BARS)
        .filter_map(range)
        .find(|(start, _)| *start as u64 == address)
}

/// The same of the BAR with an index of the firmware's.
fn range(io: NonNull<PciIoProtocol>, index: u8) -> Option<(usize, usize)> {
    let mut resources: *mut c_void = ptr::null_mut();
    // SAFETY: the protocol is live; on success it allocates a descriptor list and points to it.
    let status = unsafe {
        (io.as_ref().get_bar_attributes)(io.as_ptr(), index, ptr::null_mut(), &raw mut resources)
    };
    let resources = NonNull::new(resources.cast::<u8>());
    let (Status::SUCCESS, Some(resources)) = (status, resources) else {
        return None;
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
    range
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
    /// The physical address of its first register.
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

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
            let owner = Self { ..*self };
            // SAFETY: whole pages; their former owner has no references left, and the driver has stopped the device. The function that they
            // belong to stays (see `claim`).
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
    use core::sync::atomic::{AtomicU64, Ordering};

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
    fn memory_for_the_device_is_given_back_on_the_bsp_alone() {
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

    type Range = Option<(usize, usize)>;

    /// What is found where the six registers of configuration space and the firmware's ranges are these.
    fn found(registers: [u32; 6], ranges: &[Range]) -> [Range; 7] {
        let config = |at: u8| registers[usize::from(at - 0x10) / 4];
        let range = |index: u8| ranges.get(usize::from(index)).copied().flatten();
        core::array::from_fn(|number| find_range(number as u8, config, range))
    }

    #[test]
    fn bars_are_found_by_their_address_whatever_firmware_counts() {
        let first = Some((0x38_0000_0000, 0x4000));
        let second = Some((0x38_0010_0000, 0x1000));
        let small = Some((0x8010_0000, 0x2000));
        // Two of 64 bits and one of 32.
        let registers = [0x0000_000c, 0x38, 0x0010_0004, 0x38, 0x8010_0000, 0];
        let numbers = [first, None, second, None, small, None, None];
        assert_eq!(found(registers, &[first, second, small]), numbers);
        assert_eq!(found(registers, &numbers), numbers);
        // As of QEMU's virtio card: ports, one of 32 bits, none, none, one of 64.
        let registers = [0xc001, 0x8010_0000, 0, 0, 0x0000_000c, 0x38];
        let numbers = [None, small, None, None, first, None, None];
        assert_eq!(found(registers, &numbers), numbers);
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
