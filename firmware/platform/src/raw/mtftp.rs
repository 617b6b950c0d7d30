//! `EFI_MTFTP4_PROTOCOL` and `EFI_MTFTP6_PROTOCOL` (UEFI 2.10, sections 30.3 and 30.4). They differ in their configuration and in the data of
//! functions that are not used here; the tables are alike.

use core::ffi::c_void;
use uefi_raw::{Boolean, Event, Guid, Status, guid};

/// `EFI_MTFTP4_SERVICE_BINDING_PROTOCOL_GUID`: makes children with the protocol.
pub const MTFTP4_SERVICE_BINDING: Guid = guid!("2fe800be-8f01-4aa6-946b-d71388e1833f");
/// `EFI_MTFTP4_PROTOCOL_GUID`.
pub const MTFTP4: Guid = guid!("78247c57-63db-4708-99c2-a8b4a9a61f6b");
/// `EFI_MTFTP6_SERVICE_BINDING_PROTOCOL_GUID`.
pub const MTFTP6_SERVICE_BINDING: Guid = guid!("d9760ff3-3cca-4267-80f9-7527fafa4223");
/// `EFI_MTFTP6_PROTOCOL_GUID`.
pub const MTFTP6: Guid = guid!("bf0a78ba-ec29-49cf-a1c9-7ae54eab6a51");

/// `EFI_MTFTP4_CONFIG_DATA`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // The members carry the specification's names and its documentation.
pub struct Mtftp4ConfigData {
    pub use_default_setting: Boolean,
    pub station_ip: [u8; 4],
    pub subnet_mask: [u8; 4],
    pub local_port: u16,
    pub gateway_ip: [u8; 4],
    pub server_ip: [u8; 4],
    pub initial_server_port: u16,
    pub try_count: u16,
    pub timeout_value: u16,
}

/// `EFI_MTFTP6_CONFIG_DATA`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct Mtftp6ConfigData {
    pub station_ip: [u8; 16],
    pub local_port: u16,
    pub server_ip: [u8; 16],
    pub initial_server_port: u16,
    pub try_count: u16,
    pub timeout_value: u16,
}

/// `EFI_MTFTP4_OPTION`, which the other version has, too.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct MtftpOption {
    pub option_str: *const u8,
    pub value_str: *const u8,
}

/// `EFI_MTFTP4_CHECK_PACKET`.
pub type MtftpCheckPacket = unsafe extern "efiapi" fn(
    this: *mut MtftpProtocol,
    token: *mut MtftpToken,
    packet_len: u16,
    packet: *mut c_void,
) -> Status;

/// `EFI_MTFTP4_TIMEOUT_CALLBACK`.
pub type MtftpTimeoutCallback =
    unsafe extern "efiapi" fn(this: *mut MtftpProtocol, token: *mut MtftpToken) -> Status;

/// `EFI_MTFTP4_TOKEN` and `EFI_MTFTP6_TOKEN`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct MtftpToken {
    pub status: Status,
    pub event: Event,
    pub override_data: *mut c_void,
    pub filename: *const u8,
    pub mode_str: *const u8,
    pub option_count: u32,
    pub option_list: *const MtftpOption,
    pub buffer_size: u64,
    pub buffer: *mut c_void,
    pub context: *mut c_void,
    pub check_packet: Option<MtftpCheckPacket>,
    pub timeout_callback: Option<MtftpTimeoutCallback>,
    /// `EFI_MTFTP4_PACKET_NEEDED`, for writing.
    pub packet_needed: *mut c_void,
}

/// `EFI_MTFTP4_PROTOCOL` and `EFI_MTFTP6_PROTOCOL`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // As above.
pub struct MtftpProtocol {
    pub get_mode_data: unsafe extern "efiapi" fn(this: *mut Self, mode_data: *mut c_void) -> Status,
    /// With a [`Mtftp4ConfigData`] or [`Mtftp6ConfigData`], or null.
    pub configure: unsafe extern "efiapi" fn(this: *mut Self, config_data: *const c_void) -> Status,
    pub get_info: *const c_void,
    pub parse_options: *const c_void,
    pub read_file: unsafe extern "efiapi" fn(this: *mut Self, token: *mut MtftpToken) -> Status,
    pub write_file: unsafe extern "efiapi" fn(this: *mut Self, token: *mut MtftpToken) -> Status,
    pub read_directory:
        unsafe extern "efiapi" fn(this: *mut Self, token: *mut MtftpToken) -> Status,
    pub poll: unsafe extern "efiapi" fn(this: *mut Self) -> Status,
}
