//! A card without a link.

use super::super::firmware;
use super::super::loader::Loader;
use core::ptr;
use uefi_raw::protocol::media::LoadFileProtocol;
use uefi_raw::protocol::network::pxe::PxeBaseCodeUdpOpFlags;
use uefi_raw::{Boolean, Status};

/// LoadFile of the loader's own file, the base code's Dhcp, and a datagram to all.
fn calls(loader: &Loader) -> [Status; 3] {
    // Time passes.
    loader.fake.begin_call();
    let files = firmware::find(&LoadFileProtocol::GUID);
    let file: *mut LoadFileProtocol = files.first().map_or(ptr::null_mut(), |(_, at)| at.cast());
    let base_code = loader.base_code;
    let end = [0x7f_u8, 0xff, 4, 0];
    let mut size = 0_usize;
    let port = 9_u16;
    // SAFETY: the tables are installed; arguments are null or this function's.
    unsafe {
        [
            ((*file).load_file)(
                file,
                end.as_ptr().cast(),
                Boolean::TRUE,
                &raw mut size,
                ptr::null_mut(),
            ),
            ((*base_code).dhcp)(base_code, Boolean::FALSE),
            ((*base_code).udp_write)(
                base_code,
                PxeBaseCodeUdpOpFlags::ANY_SRC_PORT,
                [0xff_u8; 16].as_ptr().cast(),
                &raw const port,
                ptr::null(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                ptr::null(),
                &raw const size,
                end.as_ptr().cast(),
            ),
        ]
    }
}

#[test]
fn it_is_told_at_once_and_forgotten_when_the_link_is_back() {
    let loader = Loader::new(&[]);
    let shown = || {
        // SAFETY: the installed table, whose mode is read between calls.
        unsafe {
            let _: Status = ((*loader.snp).start)(loader.snp);
            bool::from((*(*loader.snp).mode).media_present)
        }
    };
    loader.fake.set_link(false);
    assert_eq!(calls(&loader), [Status::NO_MEDIA; 3]);
    assert!(!shown());
    loader.fake.set_link(true);
    assert!(shown());
    assert_eq!(
        calls(&loader),
        [Status::BUFFER_TOO_SMALL, Status::TIMEOUT, Status::SUCCESS]
    );
    loader.finish();
}
