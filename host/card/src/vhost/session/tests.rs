//! A session by its messages, with a card that holds it to its promises.

use std::os::unix::net::UnixStream;

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wireboot_card::feature;

use super::*;
use crate::vhost::fuzz::{Watched, fuzz_card_vhost, send};
use crate::vhost::{Connection, ConnectionError};

const MEMORY: u64 = 0x10000;
/// Where the monitor has the guest's memory.
const USER: u64 = 0x7f00_0000_0000;

fn file() -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, MEMORY).unwrap();
    file
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

fn tell(session: &mut Session<Watched>, request: Request, fds: Vec<OwnedFd>) -> Reply {
    session.request(request, fds).unwrap()
}

fn table() -> Request {
    Request::SetMemoryTable(vec![MemoryRegion {
        guest: 0x4000,
        len: MEMORY,
        user: USER,
        offset: 0,
    }])
}

fn kick(ring: usize) -> Request {
    Request::SetRingEvent {
        ring,
        event: RingEvent::Kick,
        fd: true,
    }
}

/// What QEMU 7.2 sends for a ring, in its order.
fn ring(session: &mut Session<Watched>, ring: usize) {
    tell(session, Request::SetRingSize { ring, size: 256 }, vec![]);
    tell(session, Request::SetRingBase { ring, base: 7 }, vec![]);
    let addresses = Request::SetRingAddresses {
        ring,
        descriptors: USER,
        used: USER + 0x2000,
        available: USER + 0x1000,
    };
    tell(session, addresses, vec![]);
    tell(session, kick(ring), vec![event()]);
}

fn session() -> Session<Watched> {
    let mut session = Session::new(Watched::default(), feature::KNOWN, 2);
    // Before the features: QEMU 7.2 does so.
    tell(
        &mut session,
        Request::SetProtocolFeatures(REPLY_ACK),
        vec![],
    );
    for ring in 0..4 {
        let enable = Request::SetRingEnable { ring, enable: true };
        tell(&mut session, enable, vec![]);
    }
    tell(
        &mut session,
        Request::SetFeatures(feature::VERSION_1),
        vec![],
    );
    session
}

#[test]
fn rings_start_when_all_is_there() {
    let mut session = session();
    assert!(session.lacks_memory());
    ring(&mut session, 0);
    assert_eq!(session.card.starts, 0);
    tell(&mut session, table(), vec![file()]);
    assert!(!session.lacks_memory());
    let started = session.card.running[0].as_ref().unwrap();
    let layout = RingLayout {
        size: 256,
        descriptors: 0x4000,
        available: 0x5000,
        used: 0x6000,
    };
    assert_eq!(
        started.start,
        RingStart {
            layout,
            base: 7,
            features: feature::VERSION_1
        }
    );
    assert!(session.card.running[1].is_none());
}

#[test]
fn memory_that_can_be_taken_away_is_told_of_once() {
    let mut session = session();
    let sealed = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&sealed, MEMORY).unwrap();
    tell(&mut session, table(), vec![sealed]);
    assert!(!session.take_open_memory());
    tell(&mut session, table(), vec![file()]);
    assert!(session.take_open_memory() && !session.take_open_memory());
}

#[test]
fn what_is_agreed_on_was_offered_and_comes_to_the_card() {
    let offered = feature::RINGS | feature::CSUM;
    let mut session = Session::new(Watched::default(), offered, 1);
    let reply = tell(&mut session, Request::GetFeatures, vec![]);
    assert_eq!(reply, Reply::Number(offered | PROTOCOL_FEATURES));
    let agreed = feature::VERSION_1 | feature::CSUM;
    let wanted = Request::SetFeatures(agreed | PROTOCOL_FEATURES);
    tell(&mut session, wanted, vec![]);
    assert_eq!(session.card.agreed, agreed);
    let more = Request::SetFeatures(agreed | feature::HOST_TSO4);
    let error = session.request(more, vec![]).unwrap_err();
    assert!(matches!(error, SessionError::Features(_)), "{error}");
    assert_eq!(session.card.agreed, agreed);
}

#[test]
fn a_receive_ring_that_is_not_enabled_does_not_run() {
    let mut session = session();
    tell(&mut session, table(), vec![file()]);
    let enable = |enable| Request::SetRingEnable { ring: 2, enable };
    tell(&mut session, enable(false), vec![]);
    ring(&mut session, 2);
    assert!(session.card.running[2].is_none());
    tell(&mut session, enable(true), vec![]);
    assert!(session.card.running[2].is_some());
}

#[test]
fn a_transmit_ring_that_is_no_longer_enabled_loses_what_is_sent() {
    let mut session = session();
    tell(&mut session, table(), vec![file()]);
    let enable = |enable| Request::SetRingEnable { ring: 1, enable };
    let discards =
        |session: &Session<Watched>| session.card.running[1].as_ref().map(|ring| ring.discards);
    tell(&mut session, Request::GetRingBase { ring: 1 }, vec![]);
    tell(&mut session, enable(false), vec![]);
    ring(&mut session, 1);
    // Not enabled yet: the guest's first frames are not lost.
    assert_eq!(discards(&session), None);
    for enabled in [true, false, true, false] {
        tell(&mut session, enable(enabled), vec![]);
        assert_eq!(discards(&session), Some(!enabled));
        session.card.base = 41;
        let running = session.card.running[1].as_ref().unwrap();
        assert!(enabled || running.start.base == 41);
    }
    for stop in [Request::GetRingBase { ring: 1 }, Request::ResetOwner] {
        tell(&mut session, stop, vec![]);
        // Before it has a doorbell, that counts for nothing.
        tell(&mut session, enable(true), vec![]);
        tell(&mut session, enable(false), vec![]);
        tell(&mut session, kick(1), vec![event()]);
        assert_eq!(discards(&session), None);
        tell(&mut session, enable(true), vec![]);
    }
    // It is still enabled when it gets another doorbell.
    tell(&mut session, Request::GetRingBase { ring: 1 }, vec![]);
    tell(&mut session, kick(1), vec![event()]);
    tell(&mut session, enable(false), vec![]);
    assert_eq!(discards(&session), Some(true));
}

#[test]
fn without_protocol_features_rings_are_enabled() {
    let mut session = Session::new(Watched::default(), feature::KNOWN, 2);
    tell(
        &mut session,
        Request::SetFeatures(feature::VERSION_1),
        vec![],
    );
    tell(&mut session, table(), vec![file()]);
    ring(&mut session, 0);
    assert!(session.card.running[0].is_some());
}

#[test]
fn whoever_asks_for_the_base_stops_the_ring() {
    let mut session = session();
    tell(&mut session, table(), vec![file()]);
    ring(&mut session, 1);
    session.card.base = 99;
    let get = Request::GetRingBase { ring: 1 };
    let reply = tell(&mut session, get.clone(), vec![]);
    assert_eq!(reply, Reply::Base { ring: 1, base: 99 });
    assert_eq!(reply.bytes(), Some([1, 0, 0, 0, 99, 0, 0, 0]));
    assert!(session.card.running[1].is_none());
    // Not by anything but a new doorbell.
    tell(&mut session, table(), vec![file()]);
    assert!(session.card.running[1].is_none());
    assert_eq!(tell(&mut session, get, vec![]), reply);
    tell(&mut session, kick(1), vec![event()]);
    let again = session.card.running[1].as_ref().unwrap();
    assert_eq!(again.start.base, 99);
}

#[test]
fn each_pair_has_its_rings() {
    let mut session = session();
    tell(&mut session, table(), vec![file()]);
    // virtio 1.2, section 5.1.2: receiveq1, transmitq1, receiveq2, transmitq2.
    let queues = [
        (0, Queue::Receive),
        (0, Queue::Transmit),
        (1, Queue::Receive),
        (1, Queue::Transmit),
    ];
    for (number, (pair, queue)) in queues.into_iter().enumerate() {
        assert_eq!(PairQueue::of_ring(number), PairQueue { pair, queue });
        ring(&mut session, number);
        assert_eq!(session.card.starts, number + 1);
    }
    drop(session);
}

#[test]
fn a_ring_of_a_pair_that_there_is_not_ends_the_session() {
    let mut session = session();
    for request in [
        Request::SetRingSize { ring: 4, size: 8 },
        Request::SetRingEnable {
            ring: 15,
            enable: true,
        },
        Request::GetRingBase { ring: 4 },
    ] {
        let error = session.request(request, vec![]).unwrap_err();
        assert!(matches!(error, SessionError::Ring { rings: 4, .. }));
    }
    for kind in [RingEvent::Kick, RingEvent::Call, RingEvent::Error] {
        let request = Request::SetRingEvent {
            ring: 4,
            event: kind,
            fd: true,
        };
        let error = session.request(request, vec![event()]).unwrap_err();
        assert!(matches!(error, SessionError::Ring { ring: 4, .. }));
    }
}

#[test]
fn new_memory_while_a_ring_runs_pauses_it() {
    let mut session = session();
    tell(&mut session, table(), vec![file()]);
    ring(&mut session, 0);
    session.card.base = 41;
    tell(&mut session, table(), vec![file()]);
    assert_eq!(session.card.starts, 2);
    assert_eq!(session.card.running[0].as_ref().unwrap().start.base, 41);
}

#[test]
fn a_new_call_stops_nothing() {
    let mut session = session();
    tell(&mut session, table(), vec![file()]);
    ring(&mut session, 0);
    let call = |fd| Request::SetRingEvent {
        ring: 0,
        event: RingEvent::Call,
        fd,
    };
    tell(&mut session, call(true), vec![event()]);
    tell(&mut session, call(false), vec![]);
    assert_eq!(session.card.starts, 1);
    assert_eq!(session.card.calls_changed, 2);
}

#[test]
fn a_ring_at_no_address_is_the_cards_to_refuse() {
    let mut session = session();
    tell(&mut session, table(), vec![file()]);
    ring(&mut session, 0);
    let addresses = Request::SetRingAddresses {
        ring: 0,
        descriptors: USER + MEMORY,
        used: USER,
        available: USER - 1,
    };
    tell(&mut session, addresses, vec![]);
    let layout = session.card.running[0].as_ref().unwrap().start.layout;
    assert_eq!(layout.descriptors, !0xfff);
    assert_eq!(layout.available, !0xfff);
}

#[test]
fn what_cannot_be_ends_the_session() {
    let refused = |request, fds: Vec<OwnedFd>| session().request(request, fds).unwrap_err();
    let error = refused(table(), vec![]);
    assert!(error.to_string().contains("memory-backend-memfd,share=on"));
    let empty = refused(Request::SetMemoryTable(vec![]), vec![]);
    assert!(matches!(empty, SessionError::NoSharedMemory));
    let many = refused(table(), vec![file(), file()]);
    assert!(matches!(many, SessionError::Descriptors(2)));
    let short = refused(table(), vec![event()]);
    assert!(matches!(short, SessionError::Memory(_)));
    let features = refused(Request::SetFeatures(1 << 33), vec![]);
    assert!(matches!(features, SessionError::Features(_)));
    let features = refused(Request::SetProtocolFeatures(1 << 1), vec![]);
    assert!(matches!(features, SessionError::Features(2)));
    let size = refused(
        Request::SetRingSize {
            ring: 0,
            size: 1 << 16,
        },
        vec![],
    );
    assert!(matches!(size, SessionError::Size(_)));
    let base = refused(
        Request::SetRingBase {
            ring: 0,
            base: 1 << 16,
        },
        vec![],
    );
    assert!(matches!(base, SessionError::Base(_)));
    let silent = Request::SetRingEvent {
        ring: 0,
        event: RingEvent::Kick,
        fd: false,
    };
    assert!(matches!(refused(silent, vec![]), SessionError::NoKick));
    assert!(matches!(
        refused(kick(0), vec![]),
        SessionError::Descriptors(0)
    ));
}

#[test]
fn a_session_that_ends_stops_its_rings() {
    let mut session = session();
    tell(&mut session, table(), vec![file()]);
    ring(&mut session, 0);
    // The card would complain of memory that goes while a ring runs.
    drop(session);
}

/// A message as bytes.
fn bytes(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [request, flags, payload.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(payload);
    bytes
}

#[test]
fn messages_come_in_pieces_and_with_their_own_descriptors() {
    let (monitor, card) = UnixStream::pair().unwrap();
    let mut connection = Connection::new(card).unwrap();
    assert!(connection.receive().unwrap().is_none());
    let kick = bytes(12, 1, &0u64.to_le_bytes());
    send(&monitor, &kick[..5], &[event()]);
    assert!(connection.receive().unwrap().is_none());
    send(&monitor, &kick[5..14], &[]);
    assert!(connection.receive().unwrap().is_none());
    send(&monitor, &kick[14..], &[]);
    send(&monitor, &bytes(1, 9, &[]), &[]);
    send(&monitor, &bytes(5, 1, &[0; 8]), &[file(), file()]);
    let first = connection.receive().unwrap().unwrap();
    assert_eq!(
        (first.number, first.fds.len(), first.need_reply),
        (12, 1, false)
    );
    let second = connection.receive().unwrap().unwrap();
    assert_eq!(
        (second.number, second.fds.len(), second.need_reply),
        (1, 0, true)
    );
    let third = connection.receive().unwrap().unwrap();
    assert_eq!((third.number, third.fds.len()), (5, 2));
    drop(monitor);
    assert!(matches!(connection.receive(), Err(ConnectionError::Closed)));
}

#[test]
fn replies_are_asked_for() {
    let mut session = session();
    let mut ask = |request, need_reply| {
        let message = Message {
            request,
            number: 0,
            need_reply,
            fds: vec![],
        };
        session.obey(message).unwrap()
    };
    assert_eq!(ask(Request::SetOwner, true), Reply::Number(0));
    assert_eq!(ask(Request::SetOwner, false), Reply::Nothing);
    assert_eq!(ask(Request::GetQueueNumber, true), Reply::Number(2));
    assert_eq!(
        ask(Request::GetProtocolFeatures, false),
        // vhost-user's bits MQ and REPLY_ACK.
        Reply::Number(1 << 0 | 1 << 3)
    );
    let offered = feature::KNOWN | PROTOCOL_FEATURES;
    assert_eq!(ask(Request::GetFeatures, false), Reply::Number(offered));
    // Who has not agreed on replies gets none.
    ask(Request::SetProtocolFeatures(0), false);
    let message = Message {
        request: Request::SetOwner,
        number: 3,
        need_reply: true,
        fds: vec![],
    };
    assert_eq!(session.obey(message).unwrap(), Reply::Nothing);
}

/// Cloud Hypervisor would compare the number of pairs with its two queues.
#[test]
fn a_number_of_pairs_is_offered_where_there_are_several() {
    let (several, replies) = (1 << 0, 1 << 3);
    for (pairs, offered) in [(1, replies), (2, several | replies)] {
        let mut session = Session::new(Watched::default(), feature::KNOWN, pairs);
        let reply = tell(&mut session, Request::GetProtocolFeatures, vec![]);
        assert_eq!(reply, Reply::Number(offered), "{pairs}");
        tell(&mut session, Request::SetProtocolFeatures(offered), vec![]);
        let wanted = Request::SetProtocolFeatures(several);
        assert_eq!(session.request(wanted, vec![]).is_ok(), pairs > 1);
    }
}

proptest! {
    #[test]
    fn no_monitor_breaks_a_promise(data in vec(any::<u8>(), 0..600)) {
        fuzz_card_vhost(&data);
    }
}
