//! Multicast groups of the base code's filter.

use super::super::firmware;
use super::super::loader::Loader;
use uefi_raw::protocol::network::pxe::{PxeBaseCodeIpFilter, PxeBaseCodeIpFilterFlags};
use uefi_raw::{Boolean, IpAddress, Status};

fn set(loader: &Loader, groups: &[[u8; 4]]) {
    let mut filter = PxeBaseCodeIpFilter {
        filters: PxeBaseCodeIpFilterFlags::STATION_IP,
        ip_cnt: groups.len() as u8,
        reserved: 0,
        ip_list: [IpAddress::default(); 8],
    };
    for (place, group) in filter.ip_list.iter_mut().zip(groups) {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(group);
        *place = bytes.into();
    }
    // SAFETY: the installed table, and a filter of ours.
    let status =
        unsafe { ((*loader.base_code).set_ip_filter)(loader.base_code, &raw const filter) };
    assert_eq!(status, Status::SUCCESS);
}

/// What leaves while nobody calls, for longer than it takes to tell of a change again.
fn later(loader: &Loader) -> u32 {
    loader.fake.begin_call();
    (0..40).for_each(|_| firmware::tick());
    loader.fake.take_sent()
}

#[test]
fn routers_are_told_of_them_in_the_call_and_again_while_nobody_calls() {
    let loader = Loader::new(&[]);
    let base_code = loader.base_code;
    set(&loader, &[[10, 0, 0, 9]]);
    assert_eq!((loader.fake.take_sent(), later(&loader)), (0, 0));
    set(&loader, &[[239, 1, 2, 3]]);
    assert_eq!((loader.fake.take_sent(), later(&loader)), (1, 1));
    // A call that leaves no filter, and one that ends all.
    // SAFETY: the installed table.
    let _: Status = unsafe { ((*base_code).dhcp)(base_code, Boolean::FALSE) };
    assert!(loader.fake.take_sent() > 1);
    set(&loader, &[[239, 1, 2, 3], [239, 1, 2, 4]]);
    assert_eq!((loader.fake.take_sent(), later(&loader)), (1, 1));
    // SAFETY: as above.
    let stopped = unsafe { ((*base_code).stop)(base_code) };
    assert_eq!(stopped, Status::SUCCESS);
    assert_eq!((loader.fake.take_sent(), later(&loader)), (1, 1));
    loader.finish();
}
