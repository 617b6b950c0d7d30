//! A cable of our own: copies frames between a tap interface and QEMU, losing some, delaying all, at a rate, or tagged for a VLAN on
//! QEMU's side. Not every kernel has netem and VLANs.
//!
//! ```text
//!  one queue:      lab0 = tap ── carriers ── socket ── QEMU
//!  several queues: lab0 = tap ── carriers ── tap cable0 ─ bridge cable ─ tap cable1 ── QEMU
//! ```
//!
//! Only a tap of the kernel's has several queues, with the kernel's choice of a queue for each connection.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc::{IFF_NO_PI, IFF_TAP, O_NONBLOCK, c_int};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};

use crate::netns::tool;

/// What happens to frames on the way, in each direction on its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairment {
    /// The share of frames that are lost, 0 to 1.
    pub loss: f64,
    /// The delay of each frame, one way.
    pub delay: Duration,
    /// Bits per second, without end where there are none.
    pub rate: Option<u64>,
    /// The seed of the choice of lost frames.
    pub seed: u64,
}

/// The kernel's `struct ifreq` with flags, as TUNSETIFF takes it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

nix::ioctl_readwrite_bad!(
    /// TUNSETIFF: ties an open /dev/net/tun to an interface.
    tun_set_interface,
    nix::request_code_write!(b'T', 202, size_of::<c_int>()),
    InterfaceRequest
);

/// Our tap on QEMU's side, where the card has several queues; QEMU's; and the bridge between them.
const OURS: &str = "cable0";
const QEMUS: &str = "cable1";
const BRIDGE: &str = "cable";

#[derive(Debug)]
pub(crate) struct Wire {
    qemu_netdev: String,
    stop: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    carriers: Vec<JoinHandle<()>>,
}

impl Wire {
    /// Makes the tap interface and starts carrying frames between it and QEMU, where they have the tag of `vlan` if there is one.
    pub(crate) fn new(
        interface: &str,
        impairment: Impairment,
        vlan: Option<u16>,
        queues: u16,
    ) -> Result<Self> {
        let tap = OwnedFd::from(open_tap(interface)?);
        let (machine, qemu_netdev) = if queues > 1 {
            (bridged_tap()?, tap_netdev(QEMUS, queues))
        } else {
            socket()?
        };
        let stop = Arc::new(AtomicBool::new(false));
        let lost = Arc::new(AtomicU64::new(0));
        let mut carriers = Vec::new();
        let ends = [(tap.try_clone()?, machine.try_clone()?), (machine, tap)];
        for (direction, (from, to)) in ends.into_iter().enumerate() {
            let impairment = impairment.clone();
            let (stop, lost) = (Arc::clone(&stop), Arc::clone(&lost));
            let random = fastrand::Rng::with_seed(
                impairment
                    .seed
                    .wrapping_mul(2)
                    .wrapping_add(direction as u64),
            );
            let change = vlan.map(|vlan| {
                if direction == 0 {
                    Change::Tag(vlan)
                } else {
                    Change::Untag(vlan)
                }
            });
            carriers.push(std::thread::spawn(move || {
                carry(&from, &to, &impairment, change, random, &stop, &lost)
            }));
        }
        Ok(Self {
            qemu_netdev,
            stop,
            lost,
            carriers,
        })
    }

    /// Frames that [`Impairment::loss`] has taken so far, of both directions.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// QEMU's end, as the value of its `-netdev` option.
    pub(crate) fn qemu_netdev(&self) -> &str {
        &self.qemu_netdev
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for carrier in self.carriers.drain(..) {
            let _ = carrier.join();
        }
        for interface in [QEMUS, BRIDGE] {
            // Only where there are several queues; ours goes with its descriptor.
            let _ = tool("ip", ["link", "delete", interface]);
        }
    }
}

/// A tap with several queues, as the value of QEMU's `-netdev` option.
pub(crate) fn tap_netdev(interface: &str, queues: u16) -> String {
    let several = match queues {
        0 | 1 => String::new(),
        queues => format!(",queues={queues}"),
    };
    format!("tap,id=net0,ifname={interface},script=no,downscript=no,vnet_hdr=on,vhost=off{several}")
}

/// The carriers' end of a socket, whose reads do not wait, and QEMU's.
fn socket() -> Result<(OwnedFd, String)> {
    let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("making the cable's socket")?;
    // QEMU binds its own end by number, so one is found and let go.
    let theirs = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .context("finding a port for QEMU's end")?
        .local_addr()?;
    ours.connect(theirs)
        .and_then(|()| ours.set_nonblocking(true))
        .context("connecting the cable to QEMU's end")?;
    let netdev = format!(
        "socket,id=net0,udp={},localaddr={theirs}",
        ours.local_addr()?
    );
    Ok((ours.into(), netdev))
}

/// The carriers' tap, with a bridge to QEMU's. The computer itself has no part in what passes there: it answers on the far side.
fn bridged_tap() -> Result<OwnedFd> {
    let tap = open_tap(OURS)?;
    for arguments in [
        &[
            "tuntap",
            "add",
            "dev",
            QEMUS,
            "mode",
            "tap",
            "vnet_hdr",
            "multi_queue",
        ][..],
        &[
            "link",
            "add",
            "name",
            BRIDGE,
            "type",
            "bridge",
            "forward_delay",
            "0",
            "mcast_snooping",
            "0",
        ],
        &["link", "set", OURS, "master", BRIDGE, "up"],
        &["link", "set", QEMUS, "master", BRIDGE, "up"],
        &["link", "set", BRIDGE, "arp", "off", "up"],
    ] {
        tool("ip", arguments)?;
    }
    Ok(tap.into())
}

/// A new tap of this name, whose reads do not wait: what ended the wait for a frame may be gone by then. It goes with its descriptor.
///
/// # Errors
/// When it cannot be made: usually /dev/net/tun is missing or closed to the user.
pub fn open_tap(interface: &str) -> Result<File> {
    let tap = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(O_NONBLOCK)
        .open("/dev/net/tun")
        .context("opening /dev/net/tun")?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: (IFF_TAP | IFF_NO_PI) as u16,
        rest: [0; 22],
    };
    // The last byte stays zero.
    for (to, from) in request.name.iter_mut().take(15).zip(interface.bytes()) {
        *to = from;
    }
    // SAFETY: the descriptor is open and the request has the size and layout of the kernel's `struct ifreq` (40 bytes on 64-bit).
    unsafe { tun_set_interface(tap.as_raw_fd(), &raw mut request) }
        .with_context(|| format!("making tap {interface}"))?;
    Ok(tap)
}

/// How often a carrier looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// The longest that a frame waits to be sent.
const QUEUE: Duration = Duration::from_millis(100);

/// What a port of a switch does to the frames that pass it (IEEE 802.1Q).
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Puts a tag into each.
    Tag(u16),
    /// Takes the tag out of each that has this one; the rest do not pass.
    Untag(u16),
}

impl Change {
    fn apply(self, frame: &[u8]) -> Option<Vec<u8>> {
        let (addresses, rest) = frame.split_at_checked(12)?;
        let tag = |vlan: u16| [[0x81, 0x00], vlan.to_be_bytes()].concat();
        match self {
            Self::Tag(vlan) => Some([addresses, &tag(vlan), rest].concat()),
            Self::Untag(vlan) => {
                let untagged = rest.strip_prefix(tag(vlan).as_slice())?;
                Some([addresses, untagged].concat())
            }
        }
    }
}

fn carry(
    from: &OwnedFd,
    to: &OwnedFd,
    impairment: &Impairment,
    change: Option<Change>,
    mut random: fastrand::Rng,
    stop: &AtomicBool,
    lost: &AtomicU64,
) {
    let mut on_the_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; 65536];
    // When the frames so far have been sent.
    let mut sent = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = on_the_way.front().map_or(STOP_CHECK, |(due, _)| {
            due.saturating_duration_since(Instant::now())
                .min(STOP_CHECK)
        });
        // Rounded up, so that a frame is due when the wait ends.
        let milliseconds = u16::try_from(due.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        let mut ready = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        let readable =
            poll(&mut ready, PollTimeout::from(milliseconds)).is_ok_and(|count| count > 0);
        if readable {
            match read(from, &mut buffer) {
                Ok(_) if random.f64() < impairment.loss => {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
                Ok(length) => {
                    let frame = buffer.get(..length).unwrap_or_default();
                    let frame = match change {
                        None => frame.to_vec(),
                        Some(change) => match change.apply(frame) {
                            Some(changed) => changed,
                            None => continue,
                        },
                    };
                    let takes = impairment.rate.map_or(Duration::ZERO, |rate| {
                        Duration::from_secs_f64(length as f64 * 8.0 / rate.max(1) as f64)
                    });
                    // As a switch does: what would wait longer than its queue holds is lost.
                    if sent < Instant::now() + QUEUE {
                        sent = sent.max(Instant::now()) + takes;
                        on_the_way.push_back((sent + impairment.delay, frame));
                    }
                }
                // ECONNREFUSED: QEMU's end is not there, or not yet; the other carrier may have been told instead.
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => {}
                // The tap is down: as a cable without a partner.
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        while on_the_way
            .front()
            .is_some_and(|(due, _)| *due <= Instant::now())
        {
            if let Some((_, frame)) = on_the_way.pop_front() {
                // A frame that the other end does not take is a frame lost.
                let _ = write(to, &frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    #[test]
    fn only_the_vlans_frames_pass() {
        let frame: Vec<u8> = (0..60).collect();
        let tagged = Change::Tag(5).apply(&frame).unwrap();
        assert_eq!(tagged.get(12..16), Some(&[0x81, 0, 0, 5][..]));
        assert_eq!(Change::Untag(5).apply(&tagged), Some(frame.clone()));
        assert_eq!(Change::Untag(6).apply(&tagged), None);
        assert_eq!(Change::Untag(5).apply(&frame), None);
        assert_eq!(Change::Tag(5).apply(&[0; 11]), None);
    }

    /// A frame to a QEMU that has ended comes back as an error, which ends the other carrier's wait for a frame and may be gone, by the
    /// next frame, before it reads.
    #[test]
    fn a_carrier_with_nothing_to_read_does_not_wait() {
        let (machine, _) = socket().unwrap();
        let flags = OFlag::from_bits_retain(fcntl(&machine, FcntlArg::F_GETFL).unwrap());
        // Else the read below would never end.
        assert!(flags.contains(OFlag::O_NONBLOCK));
        assert_eq!(read(&machine, &mut [0; 64]), Err(Errno::EAGAIN));
    }
}
