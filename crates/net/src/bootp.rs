//! UDP port 68 before there is an address: what DHCP (RFC 2131) needs and smoltcp's sockets cannot do.

use crate::checksum;
use crate::ethernet::{BROADCAST, ETHERNET_HEADER, IPV4_HEADER, PROTOCOL_UDP, UDP_HEADER, put};
use crate::stack::Stack;
use alloc::vec::Vec;
use core::task::Poll;
use smoltcp::wire::Ipv4Address;
use wireboot_nic::MacAddress;

/// The BOOTP client port.
pub const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
/// Replies kept for a client that is slow to look at them; later ones are dropped.
pub const QUEUE: usize = 32;

/// The DHCP client's port. There is one: the newest value receives, and dropping it closes the port.
pub struct Bootp {
    stack: Stack,
}

impl Bootp {
    pub(crate) fn new(stack: Stack) -> Self {
        stack.inner().bootp = Some(Default::default());
        Self { stack }
    }

    /// Sends `payload` (a BOOTP message) from 0.0.0.0:68 to 255.255.255.255:67, Ethernet broadcast.
    pub fn broadcast(&self, payload: &[u8]) {
        let frame = frame(self.stack.mac(), payload);
        self.stack.inner().outbox.push_back(frame);
    }

    /// The next datagram that came to port 68, whatever address it was sent to: the sender's address and the
    /// BOOTP message. Its UDP checksum has been verified.
    pub async fn receive(&self) -> (Ipv4Address, Vec<u8>) {
        core::future::poll_fn(|_| {
            match self
                .stack
                .inner()
                .bootp
                .as_mut()
                .and_then(|queue| queue.pop_front())
            {
                Some(message) => Poll::Ready(message),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl Drop for Bootp {
    fn drop(&mut self) {
        self.stack.inner().bootp = None;
    }
}

fn frame(mac: MacAddress, payload: &[u8]) -> Vec<u8> {
    let mut frame = alloc::vec![0; ETHERNET_HEADER + IPV4_HEADER + UDP_HEADER + payload.len()];
    let ip_len = (IPV4_HEADER + UDP_HEADER + payload.len()) as u16;
    let udp_len = (UDP_HEADER + payload.len()) as u16;
    put(&mut frame, 0, BROADCAST);
    put(&mut frame, 6, mac);
    put(&mut frame, 12, [0x08, 0x00]);
    let ip = ETHERNET_HEADER;
    put(&mut frame, ip, [0x45, 0]);
    put(&mut frame, ip + 2, ip_len.to_be_bytes());
    put(&mut frame, ip + 8, [64, PROTOCOL_UDP]);
    put(&mut frame, ip + 16, [0xff; 4]);
    let header = frame.get(ip..ip + IPV4_HEADER).unwrap_or_default();
    let sum = checksum::compute(0, header);
    put(&mut frame, ip + 10, sum.to_be_bytes());
    let udp = ip + IPV4_HEADER;
    put(&mut frame, udp, CLIENT_PORT.to_be_bytes());
    put(&mut frame, udp + 2, SERVER_PORT.to_be_bytes());
    put(&mut frame, udp + 4, udp_len.to_be_bytes());
    if let Some(room) = frame.get_mut(udp + UDP_HEADER..) {
        room.copy_from_slice(payload);
    }
    // The engine completes the UDP checksum when the frame leaves.
    frame
}
