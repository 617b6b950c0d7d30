//! How much each connection may promise to take.
//!
//! The receive ring must hold what arrives between two polls. Of a window that is used up, that is all of it
//! when a stall lasts longer than the round trip: on a local network the windows of all connections together must
//! not be larger than the ring. On a long path a sender that fills its window has it spread over the round trip: in
//! a stall of time `s` there arrives no more than `s / rtt` of it. So a window of `w` bytes takes `w * s / rtt`
//! bytes of the ring (all `w` where `rtt < s`), and these, summed over the connections, never exceed the ring.
//!
//! In words of rates: the ring of `r` bytes can take `r / s` bytes a second through any stall of up to `s`, whatever the
//! windows, and `r / s * rtt`, the bandwidth-delay product of that rate, is the largest window that promises no more than
//! that. The stall is [`STALL`]; a longer one may cost segments, which come again. A sender whose whole window arrives in one
//! burst faster than the engine takes it would need a window below the ring at any distance; the bursts that our
//! acknowledgements provoke are no larger than what one of them covers ([`super`]: a quarter of the window or 256
//! KiB), and network cards and paths draw them apart further.
//!
//! A promise is not taken back (RFC 9293, section 3.8.6.2.1): when a connection joins, the others' windows shrink only as
//! data arrives, and the newcomer begins with what they leave.

use wireboot_tcp::{Duration, MAX_WINDOW};

/// The engine may be kept from polling for up to so long: the longest time without a look at the ring that costs nothing. The usual
/// smallest ring, 256 frames, holds what arrives in 3 ms at 1 Gbit/s.
pub(crate) const STALL: Duration = Duration::from_millis(2);
/// Always granted, in bytes of the ring, so that no connection stands still: two full segments.
const FLOOR: u32 = 2 * 1460;

/// Bytes of the ring that `receive_frames` frames of `mtu` bytes offer to TCP; a sixteenth stays for all else.
pub(crate) fn ring(receive_frames: usize, mtu: u16) -> u32 {
    let segment = usize::from(mtu).saturating_sub(40).max(536);
    let frames = receive_frames.saturating_sub(receive_frames / 16).max(2);
    u32::try_from(frames.saturating_mul(segment)).unwrap_or(MAX_WINDOW)
}

/// Out-of-order or unread bytes that are held for a connection, on a ring of so many bytes. While a
/// connection has no destination this is its window.
pub(crate) fn held(ring: u32) -> usize {
    (ring / 8).clamp(8 * 1024, 256 * 1024) as usize
}

/// Bytes of the ring that a window takes.
pub(crate) fn taken(window: u32, round_trip: Option<Duration>) -> u32 {
    let (stall, rtt) = times(round_trip);
    (u64::from(window) * stall).div_ceil(rtt) as u32
}

/// The window for a connection on a ring of which `readers` connections, this one included, want a part and the
/// others hold `others` bytes.
pub(crate) fn grant(ring: u32, readers: u32, others: u32, round_trip: Option<Duration>) -> u32 {
    let share = ring / readers.max(1);
    let bytes = share.min(ring.saturating_sub(others)).max(FLOOR);
    let (stall, rtt) = times(round_trip);
    (u64::from(bytes) * rtt / stall).min(MAX_WINDOW.into()) as u32
}

/// The stall and the round trip, at least as long, in microseconds.
fn times(round_trip: Option<Duration>) -> (u64, u64) {
    let stall = STALL.total_micros();
    // Beyond some seconds the largest window is granted anyway.
    let rtt = round_trip.map_or(0, |rtt| rtt.total_micros().min(10_000_000));
    (stall, rtt.max(stall))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_ring_is_held_within_limits() {
        let ring = |frames| ring(frames, 1500);
        assert_eq!(held(ring(1)), 8192);
        assert_eq!(held(ring(256)), 240 * 1460 / 8);
        assert_eq!(held(ring(4096)), 262_144);
    }

    #[test]
    fn windows_follow_ring_and_round_trip() {
        let ring = ring(256, 1500);
        assert_eq!(ring, 240 * 1460);
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(grant(ring, 1, 0, None), ring);
        assert_eq!(grant(ring, 1, 0, ms(1)), ring);
        assert_eq!(grant(ring, 4, 0, ms(1)), ring / 4);
        assert!(grant(ring, 1, 0, ms(100)) > 12_500_000, "1 Gbit/s");
        assert_eq!(grant(ring, 1, 0, ms(100_000)), MAX_WINDOW);
        // What the others hold is not given twice.
        assert_eq!(grant(ring, 2, ring - 5000, None), 5000);
        assert_eq!(grant(ring, 2, ring + 5000, None), FLOOR);
        for rtt in [None, ms(1), ms(7), ms(90)] {
            let window = grant(ring, 3, 0, rtt);
            assert!(taken(window, rtt).abs_diff(ring / 3) <= 1);
        }
    }
}
