use super::*;
use crate::firmware_nic::Driver as _;
use core::ffi::c_void;
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec::Vec;
use uefi_raw::protocol::network::snp::{
    InterruptStatus, NetworkMode, NetworkStatistics, SimpleNetworkProtocol,
};
use uefi_raw::{Boolean, IpAddress, MacAddress};
use wireboot_nic::{Nic, Offload, Receive, SendError, Transmit};

/// A firmware's driver. What it is asked finds it behind the protocol's address.
#[repr(C)]
struct Driver {
    protocol: SimpleNetworkProtocol,
    mode: NetworkMode,
    arriving: VecDeque<Vec<u8>>,
    /// What the next receive answers instead.
    failure: Option<Status>,
    /// Adds to the length that it tells.
    lie: usize,
    /// Frames that it takes before it must be asked for their buffers.
    room: usize,
    sent: Vec<Vec<u8>>,
    /// Buffers to hand back.
    used: VecDeque<*mut c_void>,
    /// It remembers one of them: the last.
    forgetful: bool,
    shutdowns: usize,
    /// Filters that it says it has, and does not take.
    refused: u32,
    /// What the next question for its status is answered.
    status: Option<Status>,
    /// Whether there is a link, where it looks for that at its initialization only.
    cable: Option<bool>,
    /// How often its initialization fails.
    failing_starts: usize,
}

/// What this is called with is always the first field of a `Driver`.
fn driver<'a>(this: *const SimpleNetworkProtocol) -> &'a mut Driver {
    // SAFETY: see above; tests have one thread each, and no reference outlives a call.
    unsafe { &mut *this.cast_mut().cast() }
}

unsafe extern "efiapi" fn start(this: *const SimpleNetworkProtocol) -> Status {
    let mode = &mut driver(this).mode;
    assert_eq!(mode.state, NetworkState::STOPPED);
    mode.state = NetworkState::STARTED;
    Status::SUCCESS
}

unsafe extern "efiapi" fn stop(this: *const SimpleNetworkProtocol) -> Status {
    driver(this).mode.state = NetworkState::STOPPED;
    Status::SUCCESS
}

unsafe extern "efiapi" fn initialize(
    this: *const SimpleNetworkProtocol,
    _: usize,
    _: usize,
) -> Status {
    let driver = driver(this);
    let mode = &mut driver.mode;
    assert_eq!(mode.state, NetworkState::STARTED);
    if let Some(left) = driver.failing_starts.checked_sub(1) {
        driver.failing_starts = left;
        return Status::DEVICE_ERROR;
    }
    mode.state = NetworkState::INITIALIZED;
    if let Some(cable) = driver.cable {
        mode.media_present = cable.into();
    }
    Status::SUCCESS
}

unsafe extern "efiapi" fn reset(_: *const SimpleNetworkProtocol, _: Boolean) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn shutdown(this: *const SimpleNetworkProtocol) -> Status {
    let driver = driver(this);
    driver.shutdowns += 1;
    driver.mode.receive_filter_setting = 0;
    driver.mode.state = NetworkState::STARTED;
    Status::SUCCESS
}

unsafe extern "efiapi" fn receive_filters(
    this: *const SimpleNetworkProtocol,
    enable: ReceiveFlags,
    disable: ReceiveFlags,
    _: Boolean,
    _: usize,
    _: *const MacAddress,
) -> Status {
    let driver = driver(this);
    let mode = &mut driver.mode;
    assert_ne!(mode.receive_filter_mask, 0, "it does not know the call");
    if enable.bits() & driver.refused != 0 {
        return Status::DEVICE_ERROR;
    }
    if (enable | disable).bits() & !mode.receive_filter_mask != 0 {
        return Status::INVALID_PARAMETER;
    }
    mode.receive_filter_setting |= enable.bits();
    mode.receive_filter_setting &= !disable.bits();
    Status::SUCCESS
}

unsafe extern "efiapi" fn station_address(
    _: *const SimpleNetworkProtocol,
    _: Boolean,
    _: *const MacAddress,
) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn statistics(
    _: *const SimpleNetworkProtocol,
    _: Boolean,
    _: *mut usize,
    _: *mut NetworkStatistics,
) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn multicast(
    _: *const SimpleNetworkProtocol,
    _: Boolean,
    _: *const IpAddress,
    _: *mut MacAddress,
) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn non_volatile(
    _: *const SimpleNetworkProtocol,
    _: Boolean,
    _: usize,
    _: usize,
    _: *mut c_void,
) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn get_status(
    this: *const SimpleNetworkProtocol,
    _: *mut InterruptStatus,
    buffer: *mut *mut c_void,
) -> Status {
    let driver = driver(this);
    if driver.mode.state != NetworkState::INITIALIZED {
        return Status::NOT_STARTED;
    }
    if let Some(status) = driver.status.take() {
        return status;
    }
    let used = driver.used.pop_front();
    driver.room += usize::from(used.is_some());
    // SAFETY: the caller's own variable.
    unsafe { *buffer = used.unwrap_or(core::ptr::null_mut()) };
    Status::SUCCESS
}

unsafe extern "efiapi" fn transmit(
    this: *const SimpleNetworkProtocol,
    header: usize,
    len: usize,
    buffer: *const c_void,
    _: *const MacAddress,
    _: *const MacAddress,
    _: *const u16,
) -> Status {
    let driver = driver(this);
    assert_eq!(header, 0);
    if driver.room == 0 {
        return Status::NOT_READY;
    }
    driver.room -= 1;
    // SAFETY: as the protocol promises.
    let frame = unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), len) };
    driver.sent.push(frame.to_vec());
    if driver.forgetful {
        driver.used.clear();
    }
    driver.used.push_back(buffer.cast_mut());
    Status::SUCCESS
}

unsafe extern "efiapi" fn receive(
    this: *const SimpleNetworkProtocol,
    _: *mut usize,
    len: *mut usize,
    buffer: *mut c_void,
    _: *mut MacAddress,
    _: *mut MacAddress,
    _: *mut u16,
) -> Status {
    let driver = driver(this);
    if let Some(failure) = driver.failure {
        return failure;
    }
    let Some(frame) = driver.arriving.pop_front() else {
        return Status::NOT_READY;
    };
    // SAFETY: the caller's own variable and buffer.
    unsafe {
        assert!(*len >= frame.len());
        *len = frame.len() + driver.lie;
        buffer
            .cast::<u8>()
            .copy_from_nonoverlapping(frame.as_ptr(), frame.len());
    }
    Status::SUCCESS
}

impl Driver {
    fn new() -> Box<Self> {
        let mut address = MacAddress([0; 32]);
        address.0[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        let mode = NetworkMode {
            state: NetworkState::STOPPED,
            hw_address_size: 6,
            media_header_size: 14,
            max_packet_size: 1514,
            nv_ram_size: 0,
            nv_ram_access_size: 0,
            receive_filter_mask: 0b1_0111,
            receive_filter_setting: 0b0_0010,
            max_mcast_filter_count: 0,
            mcast_filter_count: 0,
            mcast_filter: [MacAddress([0; 32]); 16],
            current_address: address,
            broadcast_address: MacAddress([0xff; 32]),
            permanent_address: address,
            if_type: 1,
            mac_address_changeable: Boolean::FALSE,
            multiple_tx_supported: Boolean::TRUE,
            media_present_supported: Boolean::TRUE,
            media_present: Boolean::TRUE,
        };
        let protocol = SimpleNetworkProtocol {
            revision: 0x1_0000,
            start,
            stop,
            initialize,
            reset,
            shutdown,
            receive_filters,
            station_address,
            statistics,
            multicast_ip_to_mac: multicast,
            non_volatile_data: non_volatile,
            get_status,
            transmit,
            receive,
            wait_for_packet: core::ptr::null_mut(),
            mode: core::ptr::null(),
        };
        let mut driver = Box::new(Self {
            protocol,
            mode,
            arriving: VecDeque::new(),
            failure: None,
            lie: 0,
            room: 100,
            sent: Vec::new(),
            used: VecDeque::new(),
            forgetful: false,
            shutdowns: 0,
            refused: 0,
            status: None,
            cable: None,
            failing_starts: 0,
        });
        driver.protocol.mode = &raw const driver.mode;
        driver
    }
}

/// A driver with our driver on it.
struct Bench {
    snp: Option<Snp>,
    driver: *mut Driver,
}

impl Bench {
    fn new(prepare: impl FnOnce(&mut Driver)) -> Self {
        Self::pausing(PAUSE, prepare)
    }

    /// One whose interface is started anew after so many ticks without a link.
    fn pausing(pause: u64, prepare: impl FnOnce(&mut Driver)) -> Self {
        let mut driver = Driver::new();
        prepare(&mut driver);
        let driver = Box::into_raw(driver);
        let protocol = NonNull::new(driver.cast()).unwrap();
        // SAFETY: freed behind the `Snp`.
        let snp = unsafe { Snp::start(protocol, None, pause) }.unwrap();
        Self {
            snp: Some(snp),
            driver,
        }
    }

    fn snp(&mut self) -> &mut Snp {
        self.snp.as_mut().unwrap()
    }

    fn driver(&mut self) -> &mut Driver {
        driver(self.driver.cast())
    }

    fn send(&mut self, byte: u8) -> Result<(), SendError> {
        self.send_bytes(60, byte)
    }

    fn send_bytes(&mut self, len: usize, byte: u8) -> Result<(), SendError> {
        let (_, mut tx) = self.snp().split();
        tx.send(len, Offload::None, &mut |frame| frame.fill(byte))?;
        tx.flush().map_err(SendError::Fault)
    }

    fn received(&mut self, budget: usize) -> Result<Vec<usize>, Fault> {
        let mut seen = Vec::new();
        let (mut rx, _) = self.snp().split();
        let lent = rx.burst(budget, |frame| seen.push(frame.len))?;
        assert_eq!(lent, seen.len());
        Ok(seen)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.snp = None;
        // SAFETY: from `Box::into_raw`, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.driver) });
    }
}

#[test]
fn starts_whatever_the_state_and_stops() {
    for state in [
        NetworkState::STOPPED,
        NetworkState::STARTED,
        NetworkState::INITIALIZED,
    ] {
        let mut bench = Bench::new(|driver| driver.mode.state = state);
        let properties = bench.snp().properties();
        assert_eq!((properties.mac, properties.mtu), ([2, 0, 0, 0, 0, 7], 1500));
        let mode = &bench.driver().mode;
        assert_eq!(mode.state, NetworkState::INITIALIZED);
        // Unicast, broadcast and all groups; what was on before, and is known, is off.
        assert_eq!(mode.receive_filter_setting, 0b1_0101);
        let before = bench.driver().shutdowns;
        bench.snp = None;
        assert_eq!(bench.driver().shutdowns, before + 1);
        assert_eq!(bench.driver().mode.state, NetworkState::STOPPED);
    }
}

#[test]
fn all_groups_are_heard_or_everybody_or_this_station() {
    // All groups is the highest of these bits, everybody the one below it.
    for (known, refused, on) in [
        (0b1_1111, 0, 0b1_0101),
        (0b0_1111, 0, 0b0_1101),
        (0b0_0111, 0, 0b0_0101),
        (0b0_0001, 0, 0b0_0001),
        (0b1_1111, 0b1_0000, 0b0_1101),
        (0b1_1111, 0b1_1000, 0b0_0101),
        // None is taken, which is no end.
        (0b1_1111, 0b0_0001, 0b0_0010),
    ] {
        let mut bench = Bench::new(|driver| {
            driver.mode.receive_filter_mask = known;
            driver.mode.receive_filter_setting &= known;
            driver.refused = refused;
        });
        assert_eq!(bench.driver().mode.receive_filter_setting, on);
    }
}

#[test]
fn a_link_that_carries_no_full_packets_is_refused() {
    let mut driver = Driver::new();
    driver.mode.max_packet_size = 300;
    let protocol = NonNull::from(&mut *driver).cast();
    // SAFETY: the driver outlives it.
    let started = unsafe { Snp::start(protocol, None, PAUSE) };
    assert!(started.is_err_and(|error| error.status() == Status::UNSUPPORTED));
    assert_eq!(driver.mode.state, NetworkState::STOPPED);
}

/// As U-Boot's: no filters, and one frame at a time.
#[test]
fn a_driver_that_can_do_little_is_driven() {
    let mut bench = Bench::new(|driver| {
        driver.mode.receive_filter_mask = 0;
        driver.mode.multiple_tx_supported = Boolean::FALSE;
        driver.forgetful = true;
        driver.room = usize::MAX / 2;
    });
    for first in (0..100).step_by(4) {
        let (_, mut tx) = bench.snp().split();
        for byte in first..first + 4 {
            tx.send(60, Offload::None, &mut |frame| frame.fill(byte))
                .unwrap();
        }
        tx.flush().unwrap();
    }
    let order: Vec<u8> = bench.driver().sent.iter().map(|frame| frame[0]).collect();
    assert_eq!(order, (0..100).collect::<Vec<u8>>());
    assert!(bench.snp().split().1.idle());
}

#[test]
fn bursts_end_with_the_budget_or_the_frames() {
    let mut bench = Bench::new(|driver| {
        driver.arriving.extend((0..5).map(|n| std::vec![0; 60 + n]));
    });
    assert_eq!(bench.received(2), Ok(std::vec![60, 61]));
    assert_eq!(bench.received(8), Ok(std::vec![62, 63, 64]));
    assert_eq!(bench.received(8), Ok(Vec::new()));
    // Too short for a header, too long for the link.
    let odd = [13, 14, 1518, 1519].map(|len| std::vec![0; len]);
    bench.driver().arriving.extend(odd);
    assert_eq!(bench.received(8), Ok(std::vec![14, 1518]));
    assert_eq!(bench.snp().counters().receive_dropped, 2);
}

#[test]
fn damaged_frames_are_no_end_but_nothing_else_is_one() {
    let mut bench = Bench::new(|driver| driver.failure = Some(Status::DEVICE_ERROR));
    assert_eq!(bench.received(10), Ok(Vec::new()));
    bench.driver().failure = None;
    bench.driver().arriving.push_back(std::vec![0; 60]);
    assert_eq!(bench.received(10), Ok(std::vec![60]));
    bench.driver().failure = Some(Status::DEVICE_ERROR);
    let end = (0..10).find_map(|_| bench.received(10_000).err());
    assert!(matches!(end, Some(Fault::Misbehaved(_))));
    assert_eq!(bench.received(1).err(), end);
    assert_eq!(bench.send(1), Err(SendError::Fault(end.unwrap())));
    assert!(!bench.snp().link_up());
}

#[test]
fn a_length_beyond_the_buffer_is_a_lie() {
    let mut bench = Bench::new(|driver| {
        driver.lie = 16 * 1024;
        driver.arriving.push_back(std::vec![0; 60]);
    });
    assert!(matches!(bench.received(1), Err(Fault::Misbehaved(_))));
    assert_eq!(bench.driver().shutdowns, 1);
}

#[test]
fn buffers_are_the_drivers_until_it_hands_them_back() {
    let mut bench = Bench::new(|_| {});
    bench.send(0).unwrap();
    let held = core::mem::take(&mut bench.driver().used);
    assert!(!bench.snp().split().1.idle());
    bench.driver().used = held;
    assert!(bench.snp().split().1.idle());
    // None comes back: the pool ends.
    for byte in 0..32 {
        bench.send(byte).unwrap();
        bench.driver().used.clear();
    }
    assert_eq!(bench.send(0), Err(SendError::Full));
    assert_eq!(bench.snp().split().1.room(), 0);
    // A driver that names no buffer of ours says that one has left.
    bench.driver().used.push_back(64 as *mut c_void);
    assert_eq!(bench.snp().split().1.room(), 1);
    assert_eq!(bench.send(0), Ok(()));
}

#[test]
fn a_full_driver_is_asked_what_has_left() {
    let mut bench = Bench::new(|driver| driver.room = 2);
    for byte in 0..20 {
        bench.send(byte).unwrap();
    }
    let order: Vec<u8> = bench.driver().sent.iter().map(|frame| frame[0]).collect();
    assert_eq!(order, (0..20).collect::<Vec<u8>>());
    // One that never has room keeps them waiting, in order.
    bench.driver().used.clear();
    bench.driver().room = 0;
    bench.send(20).unwrap();
    bench.send(21).unwrap();
    assert!(!bench.snp().split().1.idle());
    bench.driver().room = 2;
    bench.snp().split().1.flush().unwrap();
    let order: Vec<u8> = bench.driver().sent.iter().map(|frame| frame[0]).collect();
    assert_eq!(order, (0..22).collect::<Vec<u8>>());
}

#[test]
fn the_link_is_what_the_driver_says_if_it_can_tell() {
    let mut bench = Bench::new(|_| {});
    assert!(bench.snp().link_up());
    bench.driver().mode.media_present = Boolean::FALSE;
    assert!(!bench.snp().link_up());
    bench.driver().mode.media_present_supported = Boolean::FALSE;
    assert!(bench.snp().link_up());
    // Somebody else has stopped it.
    bench.driver().mode.state = NetworkState::STOPPED;
    assert!(!bench.snp().link_up());
    assert!(bench.received(1).is_err());
}

#[test]
fn a_link_that_is_told_at_the_start_only_is_seen() {
    let mut bench = Bench::pausing(0, |driver| driver.cable = Some(false));
    assert!(!bench.snp().link_up());
    bench.driver().cable = Some(true);
    assert!(bench.snp().link_up());
    assert_eq!(bench.driver().mode.receive_filter_setting, 0b1_0101);
    // From then on, nothing is broken off for a cable that is pulled.
    let before = bench.driver().shutdowns;
    bench.driver().mode.media_present = Boolean::FALSE;
    assert!(!bench.snp().link_up());
    assert_eq!(bench.driver().shutdowns, before);
}

#[test]
fn a_start_that_fails_while_there_is_no_link_is_no_end() {
    let mut bench = Bench::pausing(0, |driver| driver.cable = Some(false));
    bench.driver().failing_starts = 2;
    bench.driver().cable = Some(true);
    assert!(!bench.snp().link_up());
    assert_eq!(bench.driver().mode.state, NetworkState::STARTED);
    // What it says of the cable is not what a start has found.
    bench.driver().mode.media_present = Boolean::TRUE;
    assert!(!bench.snp().link_up());
    assert!(bench.snp().link_up());
    bench.send(1).unwrap();
    assert_eq!(bench.driver().sent.len(), 1);
}

/// However fast it is asked: the wait for a link has an end of its own.
#[test]
fn a_status_that_is_not_told_is_no_end_while_there_is_no_link() {
    let mut bench = Bench::pausing(u64::MAX >> 1, |driver| driver.cable = Some(false));
    for _ in 0..100_000 {
        bench.driver().status = Some(Status::DEVICE_ERROR);
        assert!(!bench.snp().link_up());
    }
    bench.driver().mode.media_present = Boolean::TRUE;
    assert!(bench.snp().link_up());
}

#[test]
fn pauses_between_starts_grow() {
    let mut firmware = Driver::new();
    firmware.mode.media_present = Boolean::FALSE;
    let driver = SnpDriver {
        protocol: NonNull::from(&mut *firmware).cast(),
        started: Cell::new(0),
        pause: Cell::new(1),
    };
    for pause in [2, 4, 8] {
        assert!(!driver.link_up());
        assert_eq!(driver.pause.get(), pause);
        assert_ne!(driver.started.replace(0), 0);
    }
    assert_eq!(firmware.shutdowns, 2);
}

#[test]
fn an_interface_that_works_or_has_just_been_started_is_not_started_anew() {
    let unplugged = |driver: &mut Driver| driver.cable = Some(false);
    let mut fresh = Bench::pausing(u64::MAX >> 1, unplugged);
    let mut sending = Bench::pausing(0, unplugged);
    sending.send(1).unwrap();
    let mut receiving = Bench::pausing(0, unplugged);
    receiving.driver().arriving.push_back(std::vec![0; 60]);
    receiving.received(1).unwrap();
    for bench in [&mut fresh, &mut sending, &mut receiving] {
        assert!(!bench.snp().link_up());
        assert_eq!(bench.driver().shutdowns, 0);
    }
}

#[test]
fn a_status_that_is_not_told_is_no_end_unless_it_never_is() {
    let mut bench = Bench::new(|_| {});
    bench.driver().status = Some(Status::DEVICE_ERROR);
    assert!(bench.snp().link_up());
    assert_eq!(bench.driver().status, None);
    bench.send(1).unwrap();
    bench.driver().arriving.push_back(std::vec![0; 60]);
    assert_eq!(bench.received(1), Ok(std::vec![60]));
    assert!(bench.snp().link_up());
    let end = (0..100_000).find(|_| {
        bench.driver().status = Some(Status::DEVICE_ERROR);
        !bench.snp().link_up()
    });
    assert_eq!(end, Some(1 << 16));
    assert!(matches!(bench.received(1), Err(Fault::Misbehaved(_))));
}

#[test]
fn short_frames_are_padded_with_zeros() {
    let mut bench = Bench::new(|_| {});
    bench.send(0xff).unwrap();
    // The same buffer again.
    assert!(bench.snp().split().1.idle());
    bench.send_bytes(42, 7).unwrap();
    let sent = bench.driver().sent.pop().unwrap();
    assert_eq!(sent, [[7_u8; 42].as_slice(), &[0; 18]].concat());
}
