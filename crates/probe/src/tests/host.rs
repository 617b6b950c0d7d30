//! A boot server on smoltcp, behind a path that may carry short packets alone.

use core::net::Ipv4Addr;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, HardwareAddress, Icmpv4DstUnreachable, Icmpv4Packet,
    Icmpv4Repr, IpCidr, IpEndpoint, IpProtocol, Ipv4Packet, Ipv4Repr,
};
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::SimNic;
use wireboot_nic::{Nic, Offload, Receive, Transmit};

pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// What answers: a datagram to port 69 with datagrams of another port, and what came by a connection so far with bytes, or with its end.
pub(super) type Tftp = fn(&[u8]) -> Vec<Vec<u8>>;
pub(super) type Http = fn(&str) -> Option<Answer>;

/// Bytes that are sent, and whether the connection ends behind them.
pub(super) struct Answer {
    pub bytes: &'static str,
    pub ends: bool,
}

/// How the path and the host are.
#[derive(Clone, Copy)]
pub(super) struct Nature {
    /// The longest packet that it carries, each way. Longer ones vanish.
    pub path_mtu: usize,
    /// Of packets that are longer than this a router says so.
    pub told_mtu: usize,
    /// It says how long they may be.
    pub names_mtu: bool,
    /// The longest echo request that is answered.
    pub longest_echo: usize,
    /// Echo requests are answered.
    pub answers: bool,
    pub tftp: Option<Tftp>,
    pub http: Option<Http>,
}

impl Default for Nature {
    fn default() -> Self {
        Self {
            path_mtu: 1500,
            told_mtu: 1500,
            names_mtu: true,
            longest_echo: 1500,
            answers: true,
            tftp: None,
            http: None,
        }
    }
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

pub(super) struct Host {
    nic: SimNic,
    iface: Interface,
    frames: Frames,
    sockets: SocketSet<'static>,
    nature: Nature,
    /// Those that are answered by TFTP: at its port, and where the transfer goes on.
    requests: SocketHandle,
    transfer: SocketHandle,
    connections: Vec<(SocketHandle, Vec<u8>)>,
    /// Datagrams that have come to the transfer's port.
    pub acknowledged: Vec<Vec<u8>>,
}

impl Host {
    pub(super) fn new(nic: SimNic, nature: Nature) -> Self {
        let mut frames = Frames::default();
        let mac = EthernetAddress(nic.properties().mac);
        let config = Config::new(HardwareAddress::Ethernet(mac));
        let mut iface = Interface::new(config, &mut frames, Instant::ZERO);
        iface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(ADDRESS.into(), 24)).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let mut at = |port| {
            let packets =
                || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 16], vec![0; 32 << 10]);
            let mut socket = udp::Socket::new(packets(), packets());
            socket.bind(port).unwrap();
            sockets.add(socket)
        };
        let (requests, transfer) = (at(69), at(40_000));
        let connections = (0..if nature.http.is_some() { 4 } else { 0 }).map(|_| {
            let mut socket = tcp::Socket::new(
                tcp::SocketBuffer::new(vec![0; 4096]),
                tcp::SocketBuffer::new(vec![0; 4096]),
            );
            socket.listen(80).unwrap();
            (sockets.add(socket), Vec::new())
        });
        let connections = connections.collect();
        Self {
            nic,
            iface,
            frames,
            sockets,
            nature,
            requests,
            transfer,
            connections,
            acknowledged: Vec::new(),
        }
    }

    /// Takes what has arrived, serves, sends. Returns whether anything had arrived.
    pub(super) fn poll(&mut self, micros: i64) -> bool {
        let now = Instant::from_micros(micros);
        let mut came = Vec::new();
        let (rx, _) = self.nic.split();
        rx.burst(64, |frame| came.push(frame.parts.concat()))
            .unwrap();
        let busy = !came.is_empty();
        for frame in came {
            let len = frame.len() - 14;
            if len > self.nature.told_mtu {
                let mtu = if self.nature.names_mtu {
                    self.nature.told_mtu
                } else {
                    0
                };
                self.frames.from.push(too_big(&frame, mtu));
            } else if len > self.nature.path_mtu || frame[23] == 1 && len > self.nature.longest_echo
            {
                // Nobody hears of it.
            } else if self.nature.answers || frame[23] != 1 {
                self.frames.to.push_back(frame);
            }
        }
        self.iface.poll(now, &mut self.frames, &mut self.sockets);
        self.serve();
        self.iface.poll(now, &mut self.frames, &mut self.sockets);
        let (_, tx) = self.nic.split();
        for frame in self.frames.from.drain(..) {
            tx.send(frame.len(), Offload::None, &mut |room| {
                room.copy_from_slice(&frame)
            })
            .unwrap();
        }
        tx.flush().unwrap();
        busy
    }

    fn serve(&mut self) {
        if let Some(tftp) = self.nature.tftp {
            let requests = self.sockets.get_mut::<udp::Socket<'_>>(self.requests);
            let mut came: Vec<(Vec<u8>, IpEndpoint)> = Vec::new();
            while let Ok((bytes, from)) = requests.recv() {
                came.push((bytes.to_vec(), from.endpoint));
            }
            let transfer = self.sockets.get_mut::<udp::Socket<'_>>(self.transfer);
            while let Ok((bytes, from)) = transfer.recv() {
                came.push((bytes.to_vec(), from.endpoint));
                self.acknowledged.push(bytes.to_vec());
            }
            for (bytes, from) in came {
                for answer in tftp(&bytes) {
                    transfer.send_slice(&answer, from).unwrap();
                }
            }
        }
        let Some(http) = self.nature.http else { return };
        for (handle, heard) in &mut self.connections {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(*handle);
            if socket.can_recv() {
                socket
                    .recv(|bytes| {
                        heard.extend(bytes.iter());
                        (bytes.len(), ())
                    })
                    .unwrap();
            }
            if heard.ends_with(b"\r\n\r\n")
                && let Some(answer) = http(core::str::from_utf8(heard).unwrap())
            {
                socket.send_slice(answer.bytes.as_bytes()).unwrap();
                heard.clear();
                if answer.ends {
                    socket.close();
                }
            }
        }
    }
}

/// What a router with the host's address says of a frame.
fn too_big(frame: &[u8], mtu: usize) -> Vec<u8> {
    let header = Ipv4Packet::new_unchecked(&frame[14..]);
    let quoted = Ipv4Repr::parse(&header, &ChecksumCapabilities::ignored()).unwrap();
    let message = Icmpv4Repr::DstUnreachable {
        reason: Icmpv4DstUnreachable::FragRequired,
        header: quoted,
        data: &frame[34..42],
    };
    let ip = Ipv4Repr {
        src_addr: ADDRESS,
        dst_addr: header.src_addr(),
        next_header: IpProtocol::Icmp,
        payload_len: message.buffer_len(),
        hop_limit: 64,
    };
    let mut said = vec![0; 14 + ip.buffer_len() + message.buffer_len()];
    let mut ethernet = EthernetFrame::new_unchecked(&mut said);
    ethernet.set_dst_addr(EthernetAddress(*frame[6..].first_chunk().unwrap()));
    ethernet.set_src_addr(EthernetAddress(*frame.first_chunk().unwrap()));
    said[12..14].copy_from_slice(&[8, 0]);
    let checksums = ChecksumCapabilities::default();
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut said[14..]), &checksums);
    let mut icmp = Icmpv4Packet::new_unchecked(&mut said[34..]);
    message.emit(&mut icmp, &checksums);
    // smoltcp leaves the word with the MTU empty.
    said[40..42].copy_from_slice(&(mtu as u16).to_be_bytes());
    let mut icmp = Icmpv4Packet::new_unchecked(&mut said[34..]);
    icmp.fill_checksum();
    said
}
