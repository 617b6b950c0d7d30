//! What is looked at: the services that network drivers call. Those that do not return, or start another image, are left alone.

use crate::raw::pci_io::PciIoProtocol;
use core::mem::offset_of;
use uefi_raw::protocol::console::{SimpleTextInputProtocol, SimpleTextOutputProtocol};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use uefi_raw::table::boot::BootServices;
use uefi_raw::table::runtime::RuntimeServices;

/// Where a service's function pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// `EFI_BOOT_SERVICES`.
    Boot,
    /// `EFI_RUNTIME_SERVICES`.
    Runtime,
    /// The card's `EFI_PCI_IO_PROTOCOL`.
    PciIo,
    /// The interface's `EFI_SIMPLE_NETWORK_PROTOCOL`.
    Snp,
    /// The console's `EFI_SIMPLE_TEXT_INPUT_PROTOCOL`.
    ConIn,
    /// The console's `EFI_SIMPLE_TEXT_OUTPUT_PROTOCOL`.
    ConOut,
}

/// A service whose calls are looked at.
#[derive(Debug)]
pub(super) struct TracedService {
    /// Its name in the specification.
    pub(super) name: &'static str,
    pub(super) table: Table,
    /// Of its pointer in the table, in bytes.
    pub(super) offset: usize,
}

const fn service(name: &'static str, table: Table, offset: usize) -> TracedService {
    TracedService {
        name,
        table,
        offset,
    }
}

/// How many there are.
pub(super) const COUNT: usize = ALL.len();

/// All of them. A service's place here is its number.
pub(super) const ALL: &[TracedService] = &[
    service("RaiseTPL", Table::Boot, offset_of!(BootServices, raise_tpl)),
    service(
        "RestoreTPL",
        Table::Boot,
        offset_of!(BootServices, restore_tpl),
    ),
    service(
        "AllocatePages",
        Table::Boot,
        offset_of!(BootServices, allocate_pages),
    ),
    service(
        "FreePages",
        Table::Boot,
        offset_of!(BootServices, free_pages),
    ),
    service(
        "GetMemoryMap",
        Table::Boot,
        offset_of!(BootServices, get_memory_map),
    ),
    service(
        "AllocatePool",
        Table::Boot,
        offset_of!(BootServices, allocate_pool),
    ),
    service("FreePool", Table::Boot, offset_of!(BootServices, free_pool)),
    service(
        "CreateEvent",
        Table::Boot,
        offset_of!(BootServices, create_event),
    ),
    service("SetTimer", Table::Boot, offset_of!(BootServices, set_timer)),
    service(
        "WaitForEvent",
        Table::Boot,
        offset_of!(BootServices, wait_for_event),
    ),
    service(
        "SignalEvent",
        Table::Boot,
        offset_of!(BootServices, signal_event),
    ),
    service(
        "CloseEvent",
        Table::Boot,
        offset_of!(BootServices, close_event),
    ),
    service(
        "CheckEvent",
        Table::Boot,
        offset_of!(BootServices, check_event),
    ),
    service(
        "InstallProtocolInterface",
        Table::Boot,
        offset_of!(BootServices, install_protocol_interface),
    ),
    service(
        "ReinstallProtocolInterface",
        Table::Boot,
        offset_of!(BootServices, reinstall_protocol_interface),
    ),
    service(
        "UninstallProtocolInterface",
        Table::Boot,
        offset_of!(BootServices, uninstall_protocol_interface),
    ),
    service(
        "HandleProtocol",
        Table::Boot,
        offset_of!(BootServices, handle_protocol),
    ),
    service(
        "LocateHandle",
        Table::Boot,
        offset_of!(BootServices, locate_handle),
    ),
    service(
        "LocateDevicePath",
        Table::Boot,
        offset_of!(BootServices, locate_device_path),
    ),
    service(
        "GetNextMonotonicCount",
        Table::Boot,
        offset_of!(BootServices, get_next_monotonic_count),
    ),
    service("Stall", Table::Boot, offset_of!(BootServices, stall)),
    service(
        "SetWatchdogTimer",
        Table::Boot,
        offset_of!(BootServices, set_watchdog_timer),
    ),
    service(
        "ConnectController",
        Table::Boot,
        offset_of!(BootServices, connect_controller),
    ),
    service(
        "DisconnectController",
        Table::Boot,
        offset_of!(BootServices, disconnect_controller),
    ),
    service(
        "OpenProtocol",
        Table::Boot,
        offset_of!(BootServices, open_protocol),
    ),
    service(
        "CloseProtocol",
        Table::Boot,
        offset_of!(BootServices, close_protocol),
    ),
    service(
        "OpenProtocolInformation",
        Table::Boot,
        offset_of!(BootServices, open_protocol_information),
    ),
    service(
        "ProtocolsPerHandle",
        Table::Boot,
        offset_of!(BootServices, protocols_per_handle),
    ),
    service(
        "LocateHandleBuffer",
        Table::Boot,
        offset_of!(BootServices, locate_handle_buffer),
    ),
    service(
        "LocateProtocol",
        Table::Boot,
        offset_of!(BootServices, locate_protocol),
    ),
    service(
        "InstallMultipleProtocolInterfaces",
        Table::Boot,
        offset_of!(BootServices, install_multiple_protocol_interfaces),
    ),
    service(
        "UninstallMultipleProtocolInterfaces",
        Table::Boot,
        offset_of!(BootServices, uninstall_multiple_protocol_interfaces),
    ),
    service(
        "CalculateCrc32",
        Table::Boot,
        offset_of!(BootServices, calculate_crc32),
    ),
    service("CopyMem", Table::Boot, offset_of!(BootServices, copy_mem)),
    service("SetMem", Table::Boot, offset_of!(BootServices, set_mem)),
    service(
        "CreateEventEx",
        Table::Boot,
        offset_of!(BootServices, create_event_ex),
    ),
    service(
        "GetTime",
        Table::Runtime,
        offset_of!(RuntimeServices, get_time),
    ),
    service(
        "GetVariable",
        Table::Runtime,
        offset_of!(RuntimeServices, get_variable),
    ),
    service(
        "GetNextVariableName",
        Table::Runtime,
        offset_of!(RuntimeServices, get_next_variable_name),
    ),
    service(
        "SetVariable",
        Table::Runtime,
        offset_of!(RuntimeServices, set_variable),
    ),
    service(
        "QueryVariableInfo",
        Table::Runtime,
        offset_of!(RuntimeServices, query_variable_info),
    ),
    service(
        "GetNextHighMonotonicCount",
        Table::Runtime,
        offset_of!(RuntimeServices, get_next_high_monotonic_count),
    ),
    service(
        "PciIo.PollMem",
        Table::PciIo,
        offset_of!(PciIoProtocol, poll_mem),
    ),
    service(
        "PciIo.PollIo",
        Table::PciIo,
        offset_of!(PciIoProtocol, poll_io),
    ),
    service(
        "PciIo.Mem.Read",
        Table::PciIo,
        offset_of!(PciIoProtocol, mem.read),
    ),
    service(
        "PciIo.Mem.Write",
        Table::PciIo,
        offset_of!(PciIoProtocol, mem.write),
    ),
    service(
        "PciIo.Io.Read",
        Table::PciIo,
        offset_of!(PciIoProtocol, io.read),
    ),
    service(
        "PciIo.Io.Write",
        Table::PciIo,
        offset_of!(PciIoProtocol, io.write),
    ),
    service(
        "PciIo.Pci.Read",
        Table::PciIo,
        offset_of!(PciIoProtocol, pci.read),
    ),
    service(
        "PciIo.Pci.Write",
        Table::PciIo,
        offset_of!(PciIoProtocol, pci.write),
    ),
    service(
        "PciIo.CopyMem",
        Table::PciIo,
        offset_of!(PciIoProtocol, copy_mem),
    ),
    service("PciIo.Map", Table::PciIo, offset_of!(PciIoProtocol, map)),
    service(
        "PciIo.Unmap",
        Table::PciIo,
        offset_of!(PciIoProtocol, unmap),
    ),
    service(
        "PciIo.AllocateBuffer",
        Table::PciIo,
        offset_of!(PciIoProtocol, allocate_buffer),
    ),
    service(
        "PciIo.FreeBuffer",
        Table::PciIo,
        offset_of!(PciIoProtocol, free_buffer),
    ),
    service(
        "PciIo.Flush",
        Table::PciIo,
        offset_of!(PciIoProtocol, flush),
    ),
    service(
        "SNP.Start",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, start),
    ),
    service(
        "SNP.Stop",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, stop),
    ),
    service(
        "SNP.Initialize",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, initialize),
    ),
    service(
        "SNP.Reset",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, reset),
    ),
    service(
        "SNP.Shutdown",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, shutdown),
    ),
    service(
        "SNP.ReceiveFilters",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, receive_filters),
    ),
    service(
        "SNP.StationAddress",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, station_address),
    ),
    service(
        "SNP.Statistics",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, statistics),
    ),
    service(
        "SNP.MCastIpToMac",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, multicast_ip_to_mac),
    ),
    service(
        "SNP.NvData",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, non_volatile_data),
    ),
    service(
        "SNP.GetStatus",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, get_status),
    ),
    service(
        "SNP.Transmit",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, transmit),
    ),
    service(
        "SNP.Receive",
        Table::Snp,
        offset_of!(SimpleNetworkProtocol, receive),
    ),
    service(
        "ConIn.Reset",
        Table::ConIn,
        offset_of!(SimpleTextInputProtocol, reset),
    ),
    service(
        "ConIn.ReadKeyStroke",
        Table::ConIn,
        offset_of!(SimpleTextInputProtocol, read_key_stroke),
    ),
    service(
        "ConOut.OutputString",
        Table::ConOut,
        offset_of!(SimpleTextOutputProtocol, output_string),
    ),
    service(
        "ConOut.SetAttribute",
        Table::ConOut,
        offset_of!(SimpleTextOutputProtocol, set_attribute),
    ),
    service(
        "ConOut.SetCursorPosition",
        Table::ConOut,
        offset_of!(SimpleTextOutputProtocol, set_cursor_position),
    ),
    service(
        "ConOut.EnableCursor",
        Table::ConOut,
        offset_of!(SimpleTextOutputProtocol, enable_cursor),
    ),
];

/// The name of the service that brings frames.
pub const RECEIVE: &str = "SNP.Receive";
/// The name of the service that sends frames.
pub const TRANSMIT: &str = "SNP.Transmit";

/// Whether a call takes less time than to look how long it takes: it sets a number, and what it makes wait comes with `RestoreTPL`.
pub(super) const fn is_brief(table: Table, offset: usize) -> bool {
    matches!(table, Table::Boot) && offset == offset_of!(BootServices, raise_tpl)
}

/// Whether a call's result is looked at where calls are only counted: those that succeed are the packets.
pub(super) const fn is_frame(table: Table, offset: usize) -> bool {
    matches!(table, Table::Snp)
        && (offset == offset_of!(SimpleNetworkProtocol, receive)
            || offset == offset_of!(SimpleNetworkProtocol, transmit))
}
