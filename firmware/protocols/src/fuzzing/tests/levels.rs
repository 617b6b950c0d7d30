//! Task priority levels, and the end of boot services.

use super::super::calls;
use super::super::loader::Loader;
use super::super::{firmware, statuses};
use core::ptr;
use std::cell::RefCell;
use std::rc::Rc;
use uefi_raw::protocol::network::http::HttpProtocol;
use uefi_raw::protocol::network::ip4_config2::Ip4Config2DataType;
use uefi_raw::table::boot::Tpl;
use uefi_raw::{Boolean, Status};
use wireboot_platform::image;
use wireboot_platform::raw::pxe_callback::{PxeBaseCodeCallbackStatus, PxeBaseCodeFunction};

/// A call of each table.
fn one_of_each(loader: &Loader, child: *mut HttpProtocol) -> Vec<Status> {
    let mut policy = 0_u32;
    let mut size = 4_usize;
    // SAFETY: the loader's variables.
    unsafe {
        let (snp, base_code, [v4, v6]) = (loader.snp, loader.base_code, loader.ip);
        let policy = (&raw mut policy).cast();
        let kind = Ip4Config2DataType(1);
        vec![
            ((*snp).start)(snp),
            ((*base_code).set_station_ip)(base_code, ptr::null(), ptr::null()),
            ((*child).poll)(child),
            ((*loader.http).destroy_child)(loader.http, ptr::dangling_mut()),
            ((*v4).set_data)(v4, kind, 4, policy),
            ((*v6).get_data)(v6, Ip4Config2DataType(2), &raw mut size, policy),
        ]
    }
}

fn child(loader: &Loader) -> *mut HttpProtocol {
    let handle = loader.create(ptr::null_mut()).unwrap();
    let child = loader.child(handle);
    assert_eq!(loader.configure(child), Status::SUCCESS);
    child
}

const REFUSED: [Status; 6] = [
    Status::NOT_READY,
    Status::NOT_READY,
    Status::ACCESS_DENIED,
    Status::NOT_READY,
    Status::ACCESS_DENIED,
    Status::NOT_READY,
];

#[test]
fn calls_above_tpl_callback_are_refused_and_the_level_stays() {
    let loader = Loader::new(&[]);
    let child = child(&loader);
    for level in [Tpl::NOTIFY, Tpl::HIGH_LEVEL] {
        firmware::at(level, || {
            assert_eq!(one_of_each(&loader, child), REFUSED);
            assert_eq!(firmware::tpl(), level.0);
        });
        loader.check();
    }
    let served = firmware::at(Tpl::CALLBACK, || {
        let served = one_of_each(&loader, child);
        assert_eq!(firmware::tpl(), Tpl::CALLBACK.0);
        served
    });
    let expected = [
        Status::SUCCESS,
        Status::SUCCESS,
        Status::SUCCESS,
        Status::UNSUPPORTED,
        Status::SUCCESS,
        Status::SUCCESS,
    ];
    assert_eq!(served, expected);
    loader.finish();
}

/// Ticks of the timer, and of a loader's own, in the middle of a call do not get in its way.
#[test]
fn ticks_in_the_middle_of_a_call_wait_for_its_end() {
    let loader = Loader::new(&[]);
    let child = child(&loader);
    let mut left = 5;
    loader.fake.interrupt(move || {
        if left > 0 {
            left -= 1;
            firmware::tick();
        }
    });
    assert_eq!(loader.poll(child), Status::SUCCESS);
    loader.fake.interrupt(|| {});
    loader.finish();
}

type Said = Rc<RefCell<Vec<(PxeBaseCodeFunction, Vec<Status>)>>>;

/// A callback on the base code's handle, which calls each table.
fn calling_callback(loader: &Rc<Loader>, child: *mut HttpProtocol) -> Said {
    let said = Said::default();
    let (inner, weak) = (said.clone(), Rc::downgrade(loader));
    let child = child.expose_provenance();
    let work = move |function| {
        let loader = weak.upgrade().unwrap();
        let statuses = one_of_each(&loader, ptr::with_exposed_provenance_mut(child));
        inner.borrow_mut().push((function, statuses));
        PxeBaseCodeCallbackStatus::CONTINUE
    };
    calls::install_callback(loader, Box::new(work));
    let base_code = loader.base_code;
    let yes = Boolean::TRUE;
    let status = loader.call("SetParameters", statuses::BC_SET, || {
        // SAFETY: the loader's variable.
        unsafe {
            ((*base_code).set_parameters)(
                base_code,
                ptr::null(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
                &raw const yes,
            )
        }
    });
    assert_eq!(status, Status::SUCCESS);
    said
}

fn arp(loader: &Loader) -> Status {
    let ip = [10_u8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let base_code = loader.base_code;
    loader.call("Arp", statuses::BC_ARP, || {
        // SAFETY: the loader's variable.
        unsafe { ((*base_code).arp)(base_code, ip.as_ptr().cast(), ptr::null_mut()) }
    })
}

#[test]
fn a_callback_cannot_call() {
    let loader = Loader::new(&[]);
    let child = child(&loader);
    let said = calling_callback(&loader, child);
    assert_eq!(arp(&loader), Status::TIMEOUT);
    assert!(!said.borrow().is_empty());
    for (function, statuses) in said.borrow().iter() {
        assert_eq!(*function, PxeBaseCodeFunction::ARP);
        assert_eq!(statuses[..], REFUSED);
    }
    calls::forget_callback(&loader);
    loader.finish();
}

/// The protocol may go in the middle of a call, with the memory that it lies in.
#[test]
fn a_callback_that_is_gone_is_not_called() {
    let loader = Loader::new(&[]);
    let child = child(&loader);
    let said = calling_callback(&loader, child);
    let (weak, inner) = (Rc::downgrade(&loader), said.clone());
    let mut left = 3;
    loader.fake.interrupt(move || {
        left -= 1;
        if left == 0 {
            calls::forget_callback(&weak.upgrade().unwrap());
            // What is said afterwards is too much.
            inner.borrow_mut().clear();
        }
    });
    assert_eq!(arp(&loader), Status::TIMEOUT);
    assert!(said.borrow().is_empty());
    loader.fake.interrupt(|| {});
    loader.finish();
}

/// A program has left it behind, and its memory is free when the next one calls.
#[test]
fn a_callback_in_free_memory_is_not_called() {
    let loader = Loader::new(&[]);
    let child = child(&loader);
    let said = calling_callback(&loader, child);
    firmware::set_free(calls::callback_at());
    assert_eq!(arp(&loader), Status::TIMEOUT);
    assert!(said.borrow().is_empty());
    calls::forget_callback(&loader);
    loader.finish();
}

#[test]
fn the_end_of_boot_services_ends_all_calls() {
    let loader = Loader::new(&[0]);
    let child = child(&loader);
    let token = loader.token(64);
    assert_eq!(
        loader.request(child, &token, "http://10.0.0.1/a"),
        Status::SUCCESS
    );
    firmware::exit_boot_services();
    assert!(loader.fake.is_halted());
    assert_eq!(one_of_each(&loader, child), [Status::DEVICE_ERROR; 6]);
    assert_eq!(token.signals.get(), 0);
    loader.check();
    // What was offered stays as it is, for nobody may free it any more.
    core::mem::forget(loader.take_resident());
}

/// There is no way back from there for a panic: it ends no image, but resets the machine.
#[test]
fn the_end_of_boot_services_forgets_the_image_that_was_started() {
    let loader = Loader::new(&[]);
    // It is no image's, so the image on it has ended.
    image::set_started(loader.base_code_handle);
    assert!(image::started_has_ended());
    firmware::signal_exit();
    assert!(!image::started_has_ended());
    loader.finish();
}

/// A system that begins in the middle of a call never comes back to it.
#[test]
fn boot_services_may_end_in_the_middle_of_a_call() {
    let loader = Loader::new(&[]);
    let child = child(&loader);
    let child_at = child.expose_provenance();
    let (weak, said) = (Rc::downgrade(&loader), Rc::new(RefCell::new(Vec::new())));
    let inner = said.clone();
    let mut done = false;
    loader.fake.interrupt(move || {
        if !core::mem::replace(&mut done, true) {
            let loader = weak.upgrade().unwrap();
            firmware::at(Tpl::NOTIFY, firmware::signal_exit);
            let child = ptr::with_exposed_provenance_mut(child_at);
            inner.borrow_mut().extend(one_of_each(&loader, child));
        }
    });
    let _ = loader.poll(child);
    assert_eq!(said.borrow()[..], [Status::DEVICE_ERROR; 6]);
    // The network is in the middle of its work, so that its device is stopped by other means.
    assert!(!loader.fake.is_halted());
    loader.fake.interrupt(|| {});
    loader.finish();
}
