//! `EFI_PCI_IO_PROTOCOL` (UEFI 2.10, section 14.4).

use core::ffi::c_void;
use uefi_raw::table::boot::{AllocateType, MemoryType};
use uefi_raw::{Guid, PhysicalAddress, Status, guid, newtype_enum};

newtype_enum! {
    /// Unit of a register access (`EFI_PCI_IO_PROTOCOL_WIDTH`).
    pub enum PciIoWidth: u32 => {
        /// 8 bits (`EfiPciIoWidthUint8`).
        UINT8 = 0,
        /// 16 bits (`EfiPciIoWidthUint16`).
        UINT16 = 1,
        /// 32 bits (`EfiPciIoWidthUint32`).
        UINT32 = 2,
        /// 64 bits (`EfiPciIoWidthUint64`).
        UINT64 = 3,
    }
}

newtype_enum! {
    /// What a mapped buffer is used for (`EFI_PCI_IO_PROTOCOL_OPERATION`).
    pub enum PciIoOperation: u32 => {
        /// The device reads the buffer.
        BUS_MASTER_READ = 0,
        /// The device writes the buffer.
        BUS_MASTER_WRITE = 1,
        /// Device and processor read and write it at any time.
        BUS_MASTER_COMMON_BUFFER = 2,
    }
}

newtype_enum! {
    /// What [`PciIoProtocol::attributes`] shall do (`EFI_PCI_IO_PROTOCOL_ATTRIBUTE_OPERATION`).
    pub enum PciIoAttributeOperation: u32 => {
        /// Return the attributes that are on.
        GET = 0,
        /// Turn on exactly the given attributes.
        SET = 1,
        /// Turn on the given attributes besides those that are on.
        ENABLE = 2,
        /// Turn off the given attributes.
        DISABLE = 3,
        /// Return the attributes that the function supports.
        SUPPORTED = 4,
    }
}

/// The device answers at its I/O BARs (bit 0 of the PCI command register).
pub const ATTRIBUTE_IO: u64 = 0x0100;
/// The device answers at its memory BARs (bit 1 of the PCI command register).
pub const ATTRIBUTE_MEMORY: u64 = 0x0200;
/// The function may start transfers of its own (DMA).
pub const ATTRIBUTE_BUS_MASTER: u64 = 0x0400;
/// Buffers are mapped cached.
pub const ATTRIBUTE_MEMORY_CACHED: u64 = 0x0800;

/// Registers of a BAR (`EFI_PCI_IO_PROTOCOL_ACCESS`).
#[derive(Debug)]
#[repr(C)]
pub struct PciIoAccess {
    /// Reads `count` units.
    pub read: unsafe extern "efiapi" fn(
        this: *mut PciIoProtocol,
        width: PciIoWidth,
        bar_index: u8,
        offset: u64,
        count: usize,
        buffer: *mut c_void,
    ) -> Status,
    /// Writes `count` units.
    pub write: unsafe extern "efiapi" fn(
        this: *mut PciIoProtocol,
        width: PciIoWidth,
        bar_index: u8,
        offset: u64,
        count: usize,
        buffer: *mut c_void,
    ) -> Status,
}

/// Configuration space (`EFI_PCI_IO_PROTOCOL_CONFIG_ACCESS`).
#[derive(Debug)]
#[repr(C)]
pub struct PciIoConfigAccess {
    /// Reads `count` units.
    pub read: unsafe extern "efiapi" fn(
        this: *mut PciIoProtocol,
        width: PciIoWidth,
        offset: u32,
        count: usize,
        buffer: *mut c_void,
    ) -> Status,
    /// Writes `count` units.
    pub write: unsafe extern "efiapi" fn(
        this: *mut PciIoProtocol,
        width: PciIoWidth,
        offset: u32,
        count: usize,
        buffer: *mut c_void,
    ) -> Status,
}

/// Waits for a register to take a value (`EFI_PCI_IO_PROTOCOL_POLL_IO_MEM`).
pub type PciIoPoll = unsafe extern "efiapi" fn(
    this: *mut PciIoProtocol,
    width: PciIoWidth,
    bar_index: u8,
    offset: u64,
    mask: u64,
    value: u64,
    delay: u64,
    result: *mut u64,
) -> Status;

/// `EFI_PCI_IO_PROTOCOL`: one PCI function.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // The members carry the specification's names and its documentation.
pub struct PciIoProtocol {
    pub poll_mem: PciIoPoll,
    pub poll_io: PciIoPoll,
    pub mem: PciIoAccess,
    pub io: PciIoAccess,
    pub pci: PciIoConfigAccess,
    pub copy_mem: unsafe extern "efiapi" fn(
        this: *mut Self,
        width: PciIoWidth,
        dest_bar_index: u8,
        dest_offset: u64,
        src_bar_index: u8,
        src_offset: u64,
        count: usize,
    ) -> Status,
    pub map: unsafe extern "efiapi" fn(
        this: *mut Self,
        operation: PciIoOperation,
        host_address: *mut c_void,
        number_of_bytes: *mut usize,
        device_address: *mut PhysicalAddress,
        mapping: *mut *mut c_void,
    ) -> Status,
    pub unmap: unsafe extern "efiapi" fn(this: *mut Self, mapping: *mut c_void) -> Status,
    pub allocate_buffer: unsafe extern "efiapi" fn(
        this: *mut Self,
        allocate_type: AllocateType,
        memory_type: MemoryType,
        pages: usize,
        host_address: *mut *mut c_void,
        attributes: u64,
    ) -> Status,
    pub free_buffer: unsafe extern "efiapi" fn(
        this: *mut Self,
        pages: usize,
        host_address: *mut c_void,
    ) -> Status,
    pub flush: unsafe extern "efiapi" fn(this: *mut Self) -> Status,
    pub get_location: unsafe extern "efiapi" fn(
        this: *mut Self,
        segment_number: *mut usize,
        bus_number: *mut usize,
        device_number: *mut usize,
        function_number: *mut usize,
    ) -> Status,
    pub attributes: unsafe extern "efiapi" fn(
        this: *mut Self,
        operation: PciIoAttributeOperation,
        attributes: u64,
        result: *mut u64,
    ) -> Status,
    pub get_bar_attributes: unsafe extern "efiapi" fn(
        this: *mut Self,
        bar_index: u8,
        supports: *mut u64,
        resources: *mut *mut c_void,
    ) -> Status,
    pub set_bar_attributes: unsafe extern "efiapi" fn(
        this: *mut Self,
        attributes: u64,
        bar_index: u8,
        offset: *mut u64,
        length: *mut u64,
    ) -> Status,
    pub rom_size: u64,
    pub rom_image: *mut c_void,
}

impl PciIoProtocol {
    /// `EFI_PCI_IO_PROTOCOL_GUID`.
    pub const GUID: Guid = guid!("4cf5b200-68b8-4ca5-9eec-b23e3f50029a");
}
