//! TFTP packets: RFC 1350 with the options of RFC 2347 (extension), 2348 (`blksize`), 2349 (`timeout`, `tsize`) and
//! 7440 (`windowsize`), one of Windows Deployment Services, `msftwindow`: see [`VariableWindow`], and one of our own, `slide`: see
//! [`TransferOptions::slide`].
//!
//! ```text
//! RRQ/WRQ | 01/02 | file name | 0 | mode | 0 | option | 0 | value | 0 | ...
//! DATA    | 03    | block #   | 0..=blksize bytes
//! ACK     | 04    | block # | window, where it varies (1)
//! ERROR   | 05    | code      | text | 0
//! OACK    | 06    | option | 0 | value | 0 | ...
//! ```

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::text;

/// UDP port that a server takes requests on.
pub const PORT: u16 = 69;
/// Block size in bytes when no option says otherwise (RFC 1350).
pub const DEFAULT_BLOCK_SIZE: u16 = 512;
/// Smallest block size that can be negotiated, in bytes (RFC 2348).
pub const MIN_BLOCK_SIZE: u16 = 8;
/// Largest block size that can be negotiated, in bytes (RFC 2348).
pub const MAX_BLOCK_SIZE: u16 = 65464;
/// Bytes before the payload of a DATA packet.
pub const DATA_HEADER_LEN: usize = 4;

const RRQ: u16 = 1;
const WRQ: u16 = 2;
const DATA: u16 = 3;
const ACK: u16 = 4;
const ERROR: u16 = 5;
const OACK: u16 = 6;

/// Why bytes are not a TFTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The packet ends before its fixed fields do.
    #[error("the TFTP packet is too short")]
    Truncated,
    /// The operation code is none of 1 to 6.
    #[error("unknown TFTP operation code {0}")]
    Opcode(u16),
    /// A request's file name or mode is not terminated or not UTF-8.
    #[error("the TFTP request's file name or mode is malformed")]
    Request,
}

/// Error codes (RFC 1350 section 5, RFC 2347 section 4). Any other value may arrive too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u16);

impl ErrorCode {
    /// Not defined, see the text.
    pub const UNDEFINED: Self = Self(0);
    /// File not found.
    pub const NOT_FOUND: Self = Self(1);
    /// Access violation.
    pub const ACCESS: Self = Self(2);
    /// Disk full or allocation exceeded.
    pub const DISK_FULL: Self = Self(3);
    /// Illegal TFTP operation.
    pub const ILLEGAL: Self = Self(4);
    /// Unknown transfer ID (port).
    pub const UNKNOWN_ID: Self = Self(5);
    /// File already exists.
    pub const EXISTS: Self = Self(6);
    /// No such user.
    pub const NO_USER: Self = Self(7);
    /// The options were refused, or an option acknowledgement was.
    pub const OPTIONS: Self = Self(8);

    /// What the code means, for when a server sends no text.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::NOT_FOUND => "file not found",
            Self::ACCESS => "access violation",
            Self::DISK_FULL => "disk full",
            Self::ILLEGAL => "illegal TFTP operation",
            Self::UNKNOWN_ID => "unknown transfer ID",
            Self::EXISTS => "file already exists",
            Self::NO_USER => "no such user",
            Self::OPTIONS => "options refused",
            _ => "undefined error",
        }
    }
}

/// Option name and value pairs of a request or an option acknowledgement, as they lie in the packet.
///
/// Iterating yields the pairs in order, and ends at a pair that is cut off. Pairs that are not UTF-8 are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// Options over bytes that hold `name NUL value NUL` pairs.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes of the pairs, without those that the iterator has passed.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (name, rest) = terminated(self.0)?;
            let (value, rest) = terminated(rest)?;
            self.0 = rest;
            if let (Ok(name), Ok(value)) = (str::from_utf8(name), str::from_utf8(value)) {
                return Some((name, value));
            }
        }
    }
}

/// `msftwindow`: the client says anew in each ACK how many DATA packets the server is to send for it. Of no RFC, as Windows Deployment Services
/// and their clients have it: a request and its acknowledgement have a number each, and each ACK is one byte longer ([`ack_with_window`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableWindow {
    /// The number of a request.
    Asked,
    /// The number of an acknowledgement.
    Granted,
}

impl VariableWindow {
    /// The number that stands in the option.
    pub fn number(self) -> u16 {
        match self {
            Self::Asked => 31416,
            Self::Granted => 27182,
        }
    }
}

/// The options this crate knows, as numbers. `None`: not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferOptions {
    /// `blksize`: payload bytes of each DATA packet but the last, 8 to 65464.
    pub block_size: Option<u16>,
    /// `windowsize`: DATA packets sent for one ACK, 1 to 65535.
    pub window_size: Option<u16>,
    /// `tsize`: bytes of the whole file; 0 in a read request asks for it.
    pub transfer_size: Option<u64>,
    /// `timeout`: seconds before the server sends again, 1 to 255.
    pub timeout: Option<u8>,
    /// `slide`: the window of a read slides; a power of two from 1 to 32768, not above `windowsize`. Not of an RFC.
    ///
    /// By RFC 7440 a server sends a window and waits until the client has taken all of it. With this option:
    ///
    /// - A client asks for it along with `windowsize`. A server grants it as it is or reduced, only along with
    ///   `windowsize`, and not above the window it grants. Whoever does not know it ignores it (RFC 2347).
    /// - Let K be the granted value. An ACK beyond those before it, of a block whose number is a multiple of K, says that
    ///   everything up to that block has come. The server goes on with the blocks it has not sent, up to `windowsize`
    ///   beyond the acknowledged one, and sends nothing again. 65536 is a multiple of K, so that the number in the packet
    ///   tells it as well as the number that has not wrapped. The client sends one for each such block that it has
    ///   received in order, or for the newest of several.
    /// - Any other ACK keeps its meaning of RFC 7440: a new window opens after its block. The client sends it for the
    ///   last block it has in order when it sees a gap (once), or when nothing comes any more; and for the file's last
    ///   block.
    /// - An ACK equal to the newest before it asks for a new window, too: so a client reports a gap after a multiple of K,
    ///   where it needs two ACKs if it has not sent one for that block. The server follows it at most once in the shortest
    ///   round trip it has seen, counted from its last going back, so that a doubled packet costs one window at most.
    pub slide: Option<u16>,
    /// `msftwindow`.
    pub variable_window: Option<VariableWindow>,
}

/// An option value outside its RFC's range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TFTP option {name} has the invalid value {value:?}")]
pub struct BadOption {
    /// Name of the option, lower case.
    pub name: &'static str,
    /// Its value, fit to be shown.
    pub value: String,
}

impl TransferOptions {
    /// What a request asks for. As RFC 2347 says to servers, an option that is unknown or out of range counts as
    /// absent; a block size above 65464 counts as that, since a server may answer less than asked.
    pub fn from_request(options: Options<'_>) -> Self {
        let mut wanted = Self::default();
        for (name, value) in options {
            // What is refused is not acknowledged, which tells the client.
            let _ = wanted.set(name, value, true);
        }
        wanted
    }

    /// What an option acknowledgement grants. Unknown options are passed over.
    ///
    /// # Errors
    /// The first option that is out of range; the transfer must then end with [`ErrorCode::OPTIONS`].
    pub fn from_acknowledgement(options: Options<'_>) -> Result<Self, BadOption> {
        let mut granted = Self::default();
        for (name, value) in options {
            granted.set(name, value, false)?;
        }
        Ok(granted)
    }

    fn set(&mut self, name: &str, value: &str, clamp: bool) -> Result<(), BadOption> {
        let bad = |name| BadOption {
            name,
            value: text::shown(value.as_bytes()),
        };
        // `parse` alone would take a leading plus sign.
        let number = if value.starts_with('+') {
            None
        } else {
            value.trim().parse::<u64>().ok()
        };
        if name.eq_ignore_ascii_case("blksize") {
            let number = number
                .map(|n| {
                    if clamp {
                        n.min(MAX_BLOCK_SIZE.into())
                    } else {
                        n
                    }
                })
                .and_then(|n| u16::try_from(n).ok())
                .filter(|n| (MIN_BLOCK_SIZE..=MAX_BLOCK_SIZE).contains(n));
            self.block_size = Some(number.ok_or_else(|| bad("blksize"))?);
        } else if name.eq_ignore_ascii_case("windowsize") {
            let number = number
                .and_then(|n| u16::try_from(n).ok())
                .filter(|&n| n > 0);
            self.window_size = Some(number.ok_or_else(|| bad("windowsize"))?);
        } else if name.eq_ignore_ascii_case("tsize") {
            self.transfer_size = Some(number.ok_or_else(|| bad("tsize"))?);
        } else if name.eq_ignore_ascii_case("timeout") {
            let number = number.and_then(|n| u8::try_from(n).ok()).filter(|&n| n > 0);
            self.timeout = Some(number.ok_or_else(|| bad("timeout"))?);
        } else if name.eq_ignore_ascii_case("slide") {
            let number = number
                .and_then(|n| u16::try_from(n).ok())
                .filter(|n| n.is_power_of_two());
            self.slide = Some(number.ok_or_else(|| bad("slide"))?);
        } else if name.eq_ignore_ascii_case("msftwindow") {
            let both = [VariableWindow::Asked, VariableWindow::Granted];
            let known = both
                .into_iter()
                .find(|one| number == Some(one.number().into()));
            self.variable_window = Some(known.ok_or_else(|| bad("msftwindow"))?);
        }
        Ok(())
    }

    /// True when no option is there.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Appends the options as `name NUL value NUL` pairs, for [`Options::new`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        let pairs = [
            ("tsize", self.transfer_size),
            ("blksize", self.block_size.map(u64::from)),
            ("windowsize", self.window_size.map(u64::from)),
            ("timeout", self.timeout.map(u64::from)),
            ("slide", self.slide.map(u64::from)),
            (
                "msftwindow",
                self.variable_window.map(|one| one.number().into()),
            ),
        ];
        for (name, value) in pairs {
            if let Some(value) = value {
                let mut pair = String::new();
                // Writing to a String cannot fail.
                let _ = write!(pair, "{name}\0{value}\0");
                out.extend_from_slice(pair.as_bytes());
            }
        }
    }
}

/// A read or write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Name of the file.
    pub filename: &'a str,
    /// Transfer mode, `octet` in any case for ours.
    pub mode: &'a str,
    /// Options asked for.
    pub options: Options<'a>,
}

/// A TFTP packet, borrowing from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Read request.
    Rrq(Request<'a>),
    /// Write request.
    Wrq(Request<'a>),
    /// One block of the file.
    Data {
        /// Block number; the first is 1, and 65535 is followed by 0.
        block: u16,
        /// The bytes. Fewer than the block size: the last block.
        payload: &'a [u8],
    },
    /// All blocks up to this one have arrived.
    Ack {
        /// Block number; 0 acknowledges an OACK.
        block: u16,
    },
    /// The transfer is over.
    Error {
        /// What kind of error.
        code: ErrorCode,
        /// The sender's text, unchecked; [`text::shown`] makes it fit to be shown.
        text: &'a [u8],
    },
    /// Option acknowledgement.
    Oack(Options<'a>),
}

impl<'a> Packet<'a> {
    /// Reads the payload of a UDP datagram.
    ///
    /// # Errors
    /// [`ParseError`] when it is no TFTP packet. An unterminated error text or last option is not an error, since
    /// there are peers that send those.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (opcode, rest) = word(bytes)?;
        match opcode {
            RRQ => Ok(Self::Rrq(request(rest)?)),
            WRQ => Ok(Self::Wrq(request(rest)?)),
            DATA => {
                let (block, payload) = word(rest)?;
                Ok(Self::Data { block, payload })
            }
            ACK => {
                let (block, _) = word(rest)?;
                Ok(Self::Ack { block })
            }
            ERROR => {
                let (code, rest) = word(rest)?;
                let text = terminated(rest).map_or(rest, |(text, _)| text);
                Ok(Self::Error {
                    code: ErrorCode(code),
                    text,
                })
            }
            OACK => Ok(Self::Oack(Options(rest))),
            other => Err(ParseError::Opcode(other)),
        }
    }

    /// Appends the packet to `out`.
    ///
    /// A file name, mode or text must hold no NUL, which would end it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Rrq(request) => emit_request(out, RRQ, request),
            Self::Wrq(request) => emit_request(out, WRQ, request),
            Self::Data { block, payload } => {
                out.extend_from_slice(&data_header(block));
                out.extend_from_slice(payload);
            }
            Self::Ack { block } => out.extend_from_slice(&ack(block)),
            Self::Error { code, text } => {
                out.extend_from_slice(&ERROR.to_be_bytes());
                out.extend_from_slice(&code.0.to_be_bytes());
                out.extend_from_slice(text);
                out.push(0);
            }
            Self::Oack(options) => {
                out.extend_from_slice(&OACK.to_be_bytes());
                out.extend_from_slice(options.0);
            }
        }
    }
}

/// A whole ACK packet.
pub fn ack(block: u16) -> [u8; 4] {
    header(ACK, block)
}

/// A whole ACK packet that says how many blocks are to come for it.
pub fn ack_with_window(block: u16, window: u8) -> [u8; 5] {
    let [a, b, c, d] = ack(block);
    [a, b, c, d, window]
}

/// The bytes in front of the payload of DATA packet `block`.
pub fn data_header(block: u16) -> [u8; DATA_HEADER_LEN] {
    header(DATA, block)
}

fn header(opcode: u16, block: u16) -> [u8; 4] {
    let [a, b] = opcode.to_be_bytes();
    let [c, d] = block.to_be_bytes();
    [a, b, c, d]
}

fn emit_request(out: &mut Vec<u8>, opcode: u16, request: Request<'_>) {
    out.extend_from_slice(&opcode.to_be_bytes());
    for text in [request.filename, request.mode] {
        out.extend_from_slice(text.as_bytes());
        out.push(0);
    }
    out.extend_from_slice(request.options.0);
}

fn request(bytes: &[u8]) -> Result<Request<'_>, ParseError> {
    let (filename, rest) = terminated(bytes).ok_or(ParseError::Request)?;
    let (mode, rest) = terminated(rest).ok_or(ParseError::Request)?;
    Ok(Request {
        filename: str::from_utf8(filename).map_err(|_| ParseError::Request)?,
        mode: str::from_utf8(mode).map_err(|_| ParseError::Request)?,
        options: Options(rest),
    })
}

fn word(bytes: &[u8]) -> Result<(u16, &[u8]), ParseError> {
    let (word, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
    Ok((u16::from_be_bytes(*word), rest))
}

/// Splits at the first NUL, which belongs to neither half.
fn terminated(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&b| b == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn emitted(packet: Packet<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        packet.emit(&mut out);
        out
    }

    #[test]
    fn a_read_request_with_options() {
        let bytes = b"\0\x01boot/vmlinuz\0octet\0tsize\x000\0BLKSIZE\x001468\0windowsize\x0064\0";
        let Packet::Rrq(request) = Packet::parse(bytes).unwrap() else {
            panic!()
        };
        assert_eq!((request.filename, request.mode), ("boot/vmlinuz", "octet"));
        assert_eq!(
            TransferOptions::from_request(request.options),
            TransferOptions {
                block_size: Some(1468),
                window_size: Some(64),
                transfer_size: Some(0),
                ..Default::default()
            }
        );
        assert_eq!(emitted(Packet::Rrq(request)), bytes);
    }

    /// A server must know one to refuse it.
    #[test]
    fn a_write_request() {
        let bytes = b"\0\x02upload\0netascii\0tsize\x007\0";
        let Packet::Wrq(request) = Packet::parse(bytes).unwrap() else {
            panic!()
        };
        assert_eq!((request.filename, request.mode), ("upload", "netascii"));
        assert_eq!(request.options.as_bytes(), b"tsize\x007\0");
        assert_eq!(emitted(Packet::Wrq(request)), bytes);
    }

    #[test]
    fn data_ack_error_oack() {
        assert_eq!(
            Packet::parse(b"\0\x03\xff\xffabc"),
            Ok(Packet::Data {
                block: 65535,
                payload: b"abc"
            })
        );
        assert_eq!(
            Packet::parse(b"\0\x03\0\x01"),
            Ok(Packet::Data {
                block: 1,
                payload: b""
            })
        );
        assert_eq!(Packet::parse(&ack(7)), Ok(Packet::Ack { block: 7 }));
        assert_eq!(ack_with_window(0x102, 64), [0, 4, 1, 2, 64]);
        assert_eq!(
            Packet::parse(&ack_with_window(7, 64)),
            Ok(Packet::Ack { block: 7 })
        );
        let error = Packet::Error {
            code: ErrorCode::NOT_FOUND,
            text: b"no such file",
        };
        assert_eq!(Packet::parse(b"\0\x05\0\x01no such file\0"), Ok(error));
        assert_eq!(
            Packet::parse(b"\0\x05\0\x01no such file"),
            Ok(error),
            "NUL forgotten"
        );
        assert_eq!(emitted(error), b"\0\x05\0\x01no such file\0");
        let Packet::Oack(options) = Packet::parse(b"\0\x06blksize\x00512\0x\0y\0").unwrap() else {
            panic!()
        };
        assert_eq!(
            options.collect::<Vec<_>>(),
            vec![("blksize", "512"), ("x", "y")]
        );
    }

    #[test]
    fn each_error_code_has_its_meaning() {
        let meanings: Vec<_> = (0..10).map(|code| ErrorCode(code).meaning()).collect();
        assert_eq!(
            meanings,
            [
                "undefined error",
                "file not found",
                "access violation",
                "disk full",
                "illegal TFTP operation",
                "unknown transfer ID",
                "file already exists",
                "no such user",
                "options refused",
                "undefined error",
            ]
        );
    }

    #[test]
    fn what_is_no_packet() {
        assert_eq!(Packet::parse(b""), Err(ParseError::Truncated));
        assert_eq!(Packet::parse(b"\0\x03\0"), Err(ParseError::Truncated));
        assert_eq!(Packet::parse(b"\0\x05\0"), Err(ParseError::Truncated));
        assert_eq!(Packet::parse(b"\0\x07\0\0"), Err(ParseError::Opcode(7)));
        assert_eq!(Packet::parse(b"\0\x01name"), Err(ParseError::Request));
        assert_eq!(
            Packet::parse(b"\0\x01name\0octet"),
            Err(ParseError::Request)
        );
        assert_eq!(
            Packet::parse(b"\0\x01\xff\0octet\0"),
            Err(ParseError::Request)
        );
    }

    #[test]
    fn options_that_are_cut_off_or_not_text_are_passed_over() {
        let bytes = b"\xff\x001\0tsize\x0012\0blksize\x001468";
        let options = Options::new(bytes);
        assert_eq!(options.as_bytes(), bytes);
        assert_eq!(options.collect::<Vec<_>>(), vec![("tsize", "12")]);
    }

    #[test]
    fn option_ranges() {
        for (option, accepted) in [
            ("blksize\x007\0", false),
            ("blksize\x008\0", true),
            ("blksize\x0065464\0", true),
            ("blksize\x0065465\0", false),
            ("blksize\x00+512\0", false),
            ("blksize\0-1\0", false),
            ("blksize\0\0", false),
            ("windowsize\x000\0", false),
            ("windowsize\x0065535\0", true),
            ("windowsize\x0065536\0", false),
            ("slide\x000\0", false),
            ("slide\x001\0", true),
            ("Slide\x00128\0", true),
            ("slide\x00129\0", false),
            ("slide\x0032768\0", true),
            ("slide\x0065536\0", false),
            ("timeout\x000\0", false),
            ("timeout\x00255\0", true),
            ("timeout\x00256\0", false),
            ("tsize\x0018446744073709551615\0", true),
            ("tsize\x0018446744073709551616\0", false),
            ("msftwindow\x0031416\0", true),
            ("MSFTWindow\x0027182\0", true),
            ("msftwindow\x0064\0", false),
            ("unknown\0x\0", true),
        ] {
            let options = Options::new(option.as_bytes());
            let result = TransferOptions::from_acknowledgement(options);
            assert_eq!(result.is_ok(), accepted, "{option:?}: {result:?}");
        }
        assert!(TransferOptions::default().is_empty());
        let asked = Options::new(b"blksize\x0070000\0windowsize\x000\0slide\x0096\0");
        let granted = TransferOptions::from_request(asked);
        assert!(!granted.is_empty());
        assert_eq!(
            granted,
            TransferOptions {
                block_size: Some(65464),
                ..Default::default()
            }
        );
    }

    proptest! {
        #[test]
        fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..80), opcode in 0u8..8) {
            let mut data = data;
            if let Some(byte) = data.get_mut(0) { *byte = 0; }
            if let Some(byte) = data.get_mut(1) { *byte = opcode; }
            crate::fuzzing::fuzz_tftp(&data);
        }

        #[test]
        fn known_options_survive(
            block_size in prop::option::of(8u16..=65464),
            window_size in prop::option::of(1u16..),
            transfer_size in prop::option::of(any::<u64>()),
            timeout in prop::option::of(1u8..),
            slide in prop::option::of((0u32..16).prop_map(|bit| 1u16 << bit)),
            variable_window in prop::option::of(prop_oneof![
                Just(VariableWindow::Asked),
                Just(VariableWindow::Granted)
            ]),
        ) {
            let options = TransferOptions { block_size, window_size, transfer_size, timeout, slide, variable_window };
            let mut bytes = Vec::new();
            options.emit(&mut bytes);
            prop_assert_eq!(TransferOptions::from_request(Options::new(&bytes)), options);
            prop_assert_eq!(TransferOptions::from_acknowledgement(Options::new(&bytes)), Ok(options));
        }
    }
}
