//! Packets that the kernel cuts from one long send (`UDP_SEGMENT`), where it does.

use std::io;
use std::net::UdpSocket;

use nix::sys::socket::{setsockopt, sockopt};

use crate::listen::IPV6_UDP_HEADERS;

/// Most bytes of one send: the kernel makes it one packet first, of at most 65535 bytes with its headers.
const MAX_SEND: usize = 65_535 - IPV6_UDP_HEADERS;
/// Most packets of one send (the kernel's UDP_MAX_SEGMENTS).
const MAX_SEGMENTS: usize = 64;

/// A connected socket for packets of one length.
#[derive(Debug)]
pub(crate) struct Segmented {
    socket: UdpSocket,
    /// Bytes of a packet.
    stride: usize,
    is_cut: bool,
}

impl Segmented {
    /// For packets of `stride` bytes, one at least.
    pub(crate) fn new(socket: UdpSocket, stride: usize) -> Self {
        let is_cut = setsockopt(&socket, sockopt::UdpGsoSegment, &(stride as i32)).is_ok();
        Self {
            socket,
            stride,
            is_cut,
        }
    }

    /// How many packets leave at once.
    pub(crate) fn most(&self) -> usize {
        match self.is_cut {
            true => (MAX_SEND / self.stride).clamp(1, MAX_SEGMENTS),
            false => 1,
        }
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends packets side by side, of which the last may be shorter. A queue that is full loses them, as any queue on their way might. Returns how
    /// many left.
    ///
    /// # Errors
    /// The kernel's; one that passes may tell of an earlier packet.
    pub(crate) fn send(&mut self, packets: &[u8]) -> io::Result<u64> {
        if self.is_cut {
            match self.send_one(packets) {
                // The device below computes no checksums (EIO), or the path takes shorter packets by now (EINVAL).
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP)
                    ) =>
                {
                    self.is_cut = false;
                    setsockopt(&self.socket, sockopt::UdpGsoSegment, &0)?;
                }
                result => {
                    let count = packets.len().div_ceil(self.stride) as u64;
                    return result.map(|sent| sent * count);
                }
            }
        }
        let mut sent = 0;
        for packet in packets.chunks(self.stride) {
            sent += self.send_one(packet)?;
        }
        Ok(sent)
    }

    /// Sends one packet, which may be longer than the others. Returns how many left.
    ///
    /// # Errors
    /// As of [`Self::send`].
    pub(crate) fn send_whole(&mut self, packet: &[u8]) -> io::Result<u64> {
        let would_be_cut = self.is_cut && packet.len() > self.stride;
        if would_be_cut {
            setsockopt(&self.socket, sockopt::UdpGsoSegment, &0)?;
        }
        let sent = self.send_one(packet);
        if would_be_cut {
            setsockopt(&self.socket, sockopt::UdpGsoSegment, &(self.stride as i32))?;
        }
        sent
    }

    /// 1 if it left, else 0.
    fn send_one(&self, bytes: &[u8]) -> io::Result<u64> {
        match self.socket.send(bytes) {
            Ok(_) => Ok(1),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn connected(address: &str, stride: usize) -> (Segmented, UdpSocket) {
        let receiver = UdpSocket::bind((address, 0)).unwrap();
        let patience = Some(Duration::from_secs(60));
        receiver.set_read_timeout(patience).unwrap();
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        (Segmented::new(socket, stride), receiver)
    }

    #[test]
    fn packets_leave_at_once_or_each_by_itself() {
        for address in ["127.0.0.1", "::1"] {
            for is_cut in [true, false] {
                let (mut segmented, receiver) = connected(address, 100);
                segmented.is_cut &= is_cut;
                if !is_cut {
                    setsockopt(&segmented.socket, sockopt::UdpGsoSegment, &0).unwrap();
                    assert_eq!(segmented.most(), 1);
                }
                let mut packet = [0; 200];
                assert_eq!(segmented.send_whole(&[7; 150]).unwrap(), 1);
                assert_eq!(receiver.recv(&mut packet).unwrap(), 150);
                assert_eq!(segmented.send(&[7; 250]).unwrap(), 3);
                let lengths = [0; 3].map(|_| receiver.recv(&mut packet).unwrap());
                assert_eq!(lengths, [100, 100, 50]);
            }
        }
    }

    #[test]
    fn what_the_kernel_does_not_cut_is_cut_here() {
        // More than a send may be: EINVAL or EMSGSIZE.
        let (mut segmented, receiver) = connected("127.0.0.1", 1000);
        assert!(segmented.is_cut, "this kernel cuts");
        assert_eq!(segmented.most(), 64);
        let packets = vec![7; 70_000];
        assert_eq!(segmented.send(&packets).unwrap(), 70);
        assert!(!segmented.is_cut);
        assert_eq!(receiver.recv(&mut [0; 2000]).unwrap(), 1000);
        assert_eq!(segmented.send(&[7; 10]).unwrap(), 1);
    }
}
