//! A server of iperf3's protocol on smoltcp: honest, or as its script wants it.

use crate::PORT;
use crate::messages::{Results, StreamResults};
use core::net::Ipv4Addr;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, IpEndpoint};
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::SimNic;
use wireboot_nic::{Nic, Offload, Receive, Transmit};

pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CONNECTIONS: usize = 10;

/// What is wrong with a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    None,
    /// It says these bytes instead of the state that it would say after so many.
    Says(usize, &'static [u8]),
    /// It closes the control connection instead.
    Closes(usize),
    /// It says no more from there on, on any connection.
    Silent(usize),
    /// Its results are these.
    Results(&'static [u8]),
    /// It answers no datagram.
    NoDatagrams,
}

/// Frames to and from smoltcp.
#[derive(Default)]
struct Frames {
    to: VecDeque<Vec<u8>>,
    from: Vec<Vec<u8>>,
}

struct Came(Vec<u8>);
struct Leaves<'a>(&'a mut Vec<Vec<u8>>);

impl phy::Device for Frames {
    type RxToken<'a> = Came;
    type TxToken<'a> = Leaves<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Came, Leaves<'_>)> {
        Some((Came(self.to.pop_front()?), Leaves(&mut self.from)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaves<'_>> {
        (self.from.len() < 64).then_some(Leaves(&mut self.from))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

impl phy::RxToken for Came {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for Leaves<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push(frame);
        result
    }
}

/// A stream as the server has it.
struct Stream {
    tcp: Option<SocketHandle>,
    udp: Option<IpEndpoint>,
    /// The server sends.
    sends: bool,
    bytes: u64,
    packets: u64,
}

pub(super) struct Server {
    nic: SimNic,
    iface: Interface,
    frames: Frames,
    sockets: SocketSet<'static>,
    tcp: Vec<SocketHandle>,
    udp: SocketHandle,
    fault: Fault,
    control: Option<SocketHandle>,
    heard: Vec<u8>,
    /// States that it has said.
    said: usize,
    pub parameters: serde_json::Value,
    streams: Vec<Stream>,
    running: bool,
    pub ended: bool,
    pub results: Option<Results>,
}

impl Server {
    pub(super) fn new(nic: SimNic, fault: Fault, listens: bool) -> Self {
        let mut frames = Frames::default();
        let mac = EthernetAddress(nic.properties().mac);
        let config = Config::new(HardwareAddress::Ethernet(mac));
        let mut iface = Interface::new(config, &mut frames, Instant::ZERO);
        iface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(ADDRESS.into(), 24)).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let mut tcp = Vec::new();
        for _ in 0..if listens { CONNECTIONS } else { 0 } {
            let mut socket = tcp::Socket::new(
                tcp::SocketBuffer::new(vec![0; 64 << 10]),
                tcp::SocketBuffer::new(vec![0; 64 << 10]),
            );
            socket.listen(PORT).unwrap();
            tcp.push(sockets.add(socket));
        }
        let packets =
            || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 256], vec![0; 512 << 10]);
        let mut socket = udp::Socket::new(packets(), packets());
        socket.bind(PORT).unwrap();
        let udp = sockets.add(socket);
        Self {
            nic,
            iface,
            frames,
            sockets,
            tcp,
            udp,
            fault,
            control: None,
            heard: Vec::new(),
            said: 0,
            parameters: serde_json::Value::Null,
            streams: Vec::new(),
            running: false,
            ended: false,
            results: None,
        }
    }

    /// Takes what has arrived, serves, sends. Returns whether anything had arrived.
    pub(super) fn poll(&mut self, micros: i64) -> bool {
        let now = Instant::from_micros(micros);
        let (rx, _) = self.nic.split();
        let to = &mut self.frames.to;
        rx.burst(64, |frame| to.push_back(frame.parts.concat()))
            .unwrap();
        let busy = !self.frames.to.is_empty();
        self.iface.poll(now, &mut self.frames, &mut self.sockets);
        self.serve(micros);
        self.iface.poll(now, &mut self.frames, &mut self.sockets);
        let (_, tx) = self.nic.split();
        for frame in self.frames.from.drain(..) {
            // A full ring loses it.
            let _ = tx.send(frame.len(), Offload::None, &mut |room| {
                room.copy_from_slice(&frame)
            });
        }
        tx.flush().unwrap();
        busy
    }

    fn socket(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn read(&mut self, handle: SocketHandle) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        let socket = self.socket(handle);
        let count = socket.recv_slice(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    /// True when the fault has come, and nothing more is to be done.
    fn say(&mut self, states: &[u8]) -> bool {
        let Some(control) = self.control else {
            return true;
        };
        for state in states {
            let fault = self.fault.clone();
            let bytes = match fault {
                Fault::Says(at, bytes) if at == self.said => bytes,
                Fault::Closes(at) if at == self.said => {
                    self.socket(control).close();
                    return true;
                }
                Fault::Silent(at) if at <= self.said => return true,
                _ => &[*state],
            };
            self.socket(control).send_slice(bytes).unwrap();
            self.said += 1;
        }
        false
    }

    fn serve(&mut self, micros: i64) {
        for handle in self.tcp.clone() {
            if self.control.is_none() && self.socket(handle).can_recv() {
                self.control = Some(handle);
            }
        }
        let Some(control) = self.control else {
            return;
        };
        let new = self.read(control);
        self.heard.extend(new);
        match self.said {
            0 if self.heard.len() >= 37 => {
                assert_eq!(self.heard[36], 0);
                assert!(self.heard[..36].iter().all(u8::is_ascii_alphanumeric));
                self.heard.drain(..37);
                self.say(&[9]);
            }
            1 => {
                if let Some(text) = self.message() {
                    self.parameters = serde_json::from_slice(&text).unwrap();
                    self.say(&[10]);
                }
            }
            2 => self.accept(),
            4 if !self.ended => {
                self.moves(micros);
                if self.heard.first() == Some(&4) {
                    self.heard.remove(0);
                    (self.running, self.ended) = (false, true);
                    self.say(&[13]);
                }
            }
            5 => {
                if let Some(text) = self.message() {
                    self.results = Some(serde_json::from_slice(&text).unwrap());
                    self.tell(control);
                    self.say(&[14]);
                }
            }
            6 if self.heard.first() == Some(&16) => {
                self.heard.clear();
                self.socket(control).close();
            }
            _ => {}
        }
    }

    fn message(&mut self) -> Option<Vec<u8>> {
        let length = self.heard.first_chunk::<4>().copied()?;
        let length = u32::from_be_bytes(length) as usize;
        let text = self.heard.get(4..4 + length)?.to_vec();
        self.heard.drain(..4 + length);
        Some(text)
    }

    fn flag(&self, name: &str) -> bool {
        self.parameters[name] == true
    }

    /// Waits for the streams.
    fn accept(&mut self) {
        let each = self.parameters["parallel"].as_u64().unwrap() as usize;
        let (bidir, reverse) = (self.flag("bidirectional"), self.flag("reverse"));
        let all = if bidir { 2 * each } else { each };
        let stream = |place: usize| Stream {
            tcp: None,
            udp: None,
            sends: reverse || place >= each,
            bytes: 0,
            packets: 0,
        };
        if self.flag("udp") {
            let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.udp);
            while let Ok((bytes, meta)) = socket.recv() {
                assert_eq!(bytes.len(), 4);
                let known = self.streams.iter();
                let is_known = known
                    .map(|one| one.udp)
                    .any(|one| one == Some(meta.endpoint));
                if self.fault == Fault::NoDatagrams || is_known {
                    continue;
                }
                socket.send_slice(b"6789", meta.endpoint).unwrap();
                self.streams.push(Stream {
                    udp: Some(meta.endpoint),
                    ..stream(self.streams.len())
                });
            }
        } else {
            for handle in self.tcp.clone() {
                let known = self.streams.iter().any(|one| one.tcp == Some(handle));
                if !known && Some(handle) != self.control && self.socket(handle).can_recv() {
                    assert_eq!(self.socket(handle).recv_queue(), 37);
                    self.read(handle);
                    let stream = Stream {
                        tcp: Some(handle),
                        ..stream(self.streams.len())
                    };
                    self.streams.push(stream);
                }
            }
        }
        if self.streams.len() == all {
            self.running = !self.say(&[1, 2]);
        }
    }

    fn moves(&mut self, micros: i64) {
        if !self.running || matches!(self.fault, Fault::Silent(_)) {
            return;
        }
        let length = self.parameters["len"].as_u64().unwrap() as usize;
        let rate = self.parameters["bandwidth"].as_u64().unwrap_or(u64::MAX);
        let budget = self.parameters["num"].as_u64().filter(|num| *num > 0);
        let block = vec![7; length];
        let Self {
            sockets, streams, ..
        } = self;
        for stream in streams.iter_mut() {
            let Some(handle) = stream.tcp else { continue };
            let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
            if stream.sends {
                if socket.can_send() && budget.is_none_or(|most| stream.bytes < most) {
                    stream.bytes += socket.send_slice(&block).unwrap() as u64;
                }
            } else {
                while socket.can_recv() {
                    let count = socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap();
                    stream.bytes += count as u64;
                }
            }
        }
        let socket = sockets.get_mut::<udp::Socket<'_>>(self.udp);
        while let Ok((bytes, meta)) = socket.recv() {
            let stream = streams
                .iter_mut()
                .find(|one| one.udp == Some(meta.endpoint));
            let stream = stream.unwrap();
            // The wire brought the first word twice.
            if bytes.len() == 4 {
                continue;
            }
            assert_eq!(bytes.len(), length);
            stream.bytes += bytes.len() as u64;
            let number = bytes[8..16].try_into().unwrap();
            stream.packets = stream.packets.max(u64::from_be_bytes(number));
        }
        for stream in streams.iter_mut().filter(|one| one.sends) {
            let Some(endpoint) = stream.udp else { continue };
            let due = (micros as u64).saturating_mul(rate.min(100_000_000) / 8) / 1_000_000;
            while stream.bytes < due && budget.is_none_or(|most| stream.bytes < most) {
                let mut datagram = block.clone();
                let now = wireboot_net::Instant::from_micros(micros);
                crate::datagram::stamp(&mut datagram, stream.packets + 1, now);
                if socket.send_slice(&datagram, endpoint).is_err() {
                    break;
                }
                stream.packets += 1;
                stream.bytes += length as u64;
            }
        }
    }

    fn tell(&mut self, control: SocketHandle) {
        let number = |place: usize| if place == 0 { 1 } else { place as u32 + 2 };
        let told = |(place, stream): (usize, &Stream)| StreamResults {
            id: number(place),
            bytes: stream.bytes,
            retransmits: if stream.sends { 5.0 } else { -1.0 },
            packets: stream.packets,
            errors: 0.0,
            jitter: 0.25,
            start_time: 0.0,
            end_time: 1.5,
        };
        let results = Results {
            cpu_util_total: 12.5,
            streams: self.streams.iter().enumerate().map(told).collect(),
            ..Results::default()
        };
        let message = match self.fault {
            Fault::Results(bytes) => bytes.to_vec(),
            _ => results.framed(),
        };
        self.socket(control).send_slice(&message).unwrap();
    }
}
