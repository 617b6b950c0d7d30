//! EFI_PXE_BASE_CODE_PROTOCOL (section 24.3).

use super::{INVALID, SUCCESS, Walk};
use crate::base_code::{BaseCode, Mtftp, next_server, raw};
use crate::report::Failure;
use alloc::ffi::CString;
use core::net::IpAddr;
use core::ptr;
use uefi::{Handle, Status};
use uefi_raw::Boolean;
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeIpFilter, PxeBaseCodeIpFilterFlags, PxeBaseCodeMode,
    PxeBaseCodeTftpOpcode as Opcode, PxeBaseCodeUdpOpFlags as Flags,
};
use wireboot_platform::Clock;

/// It is started before and behind, by the same version of IP.
pub(super) fn walk(walk: &mut Walk, device: Handle, _: Clock) -> Result<(), Failure> {
    let base_code = BaseCode::of(device)?;
    let table = base_code.table();
    let this = base_code.0.as_ptr();
    let null = ptr::null_mut();
    let mode = base_code.mode();
    let v6 = mode.using_ipv6;
    let server = server(&mode).ok_or(Failure::Wrong("no server is named"))?;
    // SAFETY: what the specification says about each argument, NULL included.
    unsafe {
        walk.expect("Start(NULL)", (table.start)(null, v6), INVALID);
        walk.expect("Stop(NULL)", (table.stop)(null), INVALID);
        walk.expect(
            "Start twice",
            (table.start)(this, v6),
            &[Status::ALREADY_STARTED],
        );
        walk.expect("Dhcp(NULL)", (table.dhcp)(null, Boolean::FALSE), INVALID);
        walk.expect(
            "SetIpFilter without a filter",
            (table.set_ip_filter)(this, ptr::null()),
            INVALID,
        );
        walk.expect(
            "Arp without an address",
            (table.arp)(this, ptr::null(), ptr::null_mut()),
            INVALID,
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
            INVALID,
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
            INVALID,
        );
    }
    mtftp(walk, &base_code, server);
    let filter = PxeBaseCodeIpFilter::new(PxeBaseCodeIpFilterFlags::STATION_IP, &[]);
    let stopped = &[Status::NOT_STARTED][..];
    let nulls = ptr::null();
    // SAFETY: as above; the packets and addresses are put back as they were.
    unsafe {
        walk.expect("Stop", (table.stop)(this), SUCCESS);
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
        walk.expect("Start", (table.start)(this, v6), SUCCESS);
        let station = (table.set_station_ip)(this, &mode.station_ip, &mode.subnet_mask);
        walk.expect("SetStationIp", station, SUCCESS);
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
        walk.expect("SetPackets", packets, SUCCESS);
    }
    Ok(())
}

fn mtftp(walk: &mut Walk, base_code: &BaseCode, server: IpAddr) {
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
    walk.expect("Mtftp without a name", base_code.mtftp(&call), INVALID);
    call.file = Some(&absent);
    call.server = None;
    walk.expect("Mtftp without a server", base_code.mtftp(&call), INVALID);
    call.server = Some(server);
    call.size = ptr::null_mut();
    walk.expect("Mtftp without a size", base_code.mtftp(&call), INVALID);
    call.size = &mut size;
    call.block = Some(511);
    walk.expect("Mtftp of blocks of 511", base_code.mtftp(&call), INVALID);
    call.block = None;
    call.buffer = ptr::null_mut();
    walk.expect("Mtftp without a buffer", base_code.mtftp(&call), INVALID);
    call.buffer = &mut byte;
    call.operation = Opcode::TFTP_GET_FILE_SIZE;
    walk.expect(
        "Mtftp of no file",
        base_code.mtftp(&call),
        &[Status::TFTP_ERROR],
    );
    let mode = base_code.mode();
    let told = bool::from(mode.tftp_error_received) && mode.tftp_error.error_code == 1;
    walk.holds("TftpError tells error 1", told);
}

/// The boot server: siaddr, over IPv6 the host of option 59 (RFC 5970).
fn server(mode: &PxeBaseCodeMode) -> Option<IpAddr> {
    if !bool::from(mode.using_ipv6) {
        return Some(next_server(&mode.dhcp_ack).into());
    }
    let (_, mut rest) = raw(&mode.dhcp_ack).split_at_checked(4)?;
    loop {
        let ([c0, c1, l0, l1], behind) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let (value, behind) = behind.split_at_checked(len)?;
        if [*c0, *c1] == [0, 59] {
            let url = core::str::from_utf8(value).ok()?;
            return url.split(['[', ']']).nth(1)?.parse().ok();
        }
        rest = behind;
    }
}
