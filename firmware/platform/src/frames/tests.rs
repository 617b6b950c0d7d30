use super::recorder::HEADER;
use super::*;
use alloc::vec;
use core::sync::atomic::AtomicUsize;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn all(_: &[u8; HEADER], body: &[u8]) -> usize {
    body.len()
}

fn recorder_of(words: usize, keep: Keep) -> Recorder<Vec<AtomicU64>> {
    let words = (0..words).map(|_| AtomicU64::new(u64::MAX));
    Recorder::new(words.collect(), keep)
}

fn frame(number: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| at as u8 ^ number).collect()
}

/// Writes a frame that passed at `ticks`. False where there was no room.
fn write(to: &Recorder<Vec<AtomicU64>>, frame: &[u8], ticks: u64) -> bool {
    let (header, body) = frame.split_first_chunk().unwrap();
    let entry = to.begin(3, ticks.is_multiple_of(2), header, body);
    entry.map(|entry| entry.finish(ticks)).is_some()
}

#[test]
fn frames_of_any_length_are_read_as_they_were_written() {
    let recorder = recorder_of(4096, all);
    let lengths = [14, 15, 21, 22, 23, 60, 255, 1514];
    for (length, ticks) in lengths.into_iter().zip(1..) {
        assert!(write(&recorder, &frame(ticks as u8, length), ticks));
    }
    let read: Vec<Frame> = recorder.frames().collect();
    assert_eq!(read.len(), lengths.len());
    for ((read, length), ticks) in read.iter().zip(lengths).zip(1_u64..) {
        assert_eq!(read.bytes, frame(ticks as u8, length));
        assert_eq!((read.length, read.ticks), (length, ticks));
        assert_eq!((read.interface, read.sent), (3, ticks % 2 == 0));
    }
    recorder.forget();
    assert_eq!(recorder.frames().count(), 0);
}

#[test]
fn only_what_is_wanted_is_kept() {
    let recorder = recorder_of(64, |header, body| {
        assert_eq!(usize::from(header[1]), 1);
        body.len() / 2
    });
    assert!(write(&recorder, &frame(0, 114), 1));
    let read = recorder.frames().next().unwrap();
    assert_eq!(read.length, 114);
    assert_eq!(read.bytes, frame(0, 114)[..64]);
    // More than there is: all.
    let recorder = recorder_of(64, |_, body| body.len() + 9);
    assert!(write(&recorder, &frame(0, 30), 1));
    assert_eq!(recorder.frames().next().unwrap().bytes, frame(0, 30));
}

#[test]
fn what_has_no_room_is_counted_and_leaves_the_rest_whole() {
    // 4 words before, 2 of the rest.
    let recorder = recorder_of(13, all);
    assert!(write(&recorder, &frame(1, 30), 1));
    assert!(!write(&recorder, &frame(2, 100), 2));
    assert!(write(&recorder, &frame(3, 30), 3));
    assert!(!write(&recorder, &frame(4, 14), 4));
    assert_eq!(recorder.lost(), 2);
    let read: Vec<u64> = recorder.frames().map(|frame| frame.ticks).collect();
    assert_eq!(read, [1, 3]);
    recorder.forget();
    assert_eq!(recorder.lost(), 0);
}

#[test]
fn a_frame_that_was_not_finished_does_not_count() {
    let recorder = recorder_of(64, all);
    let (header, body) = ([0; HEADER], [7; 20]);
    let open = recorder.begin(0, true, &header, &body);
    // One comes by an interrupt meanwhile.
    assert!(write(&recorder, &frame(1, 30), 5));
    assert_eq!(recorder.frames().count(), 1);
    open.unwrap().finish(4);
    let read: Vec<u64> = recorder.frames().map(|frame| frame.ticks).collect();
    assert_eq!(read, [4, 5]);
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// A driver's functions. The length of a frame says what to answer.
unsafe extern "efiapi" fn driver_transmit(
    _: *const SimpleNetworkProtocol,
    _: usize,
    length: usize,
    _: *const c_void,
    _: *const MacAddress,
    _: *const MacAddress,
    _: *const u16,
) -> Status {
    CALLS.fetch_add(1, Ordering::Relaxed);
    match length {
        99 => Status::NOT_READY,
        _ => Status::SUCCESS,
    }
}

unsafe extern "efiapi" fn driver_receive(
    _: *const SimpleNetworkProtocol,
    _: *mut usize,
    length: *mut usize,
    buffer: *mut c_void,
    _: *mut MacAddress,
    _: *mut MacAddress,
    _: *mut u16,
) -> Status {
    // SAFETY: the test's own variables.
    unsafe {
        if *length == 99 {
            return Status::NOT_READY;
        }
        buffer.cast::<u8>().write_bytes(9, (*length).min(20));
        // A driver that lies about the length, where there is less room.
        *length = 20;
    }
    Status::SUCCESS
}

/// The shims pass on what they are called with, and keep what passed.
#[test]
fn what_the_driver_takes_and_gives_is_seen() {
    const SLOT: usize = MOST - 1;
    let slot = SLOTS.get(SLOT).unwrap();
    let (mut send, mut take): (TransmitFn, ReceiveFn) = (driver_transmit, driver_receive);
    let (ours, theirs) = SHIMS[SLOT];
    // SAFETY: the test's own variables, which outlive the shims.
    let _shims = unsafe {
        (
            shim::replace(NonNull::from(&mut send), None, ours, &slot.transmit),
            shim::replace(NonNull::from(&mut take), None, theirs, &slot.receive),
        )
    };
    let sends = |header_size: usize, frame: &[u8], kind: Option<&u16>| {
        let mut address = MacAddress([0; 32]);
        address.0[..6].copy_from_slice(&MAC);
        let to: *const MacAddress = &raw const address;
        let kind = kind.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the test's own variables.
        unsafe {
            ours(
                ptr::null(),
                header_size,
                frame.len(),
                frame.as_ptr().cast(),
                to,
                to,
                kind,
            )
        }
    };
    let takes = |room: usize| {
        let mut buffer = vec![0_u8; room];
        let mut length = room;
        // SAFETY: the test's own variables.
        let status = unsafe {
            theirs(
                ptr::null(),
                ptr::null_mut(),
                &raw mut length,
                buffer.as_mut_ptr().cast(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        (status, length)
    };
    // Nobody watches: it is passed on.
    assert_eq!(sends(0, &frame(1, 60), None), Status::SUCCESS);
    assert_eq!(takes(60), (Status::SUCCESS, 20));
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    let seen = watched(|| {
        assert_eq!(sends(0, &frame(1, 60), None), Status::SUCCESS);
        // The driver writes the header.
        assert_eq!(sends(14, &frame(2, 60), Some(&0x86dd)), Status::SUCCESS);
        // It did not take this one, and what these are is not known.
        assert_eq!(sends(0, &frame(3, 99), None), Status::NOT_READY);
        assert_eq!(sends(14, &frame(4, 60), None), Status::SUCCESS);
        assert_eq!(sends(10, &frame(4, 60), Some(&0x800)), Status::SUCCESS);
        assert_eq!(sends(0, &frame(5, 5), None), Status::SUCCESS);
        assert_eq!(takes(60), (Status::SUCCESS, 20));
        assert_eq!(takes(16), (Status::SUCCESS, 20));
        assert_eq!(takes(99).0, Status::NOT_READY);
    });
    let told: Vec<_> = seen.iter().map(|one| (one.sent, one.length)).collect();
    assert_eq!(told, [(true, 60), (true, 60), (false, 20), (false, 16)]);
    assert_eq!(seen[0].bytes, frame(1, 60));
    let header = [MAC.as_slice(), &MAC, &[0x86, 0xdd]].concat();
    assert_eq!(seen[1].bytes, [&header, &frame(2, 60)[14..]].concat());
    assert_eq!(seen[2].bytes, [9; 20]);
    assert!(seen.is_sorted_by_key(|one| one.ticks));
}

/// The frames that pass while `run` runs.
fn watched(run: impl FnOnce()) -> Vec<Frame> {
    let memory = vec![0_u64; 1024].into_boxed_slice();
    let memory = NonNull::from(alloc::boxed::Box::leak(memory)).cast();
    let recorder = Recorder::new(Words(Pages::of_test(memory, 8192)), all);
    RECORDER.store(ptr::from_ref(&recorder).cast_mut(), Ordering::Release);
    run();
    RECORDER.store(ptr::null_mut(), Ordering::Release);
    let seen = recorder.frames().collect();
    // The pages are not the firmware's.
    core::mem::forget(recorder);
    seen
}
