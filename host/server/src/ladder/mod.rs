//! What a machine measures itself against ([`wireboot_wire::ladder`]): datagrams as fast as the network takes them.
//!
//! ```text
//!   port 7077 --hello--> the token of the address that asks
//!             --send, with that token--> a socket of its own: up to 64 datagrams by one send(), again and again
//! ```
//!
//! One machine has them at a time, and not always. Nothing is sent to an address that has not asked, nor beyond the interface's networks.

mod cable;
mod tokens;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wireboot_wire::ladder::{Answer, Request};
pub use wireboot_wire::ladder::{DATA_PORT, PORT};

use crate::event::{Event, Events, Kind};
use crate::interface::Networks;
use crate::listen::{Listen, Path, is_transient, max_payload};
use crate::segmented::Segmented;
use crate::stop::Stop;

pub use self::cable::Cable;
use self::cable::Pace;
use self::tokens::Tokens;

/// The longest that a network has to bear it which others use, too. It rests as long afterwards.
const LONGEST: Duration = Duration::from_secs(1);

/// Whose turn it is, where several servers send by one interface.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Mutex<Instant>>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

/// Sends to machines that measure themselves.
#[derive(Debug)]
pub struct LadderServer {
    socket: UdpSocket,
    listen: Listen,
    /// Whose machines are served.
    networks: Networks,
    turns: Turns,
    /// Where one machine's cable ends. Without, frames of the machine are not counted.
    cable: Option<Cable>,
    events: Events,
    /// Where machines take datagrams: [`DATA_PORT`], in tests another.
    data_port: u16,
}

/// The last request to send, whose it was, and its answer: asked for again when the answer was lost.
type Last = Option<(SocketAddr, Request, Answer)>;

impl LadderServer {
    /// Binds the port. Machines of these networks are served, each when it has its turn.
    ///
    /// # Errors
    /// When the port is in use.
    pub fn bind(
        listen: Listen,
        networks: Networks,
        turns: Turns,
        events: Events,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: listen.udp()?,
            listen,
            networks,
            turns,
            cable: None,
            events,
            data_port: DATA_PORT,
        })
    }

    /// Sends no more than this cable takes, for as long as the machine wants it, and counts what comes from it.
    #[must_use]
    pub fn with_cable(mut self, cable: Cable) -> Self {
        self.cable = Some(cable);
        self
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub fn run(&self, stop: &Stop) -> io::Result<()> {
        self.socket.set_read_timeout(Some(Stop::CHECK_EVERY))?;
        let tokens = Tokens::new(Instant::now());
        let mut last = None;
        let mut buffer = [0; 128];
        while !stop.is_set() {
            let (length, path) = match self.listen.receive(&self.socket, &mut buffer) {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error),
            };
            let datagram = buffer.get(..length).unwrap_or_default();
            if let Some(answer) = self.answer(datagram, path, (&tokens, &mut last), stop) {
                // The machine asks again where that fails.
                let _ = path.answer(&self.socket, answer.emit().as_bytes());
            }
        }
        Ok(())
    }

    /// Does what a datagram asks for.
    fn answer(
        &self,
        datagram: &[u8],
        path: Path,
        (tokens, last): (&Tokens, &mut Last),
        stop: &Stop,
    ) -> Option<Answer> {
        let client = path.client;
        let request = Request::parse(datagram)?;
        if !self.networks.contain(client.ip()) {
            return None;
        }
        let now = Instant::now();
        let is_known = |token| tokens.is_of(token, client.ip(), now);
        if !request.token().is_none_or(is_known) {
            return None;
        }
        match request {
            Request::Hello { number } => Some(Answer::Welcome {
                number,
                token: tokens.of(client.ip(), now),
            }),
            Request::Count { number, .. } => Some(Answer::Counted {
                number,
                frames: self.cable.as_ref()?.counters().received,
            }),
            Request::Send {
                number,
                payload,
                micros,
                ..
            } => {
                if let Some((whose, known, answer)) = *last
                    && (whose, known) == (client, request)
                {
                    return Some(answer);
                }
                let duration = Duration::from_micros(micros.into());
                let sent =
                    self.take_turn(now, || self.send(path, payload.into(), duration, stop))?;
                let answer = self.tell(client.ip(), sent, payload)?.answer(number);
                *last = Some((client, request, answer));
                Some(answer)
            }
        }
    }

    /// Sends, unless others do, or the network is to rest: where no cable says what there is room for, what has waited meanwhile is not served, and who still wants it asks
    /// again.
    fn take_turn<T>(&self, now: Instant, send: impl FnOnce() -> T) -> Option<T> {
        let mut rested = self.turns.0.try_lock().ok()?;
        if now < *rested {
            return None;
        }
        let sent = send();
        if self.cable.is_none() {
            let end = Instant::now();
            *rested = end + (end - now);
        }
        Some(sent)
    }

    /// Tells the log what was sent.
    fn tell(&self, client: IpAddr, sent: io::Result<Sent>, payload: u16) -> Option<Sent> {
        let event = Event::now(Kind::Frames, client);
        let event = match &sent {
            Ok(sent) => event
                .bytes(sent.datagrams * u64::from(payload))
                .seconds(sent.took.as_secs_f64())
                .message("sent for the machine to measure its network"),
            Err(error) => event.message(format!("for the machine to measure its network: {error}")),
        };
        self.events.record(event);
        sent.ok()
    }

    /// Sends datagrams of `payload` bytes.
    fn send(
        &self,
        path: Path,
        payload: usize,
        duration: Duration,
        stop: &Stop,
    ) -> io::Result<Sent> {
        let socket = self.listen.connected(path, self.data_port)?;
        if payload > max_payload(&socket, path.client) {
            let text = format!("datagrams of {payload} bytes are longer than this network takes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        socket.set_write_timeout(Some(Stop::CHECK_EVERY))?;
        let mut packets = Segmented::new(socket, payload);
        let bytes = vec![0x55; payload * packets.most()];
        let duration = match self.cable {
            Some(_) => duration,
            None => duration.min(LONGEST),
        };
        let mut pace = self.cable.as_ref().map(Pace::new);
        let begun = Instant::now();
        let mut datagrams = 0;
        while begun.elapsed() < duration && !stop.is_set() {
            if let Some(pace) = &mut pace {
                pace.wait_for_room(datagrams, packets.most() as u64);
            }
            match packets.send(&bytes) {
                Ok(sent) => datagrams += sent,
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if datagrams == 0 {
            return Err(io::Error::other("nothing leaves by this interface"));
        }
        Ok(Sent {
            datagrams,
            dropped: pace.as_ref().map_or(0, Pace::dropped),
            took: begun.elapsed(),
            waited: pace.map_or(Duration::ZERO, |pace| pace.waited),
        })
    }
}

/// What has left for a request.
#[derive(Clone, Copy, Debug)]
struct Sent {
    datagrams: u64,
    dropped: u64,
    took: Duration,
    waited: Duration,
}

impl Sent {
    fn answer(self, number: u32) -> Answer {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Answer::Sent {
            number,
            datagrams: self.datagrams,
            dropped: self.dropped,
            micros: micros(self.took),
            waited: micros(self.waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Console;
    use std::collections::HashSet;
    use std::fs::File;
    use wireboot_wire::ladder::MAX_MICROS;

    /// Longer than anything takes here.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// As long as nothing is waited for.
    const SILENCE: Duration = Duration::from_millis(300);
    /// After which a machine asks again.
    const AGAIN: Duration = Duration::from_millis(100);

    /// A server, and machines of its network: this host's other addresses.
    struct Fixture {
        at: SocketAddr,
        log: tempfile::NamedTempFile,
        stop: Stop,
        thread: Option<std::thread::JoinHandle<()>>,
    }

    impl Fixture {
        fn new(address: IpAddr, network: (IpAddr, u8), machine: &Machine) -> Self {
            Self::with(address, network, machine, Turns::default())
        }

        fn with(address: IpAddr, network: (IpAddr, u8), machine: &Machine, turns: Turns) -> Self {
            let listen = Listen::from(SocketAddr::new(address, 0));
            let networks = Networks::from(vec![network]);
            let log = tempfile::NamedTempFile::new().unwrap();
            let events = Events::new(Console::Silent, Some(File::create(log.path()).unwrap()));
            let mut server = LadderServer::bind(listen, networks, turns, events).unwrap();
            server.data_port = machine.data_port();
            let at = server.socket.local_addr().unwrap();
            let stop = Stop::default();
            let stopped = stop.clone();
            let thread = std::thread::spawn(move || server.run(&stopped).unwrap());
            Self {
                at,
                log,
                stop,
                thread: Some(thread),
            }
        }

        fn log(&self) -> String {
            std::fs::read_to_string(self.log.path()).unwrap()
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            self.stop.set();
            self.thread.take().unwrap().join().unwrap();
        }
    }

    struct Machine {
        control: UdpSocket,
        data: UdpSocket,
    }

    impl Machine {
        /// One that takes data at a port that is free.
        fn new(address: IpAddr) -> Self {
            Self::at(address, 0)
        }

        fn at(address: IpAddr, data_port: u16) -> Self {
            let bind = |port| UdpSocket::bind((address, port)).unwrap();
            let (control, data) = (bind(0), bind(data_port));
            data.set_read_timeout(Some(SILENCE)).unwrap();
            Self { control, data }
        }

        fn data_port(&self) -> u16 {
            self.data.local_addr().unwrap().port()
        }

        /// Asks until there is an answer.
        fn ask(&self, fixture: &Fixture, request: Request) -> Answer {
            let begun = Instant::now();
            self.control.set_read_timeout(Some(AGAIN)).unwrap();
            while begun.elapsed() < PATIENCE {
                self.say(fixture, request);
                let mut answer = [0; 128];
                while let Ok((len, from)) = self.control.recv_from(&mut answer) {
                    assert_eq!(from, fixture.at);
                    let answer = Answer::parse(&answer[..len]).unwrap();
                    if answer.number() == number(request) {
                        return answer;
                    }
                }
            }
            panic!("no answer to {request:?}");
        }

        fn say(&self, fixture: &Fixture, request: Request) {
            let text = request.emit();
            self.control.send_to(text.as_bytes(), fixture.at).unwrap();
        }

        fn token(&self, fixture: &Fixture) -> u64 {
            match self.ask(fixture, Request::Hello { number: 7 }) {
                Answer::Welcome { token, .. } => token,
                other => panic!("{other:?}"),
            }
        }

        /// Lengths of the datagrams that have come, and how many have.
        fn lengths(&self) -> (HashSet<usize>, u64) {
            let (mut lengths, mut count) = (HashSet::new(), 0);
            let mut datagram = [0; 2048];
            while let Ok(len) = self.data.recv(&mut datagram) {
                lengths.insert(len);
                count += 1;
            }
            (lengths, count)
        }

        fn gets_nothing(&self, fixture: &Fixture, request: Request) {
            self.say(fixture, request);
            assert_eq!(self.lengths().1, 0, "{request:?}");
            self.control.set_nonblocking(true).unwrap();
            assert!(self.control.recv(&mut [0; 8]).is_err(), "{request:?}");
            self.control.set_nonblocking(false).unwrap();
        }
    }

    fn number(request: Request) -> u32 {
        let (Request::Hello { number }
        | Request::Send { number, .. }
        | Request::Count { number, .. }) = request;
        number
    }

    fn send(number: u32, token: u64, payload: u16, micros: u32) -> Request {
        Request::Send {
            number,
            token,
            payload,
            micros,
        }
    }

    fn v4(last: u8) -> IpAddr {
        [127, 77, 0, last].into()
    }

    #[test]
    fn who_brings_his_token_gets_datagrams() {
        let v6 = IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]);
        for (server, machine) in [(v4(1), v4(2)), (v6, v6)] {
            let machine = Machine::new(machine);
            let fixture = Fixture::new(server, (server, 24), &machine);
            let token = machine.token(&fixture);
            for payload in [1452, 18] {
                let wanted = send(payload.into(), token, payload, 2000);
                let answer = machine.ask(&fixture, wanted);
                let Answer::Sent {
                    datagrams, micros, ..
                } = answer
                else {
                    panic!("{answer:?}");
                };
                assert!(datagrams > 0 && micros >= 2000);
                // Its socket may not hold all.
                let (lengths, count) = machine.lengths();
                assert_eq!(lengths, HashSet::from([payload.into()]));
                assert!((1..=datagrams).contains(&count));
                // The answer was lost: it is said again, and nothing more sent.
                assert_eq!(machine.ask(&fixture, wanted), answer);
                assert_eq!(machine.lengths().1, 0);
                let bytes = datagrams * u64::from(payload);
                assert!(fixture.log().contains(&format!("\"bytes\":{bytes}")));
            }
        }
    }

    #[test]
    fn nobody_else_gets_any() {
        let machine = Machine::new(v4(12));
        let port = machine.data_port();
        let fixture = Fixture::new(v4(11), (v4(11), 28), &machine);
        let token = machine.token(&fixture);
        machine.gets_nothing(&fixture, send(1, token ^ 1, 18, 2000));
        // It counts no frames: others' come by that interface, too.
        machine.gets_nothing(&fixture, Request::Count { number: 2, token });
        let other = Machine::at(v4(13), port);
        other.gets_nothing(&fixture, send(3, token, 18, 2000));
        let stranger = Machine::at(v4(16), port);
        stranger.gets_nothing(&fixture, Request::Hello { number: 4 });
        assert_eq!(fixture.log(), "");
        machine.ask(&fixture, send(5, token, 18, 2000));
    }

    #[test]
    fn one_machine_has_them_at_a_time_and_the_network_rests() {
        let turns = Turns::default();
        let machine = Machine::new(v4(32));
        let other = Machine::at(v4(33), machine.data_port());
        let fixtures =
            [31, 34].map(|last| Fixture::with(v4(last), (v4(last), 24), &machine, turns.clone()));
        let tokens = [machine.token(&fixtures[0]), other.token(&fixtures[1])];
        let begun = Instant::now();
        // Longer than a network has to bear it.
        machine.say(&fixtures[0], send(1, tokens[0], 18, MAX_MICROS));
        machine.data.set_read_timeout(Some(PATIENCE)).unwrap();
        machine.data.recv(&mut [0; 64]).unwrap();
        // It waits in that server's queue.
        machine.say(&fixtures[0], send(3, tokens[0], 18, 1000));
        let answer = other.ask(&fixtures[1], send(2, tokens[1], 18, 1000));
        assert!(matches!(answer, Answer::Sent { number: 2, .. }));
        assert!(begun.elapsed() >= LONGEST * 2, "{:?}", begun.elapsed());
        // What was asked for in vain meanwhile is not served.
        assert_eq!(fixtures[1].log().lines().count(), 1);
        assert_eq!(fixtures[0].log().lines().count(), 1);
        let answer = machine.ask(&fixtures[0], send(1, tokens[0], 18, MAX_MICROS));
        let Answer::Sent { micros, .. } = answer else {
            panic!("{answer:?}");
        };
        assert!(micros < MAX_MICROS.into());
    }

    #[test]
    fn what_cannot_be_sent_is_not_tried_for_long() {
        // Nobody may send to everybody.
        let everybody = Path {
            client: SocketAddr::from(([255; 4], 9)),
            local: SocketAddr::new(v4(41), 0),
        };
        let listen = Listen::from(SocketAddr::new(v4(41), 0));
        let networks = Networks::from(vec![(v4(41), 0)]);
        let server = LadderServer::bind(listen, networks, Turns::default(), Events::default());
        let begun = Instant::now();
        let server = server.unwrap();
        let sent = server.send(everybody, 18, PATIENCE, &Stop::default());
        assert!(sent.is_err() && begun.elapsed() < PATIENCE);
        assert!(server.tell(v4(42), sent, 18).is_none());
    }
}
