//! `EFI_PXE_BASE_CODE_CALLBACK_PROTOCOL` (UEFI 2.10, section 24.4).

use uefi_raw::protocol::network::pxe::PxeBaseCodePacket;
use uefi_raw::{Boolean, Guid, guid, newtype_enum};

newtype_enum! {
    /// `EFI_PXE_BASE_CODE_FUNCTION`: whose packet it is.
    pub enum PxeBaseCodeFunction: u32 => {
        /// Before the first one.
        FIRST = 0,
        /// A packet of `EFI_PXE_BASE_CODE_PROTOCOL.Dhcp()`.
        DHCP = 1,
        /// A packet of `EFI_PXE_BASE_CODE_PROTOCOL.Discover()`.
        DISCOVER = 2,
        /// A packet of `EFI_PXE_BASE_CODE_PROTOCOL.Mtftp()`.
        MTFTP = 3,
        /// A packet of `EFI_PXE_BASE_CODE_PROTOCOL.UdpWrite()`.
        UDP_WRITE = 4,
        /// A packet of `EFI_PXE_BASE_CODE_PROTOCOL.UdpRead()`.
        UDP_READ = 5,
        /// A packet of `EFI_PXE_BASE_CODE_PROTOCOL.Arp()`.
        ARP = 6,
        /// Of a multicast group.
        IGMP = 7,
        /// Behind the last one.
        LAST = 8,
    }
}

newtype_enum! {
    /// `EFI_PXE_BASE_CODE_CALLBACK_STATUS`: whether the function goes on.
    pub enum PxeBaseCodeCallbackStatus: u32 => {
        /// Before the first one.
        FIRST = 0,
        /// The function goes on.
        CONTINUE = 1,
        /// The function ends with `EFI_ABORTED`.
        ABORT = 2,
        /// Behind the last one.
        LAST = 3,
    }
}

/// `EFI_PXE_BASE_CODE_CALLBACK_PROTOCOL`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // The members carry the specification's names and its documentation.
pub struct PxeBaseCodeCallbackProtocol {
    pub revision: u64,
    pub callback: unsafe extern "efiapi" fn(
        this: *mut Self,
        function: PxeBaseCodeFunction,
        received: Boolean,
        packet_len: u32,
        packet: *const PxeBaseCodePacket,
    ) -> PxeBaseCodeCallbackStatus,
}

impl PxeBaseCodeCallbackProtocol {
    /// `EFI_PXE_BASE_CODE_CALLBACK_PROTOCOL_GUID`.
    pub const GUID: Guid = guid!("245dca21-fb7b-11d3-8f01-00a0c969723b");
}
