//! Calls of EFI_SIMPLE_NETWORK_PROTOCOL.

use super::super::firmware;
use super::super::input::{Arguments, Input};
use super::super::loader::Loader;
use super::super::statuses::{SNP, SNP_FRAMES, SNP_INITIALIZE, SNP_START, SNP_STATISTICS};
use core::ptr;
use uefi_raw::protocol::network::snp::{NetworkStatistics, ReceiveFlags, SimpleNetworkProtocol};
use uefi_raw::{Boolean, Status};

/// The longest frame, with what it may be longer.
const FRAME: usize = 2048;

#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "what holds for all of them is said once"
)]
pub(in super::super) fn call(loader: &Loader, input: &Input) {
    let arguments = Arguments::new(input);
    let a = &arguments;
    let snp = loader.snp;
    // SAFETY: the table is on its handle as long as the loader runs.
    let table = unsafe { &*snp };
    let this: *const SimpleNetworkProtocol = match input.byte() {
        254 => ptr::null(),
        // A copy is none of ours.
        255 => {
            let len = size_of::<SimpleNetworkProtocol>();
            // SAFETY: the table's own bytes.
            a.word(unsafe { core::slice::from_raw_parts(snp.cast(), len) })
        }
        _ => snp,
    };
    let boolean = || Boolean(input.byte() % 4);
    // Most calls find it initialized.
    if !input.byte().is_multiple_of(4) {
        let _ = loader.call("Start", SNP_START, || {
            // SAFETY: the table's own address.
            unsafe { (table.start)(snp) }
        });
        let _ = loader.call("Initialize", SNP_INITIALIZE, || {
            // SAFETY: as above.
            unsafe { (table.initialize)(snp, 0, 0) }
        });
    }
    // SAFETY, for all of the following: variables are null or the loader's, and buffers hold as much as the function may use.
    let _: Status = match input.byte() % 16 {
        0 => loader.call("Start", SNP_START, || unsafe { (table.start)(this) }),
        1 => loader.call("Stop", SNP, || unsafe { (table.stop)(this) }),
        2 => loader.call("Initialize", SNP_INITIALIZE, || unsafe {
            (table.initialize)(this, input.size(), input.size())
        }),
        3 => loader.call("Reset", SNP, || unsafe { (table.reset)(this, boolean()) }),
        4 => loader.call("Shutdown", SNP, || unsafe { (table.shutdown)(this) }),
        5 => loader.call("ReceiveFilters", SNP, || unsafe {
            let flags = |byte| ReceiveFlags::from_bits_retain(u32::from(byte));
            let count = input.size() / 16;
            let list = a.bytes(&[1 | input.byte(); 32 * 17]);
            let (enable, disable) = (flags(input.byte() % 40), flags(input.byte() % 40));
            (table.receive_filters)(this, enable, disable, boolean(), count, list)
        }),
        6 => loader.call("StationAddress", SNP, || unsafe {
            let mut new = [0; 32];
            new[0] = input.byte() % 3;
            new[5] = 1;
            (table.station_address)(this, boolean(), a.bytes(&new))
        }),
        7 => loader.call("Statistics", SNP_STATISTICS, || unsafe {
            let size = input.size();
            let room = a.buffer::<NetworkStatistics>(size.min(size_of::<NetworkStatistics>()));
            (table.statistics)(this, boolean(), a.word(&size.to_ne_bytes()), room)
        }),
        8 => loader.call("MCastIPtoMAC", SNP, || unsafe {
            let mut ip = [input.byte(); 16];
            ip[0] = if input.flag() { 0xff } else { 224 };
            (table.multicast_ip_to_mac)(this, boolean(), a.bytes(&ip), a.bytes(&[0; 32]))
        }),
        9 => loader.call("NvData", SNP, || unsafe {
            let (offset, size) = (input.size(), input.size());
            (table.non_volatile_data)(this, boolean(), offset, size, a.buffer(size))
        }),
        10 => loader.call("GetStatus", SNP, || unsafe {
            (table.get_status)(this, a.word(&[0; 4]), a.word(&[0; 8]))
        }),
        11 => {
            let event = table.wait_for_packet;
            firmware::check_event(event)
        }
        12 | 13 => loader.call("Transmit", SNP_FRAMES, || unsafe {
            let header = match input.byte() % 8 {
                0 => input.size(),
                1..4 => 14,
                _ => 0,
            };
            let size = input.size();
            (table.transmit)(
                this,
                header,
                size,
                a.buffer(size.min(FRAME)),
                a.bytes(&[2; 32]),
                a.bytes(&[3; 32]),
                a.bytes(&[8, 0]),
            )
        }),
        _ => loader.call("Receive", SNP_FRAMES, || unsafe {
            let size = input.size();
            (table.receive)(
                this,
                a.word(&[0; 8]),
                a.word(&size.to_ne_bytes()),
                a.buffer(size.min(FRAME)),
                a.bytes(&[0; 32]),
                a.bytes(&[0; 32]),
                a.bytes(&[0; 2]),
            )
        }),
    };
}
