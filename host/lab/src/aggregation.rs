//! A switch's port in a group of ports that waits for a partner's LACP (IEEE 802.1AX), and falls back.
//!
//! Not every kernel has bonds. The bridge's port learns and forwards nothing, as a switch suspends such a port, and an LACPDU goes out of
//! it each second. When the time is over, the port forwards and says so. The time begins with the machine's first frame: a real card has no link
//! before its driver starts it, and a virtual one from power-on.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, bind, send, socket};

use crate::background::{Background, Pauses};
use crate::netns::tool;

/// States of a bridge's port, as `ip link` numbers them. Of those that forward nothing, a bridge without a spanning tree leaves only learning as it
/// is.
const LEARNING: &str = "2";
const FORWARDING: &str = "3";

/// How often the port is looked after; with each fourth turn an LACPDU is sent (Fast_Periodic_Time, 1 s).
const TURN: Duration = Duration::from_millis(250);
const TURNS: u32 = 4;

/// A state of the port (section 6.4.2.3): active, may be aggregated, its partner's values are the defaults; then, too, in sync, collecting and
/// distributing.
const WAITS: u8 = 0x45;
const FELL_BACK: u8 = 0x7d;

/// Has the bridge's port `cable` wait for LACP from when its link comes up, and fall back so long after the machine's first frame, until the value
/// is dropped.
pub(crate) fn start(cable: &str, fallback: Duration) -> Result<Background> {
    let socket = link_socket(cable)?;
    let cable = cable.to_owned();
    Ok(Background::start(move |pauses| {
        wait_for_partner(&cable, fallback, &socket, pauses);
    }))
}

fn wait_for_partner(cable: &str, fallback: Duration, socket: &OwnedFd, pauses: &Pauses) {
    let state = |state| {
        // Refused while there is no link, and then tried again.
        let _ = tool(
            "ip",
            ["link", "set", cable, "type", "bridge_slave", "state", state],
        );
    };
    let mut left = fallback;
    for turn in 0_u32.. {
        let waits = !left.is_zero();
        if waits {
            // Again and again, as the bridge has a port forward whose link comes up.
            state(LEARNING);
        }
        if turn.is_multiple_of(TURNS) {
            let words = lacpdu(if waits { WAITS } else { FELL_BACK });
            // Without a cable's other end nobody misses it.
            let _ = send(socket.as_raw_fd(), &words, MsgFlags::empty());
        }
        if !pauses.pause(TURN) {
            return;
        }
        if waits && has_spoken(cable) {
            left = left.saturating_sub(TURN);
            if left.is_zero() {
                state(FORWARDING);
            }
        }
    }
}

/// The machine has sent a frame: the first of the numbers behind the interface's name counts bytes.
fn has_spoken(cable: &str) -> bool {
    let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let mut lines = devices
        .lines()
        .filter_map(|line| line.trim().split_once(':'));
    let counted = lines.find(|(name, _)| *name == cable);
    let first = counted.and_then(|(_, numbers)| numbers.split_whitespace().next());
    first.is_some_and(|bytes| bytes != "0")
}

/// A frame of the switch's to its partner.
fn lacpdu(state: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend([0x01, 0x80, 0xc2, 0, 0, 0x02]);
    frame.extend([0x52, 0x54, 0, 0x77, 0, 0xfe]);
    frame.extend([0x88, 0x09, 1, 1]);
    // Actor: system, key 1, port 1.
    frame.extend([
        1, 20, 0x80, 0, 0x52, 0x54, 0, 0x77, 0, 0xfe, 0, 1, 0x80, 0, 0, 1,
    ]);
    frame.extend([state, 0, 0, 0]);
    // Partner: nobody.
    frame.extend([2, 20]);
    frame.extend([0; 18]);
    // Collector, and the end.
    frame.extend([3, 16]);
    frame.extend([0; 14]);
    frame.resize(124, 0);
    frame
}

/// A socket whose frames leave by this interface.
fn link_socket(interface: &str) -> Result<OwnedFd> {
    let open = || -> nix::Result<OwnedFd> {
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        let address = getifaddrs()?
            .filter(|one| one.interface_name == interface)
            .find_map(|one| one.address.filter(|at| at.as_link_addr().is_some()))
            .ok_or(nix::errno::Errno::ENODEV)?;
        bind(socket.as_raw_fd(), &address)?;
        Ok(socket)
    };
    open().with_context(|| format!("opening a socket at {interface}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_words_are_understood() {
        for (state, waits) in [(WAITS, true), (FELL_BACK, false)] {
            let mut observer = wireboot_observe::Observer::new(wireboot_observe::Mac([2; 6]), 0.0);
            let link = wireboot_observe::LinkType::Ethernet;
            observer.frame(0.0, link, &lacpdu(state));
            let told = observer.report().network.lacp.unwrap();
            assert_eq!((told.waits, told.unheard, told.key), (waits, true, 1));
        }
    }
}
