//! The packets that EFI_PXE_BASE_CODE_MODE shows. To a loader they say where it came from itself, and not the program before it.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

/// Bytes of EFI_PXE_BASE_CODE_PACKET.
pub const PACKET: usize = 1472;

/// A packet as a server or client sent it, from its first field on, with zeros behind its end.
pub type Packet = [u8; PACKET];

const SIADDR: usize = 20;
const FILE: usize = 108;
const FILE_END: usize = 236;
/// Behind the magic number.
const OPTIONS: usize = 240;

const PAD: u8 = 0;
const OVERLOAD: u8 = 52;
const SERVER_NAME: u8 = 66;
const BOOT_FILE: u8 = 67;
const END: u8 = 255;

/// Bytes of message type and transaction id of a DHCPv6 message.
const OPTIONS6: usize = 4;
/// OPT_BOOTFILE_URL (RFC 5970).
const BOOT_FILE_URL: u16 = 59;

/// Each option with its value, up to the end or to the first that is not whole.
fn options(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut options = Vec::new();
    loop {
        bytes = match *bytes {
            [PAD, ref rest @ ..] => rest,
            [END, ..] | [] | [_] => return options,
            [code, len, ref rest @ ..] => {
                let Some((value, rest)) = rest.split_at_checked(len.into()) else {
                    return options;
                };
                options.push((code, value));
                rest
            }
        };
    }
}

/// Writes the options, as many as fit, and an end behind them: some loaders look for it without minding where the packet ends.
fn write_options<'a>(packet: &mut Packet, options: impl Iterator<Item = (u8, &'a [u8])>) {
    let Some(mut room) = packet.get_mut(OPTIONS..) else {
        return;
    };
    room.fill(0);
    for (code, value) in options {
        let len = 2 + value.len();
        if value.len() > 255 || len >= room.len() {
            continue;
        }
        let (place, rest) = room.split_at_mut(len);
        if let [first, second, to @ ..] = place {
            (*first, *second) = (code, value.len() as u8);
            to.copy_from_slice(value);
        }
        room = rest;
    }
    if let Some(end) = room.first_mut() {
        *end = END;
    }
}

/// A packet with zeros behind its end; what does not fit is cut off.
#[must_use]
pub fn padded(bytes: &[u8]) -> Packet {
    let mut packet = [0; PACKET];
    let count = bytes.len().min(PACKET);
    if let (Some(to), Some(from)) = (packet.get_mut(..count), bytes.get(..count)) {
        to.copy_from_slice(from);
    }
    packet
}

/// The DHCPv6 message in a packet, whose length nobody tells: up to the zeros behind it (no option has the number 0), or to an option that is
/// not whole.
#[must_use]
pub fn message6(packet: &Packet) -> &[u8] {
    let mut end = OPTIONS6;
    while let Some([c0, c1, l0, l1, value @ ..]) = packet.get(end..) {
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        if (*c0, *c1) == (0, 0) || value.len() < len {
            break;
        }
        end += 4 + len;
    }
    packet.get(..end).unwrap_or(packet)
}

/// Has the option list of a DHCP packet end where an option does.
pub fn end_options(packet: &mut Packet) {
    let before = *packet;
    let before = before.get(OPTIONS..).unwrap_or_default();
    write_options(packet, options(before).into_iter());
}

/// Makes a DHCP packet (RFC 2131) name `file` on `server`, in the header's fields as well as in the options.
pub fn name_file(packet: &mut Packet, server: Ipv4Addr, file: &str) {
    let before = *packet;
    let before = options(before.get(OPTIONS..).unwrap_or_default());
    // The file field may hold options of its own (RFC 2132, section 9.3).
    let overloaded = before
        .iter()
        .any(|(code, value)| *code == OVERLOAD && value.first().is_some_and(|bits| bits & 1 == 1));
    if let Some(field) = packet.get_mut(SIADDR..SIADDR + 4) {
        field.copy_from_slice(&server.octets());
    }
    let mut in_field = false;
    if let (false, Some(field)) = (overloaded, packet.get_mut(FILE..FILE_END)) {
        field.fill(0);
        // With a zero behind it.
        if let Some(place) = field.get_mut(..file.len())
            && file.len() < FILE_END - FILE
        {
            place.copy_from_slice(file.as_bytes());
            in_field = true;
        }
    }
    let named = |wanted| before.iter().any(|(code, _)| *code == wanted);
    let server = server.to_string();
    let name = named(SERVER_NAME).then_some((SERVER_NAME, server.as_bytes()));
    let path = (named(BOOT_FILE) || !in_field).then_some((BOOT_FILE, file.as_bytes()));
    let others = before
        .iter()
        .copied()
        .filter(|(code, _)| !matches!(*code, SERVER_NAME | BOOT_FILE));
    write_options(packet, name.into_iter().chain(path).chain(others));
}

/// Makes a DHCPv6 message (RFC 8415) name `file` on `server` (RFC 5970). Options without a value, as Rapid Commit, are left out: GRUB reads no
/// further than the first of them, and EDK II's exchange has none.
pub fn name_file6(packet: &mut Packet, server: IpAddr, file: &str) {
    let url = match server {
        IpAddr::V4(server) => format!("tftp://{server}/{file}"),
        IpAddr::V6(server) => format!("tftp://[{server}]/{file}"),
    };
    let before = *packet;
    let mut rest = before.get(OPTIONS6..).unwrap_or_default();
    let mut after = Vec::new();
    let mut push = |code: u16, value: &[u8]| {
        // What does not fit is left out, as a whole.
        if after.len() + 4 + value.len() > PACKET - OPTIONS6 {
            return;
        }
        after.extend(code.to_be_bytes());
        after.extend((value.len() as u16).to_be_bytes());
        after.extend(value);
    };
    push(BOOT_FILE_URL, url.as_bytes());
    while let [c0, c1, l0, l1, tail @ ..] = rest {
        let (code, len) = (
            u16::from_be_bytes([*c0, *c1]),
            u16::from_be_bytes([*l0, *l1]),
        );
        let Some((value, tail)) = tail.split_at_checked(len.into()) else {
            break;
        };
        if code == 0 {
            break;
        }
        if code != BOOT_FILE_URL && !value.is_empty() {
            push(code, value);
        }
        rest = tail;
    }
    if let Some(room) = packet.get_mut(OPTIONS6..) {
        room.fill(0);
        if let Some(place) = room.get_mut(..after.len()) {
            place.copy_from_slice(&after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

    fn packet(options: &[u8]) -> Packet {
        let mut packet = [0; PACKET];
        packet[FILE..FILE + 12].copy_from_slice(b"wireboot.efi");
        packet[236..240].copy_from_slice(&[99, 130, 83, 99]);
        packet[OPTIONS..OPTIONS + options.len()].copy_from_slice(options);
        packet
    }

    fn field(packet: &Packet) -> &[u8] {
        let field = &packet[FILE..FILE_END];
        &field[..field.iter().position(|&byte| byte == 0).unwrap()]
    }

    #[test]
    fn packets_have_one_length() {
        assert_eq!(padded(&[7; 3])[..5], [7, 7, 7, 0, 0]);
        assert_eq!(padded(&[7; 2000]), [7; PACKET]);
    }

    #[test]
    fn the_header_names_the_loader() {
        let mut named = packet(&[53, 1, 5, 0, 0, 54, 4, 10, 0, 0, 1, 255, 7, 7]);
        name_file(&mut named, SERVER, "efi/bootx64.efi");
        assert_eq!(named[SIADDR..SIADDR + 4], [10, 0, 0, 9]);
        assert_eq!(field(&named), b"efi/bootx64.efi");
        let expected = [53, 1, 5, 54, 4, 10, 0, 0, 1, 255, 0, 0];
        assert_eq!(named[OPTIONS..OPTIONS + 12], expected);
    }

    #[test]
    fn options_that_name_a_file_name_the_loader_too() {
        let mut named = packet(b"\x43\x03old\x42\x03srv\x35\x01\x05\xff");
        name_file(&mut named, SERVER, "a");
        assert_eq!(field(&named), b"a");
        let expected = b"\x42\x0810.0.0.9\x43\x01a\x35\x01\x05\xff\0";
        assert_eq!(named[OPTIONS..OPTIONS + expected.len()], *expected);
    }

    #[test]
    fn a_field_with_options_in_it_stays() {
        let mut named = packet(&[52, 1, 1, 255]);
        name_file(&mut named, SERVER, "a");
        assert_eq!(field(&named), b"wireboot.efi");
        assert_eq!(named[OPTIONS..OPTIONS + 7], [67, 1, b'a', 52, 1, 1, 255]);
        let mut both = packet(&[52, 1, 3, 255]);
        name_file(&mut both, SERVER, "a");
        assert_eq!(field(&both), b"wireboot.efi");
        // The server name's field alone does not matter.
        let mut named = packet(&[52, 1, 2, 255]);
        name_file(&mut named, SERVER, "a");
        assert_eq!(field(&named), b"a");
    }

    #[test]
    fn a_name_too_long_for_the_field_is_an_option() {
        let long = "x".repeat(128);
        let mut named = packet(&[255]);
        name_file(&mut named, SERVER, &long);
        assert_eq!(field(&named), b"");
        assert_eq!(named[OPTIONS..OPTIONS + 2], [67, 128]);
        name_file(&mut named, SERVER, &long[1..]);
        assert_eq!(field(&named).len(), 127);
    }

    #[test]
    fn a_message_names_the_loaders_url() {
        let mut packet = [0; PACKET];
        let message = [
            7, 1, 2, 3, 0, 2, 0, 2, 9, 9, 0, 59, 0, 1, b'x', 0, 14, 0, 0, 0, 7, 0, 1, 5,
        ];
        packet[..message.len()].copy_from_slice(&message);
        name_file6(&mut packet, "fd00::1".parse().unwrap(), "a/b.efi");
        let url = b"tftp://[fd00::1]/a/b.efi";
        let mut expected = alloc::vec![7, 1, 2, 3, 0, 59, 0, url.len() as u8];
        expected.extend(url);
        expected.extend([0, 2, 0, 2, 9, 9, 0, 7, 0, 1, 5, 0, 0, 0, 0]);
        assert_eq!(packet[..expected.len()], expected);
    }

    #[test]
    fn options_that_do_not_fit_are_left_out() {
        let mut packet = [0; PACKET];
        // An option that fills what 22 bytes of URL option leave, and one byte more; one of one byte.
        for (len, fits) in [(1442_u16, true), (1443, false)] {
            packet.fill(0);
            packet[..6].copy_from_slice(&[7, 1, 2, 3, 0, 2]);
            packet[6..8].copy_from_slice(&len.to_be_bytes());
            packet[8..][..len.into()].fill(9);
            packet[8 + usize::from(len)..][..4].copy_from_slice(&[0, 14, 0, 1]);
            name_file6(&mut packet, "fd00::1".parse().unwrap(), "a");
            assert_eq!(packet[4..8], [0, 59, 0, 18]);
            let behind = if fits { [0, 2] } else { [0, 14] };
            assert_eq!(packet[8 + 18..][..2], behind);
        }
    }

    proptest! {
        #[test]
        fn any_options_end_and_are_kept_as_far_as_they_are_whole(bytes in prop::collection::vec(any::<u8>(), PACKET - OPTIONS)) {
            let mut packet = packet(&bytes);
            let before = options(&bytes).iter().map(|(code, value)| (*code, value.to_vec())).collect::<Vec<_>>();
            end_options(&mut packet);
            let after = options(&packet[OPTIONS..]);
            prop_assert!(after.len() + 1 >= before.len());
            for (one, other) in after.iter().zip(&before) {
                prop_assert_eq!((one.0, one.1), (other.0, &other.1[..]));
            }
            let end = after.iter().map(|(_, value)| 2 + value.len()).sum::<usize>();
            prop_assert_eq!(packet[OPTIONS + end], END);
            name_file(&mut packet, SERVER, "b");
            name_file6(&mut packet, SERVER.into(), "b");
        }
    }

    /// RFC 8415, sections 8 and 21.1: four bytes, then options of four bytes and their values; no option has the number 0.
    #[test]
    fn a_message_ends_where_its_options_do() {
        let message = [1, 1, 2, 3, 0, 1, 0, 2, 9, 9, 0, 14, 0, 0];
        assert_eq!(message6(&padded(&message)), message);
        // An option up to the packet's end, and one that would be longer.
        for (len, end) in [(PACKET - 8, PACKET), (PACKET - 7, 4)] {
            let mut packet = padded(&[1, 1, 2, 3, 0, 1]);
            packet[6..8].copy_from_slice(&(len as u16).to_be_bytes());
            assert_eq!(message6(&packet).len(), end);
        }
    }

    /// RFC 2132, section 2: a length is one byte.
    #[test]
    fn a_name_too_long_for_an_option_leaves_the_others_whole() {
        let mut named = packet(&[53, 1, 5, 255]);
        name_file(&mut named, SERVER, &"x".repeat(300));
        assert_eq!(named[OPTIONS..OPTIONS + 5], [53, 1, 5, 255, 0]);
    }
}
