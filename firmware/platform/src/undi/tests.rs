use super::*;
use crate::raw::undi::{
    OPFLAGS_RECEIVE_FILTER_ENABLE, PxeCdb, PxeCpbStart, PxeDirection, PxeIo,
    STATFLAGS_COMMAND_COMPLETE, STATFLAGS_GET_STATE_STARTED,
};
use core::cell::RefCell;
use std::collections::VecDeque;
use std::vec::Vec;
use wireboot_nic::{Nic, Offload, Receive, SendError, Transmit};

/// An UNDI of one interface for each test's thread.
#[derive(Default)]
struct Machine {
    /// As Get State tells it.
    state: u16,
    opened: Vec<PxeOpcode>,
    callbacks: Option<PxeCpbStart>,
    if_type: u8,
    memory: u32,
    frame: u32,
    receive_buffers: u16,
    filters: u16,
    /// Filters that it says it has, and does not take.
    refused: u16,
    no_media: bool,
    tells_link: bool,
    arriving: VecDeque<Vec<u8>>,
    /// Adds to the length that it tells.
    lie: u32,
    /// Frames that it takes before it must be asked for their buffers.
    room: usize,
    sent: Vec<Vec<u8>>,
    used: VecDeque<u64>,
    /// Answers to a command, instead of what it does.
    failing: Option<(PxeOpcode, PxeStatcode)>,
    /// Leaves all commands as they are.
    dead: bool,
}

std::thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::default();
}

fn machine<R>(of: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(of)
}

unsafe extern "efiapi" fn entry(cdb: u64) {
    // SAFETY: as the specification promises; no other reference to it lives during the call.
    let cdb = unsafe { &mut *ptr::with_exposed_provenance_mut::<PxeCdb>(cdb as usize) };
    machine(|machine| machine.execute(cdb));
}

impl Machine {
    fn execute(&mut self, cdb: &mut PxeCdb) {
        if self.dead {
            return;
        }
        assert_eq!((cdb.if_num, cdb.control), (3, 0));
        self.opened.push(cdb.op_code);
        let result = match self.failing {
            Some((command, code)) if command == cdb.op_code => Err(code),
            _ => self.command(cdb),
        };
        (cdb.stat_code, cdb.stat_flags) = match result {
            Ok(flags) => (PxeStatcode::SUCCESS, STATFLAGS_COMMAND_COMPLETE | flags),
            Err(code) => (code, 0x8000),
        };
    }

    fn command(&mut self, cdb: &PxeCdb) -> Result<u16, PxeStatcode> {
        let initialized = self.state == STATFLAGS_GET_STATE_INITIALIZED;
        let started = self.state == STATFLAGS_GET_STATE_STARTED;
        match cdb.op_code {
            PxeOpcode::GET_STATE => return Ok(self.state),
            PxeOpcode::START => {
                assert_eq!(self.state, 0);
                self.callbacks = Some(parameters(cdb));
                self.state = STATFLAGS_GET_STATE_STARTED;
            }
            PxeOpcode::STOP if started => self.state = 0,
            PxeOpcode::STOP => return Err(PxeStatcode::NOT_STARTED),
            PxeOpcode::GET_INIT_INFO => {
                answer(
                    cdb,
                    PxeDbGetInitInfo {
                        memory_required: self.memory,
                        frame_data_len: self.frame,
                        media_header_len: 14,
                        hw_addr_len: 6,
                        if_type: self.if_type,
                        ..Default::default()
                    },
                );
                return Ok(u16::from(self.tells_link) * STATFLAGS_GET_STATUS_NO_MEDIA_SUPPORTED);
            }
            PxeOpcode::INITIALIZE if started => {
                assert_eq!(cdb.op_flags, 1);
                let given: PxeCpbInitialize = parameters(cdb);
                assert_eq!({ given.memory_length }, 0);
                answer(
                    cdb,
                    PxeDbInitialize {
                        rx_buf_cnt: self.receive_buffers,
                        ..Default::default()
                    },
                );
                self.state = STATFLAGS_GET_STATE_INITIALIZED;
            }
            PxeOpcode::SHUTDOWN if initialized => self.state = STATFLAGS_GET_STATE_STARTED,
            _ if !initialized => return Err(PxeStatcode::NOT_INITIALIZED),
            PxeOpcode::STATION_ADDRESS => {
                let mut addresses = PxeDbStationAddress::default();
                addresses.station_addr[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
                answer(cdb, addresses);
            }
            PxeOpcode::RECEIVE_FILTERS if cdb.op_flags & self.refused != 0 => {
                return Err(PxeStatcode::DEVICE_FAILURE);
            }
            PxeOpcode::RECEIVE_FILTERS => self.filters |= cdb.op_flags,
            PxeOpcode::GET_STATUS => {
                let mut status = PxeDbGetStatus::default();
                let mut flags = u16::from(self.no_media) * STATFLAGS_GET_STATUS_NO_MEDIA;
                match self.used.pop_front() {
                    Some(buffer) => {
                        status.tx_buffer[0] = buffer;
                        self.room += 1;
                    }
                    None => flags |= STATFLAGS_GET_STATUS_NO_TXBUFS_WRITTEN,
                }
                answer(cdb, status);
                return Ok(flags);
            }
            PxeOpcode::TRANSMIT => {
                let given: PxeCpbTransmit = parameters(cdb);
                self.room = self.room.checked_sub(1).ok_or(PxeStatcode::QUEUE_FULL)?;
                let frame = ptr::with_exposed_provenance::<u8>(given.frame_addr as usize);
                // SAFETY: as the command promises.
                let frame = unsafe { core::slice::from_raw_parts(frame, given.data_len as usize) };
                self.sent.push(frame.to_vec());
                self.used.push_back(given.frame_addr);
            }
            PxeOpcode::RECEIVE => {
                let given: PxeCpbReceive = parameters(cdb);
                let frame = self.arriving.pop_front().ok_or(PxeStatcode::NO_DATA)?;
                assert!(frame.len() <= given.buffer_len as usize);
                let buffer = ptr::with_exposed_provenance_mut::<u8>(given.buffer_addr as usize);
                // SAFETY: as the command promises.
                unsafe { buffer.copy_from_nonoverlapping(frame.as_ptr(), frame.len()) };
                answer(
                    cdb,
                    PxeDbReceive {
                        frame_len: frame.len() as u32 + self.lie,
                        ..Default::default()
                    },
                );
            }
            _ => return Err(PxeStatcode::UNSUPPORTED),
        }
        Ok(0)
    }
}

fn parameters<P>(cdb: &PxeCdb) -> P {
    assert_eq!(usize::from(cdb.cpb_size), size_of::<P>());
    // SAFETY: as long as it says, and of the command's type.
    unsafe { ptr::with_exposed_provenance::<P>(cdb.cpb_addr as usize).read_unaligned() }
}

fn answer<R>(cdb: &PxeCdb, results: R) {
    assert_eq!(usize::from(cdb.db_size), size_of::<R>());
    // SAFETY: as above.
    unsafe { ptr::with_exposed_provenance_mut::<R>(cdb.db_addr as usize).write_unaligned(results) };
}

fn opened(prepare: impl FnOnce(&mut Machine)) -> Result<Undi, UndiError> {
    opened_with(OPFLAGS_RECEIVE_FILTER_BROADCAST, prepare)
}

/// One that has these filters.
fn opened_with(filters: u16, prepare: impl FnOnce(&mut Machine)) -> Result<Undi, UndiError> {
    machine(|machine| {
        *machine = Machine {
            if_type: 1,
            frame: 1500,
            room: 100,
            tells_link: true,
            ..Machine::default()
        };
        prepare(machine);
    });
    let commands = Commands { entry, number: 3 };
    // SAFETY: an UNDI, and nobody else in this thread uses it.
    let interface = unsafe { Interface::new(commands, Clock::ticking(1_000_000_000), None) };
    Undi::start(interface, filters, None)
}

fn undi() -> Undi {
    opened(|_| {}).unwrap()
}

fn received(undi: &mut Undi, budget: usize) -> Result<Vec<usize>, Fault> {
    let mut seen = Vec::new();
    let lent = undi.split().0.burst(budget, |frame| seen.push(frame.len))?;
    assert_eq!(lent, seen.len());
    Ok(seen)
}

fn send(undi: &mut Undi, byte: u8) -> Result<(), SendError> {
    let (_, mut tx) = undi.split();
    tx.send(60, Offload::None, &mut |frame| frame.fill(byte))?;
    tx.flush().map_err(SendError::Fault)
}

#[test]
fn starts_whatever_the_state_and_stops() {
    for state in 0..3 {
        let undi = opened(|machine| machine.state = state).unwrap();
        let properties = undi.properties();
        assert_eq!((properties.mac, properties.mtu), ([2, 0, 0, 0, 0, 7], 1500));
        assert_eq!(properties.receive_frames_probe, 56);
        machine(|machine| {
            assert_eq!(machine.state, STATFLAGS_GET_STATE_INITIALIZED);
            // Unicast and broadcast.
            assert_eq!(machine.filters, OPFLAGS_RECEIVE_FILTER_ENABLE | 3);
        });
        drop(undi);
        assert_eq!(machine(|machine| machine.state), 0);
    }
    // It tells.
    let undi = opened(|machine| machine.receive_buffers = 20).unwrap();
    let properties = undi.properties();
    assert_eq!(
        (properties.receive_frames, properties.receive_frames_probe),
        (20, 0)
    );
}

#[test]
fn all_groups_are_heard_or_everybody_or_this_station() {
    // This station is bit 0, broadcasts bit 1, everybody bit 3, all groups bit 4; the highest says that they are to be on.
    for (known, refused, on) in [
        (0x1a, 0, 0x8013),
        (0x0a, 0, 0x800b),
        (0x18, 0, 0x8009),
        (0x02, 0, 0x8003),
        (0x1a, 0x10, 0x800b),
        (0x1a, 0x18, 0x8003),
        // None is taken, which is no end.
        (0x1a, 0x01, 0),
    ] {
        let undi = opened_with(known, |machine| machine.refused = refused);
        assert!(undi.is_ok());
        assert_eq!(machine(|machine| machine.filters), on);
    }
}

#[test]
fn what_does_not_start_is_stopped() {
    let refused = |prepare: fn(&mut Machine)| {
        let error = opened(prepare).err().unwrap();
        assert_eq!(machine(|machine| machine.state), 0);
        error
    };
    assert_eq!(refused(|machine| machine.if_type = 6), UndiError::Link);
    assert_eq!(refused(|machine| machine.frame = 300), UndiError::Link);
    assert_eq!(
        refused(|machine| machine.memory = u32::MAX),
        UndiError::Memory(u32::MAX)
    );
    for command in [
        PxeOpcode::GET_STATE,
        PxeOpcode::START,
        PxeOpcode::GET_INIT_INFO,
        PxeOpcode::INITIALIZE,
        PxeOpcode::STATION_ADDRESS,
    ] {
        let code = PxeStatcode::DEVICE_FAILURE;
        let error = opened(|machine| machine.failing = Some((command, code))).err();
        assert_eq!(error, Some(UndiError::Command { command, code }));
        assert_eq!(machine(|machine| machine.state), 0, "{command:?}");
    }
    let command = PxeOpcode::GET_STATE;
    let code = PxeStatcode::INVALID_UNDI;
    let error = opened(|machine| machine.dead = true).err();
    assert_eq!(error, Some(UndiError::Command { command, code }));
}

#[test]
fn bursts_end_with_the_budget_or_the_frames() {
    let mut undi = undi();
    machine(|machine| {
        let frames = (0..5).map(|n| std::vec![0; 60 + n]);
        machine.arriving.extend(frames);
    });
    assert_eq!(received(&mut undi, 2), Ok(std::vec![60, 61]));
    assert_eq!(received(&mut undi, 8), Ok(std::vec![62, 63, 64]));
    assert_eq!(received(&mut undi, 8), Ok(Vec::new()));
    // A frame of which the rest is lost.
    machine(|machine| {
        machine.lie = 1 << 20;
        machine.arriving.push_back(std::vec![0; 60]);
    });
    assert_eq!(received(&mut undi, 8), Ok(Vec::new()));
    assert_eq!(undi.counters().receive_dropped, 1);
}

#[test]
fn errors_are_no_end_but_nothing_else_is_one() {
    for code in [PxeStatcode::DEVICE_FAILURE, PxeStatcode::INVALID_CDB] {
        let mut undi = undi();
        let failing = Some((PxeOpcode::RECEIVE, code));
        machine(|machine| machine.failing = failing);
        assert_eq!(received(&mut undi, 10), Ok(Vec::new()));
        machine(|machine| {
            machine.failing = None;
            machine.arriving.push_back(std::vec![0; 60]);
        });
        assert_eq!(received(&mut undi, 10), Ok(std::vec![60]));
        machine(|machine| machine.failing = failing);
        let end = (0..10).find_map(|_| received(&mut undi, 10_000).err());
        assert!(matches!(end, Some(Fault::Misbehaved(_))));
        assert_eq!(machine(|machine| machine.state), 0);
        assert_eq!(send(&mut undi, 1), Err(SendError::Fault(end.unwrap())));
    }
    // Of its status, one error is none either, and a busy one is asked again.
    for code in [PxeStatcode::DEVICE_FAILURE, PxeStatcode::BUSY] {
        let mut undi = undi();
        machine(|machine| machine.failing = Some((PxeOpcode::GET_STATUS, code)));
        assert!(undi.link_up());
        send(&mut undi, 1).unwrap();
    }
    // One that has been taken from us, and one that does nothing any more.
    let mut taken = undi();
    machine(|machine| machine.state = STATFLAGS_GET_STATE_STARTED);
    assert!(matches!(
        received(&mut taken, 1),
        Err(Fault::Misbehaved("somebody else has stopped it"))
    ));
    let mut silent = undi();
    machine(|machine| machine.dead = true);
    assert!(matches!(
        received(&mut silent, 1),
        Err(Fault::Misbehaved("the firmware's driver does nothing"))
    ));
}

#[test]
fn buffers_are_the_drivers_until_it_hands_them_back() {
    let mut undi = undi();
    send(&mut undi, 9).unwrap();
    assert_eq!(
        machine(|machine| machine.sent.pop()),
        Some(std::vec![9; 60])
    );
    let held = machine(|machine| core::mem::take(&mut machine.used));
    assert!(!undi.split().1.idle());
    machine(|machine| machine.used = held);
    assert!(undi.split().1.idle());
    // None comes back: the pool ends.
    for byte in 0..32 {
        send(&mut undi, byte).unwrap();
        machine(|machine| machine.used.clear());
    }
    assert_eq!(send(&mut undi, 0), Err(SendError::Full));
    assert_eq!(undi.split().1.room(), 0);
    // A driver that hands back for ever is not listened to for ever.
    machine(|machine| machine.used.extend(core::iter::repeat_n(64, 1000)));
    assert_eq!(undi.split().1.room(), 32);
    assert!(machine(|machine| machine.used.len()) > 900);
}

#[test]
fn a_full_driver_is_asked_what_has_left() {
    let mut undi = opened(|machine| machine.room = 2).unwrap();
    for byte in 0..20 {
        send(&mut undi, byte).unwrap();
    }
    let order: Vec<u8> = machine(|machine| machine.sent.iter().map(|frame| frame[0]).collect());
    assert_eq!(order, (0..20).collect::<Vec<u8>>());
}

#[test]
fn the_link_is_what_the_driver_says_if_it_can_tell() {
    let mut undi = undi();
    assert!(undi.link_up());
    machine(|machine| machine.no_media = true);
    assert!(!undi.link_up());
    drop(undi);
    let mut silent = opened(|machine| machine.tells_link = false).unwrap();
    machine(|machine| machine.no_media = true);
    assert!(silent.link_up());
}

#[test]
fn memory_stays_with_a_device_that_does_not_stop() {
    let undi = undi();
    let failing = (PxeOpcode::SHUTDOWN, PxeStatcode::DEVICE_FAILURE);
    machine(|machine| machine.failing = Some(failing));
    drop(undi);
    // The context is there: the driver may still call.
    let callbacks = machine(|machine| machine.callbacks).unwrap();
    // SAFETY: as a driver does.
    unsafe { (callbacks.delay)(callbacks.unique_id, 1) };
}

#[test]
fn callbacks_serve_whatever_a_driver_asks() {
    let undi = undi();
    let callbacks = machine(|machine| machine.callbacks).unwrap();
    let id = callbacks.unique_id;
    let mut mapped = 7;
    let mut register = 0u64;
    let buffer = (&raw mut register).expose_provenance() as u64;
    // SAFETY: as a driver does, with mistakes. There is no PCI function, so that nothing is reached.
    unsafe {
        (callbacks.delay)(id, 10);
        for enable in [0, 1, 1, 0, 0] {
            (callbacks.block)(id, enable);
        }
        for operation in 0..6 {
            for bytes in [0, 1, 3, 8] {
                (callbacks.mem_io)(id, PxeIo(operation), bytes, 0, buffer);
            }
        }
        for direction in (0..4).map(PxeDirection) {
            (callbacks.map_mem)(id, buffer, 8, direction, &raw mut mapped);
            assert_eq!(mapped, 0);
            (callbacks.sync_mem)(id, buffer, 8, direction, 64);
            (callbacks.unmap_mem)(id, buffer, 8, direction, 64);
        }
    }
    assert_eq!(callbacks.virt2phys, 0);
    drop(undi);
}
