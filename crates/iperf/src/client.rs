//! A test from its connection to its results.

use crate::error::Error;
use crate::messages::{Results, StreamResults, counted, parameters};
use crate::session::{IPERF_DONE, Session, Step, TEST_END};
use crate::streams::{CONNECT, Counts, RunningTest, Stream};
use crate::test::{Limit, Test};
use alloc::format;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::poll_fn;
use core::net::IpAddr;
use core::pin::pin;
use core::task::Poll;
use wireboot_net::{Duration, Instant, NetError, Region, Stack, TcpStream};
use wireboot_report::Throughput;
use wireboot_report::throughput::{self, Datagrams, Direction, Interval, Transport};

/// Letters of a cookie; a NUL follows them.
const COOKIE: usize = 36;
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Bytes of a write of TCP, as iperf3 has it.
const WRITE: usize = 128 << 10;
/// How long the server may be silent before and after the data.
const SILENCE: Duration = Duration::from_secs(10);
/// How long nothing may come through.
const STALL: Duration = Duration::from_secs(10);
/// Of datagrams some are lost: a number of bytes that is not reached ends so much behind the last.
const QUIET: Duration = Duration::from_secs(2);
/// What an interval takes.
const INTERVAL: Duration = Duration::from_secs(1);
/// Datagrams under way get so much time to be counted.
const UNDER_WAY: Duration = Duration::from_millis(10);

/// What a test and whoever turns its engine tell each other.
#[derive(Debug, Default)]
pub struct Watch {
    running: Cell<bool>,
    bytes: Cell<u64>,
    micros: Cell<u64>,
    busy_percent: Cell<f64>,
}

impl Watch {
    /// Whether data moves: what is counted elsewhere for a test is counted then.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Bytes moved so far, and for how many microseconds.
    #[must_use]
    pub fn so_far(&self) -> (u64, u64) {
        (self.bytes.get(), self.micros.get())
    }

    /// Says which share of the time the processor has been busy so far, in percent, which the server is told.
    pub fn set_busy_percent(&self, share: f64) {
        self.busy_percent.set(share);
    }
}

/// Runs `test` over `stack`, with data from and to `memory`, which is overwritten. What the processor had to do for it is left out of the
/// result: see [`Watch::is_running`].
///
/// # Errors
/// [`Error`], within seconds of the time that the test is to take.
pub async fn run(
    stack: &Stack,
    test: &Test,
    memory: &Region,
    watch: &Watch,
) -> Result<Throughput, Error> {
    let length = length(stack, test)?;
    let shared = RunningTest::new(stack, test, length);
    let connected = stack.connect(test.server, CONNECT).await;
    let mut control = connected.map_err(|error| Error::Connect(test.server, error))?;
    control.set_idle_timeout(SILENCE);
    let cookie = cookie(stack);
    let mut client = Client {
        session: Session::new(test.streams().map(|(id, _)| id).collect()),
        control,
        shared,
        streams: Vec::new(),
        intervals: Vec::new(),
        took: Duration::from_micros(0),
    };
    let result = client.run(&cookie, memory, watch).await;
    watch.running.set(false);
    result
}

/// Bytes of a message. Sees to it that the path takes segments or datagrams of the size that is wanted, and no larger ones.
fn length(stack: &Stack, test: &Test) -> Result<usize, Error> {
    let remote = test.server.ip();
    let ip: u16 = match remote {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    };
    if let Some(mss) = test.mss {
        let mtu = mss.saturating_add(ip + 20);
        stack.set_path_mtu(remote, mtu);
        if stack.path_mtu(remote) > mtu {
            return Err(Error::Size(
                "segments must have at least 536 bytes, of IPv6 1220; raise mss",
            ));
        }
    }
    if test.transport != Transport::Udp {
        return Ok(test.length.map_or(WRITE, |length| length.max(1) as usize));
    }
    let most = usize::from(stack.path_mtu(remote).saturating_sub(ip + 8));
    let length = test.length.map_or(most, |length| length as usize);
    if length < crate::datagram::HEADER {
        return Err(Error::Size(
            "a datagram has 16 bytes at least; raise length",
        ));
    }
    if length > most && test.direction != Direction::Receive {
        return Err(Error::Size(
            "datagrams of that length do not fit a packet, and none is sent in fragments; lower length",
        ));
    }
    Ok(length)
}

/// The word by which the server knows what belongs to this test.
fn cookie(stack: &Stack) -> Vec<u8> {
    let letter = |_| {
        let at = stack.random() as usize % LETTERS.len();
        LETTERS.get(at).copied().unwrap_or(b'a')
    };
    (0..COOKIE).map(letter).chain([0]).collect()
}

struct Client<'a> {
    session: Session,
    control: TcpStream,
    shared: RunningTest<'a>,
    streams: Vec<Stream>,
    intervals: Vec<Interval>,
    took: Duration,
}

impl Client<'_> {
    async fn run(
        &mut self,
        cookie: &[u8],
        memory: &Region,
        watch: &Watch,
    ) -> Result<Throughput, Error> {
        self.say(cookie).await?;
        let mut theirs = Results::default();
        loop {
            match self.session.next()? {
                Some(Step::Parameters) => {
                    let len = u32::try_from(self.shared.length).unwrap_or(u32::MAX);
                    self.say(&parameters(self.shared.test, len)).await?;
                }
                Some(Step::Streams) => {
                    for which in self.shared.test.streams() {
                        let stream = Stream::open(&self.shared, which, cookie).await?;
                        self.streams.push(stream);
                    }
                }
                Some(Step::Run) => {
                    watch.running.set(true);
                    let ended = self.moves(memory, watch).await;
                    self.streams.iter_mut().for_each(Stream::end);
                    watch.running.set(false);
                    ended?;
                    if self.shared.test.transport == Transport::Udp {
                        self.shared.stack.sleep(UNDER_WAY).await;
                    }
                    self.session.end();
                    self.say(&[TEST_END]).await?;
                }
                Some(Step::Results) => {
                    let ours = self.results(watch.busy_percent.get()).framed();
                    self.say(&ours).await?;
                }
                Some(Step::Told(results)) => theirs = results,
                Some(Step::Done) => break,
                None => self.hear().await?,
            }
        }
        self.say(&[IPERF_DONE]).await?;
        let report = self.report(&theirs);
        // The connections that are dropped are reset; the server has closed them.
        self.streams.clear();
        self.control.close();
        // It may go without a word: the results are there.
        while matches!(self.control.read(<[u8]>::len).await, Ok(1..)) {}
        Ok(report)
    }

    async fn say(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let said = self.control.write_all(bytes).await;
        said.map_err(|error| Error::Control(self.session.when(), error))
    }

    async fn hear(&mut self) -> Result<(), Error> {
        hear(&mut self.control, &mut self.session).await
    }

    /// Moves data until the test is over.
    async fn moves(&mut self, memory: &Region, watch: &Watch) -> Result<(), Error> {
        let Self {
            session,
            control,
            shared,
            streams,
            intervals,
            took,
        } = self;
        let (stack, test) = (shared.stack, shared.test);
        let counts: Vec<(Counts, bool)> = streams
            .iter()
            .map(|stream| (stream.counts.clone(), stream.sends))
            .collect();
        let each = memory.len() / counts.len().max(1);
        let mut moving: Vec<_> = streams
            .iter_mut()
            .zip(0..)
            .map(|(stream, index)| {
                let start = each * index;
                stream.moves(shared, memory.part(start + each), start)
            })
            .collect();
        // As long as the test: nothing is said on it.
        control.set_idle_timeout(Duration::from_secs(u64::from(u32::MAX)));
        let mut course = Course::new(&counts, test, stack.now());
        let ended = {
            let mut complaint = pin!(complaint(control, session));
            poll_fn(|context| {
                if let Poll::Ready(error) = complaint.as_mut().poll(context) {
                    return Poll::Ready(Err(error));
                }
                for stream in &mut moving {
                    if let Poll::Ready(error) = stream.as_mut().poll(context) {
                        return Poll::Ready(Err(Error::Stream(error)));
                    }
                }
                let now = stack.now();
                let over = course.over(now);
                watch.bytes.set(course.moved);
                watch.micros.set((now - course.began).total_micros());
                match over {
                    Some(over) => Poll::Ready(over),
                    None => Poll::Pending,
                }
            })
            .await
        };
        control.set_idle_timeout(SILENCE);
        *took = stack.now() - course.began;
        *intervals = course.intervals;
        ended
    }

    /// What we say of the test.
    fn results(&self, busy_percent: f64) -> Results {
        let seconds = seconds(self.took);
        let stream = |stream: &Stream| {
            let (jitter, errors, packets) = match &stream.counts {
                Counts::Came(tally) => {
                    let tally = tally.borrow();
                    (tally.jitter_seconds(), tally.lost() as f64, tally.highest)
                }
                counts => (0.0, 0.0, counts.datagrams()),
            };
            StreamResults {
                id: stream.id,
                bytes: stream.counts.bytes(),
                retransmits: stream.retransmissions().map_or(-1.0, |count| count as f64),
                jitter,
                errors,
                packets,
                start_time: 0.0,
                end_time: seconds,
            }
        };
        let test = self.shared.test;
        Results {
            cpu_util_total: busy_percent,
            cpu_util_user: 0.0,
            cpu_util_system: busy_percent,
            sender_has_retransmits: match (test.direction, test.transport) {
                (Direction::Receive, _) => -1.0,
                (_, Transport::Udp) => 0.0,
                _ => 1.0,
            },
            streams: self.streams.iter().map(stream).collect(),
        }
    }

    /// All of it, with what the server says.
    fn report(&self, theirs: &Results) -> Throughput {
        let test = self.shared.test;
        let (asked_s, asked_bytes) = match test.limit {
            Limit::Seconds(seconds) => (Some(seconds), None),
            Limit::Bytes(bytes) => (None, Some(bytes)),
        };
        Throughput {
            server: format!("{}", test.server.ip()),
            port: test.server.port(),
            transport: test.transport,
            direction: test.direction,
            parallel: test.parallel,
            message_bytes: u32::try_from(self.shared.length).unwrap_or(u32::MAX),
            mss_bytes: test.mss.map(u32::from),
            bandwidth_bit_s: test.bandwidth,
            asked_s,
            asked_bytes,
            took_s: seconds(self.took),
            streams: self
                .streams
                .iter()
                .map(|one| self.stream(one, theirs))
                .collect(),
            intervals: self.intervals.clone(),
            server_busy_percent: Some(theirs.cpu_util_total),
            ..Throughput::default()
        }
    }

    fn stream(&self, stream: &Stream, theirs: &Results) -> throughput::Stream {
        let ours_s = seconds(self.took);
        let ours = stream.counts.bytes();
        let told = theirs.of(stream.id).cloned().unwrap_or_default();
        // Old servers do not tell.
        let theirs_s = match told.end_time - told.start_time {
            time if time > 0.0 => time,
            _ => ours_s,
        };
        let lost = counted(told.errors).unwrap_or(0);
        let datagrams = match &stream.counts {
            Counts::Connection(..) => None,
            Counts::Sent(sent) => Some(Datagrams {
                sent: sent.get().1,
                received: told.packets.saturating_sub(lost),
                lost,
                out_of_order: None,
                jitter_ms: told.jitter * 1e3,
            }),
            Counts::Came(tally) => {
                let tally = tally.borrow();
                Some(Datagrams {
                    sent: told.packets,
                    received: tally.datagrams,
                    lost: tally.lost(),
                    out_of_order: Some(tally.out_of_order),
                    jitter_ms: tally.jitter_seconds() * 1e3,
                })
            }
        };
        let (sent, received) = if stream.sends {
            ((ours, ours_s), (told.bytes, theirs_s))
        } else {
            ((told.bytes, theirs_s), (ours, ours_s))
        };
        let retransmissions = match (stream.sends, &datagrams) {
            (true, _) => stream.retransmissions(),
            (false, None) => counted(told.retransmits),
            (false, Some(_)) => None,
        };
        throughput::Stream {
            id: stream.id,
            local: format!("{}", stream.local),
            sends: stream.sends,
            sent_bytes: sent.0,
            sent_s: sent.1,
            received_bytes: received.0,
            received_s: received.1,
            retransmissions,
            datagrams,
        }
    }
}

fn seconds(time: Duration) -> f64 {
    time.total_micros() as f64 * 1e-6
}

async fn hear(control: &mut TcpStream, session: &mut Session) -> Result<(), Error> {
    match control.read(|bytes| session.hear(bytes)).await {
        Ok(0) => Err(Error::Closed(session.when())),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Control(session.when(), error)),
    }
}

/// What the server says while data moves, which can only be a complaint.
async fn complaint(control: &mut TcpStream, session: &mut Session) -> Error {
    loop {
        if let Err(error) = hear(control, session).await {
            return error;
        }
        match session.next() {
            Ok(None) => {}
            Ok(Some(_)) => return Error::Control(session.when(), NetError::Reset),
            Err(error) => return error,
        }
    }
}

/// How far the data is.
struct Course<'a> {
    counts: &'a [(Counts, bool)],
    test: &'a Test,
    began: Instant,
    /// Bytes of all streams so far, both ways.
    moved: u64,
    /// When that last changed.
    since: Instant,
    intervals: Vec<Interval>,
    /// When the last one ended, and what each stream had moved then.
    last: Instant,
    before: Vec<(u64, u64)>,
}

impl<'a> Course<'a> {
    fn new(counts: &'a [(Counts, bool)], test: &'a Test, now: Instant) -> Self {
        Self {
            counts,
            test,
            began: now,
            moved: 0,
            since: now,
            intervals: Vec::new(),
            last: now,
            before: counts.iter().map(|_| (0, 0)).collect(),
        }
    }

    /// Looks at what was moved by now. Some when that is all: well, or not.
    fn over(&mut self, now: Instant) -> Option<Result<(), Error>> {
        let of = |sends| {
            let counts = self.counts.iter().filter(|one| one.1 == sends);
            counts.fold(0_u64, |all, one| all.saturating_add(one.0.bytes()))
        };
        let (sent, received) = (of(true), of(false));
        let moved = sent.saturating_add(received);
        if moved != self.moved {
            (self.moved, self.since) = (moved, now);
        }
        let elapsed = now - self.began;
        let quiet = now - self.since;
        let is_over = match self.test.limit {
            Limit::Seconds(seconds) => elapsed >= Duration::from_secs(seconds.into()),
            Limit::Bytes(bytes) => {
                let lossy = self.test.transport == Transport::Udp && moved > 0;
                sent >= bytes || received >= bytes || lossy && quiet >= QUIET
            }
        };
        if is_over || now - self.last >= INTERVAL {
            self.interval(now);
        }
        if is_over {
            Some(Ok(()))
        } else if quiet >= STALL {
            Some(Err(Error::Stalled(STALL.secs())))
        } else {
            None
        }
    }

    fn interval(&mut self, now: Instant) {
        let totals: Vec<_> = self
            .counts
            .iter()
            .map(|(counts, _)| (counts.bytes(), counts.datagrams()))
            .collect();
        let parts = totals.iter().zip(&self.before);
        let parts: Vec<_> = parts
            .map(|(new, old)| (new.0.saturating_sub(old.0), new.1.saturating_sub(old.1)))
            .collect();
        let datagrams = parts.iter().map(|part| part.1);
        self.intervals.push(Interval {
            start_s: seconds(self.last - self.began),
            end_s: seconds(now - self.began),
            bytes: parts.iter().map(|part| part.0).collect(),
            datagrams: match self.test.transport {
                Transport::Udp => datagrams.collect(),
                _ => Vec::new(),
            },
        });
        self.before = totals;
        self.last = now;
    }
}
