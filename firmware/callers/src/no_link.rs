//! Calls while the card has no link. The lines that are told ask for it to be taken away and given back.

use crate::base_code::{self, BaseCode, address};
use crate::report::{Failure, succeeded, tell};
use crate::{efi, load_file};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ptr;
use uefi::{Handle, Status};
use uefi_raw::Boolean;
use uefi_raw::protocol::network::pxe::PxeBaseCodeUdpOpFlags;
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use wireboot_platform::Clock;

/// How long the link may take to change, in microseconds.
const PATIENCE: u64 = 60_000_000;
/// The discard service (RFC 863).
const DISCARD: u16 = 9;

/// What EDK II's drivers answer by `NO_MEDIA` without a link. With the link back, reads the file.
pub(crate) fn calls(device: Handle, file: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    tell(format_args!("no-link: take the link away"));
    wait(device, false, clock)?;
    let base_code = BaseCode::of(device)?;
    let this = base_code.0.as_ptr();
    let table = base_code.table();
    let to = address(Ipv4Addr::BROADCAST);
    let (port, size) = (DISCARD, 1_usize);
    // SAFETY: the protocol stays; arguments are null or this function's.
    let written = unsafe {
        (table.udp_write)(
            this,
            PxeBaseCodeUdpOpFlags::ANY_SRC_PORT,
            &raw const to,
            &raw const port,
            ptr::null(),
            ptr::null(),
            ptr::null_mut(),
            ptr::null(),
            ptr::null(),
            &raw const size,
            c"a".as_ptr().cast(),
        )
    };
    no_media("UdpWrite", written)?;
    no_media("LoadFile", load_file::own(device)?)?;
    // SAFETY: as above.
    no_media("Dhcp", unsafe { (table.dhcp)(this, Boolean::FALSE) })?;
    tell(format_args!("no-link: give the link back"));
    wait(device, true, clock)?;
    // SAFETY: as above.
    let status = unsafe { (table.dhcp)(this, Boolean::FALSE) };
    succeeded("Dhcp", status)?;
    base_code::openbsd(device, file)
}

fn no_media(what: &'static str, status: Status) -> Result<(), Failure> {
    if status == Status::NO_MEDIA {
        Ok(())
    } else {
        Err(Failure::Refused(what, status))
    }
}

/// Waits until SNP's mode says that there is a link, or none.
fn wait(device: Handle, up: bool, clock: Clock) -> Result<(), Failure> {
    let snp = efi::protocol::<SimpleNetworkProtocol>(device, &SimpleNetworkProtocol::GUID, "SNP")?;
    let end = clock.micros() + PATIENCE;
    while clock.micros() < end {
        // SAFETY: the protocol stays; its mode is read between calls.
        let present = unsafe {
            let table = snp.as_ref();
            let _: Status = (table.get_status)(snp.as_ptr(), ptr::null_mut(), &mut ptr::null_mut());
            (*table.mode).media_present
        };
        if bool::from(present) == up {
            return Ok(());
        }
    }
    Err(Failure::Wrong("the link does not change"))
}
