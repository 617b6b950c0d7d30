//! The machine's ACPI tables, as the firmware has them for the system.

use alloc::vec;
use alloc::vec::Vec;
use core::ptr;
use uefi::boot::{self, MemoryDescriptor, MemoryType, SearchType};
use uefi::mem::memory_map::{MemoryMap, MemoryMapOwned};
use uefi::proto::acpi::AcpiTable;
use uefi::table::cfg::ConfigTableEntry;
use uefi::{Handle, Identify, Result, Status, system};

/// The RSDP's length (ACPI 6.5 section 5.2.5.3), and where it says where the XSDT is.
const RSDP: usize = 36;
const XSDT_AT: usize = 24;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// A table's header; its length is at 4.
const HEADER: usize = 36;
/// Far more tables than any machine has.
const MOST_TABLES: usize = 1024;

/// The address of the first table with this signature; `None` where there is none.
#[must_use]
pub fn find(signature: [u8; 4]) -> Option<u64> {
    let rsdp = system::with_config_table(|table| {
        let entry = table
            .iter()
            .find(|entry| entry.guid == ConfigTableEntry::ACPI2_GUID)?;
        Some(entry.address as u64)
    })?;
    let memory = TableMemory::read()?;
    find_in(rsdp, signature, |address, out| memory.copy(address, out))
}

/// The table at this address: of ACPI, or any that begins with a signature and its length, both of four bytes. `None` where it is longer than `most` bytes or is not
/// in memory in which a firmware has tables.
#[must_use]
pub fn read(address: u64, most: usize) -> Option<Vec<u8>> {
    let memory = TableMemory::read()?;
    read_by(address, most, |address, out| memory.copy(address, out))
}

fn read_by(address: u64, most: usize, read: impl Fn(u64, &mut [u8]) -> bool) -> Option<Vec<u8>> {
    let mut head = [0; 8];
    if !read(address, &mut head) {
        return None;
    }
    let [_, _, _, _, length @ ..] = head;
    let bytes = u32::from_le_bytes(length) as usize;
    if bytes > most {
        return None;
    }
    let mut table = vec![0; bytes];
    read(address, &mut table).then_some(table)
}

/// The firmware's memory map. It is in the firmware's pool: a driver of ours has no heap.
struct TableMemory(MemoryMapOwned);

impl TableMemory {
    fn read() -> Option<Self> {
        let map = boot::memory_map(MemoryType::BOOT_SERVICES_DATA).ok()?;
        Some(Self(map))
    }

    /// Copies the bytes at this address; false, and nothing, where no region that may have tables has all of them.
    fn copy(&self, address: u64, out: &mut [u8]) -> bool {
        let is_there = self
            .0
            .entries()
            .any(|region| holds(region, address, out.len()));
        if is_there {
            // SAFETY: a region that may have tables has all of these bytes, memory is mapped one to one, and nobody else runs.
            unsafe { ptr::copy(address as *const u8, out.as_mut_ptr(), out.len()) };
        }
        is_there
    }
}

/// Whether this region of memory has all of these bytes, and may have tables: devices' registers, which change when they are read, have none, nor has the page at
/// address 0.
fn holds(region: &MemoryDescriptor, address: u64, bytes: usize) -> bool {
    const TABLES: [MemoryType; 5] = [
        MemoryType::RESERVED,
        MemoryType::BOOT_SERVICES_DATA,
        MemoryType::RUNTIME_SERVICES_DATA,
        MemoryType::ACPI_RECLAIM,
        MemoryType::ACPI_NON_VOLATILE,
    ];
    let first = region.phys_start;
    let behind = first.saturating_add(region.page_count.saturating_mul(PAGE));
    let end = address.checked_add(bytes as u64);
    TABLES.contains(&region.ty)
        && address >= PAGE.max(first)
        && end.is_some_and(|end| end <= behind)
}

/// What [`find`] does, from the RSDP's address. `read` fills a buffer from an address, or cannot.
fn find_in(rsdp: u64, signature: [u8; 4], read: impl Fn(u64, &mut [u8]) -> bool) -> Option<u64> {
    let number = |at: u64| {
        let mut bytes = [0; 8];
        read(at, &mut bytes).then_some(u64::from_le_bytes(bytes))
    };
    let mut pointer = [0; RSDP];
    if !read(rsdp, &mut pointer) || !pointer.starts_with(b"RSD PTR ") {
        return None;
    }
    let xsdt = u64::from_le_bytes(*pointer.get(XSDT_AT..)?.first_chunk()?);
    let [b'X', b'S', b'D', b'T', length @ ..] = number(xsdt)?.to_le_bytes() else {
        return None;
    };
    let bytes = (u32::from_le_bytes(length) as usize).checked_sub(HEADER)?;
    let first = xsdt.checked_add(HEADER as u64)?;
    let places = (0..(bytes / 8).min(MOST_TABLES)).map(|place| first.checked_add(place as u64 * 8));
    places.flatten().find_map(|place| {
        let table = number(place)?;
        let mut found = [0; 4];
        (read(table, &mut found) && found == signature).then_some(table)
    })
}

/// Adds a table; the firmware copies it.
///
/// # Errors
/// When the firmware does not add tables for others.
pub fn install(table: &[u8]) -> Result {
    let mut handle = [const { core::mem::MaybeUninit::<Handle>::uninit() }; 1];
    let by = SearchType::ByProtocol(&AcpiTable::GUID);
    let found = match boot::locate_handle(by, &mut handle) {
        Ok(handles) => handles.first().copied(),
        Err(error) => return Err(error.status().into()),
    };
    let handle = found.ok_or(Status::NOT_FOUND)?;
    let agent = boot::image_handle();
    let parameters = boot::OpenProtocolParams {
        handle,
        agent,
        controller: None,
    };
    // SAFETY: the protocol is a service of the firmware's that stays, and is only called here.
    let tables = unsafe {
        boot::open_protocol::<AcpiTable>(parameters, boot::OpenProtocolAttributes::GetProtocol)
    }?;
    // SAFETY: the firmware copies the table; its length is in it, too, or it is refused.
    unsafe { tables.install_acpi_table(table.as_ptr().cast(), table.len()) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const RSDP_AT: u64 = 0x1000;
    const XSDT_AT: u64 = 0x1100;

    /// Memory with an XSDT of these tables.
    fn memory(tables: &[u64]) -> Vec<u8> {
        let mut rsdp = b"RSD PTR ".to_vec();
        rsdp.resize(24, 0);
        rsdp.extend(XSDT_AT.to_le_bytes());
        rsdp.resize((XSDT_AT - RSDP_AT) as usize, 0);
        let mut all = rsdp;
        all.extend(b"XSDT");
        all.extend((36 + tables.len() as u32 * 8).to_le_bytes());
        all.resize(all.len() + 28, 0);
        all.extend(tables.iter().flat_map(|table| table.to_le_bytes()));
        all.resize(0x300, 0);
        all.extend(b"FACPxxxxFPDT");
        all
    }

    fn found(memory: &[u8], signature: &[u8; 4]) -> Option<u64> {
        find_in(RSDP_AT, *signature, |address, out| {
            let at = address.checked_sub(RSDP_AT).map(|at| at as usize);
            let bytes = at.and_then(|at| memory.get(at..at.checked_add(out.len())?));
            if let Some(bytes) = bytes {
                out.copy_from_slice(bytes);
            }
            bytes.is_some()
        })
    }

    #[test]
    fn tables_are_found_by_their_signatures() {
        let memory = memory(&[0x1300, 0x1308]);
        assert_eq!(found(&memory, b"FACP"), Some(0x1300));
        assert_eq!(found(&memory, b"FPDT"), Some(0x1308));
        assert_eq!(found(&memory, b"XSDT"), None);
    }

    #[test]
    fn a_table_is_as_long_as_it_says_and_no_longer_than_most() {
        let table = b"FBPT\x0c\0\0\0datamore";
        let read = |address, most| {
            read_by(address, most, |address, out| {
                let bytes = (address == 0x2000).then(|| table.get(..out.len()));
                let bytes = bytes.flatten();
                if let Some(bytes) = bytes {
                    out.copy_from_slice(bytes);
                }
                bytes.is_some()
            })
        };
        assert_eq!(
            read(0x2000, 12).as_deref(),
            Some(&b"FBPT\x0c\0\0\0data"[..])
        );
        assert_eq!(read(0x2000, 11), None);
        assert_eq!(read(0x3000, 12), None);
        let cut_off = read_by(0x2000, 100, |_, out| {
            out.copy_from_slice(table.get(..out.len()).unwrap_or(&[0; 12]));
            out.len() == 8
        });
        assert_eq!(cut_off, None);
    }

    #[test]
    fn tables_are_in_memory_alone() {
        let region = |ty, phys_start, page_count| MemoryDescriptor {
            ty,
            phys_start,
            page_count,
            ..MemoryDescriptor::default()
        };
        let reserved = region(MemoryType::RESERVED, 0x8000, 2);
        assert!(holds(&reserved, 0x8000, 0x2000) && holds(&reserved, 0x9ff8, 8));
        for (address, bytes) in [(0x7fff, 8), (0x9ff9, 8), (0x8000, 0x2001), (u64::MAX, 8)] {
            assert!(!holds(&reserved, address, bytes), "{address:#x}");
        }
        for other in [
            MemoryType::MMIO,
            MemoryType::MMIO_PORT_SPACE,
            MemoryType::UNUSABLE,
        ] {
            assert!(!holds(&region(other, 0x8000, 2), 0x8000, 8), "{other:?}");
        }
        let low = region(MemoryType::RESERVED, 0, 2);
        assert!(!holds(&low, 0, 8) && !holds(&low, 0xfff, 8) && holds(&low, 0x1000, 8));
        let endless = region(MemoryType::RESERVED, 0x8000, u64::MAX);
        assert!(holds(&endless, 0x8000, 8));
    }

    #[test]
    fn what_is_not_in_memory_is_not_followed() {
        let pointing = memory(&[0, u64::MAX, 0x9999_9999, 0x1308]);
        assert_eq!(found(&pointing, b"FPDT"), Some(0x1308));
        let mut damaged = memory(&[0x1308]);
        damaged[0x104..0x108].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(found(&damaged, b"WHAT"), None);
        damaged[0x104..0x108].copy_from_slice(&3_u32.to_le_bytes());
        assert_eq!(found(&damaged, b"FPDT"), None);
        let mut other = memory(&[0x1308]);
        other[0] = b'x';
        assert_eq!(found(&other, b"FPDT"), None);
        assert_eq!(found(&[], b"FPDT"), None);
    }
}
