use super::*;
use std::boxed::Box;

type Service = extern "efiapi" fn(usize) -> usize;

#[repr(C)]
struct Table {
    header: Header,
    service: Service,
    other: Service,
}

extern "efiapi" fn firmwares(value: usize) -> usize {
    value + 1
}

extern "efiapi" fn others(value: usize) -> usize {
    value + 100
}

static ORIGINAL: Original<Service> = Original::new();
static SECOND: Original<Service> = Original::new();

extern "efiapi" fn ours(value: usize) -> usize {
    ORIGINAL.get().unwrap()(value) * 2
}

extern "efiapi" fn above(value: usize) -> usize {
    SECOND.get().unwrap()(value) + 5
}

/// With a right sum.
fn table() -> NonNull<Table> {
    let table = Box::leak(Box::new(Table {
        header: Header {
            signature: 0x5652_4553_544f_4f42,
            size: size_of::<Table>() as u32,
            ..Header::default()
        },
        service: firmwares,
        other: others,
    }));
    let table = NonNull::from(table);
    // SAFETY: just made.
    unsafe { redo_sum(table.cast()) };
    table
}

fn service(table: NonNull<Table>) -> Service {
    // SAFETY: a test's table lives as long as the program.
    unsafe { (&raw const (*table.as_ptr()).service).read() }
}

fn set(table: NonNull<Table>, service: Service) {
    // SAFETY: as above.
    unsafe { (&raw mut (*table.as_ptr()).service).write(service) };
}

fn crc(table: NonNull<Table>) -> u32 {
    // SAFETY: as above.
    unsafe { (&raw const (*table.as_ptr()).header.crc).read() }
}

fn right(table: NonNull<Table>) -> bool {
    // SAFETY: as above.
    unsafe { sum_is_right(table.cast()) }
}

fn shim(table: NonNull<Table>, ours: Service, original: &Original<Service>) -> Shim {
    // SAFETY: as above; the functions are of the same type.
    unsafe {
        let member = NonNull::from(&mut (*table.as_ptr()).service);
        replace(member, Some(table.cast()), ours, original).unwrap()
    }
}

#[test]
fn the_sum_is_ethernets() {
    assert_eq!(crc32(b"123456789".iter().copied()), 0xcbf4_3926);
}

#[test]
fn a_member_is_ours_until_the_shim_goes_and_the_sum_right_all_the_time() {
    let _alone = ALONE.lock();
    let table = table();
    let before = crc(table);
    assert!(!any());
    let shim = shim(table, ours, &ORIGINAL);
    assert!(any() && right(table));
    assert_ne!(crc(table), before);
    assert_eq!(service(table)(1), 4);
    drop(shim);
    assert!(!any() && right(table) && as_found());
    assert_eq!((crc(table), service(table)(1)), (before, 2));
}

#[test]
fn a_sum_that_was_wrong_stays_as_it_was() {
    let _alone = ALONE.lock();
    for size in [size_of::<Table>() as u32, 0, 8, u32::MAX] {
        let table = table();
        // SAFETY: a test's table.
        unsafe {
            (*table.as_ptr()).header.size = size;
            (*table.as_ptr()).header.crc = 77;
        }
        let shim = shim(table, ours, &ORIGINAL);
        assert_eq!((crc(table), service(table)(1)), (77, 4));
        drop(shim);
        assert_eq!((crc(table), service(table)(1)), (77, 2));
    }
}

#[test]
fn what_somebody_else_has_replaced_is_not_as_found() {
    let _alone = ALONE.lock();
    let table = table();
    let shim = shim(table, ours, &ORIGINAL);
    set(table, others);
    drop(shim);
    // The other one may call ours.
    assert!(any() && !as_found());
    assert_eq!(service(table)(1), 101);
    // Ours, put in again, would lead to the other one, which leads to ours.
    // SAFETY: a test's table.
    let again = unsafe {
        let member = NonNull::from(&mut (*table.as_ptr()).service);
        replace(member, Some(table.cast()), ours, &ORIGINAL)
    };
    assert_eq!(again.err(), Some(Refused::Left));
    assert_eq!(service(table)(1), 101);
    // A panic cannot put it back either, and ends.
    LEFT.store(false, Ordering::Relaxed);
    put_back_in_panic();
    assert!(any() && !as_found());
    // For the other tests.
    set(table, ours);
    put_back_in_panic();
    assert!(!any());
    LEFT.store(false, Ordering::Relaxed);
}

#[test]
fn a_panic_puts_all_back_in_whatever_order() {
    let _alone = ALONE.lock();
    let tables = [table(), table()];
    let shims = [
        shim(tables[0], ours, &ORIGINAL),
        shim(tables[0], above, &SECOND),
        shim(tables[1], ours, &ORIGINAL),
    ];
    assert_eq!(service(tables[0])(1), 9);
    core::mem::forget(shims);
    put_back_in_panic();
    assert!(!any() && as_found());
    for table in tables {
        assert!(right(table));
        assert_eq!(service(table)(1), 2);
    }
}

#[test]
fn there_is_room_for_so_many() {
    let _alone = ALONE.lock();
    let table = table();
    let shims: std::vec::Vec<_> = (0..PLACES).map(|_| shim(table, ours, &ORIGINAL)).collect();
    // SAFETY: a test's table.
    let refused = unsafe {
        let member = NonNull::from(&mut (*table.as_ptr()).other);
        replace(member, None, ours, &ORIGINAL)
    };
    assert_eq!(refused.err(), Some(Refused::Full));
    shims.into_iter().rev().for_each(drop);
    assert!(!any());
    assert_eq!(service(table)(1), 2);
}
