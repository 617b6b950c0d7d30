//! EFI_SIMPLE_NETWORK_PROTOCOL: its table.

use crate::base_code;
use crate::caller::array;
use crate::offered::Offered;
use crate::shared::{Call, SharedProtocolState, Station};
use crate::signal::signal;
use crate::status::status;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, UnsafeCell};
use core::ffi::c_void;
use core::net::IpAddr;
use core::ptr::{self, NonNull};
use uefi::Event;
use uefi_raw::protocol::network::snp::{
    InterruptStatus, NetworkMode, NetworkState, NetworkStatistics, ReceiveFlags,
    SimpleNetworkProtocol,
};
use uefi_raw::{Boolean, IpAddress, MacAddress, Status};
use wireboot_protocols::Refusal;
use wireboot_protocols::simple_network::{
    Counts, Header, MAX_MULTICAST, MEDIA_HEADER, filter, multicast_mac,
};

/// EFI_SIMPLE_NETWORK_PROTOCOL_REVISION.
const REVISION: u64 = 0x0001_0000;
/// No frame is so long.
const LONGEST_FRAME: usize = 0x1_0000;
/// IfType of Ethernet (RFC 3232).
const ETHERNET: u8 = 1;
/// The network is looked after in every so many calls, and where a caller waits for a frame.
const CALLS: u32 = 16;

static OFFERED: Offered<SnpTable> = Offered::none();

/// The protocol and what it points to.
#[repr(C)]
pub(crate) struct SnpTable {
    /// First, so that `this` is also the table's address.
    protocol: SimpleNetworkProtocol,
    mode: UnsafeCell<NetworkMode>,
    shared: &'static SharedProtocolState,
    calls: Cell<u32>,
}

fn mac(address: [u8; 6]) -> MacAddress {
    let mut bytes = [0; 32];
    if let Some(first) = bytes.first_chunk_mut() {
        *first = address;
    }
    MacAddress(bytes)
}

fn six(address: &MacAddress) -> [u8; 6] {
    address.0.first_chunk().copied().unwrap_or_default()
}

fn answer(result: Result<(), Refusal>) -> Status {
    result.map_or_else(status, |()| Status::SUCCESS)
}

impl SnpTable {
    pub(crate) fn new(shared: &'static SharedProtocolState, station: &Station) -> Box<Self> {
        let mode = NetworkMode {
            state: NetworkState::STOPPED,
            hw_address_size: 6,
            media_header_size: MEDIA_HEADER as u32,
            max_packet_size: station.mtu.into(),
            nv_ram_size: 0,
            nv_ram_access_size: 0,
            receive_filter_mask: filter::MASK,
            receive_filter_setting: 0,
            max_mcast_filter_count: MAX_MULTICAST as u32,
            mcast_filter_count: 0,
            mcast_filter: [MacAddress::default(); 16],
            current_address: mac(station.mac),
            broadcast_address: mac([0xff; 6]),
            permanent_address: mac(station.mac),
            if_type: ETHERNET,
            mac_address_changeable: Boolean::FALSE,
            multiple_tx_supported: Boolean::TRUE,
            media_present_supported: Boolean::TRUE,
            media_present: Boolean::TRUE,
        };
        let mut table = Box::new(Self {
            protocol: SimpleNetworkProtocol {
                revision: REVISION,
                start,
                stop,
                initialize,
                reset,
                shutdown,
                receive_filters,
                station_address,
                statistics,
                multicast_ip_to_mac,
                non_volatile_data,
                get_status,
                transmit,
                receive,
                wait_for_packet: ptr::null_mut(),
                mode: ptr::null(),
            },
            mode: UnsafeCell::new(mode),
            shared,
            calls: Cell::new(0),
        });
        table.protocol.mode = table.mode.get();
        OFFERED.set(&table);
        table
    }

    /// The event of WaitForPacket, as long as the table is installed.
    pub(crate) fn set_wait_for_packet(&mut self, event: Option<&Event>) {
        self.protocol.wait_for_packet = event.map_or(ptr::null_mut(), Event::as_ptr);
    }

    pub(crate) fn protocol(&self) -> *const c_void {
        (&raw const self.protocol).cast()
    }

    /// Shows the state in the mode.
    fn show(&self, call: &Call<'_>) {
        let snp = &call.state.snp;
        // SAFETY: callers read the mode between calls.
        let mode = unsafe { &mut *self.mode.get() };
        mode.state = NetworkState(snp.state() as u32);
        mode.media_present = call.state.network.link_up().into();
        mode.receive_filter_setting = snp.filters();
        mode.mcast_filter_count = snp.multicast().len() as u32;
        for (place, address) in mode.mcast_filter.iter_mut().zip(snp.multicast()) {
            *place = mac(*address);
        }
    }
}

impl Drop for SnpTable {
    fn drop(&mut self) {
        OFFERED.forget(self);
    }
}

/// Does `work` with the table's interface, and shows what became of its state.
fn with(this: *const SimpleNetworkProtocol, work: impl FnOnce(&mut Call<'_>) -> Status) -> Status {
    let Some(table) = OFFERED.at(this) else {
        return Status::INVALID_PARAMETER;
    };
    let mut call = match table.shared.call() {
        Ok(call) => call,
        Err(refusal) => return status(refusal),
    };
    let calls = table.calls.get().wrapping_add(1);
    table.calls.set(calls);
    if calls.is_multiple_of(CALLS) {
        call.state.network.turn();
    }
    let status = work(&mut call);
    table.show(&call);
    status
}

/// Looks after the network where no frame waits: what was sent has to leave, and an answer may have come.
fn turn_for_frames(call: &mut Call<'_>) {
    if call.state.snp.waits() == Ok(false) {
        call.state.network.turn();
    }
}

pub(crate) unsafe extern "efiapi" fn on_wait(event: Event, context: Option<NonNull<c_void>>) {
    let Some(context) = context else { return };
    // SAFETY: the context lives as long as the event.
    let shared = unsafe { context.cast::<SharedProtocolState>().as_ref() };
    let waits = shared.call().is_ok_and(|mut call| {
        call.state.network.turn();
        call.state.snp.waits() == Ok(true)
    });
    if waits {
        signal(event.as_ptr());
    }
}

unsafe extern "efiapi" fn start(this: *const SimpleNetworkProtocol) -> Status {
    with(this, |call| answer(call.state.snp.start()))
}

unsafe extern "efiapi" fn stop(this: *const SimpleNetworkProtocol) -> Status {
    with(this, |call| answer(call.state.snp.stop()))
}

unsafe extern "efiapi" fn initialize(
    this: *const SimpleNetworkProtocol,
    _extra_receive: usize,
    _extra_transmit: usize,
) -> Status {
    with(this, |call| answer(call.state.snp.initialize()))
}

unsafe extern "efiapi" fn reset(this: *const SimpleNetworkProtocol, _extended: Boolean) -> Status {
    with(this, |call| answer(call.state.snp.reset()))
}

unsafe extern "efiapi" fn shutdown(this: *const SimpleNetworkProtocol) -> Status {
    with(this, |call| answer(call.state.snp.shutdown()))
}

unsafe extern "efiapi" fn receive_filters(
    this: *const SimpleNetworkProtocol,
    enable: ReceiveFlags,
    disable: ReceiveFlags,
    reset_multicast: Boolean,
    count: usize,
    list: *const MacAddress,
) -> Status {
    let reset = bool::from(reset_multicast);
    let count = if reset { 0 } else { count };
    // SAFETY: the caller's list of so many addresses.
    let Some(list) = (unsafe { array(list, count, MAX_MULTICAST) }) else {
        return Status::INVALID_PARAMETER;
    };
    let list: Vec<[u8; 6]> = list.iter().map(six).collect();
    with(this, |call| {
        let snp = &mut call.state.snp;
        match snp.receive_filters(enable.bits(), disable.bits(), reset, &list) {
            // EDK II's is initialized while the base code is started. WDS' client sets filters then, and reads no datagram where it cannot.
            Err(Refusal::NotStarted | Refusal::DeviceError) if base_code::is_started() => {
                Status::SUCCESS
            }
            set => answer(set),
        }
    })
}

unsafe extern "efiapi" fn station_address(
    this: *const SimpleNetworkProtocol,
    reset: Boolean,
    new: *const MacAddress,
) -> Status {
    let reset = bool::from(reset);
    // SAFETY: null or the caller's address.
    let new = unsafe { new.as_ref() };
    if !reset && new.is_none() {
        return Status::INVALID_PARAMETER;
    }
    let new = new.filter(|_| !reset).map(six);
    with(this, |call| answer(call.state.snp.station_address(new)))
}

unsafe extern "efiapi" fn statistics(
    this: *const SimpleNetworkProtocol,
    reset: Boolean,
    size: *mut usize,
    table: *mut NetworkStatistics,
) -> Status {
    if size.is_null() && !(bool::from(reset) && table.is_null()) {
        return Status::INVALID_PARAMETER;
    }
    with(this, |call| {
        let (received, sent) = match call.state.snp.statistics(reset.into()) {
            Ok(counts) => counts,
            Err(refusal) => return status(refusal),
        };
        if size.is_null() {
            return Status::SUCCESS;
        }
        let all = table_of(&received, &sent);
        // SAFETY: the caller's variable.
        let room = unsafe { size.read_unaligned() };
        // SAFETY: as above.
        unsafe { size.write_unaligned(size_of::<NetworkStatistics>()) };
        if !table.is_null() {
            let count = room.min(size_of::<NetworkStatistics>());
            // SAFETY: the caller's buffer of `room` bytes.
            unsafe {
                ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), table.cast(), count);
            }
        }
        if table.is_null() || room < size_of::<NetworkStatistics>() {
            return Status::BUFFER_TOO_SMALL;
        }
        Status::SUCCESS
    })
}

fn table_of(received: &Counts, sent: &Counts) -> NetworkStatistics {
    // What is not counted is all ones.
    const NONE: u64 = u64::MAX;
    NetworkStatistics {
        rx_total_frames: received.frames + received.dropped,
        rx_good_frames: received.frames,
        rx_undersize_frames: NONE,
        rx_oversize_frames: NONE,
        rx_dropped_frames: received.dropped,
        rx_unicast_frames: received.unicast,
        rx_broadcast_frames: received.broadcast,
        rx_multicast_frames: received.multicast,
        rx_crc_error_frames: NONE,
        rx_total_bytes: received.bytes,
        tx_total_frames: sent.frames + sent.dropped,
        tx_good_frames: sent.frames,
        tx_undersize_frames: NONE,
        tx_oversize_frames: NONE,
        tx_dropped_frames: sent.dropped,
        tx_unicast_frames: sent.unicast,
        tx_broadcast_frames: sent.broadcast,
        tx_multicast_frames: sent.multicast,
        tx_crc_error_frames: NONE,
        tx_total_bytes: sent.bytes,
        collisions: NONE,
        unsupported_protocol: NONE,
        rx_duplicated_frames: NONE,
        rx_decrypt_error_frames: NONE,
        tx_error_frames: NONE,
        tx_retry_frames: NONE,
    }
}

unsafe extern "efiapi" fn multicast_ip_to_mac(
    this: *const SimpleNetworkProtocol,
    ipv6: Boolean,
    ip: *const IpAddress,
    to: *mut MacAddress,
) -> Status {
    if ip.is_null() || to.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: the caller's address, of 16 bytes in either version.
    let bytes = unsafe { ip.cast::<[u8; 16]>().read_unaligned() };
    let group: IpAddr = match (bool::from(ipv6), bytes.first_chunk::<4>()) {
        (false, Some(v4)) => (*v4).into(),
        _ => bytes.into(),
    };
    with(this, |call| {
        if call.state.snp.statistics(false).is_err() {
            return answer(call.state.snp.statistics(false).map(drop));
        }
        match multicast_mac(group) {
            Ok(address) => {
                // SAFETY: the caller's variable.
                unsafe { to.write_unaligned(mac(address)) };
                Status::SUCCESS
            }
            Err(refusal) => status(refusal),
        }
    })
}

unsafe extern "efiapi" fn non_volatile_data(
    _this: *const SimpleNetworkProtocol,
    _read: Boolean,
    _offset: usize,
    _size: usize,
    _buffer: *mut c_void,
) -> Status {
    Status::UNSUPPORTED
}

unsafe extern "efiapi" fn get_status(
    this: *const SimpleNetworkProtocol,
    interrupts: *mut InterruptStatus,
    recycled: *mut *mut c_void,
) -> Status {
    if interrupts.is_null() && recycled.is_null() {
        return Status::INVALID_PARAMETER;
    }
    with(this, |call| {
        turn_for_frames(call);
        let (bits, buffer) = match call.state.snp.status(!recycled.is_null()) {
            Ok(told) => told,
            Err(refusal) => return status(refusal),
        };
        // SAFETY: null or the caller's variables.
        unsafe {
            if !interrupts.is_null() {
                interrupts.write_unaligned(InterruptStatus::from_bits_retain(bits));
            }
            if !recycled.is_null() {
                recycled.write_unaligned(buffer.unwrap_or(0) as *mut c_void);
            }
        }
        Status::SUCCESS
    })
}

unsafe extern "efiapi" fn transmit(
    this: *const SimpleNetworkProtocol,
    header_size: usize,
    size: usize,
    buffer: *const c_void,
    source: *const MacAddress,
    destination: *const MacAddress,
    protocol: *const u16,
) -> Status {
    if buffer.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: null or the caller's variables, aligned or not.
    let header = unsafe {
        match header_size {
            0 => None,
            MEDIA_HEADER if !destination.is_null() && !protocol.is_null() => Some(Header {
                source: (!source.is_null()).then(|| six(&source.read_unaligned())),
                destination: six(&destination.read_unaligned()),
                protocol: protocol.read_unaligned(),
            }),
            _ => return Status::INVALID_PARAMETER,
        }
    };
    // SAFETY: the caller's frame of `size` bytes.
    let Some(frame) = (unsafe { array(buffer.cast::<u8>(), size, LONGEST_FRAME) }) else {
        return Status::INVALID_PARAMETER;
    };
    with(this, |call| {
        let address = buffer as usize;
        let sent = call.state.snp.transmit(header, frame, address);
        if sent != Err(Refusal::NotReady) {
            return answer(sent);
        }
        call.state.network.turn();
        answer(call.state.snp.transmit(header, frame, address))
    })
}

unsafe extern "efiapi" fn receive(
    this: *const SimpleNetworkProtocol,
    header_size: *mut usize,
    size: *mut usize,
    buffer: *mut c_void,
    source: *mut MacAddress,
    destination: *mut MacAddress,
    protocol: *mut u16,
) -> Status {
    if size.is_null() || buffer.is_null() {
        return Status::INVALID_PARAMETER;
    }
    with(this, |call| {
        turn_for_frames(call);
        let received = call.state.snp.receive(|frame| {
            // SAFETY: the caller's variables; the buffer holds as many bytes as its size says.
            unsafe {
                let room = size.read_unaligned();
                size.write_unaligned(frame.len());
                if room < frame.len() {
                    return Err(Refusal::BufferTooSmall(frame.len()));
                }
                ptr::copy_nonoverlapping(frame.as_ptr(), buffer.cast(), frame.len());
                if !header_size.is_null() {
                    header_size.write_unaligned(MEDIA_HEADER);
                }
                if let Some(header) = frame.first_chunk::<MEDIA_HEADER>() {
                    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *header;
                    if !destination.is_null() {
                        destination.write_unaligned(mac([a, b, c, d, e, f]));
                    }
                    if !source.is_null() {
                        source.write_unaligned(mac([g, h, i, j, k, l]));
                    }
                    if !protocol.is_null() {
                        protocol.write_unaligned(u16::from_be_bytes([m, n]));
                    }
                }
            }
            Ok(())
        });
        answer(received)
    })
}
