//! Arguments of all tables that none can have, and what is left where offering fails.

use super::super::loader::{Loader, offer};
use super::super::network::{CONTENT, Fake, LARGEST};
use super::super::{calls, firmware};
use super::heap;
use core::cell::Cell;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr;
use uefi_raw::protocol::network::ip4_config2::{Ip4Config2DataType, Ip4Config2Protocol};
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeBootType, PxeBaseCodePacket, PxeBaseCodeProtocol, PxeBaseCodeTftpOpcode,
    PxeBaseCodeUdpOpFlags,
};
use uefi_raw::protocol::network::snp::{ReceiveFlags, SimpleNetworkProtocol};
use uefi_raw::table::boot::{EventType, Tpl};
use uefi_raw::{Boolean, Event, Status};

const NO: Boolean = Boolean::FALSE;
const INVALID: Status = Status::INVALID_PARAMETER;

fn snp_calls(loader: &Loader, this: *const SimpleNetworkProtocol) -> Vec<Status> {
    // SAFETY: `this` may be anything; variables are null, or the loader's.
    unsafe {
        let table = &*loader.snp;
        let mac = [1_u8; 32];
        let mut word = 0_u64;
        let at = (&raw mut word).cast::<c_void>();
        let none = ReceiveFlags::empty();
        vec![
            (table.start)(this),
            (table.stop)(this),
            (table.initialize)(this, 0, 0),
            (table.reset)(this, NO),
            (table.shutdown)(this),
            (table.receive_filters)(this, none, none, NO, 0, ptr::null()),
            (table.station_address)(this, NO, mac.as_ptr().cast()),
            (table.statistics)(this, NO, at.cast(), ptr::null_mut()),
            (table.multicast_ip_to_mac)(
                this,
                NO,
                mac.as_ptr().cast(),
                [0_u8; 32].as_mut_ptr().cast(),
            ),
            (table.get_status)(this, at.cast(), ptr::null_mut()),
            (table.transmit)(this, 0, 8, at, ptr::null(), ptr::null(), ptr::null()),
            (table.receive)(
                this,
                ptr::null_mut(),
                at.cast(),
                at,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            ),
        ]
    }
}

fn base_code_calls(loader: &Loader, this: *mut PxeBaseCodeProtocol) -> Vec<Status> {
    // SAFETY: as above.
    unsafe {
        let table = &*loader.base_code;
        let ip = [10_u8; 16];
        let ip = ip.as_ptr().cast();
        let mut layer = 0_u16;
        let mut size = 8_u64;
        let mut bytes = [0_u8; 1600];
        let at = bytes.as_mut_ptr().cast::<c_void>();
        let size_at = (&raw mut size).cast::<usize>();
        let any = PxeBaseCodeUdpOpFlags::all();
        vec![
            (table.start)(this, NO),
            (table.stop)(this),
            (table.dhcp)(this, NO),
            (table.discover)(
                this,
                PxeBaseCodeBootType(0),
                &raw mut layer,
                NO,
                ptr::null(),
            ),
            (table.mtftp)(
                this,
                PxeBaseCodeTftpOpcode::TFTP_READ_FILE,
                at,
                NO,
                &raw mut size,
                ptr::null(),
                ip,
                c"a".as_ptr().cast(),
                ptr::null(),
                NO,
            ),
            (table.udp_write)(
                this,
                any,
                ip,
                &raw const layer,
                ptr::null(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                ptr::null(),
                size_at,
                at,
            ),
            (table.udp_read)(
                this,
                any,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null(),
                ptr::null_mut(),
                size_at,
                at,
            ),
            (table.set_ip_filter)(this, at.cast()),
            (table.arp)(this, ip, ptr::null_mut()),
            (table.set_parameters)(
                this,
                ptr::null(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
            ),
            (table.set_station_ip)(this, ptr::null(), ptr::null()),
            set_packets(loader, this, ptr::null()),
        ]
    }
}

fn set_packets(
    loader: &Loader,
    this: *mut PxeBaseCodeProtocol,
    ack: *const PxeBaseCodePacket,
) -> Status {
    let yes = Boolean(3);
    let none: *const PxeBaseCodePacket = ptr::null();
    // SAFETY: as above.
    unsafe {
        ((*loader.base_code).set_packets)(
            this,
            none.cast(),
            none.cast(),
            &raw const yes,
            none.cast(),
            none.cast(),
            none.cast(),
            none,
            none,
            ack,
            none,
            none,
            none,
        )
    }
}

fn ip_calls(table: &Ip4Config2Protocol, this: *mut Ip4Config2Protocol) -> Vec<Status> {
    let (mut data, mut size) = (0_u32, 4_usize);
    let at = (&raw mut data).cast::<c_void>();
    let event = firmware::shared_event(EventType::NOTIFY_SIGNAL, Tpl::CALLBACK);
    let kind = Ip4Config2DataType(1);
    // SAFETY: as above.
    unsafe {
        vec![
            (table.set_data)(this, kind, 4, at),
            (table.get_data)(this, kind, &raw mut size, at),
            (table.register_data_notify)(this, kind, event),
            (table.unregister_data_notify)(this, kind, event),
        ]
    }
}

/// Neither null nor a copy of a table is a protocol of ours, nor another table.
#[test]
fn what_is_no_table_is_refused() {
    let loader = Loader::new(&[]);
    // SAFETY: copies of the tables' bytes.
    let (snp, base_code) = unsafe {
        (
            ManuallyDrop::new(loader.snp.read()),
            ManuallyDrop::new(loader.base_code.read()),
        )
    };
    for this in [ptr::null(), &raw const *snp, loader.base_code.cast()] {
        assert_eq!(snp_calls(&loader, this), [INVALID; 12]);
    }
    let copy = (&raw const *base_code).cast_mut();
    for this in [ptr::null_mut(), copy, loader.snp.cast()] {
        assert_eq!(base_code_calls(&loader, this), [INVALID; 12]);
    }
    for table in loader.ip {
        // SAFETY: the table is on its handle.
        let table = unsafe { &*table };
        for this in [ptr::null_mut(), loader.snp.cast()] {
            assert_eq!(ip_calls(table, this), [INVALID; 4]);
        }
    }
    // SAFETY: any address may be given.
    unsafe {
        let http = &*loader.http;
        let mut handle = ptr::null_mut();
        for this in [ptr::null_mut(), loader.snp.cast()] {
            assert_eq!((http.create_child)(this, &raw mut handle), INVALID);
            assert_eq!((http.destroy_child)(this, ptr::dangling_mut()), INVALID);
        }
        assert_eq!((http.create_child)(loader.http, ptr::null_mut()), INVALID);
        assert_eq!((http.destroy_child)(loader.http, ptr::null_mut()), INVALID);
    }
    loader.finish();
}

/// Sizes that no memory has, at addresses that may not be read.
#[test]
fn sizes_that_no_memory_has_are_refused() {
    let loader = Loader::new(&[]);
    let nowhere: *mut c_void = ptr::without_provenance_mut(usize::MAX - 4096);
    let (snp, base_code) = (loader.snp, loader.base_code);
    let ip = [10_u8; 16];
    let port = 7_u16;
    // SAFETY: refused, or too long, before anything is read.
    unsafe {
        assert_eq!(((*snp).start)(snp), Status::SUCCESS);
        assert_eq!(
            ((*snp).initialize)(snp, usize::MAX, usize::MAX),
            Status::SUCCESS
        );
        for size in [usize::MAX, isize::MAX as usize, 1 << 32] {
            let sent =
                ((*snp).transmit)(snp, 0, size, nowhere, ptr::null(), ptr::null(), ptr::null());
            assert_eq!(sent, INVALID);
            let none = ReceiveFlags::empty();
            let set = ((*snp).receive_filters)(snp, none, none, NO, size, nowhere.cast());
            assert_eq!(set, INVALID);
            let odd = [ptr::null(), &raw const size];
            for header_size in odd {
                let sent = ((*base_code).udp_write)(
                    base_code,
                    PxeBaseCodeUdpOpFlags::empty(),
                    ip.as_ptr().cast(),
                    &raw const port,
                    ptr::null(),
                    ptr::null(),
                    ptr::null_mut(),
                    header_size,
                    nowhere,
                    &raw const size,
                    nowhere,
                );
                assert!(matches!(sent, INVALID | Status::BAD_BUFFER_SIZE), "{sent}");
            }
            let mut room = size as u64;
            let read = ((*base_code).mtftp)(
                base_code,
                PxeBaseCodeTftpOpcode::TFTP_READ_FILE,
                nowhere,
                NO,
                &raw mut room,
                ptr::null(),
                ip.as_ptr().cast(),
                c"a".as_ptr().cast(),
                ptr::null(),
                NO,
            );
            assert_eq!(read, INVALID);
            let [v4, _] = loader.ip;
            let set = ((*v4).set_data)(v4, Ip4Config2DataType(2), size, nowhere);
            assert_eq!(set, Status::BAD_BUFFER_SIZE);
        }
    }
    loader.finish();
}

/// It may come to other memory than the caller's, as where its transfer has begun anew.
#[test]
fn a_file_is_in_the_callers_buffer_wherever_it_came_to() {
    let loader = Loader::new(&[]);
    let base_code = loader.base_code;
    for size in [100_u8, 101] {
        loader.fake.say(&[size]);
        let len = usize::from(size) * LARGEST / 255;
        let mut bytes = [0_u8; LARGEST];
        let mut room = LARGEST as u64;
        // SAFETY: the loader's variables.
        let read = unsafe {
            ((*base_code).mtftp)(
                base_code,
                PxeBaseCodeTftpOpcode::TFTP_READ_FILE,
                bytes.as_mut_ptr().cast(),
                NO,
                &raw mut room,
                ptr::null(),
                [10_u8; 16].as_ptr().cast(),
                c"a".as_ptr().cast(),
                ptr::null(),
                NO,
            )
        };
        assert_eq!((read, room), (Status::SUCCESS, len as u64));
        assert!(bytes[..len].iter().all(|byte| *byte == CONTENT), "{size}");
        assert!(bytes[len..].iter().all(|byte| *byte == 0), "{size}");
    }
    loader.finish();
}

/// Statistics are reset by a call that is good, only.
#[test]
fn a_bad_call_resets_nothing() {
    let loader = Loader::new(&[]);
    let snp = loader.snp;
    let frame = [0xff_u8; 60];
    let mut all = [0_u64; 26];
    // SAFETY: the loader's variables.
    unsafe {
        assert_eq!(((*snp).start)(snp), Status::SUCCESS);
        assert_eq!(((*snp).initialize)(snp, 0, 0), Status::SUCCESS);
        let at = frame.as_ptr().cast();
        let sent = ((*snp).transmit)(snp, 0, 60, at, ptr::null(), ptr::null(), ptr::null());
        assert_eq!(sent, Status::SUCCESS);
        let statistics = (*snp).statistics;
        let bad = statistics(snp, Boolean::TRUE, ptr::null_mut(), all.as_mut_ptr().cast());
        assert_eq!(bad, INVALID);
        let mut size = size_of_val(&all);
        let told = statistics(snp, NO, &raw mut size, all.as_mut_ptr().cast());
        assert_eq!((told, all[10]), (Status::SUCCESS, 1));
    }
    loader.finish();
}

/// WDS' client sets them beside the base code, and has not started the interface.
#[test]
fn filters_may_be_set_while_the_base_code_is_started() {
    let loader = Loader::new(&[]);
    let (snp, base_code) = (loader.snp, loader.base_code);
    // SAFETY: the tables are on their handles; there is no list.
    unsafe {
        let set = || {
            let none = ReceiveFlags::empty();
            ((*snp).receive_filters)(snp, ReceiveFlags::UNICAST, none, NO, 0, ptr::null())
        };
        assert_eq!(set(), Status::SUCCESS);
        assert_eq!(((*snp).start)(snp), Status::SUCCESS);
        assert_eq!(set(), Status::SUCCESS);
        assert_eq!(((*base_code).stop)(base_code), Status::SUCCESS);
        assert_eq!(set(), Status::DEVICE_ERROR);
        assert_eq!(((*snp).stop)(snp), Status::SUCCESS);
        assert_eq!(set(), Status::NOT_STARTED);
        assert_eq!(((*base_code).start)(base_code, NO), Status::SUCCESS);
        assert_eq!(set(), Status::SUCCESS);
    }
    loader.finish();
}

/// Started anew, the base code has no address. The engine, which HTTP uses too, keeps its own.
#[test]
fn a_mask_alone_takes_no_address_away() {
    let loader = Loader::new(&[]);
    let base_code = loader.base_code;
    let mut mask = [0_u8; 16];
    mask[..3].fill(255);
    // SAFETY: the table is on its handle, and the mask outlives the call.
    unsafe {
        assert_eq!(((*base_code).stop)(base_code), Status::SUCCESS);
        assert_eq!(((*base_code).start)(base_code, NO), Status::SUCCESS);
        let set = ((*base_code).set_station_ip)(base_code, ptr::null(), mask.as_ptr().cast());
        assert_eq!(set, Status::SUCCESS);
    }
    loader.finish();
}

/// Some loaders give the base code its own packets back.
#[test]
fn packets_of_the_mode_may_be_given_back() {
    let loader = Loader::new(&[]);
    // SAFETY: the mode is the table's, and calls are over when it is read.
    unsafe {
        let mode = (*loader.base_code).mode;
        let own = &raw const (*mode).dhcp_ack;
        assert_eq!(set_packets(&loader, loader.base_code, own), Status::SUCCESS);
        assert_eq!((&(*mode).proxy_offer.raw)[..2], [1, 0]);
        assert_eq!((*mode).proxy_offer_received, Boolean::TRUE);
        assert_eq!((*mode).pxe_reply_received, NO);
        let place = &raw const (*mode).proxy_offer;
        assert_eq!(
            set_packets(&loader, loader.base_code, place),
            Status::SUCCESS
        );
    }
    loader.finish();
}

std::thread_local! {
    static FIRST: Cell<Option<Box<dyn Fn()>>> = const { Cell::new(None) };
}

unsafe extern "efiapi" fn on_first(_: Event, _: *mut c_void) {
    if let Some(work) = FIRST.take() {
        work();
    }
}

unsafe extern "efiapi" fn on_second(_: Event, _: *mut c_void) {
    firmware::fault("an event is signalled after it was closed");
}

/// The function of one event closes another that is to be told of the same change.
#[test]
fn an_event_that_is_unregistered_may_be_closed() {
    let loader = Loader::new(&[]);
    let [v4, _] = loader.ip;
    let kind = Ip4Config2DataType(1);
    let event = |notify| {
        firmware::new_event(
            EventType::NOTIFY_SIGNAL,
            Tpl::CALLBACK,
            Some(notify),
            ptr::dangling_mut(),
        )
    };
    let (first, second) = (event(on_first as _), event(on_second as _));
    let mut policy = 0_u32;
    // SAFETY: the loader's variables and events.
    unsafe {
        for event in [first, second] {
            let registered = ((*v4).register_data_notify)(v4, kind, event);
            assert_eq!(registered, Status::SUCCESS);
        }
        let (v4_at, second_at) = (v4.expose_provenance(), second.addr());
        FIRST.set(Some(Box::new(move || {
            let v4: *mut Ip4Config2Protocol = ptr::with_exposed_provenance_mut(v4_at);
            let second = ptr::without_provenance_mut(second_at);
            let done = ((*v4).unregister_data_notify)(v4, kind, second);
            assert_eq!(done, Status::SUCCESS);
            firmware::close(second);
        })));
        let set = ((*v4).set_data)(v4, kind, 4, (&raw mut policy).cast());
        assert_eq!(set, Status::SUCCESS);
    }
    firmware::close(first);
    loader.finish();
}

#[test]
fn data_without_a_place_for_it_is_refused() {
    let loader = Loader::new(&[]);
    let [v4, _] = loader.ip;
    let of = |kind: i32, mut size: usize, data: *mut c_void| {
        // SAFETY: the loader's variables.
        let status = unsafe { ((*v4).get_data)(v4, Ip4Config2DataType(kind), &raw mut size, data) };
        (status, size)
    };
    let mut place = [0_u64; 32];
    let at = place.as_mut_ptr().cast();
    assert_eq!(of(1, 4, ptr::null_mut()), (INVALID, 4));
    assert_eq!(of(1, 0, ptr::null_mut()), (Status::BUFFER_TOO_SMALL, 4));
    assert_eq!(of(1, 3, at), (Status::BUFFER_TOO_SMALL, 4));
    assert_eq!(of(1, usize::MAX, at), (Status::SUCCESS, 4));
    assert_eq!(of(5, 4, at), (Status::NOT_FOUND, 4));
    loader.finish();
}

/// Where the firmware has no memory for something, nothing stays of what it had some for.
#[test]
fn an_offer_that_fails_leaves_nothing() {
    let loader = Loader::new(&[]);
    drop(loader.take_resident());
    loader.finish();
    let mut failed = 0;
    for room in 0.. {
        firmware::begin();
        firmware::reserve();
        let fake = Fake::new(&[]);
        let before = heap::used();
        firmware::set_room(Some(room));
        let offered = offer(&fake);
        firmware::set_room(None);
        failed += u32::from(offered.is_err());
        let whole = offered.is_ok();
        drop(offered);
        assert_eq!(firmware::faults(), Vec::<String>::new());
        assert_eq!(
            (firmware::open_events(), firmware::protocols()),
            (0, 0),
            "{room}"
        );
        assert_eq!(firmware::pieces(), 0);
        assert_eq!(heap::used(), before, "{room}");
        if whole {
            break;
        }
    }
    // Three events, a timer that is set, and the protocols.
    assert!(failed > 10, "{failed}");
    calls::forget_callback(&loader);
}
