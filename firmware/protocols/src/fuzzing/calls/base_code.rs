//! Calls of EFI_PXE_BASE_CODE_PROTOCOL.

use super::super::input::{Arguments, Input};
use super::super::loader::Loader;
use super::super::network::LARGEST;
use super::super::statuses::{
    BC_ARP, BC_DHCP, BC_MTFTP, BC_SET, BC_START, BC_UDP_READ, BC_UDP_WRITE,
};
use core::ptr;
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeBootType, PxeBaseCodeIpFilter, PxeBaseCodePacket, PxeBaseCodeProtocol,
    PxeBaseCodeTftpOpcode, PxeBaseCodeUdpOpFlags,
};
use uefi_raw::{Boolean, Status};

/// Bytes of EFI_PXE_BASE_CODE_DISCOVER_INFO before its list, and of an entry of that.
const INFO: usize = 24;
const SERVER: usize = 20;

/// An address: a neighbour's, odd ones, or the input's.
fn address(input: &Input) -> [u8; 16] {
    let mut ip = [0; 16];
    let v4: [u8; 4] = match input.byte() % 8 {
        0 => [0; 4],
        1 => [255; 4],
        2 => [224, 0, 0, 1],
        3 => [10, 0, 0, 255],
        4 => return input.bytes(),
        _ => [10, 0, 0, 1],
    };
    ip.iter_mut().zip(v4).for_each(|(to, byte)| *to = byte);
    ip
}

#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "what holds for all of them is said once"
)]
pub(in super::super) fn call(loader: &Loader, input: &Input) {
    let arguments = Arguments::new(input);
    let a = &arguments;
    let own = loader.base_code;
    // SAFETY: the table is on its handle as long as the loader runs.
    let table = unsafe { &*own };
    let this: *mut PxeBaseCodeProtocol = match input.byte() {
        254 => ptr::null_mut(),
        // A copy is none of ours.
        255 => {
            let len = size_of::<PxeBaseCodeProtocol>();
            // SAFETY: the table's own bytes.
            a.word(unsafe { core::slice::from_raw_parts(own.cast(), len) })
        }
        _ => own,
    };
    let boolean = || Boolean(input.byte() % 4);
    // SAFETY, for all of the following: variables are null or the loader's, and buffers hold as much as the function may use.
    let _: Status = match input.byte() % 16 {
        0 => loader.call("Start", BC_START, || unsafe {
            (table.start)(this, boolean())
        }),
        1 => loader.call("Stop", BC_SET, || unsafe { (table.stop)(this) }),
        2 => loader.call("Dhcp", BC_DHCP, || unsafe { (table.dhcp)(this, boolean()) }),
        3 => loader.call("Discover", BC_DHCP, || unsafe {
            let count = u16::from(input.byte()) % 80;
            let mut info = vec![0; INFO + usize::from(count) * SERVER];
            info.iter_mut()
                .take(4)
                .for_each(|byte| *byte = input.byte() % 2);
            if let Some(place) = info.get_mut(20..22) {
                place.copy_from_slice(&count.to_ne_bytes());
            }
            let layer = [input.byte() % 3, 0];
            let kind = PxeBaseCodeBootType(u16::from(input.byte()));
            (table.discover)(this, kind, a.bytes(&layer), boolean(), a.bytes(&info))
        }),
        4..8 => loader.call("Mtftp", BC_MTFTP, || unsafe {
            let size = input.size();
            let block = if input.flag() { 1024 } else { input.size() };
            let operations = [1, 2, 2, 3, 4, input.byte() % 12];
            let choice = usize::from(input.byte());
            let operation = operations.get(choice % 8).copied().unwrap_or(2);
            let name: &[u8] = match input.byte() % 4 {
                0 => b"\0",
                1 => b"http://10.0.0.1/x\0",
                2 => b"\xff\xfe\0",
                _ => b"a/b.efi\0",
            };
            (table.mtftp)(
                this,
                PxeBaseCodeTftpOpcode(operation.into()),
                a.buffer(size.min(LARGEST)),
                boolean(),
                a.word(&(size as u64).to_ne_bytes()),
                a.word(&block.to_ne_bytes()),
                a.bytes(&address(input)),
                a.bytes(name),
                ptr::null(),
                boolean(),
            )
        }),
        8 => loader.call("UdpWrite", BC_UDP_WRITE, || unsafe {
            let (header, size) = (input.size(), input.size());
            (table.udp_write)(
                this,
                PxeBaseCodeUdpOpFlags::from_bits_retain(u16::from(input.byte())),
                a.bytes(&address(input)),
                a.bytes(&input.bytes::<2>()),
                a.bytes(&address(input)),
                a.bytes(&address(input)),
                a.bytes(&input.bytes::<2>()),
                a.word(&header.to_ne_bytes()),
                a.buffer(header),
                a.word(&size.to_ne_bytes()),
                a.buffer(size),
            )
        }),
        9 | 10 => loader.call("UdpRead", BC_UDP_READ, || unsafe {
            let (header, size) = (input.size(), input.size());
            (table.udp_read)(
                this,
                PxeBaseCodeUdpOpFlags::from_bits_retain(u16::from(input.byte())),
                a.bytes(&address(input)),
                a.bytes(&input.bytes::<2>()),
                a.bytes(&address(input)),
                a.bytes(&input.bytes::<2>()),
                a.word(&header.to_ne_bytes()),
                a.buffer(header),
                a.word(&size.to_ne_bytes()),
                a.buffer(size),
            )
        }),
        11 => loader.call("SetIpFilter", BC_SET, || unsafe {
            let mut filter = [0; size_of::<PxeBaseCodeIpFilter>()];
            filter
                .iter_mut()
                .take(2)
                .for_each(|byte| *byte = input.byte() % 32);
            (table.set_ip_filter)(this, a.bytes(&filter))
        }),
        12 => loader.call("Arp", BC_ARP, || unsafe {
            (table.arp)(this, a.bytes(&address(input)), a.bytes(&[0; 32]))
        }),
        13 => loader.call("SetParameters", BC_SET, || unsafe {
            let byte = || a.bytes::<u8>(&[input.byte() % 4]);
            let flag = || byte().cast::<Boolean>().cast_const();
            (table.set_parameters)(this, flag(), flag(), byte(), byte(), flag())
        }),
        14 => loader.call("SetStationIp", BC_SET, || unsafe {
            let mask = if input.flag() {
                address(input)
            } else {
                [255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            };
            (table.set_station_ip)(this, a.bytes(&address(input)), a.bytes(&mask))
        }),
        _ => loader.call("SetPackets", BC_SET, || unsafe {
            let flag = || a.bytes::<Boolean>(&[input.byte() % 4]).cast_const();
            let packet = || {
                // Its own packets are given back to it by some.
                if input.flag() {
                    return &raw const (*table.mode).dhcp_ack;
                }
                a.bytes::<PxeBaseCodePacket>(&[input.byte(); 1472])
                    .cast_const()
            };
            (table.set_packets)(
                this,
                flag(),
                flag(),
                flag(),
                flag(),
                flag(),
                flag(),
                packet(),
                packet(),
                packet(),
                packet(),
                packet(),
                packet(),
            )
        }),
    };
}
