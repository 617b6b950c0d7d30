//! `EFI_NETWORK_INTERFACE_IDENTIFIER_PROTOCOL` (UEFI 2.10, section 24.2) and the UNDI that it leads to, version 3.1 (appendix E).
//!
//! Of the commands and their blocks, those that a software UNDI needs for plain frames.

use uefi_raw::{Boolean, Guid, guid, newtype_enum};

/// `EFI_NETWORK_INTERFACE_IDENTIFIER_PROTOCOL`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // The members carry the specification's names and its documentation.
pub struct NetworkInterfaceIdentifierProtocol {
    pub revision: u64,
    /// Address of the `!PXE` structure.
    pub id: u64,
    pub image_addr: u64,
    pub image_size: u32,
    pub string_id: [u8; 4],
    pub interface_type: NetworkInterfaceType,
    pub major_ver: u8,
    pub minor_ver: u8,
    pub ipv6_supported: Boolean,
    pub if_num: u16,
}

impl NetworkInterfaceIdentifierProtocol {
    /// `EFI_NETWORK_INTERFACE_IDENTIFIER_PROTOCOL_GUID_31`.
    pub const GUID: Guid = guid!("1aced566-76ed-4218-bc81-767f1f977a89");
}

newtype_enum! {
    /// `EFI_NETWORK_INTERFACE_TYPE`.
    pub enum NetworkInterfaceType: u8 => {
        /// `EfiNetworkInterfaceUndi`.
        UNDI = 1,
    }
}

/// The first four bytes of the `!PXE` structure (UEFI 2.10, appendix E).
pub const PXE_ROMID_SIGNATURE: [u8; 4] = *b"!PXE";
/// Revision of the `!PXE` structure in UNDI 3.1 (UEFI 2.10, appendix E).
pub const PXE_ROMID_REV: u8 = 2;

/// `PXE_ROMID_IMP_HW_UNDI`: the device itself executes the commands.
pub const PXE_ROMID_IMP_HW_UNDI: u32 = 0x8000_0000;
/// `PXE_ROMID_IMP_SW_VIRT_ADDR`: the entry point is an address, else an offset from the structure.
pub const PXE_ROMID_IMP_SW_VIRT_ADDR: u32 = 0x4000_0000;
/// Bit of the field `Implementation`: the UNDI can receive frames to all groups of stations.
pub const PXE_ROMID_IMP_PROMISCUOUS_MULTICAST_RX_SUPPORTED: u32 = 0x0000_0080;
/// Bit of the field `Implementation`: the UNDI can receive all frames.
pub const PXE_ROMID_IMP_PROMISCUOUS_RX_SUPPORTED: u32 = 0x0000_0040;
/// Bit of the field `Implementation`: the UNDI can receive broadcasts.
pub const PXE_ROMID_IMP_BROADCAST_RX_SUPPORTED: u32 = 0x0000_0020;

/// A software UNDI's entry point, with the address of a [`PxeCdb`].
pub type PxeEntryPoint = unsafe extern "efiapi" fn(cdb: u64);

newtype_enum! {
    /// `PXE_OPCODE`.
    pub enum PxeOpcode: u16 => #[allow(missing_docs)] {
        GET_STATE = 0x00,
        START = 0x01,
        STOP = 0x02,
        GET_INIT_INFO = 0x03,
        INITIALIZE = 0x05,
        SHUTDOWN = 0x07,
        RECEIVE_FILTERS = 0x09,
        STATION_ADDRESS = 0x0a,
        GET_STATUS = 0x0e,
        TRANSMIT = 0x10,
        RECEIVE = 0x11,
    }
}

newtype_enum! {
    /// `PXE_STATCODE`.
    pub enum PxeStatcode: u16 => #[allow(missing_docs)] {
        SUCCESS = 0x00,
        INVALID_CDB = 0x01,
        INVALID_CPB = 0x02,
        BUSY = 0x03,
        QUEUE_FULL = 0x04,
        ALREADY_STARTED = 0x05,
        NOT_STARTED = 0x06,
        NOT_SHUTDOWN = 0x07,
        ALREADY_INITIALIZED = 0x08,
        NOT_INITIALIZED = 0x09,
        DEVICE_FAILURE = 0x0a,
        NVDATA_FAILURE = 0x0b,
        UNSUPPORTED = 0x0c,
        BUFFER_FULL = 0x0d,
        INVALID_PARAMETER = 0x0e,
        INVALID_UNDI = 0x0f,
        IPV4_NOT_SUPPORTED = 0x10,
        IPV6_NOT_SUPPORTED = 0x11,
        NOT_ENOUGH_MEMORY = 0x12,
        NO_DATA = 0x13,
    }
}

/// `PXE_OPFLAGS_INITIALIZE_DO_NOT_DETECT_CABLE`.
pub const OPFLAGS_INITIALIZE_DO_NOT_DETECT_CABLE: u16 = 0x0001;
/// `PXE_OPFLAGS_RECEIVE_FILTER_ENABLE`.
pub const OPFLAGS_RECEIVE_FILTER_ENABLE: u16 = 0x8000;
/// `PXE_OPFLAGS_RECEIVE_FILTER_UNICAST`.
pub const OPFLAGS_RECEIVE_FILTER_UNICAST: u16 = 0x0001;
/// `PXE_OPFLAGS_RECEIVE_FILTER_BROADCAST`.
pub const OPFLAGS_RECEIVE_FILTER_BROADCAST: u16 = 0x0002;
/// `PXE_OPFLAGS_RECEIVE_FILTER_PROMISCUOUS`.
pub const OPFLAGS_RECEIVE_FILTER_PROMISCUOUS: u16 = 0x0008;
/// `PXE_OPFLAGS_RECEIVE_FILTER_ALL_MULTICAST`.
pub const OPFLAGS_RECEIVE_FILTER_ALL_MULTICAST: u16 = 0x0010;
/// `PXE_OPFLAGS_GET_TRANSMITTED_BUFFERS`.
pub const OPFLAGS_GET_TRANSMITTED_BUFFERS: u16 = 0x0002;
/// `PXE_OPFLAGS_GET_MEDIA_STATUS`.
pub const OPFLAGS_GET_MEDIA_STATUS: u16 = 0x0004;

/// `PXE_STATFLAGS_STATUS_MASK`.
pub const STATFLAGS_STATUS_MASK: u16 = 0xc000;
/// `PXE_STATFLAGS_COMMAND_COMPLETE`.
pub const STATFLAGS_COMMAND_COMPLETE: u16 = 0xc000;
/// `PXE_STATFLAGS_GET_STATE_MASK`.
pub const STATFLAGS_GET_STATE_MASK: u16 = 0x0003;
/// `PXE_STATFLAGS_GET_STATE_INITIALIZED`.
pub const STATFLAGS_GET_STATE_INITIALIZED: u16 = 0x0002;
/// `PXE_STATFLAGS_GET_STATE_STARTED`.
pub const STATFLAGS_GET_STATE_STARTED: u16 = 0x0001;
/// `PXE_STATFLAGS_GET_STATUS_NO_MEDIA_SUPPORTED`, of the command Get Init Info.
pub const STATFLAGS_GET_STATUS_NO_MEDIA_SUPPORTED: u16 = 0x0002;
/// `PXE_STATFLAGS_GET_STATUS_TXBUF_QUEUE_EMPTY`.
pub const STATFLAGS_GET_STATUS_TXBUF_QUEUE_EMPTY: u16 = 0x0010;
/// `PXE_STATFLAGS_GET_STATUS_NO_TXBUFS_WRITTEN`.
pub const STATFLAGS_GET_STATUS_NO_TXBUFS_WRITTEN: u16 = 0x0020;
/// `PXE_STATFLAGS_GET_STATUS_NO_MEDIA`.
pub const STATFLAGS_GET_STATUS_NO_MEDIA: u16 = 0x0040;

/// A command descriptor block (`PXE_CDB`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct PxeCdb {
    pub op_code: PxeOpcode,
    pub op_flags: u16,
    pub cpb_size: u16,
    pub db_size: u16,
    pub cpb_addr: u64,
    pub db_addr: u64,
    pub stat_code: PxeStatcode,
    pub stat_flags: u16,
    pub if_num: u16,
    pub control: u16,
}

/// `PXE_CPB_START_31`. Its functions get `unique_id` first.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct PxeCpbStart {
    pub delay: unsafe extern "efiapi" fn(unique_id: u64, microseconds: u64),
    pub block: unsafe extern "efiapi" fn(unique_id: u64, enable: u32),
    /// Zero where physical addresses are the virtual ones.
    pub virt2phys: u64,
    pub mem_io: unsafe extern "efiapi" fn(
        unique_id: u64,
        operation: PxeIo,
        bytes: u8,
        port: u64,
        buffer: u64,
    ),
    pub map_mem: unsafe extern "efiapi" fn(
        unique_id: u64,
        address: u64,
        bytes: u32,
        direction: PxeDirection,
        mapped: *mut u64,
    ),
    pub unmap_mem: unsafe extern "efiapi" fn(
        unique_id: u64,
        address: u64,
        bytes: u32,
        direction: PxeDirection,
        mapped: u64,
    ),
    pub sync_mem: unsafe extern "efiapi" fn(
        unique_id: u64,
        address: u64,
        bytes: u32,
        direction: PxeDirection,
        mapped: u64,
    ),
    pub unique_id: u64,
}

newtype_enum! {
    /// What `mem_io` shall do.
    pub enum PxeIo: u8 => #[allow(missing_docs)] {
        IO_READ = 0,
        IO_WRITE = 1,
        MEM_READ = 2,
        MEM_WRITE = 4,
    }
}

newtype_enum! {
    /// Who writes mapped memory.
    pub enum PxeDirection: u32 => #[allow(missing_docs)] {
        TO_AND_FROM_DEVICE = 0,
        FROM_DEVICE = 1,
        TO_DEVICE = 2,
    }
}

/// `PXE_DB_GET_INIT_INFO`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed)]
#[allow(missing_docs)] // As above.
pub struct PxeDbGetInitInfo {
    pub memory_required: u32,
    pub frame_data_len: u32,
    pub link_speeds: [u32; 4],
    pub nv_count: u32,
    pub nv_width: u16,
    pub media_header_len: u16,
    pub hw_addr_len: u16,
    pub mcast_filter_cnt: u16,
    pub tx_buf_cnt: u16,
    pub tx_buf_size: u16,
    pub rx_buf_cnt: u16,
    pub rx_buf_size: u16,
    pub if_type: u8,
    pub supported_duplex_modes: u8,
    pub supported_loop_back_modes: u8,
}

/// `PXE_CPB_INITIALIZE`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed)]
#[allow(missing_docs)] // As above.
pub struct PxeCpbInitialize {
    pub memory_addr: u64,
    pub memory_length: u32,
    pub link_speed: u32,
    pub tx_buf_cnt: u16,
    pub tx_buf_size: u16,
    pub rx_buf_cnt: u16,
    pub rx_buf_size: u16,
    pub duplex_mode: u8,
    pub loop_back_mode: u8,
}

/// `PXE_DB_INITIALIZE`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct PxeDbInitialize {
    pub memory_used: u32,
    pub tx_buf_cnt: u16,
    pub tx_buf_size: u16,
    pub rx_buf_cnt: u16,
    pub rx_buf_size: u16,
}

/// `PXE_DB_STATION_ADDRESS`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct PxeDbStationAddress {
    pub station_addr: [u8; 32],
    pub broadcast_addr: [u8; 32],
    pub permanent_addr: [u8; 32],
}

/// `PXE_DB_GET_STATUS`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct PxeDbGetStatus {
    pub rx_frame_len: u32,
    pub reserved: u32,
    pub tx_buffer: [u64; 32],
}

/// `PXE_CPB_TRANSMIT`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct PxeCpbTransmit {
    pub frame_addr: u64,
    pub data_len: u32,
    pub mediaheader_len: u16,
    pub reserved: u16,
}

/// `PXE_CPB_RECEIVE`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct PxeCpbReceive {
    pub buffer_addr: u64,
    pub buffer_len: u32,
    pub reserved: u32,
}

/// `PXE_DB_RECEIVE`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct PxeDbReceive {
    pub src_addr: [u8; 32],
    pub dest_addr: [u8; 32],
    pub frame_len: u32,
    pub protocol: u16,
    pub media_header_len: u16,
    pub frame_type: u8,
    pub reserved: [u8; 7],
}
