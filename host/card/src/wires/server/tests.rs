//! The wire between a guest's buffers and a station that answers.

use std::fs::{self, File};
use std::path::Path;

use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tempfile::TempDir;
use wireboot_card::coalesce::Limits;
use wireboot_card::{Beyond, GuestMemory, Lies, Pace, Queue, RingLayout, RingStart};
use wireboot_server::directory::Directory;
use wireboot_server::event::Events;
use wireboot_wire::card::hello::{CHUNKS, Chunks, Hello, Kind};

use super::*;
use crate::data_path::DataPath;
use crate::poller::{Handle, Poller, Polling};
use crate::program::tests::program;
use crate::program::{Filter, Hook, PairOf, Program};
use crate::vhost::{PairQueue, Rings, RunningRing};
use crate::wires::HostWire;
use crate::wires::testing::{GuestFile, content, memory};

const NOW: Duration = Duration::from_secs(1);
const SERVER: [u8; 6] = [0x02, 0x77, 0x62, 0x6f, 0x6f, 0x74];
const GUEST: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];
/// Behind what the guest sends.
const ROOM: u64 = 0x8000;

/// A wire to a directory with one file.
fn wire(folder: &Path, bytes: &[u8]) -> ServerWire {
    fs::write(folder.join("file"), bytes).unwrap();
    let directory = Directory::open(folder, None).unwrap();
    ServerWire::new(Station::new(directory, Events::default(), 0, [1; 18])).unwrap()
}

/// A packet to the server.
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = 20 + payload.len() as u16;
    let mut header = [
        &[0x45, 0][..],
        &len.to_be_bytes(),
        &[0; 4],
        &[64, protocol, 0, 0],
    ]
    .concat();
    header.extend([10, 77, 0, 200, 10, 77, 0, 1]);
    let sum = !sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&SERVER[..], &GUEST, &[8, 0], &header, payload].concat()
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let header = [3000, port, 8 + payload.len() as u16, 0].map(u16::to_be_bytes);
    packet(17, &[header.as_flattened(), payload].concat())
}

/// A segment without a checksum.
fn tcp(seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let ports = [3000u16, 80].map(u16::to_be_bytes);
    let numbers = [seq, ack].map(u32::to_be_bytes);
    let rest = [0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    let header = [ports.as_flattened(), numbers.as_flattened(), &rest];
    packet(6, &[&header.concat()[..], payload].concat())
}

/// The ones' complement sum of the bytes' words.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let words = words.map(|word| u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
    let sum: u32 = words.map(u32::from).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The guest sends a frame, in pieces of 100 bytes behind ten that the card has written.
fn send(wire: &mut ServerWire, memory: &Mapping, frame: &[u8]) {
    send_with(wire, memory, Header::default(), frame);
}

fn send_with(wire: &mut ServerWire, memory: &Mapping, header: Header, frame: &[u8]) {
    let (head, rest) = frame.split_at(10);
    memory.write(0, rest).unwrap();
    let spans: Vec<Span> = (0..rest.len())
        .step_by(100)
        .map(|at| Span {
            address: at as u64,
            len: (rest.len() - at).min(100) as u32,
        })
        .collect();
    let unit = Unit {
        header,
        head,
        spans: &spans,
        len: frame.len(),
    };
    assert!(wire.send(memory, &unit, NOW));
}

/// The guest leaves the checksum to the card.
const LEFT: Header = Header {
    flags: NEEDS_CSUM,
    gso_type: 0,
    hdr_len: 0,
    gso_size: 0,
    csum_start: 34,
    csum_offset: 16,
};

/// Room for a unit in buffers of `each` bytes, that lie in reverse order.
fn room(each: u32) -> Vec<Span> {
    let count = 1514u32.div_ceil(each);
    let at = |n| Span {
        address: ROOM + u64::from((count - 1 - n) * each),
        len: each,
    };
    (0..count).map(at).collect()
}

fn read_request() -> Vec<u8> {
    udp(
        69,
        b"\x00\x01file\x00octet\x00blksize\x001468\x00windowsize\x004\x00",
    )
}

#[test]
fn bytes_of_files_come_to_buffers_of_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u8> = (0..5000u32).map(|n| (n % 251) as u8).collect();
    // The last is more buffers than go to the kernel at once.
    for each in [2000, 700, 33, 12] {
        let mut wire = wire(folder.path(), &file);
        let memory = memory();
        let room = room(each);
        assert!(matches!(
            wire.receive(&memory, &room, NOW),
            Received::Nothing
        ));
        send(&mut wire, &memory, &read_request());
        let Received::Unit { len, .. } = wire.receive(&memory, &room, NOW) else {
            panic!("no OACK");
        };
        let oack = content(&memory, &room, len);
        assert_eq!(oack[42..44], [0, 6]);
        let port = u16::from_be_bytes([oack[34], oack[35]]);
        send(&mut wire, &memory, &udp(port, &[0, 4, 0, 0]));
        for (n, block) in file.chunks(1468).enumerate() {
            let Received::Unit { len, header } = wire.receive(&memory, &room, NOW) else {
                panic!("no block");
            };
            assert_eq!(header, Header::default());
            let frame = content(&memory, &room, len);
            assert_eq!(frame[42..46], [0, 3, 0, n as u8 + 1]);
            assert!(frame[46..] == *block, "block {n} in buffers of {each}");
        }
        assert!(matches!(
            wire.receive(&memory, &room, NOW),
            Received::Nothing
        ));
        assert!(wire.due().is_some_and(|due| due > NOW));
        wire.restart();
        assert!(matches!(
            wire.receive(&memory, &room, NOW),
            Received::Nothing
        ));
        assert_eq!(wire.due(), None);
    }
}

/// Files none of whose bytes lie in the cache. Who reads them waits until told how many bytes from their beginning are there.
struct Disk(std::sync::Mutex<std::sync::mpsc::Receiver<()>>);

impl cold::Files for Disk {
    fn now(
        &self,
        _: BorrowedFd<'_>,
        _: &mut dyn FnMut(ReadWriteFlags) -> io::Result<usize>,
    ) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn wait_for(
        &self,
        content: &wireboot_server::directory::Content,
        offset: u64,
        bytes: &mut [u8],
    ) -> io::Result<()> {
        let told = self.0.lock().unwrap().recv();
        told.map_err(|_| io::Error::other("the disk is gone"))?;
        content.read_exact_at(&mut [IoSliceMut::new(bytes)], offset)
    }
}

/// A wire to a directory with two files on a disk, which reads once for each word.
fn cold_wire(folder: &Path, bytes: &[u8]) -> (ServerWire, std::sync::mpsc::Sender<()>) {
    fs::write(folder.join("file"), bytes).unwrap();
    fs::write(folder.join("other"), bytes).unwrap();
    let directory = Directory::open(folder, None).unwrap();
    let station = Station::new(directory, Events::default(), 0, [1; 18]);
    let (disk, reads) = std::sync::mpsc::channel();
    let files = ColdFiles::new(Arc::new(Disk(reads.into()))).unwrap();
    (ServerWire::with_files(station, files), disk)
}

/// A frame, when the event is set for it.
fn after_the_bell(wire: &mut ServerWire, memory: &Mapping, room: &[Span]) -> Vec<u8> {
    loop {
        let mut polled = [PollFd::from_borrowed_fd(wire.descriptor(), PollFlags::IN)];
        poll(&mut polled, None).unwrap();
        if let Received::Unit { len, .. } = wire.receive(memory, room, NOW) {
            return content(memory, room, len);
        }
    }
}

fn is_quiet(wire: &ServerWire) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(wire.descriptor(), PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() == 0
}

/// The port of the transfer that answers.
fn begin(wire: &mut ServerWire, memory: &Mapping, room: &[Span], request: &[u8]) -> u16 {
    send(wire, memory, request);
    let Received::Unit { len, .. } = wire.receive(memory, room, NOW) else {
        panic!("no OACK");
    };
    let oack = content(memory, room, len);
    u16::from_be_bytes([oack[34], oack[35]])
}

#[test]
fn a_file_on_a_slow_disk_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u8> = (0..2_999_500u32).map(|n| (n % 251) as u8).collect();
    // Buffers to which the kernel reads, and some for which bytes are put aside.
    for each in [2000, 12] {
        let (mut wire, disk) = cold_wire(folder.path(), &file);
        let (memory, room) = (memory(), room(each));
        let request = udp(
            69,
            b"\x00\x01file\x00octet\x00blksize\x001000\x00windowsize\x00512\x00",
        );
        let port = begin(&mut wire, &memory, &room, &request);
        let (mut block, mut reads) = (0, 0);
        while block < 3000 {
            send(
                &mut wire,
                &memory,
                &udp(port, &[0, 4, (block >> 8) as u8, block as u8]),
            );
            for _ in 0..512.min(3000 - block) {
                let frame = match wire.receive(&memory, &room, NOW) {
                    Received::Unit { len, .. } => content(&memory, &room, len),
                    _ => {
                        assert!(matches!(
                            wire.receive(&memory, &room, NOW),
                            Received::Nothing
                        ));
                        assert!(is_quiet(&wire));
                        // Others get their answers meanwhile.
                        send(&mut wire, &memory, &who_has());
                        let Received::Unit { len, .. } = wire.receive(&memory, &room, NOW) else {
                            panic!("no answer");
                        };
                        assert_eq!(content(&memory, &room, len)[12..14], [8, 6]);
                        reads += 1;
                        disk.send(()).unwrap();
                        after_the_bell(&mut wire, &memory, &room)
                    }
                };
                let begin = 1000 * block as usize;
                block += 1;
                assert_eq!(frame[44..46], (block as u16).to_be_bytes());
                let end = (begin + 1000).min(file.len());
                assert!(frame[46..] == file[begin..end], "block {block}");
            }
        }
        assert_eq!(reads, 3);
        assert!(matches!(
            wire.receive(&memory, &room, NOW),
            Received::Nothing
        ));
        assert!(is_quiet(&wire), "the event is set for ever");
    }
}

#[test]
fn files_on_a_slow_disk_come_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (mut wire, disk) = cold_wire(folder.path(), &[7; 100]);
    let (memory, room) = (memory(), room(2000));
    let mut other = udp(69, b"\x00\x01other\x00octet\x00blksize\x001000\x00");
    // From another port.
    other[35] ^= 1;
    let first = begin(&mut wire, &memory, &room, &read_request());
    let second = begin(&mut wire, &memory, &room, &other);
    let mut answer = udp(second, &[0, 4, 0, 0]);
    answer[35] ^= 1;
    send(&mut wire, &memory, &udp(first, &[0, 4, 0, 0]));
    send(&mut wire, &memory, &answer);
    assert!(matches!(
        wire.receive(&memory, &room, NOW),
        Received::Nothing
    ));
    let mut ports = Vec::new();
    for _ in 0..2 {
        disk.send(()).unwrap();
        let frame = after_the_bell(&mut wire, &memory, &room);
        assert_eq!(frame[46..], [7; 100]);
        ports.push(u16::from_be_bytes([frame[34], frame[35]]));
    }
    ports.sort_unstable();
    assert_eq!(ports, [first, second]);
}

#[test]
fn a_disk_that_fails_ends_the_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let (mut wire, disk) = cold_wire(folder.path(), &[7; 5000]);
    let (memory, room) = (memory(), room(2000));
    let port = begin(&mut wire, &memory, &room, &read_request());
    send(&mut wire, &memory, &udp(port, &[0, 4, 0, 0]));
    wire.receive(&memory, &room, NOW);
    drop(disk);
    let frame = after_the_bell(&mut wire, &memory, &room);
    assert_eq!(frame[42..44], [0, 5]);
    let text = String::from_utf8_lossy(&frame[46..]);
    assert!(text.contains("the disk is gone"), "{text}");
}

#[test]
fn who_begins_anew_gets_nothing_that_waited_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (mut wire, disk) = cold_wire(folder.path(), &[7; 5000]);
    let (memory, room) = (memory(), room(2000));
    let port = begin(&mut wire, &memory, &room, &read_request());
    send(&mut wire, &memory, &udp(port, &[0, 4, 0, 0]));
    wire.receive(&memory, &room, NOW);
    wire.restart();
    disk.send(()).unwrap();
    let mut polled = [PollFd::from_borrowed_fd(wire.descriptor(), PollFlags::IN)];
    poll(&mut polled, None).unwrap();
    assert!(matches!(
        wire.receive(&memory, &room, NOW),
        Received::Nothing
    ));
    assert!(is_quiet(&wire));
}

#[test]
fn a_file_that_has_changed_ends_its_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let mut wire = wire(folder.path(), &[1; 5000]);
    let (memory, room) = (memory(), room(2000));
    send(&mut wire, &memory, &read_request());
    wire.receive(&memory, &room, NOW);
    let oack = content(&memory, &room, 42);
    let port = u16::from_be_bytes([oack[34], oack[35]]);
    let file = File::options().write(true).open(folder.path().join("file"));
    file.unwrap().set_len(1000).unwrap();
    send(&mut wire, &memory, &udp(port, &[0, 4, 0, 0]));
    // What is missing may be on the disk.
    assert!(matches!(
        wire.receive(&memory, &room, NOW),
        Received::Nothing
    ));
    let frame = after_the_bell(&mut wire, &memory, &room);
    assert_eq!(frame[42..44], [0, 5]);
    let text = String::from_utf8_lossy(&frame[46..]);
    assert!(text.contains("the file was changed"), "{text}");
}

#[test]
fn checksums_are_left_to_guests_that_complete_them() {
    let folder = tempfile::tempdir().unwrap();
    // Buffers too short for the kernel's calls are filled from the card's own, where all is completed.
    for (agreed, each) in [(false, 2000), (true, 2000), (true, 12)] {
        let mut wire = wire(folder.path(), b"");
        wire.agree(if agreed { feature::GUEST_CSUM } else { 0 });
        let partial = agreed && each == 2000;
        let (memory, room) = (memory(), room(each));
        send_with(&mut wire, &memory, LEFT, &tcp(9, 0, 2, b""));
        let Received::Unit { len, header } = wire.receive(&memory, &room, NOW) else {
            panic!("no SYN-ACK");
        };
        let frame = content(&memory, &room, len);
        assert_eq!(frame[47], 0x12);
        let pseudo = [&frame[26..34], &[0, 6], &(len as u16 - 34).to_be_bytes()].concat();
        if partial {
            assert_eq!(header, LEFT);
            assert_eq!(frame[50..52], sum(&pseudo).to_be_bytes());
        } else {
            assert_eq!(header, Header::default());
            assert_eq!(sum(&[&pseudo, &frame[34..]].concat()), 0xffff);
        }
    }
}

#[test]
fn a_guest_that_takes_them_gets_units_of_many_segments() {
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
    let tso = feature::GUEST_TSO4;
    for (features, partial, cut) in [(tso, true, true), (tso, false, false), (0, true, false)] {
        let mut wire = wire(folder.path(), &file);
        let checksums = if partial { feature::GUEST_CSUM } else { 0 };
        wire.agree(features | checksums);
        let memory = memory();
        let room = [Span {
            address: ROOM,
            len: 0x8000,
        }];
        send_with(&mut wire, &memory, LEFT, &tcp(9, 0, 2, b""));
        wire.receive(&memory, &room, NOW);
        let syn = content(&memory, &room, 54);
        let ack = u32::from_be_bytes(syn[38..42].try_into().unwrap()).wrapping_add(1);
        let get = tcp(10, ack, 0x10, b"GET /file HTTP/1.1\r\n\r\n");
        send_with(&mut wire, &memory, LEFT, &get);
        assert_eq!(wire.useful_room() > LINK + MTU, cut);
        let Received::Unit { len, header } = wire.receive(&memory, &room, NOW) else {
            panic!("no answer");
        };
        let frame = content(&memory, &room, len);
        let body = 4 + frame.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        assert!(frame[body..] == file[..len - body]);
        // The guest has told no MSS, so it is that of RFC 9293; it opens with ten of them.
        let gso = (header.gso_type, header.hdr_len, header.gso_size);
        assert_eq!(gso, if cut { (1, 54, 536) } else { (0, 0, 0) });
        assert_eq!(len - 54, if cut { 10 * 536 } else { 536 });
        assert_eq!(header.flags, u8::from(partial));
    }
}

#[test]
fn a_guest_that_takes_them_gets_long_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
    let both = feature::GUEST_CSUM | feature::GUEST_UFO;
    for (features, long) in [(both, true), (feature::GUEST_UFO, false), (0, false)] {
        let mut wire = wire(folder.path(), &file);
        wire.agree(features);
        assert_eq!(wire.useful_room() > LINK + MTU, long);
        let memory = memory();
        let room = [Span {
            address: ROOM,
            len: 0x8000,
        }];
        let request = b"\x00\x01file\x00octet\x00blksize\x0020001\x00";
        send(&mut wire, &memory, &udp(69, request));
        let Received::Unit { len, .. } = wire.receive(&memory, &room, NOW) else {
            panic!("no OACK");
        };
        let oack = content(&memory, &room, len);
        let granted = if long { "20001" } else { "1468" };
        assert_eq!(
            oack[42..],
            [b"\0\x06blksize\0", granted.as_bytes(), b"\0"].concat()
        );
        let port = u16::from_be_bytes([oack[34], oack[35]]);
        send(&mut wire, &memory, &udp(port, &[0, 4, 0, 0]));
        let Received::Unit { len, header } = wire.receive(&memory, &room, NOW) else {
            panic!("no block");
        };
        let frame = content(&memory, &room, len);
        assert!(frame[46..] == file[..len - 46]);
        if !long {
            assert_eq!((header, len), (Header::default(), LINK + MTU));
            continue;
        }
        let cut = Header {
            csum_offset: 6,
            gso_type: 3,
            hdr_len: 42,
            gso_size: 1480,
            ..LEFT
        };
        assert_eq!((header, len), (cut, 20_047));
        // All of the pseudo header, and nothing behind it.
        let pseudo = [&frame[26..34], &[0, 17], &(len as u16 - 34).to_be_bytes()].concat();
        assert_eq!(frame[40..42], sum(&pseudo).to_be_bytes());
    }
}

/// Entries of the guest's receive ring.
const SIZE: u16 = 8;
const LAYOUT: RingLayout = RingLayout {
    size: SIZE,
    descriptors: 0,
    available: 0x1000,
    used: 0x2000,
};

/// A guest, and a card asked for a file, whose receive ring starts at `base`. What is not looked at is kept from being dropped.
struct Asked {
    memory: Mapping,
    poller: Poller,
    _handle: Handle,
    _folder: TempDir,
}

fn asked(base: u16) -> Asked {
    asked_for(base, &read_request(), None, None)
}

/// The same for the answer to a frame. With limits of chunks, the guest has asked the card itself, too.
fn asked_for(
    base: u16,
    frame: &[u8],
    chunks: Option<Limits<Duration>>,
    program: Option<Program>,
) -> Asked {
    let folder = tempfile::tempdir().unwrap();
    let mut wire = wire(folder.path(), &[1; 100]);
    let file = GuestFile::new();
    let memory = file.map();
    send(&mut wire, &memory, frame);
    for n in 0..u64::from(SIZE) {
        let address = ROOM + 0x800 * n;
        memory.write(16 * n, &address.to_le_bytes()).unwrap();
        // Its length, and that the card writes it.
        memory.write(16 * n + 8, &[0, 8, 0, 0, 2, 0, 0, 0]).unwrap();
        let entry = LAYOUT.available + 4 + 2 * n;
        memory.write(entry, &(n as u16).to_le_bytes()).unwrap();
    }
    let used = LAYOUT.used + 2;
    memory.store(used, base, Release).unwrap();
    memory
        .store(LAYOUT.available + 2, base + SIZE, Release)
        .unwrap();
    let wire = HostWire::Server(Box::new(wire));
    let data_path = DataPath::new(
        Filter::new(wire, program, PairOf::ONLY),
        Pace::default(),
        None,
    );
    let beyond = Beyond {
        chunks,
        ..Beyond::default()
    };
    let poller = Poller::start(
        "card".into(),
        vec![data_path],
        Lies::default(),
        beyond,
        Polling::default(),
    )
    .unwrap();
    let mut handle = poller.handle();
    handle.set_memory(Some(file.map()));
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let mut start = |queue, layout| {
        let ring = RunningRing {
            start: RingStart {
                layout,
                base,
                features: feature::VERSION_1,
            },
            kick: eventfd(0, flags).unwrap(),
            call: None,
            error: None,
            discards: false,
        };
        handle.start(PairQueue { pair: 0, queue }, ring);
    };
    if chunks.is_some() {
        ask_card(&memory, base);
        start(Queue::Transmit, SENDS);
    }
    start(Queue::Receive, LAYOUT);
    Asked {
        memory,
        poller,
        _handle: handle,
        _folder: folder,
    }
}

/// The guest's transmit ring, and its one buffer.
const SENDS: RingLayout = RingLayout {
    size: SIZE,
    descriptors: 0x3000,
    available: 0x4000,
    used: 0x5000,
};
const QUESTION: u64 = 0xd000;

/// Has the ring begin with the question of a driver that takes chunks of any size.
fn ask_card(memory: &Mapping, base: u16) {
    let question = Hello {
        kind: Kind::Question,
        source: GUEST,
        token: 7,
        features: CHUNKS,
        chunks: Chunks {
            frames: u16::MAX,
            bytes: u32::MAX,
            micros: u32::MAX,
        },
    };
    let unit = [&[0; 12][..], &question.emit()].concat();
    memory.write(QUESTION, &unit).unwrap();
    let descriptor = [QUESTION.to_le_bytes(), (unit.len() as u64).to_le_bytes()];
    memory
        .write(SENDS.descriptors, descriptor.as_flattened())
        .unwrap();
    let entry = SENDS.available + 4 + 2 * u64::from(base % SIZE);
    memory.write(entry, &[0, 0]).unwrap();
    memory.store(SENDS.used + 2, base, Release).unwrap();
    memory
        .store(SENDS.available + 2, base + 1, Release)
        .unwrap();
}

/// A question whose answer the server has no timer for.
fn who_has() -> Vec<u8> {
    let frame = [
        &[0xff; 6][..],
        &GUEST,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &GUEST,
        &[10, 77, 0, 200, 0, 0, 0, 0, 0, 0, 10, 77, 0, 1],
    ];
    frame.concat()
}

/// Nobody rings: what a program delays goes when it is due.
#[test]
fn a_frame_that_a_program_delays_goes_by_a_card_asleep() {
    let base = SIZE;
    let text = "stw [r1+16], 30000\nmov r0, 0\nexit";
    let delay = program(Hook::Wire, text);
    let asked = asked_for(base, &who_has(), None, Some(delay));
    let begun = Instant::now();
    while asked.memory.load(LAYOUT.used + 2, Acquire).unwrap() != base + 1 {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "it waits for ever");
        std::thread::yield_now();
    }
    let counters = asked.poller.statistics().unwrap().program.unwrap();
    assert_eq!((counters.seen, counters.delayed), ([0, 1], 1));
}

/// Nobody rings, and the server has no timer: what is gathered goes by its own.
#[test]
fn a_frame_that_waits_for_others_goes_by_a_card_asleep() {
    let limits = Limits {
        frames: 43,
        bytes: 65_536,
        wait: Duration::from_millis(20),
    };
    let base = SIZE;
    let asked = asked_for(base, &who_has(), Some(limits), None);
    let begun = Instant::now();
    // The card's own answer, and the server's.
    while asked.memory.load(LAYOUT.used + 2, Acquire).unwrap() != base + 2 {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "it waits for ever");
        std::thread::yield_now();
    }
    let room = [Span {
        address: ROOM + 0x800 + 12,
        len: 100,
    }];
    let reply = content(&asked.memory, &room, 42);
    assert_eq!(reply[..14], [&GUEST[..], &SERVER, &[8, 6]].concat());
}

/// Nobody rings: the poller wakes by the server's time.
#[test]
fn a_block_that_nobody_acknowledges_is_sent_again_by_a_card_asleep() {
    // Where a driver goes on that was held up: one that begins anew has asked for nothing yet.
    let base = SIZE;
    let asked = asked(base);
    let memory = &asked.memory;
    let begun = Instant::now();
    while memory.load(LAYOUT.used + 2, Acquire).unwrap() != base + 2 {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "it is not sent again");
        std::thread::yield_now();
    }
    assert!(asked.poller.statistics().unwrap().waits > 0);
    let oack = content(
        memory,
        &[Span {
            address: ROOM + 12,
            len: 100,
        }],
        46,
    );
    let again = content(
        memory,
        &[Span {
            address: ROOM + 0x800 + 12,
            len: 100,
        }],
        46,
    );
    assert_eq!((oack[43], oack), (6, again));
}

#[test]
fn a_driver_that_begins_anew_gets_nothing_that_was_asked_for_before() {
    let asked = asked(0);
    // A card that waits has sent all that there was.
    while asked.poller.statistics().unwrap().waits == 0 {
        std::thread::yield_now();
    }
    assert_eq!(asked.memory.load(LAYOUT.used + 2, Acquire), Ok(0));
}
