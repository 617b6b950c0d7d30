//! A client of Windows Deployment Services: cached packets, then a TFTP of its own by UdpWrite and UdpRead.

use crate::base_code::{self, BaseCode, address, next_server};
use crate::datagrams::Datagrams;
use crate::efi;
use crate::report::{Failure, succeeded};
use crate::tftp::{self, Wanted};
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use uefi::{Handle, Status};
use uefi_raw::Boolean;
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeIpFilter, PxeBaseCodeIpFilterFlags, PxeBaseCodeUdpOpFlags as Flags,
};
use uefi_raw::protocol::network::snp::{ReceiveFlags, SimpleNetworkProtocol};
use wireboot_platform::Clock;

/// Its own option, which no other server knows.
const SPECIAL: (&str, &str) = ("msftwindow", "31416");
/// UdpRead answers TIMEOUT by itself, at the latest after so many microseconds.
const PATIENCE: u64 = 1_000_000;

struct Udp {
    base_code: BaseCode,
    server: [u8; 4],
    port: u16,
    room: Vec<u8>,
    clock: Clock,
}

impl Datagrams for Udp {
    fn send(&mut self, port: u16, data: &[u8]) -> Result<(), Failure> {
        let (to, len) = (address(self.server), data.len());
        // SAFETY: variables of ours.
        let status = unsafe {
            (self.base_code.table().udp_write)(
                self.base_code.0.as_ptr(),
                Flags::empty(),
                &to,
                &port,
                ptr::null(),
                ptr::null(),
                &mut self.port,
                ptr::null(),
                ptr::null(),
                &len,
                data.as_ptr().cast(),
            )
        };
        succeeded("UdpWrite", status)
    }

    fn receive(&mut self) -> Result<Option<(u16, Vec<u8>)>, Failure> {
        let end = self.clock.micros() + PATIENCE;
        loop {
            let (mut from, mut port, mut len) = (address(self.server), 0, self.room.len());
            // SAFETY: variables of ours, and room of so many bytes.
            let status = unsafe {
                (self.base_code.table().udp_read)(
                    self.base_code.0.as_ptr(),
                    Flags::ANY_SRC_PORT,
                    ptr::null_mut(),
                    &mut self.port,
                    &mut from,
                    &mut port,
                    ptr::null(),
                    ptr::null_mut(),
                    &mut len,
                    self.room.as_mut_ptr().cast(),
                )
            };
            match status {
                Status::TIMEOUT if self.clock.micros() > end => return Ok(None),
                Status::TIMEOUT => {}
                status => {
                    succeeded("UdpRead", status)?;
                    let data = self.room.get(..len);
                    let data = data.ok_or(Failure::Wrong("a datagram larger than its room"))?;
                    return Ok(Some((port, data.to_vec())));
                }
            }
        }
    }
}

/// The boot program, which takes over where PXE left off. It sets filters of SNP, which it has not started; else it reads no datagram.
pub(crate) fn wds(device: Handle, file: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let snp: NonNull<SimpleNetworkProtocol> =
        efi::protocol(device, &SimpleNetworkProtocol::GUID, "SNP on the device")?;
    let base_code = BaseCode::of(device)?;
    let mode = base_code.mode();
    if base_code::option(base_code::raw(&mode.dhcp_ack), 53).is_none() {
        return Err(Failure::Wrong("no DHCP packet in DhcpAck"));
    }
    let filter = PxeBaseCodeIpFilter::new(PxeBaseCodeIpFilterFlags::STATION_IP, &[]);
    // SAFETY: copies of ours; what is null stays.
    unsafe {
        let this = base_code.0.as_ptr();
        let table = base_code.table();
        let none = ptr::null();
        let status = (table.set_packets)(
            this,
            none,
            &mode.dhcp_ack_received,
            none,
            none,
            none,
            none,
            ptr::null(),
            &mode.dhcp_ack,
            ptr::null(),
            ptr::null(),
            ptr::null(),
            ptr::null(),
        );
        succeeded("SetPackets", status)?;
        succeeded("SetIpFilter", (table.set_ip_filter)(this, &filter))?;
        let status = (snp.as_ref().receive_filters)(
            snp.as_ptr(),
            ReceiveFlags::UNICAST | ReceiveFlags::BROADCAST,
            ReceiveFlags::empty(),
            Boolean::FALSE,
            0,
            ptr::null(),
        );
        succeeded("ReceiveFilters", status)?;
    }
    if base_code::raw(&base_code.mode().dhcp_ack) != base_code::raw(&mode.dhcp_ack) {
        return Err(Failure::Wrong("SetPackets has changed the packet"));
    }
    let mut udp = Udp {
        base_code,
        server: next_server(&mode.dhcp_ack),
        port: 2049 + (clock.ticks() % 30_000) as u16,
        room: vec![0; 2048],
        clock,
    };
    let wanted = Wanted {
        file,
        block: 1456,
        window: 4,
        special: Some(SPECIAL),
    };
    tftp::read(&mut udp, &wanted)
}
