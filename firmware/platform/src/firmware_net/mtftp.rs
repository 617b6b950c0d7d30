//! The firmware's TFTP by `EFI_MTFTP4_PROTOCOL` and `EFI_MTFTP6_PROTOCOL` (UEFI 2.10, sections 30.3 and 30.4), with the options of RFC 2348 and
//! RFC 7440 as they are asked for.

use super::{handle_with, open};
use crate::claim::pci::Candidate;
use crate::raw::mtftp::{
    MTFTP4, MTFTP4_SERVICE_BINDING, MTFTP6, MTFTP6_SERVICE_BINDING, Mtftp4ConfigData,
    Mtftp6ConfigData, MtftpOption, MtftpProtocol, MtftpToken,
};
use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::format;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::ptr;
use uefi::boot::{self, EventType, OpenProtocolAttributes, ScopedProtocol, Tpl};
use uefi::proto::unsafe_protocol;
use uefi::{Handle, Status, StatusExt};
use uefi_raw::protocol::driver::ServiceBindingProtocol;

/// The protocols as the `uefi` crate opens them.
#[repr(transparent)]
#[unsafe_protocol(MTFTP4)]
struct Protocol4(MtftpProtocol);

#[repr(transparent)]
#[unsafe_protocol(MTFTP6)]
struct Protocol6(MtftpProtocol);

#[repr(transparent)]
#[unsafe_protocol(MTFTP4_SERVICE_BINDING)]
struct Binding4(ServiceBindingProtocol);

#[repr(transparent)]
#[unsafe_protocol(MTFTP6_SERVICE_BINDING)]
struct Binding6(ServiceBindingProtocol);

/// How often the firmware sends anything again, and after how many seconds: as EDK II does by itself. Its timer ticks once a second, whenever
/// the last packet was: with one second it would send again in the middle of a transfer.
const TRIES: u16 = 5;
const TIMEOUT: u16 = 3;
/// Bytes of an answer that are kept: an acknowledgement of options is shorter.
const ANSWER: usize = 512;

/// The machine's address, as the firmware has it.
#[derive(Clone, Copy, Debug)]
pub enum Station {
    /// Address and netmask, which need not be known to the firmware.
    V4(Ipv4Addr, Ipv4Addr),
    /// One of the firmware's own.
    V6,
}

/// A child of the firmware's TFTP service. It is destroyed on drop.
pub struct Mtftp {
    binding: Binding,
    child: Handle,
    station: Station,
}

/// The service binding protocol that makes children, of either version of IP.
enum Binding {
    V4(ScopedProtocol<Binding4>),
    V6(ScopedProtocol<Binding6>),
}

impl fmt::Debug for Mtftp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mtftp").field("child", &self.child).finish()
    }
}

/// A file, and the options that its server is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The TFTP server, an address of the version of [`Station`].
    pub server: IpAddr,
    /// The file, as the server knows it.
    pub file: &'a str,
    /// Value of the option `blksize` (RFC 2348), in bytes.
    pub block_bytes: u16,
    /// Value of the option `windowsize` (RFC 7440), in blocks.
    pub window: u16,
}

/// A transfer that ended, well or not.
#[derive(Debug)]
pub struct Transferred {
    /// Bytes of the file, or why it did not come: `TIMEOUT`, `TFTP_ERROR`, `BUFFER_TOO_SMALL`, `ABORTED` where it was not waited for.
    pub bytes: uefi::Result<u64>,
    /// The server's acknowledgement of options, or its last error: a TFTP packet. Empty where there was none.
    pub answer: Vec<u8>,
    /// How often the firmware waited in vain.
    pub timeouts: u32,
}

/// What a token's `Context` (UEFI 2.10, section 30.3) points to: what the callbacks note of a transfer.
struct TokenContext {
    answer: [u8; ANSWER],
    len: usize,
    timeouts: u32,
}

impl Binding {
    fn table(&mut self) -> uefi::Result<*mut ServiceBindingProtocol> {
        let table = match self {
            Self::V4(binding) => binding.get_mut().map(|binding| &raw mut binding.0),
            Self::V6(binding) => binding.get_mut().map(|binding| &raw mut binding.0),
        };
        table.ok_or_else(|| Status::UNSUPPORTED.into())
    }
}

impl Mtftp {
    /// Makes a child of the interface's service.
    ///
    /// # Errors
    /// What the firmware answers when it has no such service on the interface.
    pub fn open(interface: &Candidate, station: Station) -> uefi::Result<Self> {
        let how = OpenProtocolAttributes::GetProtocol;
        let handle = |guid| handle_with(interface, guid, |_| true);
        // SAFETY: nothing disconnects the firmware's network while this is in use.
        let mut binding = unsafe {
            match station {
                Station::V4(..) => Binding::V4(open(handle(&MTFTP4_SERVICE_BINDING)?, how)?),
                Station::V6 => Binding::V6(open(handle(&MTFTP6_SERVICE_BINDING)?, how)?),
            }
        };
        let table = binding.table()?;
        let mut child = ptr::null_mut();
        // SAFETY: the protocol is live; it writes the new handle to a local.
        unsafe { ((*table).create_child)(table, &raw mut child) }.to_result()?;
        // SAFETY: null or a handle.
        let child = unsafe { Handle::from_ptr(child) }.ok_or(Status::UNSUPPORTED)?;
        Ok(Self {
            binding,
            child,
            station,
        })
    }

    /// Reads a file into `memory`, and asks `goes_on` again and again whether it is still waited for.
    ///
    /// # Errors
    /// What the firmware answers before it asks the server: `INVALID_PARAMETER` for a name with a zero in it, a server of the other version of IP,
    /// or options that it does not know.
    pub fn read(
        &mut self,
        wanted: Wanted<'_>,
        memory: &mut [u8],
        goes_on: impl FnMut() -> bool,
    ) -> uefi::Result<Transferred> {
        let how = OpenProtocolAttributes::GetProtocol;
        // SAFETY: the child is ours, and lives longer than what is opened here.
        unsafe {
            match self.station {
                Station::V4(..) => {
                    let mut open: ScopedProtocol<Protocol4> = open(self.child, how)?;
                    let protocol = open.get_mut().ok_or(Status::UNSUPPORTED)?;
                    self.read_by(&raw mut protocol.0, wanted, memory, goes_on)
                }
                Station::V6 => {
                    let mut open: ScopedProtocol<Protocol6> = open(self.child, how)?;
                    let protocol = open.get_mut().ok_or(Status::UNSUPPORTED)?;
                    self.read_by(&raw mut protocol.0, wanted, memory, goes_on)
                }
            }
        }
    }

    /// Tells the protocol who we are and who the server is.
    ///
    /// # Safety
    /// `protocol` must be live, and that of the station's version.
    unsafe fn configure(&self, protocol: *mut MtftpProtocol, server: IpAddr) -> uefi::Result<()> {
        let status = match (self.station, server) {
            (Station::V4(address, mask), IpAddr::V4(server)) => {
                let data = Mtftp4ConfigData {
                    station_ip: address.octets(),
                    subnet_mask: mask.octets(),
                    server_ip: server.octets(),
                    initial_server_port: PORT,
                    try_count: TRIES,
                    timeout_value: TIMEOUT,
                    ..Mtftp4ConfigData::default()
                };
                // SAFETY: the protocol is live (the caller's word), and copies the configuration.
                unsafe { ((*protocol).configure)(protocol, (&raw const data).cast()) }
            }
            (Station::V6, IpAddr::V6(server)) => {
                let data = Mtftp6ConfigData {
                    server_ip: server.octets(),
                    initial_server_port: PORT,
                    try_count: TRIES,
                    timeout_value: TIMEOUT,
                    ..Mtftp6ConfigData::default()
                };
                // SAFETY: as above.
                unsafe { ((*protocol).configure)(protocol, (&raw const data).cast()) }
            }
            _ => Status::INVALID_PARAMETER,
        };
        status.to_result()
    }

    /// # Safety
    /// `protocol` must be live, and that of the station's version.
    unsafe fn read_by(
        &self,
        protocol: *mut MtftpProtocol,
        wanted: Wanted<'_>,
        memory: &mut [u8],
        mut goes_on: impl FnMut() -> bool,
    ) -> uefi::Result<Transferred> {
        let name = CString::new(wanted.file).map_err(|_| Status::INVALID_PARAMETER)?;
        let number = |number: u16| CString::new(format!("{number}")).unwrap_or_default();
        let values = [number(wanted.block_bytes), number(wanted.window)];
        let [block, window] = &values;
        let options =
            [(c"blksize", block), (c"windowsize", window)].map(|(name, value)| MtftpOption {
                option_str: name.as_ptr().cast(),
                value_str: value.as_ptr().cast(),
            });
        // SAFETY: the caller's word.
        unsafe { self.configure(protocol, wanted.server) }?;
        // SAFETY: an event without a notification function.
        let event =
            unsafe { boot::create_event(EventType::empty(), Tpl::APPLICATION, None, None) }?;
        let mut context = Box::new(TokenContext {
            answer: [0; ANSWER],
            len: 0,
            timeouts: 0,
        });
        let mut token = Box::new(MtftpToken {
            status: Status::NOT_READY,
            event: event.as_ptr(),
            override_data: ptr::null_mut(),
            filename: name.as_ptr().cast(),
            mode_str: ptr::null(),
            option_count: options.len() as u32,
            option_list: options.as_ptr(),
            buffer_size: memory.len() as u64,
            buffer: memory.as_mut_ptr().cast(),
            context: (&raw mut *context).cast(),
            check_packet: Some(check_packet),
            timeout_callback: Some(timeout),
            packet_needed: ptr::null_mut(),
        });
        let token: *mut MtftpToken = &raw mut *token;
        // SAFETY: the protocol is live (the caller's word). Token, name, options, memory and what the callbacks write to stay until the firmware has
        // let go of the token: it has ended, or the protocol is configured anew with nothing, which ends all its transfers (section 30.3).
        let status = unsafe {
            let begun = ((*protocol).read_file)(protocol, token);
            if begun == Status::SUCCESS {
                while (&raw const (*token).status).read_volatile() == Status::NOT_READY && goes_on()
                {
                    // That nothing has come is no failure.
                    let _ = ((*protocol).poll)(protocol);
                }
            }
            let _ = ((*protocol).configure)(protocol, ptr::null());
            match begun {
                Status::SUCCESS => match (&raw const (*token).status).read_volatile() {
                    Status::NOT_READY => Status::ABORTED,
                    ended => ended,
                },
                refused => refused,
            }
        };
        let _ = boot::close_event(event);
        // SAFETY: the token is a box of ours, which the firmware has let go of.
        let bytes = unsafe { (&raw const (*token).buffer_size).read() };
        Ok(Transferred {
            bytes: status.to_result_with_val(|| bytes),
            answer: context
                .answer
                .get(..context.len)
                .unwrap_or_default()
                .to_vec(),
            timeouts: context.timeouts,
        })
    }
}

/// TFTP's port, and opcodes of packets (RFC 1350, RFC 2347).
const PORT: u16 = 69;
const ERROR: u8 = 5;
const OACK: u8 = 6;

/// Keeps an acknowledgement of options, or an error.
///
/// # Safety
/// For the firmware to call while a transfer runs: `token` is one of [`Mtftp::read`], and `packet` has so many bytes.
unsafe extern "efiapi" fn check_packet(
    _: *mut MtftpProtocol,
    token: *mut MtftpToken,
    packet_len: u16,
    packet: *mut c_void,
) -> Status {
    if packet.is_null() {
        return Status::SUCCESS;
    }
    // SAFETY: the caller's word; nobody else has a reference to what the token's context points to while the firmware has the token.
    let (context, packet) = unsafe {
        (
            &mut *(*token).context.cast::<TokenContext>(),
            core::slice::from_raw_parts(packet.cast::<u8>(), usize::from(packet_len)),
        )
    };
    if matches!(packet, [0, ERROR | OACK, ..]) {
        context.len = packet.len().min(ANSWER);
        for (place, byte) in context.answer.iter_mut().zip(packet) {
            *place = *byte;
        }
    }
    Status::SUCCESS
}

/// Counts a time-out, and has the transfer go on.
///
/// # Safety
/// As for [`check_packet`].
unsafe extern "efiapi" fn timeout(_: *mut MtftpProtocol, token: *mut MtftpToken) -> Status {
    // SAFETY: as above.
    let context = unsafe { &mut *(*token).context.cast::<TokenContext>() };
    context.timeouts = context.timeouts.saturating_add(1);
    Status::SUCCESS
}

impl Drop for Mtftp {
    fn drop(&mut self) {
        if let Ok(table) = self.binding.table() {
            // SAFETY: the protocol is live and the child its own.
            let _ = unsafe { ((*table).destroy_child)(table, self.child.as_ptr()) };
        }
    }
}
