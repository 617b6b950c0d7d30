//! What a machine measures itself against ([`wireboot_wire::ladder`]): datagrams as fast as the network takes them.
//!
//! ```text
//!   port 7077 --hello--> the token of the address that asks
//!             --send, with that token--> a socket of its own: 64 datagrams by one send() (UDP_SEGMENT), again and again
//! ```
//!
//! One machine has them at a time. Nothing is sent to an address that has not asked, nor beyond the interface's networks.

mod cable;
mod tokens;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
use wireboot_wire::ladder::{Answer, Request};
pub use wireboot_wire::ladder::{DATA_PORT, PORT};

use crate::event::{Event, Events, Kind};
use crate::interface::Networks;
use crate::listen::{Listen, Path, is_transient};
use crate::stop::Stop;

pub use self::cable::Cable;
use self::cable::Pace;
use self::tokens::Tokens;

/// Datagrams that the kernel takes at once, and the longest of them all together.
const SEGMENTS: usize = 64;
const SEGMENTS_BYTES: usize = 65_487;
/// The kernel need not ask for the machine's Ethernet address again (send(2)): one that measures answers nobody.
const CONFIRM: MsgFlags = MsgFlags::from_bits_retain(libc::MSG_CONFIRM);

/// Sends to machines that measure themselves.
#[derive(Debug)]
pub struct LadderServer {
    socket: UdpSocket,
    listen: Listen,
    /// Whose machines are served.
    networks: Networks,
    /// Where one machine's cable ends. Without, frames of the machine are not counted.
    cable: Option<Cable>,
    events: Events,
}

/// What has been done already.
#[derive(Debug)]
struct Served {
    tokens: Tokens,
    /// The last request to send, whose it was, and its answer: asked for again when the answer was lost.
    last: Option<(SocketAddr, Request, Answer)>,
}

impl LadderServer {
    /// Binds the port.
    ///
    /// # Errors
    /// When the port is in use.
    pub fn bind(listen: Listen, networks: Networks, events: Events) -> io::Result<Self> {
        Ok(Self {
            socket: listen.udp()?,
            listen,
            networks,
            cable: None,
            events,
        })
    }

    /// Sends no more than this cable takes, and counts what comes from it.
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
        let mut served = Served {
            tokens: Tokens::new(Instant::now()),
            last: None,
        };
        let mut buffer = [0; 128];
        while !stop.is_set() {
            let (length, path) = match self.listen.receive(&self.socket, &mut buffer) {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error),
            };
            let datagram = buffer.get(..length).unwrap_or_default();
            if let Some(answer) = self.answer(datagram, path, &mut served, stop) {
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
        served: &mut Served,
        stop: &Stop,
    ) -> Option<Answer> {
        let client = path.client;
        let request = Request::parse(datagram)?;
        if !self.networks.contain(client.ip()) {
            return None;
        }
        let now = Instant::now();
        let is_known = |token| served.tokens.is_of(token, client.ip(), now);
        if !request.token().is_none_or(is_known) {
            return None;
        }
        match request {
            Request::Hello { number } => Some(Answer::Welcome {
                number,
                token: served.tokens.of(client.ip(), now),
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
                if let Some((whose, known, answer)) = served.last
                    && (whose, known) == (client, request)
                {
                    return Some(answer);
                }
                let duration = Duration::from_micros(micros.into());
                match self.send(path, payload.into(), duration, stop) {
                    Ok(sent) => {
                        self.tell(client.ip(), sent, payload);
                        let answer = sent.answer(number);
                        served.last = Some((client, request, answer));
                        Some(answer)
                    }
                    Err(error) => {
                        let event = Event::now(Kind::Ladder, client.ip());
                        self.events.record(event.message(error));
                        None
                    }
                }
            }
        }
    }

    fn tell(&self, client: IpAddr, sent: Sent, payload: u16) {
        let bytes = sent.datagrams * u64::from(payload);
        let event = Event::now(Kind::Ladder, client)
            .bytes(bytes)
            .seconds(sent.took.as_secs_f64());
        self.events
            .record(event.message("sent, for the machine to measure its network"));
    }

    /// Sends datagrams of `payload` bytes.
    fn send(
        &self,
        path: Path,
        payload: usize,
        duration: Duration,
        stop: &Stop,
    ) -> io::Result<Sent> {
        let socket = UdpSocket::bind(path.local)?;
        let mut data = path.client;
        data.set_port(DATA_PORT);
        socket.connect(data)?;
        socket.set_write_timeout(Some(Stop::CHECK_EVERY))?;
        let mut count = SEGMENTS.min(SEGMENTS_BYTES / payload.max(1)).max(1);
        if setsockopt(&socket, sockopt::UdpGsoSegment, &(payload as i32)).is_err() {
            count = 1;
        }
        let bytes = vec![0x55; payload * count];
        let mut pace = self.cable.as_ref().map(Pace::new);
        let begun = Instant::now();
        let mut datagrams = 0;
        while begun.elapsed() < duration && !stop.is_set() {
            if let Some(pace) = &mut pace {
                pace.wait_for_room(datagrams, count as u64);
            }
            // ICMP from before, or no room in the kernel: the next may go.
            if send(socket.as_raw_fd(), &bytes, CONFIRM).is_ok() {
                datagrams += count as u64;
            }
        }
        Ok(Sent {
            datagrams,
            dropped: pace.as_ref().map_or(0, Pace::dropped),
            took: begun.elapsed(),
            waited: pace.map_or(Duration::ZERO, |pace| pace.waited),
        })
    }
}

/// What has left.
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
    use std::collections::HashSet;
    use wireboot_wire::ladder::MAX_MICROS;

    /// Longer than anything takes here.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// As long as nothing is waited for.
    const SILENCE: Duration = Duration::from_millis(300);

    /// A server, and machines of its network: this host's other addresses.
    struct Scene {
        at: SocketAddr,
        stop: Stop,
        thread: Option<std::thread::JoinHandle<()>>,
    }

    impl Scene {
        fn new(address: IpAddr, network: (IpAddr, u8)) -> Self {
            let listen = Listen::from(SocketAddr::new(address, 0));
            let networks = Networks::from(vec![network]);
            let server = LadderServer::bind(listen, networks, Events::default()).unwrap();
            let at = server.socket.local_addr().unwrap();
            let stop = Stop::default();
            let stopped = stop.clone();
            let thread = std::thread::spawn(move || server.run(&stopped).unwrap());
            Self {
                at,
                stop,
                thread: Some(thread),
            }
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            self.stop.set();
            self.thread.take().unwrap().join().unwrap();
        }
    }

    struct Machine {
        control: UdpSocket,
        data: UdpSocket,
        server: SocketAddr,
    }

    impl Machine {
        fn new(address: IpAddr, scene: &Scene) -> Self {
            let bind = |port| UdpSocket::bind((address, port)).unwrap();
            let (control, data) = (bind(0), bind(DATA_PORT));
            control.set_read_timeout(Some(PATIENCE)).unwrap();
            data.set_read_timeout(Some(SILENCE)).unwrap();
            Self {
                control,
                data,
                server: scene.at,
            }
        }

        fn ask(&self, request: Request) -> Answer {
            let text = request.emit();
            self.control.send_to(text.as_bytes(), self.server).unwrap();
            let mut answer = [0; 128];
            let (len, from) = self.control.recv_from(&mut answer).unwrap();
            assert_eq!(from, self.server);
            Answer::parse(&answer[..len]).unwrap()
        }

        fn token(&self) -> u64 {
            match self.ask(Request::Hello { number: 7 }) {
                Answer::Welcome { number: 7, token } => token,
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

        fn gets_nothing(&self, request: Request) {
            let text = request.emit();
            self.control.send_to(text.as_bytes(), self.server).unwrap();
            assert_eq!(self.lengths().1, 0, "{text}");
            self.control.set_read_timeout(Some(SILENCE)).unwrap();
            assert!(self.control.recv(&mut [0; 8]).is_err(), "{text}");
            self.control.set_read_timeout(Some(PATIENCE)).unwrap();
        }
    }

    fn request(number: u32, token: u64, payload: u16) -> Request {
        Request::Send {
            number,
            token,
            payload,
            micros: 2000,
        }
    }

    fn v4(last: u8) -> IpAddr {
        [127, 77, 0, last].into()
    }

    #[test]
    fn who_brings_his_token_gets_datagrams() {
        let v6 = IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]);
        for (server, machine) in [(v4(1), v4(2)), (v6, v6)] {
            let scene = Scene::new(server, (server, 24));
            let machine = Machine::new(machine, &scene);
            let token = machine.token();
            for payload in [1452, 18] {
                let wanted = request(payload.into(), token, payload);
                let answer = machine.ask(wanted);
                let Answer::Sent {
                    number,
                    datagrams,
                    micros,
                    ..
                } = answer
                else {
                    panic!("{answer:?}");
                };
                assert_eq!(number, u32::from(payload));
                assert!(datagrams > 0 && (2000..=MAX_MICROS.into()).contains(&micros));
                // Its socket may not hold all.
                let (lengths, count) = machine.lengths();
                assert_eq!(lengths, HashSet::from([payload.into()]));
                assert!((1..=datagrams).contains(&count));
                // The answer was lost: it is said again, and nothing more sent.
                assert_eq!(machine.ask(wanted), answer);
                assert_eq!(machine.lengths().1, 0);
            }
        }
    }

    #[test]
    fn nobody_else_gets_any() {
        let scene = Scene::new(v4(11), (v4(11), 28));
        let machine = Machine::new(v4(12), &scene);
        let token = machine.token();
        machine.gets_nothing(request(1, token ^ 1, 18));
        // It counts no frames: others' come by that interface, too.
        machine.gets_nothing(Request::Count { number: 2, token });
        let other = Machine::new(v4(13), &scene);
        other.gets_nothing(request(3, token, 18));
        let stranger = Machine::new(v4(16), &scene);
        stranger.gets_nothing(Request::Hello { number: 4 });
        assert!(matches!(
            machine.ask(request(5, token, 18)),
            Answer::Sent { number: 5, .. }
        ));
    }

    #[test]
    fn it_ends_while_it_sends() {
        let scene = Scene::new(v4(21), (v4(21), 24));
        let machine = Machine::new(v4(22), &scene);
        let begun = Instant::now();
        let wanted = Request::Send {
            number: 1,
            token: machine.token(),
            payload: 18,
            micros: MAX_MICROS,
        };
        let text = wanted.emit();
        machine.control.send_to(text.as_bytes(), scene.at).unwrap();
        machine.data.set_read_timeout(Some(PATIENCE)).unwrap();
        machine.data.recv(&mut [0; 64]).unwrap();
        let asked = begun.elapsed();
        drop(scene);
        assert!(begun.elapsed() - asked < Duration::from_micros(MAX_MICROS.into()) / 2);
    }
}
