//! Frames as a capture file for Wireshark, `tcpdump -r` and `wireboot doctor pcap` (draft-ietf-opsawg-pcapng).
//!
//! ```text
//! block:  type (4) | length (4) | body, padded to 4 | length (4)
//! section header, an interface for each card, then a packet for each frame
//! ```

use alloc::vec::Vec;
use wireboot_platform::frames::Frame;

/// Types of blocks.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// By which a reader tells the order of bytes; version 1.0; a section whose length is not told.
const ORDER: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];
const NO_LENGTH: [u8; 8] = [0xff; 8];

/// Ethernet, in tcpdump's list of link-layer header types.
const ETHERNET: u16 = 1;

/// Options: an interface's Ethernet address and the unit of its times, a packet's direction.
const ADDRESS: u16 = 6;
const UNIT: u16 = 9;
const FLAGS: u16 = 2;
/// Number 0, without a value.
const END_OF_OPTIONS: [u8; 4] = [0; 4];

/// Times are in nanoseconds: ten to the power of minus nine.
const NANOSECONDS: u8 = 9;

/// A packet's direction.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// The beginning of a file with the packets of these cards, whose places in the list frames tell.
pub fn head(cards: &[[u8; 6]]) -> Vec<u8> {
    let [major, minor] = VERSION.map(u16::to_le_bytes);
    let order = ORDER.to_le_bytes();
    let mut out = Vec::new();
    block(&mut out, SECTION, &[&order, &major, &minor, &NO_LENGTH]);
    for card in cards {
        let options = [option(ADDRESS, card), option(UNIT, &[NANOSECONDS])].concat();
        // Two bytes that mean nothing, and frames as long as they are.
        let link = ETHERNET.to_le_bytes();
        block(
            &mut out,
            INTERFACE,
            &[&link, &[0; 6], &options, &END_OF_OPTIONS],
        );
    }
    out
}

/// A frame, as it follows the head. The counter ticks `hertz` times a second, and its zero was at `began_ns` nanoseconds since 1970.
pub fn packet(frame: &Frame, hertz: u64, began_ns: u64) -> Vec<u8> {
    let since = u128::from(frame.ticks) * 1_000_000_000 / u128::from(hertz.max(1));
    let at = began_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX));
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let direction = if frame.sent { OUTBOUND } else { INBOUND };
    let mut out = Vec::new();
    let kept = frame.bytes.len();
    let fields = [
        number(frame.interface),
        ((at >> 32) as u32).to_le_bytes(),
        (at as u32).to_le_bytes(),
        number(kept),
        number(frame.length.max(kept)),
    ];
    let flags = option(FLAGS, &direction.to_le_bytes());
    let parts = [
        frame.bytes.as_slice(),
        padding(kept),
        &flags,
        &END_OF_OPTIONS,
    ];
    block(&mut out, PACKET, &[fields.as_flattened(), &parts.concat()]);
    out
}

/// Zeros up to the next multiple of 4.
fn padding(length: usize) -> &'static [u8] {
    const ZEROS: [u8; 3] = [0; 3];
    let missing = length.next_multiple_of(4) - length;
    ZEROS.get(..missing).unwrap_or_default()
}

/// An option: its number, its length, its value.
fn option(number: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or_default().to_le_bytes();
    let parts = [&number.to_le_bytes(), &length, value, padding(value.len())];
    parts.concat()
}

/// A block around these parts, which together are a multiple of 4 long.
fn block(out: &mut Vec<u8>, kind: u32, parts: &[&[u8]]) {
    const AROUND: usize = 12;
    let length = AROUND + parts.iter().map(|part| part.len()).sum::<usize>();
    let length = u32::try_from(length).unwrap_or_default().to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(length);
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use wireboot_capture::Packets;

    #[test]
    fn a_reader_of_captures_finds_every_frame() {
        let mac = |last| [2, 0, 0, 0, 0, last];
        let frames: Vec<Frame> = (14..60)
            .map(|length| Frame {
                // A millisecond each.
                ticks: 2_600_000 * length as u64,
                interface: length % 2,
                sent: length % 3 == 0,
                length: length + 1000,
                bytes: vec![length as u8; length],
            })
            .collect();
        let mut file = head(&[mac(1), mac(2)]);
        let began_s = 1_700_000_000;
        for frame in &frames {
            file.extend(packet(frame, 2_600_000_000, began_s * 1_000_000_000));
        }
        let read: Vec<_> = Packets::new(std::io::Cursor::new(file))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(read.len(), frames.len());
        for (read, frame) in read.iter().zip(&frames) {
            assert_eq!(read.data, frame.bytes);
            assert_eq!(read.link, Some(wireboot_observe::LinkType::Ethernet));
            let at = began_s as f64 + frame.length as f64 / 1000.0 - 1.0;
            assert!((read.time - at).abs() < 1e-5, "{} is not {at}", read.time);
        }
    }
}
