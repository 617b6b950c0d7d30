//! Files on their way, by TFTP and by HTTP.

mod http;
mod tftp;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use wireboot_report::network::{Outcome, Protocol, STALL_S, Transfer};

use crate::frame::IpPacket;

/// The most transfers that are kept: their report stays below what is read of one.
const MOST: usize = 1 << 13;

/// An address and a port.
type Endpoint = (IpAddr, u16);

/// A client's end and its server: what a transfer is found by.
type Key = (bool, Endpoint, IpAddr);

/// Reads transfers out of IP packets, in the order of their requests. Packets that make no sense are passed over.
#[derive(Debug, Default)]
pub struct Transfers {
    all: Vec<Followed>,
    /// The last transfer of each client's end and server, as its place in `all`.
    last: BTreeMap<Key, usize>,
    /// What the ends of TCP connections announced.
    connections: http::Connections,
}

/// A transfer while its packets come.
#[derive(Debug)]
struct Followed {
    transfer: Transfer,
    turn: Turn,
    http: http::HttpTransferState,
    tftp: tftp::TftpTransferState,
}

/// Who sent last, and when: the other one is waited for.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The client did; the server has to answer.
    Server { since_s: f64 },
    /// The server did; the client has to answer.
    Client { since_s: f64 },
}

impl Followed {
    /// A packet of the server's that brings the transfer on.
    fn server_spoke(&mut self, at_s: f64) {
        let transfer = &mut self.transfer;
        if let Turn::Server { since_s } = self.turn {
            let wait = (at_s - since_s).max(0.0);
            // The first answer has the server's opening of the file in it.
            if transfer.answer_s.is_some() {
                transfer.turns += 1;
                transfer.server_wait_s += wait;
                let shortest = transfer.shortest_server_wait_s.unwrap_or(wait);
                transfer.shortest_server_wait_s = Some(shortest.min(wait));
                if wait >= STALL_S {
                    transfer.server_stalls += 1;
                    transfer.server_stalled_s += wait;
                }
            }
        }
        transfer.answer_s.get_or_insert(at_s);
        self.turn = Turn::Client { since_s: at_s };
    }

    /// A packet of the client's. One that it repeats while it waits does not begin a wait anew.
    fn client_spoke(&mut self, at_s: f64) {
        if let Turn::Client { since_s } = self.turn {
            let wait = (at_s - since_s).max(0.0);
            self.transfer.client_wait_s += wait;
            let shortest = self.transfer.shortest_client_wait_s.unwrap_or(wait);
            self.transfer.shortest_client_wait_s = Some(shortest.min(wait));
            if wait >= STALL_S {
                self.transfer.client_stalled_s += wait;
            }
            self.turn = Turn::Server { since_s: at_s };
        }
    }
}

impl Transfers {
    /// Takes a packet in, seen at `at_s`.
    pub fn packet(&mut self, at_s: f64, ip: &IpPacket<'_>) {
        if let Some(udp) = ip.udp() {
            let from = (ip.source, udp.source_port);
            let to = (ip.destination, udp.destination_port);
            self.udp(at_s, from, to, &udp, ip.fragment);
        } else if let Some(tcp) = ip.tcp() {
            let from = (ip.source, tcp.segment.src_port());
            let to = (ip.destination, tcp.segment.dst_port());
            self.tcp(at_s, from, to, &tcp);
        }
    }

    /// Whether a file has been asked for.
    pub fn any(&self) -> bool {
        !self.all.is_empty()
    }

    /// All transfers, in the order of their requests; a TCP connection to port 80 that nobody answered is one, too.
    pub fn finish(mut self) -> Vec<Transfer> {
        for ((client, server), attempt) in core::mem::take(&mut self.connections.attempts) {
            if let Some(begun) = self.begin(Protocol::Http, attempt.first_s, client, server.0) {
                begun.transfer.end_s = attempt.last_s;
                begun.transfer.file = format!("port {}", server.1);
            }
        }
        let mut all: Vec<Transfer> = self.all.into_iter().map(|one| one.transfer).collect();
        all.sort_by(|one, other| one.start_s.total_cmp(&other.start_s));
        all
    }

    fn begin(
        &mut self,
        protocol: Protocol,
        at_s: f64,
        client: Endpoint,
        server: IpAddr,
    ) -> Option<&mut Followed> {
        let key = (protocol == Protocol::Http, client, server);
        if self.all.len() >= MOST {
            // What comes now is of no transfer that is kept.
            self.last.remove(&key);
            return None;
        }
        self.last.insert(key, self.all.len());
        self.all.push(Followed {
            transfer: Transfer {
                protocol,
                server: server.to_string(),
                client: SocketAddr::from(client).to_string(),
                start_s: at_s,
                end_s: at_s,
                outcome: Outcome::Unfinished,
                ..Transfer::default()
            },
            turn: Turn::Server { since_s: at_s },
            http: http::HttpTransferState::default(),
            tftp: tftp::TftpTransferState::default(),
        });
        self.all.last_mut()
    }

    fn at(
        &mut self,
        protocol: Protocol,
        client: Endpoint,
        server: IpAddr,
    ) -> Option<&mut Followed> {
        let key = (protocol == Protocol::Http, client, server);
        let index = *self.last.get(&key)?;
        self.all.get_mut(index)
    }
}

#[cfg(test)]
mod tests;
