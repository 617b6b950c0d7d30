//! The tables of statuses of the specification (UEFI 2.10, sections 24.1 and 24.3): what each function answers to NULLs, in wrong states, to
//! small buffers. A line for each.

use crate::base_code::{BaseCode, Mtftp, next_server};
use crate::efi;
use crate::report::{Failure, tell};
use alloc::ffi::CString;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::{Handle, Status};
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeIpFilter, PxeBaseCodeIpFilterFlags, PxeBaseCodeTftpOpcode as Opcode,
    PxeBaseCodeUdpOpFlags as Flags,
};
use uefi_raw::protocol::network::snp::{NetworkState, ReceiveFlags, SimpleNetworkProtocol};
use uefi_raw::{Boolean, MacAddress};

#[derive(Default)]
struct Walk {
    passed: u32,
    failed: u32,
    /// Functions that are not there.
    absent: u32,
}

impl Walk {
    /// The answer must be one of those that the specification allows.
    fn expect(&mut self, what: &str, answer: Status, allowed: &[Status]) {
        if allowed.contains(&answer) {
            self.passed += 1;
            tell(format_args!("pass {what}"));
        } else if answer == Status::UNSUPPORTED {
            self.absent += 1;
            tell(format_args!("UNSUPPORTED {what}"));
        } else {
            self.failed += 1;
            tell(format_args!("fail {what}: {answer:?}, not {allowed:?}"));
        }
    }
}

/// Walks through all. True when nothing failed.
pub(crate) fn walk(device: Handle) -> bool {
    let mut walk = Walk::default();
    for part in [base_code, snp] {
        if let Err(failure) = part(&mut walk, device) {
            walk.failed += 1;
            tell(format_args!("fail statuses: {failure:?}"));
        }
    }
    let Walk {
        passed,
        failed,
        absent,
    } = walk;
    tell(format_args!(
        "statuses: {passed} passed, {absent} UNSUPPORTED, {failed} failed"
    ));
    failed == 0
}

/// EFI_PXE_BASE_CODE_PROTOCOL. It is started before and behind.
fn base_code(walk: &mut Walk, device: Handle) -> Result<(), Failure> {
    let base_code = BaseCode::of(device)?;
    let table = base_code.table();
    let this = base_code.0.as_ptr();
    let null = ptr::null_mut();
    let mode = base_code.mode();
    let refused = &[Status::INVALID_PARAMETER][..];
    // SAFETY: what the specification says about each argument, NULL included.
    unsafe {
        walk.expect("Start(NULL)", (table.start)(null, Boolean::FALSE), refused);
        walk.expect("Stop(NULL)", (table.stop)(null), refused);
        walk.expect(
            "Start twice",
            (table.start)(this, Boolean::FALSE),
            &[Status::ALREADY_STARTED],
        );
        walk.expect("Dhcp(NULL)", (table.dhcp)(null, Boolean::FALSE), refused);
        walk.expect(
            "SetIpFilter without a filter",
            (table.set_ip_filter)(this, ptr::null()),
            refused,
        );
        walk.expect(
            "Arp without an address",
            (table.arp)(this, ptr::null(), ptr::null_mut()),
            refused,
        );
        walk.expect(
            "UdpWrite without a destination",
            (table.udp_write)(
                this,
                Flags::empty(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
            ),
            refused,
        );
        walk.expect(
            "UdpRead without a buffer",
            (table.udp_read)(
                this,
                Flags::empty(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            ),
            refused,
        );
    }
    mtftp(walk, &base_code, next_server(&mode.dhcp_ack));
    let filter = PxeBaseCodeIpFilter::new(PxeBaseCodeIpFilterFlags::STATION_IP, &[]);
    let stopped = &[Status::NOT_STARTED][..];
    let nulls = ptr::null();
    // SAFETY: as above; the packets and addresses are put back as they were.
    unsafe {
        walk.expect("Stop", (table.stop)(this), &[Status::SUCCESS]);
        walk.expect("Stop twice", (table.stop)(this), stopped);
        walk.expect(
            "Dhcp when stopped",
            (table.dhcp)(this, Boolean::FALSE),
            stopped,
        );
        walk.expect(
            "SetIpFilter when stopped",
            (table.set_ip_filter)(this, &filter),
            stopped,
        );
        walk.expect(
            "SetParameters when stopped",
            (table.set_parameters)(this, nulls, nulls, ptr::null(), ptr::null(), nulls),
            stopped,
        );
        walk.expect(
            "SetStationIp when stopped",
            (table.set_station_ip)(this, &mode.station_ip, &mode.subnet_mask),
            stopped,
        );
        walk.expect(
            "Start",
            (table.start)(this, Boolean::FALSE),
            &[Status::SUCCESS],
        );
        let station = (table.set_station_ip)(this, &mode.station_ip, &mode.subnet_mask);
        walk.expect("SetStationIp", station, &[Status::SUCCESS]);
        let packets = (table.set_packets)(
            this,
            &mode.dhcp_discover_valid,
            &mode.dhcp_ack_received,
            &mode.proxy_offer_received,
            &mode.pxe_discover_valid,
            &mode.pxe_reply_received,
            &mode.pxe_bis_reply_received,
            &mode.dhcp_discover,
            &mode.dhcp_ack,
            &mode.proxy_offer,
            &mode.pxe_discover,
            &mode.pxe_reply,
            &mode.pxe_bis_reply,
        );
        walk.expect("SetPackets", packets, &[Status::SUCCESS]);
    }
    Ok(())
}

fn mtftp(walk: &mut Walk, base_code: &BaseCode, server: [u8; 4]) {
    let (mut size, mut byte) = (0, 0_u8);
    let absent: CString = c"no/such/file".into();
    let mut call = Mtftp {
        operation: Opcode::TFTP_READ_FILE,
        buffer: &mut byte,
        size: &mut size,
        block: None,
        server: Some(server),
        file: None,
        dont_use_buffer: false,
    };
    let refused = &[Status::INVALID_PARAMETER][..];
    walk.expect("Mtftp without a name", base_code.mtftp(&call), refused);
    call.file = Some(&absent);
    call.server = None;
    walk.expect("Mtftp without a server", base_code.mtftp(&call), refused);
    call.server = Some(server);
    call.size = ptr::null_mut();
    walk.expect("Mtftp without a size", base_code.mtftp(&call), refused);
    call.size = &mut size;
    call.block = Some(511);
    walk.expect("Mtftp of blocks of 511", base_code.mtftp(&call), refused);
    call.block = None;
    call.buffer = ptr::null_mut();
    walk.expect("Mtftp without a buffer", base_code.mtftp(&call), refused);
    call.buffer = &mut byte;
    call.operation = Opcode::TFTP_GET_FILE_SIZE;
    walk.expect(
        "Mtftp of no file",
        base_code.mtftp(&call),
        &[Status::TFTP_ERROR],
    );
    let mode = base_code.mode();
    let told = bool::from(mode.tftp_error_received) && mode.tftp_error.error_code == 1;
    let status = if told {
        Status::SUCCESS
    } else {
        Status::NOT_FOUND
    };
    walk.expect("TftpError tells error 1", status, &[Status::SUCCESS]);
}

/// EFI_SIMPLE_NETWORK_PROTOCOL, on the device's own handle. It is as before behind.
fn snp(walk: &mut Walk, device: Handle) -> Result<(), Failure> {
    let protocol: NonNull<SimpleNetworkProtocol> =
        efi::protocol(device, &SimpleNetworkProtocol::GUID, "SNP on the device")?;
    // SAFETY: the protocol stays while this program runs.
    let table = unsafe { protocol.as_ref() };
    let this = protocol.as_ptr().cast_const();
    // SAFETY: the producer's mode.
    let before = unsafe { (*table.mode).state };
    if before != NetworkState::STOPPED {
        tell(format_args!(
            "SNP is in use: its states are not walked through"
        ));
        return Ok(());
    }
    let nulls: *const SimpleNetworkProtocol = ptr::null();
    let refused = &[Status::INVALID_PARAMETER][..];
    let stopped = &[Status::NOT_STARTED][..];
    let early = &[Status::DEVICE_ERROR][..];
    let fine = &[Status::SUCCESS][..];
    let mut back: *mut c_void = ptr::null_mut();
    let mut room = [0_u8; 64];
    let mut len = room.len();
    let receive = |len: &mut usize, room: &mut [u8; 64]| {
        // SAFETY: room of at least so many bytes.
        unsafe {
            (table.receive)(
                this,
                ptr::null_mut(),
                len,
                room.as_mut_ptr().cast(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        }
    };
    let filters = |enable| {
        // SAFETY: no list.
        unsafe {
            (table.receive_filters)(
                this,
                enable,
                ReceiveFlags::empty(),
                Boolean::FALSE,
                0,
                ptr::null::<MacAddress>(),
            )
        }
    };
    // SAFETY: what the specification says about each argument, NULL included.
    unsafe {
        walk.expect("SNP Start(NULL)", (table.start)(nulls), refused);
        walk.expect("SNP Stop when stopped", (table.stop)(this), stopped);
        walk.expect(
            "SNP Initialize when stopped",
            (table.initialize)(this, 0, 0),
            stopped,
        );
        walk.expect("SNP Shutdown when stopped", (table.shutdown)(this), stopped);
        walk.expect(
            "SNP Reset when stopped",
            (table.reset)(this, Boolean::FALSE),
            stopped,
        );
        walk.expect(
            "SNP GetStatus when stopped",
            (table.get_status)(this, ptr::null_mut(), &mut back),
            stopped,
        );
        walk.expect(
            "SNP Receive when stopped",
            receive(&mut len, &mut room),
            stopped,
        );
        walk.expect("SNP Start", (table.start)(this), fine);
        walk.expect(
            "SNP Start twice",
            (table.start)(this),
            &[Status::ALREADY_STARTED],
        );
        walk.expect("SNP Receive too early", receive(&mut len, &mut room), early);
        walk.expect(
            "SNP ReceiveFilters too early",
            filters(ReceiveFlags::UNICAST),
            early,
        );
        walk.expect("SNP Initialize", (table.initialize)(this, 0, 0), fine);
        walk.expect(
            "SNP GetStatus without a place",
            (table.get_status)(this, ptr::null_mut(), ptr::null_mut()),
            refused,
        );
        walk.expect(
            "SNP ReceiveFilters",
            filters(ReceiveFlags::UNICAST | ReceiveFlags::BROADCAST),
            fine,
        );
        walk.expect(
            "SNP ReceiveFilters of unknown bits",
            filters(ReceiveFlags::from_bits_retain(0x100)),
            refused,
        );
        walk.expect(
            "SNP Transmit without a buffer",
            (table.transmit)(
                this,
                0,
                60,
                ptr::null(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
            ),
            refused,
        );
        walk.expect(
            "SNP Transmit of less than a header",
            (table.transmit)(
                this,
                0,
                13,
                room.as_ptr().cast(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
            ),
            &[Status::BUFFER_TOO_SMALL],
        );
        walk.expect("SNP Shutdown", (table.shutdown)(this), fine);
        walk.expect("SNP Stop", (table.stop)(this), fine);
    }
    Ok(())
}
