//! smoltcp at the other end of the wire: a host with files, or one that takes them.

use super::{REQUEST, SERVER, SERVER6};
use crate::testing::{Port, instant};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::SimNic;
use wireboot_nic::{Frame, Nic, Offload, Receive, Transmit};
use wireboot_tcp::Instant;

/// A host with the addresses [`SERVER`] and [`SERVER6`]: smoltcp alone.
pub(crate) struct Host {
    nic: SimNic,
    iface: Interface,
    pub sockets: SocketSet<'static>,
}

impl Host {
    pub(crate) fn new(mut nic: SimNic) -> Self {
        let mac = nic.properties().mac;
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        let mut port = Port {
            frame: None,
            transmit: nic.split().1,
            mtu: 1500,
        };
        let mut iface = Interface::new(config, &mut port, instant(Instant::ZERO));
        iface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(SERVER.into(), 24)).unwrap();
            addresses.push(IpCidr::new(SERVER6.into(), 64)).unwrap();
        });
        Self {
            nic,
            iface,
            sockets: SocketSet::new(Vec::new()),
        }
    }

    /// A socket that waits on port 80.
    pub(crate) fn listen(&mut self, receive: usize, transmit: usize) -> SocketHandle {
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; receive]),
            tcp::SocketBuffer::new(vec![0; transmit]),
        );
        // What it does with a loss shall not depend on which features of smoltcp other crates' tests ask for.
        socket.set_congestion_control(tcp::CongestionControl::None);
        // The last segment shall not wait until all others are acknowledged.
        socket.set_nagle_enabled(false);
        socket.listen(80).unwrap();
        self.sockets.add(socket)
    }

    /// Sends a frame.
    pub(crate) fn say(&mut self, frame: &[u8]) {
        let (_, tx) = self.nic.split();
        let mut copy = |room: &mut [u8]| room.copy_from_slice(frame);
        tx.send(frame.len(), Offload::None, &mut copy).unwrap();
        tx.flush().unwrap();
    }

    /// Takes what has arrived, calls `serve`, sends. Returns whether anything had arrived.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        serve: impl FnOnce(&mut SocketSet<'static>),
    ) -> bool {
        let (rx, tx) = self.nic.split();
        let (iface, sockets) = (&mut self.iface, &mut self.sockets);
        let now = instant(now);
        let mut port = Port {
            frame: None,
            transmit: tx,
            mtu: 1500,
        };
        let got = rx
            .burst(64, |frame: Frame<'_>| {
                let whole: Vec<u8> = frame.parts.concat();
                let mut port = Port {
                    frame: Some(&whole),
                    transmit: &mut *port.transmit,
                    mtu: 1500,
                };
                iface.poll_ingress_single(now, &mut port, sockets);
            })
            .unwrap();
        serve(sockets);
        while iface.poll_egress(now, &mut port, sockets) != PollResult::None {}
        port.transmit.flush().unwrap();
        got > 0
    }
}

/// A server that answers one request on each connection with a file and closes.
pub(crate) struct FileServer {
    host: Host,
    peers: Vec<Peer>,
    file: Vec<u8>,
    pub end: FileServerEnd,
}

struct Peer {
    handle: SocketHandle,
    sent: usize,
    heard: Vec<u8>,
}

/// How a [`FileServer`] ends its next connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FileServerEnd {
    Fin,
    /// A reset when so many bytes are on their way.
    Reset(usize),
    /// Nothing more after so many bytes.
    Silence(usize),
}

impl FileServer {
    pub(crate) fn new(nic: SimNic, file: Vec<u8>, peers: usize, buffer: usize) -> Self {
        let mut host = Host::new(nic);
        let peers = (0..peers).map(|_| Peer {
            handle: host.listen(4096, buffer),
            sent: 0,
            heard: Vec::new(),
        });
        Self {
            peers: peers.collect(),
            host,
            file,
            end: FileServerEnd::Fin,
        }
    }

    pub(crate) fn poll(&mut self, now: Instant) -> bool {
        let Self {
            host,
            peers,
            file,
            end,
        } = self;
        let limit = match *end {
            FileServerEnd::Silence(after) => after.min(file.len()),
            _ => file.len(),
        };
        host.poll(now, |sockets| {
            for peer in peers {
                let socket = sockets.get_mut::<tcp::Socket<'_>>(peer.handle);
                if socket.can_recv() {
                    socket
                        .recv(|bytes| {
                            peer.heard.extend_from_slice(bytes);
                            (bytes.len(), ())
                        })
                        .unwrap();
                }
                if peer.heard == REQUEST && socket.can_send() {
                    peer.sent += socket.send_slice(&file[peer.sent..limit]).unwrap();
                    // smoltcp does not send a FIN again whose segment's data was acknowledged without it, so the FIN goes alone.
                    if peer.sent == file.len() && socket.send_queue() == 0 {
                        socket.close();
                    }
                }
                if matches!(*end, FileServerEnd::Reset(after) if peer.sent > after) {
                    socket.abort();
                    *end = FileServerEnd::Fin;
                }
            }
        })
    }

    /// After three equal acknowledgements behind its FIN, smoltcp has forgotten that the FIN may have been lost.
    pub(crate) fn forgot_its_end(&mut self, now: Instant) -> bool {
        let host = &mut self.host;
        let waits = |peer: &Peer| {
            let socket = host.sockets.get::<tcp::Socket<'_>>(peer.handle);
            socket.state() == tcp::State::FinWait1
        };
        self.peers.iter().any(waits) && host.iface.poll_at(instant(now), &host.sockets).is_none()
    }
}
