use super::*;
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
    let mode = &mut driver(this).mode;
    assert_eq!(mode.state, NetworkState::STARTED);
    mode.state = NetworkState::INITIALIZED;
    Status::SUCCESS
}

unsafe extern "efiapi" fn reset(_: *const SimpleNetworkProtocol, _: Boolean) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn shutdown(this: *const SimpleNetworkProtocol) -> Status {
    let driver = driver(this);
    driver.shutdowns += 1;
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
    let mode = &mut driver(this).mode;
    if mode.receive_filter_mask == 0 {
        return Status::UNSUPPORTED;
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
            receive_filter_mask: 0b1_0101,
            receive_filter_setting: 0b1_0000,
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
        let mut driver = Driver::new();
        prepare(&mut driver);
        let driver = Box::into_raw(driver);
        let protocol = NonNull::new(driver.cast()).unwrap();
        // SAFETY: freed behind the `Snp`.
        let snp = unsafe { Snp::start(protocol, None, |_| STATION) }.unwrap();
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
        let (_, mut tx) = self.snp().split();
        tx.send(60, Offload::None, &mut |frame| frame.fill(byte))?;
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
        // Unicast and broadcast; what was on before, and is known, is off.
        assert_eq!(mode.receive_filter_setting, 0b0_0101);
        let before = bench.driver().shutdowns;
        bench.snp = None;
        assert_eq!(bench.driver().shutdowns, before + 1);
        assert_eq!(bench.driver().mode.state, NetworkState::STOPPED);
    }
}

#[test]
fn who_listens_hears_all_groups_or_everybody() {
    // All groups is the highest of these bits, everybody the one below it.
    for (known, on) in [(0b1_1111, 0b1_0101), (0b0_1111, 0b0_1101)] {
        let mut driver = Driver::new();
        driver.mode.receive_filter_mask = known;
        driver.mode.receive_filter_setting = 0;
        let protocol = NonNull::from(&mut *driver).cast();
        // SAFETY: the driver outlives it.
        let snp = unsafe { Snp::start(protocol, None, everything) };
        assert_eq!(driver.mode.receive_filter_setting, on);
        drop(snp);
    }
}

#[test]
fn a_link_that_carries_no_full_packets_is_refused() {
    let mut driver = Driver::new();
    driver.mode.max_packet_size = 300;
    let protocol = NonNull::from(&mut *driver).cast();
    // SAFETY: the driver outlives it.
    let started = unsafe { Snp::start(protocol, None, |_| STATION) };
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
