//! `EFI_MANAGED_NETWORK_PROTOCOL` (UEFI 2.10, section 25.1).

use core::ffi::c_void;
use uefi_raw::time::Time;
use uefi_raw::{Boolean, Event, Guid, MacAddress, Status, guid};

/// `EFI_MANAGED_NETWORK_SERVICE_BINDING_PROTOCOL_GUID`: makes children with the protocol.
pub const MANAGED_NETWORK_SERVICE_BINDING: Guid = guid!("f36ff770-a7e1-42cf-9ed2-56f0f271f44c");

/// `EFI_MANAGED_NETWORK_CONFIG_DATA`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // The members carry the specification's names and its documentation.
pub struct ManagedNetworkConfigData {
    pub received_queue_timeout_value: u32,
    pub transmit_queue_timeout_value: u32,
    pub protocol_type_filter: u16,
    pub enable_unicast_receive: Boolean,
    pub enable_multicast_receive: Boolean,
    pub enable_broadcast_receive: Boolean,
    pub enable_promiscuous_receive: Boolean,
    pub flush_queues_on_reset: Boolean,
    pub enable_receive_timestamps: Boolean,
    pub disable_background_polling: Boolean,
}

/// `EFI_MANAGED_NETWORK_RECEIVE_DATA`: a received packet, the receiver's until it signals `recycle_event`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct ManagedNetworkReceiveData {
    pub timestamp: Time,
    pub recycle_event: Event,
    pub packet_length: u32,
    pub header_length: u32,
    pub address_length: u32,
    pub data_length: u32,
    pub broadcast_flag: Boolean,
    pub multicast_flag: Boolean,
    pub promiscuous_flag: Boolean,
    pub protocol_type: u16,
    pub destination_address: *mut c_void,
    pub source_address: *mut c_void,
    pub media_header: *mut c_void,
    pub packet_data: *mut c_void,
}

/// `EFI_MANAGED_NETWORK_FRAGMENT_DATA`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct ManagedNetworkFragmentData {
    pub fragment_length: u32,
    pub fragment_buffer: *mut c_void,
}

/// `EFI_MANAGED_NETWORK_TRANSMIT_DATA` of one fragment.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct ManagedNetworkTransmitData {
    pub destination_address: *mut MacAddress,
    pub source_address: *mut MacAddress,
    pub protocol_type: u16,
    pub data_length: u32,
    pub header_length: u16,
    pub fragment_count: u16,
    pub fragment_table: [ManagedNetworkFragmentData; 1],
}

/// `EFI_MANAGED_NETWORK_COMPLETION_TOKEN`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct ManagedNetworkCompletionToken {
    pub event: Event,
    pub status: Status,
    /// A [`ManagedNetworkReceiveData`] or [`ManagedNetworkTransmitData`].
    pub packet: *mut c_void,
}

/// `EFI_MANAGED_NETWORK_PROTOCOL`: raw packets shared by several receivers.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct ManagedNetworkProtocol {
    pub get_mode_data: unsafe extern "efiapi" fn(
        this: *mut Self,
        mnp_config_data: *mut ManagedNetworkConfigData,
        snp_mode_data: *mut c_void,
    ) -> Status,
    pub configure: unsafe extern "efiapi" fn(
        this: *mut Self,
        mnp_config_data: *const ManagedNetworkConfigData,
    ) -> Status,
    pub mcast_ip_to_mac: unsafe extern "efiapi" fn(
        this: *mut Self,
        ipv6_flag: Boolean,
        ip_address: *const c_void,
        mac_address: *mut MacAddress,
    ) -> Status,
    pub groups: unsafe extern "efiapi" fn(
        this: *mut Self,
        join_flag: Boolean,
        mac_address: *const MacAddress,
    ) -> Status,
    pub transmit: unsafe extern "efiapi" fn(
        this: *mut Self,
        token: *mut ManagedNetworkCompletionToken,
    ) -> Status,
    pub receive: unsafe extern "efiapi" fn(
        this: *mut Self,
        token: *mut ManagedNetworkCompletionToken,
    ) -> Status,
    pub cancel: unsafe extern "efiapi" fn(
        this: *mut Self,
        token: *mut ManagedNetworkCompletionToken,
    ) -> Status,
    pub poll: unsafe extern "efiapi" fn(this: *mut Self) -> Status,
}

impl ManagedNetworkProtocol {
    /// `EFI_MANAGED_NETWORK_PROTOCOL_GUID`.
    pub const GUID: Guid = guid!("7ab33a91-ace5-4326-b572-e7ee33d39f16");
}
