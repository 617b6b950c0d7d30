//! The client against a scripted server, both on engines of their own, over a simulated wire in simulated time.

mod attacks;
mod held;
mod long;

use super::*;
use crate::destination::DestinationError;
use crate::testing;
use core::cell::Cell;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicUsize, Ordering};
use proptest::prelude::*;
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec;
use wireboot_net::{Engine, Instant, Ipv4Config};
use wireboot_nic::Nic;
use wireboot_nic::sim::{self, LinkConfig, NicConfig, SimNic};
use wireboot_wire::tftp::Options;
use wireboot_wire::tftp::data_header;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// How long the server waits for an acknowledgement before it sends a window again.
const PATIENCE: Duration = Duration::from_millis(300);

/// What the server does, the options that it knows, and what it does wrong.
#[derive(Clone)]
pub(crate) struct TftpServerScript {
    pub(crate) file: Vec<u8>,
    options: bool,
    windows: bool,
    /// Knows the option `slide`.
    slides: bool,
    window_limit: u16,
    /// Knows `msftwindow`.
    varies: bool,
    /// Grants this slide, whatever was asked.
    slide: Option<u16>,
    block_limit: u16,
    /// Announces this size instead of the file's; see also `announces_size`.
    announced_size: Option<u64>,
    announces_size: bool,
    error: Option<(ErrorCode, &'static str)>,
    pub(crate) refuse_options: bool,
    /// A transfer of former times sends a block, from another port, after each window.
    haunted: bool,
    /// Stops for good after this many blocks of the first transfer.
    dies_after: Option<u64>,
    /// It says then that it stops.
    last_words: Option<&'static str>,
    /// Time before each block but the first.
    delay: Duration,
    /// Sends each packet twice.
    stutters: bool,
    silent: bool,
    /// Client and server have IPv6 and nothing else.
    v6: bool,
    /// What the client asks for.
    sizes: Sizes,
}

impl Default for TftpServerScript {
    fn default() -> Self {
        Self {
            file: (0..300_000u32).flat_map(|i| i.to_le_bytes()).collect(),
            options: true,
            windows: true,
            slides: false,
            varies: false,
            window_limit: u16::MAX,
            slide: None,
            block_limit: u16::MAX,
            announced_size: None,
            announces_size: true,
            error: None,
            refuse_options: false,
            haunted: false,
            dies_after: None,
            last_words: None,
            delay: Duration::ZERO,
            stutters: false,
            silent: false,
            v6: false,
            sizes: Sizes::default(),
        }
    }
}

fn configure(engine: &Engine<SimNic>, address: Ipv4Addr) {
    engine.stack().configure(&Ipv4Config {
        address: wireboot_net::Ipv4Cidr::new(address, 24),
        router: None,
        routes: Vec::new(),
        mtu: None,
    });
}

pub(crate) async fn serve(
    stack: Stack,
    listener: UdpSocket,
    script: TftpServerScript,
    log: Rc<RefCell<Log>>,
) {
    let mut dies = script.dies_after;
    let mut busy: Vec<SocketAddr> = Vec::new();
    loop {
        let (client, packet) = listener.receive().await;
        let Ok(Packet::Rrq(request)) = Packet::parse(&packet) else {
            continue;
        };
        log.borrow_mut().requests += 1;
        if script.silent {
            continue;
        }
        // A request sent again belongs to the transfer that is running.
        if busy.contains(&client) {
            continue;
        }
        busy.push(client);
        let session = Session {
            stack: stack.clone(),
            socket: stack.udp(),
            client,
            script: script.clone(),
            log: log.clone(),
            ended: Cell::new(false),
        };
        session
            .run(&TransferOptions::from_request(request.options), &mut dies)
            .await;
    }
}

#[derive(Default)]
pub(crate) struct Log {
    requests: u32,
    strangers: u32,
    data: u64,
    /// The windows that acknowledgements told.
    windows: Vec<u8>,
    /// Texts of errors from clients.
    pub(crate) errors: Vec<String>,
}

struct Session {
    stack: Stack,
    socket: UdpSocket,
    client: SocketAddr,
    script: TftpServerScript,
    log: Rc<RefCell<Log>>,
    /// The client has sent an error.
    ended: Cell<bool>,
}

impl Session {
    fn send(&self, packet: &[u8]) {
        let _ = self.socket.send_to(self.client, packet);
        if self.script.stutters {
            let _ = self.socket.send_to(self.client, packet);
        }
    }

    fn error(&self, code: ErrorCode, text: &str) {
        let mut packet = Vec::new();
        Packet::Error {
            code,
            text: text.as_bytes(),
        }
        .emit(&mut packet);
        self.send(&packet);
    }

    async fn run(self, asked: &TransferOptions, dies: &mut Option<u64>) {
        if let Some((code, text)) = self.script.error {
            return self.error(code, text);
        }
        if self.script.refuse_options && !asked.is_empty() {
            return self.error(ErrorCode::OPTIONS, "no options here");
        }
        let mut granted = TransferOptions::default();
        if self.script.options {
            granted.block_size = asked.block_size.map(|b| b.min(self.script.block_limit));
            granted.window_size = asked
                .window_size
                .filter(|_| self.script.windows)
                .map(|w| w.min(self.script.window_limit));
            granted.slide = asked
                .slide
                .zip(granted.window_size)
                .filter(|_| self.script.slides)
                .map(|(slide, window)| slide.min(1 << window.ilog2()));
            granted.slide = self.script.slide.or(granted.slide);
            granted.variable_window = asked
                .variable_window
                .filter(|_| self.script.varies)
                .map(|_| VariableWindow::Granted);
            let wanted = asked.transfer_size.filter(|_| self.script.announces_size);
            granted.transfer_size = wanted.map(|_| {
                self.script
                    .announced_size
                    .unwrap_or(self.script.file.len() as u64)
            });
        }
        let block_size = usize::from(granted.block_size.unwrap_or(DEFAULT_BLOCK_SIZE));
        let varies = granted.variable_window.is_some();
        let mut window = u64::from(granted.window_size.unwrap_or(1));
        let last = (self.script.file.len() / block_size) as u64 + 1;
        let mut acked = 0;
        if !granted.is_empty() {
            let mut options = Vec::new();
            granted.emit(&mut options);
            let mut packet = Vec::new();
            Packet::Oack(Options::new(&options)).emit(&mut packet);
            for round in 0.. {
                self.send(&packet);
                match self.ack(0, PATIENCE).await {
                    Some(0) => break,
                    _ if round > 8 => return,
                    _ => {}
                }
            }
        }
        if let Some(slide) = granted.slide {
            return self.slide(block_size, window, slide.into()).await;
        }
        let ghost = self.stack.udp();
        let mut tries = 0;
        while acked < last && !self.ended.get() {
            if varies {
                window = self.log.borrow().windows.last().copied().unwrap().into();
            }
            for block in acked + 1..=(acked + window).min(last) {
                if let Some(left) = dies {
                    if *left == 0 {
                        *dies = None;
                        if let Some(text) = self.script.last_words {
                            self.error(ErrorCode::UNDEFINED, text);
                        }
                        return;
                    }
                    *left -= 1;
                }
                if block > 1 {
                    self.stack.sleep(self.script.delay).await;
                }
                self.send_block(block, block_size);
                if (block - acked) % 8 == 0 {
                    // The socket's queue is short; a turn empties it.
                    self.stack.next_turn().await;
                }
            }
            match self.ack(acked, PATIENCE).await {
                Some(block) if block > acked => {
                    if self.script.haunted {
                        let mut packet = data_header(block as u16 + 1).to_vec();
                        packet.extend_from_slice(b"BOO");
                        let _ = ghost.send_to(self.client, &packet);
                        let answer = self
                            .stack
                            .timeout(Duration::from_millis(5), ghost.receive());
                        if let Some((_, packet)) = answer.await
                            && let Ok(Packet::Error { code, .. }) = Packet::parse(&packet)
                            && code == ErrorCode::UNKNOWN_ID
                        {
                            self.log.borrow_mut().strangers += 1;
                        }
                    }
                    acked = block;
                    tries = 0;
                }
                _ => {
                    tries += 1;
                    if tries > 20 {
                        return;
                    }
                }
            }
        }
    }

    fn send_block(&self, block: u64, block_size: usize) {
        let start = (block as usize - 1) * block_size;
        let end = (start + block_size).min(self.script.file.len());
        let mut packet = data_header(block as u16).to_vec();
        packet.extend_from_slice(&self.script.file[start..end]);
        self.send(&packet);
        self.log.borrow_mut().data += 1;
    }

    /// Sends the file in a window that slides on at acknowledgements of multiples of `slide`.
    async fn slide(&self, block_size: usize, window: u64, slide: u64) {
        let last = (self.script.file.len() / block_size) as u64 + 1;
        let (mut acked, mut next) = (0, 1);
        let mut went_back = self.stack.now();
        let mut tries = 0;
        while acked < last && !self.ended.get() {
            let end = (acked + window).min(last);
            for block in next..=end.min(next + 7) {
                self.send_block(block, block_size);
            }
            next = end.min(next + 7) + 1;
            self.stack.next_turn().await;
            let patience = if next <= end {
                Duration::ZERO
            } else {
                PATIENCE
            };
            match self.ack(acked, patience).await {
                Some(block) if block > acked => {
                    tries = 0;
                    acked = block;
                    if block.is_multiple_of(slide) {
                        next = next.max(block + 1);
                    } else {
                        went_back = self.stack.now();
                        next = block + 1;
                    }
                }
                Some(_) if self.stack.now() >= went_back + Duration::from_micros(200) => {
                    went_back = self.stack.now();
                    next = acked + 1;
                }
                None if next > end => {
                    tries += 1;
                    if tries > 20 {
                        return;
                    }
                    next = acked + 1;
                }
                _ => {}
            }
        }
    }

    /// The next acknowledgement from `acked` on within `patience`, unwrapped. An older one is passed over, as a server
    /// must to keep the sorcerer's apprentice out; for `acked` itself the window is sent again.
    async fn ack(&self, acked: u64, patience: Duration) -> Option<u64> {
        let wait = async {
            loop {
                let (from, packet) = self.socket.receive().await;
                match Packet::parse(&packet) {
                    Ok(Packet::Ack { block }) if from == self.client => {
                        self.log.borrow_mut().windows.extend(packet.get(4));
                        let ahead = block.wrapping_sub(acked as u16);
                        if ahead < 0x8000 {
                            return acked + u64::from(ahead);
                        }
                    }
                    Ok(Packet::Error { text, .. }) if from == self.client => {
                        let text = String::from_utf8_lossy(text).into_owned();
                        self.log.borrow_mut().errors.push(text);
                        self.ended.set(true);
                        return acked;
                    }
                    _ => {}
                }
            }
        };
        self.stack.timeout(patience, wait).await
    }
}

struct Room {
    stack: Stack,
    limit: u64,
    asked: Vec<u64>,
    committed: Arc<AtomicUsize>,
}

impl Destination for Room {
    async fn memory(
        &mut self,
        bytes: u64,
        previous: Option<(Memory, u64)>,
    ) -> Result<Memory, DestinationError> {
        self.asked.push(bytes);
        // Others find the memory, and packets come in the meantime.
        self.stack.sleep(Duration::from_micros(200)).await;
        if bytes > self.limit {
            return Err(DestinationError::NoMemory { bytes });
        }
        Ok(testing::memory(bytes, previous, &self.committed))
    }
    fn progress(&mut self, _: u64, _: Option<u64>) {}
}

struct Outcome {
    result: Result<TftpFile, TftpError>,
    log: Rc<RefCell<Log>>,
    micros: i64,
    asked: Vec<u64>,
    committed: usize,
}

impl Outcome {
    fn bytes(&self) -> Vec<u8> {
        let file = self.result.as_ref().unwrap();
        testing::content(&file.memory, file.len as usize)
    }
    fn error(&self) -> String {
        self.result.as_ref().unwrap_err().to_string()
    }
}

fn fetch(script: &TftpServerScript, wire: LinkConfig, seed: u64) -> Outcome {
    fetch_with(script, wire, seed, |_| {})
}

fn fetch_with(
    script: &TftpServerScript,
    wire: LinkConfig,
    seed: u64,
    setup: impl FnOnce(&mut NicConfig),
) -> Outcome {
    fetch_at_intervals(script, wire, seed, 0, setup)
}

/// The client looks at its NIC once in so many microseconds.
fn fetch_at_intervals(
    script: &TftpServerScript,
    wire: LinkConfig,
    seed: u64,
    interval: i64,
    setup: impl FnOnce(&mut NicConfig),
) -> Outcome {
    let room = |client: &mut Engine<SimNic>| Room {
        stack: client.stack(),
        limit: 1 << 30,
        asked: Vec::new(),
        committed: Arc::default(),
    };
    let (result, room, log, micros) = fetch_into(script, wire, seed, interval, setup, room);
    Outcome {
        result,
        log,
        micros,
        asked: room.asked,
        committed: room.committed.load(Ordering::Relaxed),
    }
}

type Fetched<D> = (Result<TftpFile, TftpError>, D, Rc<RefCell<Log>>, i64);

/// The same to a destination that `destination` makes.
fn fetch_into<D: Destination + 'static>(
    script: &TftpServerScript,
    wire: LinkConfig,
    seed: u64,
    interval: i64,
    setup: impl FnOnce(&mut NicConfig),
    destination: impl FnOnce(&mut Engine<SimNic>) -> D,
) -> Fetched<D> {
    let (mut near, mut far) = sim::link(wire, wire, seed);
    let mut config = NicConfig::new(near.properties().mac);
    config.receive_frames = 1024;
    setup(&mut config);
    near.configure(config);
    if config.joins_datagrams {
        let mut config = NicConfig::new(far.properties().mac);
        config.mtu = u16::MAX;
        far.configure(config);
    }
    let clock = near.clock();
    let mut client = Engine::new(near, [1; 32]);
    let mut server = Engine::new(far, [2; 32]);
    let host = if script.v6 {
        server.stack().ipv6_up();
        // A server has its address for long.
        for _ in 0..200 {
            server.poll(Instant::from_micros(clock.now())).unwrap();
            clock.advance(20_000);
        }
        client.stack().ipv6_up();
        server.stack().link_local().unwrap().into()
    } else {
        configure(&client, CLIENT);
        configure(&server, SERVER);
        SERVER.into()
    };
    let log = Rc::new(RefCell::new(Log::default()));
    let listener = server.stack().udp();
    let at = SocketAddr::new(host, listener.port());
    let stack = server.stack();
    server.spawn(serve(stack, listener, script.clone(), log.clone()));
    let done = Rc::new(RefCell::new(None));
    let finished = Rc::new(Cell::new(false));
    let (stack, out, flag) = (client.stack(), done.clone(), finished.clone());
    let mut room = destination(&mut client);
    let sizes = script.sizes;
    client.spawn(async move {
        let limits = Limits::default();
        let (mut at, file) = (vec![at], "boot/linux");
        let result = get(&stack, &mut at, file, 1, sizes, limits, &mut room).await;
        *out.borrow_mut() = Some((result, room));
        flag.set(true);
    });
    let begin = clock.now();
    let mut looked = i64::MIN;
    while !finished.get() {
        assert!(clock.now() < 300_000_000, "the transfer does not end");
        let now = Instant::from_micros(clock.now());
        let mut busy = server.poll(now).unwrap();
        if clock.now() >= looked.saturating_add(interval) {
            looked = clock.now();
            busy |= client.poll(now).unwrap();
        }
        clock.advance(if busy { 2 } else { 50 });
    }
    let (result, room) = done.borrow_mut().take().unwrap();
    (result, room, log, clock.now() - begin)
}

fn lossy(loss: f64) -> LinkConfig {
    LinkConfig {
        loss,
        ..LinkConfig::default()
    }
}

#[test]
fn a_clean_wire_carries_the_file_in_windows() {
    let script = TftpServerScript::default();
    let outcome = fetch(&script, LinkConfig::default(), 1);
    assert_eq!(outcome.bytes(), script.file);
    let log = outcome.log.borrow();
    assert_eq!((log.requests, log.strangers), (1, 0));
    assert_eq!(log.data, script.file.len() as u64 / 1468 + 1);
    assert_eq!(outcome.result.as_ref().unwrap().retransmissions, 0);
    assert_eq!(outcome.asked, [script.file.len() as u64]);
    assert_eq!(outcome.committed, script.file.len());
    // 1.2 MB at 1 Gbit/s takes 10 ms; windows keep the wire busy.
    assert!(outcome.micros < 40_000, "{} us", outcome.micros);
}

#[test]
fn over_ipv6_the_file_is_the_same() {
    let script = TftpServerScript {
        v6: true,
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 1);
    assert_eq!(outcome.bytes(), script.file);
    let log = outcome.log.borrow();
    assert_eq!((log.requests, log.strangers), (1, 0));
    // Blocks that fill frames.
    assert_eq!(log.data, script.file.len() as u64 / 1448 + 1);
    assert_eq!(outcome.result.as_ref().unwrap().retransmissions, 0);
    assert!(outcome.micros < 40_000, "{} us", outcome.micros);
}

/// A server knows a transfer by the addresses of both ends.
#[test]
fn an_address_that_comes_during_a_transfer_is_not_its_own() {
    let script = TftpServerScript {
        v6: true,
        windows: false,
        delay: Duration::from_millis(1),
        file: vec![7; 300_000],
        ..TftpServerScript::default()
    };
    let room = |client: &mut Engine<SimNic>| {
        let stack = client.stack();
        client.spawn(async move {
            stack.sleep(Duration::from_millis(100)).await;
            // For what is sent to fe80::ff:fe00:b, it comes first by rule 8 of RFC 6724, section 5.
            let nearer = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 0x800b);
            assert!(stack.add_ipv6(nearer));
        });
        Room {
            stack: client.stack(),
            limit: 1 << 30,
            asked: Vec::new(),
            committed: Arc::default(),
        }
    };
    let (result, _, log, micros) = fetch_into(&script, LinkConfig::default(), 1, 0, |_| {}, room);
    assert_eq!(result.unwrap().retransmissions, 0);
    assert_eq!(log.borrow().requests, 1);
    assert!(micros > 200_000, "{micros} us");
}

#[test]
fn sizes_are_asked_for_as_they_are_given() {
    let sizes = |block, window| TftpServerScript {
        // The server would slide.
        slides: true,
        sizes: Sizes {
            block: Some(block),
            window: Window::Of(window),
        },
        ..TftpServerScript::default()
    };
    for (block, window) in [(512, 1), (1024, 4), (1456, 64), (1468, 300)] {
        let script = sizes(block, window);
        let outcome = fetch(&script, LinkConfig::default(), 1);
        let granted = outcome.result.as_ref().unwrap().granted;
        assert_eq!(granted, Granted { block, window });
        assert_eq!(outcome.bytes(), script.file);
        let blocks = script.file.len() as u64 / u64::from(block) + 1;
        assert_eq!(outcome.log.borrow().data, blocks);
    }
    let less = TftpServerScript {
        window_limit: 16,
        block_limit: 1000,
        ..sizes(1468, 64)
    };
    let granted = fetch(&less, LinkConfig::default(), 1)
        .result
        .unwrap()
        .granted;
    let wanted = Granted {
        block: 1000,
        window: 16,
    };
    assert_eq!(granted, wanted);
}

fn varying() -> TftpServerScript {
    TftpServerScript {
        varies: true,
        sizes: Sizes {
            block: Some(512),
            window: Window::Variable,
        },
        ..TftpServerScript::default()
    }
}

#[test]
fn a_window_that_varies_grows_while_nothing_is_lost() {
    let outcome = fetch(&varying(), LinkConfig::default(), 1);
    assert_eq!(outcome.bytes(), varying().file);
    let log = outcome.log.borrow();
    assert!(log.windows.starts_with(&[4, 8, 16, 32, 64, 64, 64]));
    assert_eq!(log.windows.iter().max(), Some(&64));
    assert_eq!(log.data, varying().file.len() as u64 / 512 + 1);
    let file = outcome.result.as_ref().unwrap();
    assert_eq!((file.granted.window, file.retransmissions), (64, 0));
}

#[test]
fn a_window_that_varies_shrinks_where_one_was_lost() {
    let lossy = LinkConfig {
        loss: 0.02,
        ..LinkConfig::default()
    };
    let outcome = fetch(&varying(), lossy, 1);
    assert_eq!(outcome.bytes(), varying().file);
    let log = outcome.log.borrow();
    let halved = log.windows.windows(2).any(|two| two[1] == two[0] / 2);
    assert!(halved, "{:?}", log.windows);
    assert!(log.windows.iter().all(|window| (1..=64).contains(window)));
}

#[test]
fn a_server_without_windows_that_vary_is_left() {
    let without = TftpServerScript {
        varies: false,
        ..varying()
    };
    let nothing = TftpServerScript {
        options: false,
        ..varying()
    };
    for script in [without, nothing] {
        let outcome = fetch(&script, LinkConfig::default(), 1);
        assert!(matches!(outcome.result, Err(TftpError::NotGranted)));
        // It waits for an acknowledgement of its first packet.
        let log = outcome.log.borrow();
        assert!(log.requests == 1 && log.data <= 1);
    }
}

#[test]
fn coalesced_and_scattered_units_are_cut_into_blocks() {
    let script = TftpServerScript::default();
    let outcome = fetch_with(&script, LinkConfig::default(), 1, |nic| {
        nic.coalesce = true;
        nic.part_len = Some(1000);
    });
    assert_eq!(outcome.bytes(), script.file);
}

/// The server answers the request at once, and takes longer than the shortest time-out for each further block (RFC 6298 section 5.7).
#[test]
fn a_server_that_becomes_slow_is_waited_for() {
    for delay in [150, 350] {
        let script = TftpServerScript {
            file: vec![7; 60 * 512 - 1],
            options: false,
            delay: Duration::from_millis(delay),
            ..TftpServerScript::default()
        };
        let outcome = fetch(&script, LinkConfig::default(), 3);
        assert_eq!(outcome.bytes(), script.file);
        let retransmissions = outcome.result.unwrap().retransmissions;
        assert!(
            (1..=12).contains(&retransmissions),
            "{delay} ms: {retransmissions}"
        );
        let data = outcome.log.borrow().data;
        assert!(data <= 60 + retransmissions, "{delay} ms: {data} blocks");
    }
}

/// RFC 6298 section 5.7: a sample ends the back-off, so that one lost block does not slow down what comes after it.
#[test]
fn a_time_out_is_short_again_after_a_sample() {
    let script = TftpServerScript {
        options: false,
        file: vec![7; 400_000],
        ..TftpServerScript::default()
    };
    for seed in 0..3 {
        let outcome = fetch(&script, lossy(0.02), seed);
        assert_eq!(outcome.bytes(), script.file);
        assert!(outcome.micros < 10_000_000, "{} us", outcome.micros);
    }
}

/// A block that is missing in a window is reported by the first acknowledgement of the one before it, so that the answer is a sample of
/// the round trip: a time-out that was backed off does not last.
#[test]
fn a_window_with_a_gap_gives_a_sample() {
    let script = TftpServerScript {
        file: vec![7; 400_000],
        ..TftpServerScript::default()
    };
    let mut micros: Vec<_> = (0..9)
        .map(|seed| fetch(&script, lossy(0.02), seed))
        .map(|outcome| outcome.result.map(|_| outcome.micros).unwrap())
        .collect();
    micros.sort_unstable();
    assert!(micros[4] < 200_000, "{micros:?} us");
}

#[test]
fn every_degree_of_option_support_works() {
    let small = TftpServerScript {
        file: vec![7; 100_000],
        ..TftpServerScript::default()
    };
    for (options, windows, block_limit) in [
        (false, false, 512),
        (true, false, 1468),
        (true, true, 512),
        (true, true, 1024),
    ] {
        let script = TftpServerScript {
            options,
            windows,
            block_limit,
            ..small.clone()
        };
        let outcome = fetch(&script, LinkConfig::default(), 3);
        assert_eq!(outcome.bytes(), script.file);
    }
    let script = TftpServerScript {
        refuse_options: true,
        ..small
    };
    let outcome = fetch(&script, LinkConfig::default(), 3);
    assert_eq!(outcome.bytes(), script.file);
    assert_eq!(outcome.log.borrow().requests, 3);
}

#[test]
fn block_numbers_wrap_and_the_last_block_may_be_empty() {
    // 70,000 blocks of 512 bytes; a multiple of the block size ends with an empty block.
    let script = TftpServerScript {
        file: vec![3; 70_000 * 512],
        block_limit: 512,
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 4);
    assert_eq!(outcome.bytes().len(), script.file.len());
    assert!(outcome.bytes() == script.file);
    let empty = TftpServerScript {
        file: Vec::new(),
        ..TftpServerScript::default()
    };
    assert_eq!(fetch(&empty, LinkConfig::default(), 4).bytes(), b"");
}

#[test]
fn duplicates_wake_no_apprentice() {
    let script = TftpServerScript {
        stutters: true,
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 5);
    assert_eq!(outcome.bytes(), script.file);
    // The server's own stutter doubles what it sends; nothing of ours may make it send a block again.
    assert_eq!(
        outcome.log.borrow().data,
        script.file.len() as u64 / 1468 + 1
    );
}

#[test]
fn packets_of_another_transfer_are_refused_and_do_no_harm() {
    let script = TftpServerScript {
        haunted: true,
        windows: false,
        file: vec![9; 5_000],
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 6);
    assert_eq!(outcome.bytes(), script.file);
    assert_eq!(outcome.log.borrow().strangers, 3);
}

#[test]
fn the_servers_error_text_is_shown() {
    let script = TftpServerScript {
        error: Some((ErrorCode::NOT_FOUND, "no such kernel\n")),
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 7);
    assert_eq!(
        outcome.error(),
        "the TFTP server says: no such kernel\u{fffd} (error 1)"
    );
    // Other options would not help.
    assert_eq!(outcome.log.borrow().requests, 1);
    let script = TftpServerScript {
        error: Some((ErrorCode::NOT_FOUND, "")),
        ..script
    };
    assert!(
        fetch(&script, LinkConfig::default(), 7)
            .error()
            .contains("not found")
    );
}

#[test]
fn a_dead_server_is_reported_and_a_dying_one_asked_again() {
    let script = TftpServerScript {
        silent: true,
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 8);
    assert!(
        outcome
            .error()
            .starts_with("no answer from the TFTP server after 6 requests in ")
    );
    let script = TftpServerScript {
        dies_after: Some(300),
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 8);
    assert_eq!(outcome.bytes(), script.file);
    assert_eq!(outcome.log.borrow().requests, 2);
}

/// As `wireboot serve` does when others wait for the slot.
#[test]
fn a_server_that_gives_up_is_asked_again() {
    let script = TftpServerScript {
        dies_after: Some(100),
        last_words: Some("the slot is another's now"),
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 8);
    assert_eq!(outcome.bytes(), script.file);
    assert_eq!(outcome.log.borrow().requests, 2);
    // Without a wait for what the server has said that it will not send.
    assert!(outcome.micros < 100_000, "{} us", outcome.micros);
}

/// There are servers that know the option and not the size.
#[test]
fn a_size_of_nothing_is_none() {
    for len in [0, 1, 2000, 1_200_000] {
        let script = TftpServerScript {
            announced_size: Some(0),
            file: vec![5; len],
            ..TftpServerScript::default()
        };
        let outcome = fetch(&script, LinkConfig::default(), 9);
        assert_eq!(outcome.bytes(), script.file, "{len} bytes");
        // The first block finds no memory, and is asked for again at once.
        let retransmissions = outcome.result.as_ref().unwrap().retransmissions;
        assert!(retransmissions <= 1, "{len} bytes: {retransmissions}");
        assert!(outcome.micros < 100_000, "{len}: {} us", outcome.micros);
    }
}

#[test]
fn a_wrong_announcement_is_an_error() {
    for size in [1_199_999, 1_200_001, 1, 10_000] {
        let script = TftpServerScript {
            announced_size: Some(size),
            ..TftpServerScript::default()
        };
        let outcome = fetch(&script, LinkConfig::default(), 9);
        assert!(
            matches!(outcome.result, Err(TftpError::WrongSize { announced, .. }) if announced == size),
            "{size}: {:?}",
            outcome.result
        );
    }
    let script = TftpServerScript {
        announced_size: Some(u64::MAX),
        ..TftpServerScript::default()
    };
    let outcome = fetch(&script, LinkConfig::default(), 9);
    assert!(matches!(outcome.result, Err(TftpError::Destination(_))));
}

#[test]
fn a_late_window_is_not_waited_for_long() {
    let wire = LinkConfig {
        latency_micros: 10_000,
        ..lossy(0.01)
    };
    let script = TftpServerScript::default();
    let outcome = fetch(&script, wire, 10);
    assert_eq!(outcome.bytes(), script.file);
    assert!(outcome.micros < 5_000_000, "{} us", outcome.micros);
    // The receive buffers are known: a loss does not say that there are fewer.
    assert_eq!(outcome.log.borrow().requests, 1);
}

/// A file over a fast wire, to a NIC that is sure of 8 receive buffers, hopes for 64, has so many, and is looked at when more than
/// 30 frames may have come.
fn hoping(buffers: usize, slides: bool, latency_micros: u32) -> Outcome {
    let wire = LinkConfig {
        bits_per_second: 10_000_000_000,
        latency_micros,
        ..LinkConfig::default()
    };
    let script = TftpServerScript {
        slides,
        ..TftpServerScript::default()
    };
    let outcome = fetch_at_intervals(&script, wire, 12, 40, |nic| {
        nic.receive_frames = buffers;
        nic.receive_frames_reported = Some((8, 56));
    });
    assert_eq!(outcome.bytes(), script.file);
    outcome
}

#[test]
fn receive_buffers_that_are_hoped_for_are_used_when_they_are_there() {
    for slides in [false, true] {
        let outcome = hoping(80, slides, 50);
        let log = outcome.log.borrow();
        assert_eq!(log.requests, 1);
        assert!(outcome.micros < 20_000, "{} us", outcome.micros);
    }
}

/// The next window comes a round trip later, and that is no loss.
#[test]
fn receive_buffers_that_are_hoped_for_are_used_over_a_long_way() {
    for slides in [false, true] {
        let outcome = hoping(80, slides, 60_000);
        let log = outcome.log.borrow();
        assert_eq!((log.requests, log.errors.len()), (1, 0));
        assert_eq!(outcome.result.as_ref().unwrap().retransmissions, 0);
    }
}

#[test]
fn receive_buffers_that_are_not_there_cost_one_more_request() {
    for slides in [false, true] {
        let outcome = hoping(9, slides, 50);
        let log = outcome.log.borrow();
        assert_eq!(log.requests, 2);
        // Afterwards no more is lost than what is left of the first transfer pushes out.
        let file = outcome.result.as_ref().unwrap();
        assert!(file.retransmissions <= 3, "{}", file.retransmissions);
        assert!(outcome.micros < 250_000, "{} us", outcome.micros);
    }
}

fn sliding() -> TftpServerScript {
    TftpServerScript {
        slides: true,
        file: (0..1_500_000u32).flat_map(|i| i.to_le_bytes()).collect(),
        ..TftpServerScript::default()
    }
}

#[test]
fn a_window_that_slides_keeps_the_wire_busy_over_a_long_way() {
    // There and back takes half of the 3 ms that a window of 256 blocks takes on the wire.
    let wire = LinkConfig {
        latency_micros: 750,
        ..LinkConfig::default()
    };
    let micros = [false, true].map(|slides| {
        let script = TftpServerScript {
            slides,
            ..sliding()
        };
        let outcome = fetch(&script, wire, 11);
        assert!(outcome.bytes() == script.file);
        assert_eq!(outcome.result.as_ref().unwrap().retransmissions, 0);
        assert_eq!(
            outcome.log.borrow().data,
            script.file.len() as u64 / 1468 + 1
        );
        outcome.micros
    });
    let [stopping, slid] = micros;
    assert!(slid * 5 < stopping * 4, "{micros:?}");
    // The simulated wire takes 49.5 ms for 4088 frames of 1514 bytes. Before the first of them: each end asks for the other's Ethernet
    // address, a request and the acknowledgement of its options, 1.5 ms each. Each end looks at the wire once in 50 us.
    assert!(slid < 56_500, "{micros:?}");
}

#[test]
fn a_window_that_slides_survives_what_the_wire_does() {
    let wires = [
        lossy(0.01),
        LinkConfig {
            reorder: 0.05,
            ..LinkConfig::default()
        },
        LinkConfig {
            duplicate: 0.05,
            ..LinkConfig::default()
        },
        LinkConfig {
            loss: 0.02,
            reorder: 0.02,
            duplicate: 0.02,
            corrupt: 0.01,
            ..LinkConfig::default()
        },
    ];
    for (seed, wire) in wires.into_iter().enumerate() {
        for window_limit in [1, 2, 7, 100, 256] {
            let script = TftpServerScript {
                window_limit,
                file: (0..300_000u32).flat_map(|i| i.to_le_bytes()).collect(),
                ..sliding()
            };
            let outcome = fetch(&script, wire, seed as u64);
            assert!(
                outcome.bytes() == script.file,
                "{wire:?}, window {window_limit}"
            );
        }
    }
}

#[test]
fn a_window_that_slides_wraps_and_grows_into_memory() {
    let script = TftpServerScript {
        block_limit: 512,
        announces_size: false,
        file: (0..70_000u32 * 512).map(|i| (i / 499) as u8).collect(),
        ..sliding()
    };
    let outcome = fetch(&script, LinkConfig::default(), 12);
    assert!(outcome.bytes() == script.file);
    // Memory for 4 MiB, and then twice as much each time.
    let sizes = [4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20];
    assert_eq!(outcome.asked, sizes);
    // Each growth costs what was on its way: a window, and another for a repeated acknowledgement.
    let data = outcome.log.borrow().data;
    assert!(
        data < 70_001 + outcome.asked.len() as u64 * 2 * 256,
        "{data} blocks"
    );
    // The wire takes 312 ms for 70,001 frames of 558 bytes. No patience of 100 ms or more was exhausted.
    assert!(outcome.micros < 420_000, "{} us", outcome.micros);
}

#[test]
fn a_slide_that_was_not_asked_for_is_refused() {
    for (slide, window_limit, fits) in [(128, 256, true), (256, 256, false), (128, 64, false)] {
        let script = TftpServerScript {
            slide: Some(slide),
            window_limit,
            ..sliding()
        };
        let outcome = fetch(&script, LinkConfig::default(), 13);
        if fits {
            assert!(outcome.bytes() == script.file);
        } else {
            assert_eq!(
                outcome.error(),
                format!("the TFTP server answers slide={slide}, which this client did not ask for")
            );
        }
    }
}

/// A transfer in the middle of a file, in a window of 8 that slides by 4.
fn midway() -> Transfer {
    let mut transfer = Transfer::new(&[SocketAddr::new(SERVER.into(), 69)], Instant::ZERO);
    transfer.block_size = 8;
    transfer.window = 8;
    transfer.slide = Some(4);
    transfer.memory = Some(vec![0; 8 * 40].into());
    transfer
}

fn block(transfer: &mut Transfer, block: u16, millis: i64) {
    let now = Instant::from_millis(millis);
    transfer.data(block, Parts::new(&[&[0; 8]]), now);
}

#[test]
fn a_multiple_is_acknowledged_though_the_burst_goes_on() {
    let mut transfer = midway();
    for number in 1..=6 {
        block(&mut transfer, number, 1);
    }
    assert!(transfer.due);
    assert_eq!(transfer.acknowledgements(Instant::from_millis(1)), (4, 1));
    transfer.due = false;
    for number in 7..=8 {
        block(&mut transfer, number, 2);
    }
    assert!(transfer.due);
    // Block 9 could not come without the acknowledgement of 4.
    assert_eq!(transfer.acknowledgements(Instant::from_millis(2)), (8, 1));
    assert_eq!(transfer.round_trip, None);
    block(&mut transfer, 9, 7);
    assert_eq!(transfer.round_trip, Some(Duration::from_millis(6)));
}

#[test]
fn a_gap_after_a_multiple_is_told_from_the_multiple() {
    let now = Instant::from_millis(1);
    // In one burst: the first acknowledgement slides, the second takes back.
    let mut transfer = midway();
    for number in [1, 2, 3, 4, 6, 7] {
        block(&mut transfer, number, 1);
    }
    assert_eq!(transfer.acknowledgements(now), (4, 2));
    // In two.
    let mut transfer = midway();
    for number in 1..=4 {
        block(&mut transfer, number, 1);
    }
    assert_eq!(transfer.acknowledgements(now), (4, 1));
    block(&mut transfer, 6, 1);
    assert_eq!(transfer.acknowledgements(now), (4, 1));
    // Elsewhere.
    let mut transfer = midway();
    for number in [1, 2, 3, 4, 5, 7] {
        block(&mut transfer, number, 1);
    }
    assert_eq!(transfer.acknowledgements(now), (5, 1));
}

#[test]
fn three_round_trips_are_waited_for_on_trial_too() {
    let mut transfer = midway();
    for unsure in [false, true] {
        transfer.begin_trial(false, unsure);
        for (round_trip, millis) in [
            (None, 1000),
            (Some(1), 100),
            (Some(200), 600),
            (Some(2000), 4000),
        ] {
            transfer.round_trip = round_trip.map(Duration::from_millis);
            for next in [1, 5] {
                transfer.next = next;
                let timeout = transfer.timeout();
                assert_eq!(timeout, Duration::from_millis(millis), "{next}");
            }
        }
    }
}

/// A server may have to wait for its disk. What is missing behind a block has been lost.
#[test]
fn a_late_first_block_fails_no_trial() {
    let late = || {
        let mut transfer = midway();
        transfer.begin_trial(false, true);
        transfer.timed_out();
        transfer.timed_out();
        transfer
    };
    let mut transfer = late();
    assert!(!transfer.trial_failed());
    for number in 1..=3 {
        block(&mut transfer, number, 3100);
    }
    assert!(!transfer.trial_failed());
    transfer.timed_out();
    assert!(transfer.trial_failed());
    let mut transfer = late();
    block(&mut transfer, 2, 3100);
    assert!(transfer.trial_failed());
    // The first block itself was lost.
    let mut transfer = midway();
    transfer.begin_trial(false, true);
    block(&mut transfer, 2, 1);
    transfer.timed_out();
    assert_eq!(transfer.retransmissions, 2);
    assert!(transfer.trial_failed());
    // Blocks of many frames may never arrive.
    let mut transfer = midway();
    transfer.begin_trial(true, false);
    transfer.timed_out();
    assert!(transfer.trial_failed());
}

#[test]
fn a_repeated_block_is_answered_when_the_acknowledgement_was_lost() {
    let mut transfer = midway();
    for number in 1..=4 {
        block(&mut transfer, number, 1);
    }
    transfer.acknowledgements(Instant::from_millis(1));
    transfer.due = false;
    // The network made two of one; an older one says nothing however late it is.
    block(&mut transfer, 4, 2);
    block(&mut transfer, 3, 60);
    assert_eq!((transfer.due, transfer.retransmissions), (false, 0));
    block(&mut transfer, 4, 60);
    assert_eq!((transfer.due, transfer.retransmissions), (true, 1));
    assert_eq!(transfer.acknowledgements(Instant::from_millis(60)), (4, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_the_wire_does_the_file_is_right_or_an_error(
        seed in any::<u64>(), len in 0usize..150_000, loss in 0.0..0.1, reorder in 0.0..0.2,
        duplicate in 0.0..0.1, corrupt in 0.0..0.02, options in any::<bool>(), windows in any::<bool>(),
        block_limit in prop::sample::select(vec![512u16, 1000, 1468]), latency in 1u32..5_000,
        coalesce in any::<bool>(), slides in any::<bool>(), announces_size in any::<bool>(),
    ) {
        let file: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        let script = TftpServerScript { file, options, windows, slides, announces_size, block_limit, ..TftpServerScript::default() };
        let wire = LinkConfig { loss, reorder, duplicate, corrupt, latency_micros: latency, ..LinkConfig::default() };
        let outcome = fetch_with(&script, wire, seed, |nic| nic.coalesce = coalesce);
        match &outcome.result {
            Ok(_) => prop_assert!(outcome.bytes() == script.file),
            Err(
                TftpError::Stalled { .. } | TftpError::NoAnswer { .. } | TftpError::NoBlock { .. },
            ) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
