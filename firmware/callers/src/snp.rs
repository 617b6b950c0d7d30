//! FreeBSD's loader over NFS or TFTP, as illumos' and NetBSD's: SNP, opened exclusively, one frame at a time.

use crate::base_code::{BaseCode, next_server, own_address};
use crate::datagrams::Datagrams;
use crate::efi;
use crate::frames::{self, Path};
use crate::report::{Failure, succeeded};
use crate::tftp::{self, Wanted};
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::{Handle, Status};
use uefi_raw::Boolean;
use uefi_raw::protocol::network::snp::{NetworkState, ReceiveFlags, SimpleNetworkProtocol};
use wireboot_platform::Clock;

/// Type and subtype of a device path's MAC node (UEFI 2.10, section 10.3.4.10).
const MAC: (u8, u8) = (3, 11);
/// How long a frame may take to be sent, in microseconds.
const SENT: u64 = 1_000_000;
/// How long an answer may take.
const ANSWER: u64 = 1_000_000;
/// Requests for the server's address.
const ASKED: u32 = 5;

/// The handle whose path ends with the MAC node that `device` has.
pub(crate) fn interface(device: Handle) -> Result<Handle, Failure> {
    let mac = efi::nodes(device)
        .into_iter()
        .find(|(kind, _)| *kind == MAC);
    let mac = mac.ok_or(Failure::Absent("MAC node"))?;
    let all = efi::handles(&SimpleNetworkProtocol::GUID);
    let mut ours = all
        .into_iter()
        .filter(|&handle| efi::nodes(handle).last() == Some(&mac));
    ours.next()
        .ok_or(Failure::Absent("SNP that ends with a MAC node"))
}

/// The protocol, running. It is stopped and closed on drop.
pub(crate) struct Snp {
    handle: Handle,
    protocol: NonNull<SimpleNetworkProtocol>,
    clock: Clock,
}

impl Drop for Snp {
    fn drop(&mut self) {
        // SAFETY: the protocol is open.
        unsafe {
            let _ = (self.table().shutdown)(self.protocol.as_ptr());
            let _ = (self.table().stop)(self.protocol.as_ptr());
        }
        efi::close(self.handle, &SimpleNetworkProtocol::GUID);
    }
}

impl Snp {
    pub(crate) fn open(handle: Handle, clock: Clock) -> Result<Self, Failure> {
        let protocol = efi::exclusively(handle, &SimpleNetworkProtocol::GUID)?;
        let snp = Self {
            handle,
            protocol,
            clock,
        };
        let this = protocol.as_ptr();
        let table = snp.table();
        // SAFETY: the protocol is open; arguments are as the specification wants them.
        unsafe {
            if snp.state() == NetworkState::STOPPED {
                succeeded("Start", (table.start)(this))?;
            }
            if snp.state() != NetworkState::INITIALIZED {
                succeeded("Initialize", (table.initialize)(this, 0, 0))?;
            }
            let enable = ReceiveFlags::UNICAST | ReceiveFlags::BROADCAST;
            let status = (table.receive_filters)(
                this,
                enable,
                ReceiveFlags::empty(),
                Boolean::FALSE,
                0,
                ptr::null(),
            );
            succeeded("ReceiveFilters", status)?;
        }
        Ok(snp)
    }

    pub(crate) fn protocol(&self) -> NonNull<SimpleNetworkProtocol> {
        self.protocol
    }

    fn table(&self) -> &SimpleNetworkProtocol {
        // SAFETY: open as long as this value.
        unsafe { self.protocol.as_ref() }
    }

    fn state(&self) -> NetworkState {
        // SAFETY: the producer's mode.
        unsafe { (*self.table().mode).state }
    }

    fn mac(&self) -> [u8; 6] {
        // SAFETY: the producer's mode.
        let address = unsafe { (*self.table().mode).current_address };
        address.0.first_chunk().copied().unwrap_or_default()
    }

    /// Transmit, then GetStatus until the buffer is back.
    fn send(&self, frame: &[u8]) -> Result<(), Failure> {
        let end = self.clock.micros() + SENT;
        // SAFETY: the frame lives until its buffer is back, or this program ends with an error.
        unsafe {
            let status = (self.table().transmit)(
                self.protocol.as_ptr(),
                0,
                frame.len(),
                frame.as_ptr().cast(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
            );
            succeeded("Transmit", status)?;
            loop {
                let mut back: *mut c_void = ptr::null_mut();
                let status =
                    (self.table().get_status)(self.protocol.as_ptr(), ptr::null_mut(), &mut back);
                succeeded("GetStatus", status)?;
                if !back.is_null() {
                    return Ok(());
                }
                if self.clock.micros() > end {
                    return Err(Failure::Wrong("the frame's buffer does not come back"));
                }
            }
        }
    }

    /// Receive, in a loop, until `wanted` finds something in a frame; `None` when that takes too long.
    fn receive<T>(&self, mut wanted: impl FnMut(&[u8]) -> Option<T>) -> Result<Option<T>, Failure> {
        let end = self.clock.micros() + ANSWER;
        let mut room = [0; 1600];
        while self.clock.micros() < end {
            let mut size = room.len();
            // SAFETY: room of so many bytes.
            let status = unsafe {
                (self.table().receive)(
                    self.protocol.as_ptr(),
                    ptr::null_mut(),
                    &mut size,
                    room.as_mut_ptr().cast(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            };
            if status == Status::NOT_READY {
                continue;
            }
            succeeded("Receive", status)?;
            let frame = room.get(..size);
            let frame = frame.ok_or(Failure::Wrong("a frame larger than its room"))?;
            if let Some(found) = wanted(frame) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

struct Link {
    snp: Snp,
    path: Path,
}

impl Datagrams for Link {
    fn send(&mut self, port: u16, data: &[u8]) -> Result<(), Failure> {
        self.snp.send(&frames::datagram(&self.path, port, data))
    }

    fn receive(&mut self) -> Result<Option<(u16, Vec<u8>)>, Failure> {
        let path = &self.path;
        self.snp.receive(|frame| {
            frames::from_server(frame, path).map(|(port, data)| (port, data.to_vec()))
        })
    }
}

/// TFTP by SNP. The addresses are the firmware's, where the loader would ask DHCP again.
pub(crate) fn freebsd(device: Handle, file: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let ack = BaseCode::of(device)?.mode().dhcp_ack;
    let snp = Snp::open(interface(device)?, clock)?;
    let mut path = Path {
        mac: snp.mac(),
        address: own_address(&ack),
        port: 2049 + (clock.ticks() % 30_000) as u16,
        server: next_server(&ack),
        server_mac: [0; 6],
    };
    let mut asked = 0;
    path.server_mac = loop {
        snp.send(&frames::arp_request(&path))?;
        if let Some(mac) = snp.receive(|frame| frames::arp_reply(frame, &path))? {
            break mac;
        }
        asked += 1;
        if asked == ASKED {
            return Err(Failure::Wrong("nobody has the server's address"));
        }
    };
    let wanted = Wanted {
        file,
        block: 1428,
        window: 1,
        special: None,
    };
    tftp::read(&mut Link { snp, path }, &wanted)
}

/// NetBSD: the base code only tells the interface, which must have SNP on the same handle; then SNP.
pub(crate) fn netbsd(device: Handle, file: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    efi::protocol::<c_void>(device, &SimpleNetworkProtocol::GUID, "SNP on the device")?;
    let mode = BaseCode::of(device)?.mode();
    if !bool::from(mode.dhcp_ack_received) && !bool::from(mode.pxe_reply_received) {
        return Err(Failure::Wrong("neither DhcpAck nor PxeReply"));
    }
    freebsd(device, file, clock)
}
