//! EFI_PXE_BASE_CODE_PROTOCOL: its table and mode.

use crate::caller::Buffer;
use crate::failure::Failure;
use crate::shared::{Call, Shared, Station};
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::net::IpAddr;
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeBootType, PxeBaseCodeDiscoverInfo, PxeBaseCodeIpFilter, PxeBaseCodeMode,
    PxeBaseCodeMtftpInfo, PxeBaseCodePacket, PxeBaseCodeProtocol, PxeBaseCodeTftpOpcode,
    PxeBaseCodeUdpOpFlags,
};
use uefi_raw::{Boolean, Char8, IpAddress, MacAddress, Status};
use wireboot_fetch::url::Url;
use wireboot_protocols::packet::Packet;

/// EFI_PXE_BASE_CODE_PROTOCOL_REVISION.
const REVISION: u64 = 0x0001_0000;
/// The smallest block that TFTP has (RFC 2348 allows fewer; the protocol does not).
const SMALLEST_BLOCK: usize = 512;
/// Longest name of a file that is looked for an end in.
const LONGEST_NAME: usize = 4096;

/// The packets of the DHCP exchange, each as it came, or `None`.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    /// Ours.
    pub discover: Option<Packet>,
    /// The server's acknowledgement; over IPv6 its Reply.
    pub ack: Option<Packet>,
    /// A proxy's offer.
    pub proxy_offer: Option<Packet>,
    /// What was sent to a boot server.
    pub pxe_discover: Option<Packet>,
    /// Its answer.
    pub pxe_reply: Option<Packet>,
}

impl Packets {
    /// Does `work` on each that there is.
    pub fn each(&mut self, work: impl Fn(&mut Packet)) {
        let all = [
            &mut self.discover,
            &mut self.ack,
            &mut self.proxy_offer,
            &mut self.pxe_discover,
            &mut self.pxe_reply,
        ];
        all.into_iter().flatten().for_each(work);
    }
}

/// The protocol and what it points to.
#[repr(C)]
pub(crate) struct BaseCodeTable {
    /// First, so that `this` is also the table's address.
    protocol: PxeBaseCodeProtocol,
    mode: UnsafeCell<PxeBaseCodeMode>,
    shared: &'static Shared,
}

fn ip_address(address: IpAddr) -> IpAddress {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(v4) => {
            if let Some(first) = bytes.first_chunk_mut() {
                *first = v4.octets();
            }
        }
        IpAddr::V6(v6) => bytes = v6.octets(),
    }
    bytes.into()
}

fn mask(station: &Station) -> IpAddress {
    let len = u32::from(station.prefix_len);
    match station.address {
        IpAddr::V4(_) => {
            let bits = u32::MAX
                .checked_shl(32_u32.saturating_sub(len))
                .unwrap_or(0);
            ip_address(IpAddr::V4(bits.into()))
        }
        IpAddr::V6(_) => {
            let bits = u128::MAX
                .checked_shl(128_u32.saturating_sub(len))
                .unwrap_or(0);
            ip_address(IpAddr::V6(bits.into()))
        }
    }
}

impl BaseCodeTable {
    pub(crate) fn new(shared: &'static Shared, station: &Station, packets: &Packets) -> Box<Self> {
        // SAFETY: integers, bytes, and booleans that are bytes: all of them may be zero.
        let mut mode: PxeBaseCodeMode = unsafe { MaybeUninit::zeroed().assume_init() };
        mode.started = Boolean::TRUE;
        mode.ipv6_available = Boolean::TRUE;
        mode.ipv6_supported = Boolean::TRUE;
        mode.using_ipv6 = station.address.is_ipv6().into();
        mode.auto_arp = Boolean::TRUE;
        mode.ttl = 64;
        mode.station_ip = ip_address(station.address);
        mode.subnet_mask = mask(station);
        mode.ip_filter.filters =
            uefi_raw::protocol::network::pxe::PxeBaseCodeIpFilterFlags::STATION_IP;
        let show = |packet: &Option<Packet>, place: &mut PxeBaseCodePacket, flag: &mut Boolean| {
            if let Some(raw) = packet {
                *place = PxeBaseCodePacket { raw: *raw };
            }
            *flag = packet.is_some().into();
        };
        let m = &mut mode;
        show(
            &packets.discover,
            &mut m.dhcp_discover,
            &mut m.dhcp_discover_valid,
        );
        show(&packets.ack, &mut m.dhcp_ack, &mut m.dhcp_ack_received);
        show(
            &packets.proxy_offer,
            &mut m.proxy_offer,
            &mut m.proxy_offer_received,
        );
        show(
            &packets.pxe_discover,
            &mut m.pxe_discover,
            &mut m.pxe_discover_valid,
        );
        show(
            &packets.pxe_reply,
            &mut m.pxe_reply,
            &mut m.pxe_reply_received,
        );
        let mut table = Box::new(Self {
            protocol: PxeBaseCodeProtocol {
                revision: REVISION,
                start,
                stop,
                dhcp,
                discover,
                mtftp,
                udp_write,
                udp_read,
                set_ip_filter,
                arp,
                set_parameters,
                set_station_ip,
                set_packets,
                mode: core::ptr::null(),
            },
            mode: UnsafeCell::new(mode),
            shared,
        });
        table.protocol.mode = table.mode.get();
        table
    }

    pub(crate) fn protocol(&self) -> *const c_void {
        (&raw const self.protocol).cast()
    }
}

/// Does `work` with the network and the mode of a base code that is started.
fn with(
    this: *mut PxeBaseCodeProtocol,
    work: impl FnOnce(&mut Call<'_>, &mut PxeBaseCodeMode) -> Status,
) -> Status {
    if this.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: `this` is the first field of a table that lives while the protocol is installed.
    let table = unsafe { &*this.cast::<BaseCodeTable>() };
    let Some(mut call) = table.shared.call() else {
        return Status::NOT_READY;
    };
    // SAFETY: calls are one at a time, and callers read the mode between them.
    let mode = unsafe { &mut *table.mode.get() };
    work(&mut call, mode)
}

fn started(mode: &PxeBaseCodeMode) -> Result<(), Status> {
    if bool::from(mode.started) {
        Ok(())
    } else {
        Err(Status::NOT_STARTED)
    }
}

unsafe extern "efiapi" fn start(this: *mut PxeBaseCodeProtocol, ipv6: Boolean) -> Status {
    with(this, |_, mode| {
        if bool::from(mode.started) {
            return Status::ALREADY_STARTED;
        }
        mode.started = Boolean::TRUE;
        mode.using_ipv6 = ipv6;
        Status::SUCCESS
    })
}

unsafe extern "efiapi" fn stop(this: *mut PxeBaseCodeProtocol) -> Status {
    with(this, |_, mode| {
        if let Err(status) = started(mode) {
            return status;
        }
        mode.started = Boolean::FALSE;
        Status::SUCCESS
    })
}

unsafe extern "efiapi" fn dhcp(_: *mut PxeBaseCodeProtocol, _sort: Boolean) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn discover(
    _: *mut PxeBaseCodeProtocol,
    _type: PxeBaseCodeBootType,
    _layer: *mut u16,
    _bis: Boolean,
    _info: *const PxeBaseCodeDiscoverInfo,
) -> Status {
    Status::UNSUPPORTED
}

/// The caller's name of a file, which ends with a zero.
///
/// # Safety
/// `name` leads to bytes of the caller's up to a zero.
unsafe fn file_name<'a>(name: *const Char8) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    let name: *const u8 = name.cast();
    for len in 0..LONGEST_NAME {
        // SAFETY: the caller's word, as no zero has come yet.
        if unsafe { *name.add(len) } == 0 {
            // SAFETY: as above, the zero included.
            let bytes = unsafe { core::slice::from_raw_parts(name, len + 1) };
            return CStr::from_bytes_with_nul(bytes).ok()?.to_str().ok();
        }
    }
    None
}

fn url(server: IpAddr, file: &str) -> Option<Url> {
    if file.contains("://") {
        return Url::parse(file).ok();
    }
    Url::from_boot_file(server, file).ok()
}

unsafe extern "efiapi" fn mtftp(
    this: *mut PxeBaseCodeProtocol,
    operation: PxeBaseCodeTftpOpcode,
    buffer: *mut c_void,
    _overwrite: Boolean,
    size: *mut u64,
    block_size: *const usize,
    server: *const IpAddress,
    file: *const Char8,
    _info: *const PxeBaseCodeMtftpInfo,
    dont_use_buffer: Boolean,
) -> Status {
    use PxeBaseCodeTftpOpcode as Opcode;
    // SAFETY: null or the caller's variables, aligned or not; the name ends with a zero.
    let (block_size, server, file) = unsafe {
        (
            (!block_size.is_null()).then(|| block_size.read_unaligned()),
            (!server.is_null()).then(|| server.cast::<[u8; 16]>().read_unaligned()),
            file_name(file),
        )
    };
    let (Some(server), Some(file)) = (server, file) else {
        return Status::INVALID_PARAMETER;
    };
    let reads = matches!(
        operation,
        Opcode::TFTP_READ_FILE | Opcode::TFTP_READ_DIRECTORY
    );
    if size.is_null()
        || block_size.is_some_and(|size| size < SMALLEST_BLOCK)
        || reads && buffer.is_null() && !bool::from(dont_use_buffer)
    {
        return Status::INVALID_PARAMETER;
    }
    with(this, |call, mode| {
        if let Err(status) = started(mode) {
            return status;
        }
        let server = match (bool::from(mode.using_ipv6), server.first_chunk::<4>()) {
            (false, Some(v4)) => IpAddr::from(*v4),
            _ => IpAddr::from(server),
        };
        if server.is_unspecified() || server.is_multicast() {
            return Status::INVALID_PARAMETER;
        }
        let Some(url) = url(server, file) else {
            return Status::INVALID_PARAMETER;
        };
        mode.tftp_error_received = Boolean::FALSE;
        mode.icmp_error_received = Boolean::FALSE;
        let network = &mut call.state.network;
        let result = match operation {
            Opcode::TFTP_GET_FILE_SIZE => network.size(&url),
            Opcode::TFTP_READ_FILE => {
                // SAFETY: the caller's buffer of as many bytes as its size says, for the length of the call.
                let buffer = unsafe { Buffer::new(buffer, size.read_unaligned()) };
                let Some(buffer) = buffer else {
                    return Status::INVALID_PARAMETER;
                };
                network.read(&url, buffer)
            }
            _ => return Status::UNSUPPORTED,
        };
        let (status, len) = match result {
            Ok(len) => (Status::SUCCESS, len),
            Err(Failure::TooSmall(len)) => (Status::BUFFER_TOO_SMALL, len),
            Err(Failure::Tftp { code, text }) => {
                mode.tftp_error_received = Boolean::TRUE;
                mode.tftp_error.error_code = code;
                let places = mode.tftp_error.error_string.iter_mut();
                for (place, byte) in places.zip(text.bytes().take(126).chain([0])) {
                    *place = byte;
                }
                (Status::TFTP_ERROR, 0)
            }
            Err(Failure::Timeout) => (Status::TIMEOUT, 0),
            Err(Failure::OutOfResources) => (Status::OUT_OF_RESOURCES, 0),
            Err(Failure::Device) => (Status::DEVICE_ERROR, 0),
        };
        // SAFETY: the caller's variable.
        unsafe { size.write_unaligned(len) };
        status
    })
}

unsafe extern "efiapi" fn udp_write(
    _: *mut PxeBaseCodeProtocol,
    _flags: PxeBaseCodeUdpOpFlags,
    _destination: *const IpAddress,
    _port: *const u16,
    _gateway: *const IpAddress,
    _source: *const IpAddress,
    _source_port: *mut u16,
    _header_size: *const usize,
    _header: *const c_void,
    _size: *const usize,
    _buffer: *const c_void,
) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn udp_read(
    _: *mut PxeBaseCodeProtocol,
    _flags: PxeBaseCodeUdpOpFlags,
    _destination: *mut IpAddress,
    _port: *mut u16,
    _source: *mut IpAddress,
    _source_port: *mut u16,
    _header_size: *const usize,
    _header: *mut c_void,
    _size: *mut usize,
    _buffer: *mut c_void,
) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn set_ip_filter(
    this: *mut PxeBaseCodeProtocol,
    filter: *const PxeBaseCodeIpFilter,
) -> Status {
    // SAFETY: null or the caller's filter.
    let Some(filter) = (unsafe { filter.as_ref() }) else {
        return Status::INVALID_PARAMETER;
    };
    with(this, |_, mode| {
        if let Err(status) = started(mode) {
            return status;
        }
        if usize::from(filter.ip_cnt) > filter.ip_list.len() {
            return Status::INVALID_PARAMETER;
        }
        mode.ip_filter = *filter;
        Status::SUCCESS
    })
}

unsafe extern "efiapi" fn arp(
    _: *mut PxeBaseCodeProtocol,
    _ip: *const IpAddress,
    _mac: *mut MacAddress,
) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn set_parameters(
    this: *mut PxeBaseCodeProtocol,
    auto_arp: *const Boolean,
    send_guid: *const Boolean,
    ttl: *const u8,
    tos: *const u8,
    make_callback: *const Boolean,
) -> Status {
    with(this, |_, mode| {
        if let Err(status) = started(mode) {
            return status;
        }
        // SAFETY: null or the caller's variables.
        unsafe {
            if let Some(value) = auto_arp.as_ref() {
                mode.auto_arp = *value;
            }
            if let Some(value) = send_guid.as_ref() {
                mode.send_guid = *value;
            }
            if let Some(value) = ttl.as_ref() {
                mode.ttl = *value;
            }
            if let Some(value) = tos.as_ref() {
                mode.tos = *value;
            }
            if let Some(value) = make_callback.as_ref() {
                mode.make_callbacks = *value;
            }
        }
        Status::SUCCESS
    })
}

unsafe extern "efiapi" fn set_station_ip(
    this: *mut PxeBaseCodeProtocol,
    station: *const IpAddress,
    mask: *const IpAddress,
) -> Status {
    with(this, |_, mode| {
        if let Err(status) = started(mode) {
            return status;
        }
        // SAFETY: null or the caller's addresses.
        unsafe {
            if let Some(station) = station.as_ref() {
                mode.station_ip = *station;
            }
            if let Some(mask) = mask.as_ref() {
                mode.subnet_mask = *mask;
            }
        }
        Status::SUCCESS
    })
}

unsafe extern "efiapi" fn set_packets(
    this: *mut PxeBaseCodeProtocol,
    discover_valid: *const Boolean,
    ack_received: *const Boolean,
    proxy_offer_received: *const Boolean,
    pxe_discover_valid: *const Boolean,
    pxe_reply_received: *const Boolean,
    bis_reply_received: *const Boolean,
    discover: *const PxeBaseCodePacket,
    ack: *const PxeBaseCodePacket,
    proxy_offer: *const PxeBaseCodePacket,
    pxe_discover: *const PxeBaseCodePacket,
    pxe_reply: *const PxeBaseCodePacket,
    bis_reply: *const PxeBaseCodePacket,
) -> Status {
    with(this, |_, mode| {
        if let Err(status) = started(mode) {
            return status;
        }
        // SAFETY: null or the caller's flags and packets.
        unsafe {
            for (flag, place) in [
                (discover_valid, &mut mode.dhcp_discover_valid),
                (ack_received, &mut mode.dhcp_ack_received),
                (proxy_offer_received, &mut mode.proxy_offer_received),
                (pxe_discover_valid, &mut mode.pxe_discover_valid),
                (pxe_reply_received, &mut mode.pxe_reply_received),
                (bis_reply_received, &mut mode.pxe_bis_reply_received),
            ] {
                if let Some(flag) = flag.as_ref() {
                    *place = *flag;
                }
            }
            for (packet, place) in [
                (discover, &mut mode.dhcp_discover),
                (ack, &mut mode.dhcp_ack),
                (proxy_offer, &mut mode.proxy_offer),
                (pxe_discover, &mut mode.pxe_discover),
                (pxe_reply, &mut mode.pxe_reply),
                (bis_reply, &mut mode.pxe_bis_reply),
            ] {
                if !packet.is_null() {
                    *place = packet.read_unaligned();
                }
            }
        }
        Status::SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn station(address: &str, prefix_len: u8) -> Station {
        Station {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            address: address.parse().unwrap(),
            prefix_len,
            mac_path: Box::new([]),
            ip_path: Box::new([]),
        }
    }

    fn octets(address: IpAddress) -> [u8; 16] {
        // SAFETY: a union of plain bytes.
        unsafe { core::mem::transmute(address) }
    }

    #[test]
    fn masks_have_as_many_ones_as_the_prefix() {
        let v4 = |len| octets(mask(&station("10.0.0.1", len)))[..4].to_vec();
        assert_eq!(v4(24), [255, 255, 255, 0]);
        assert_eq!(v4(0), [0, 0, 0, 0]);
        assert_eq!(v4(32), [255; 4]);
        assert_eq!(v4(9), [255, 128, 0, 0]);
        let v6 = octets(mask(&station("fd00::1", 64)));
        assert_eq!(v6, [[0xff; 8], [0; 8]].concat()[..]);
    }

    #[test]
    fn names_are_files_of_the_server_or_urls() {
        let server = "10.0.0.1".parse().unwrap();
        let text = |file| url(server, file).map(|url| url.as_str().to_string());
        assert_eq!(text("a/b.efi").as_deref(), Some("tftp://10.0.0.1/a/b.efi"));
        assert_eq!(text("http://c/d").as_deref(), Some("http://c/d"));
        assert_eq!(text("https://c/d"), None);
    }

    #[test]
    fn a_name_ends_with_a_zero_and_is_text() {
        // SAFETY: each ends with a zero.
        let name = |bytes: &'static [u8]| unsafe { file_name(bytes.as_ptr().cast()) };
        assert_eq!(name(b"grubx64.efi\0rest"), Some("grubx64.efi"));
        assert_eq!(name(b"\0"), Some(""));
        assert_eq!(name(b"\xff\0"), None);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { file_name(core::ptr::null()) }, None);
        let endless = alloc::vec![b'a'; LONGEST_NAME + 1];
        // SAFETY: longer than what is looked at.
        assert_eq!(unsafe { file_name(endless.as_ptr().cast()) }, None);
    }
}
