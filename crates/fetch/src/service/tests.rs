//! The mailbox from the other side: several downloads at once, memory given and refused, cancellation.

use super::*;
use crate::dhcp::LeaseSource;
use crate::dns::tests::{Data, answer, asked};
use crate::testing;
use crate::tftp::tests::{Log, TftpServerScript, serve};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec;
use wireboot_net::Ipv4Addr;
use wireboot_net::{Ipv4Cidr, Ipv4Config};
use wireboot_nic::Steering;
use wireboot_nic::sim::{self, Clock, LinkConfig, SimNic};
use wireboot_ring::channel;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn lease() -> Lease {
    Lease::new(Ipv4Cidr::new(CLIENT, 24), LeaseSource::Firmware)
}

/// What a name server was asked: whether over IPv6, the name, and the type of the record.
type Questions = Rc<RefCell<Vec<(bool, String, u8)>>>;
/// The response code with which a name server answers, by whether it is asked over IPv6 and by the name; `None`: it is silent.
type Zone = fn(bool, &str) -> Option<u8>;

/// A name server over both IP versions, which takes so long for an answer. Each name that there is has the address of the bench's server,
/// and none by IPv6.
async fn serve_names(stack: Stack, delay: Duration, zone: Zone, questions: Questions) {
    let socket = stack.udp_on(53);
    loop {
        let (client, query) = socket.receive().await;
        let over_v6 = client.is_ipv6();
        let name = asked(&query);
        let kind = query[query.len() - 3];
        questions.borrow_mut().push((over_v6, name.clone(), kind));
        let Some(code) = zone(over_v6, &name) else {
            continue;
        };
        stack.sleep(delay).await;
        let has_address = code == 0 && kind == 1;
        let address = has_address.then_some((name.as_str(), Data::A(SERVER)));
        let records: Vec<_> = address.into_iter().collect();
        let _ = socket.send_to(client, &answer(&query, code, &records));
    }
}

/// A service, its mailbox, and a TFTP server at the other end of the wire.
struct Bench {
    service: Service<SimNic>,
    server: Engine<SimNic>,
    port: u16,
    log: Rc<RefCell<Log>>,
    clock: Clock,
    commands: Sender<Command>,
    events: Receiver<Event>,
    done: BTreeMap<Job, Result<File, FetchError>>,
    needs: Vec<(Job, u64)>,
    progress: u64,
}

impl Bench {
    fn new(script: TftpServerScript) -> Self {
        let mut bench = Self::without_lease(script);
        bench.commands.push(Command::Configure(lease())).unwrap();
        bench
    }

    fn without_lease(script: TftpServerScript) -> Self {
        let (near, far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
        let clock = near.clock();
        let (commands, inbox) = channel(16);
        // Smaller than what many downloads have to tell at once.
        let (outbox, events) = channel(4);
        let service = Service::new(near, [1; 32], inbox, outbox);
        let mut server = Engine::new(far, [2; 32]);
        server.stack().configure(&Ipv4Config {
            address: Ipv4Cidr::new(SERVER, 24),
            router: None,
            routes: Vec::new(),
            mtu: None,
        });
        let stack = server.stack();
        let listener = stack.udp();
        let port = listener.port();
        let log = Rc::new(RefCell::new(Log::default()));
        server.spawn(serve(stack, listener, script, log.clone()));
        Self {
            service,
            server,
            port,
            log,
            clock,
            commands,
            events,
            done: BTreeMap::new(),
            needs: Vec::new(),
            progress: 0,
        }
    }

    /// Has the other end answer for names, by IPv6 at its link-local address.
    fn serve_names(&mut self, delay: Duration, zone: Zone) -> Questions {
        let questions = Questions::default();
        let stack = self.server.stack();
        stack.ipv6_up();
        let task = serve_names(stack, delay, zone, questions.clone());
        self.server.spawn(task);
        questions
    }

    /// Gives a lease that names this name server.
    fn lease_v4(&mut self) {
        let mut lease = lease();
        lease.dns.push(SERVER);
        self.commands.push(Command::Configure(lease)).unwrap();
    }

    /// The same by IPv6.
    fn lease_v6(&mut self) {
        let lease = Lease6 {
            addresses: vec!["2001:db8::5".parse().unwrap()],
            dns: vec![self.server.stack().link_local().unwrap()],
            ..Lease6::new(LeaseSource::Firmware)
        };
        self.commands.push(Command::Configure6(lease)).unwrap();
    }

    /// Asks that host, by its name, for a file as job 1.
    fn get_from(&mut self, host: &str) {
        let url = std::format!("tftp://{host}:{}/boot/linux", self.port);
        self.ask(1, url);
    }

    /// Why there is no address for job 1, which is over.
    fn unresolved(&mut self) -> String {
        match self.done.remove(&1) {
            Some(Err(FetchError::Unresolved { reason, .. })) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn get(&mut self, job: Job) {
        let url = std::format!("tftp://{SERVER}:{}/boot/linux", self.port);
        self.ask(job, url);
    }

    fn ask(&mut self, job: Job, url: String) {
        let patience = Duration::ZERO;
        let command = Command::Get { job, url, patience };
        self.commands.push(command).unwrap();
    }

    /// Runs until `jobs` downloads are over, answering what they need by `answer`.
    fn run(&mut self, jobs: usize, mut answer: impl FnMut(Job, u64) -> Option<Command>) {
        while self.done.len() < jobs {
            assert!(self.clock.now() < 100_000_000, "the downloads do not end");
            self.turn(&mut answer);
        }
    }

    /// Runs until the name server has been asked something.
    fn run_until_asked(&mut self, questions: &Questions) {
        while questions.borrow().is_empty() {
            assert!(self.clock.now() < 100_000_000, "nothing is asked");
            self.turn(&mut give);
        }
    }

    /// Runs for so many seconds.
    fn run_for(&mut self, seconds: i64) {
        let end = self.clock.now() + seconds * 1_000_000;
        while self.clock.now() < end {
            self.turn(&mut give);
        }
    }

    fn turn(&mut self, answer: &mut impl FnMut(Job, u64) -> Option<Command>) {
        let now = Instant::from_micros(self.clock.now());
        let busy = self.service.poll(now).unwrap() | self.server.poll(now).unwrap();
        self.clock.advance(if busy { 2 } else { 50 });
        while let Some(event) = self.events.pop() {
            match event {
                Event::NeedMemory { job, bytes } => {
                    self.needs.push((job, bytes));
                    if let Some(command) = answer(job, bytes) {
                        self.commands.push(command).unwrap();
                    }
                }
                Event::Progress { .. } => self.progress += 1,
                Event::Done { job, result } => {
                    assert!(self.done.insert(job, result).is_none());
                }
                Event::Lease { result, .. } => assert!(result.is_err(), "nobody gives one"),
                Event::Exchange { .. } => panic!("nothing was exchanged"),
                Event::Link { .. } => panic!("there is no tap"),
            }
        }
    }
}

fn give(job: Job, bytes: u64) -> Option<Command> {
    let memory = Memory::from(vec![0; bytes as usize]);
    Some(Command::Memory { job, memory })
}

#[test]
fn more_downloads_than_run_together_all_arrive() {
    let script = TftpServerScript::default();
    let mut bench = Bench::new(script.clone());
    let jobs = 2 * MAX_CONCURRENT as u32 + 1;
    (0..jobs).for_each(|job| bench.get(job));
    bench.run(jobs as usize, give);
    assert_eq!(bench.needs.len(), jobs as usize);
    assert!(bench.progress > 0);
    for (_, result) in bench.done {
        let file = result.unwrap();
        assert!(file.memory.rest(0)[..file.len as usize] == script.file);
        assert_eq!(file.stats.bytes, script.file.len() as u64);
        assert!(file.stats.micros > 0);
        assert_eq!(file.server, Some(SERVER.into()));
    }
}

#[test]
fn a_job_without_memory_ends_and_the_others_go_on() {
    let script = TftpServerScript::default();
    let mut bench = Bench::new(script);
    (1..=3).for_each(|job| bench.get(job));
    bench.run(3, |job, bytes| match job {
        1 => Some(Command::NoMemory { job }),
        // Less than asked for is as good as none.
        2 => give(job, bytes - 1),
        _ => give(job, bytes),
    });
    let text = |job| bench.done[&job].as_ref().err().map(|e| e.to_string());
    assert!(text(1).unwrap().contains("no memory for 1200000 bytes"));
    assert!(text(2).unwrap().contains("no memory"));
    assert_eq!(text(3), None);
}

#[test]
fn a_file_takes_what_it_has_to_larger_memory() {
    // It does not tell its size.
    let mut script = TftpServerScript::default();
    script.refuse_options = true;
    script.file = (0..5_000_000_u32).map(|at| (at / 7) as u8).collect();
    let mut bench = Bench::new(script.clone());
    bench.get(1);
    let committed = Arc::default();
    bench.run(1, |job, bytes| {
        let memory = testing::memory(bytes, None, &committed);
        Some(Command::Memory { job, memory })
    });
    assert!(bench.needs.len() > 1);
    let file = bench.done.remove(&1).unwrap().unwrap();
    assert!(file.memory.len() > file.len as usize);
    let mut bytes: Vec<u8> = Vec::new();
    while !file.rest(bytes.len()).is_empty() {
        bytes.extend(file.rest(bytes.len()));
    }
    assert!(bytes == script.file);
}

#[test]
fn a_cancelled_job_is_over_at_once_wherever_it_was() {
    let mut bench = Bench::new(TftpServerScript::default());
    (1..=2).for_each(|job| bench.get(job));
    // Job 1 is cancelled while it waits for memory.
    bench.run(2, |job, bytes| match job {
        1 => Some(Command::Cancel { job }),
        _ => give(job, bytes),
    });
    assert!(matches!(bench.done[&1], Err(FetchError::Cancelled { .. })));
    assert!(bench.done[&2].is_ok());
    // The server need not wait for an acknowledgement.
    assert_eq!(bench.log.borrow().errors, ["cancelled"]);
}

#[test]
fn what_is_no_url_is_refused_and_a_name_without_servers_unresolved() {
    let mut bench = Bench::new(TftpServerScript::default());
    for (job, url) in [
        (1, "ftp://a/b"),
        (2, "linux"),
        (3, "tftp://boot.example/linux"),
    ] {
        bench.ask(job, url.to_string());
    }
    bench.run(3, give);
    assert!(matches!(bench.done[&1], Err(FetchError::Url(_))));
    assert!(matches!(bench.done[&2], Err(FetchError::Url(_))));
    assert!(matches!(bench.done[&3], Err(FetchError::Unresolved { .. })));
}

#[test]
fn a_file_is_its_bytes_and_what_they_took() {
    let file = File {
        url: "http://h/x".into(),
        memory: Memory::from(vec![1, 2, 3, 4]),
        len: 3,
        server: None,
        stats: Stats::default(),
    };
    assert_eq!(file.content(), [1, 2, 3]);
    let stats = |bytes, micros| Stats {
        bytes,
        micros,
        retransmissions: 0,
    };
    assert_eq!(stats(250_000_000, 2_000_000).megabits(), 1000);
    assert_eq!(stats(1, 0).megabits(), 0);
}

/// Lets time pass up to `micros` after the start.
fn pass(bench: &mut Bench, micros: i64) {
    while bench.clock.now() < micros {
        let now = Instant::from_micros(bench.clock.now());
        bench.service.poll(now).unwrap();
        bench.server.poll(now).unwrap();
        bench.clock.advance(1000);
    }
}

#[test]
fn name_servers_of_both_leases_are_each_asked_once() {
    let mut bench = Bench::new(TftpServerScript::default());
    let [first, second]: [Ipv4Addr; 2] = [SERVER, Ipv4Addr::new(10, 0, 0, 3)];
    let lease = Lease {
        dns: vec![first, second, first],
        search: vec!["a.example".into(), "b.example".into()],
        ..lease()
    };
    let sixth = "2001:db8::53".parse().unwrap();
    let lease6 = Lease6 {
        dns: vec![sixth],
        search: vec!["b.example".into(), "c.example".into()],
        ..Lease6::new(LeaseSource::Firmware)
    };
    bench.commands.push(Command::Configure(lease)).unwrap();
    bench.commands.push(Command::Configure6(lease6)).unwrap();
    pass(&mut bench, 10_000);
    let shared = &bench.service.shared;
    let (servers, search) = dns::name_servers(&shared.stack, &shared.leases.borrow());
    assert_eq!(
        servers,
        [IpAddr::V4(first), IpAddr::V4(second), IpAddr::V6(sixth)]
    );
    assert_eq!(search, ["a.example", "b.example", "c.example"]);
}

#[test]
fn ipv6_alone_waits_for_a_router_and_then_goes_on() {
    let mut bench = Bench::new(TftpServerScript::default());
    // The service forgets the lease by IPv4 that the bench gives.
    pass(&mut bench, 10_000);
    bench.service.shared.leases.borrow_mut().v4 = None;
    let address = "2001:db8::5".parse().unwrap();
    let lease6 = Lease6 {
        addresses: vec![address],
        ..Lease6::new(LeaseSource::Firmware)
    };
    bench.commands.push(Command::Configure6(lease6)).unwrap();
    let begin = bench.clock.now();
    let url = "http://none.example/".to_string();
    let patience = Duration::ZERO;
    let command = Command::Get {
        job: 1,
        url,
        patience,
    };
    bench.commands.push(command).unwrap();
    bench.run(1, give);
    let addresses = bench.service.shared.stack.addresses6();
    assert!(addresses.iter().any(|cidr| cidr.address() == address));
    // Nobody is there to tell the name's address; that is found at once.
    assert!(bench.done[&1].is_err());
    let waited = bench.clock.now() - begin;
    assert!((4_000_000..4_100_000).contains(&waited), "{waited} us");
}

#[test]
fn no_more_downloads_run_together_than_share_the_buffers() {
    let mut bench = Bench::new(TftpServerScript::default());
    (0..=MAX_CONCURRENT as u32).for_each(|job| bench.get(job));
    pass(&mut bench, 200_000);
    assert_eq!(bench.service.shared.running.get(), MAX_CONCURRENT);
    bench.run(MAX_CONCURRENT + 1, give);
    assert!(bench.done.values().all(Result::is_ok));
}

#[test]
fn what_is_given_to_another_engine_is_counted() {
    let mut bench = Bench::new(TftpServerScript::default());
    let (lead, _others) = wireboot_net::team(&Steering::by_port(2));
    bench.service.engine.join(lead);
    // All frames come to the first engine, and an odd port is the second one's.
    let stack = bench.server.stack();
    bench.server.spawn(async move {
        let odd = SocketAddr::new(CLIENT.into(), 7001);
        let _ = stack.connect(odd, Duration::from_secs(1)).await;
    });
    assert_eq!(bench.service.forwarded(), Forwarded::default());
    pass(&mut bench, 500_000);
    assert!(bench.service.forwarded().frames > 0);
}

#[test]
fn the_link_below_a_tap_is_told_when_it_changes() {
    let mut bench = Bench::new(TftpServerScript::default());
    let turn = |bench: &mut Bench| {
        bench.clock.advance(LINK_LOOKS.total_micros() as i64);
        let now = Instant::from_micros(bench.clock.now());
        bench.service.poll(now).unwrap();
        bench.events.pop().map(|event| match event {
            Event::Link { up } => up,
            other => panic!("{other:?}"),
        })
    };
    let cut = |bench: &mut Bench, up| bench.server.nic_mut().set_link_up(up);
    cut(&mut bench, false);
    assert_eq!(turn(&mut bench), None);
    let (tap, _port) = wireboot_net::tap(1500);
    bench.commands.push(Command::Tap(Box::new(tap))).unwrap();
    assert_eq!([turn(&mut bench), turn(&mut bench)], [Some(false), None]);
    cut(&mut bench, true);
    assert_eq!([turn(&mut bench), turn(&mut bench)], [Some(true), None]);
}

#[test]
fn a_file_waits_for_the_lease_that_leads_to_its_server() {
    let mut bench = Bench::without_lease(TftpServerScript::default());
    let awaited = bench.service.shared.clone();
    awaited.awaited.set(Versions {
        v4: true,
        v6: false,
    });
    bench.get(1);
    bench.run_for(10);
    assert!(bench.done.is_empty());
    // There is one at last.
    bench.commands.push(Command::Configure(lease())).unwrap();
    bench.run(1, give);
    assert!(bench.done.remove(&1).unwrap().is_ok());
}

#[test]
fn a_file_does_not_wait_for_a_lease_that_cannot_come() {
    for awaited in [
        Versions::default(),
        Versions {
            v4: false,
            v6: true,
        },
    ] {
        let mut bench = Bench::without_lease(TftpServerScript::default());
        bench.service.shared.awaited.set(awaited);
        bench.get(1);
        bench.run_for(1);
        assert!(bench.done.remove(&1).unwrap().is_err());
    }
    // It is still under way, and may be ended.
    let mut bench = Bench::without_lease(TftpServerScript::default());
    bench.service.shared.awaited.set(Versions {
        v4: true,
        v6: false,
    });
    bench.get(1);
    bench.run_for(1);
    bench.commands.push(Command::Cancel { job: 1 }).unwrap();
    bench.run_for(1);
    assert!(matches!(
        bench.done.remove(&1),
        Some(Err(FetchError::Cancelled { .. }))
    ));
}

#[test]
fn who_waits_for_a_lease_does_so_until_nobody_has_answered() {
    let mut bench = Bench::without_lease(TftpServerScript::default());
    let request = DhcpRequest {
        architecture: 7,
        uuid: None,
        client_id: None,
        vendor_class: crate::dhcp::VendorClass::Pxe,
        user_class: "wireboot".to_string(),
        requested_address: None,
        want_boot_file: false,
        proxied: false,
        patience: Some(Duration::from_secs(2)),
    };
    let command = Command::Dhcp { job: 9, request };
    bench.commands.push(command).unwrap();
    bench.get(1);
    bench.ask(2, "tftp://[2001:db8::9]/linux".to_string());
    bench.run_for(1);
    assert!(bench.done.is_empty());
    let awaited = bench.service.shared.awaited.get();
    assert_eq!(awaited, Versions { v4: true, v6: true });
    bench.run_for(20);
    assert_eq!(bench.service.shared.awaited.get(), Versions::default());
    assert!(bench.done.values().all(Result::is_err) && bench.done.len() == 2);
}

#[test]
fn a_name_waits_for_the_lease_with_a_name_server() {
    let mut bench = Bench::without_lease(TftpServerScript::default());
    let state = bench.service.shared.clone();
    state.awaited.set(Versions { v4: true, v6: true });
    bench.ask(1, "tftp://boot/linux".to_string());
    bench.run_for(3);
    assert!(bench.done.is_empty());
    bench.lease_v4();
    state.await_no_v4();
    bench.run_for(10);
    // It was asked, though it does not answer.
    let why = bench.unresolved();
    assert!(why.contains(&SERVER.to_string()), "{why}");
    // None comes: it ends.
    let mut bench = Bench::without_lease(TftpServerScript::default());
    bench
        .service
        .shared
        .awaited
        .set(Versions { v4: true, v6: true });
    bench.ask(1, "tftp://boot/linux".to_string());
    bench.run_for(11);
    let why = bench.unresolved();
    assert!(why.contains("no DNS server is known"), "{why}");
}

#[test]
fn a_lease_that_comes_while_a_name_server_is_asked_counts() {
    let mut bench = Bench::without_lease(TftpServerScript::default());
    let questions = bench.serve_names(Duration::from_millis(50), |_, _| Some(0));
    let state = bench.service.shared.clone();
    state.awaited.set(Versions {
        v4: true,
        v6: false,
    });
    bench.lease_v6();
    bench.get_from("boot.lab");
    bench.run_until_asked(&questions);
    // That there is no such address is answered when the other lease is there.
    bench.commands.push(Command::Configure(lease())).unwrap();
    state.await_no_v4();
    bench.run(1, give);
    assert!(bench.done[&1].is_ok(), "{:?}", bench.done[&1]);
    let questions = questions.borrow();
    let kinds: Vec<u8> = questions.iter().map(|(.., kind)| *kind).collect();
    assert_eq!(kinds, [28, 28, 1]);
}

#[test]
fn a_name_that_is_unknown_by_one_lease_waits_for_the_other() {
    let zone: Zone = |over_v6, name| match (over_v6, name) {
        (false, "boot.lab") | (true, "boot.site") => Some(0),
        _ => Some(3),
    };
    // By its name server, or by its domain.
    for (host, dns, search) in [
        ("boot.lab", vec![SERVER], vec![]),
        ("boot", vec![], vec!["site".to_string()]),
    ] {
        let mut bench = Bench::without_lease(TftpServerScript::default());
        let questions = bench.serve_names(Duration::ZERO, zone);
        let state = bench.service.shared.clone();
        state.awaited.set(Versions { v4: true, v6: true });
        bench.get_from(host);
        bench.run_for(1);
        bench.lease_v6();
        state.await_no_v6();
        bench.run_until_asked(&questions);
        bench.run_for(1);
        assert!(bench.done.is_empty());
        let lease = Lease {
            dns,
            search,
            ..lease()
        };
        bench.commands.push(Command::Configure(lease)).unwrap();
        state.await_no_v4();
        bench.run(1, give);
        assert!(bench.done[&1].is_ok(), "{:?}", bench.done[&1]);
    }
}

#[test]
fn a_name_that_nobody_knows_waits_no_longer_than_a_lease_may_come() {
    let v6 = Versions {
        v4: false,
        v6: true,
    };
    // Until when none can come any more, and when it is over, in seconds.
    for (awaited, failed_at, over_at) in [
        (Versions::default(), None, 0),
        (v6, None, 10),
        (v6, Some(3), 3),
    ] {
        let mut bench = Bench::without_lease(TftpServerScript::default());
        let questions = bench.serve_names(Duration::ZERO, |_, _| Some(3));
        let state = bench.service.shared.clone();
        state.awaited.set(awaited);
        bench.lease_v4();
        bench.get_from("boot.lab");
        if let Some(seconds) = failed_at {
            bench.run_for(seconds);
            assert!(bench.done.is_empty());
            state.await_no_v6();
        }
        bench.run(1, give);
        assert_eq!(bench.clock.now() / 1_000_000, over_at);
        let why = bench.unresolved();
        assert!(why.contains("NXDOMAIN for boot.lab)"), "{why}");
        // Nobody is asked again for nothing.
        assert_eq!(*questions.borrow(), [(false, "boot.lab".to_string(), 1)]);
    }
    // What is no name waits for nothing.
    let mut bench = Bench::without_lease(TftpServerScript::default());
    bench.service.shared.awaited.set(v6);
    bench.lease_v4();
    bench.get_from(&"a".repeat(64));
    bench.run(1, give);
    assert!(bench.clock.now() < 1_000_000);
    let why = bench.unresolved();
    assert!(why.contains("is no host name"), "{why}");
}

#[test]
fn a_name_is_given_up_where_leases_change_again_and_again() {
    let mut bench = Bench::without_lease(TftpServerScript::default());
    bench.serve_names(Duration::ZERO, |_, _| Some(3));
    let state = bench.service.shared.clone();
    bench.lease_v4();
    bench.get_from("boot.lab");
    state.awaited.set(Versions { v4: true, v6: true });
    while bench.clock.now() < 11_000_000 {
        bench.turn(&mut give);
        let mut lease = Lease6::new(LeaseSource::Dhcp);
        lease.boot_file = Some(bench.clock.now().to_string());
        state.leases.borrow_mut().v6 = Some(lease);
    }
    assert!(bench.unresolved().contains("NXDOMAIN"));
}

#[test]
fn name_servers_of_one_version_alone_do_not_deny_a_name() {
    // The other version's deny it too, are silent, or fail; and how many seconds that takes.
    let zones: [(Zone, i64); 3] = [
        (|_, _| Some(3), 0),
        (|over_v6, _| over_v6.then_some(3), 1),
        (|over_v6, _| Some(if over_v6 { 3 } else { 2 }), 0),
    ];
    for (zone, seconds) in zones {
        let mut bench = Bench::without_lease(TftpServerScript::default());
        let questions = bench.serve_names(Duration::ZERO, zone);
        // Until nobody has objected to the addresses.
        pass(&mut bench, 2_000_000);
        bench.lease_v4();
        bench.lease_v6();
        let begin = bench.clock.now();
        bench.get_from("boot.lab");
        bench.run(1, give);
        assert_eq!((bench.clock.now() - begin) / 1_000_000, seconds);
        let why = bench.unresolved();
        assert!(why.contains("NXDOMAIN for boot.lab)"), "{why}");
        let of_v6 = questions.borrow().iter().filter(|one| one.0).count();
        assert_eq!((of_v6, questions.borrow().len()), (2, 4));
    }
}
