//! `--pcap`: what goes through a card, as a pcapng file (draft-ietf-opsawg-pcapng), an interface for each port.
//!
//! Units are written as the guest sends and gets them: large ones whole, checksums that are still to be completed as they are.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use wireboot_card::{Span, Unit};

use crate::memory::Mapping;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
/// Of an interface: its name, and the unit of its times.
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
/// Times are in nanoseconds.
const NANOSECONDS: u8 = 9;
/// Of a packet: the lowest two bits tell its direction, seen from the guest.
const EPB_FLAGS: u16 = 2;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// The file, which all ports write to.
struct Output {
    path: PathBuf,
    /// None after an error.
    file: Option<BufWriter<File>>,
}

/// A port's way to the file.
#[derive(Clone)]
pub(crate) struct Capture {
    output: Arc<Mutex<Output>>,
    interface: u32,
    bytes: Vec<u8>,
}

/// Begins a file at `path`, with an interface of each of these names.
///
/// # Errors
/// The system's.
pub(crate) fn create(path: &Path, names: &[String]) -> io::Result<Vec<Capture>> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut section = Vec::new();
    section.extend(BYTE_ORDER.to_le_bytes());
    // Version 1.0, of unknown length.
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    write_block(&mut file, SECTION, &section)?;
    for name in names {
        let mut interface = Vec::new();
        // No limit to the length.
        interface.extend([LINKTYPE_ETHERNET.to_le_bytes(), [0; 2], [0; 2], [0; 2]].as_flattened());
        option(&mut interface, IF_NAME, name.as_bytes());
        option(&mut interface, IF_TSRESOL, &[NANOSECONDS]);
        option(&mut interface, 0, &[]);
        write_block(&mut file, INTERFACE, &interface)?;
    }
    file.flush()?;
    let output = Arc::new(Mutex::new(Output {
        path: path.to_owned(),
        file: Some(file),
    }));
    let capture = |(interface, _)| Capture {
        output: output.clone(),
        interface,
        bytes: Vec::new(),
    };
    Ok((0..).zip(names).map(capture).collect())
}

impl Capture {
    /// The guest has sent this.
    pub(crate) fn sent(&mut self, memory: &Mapping, unit: &Unit<'_>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(unit.head);
        self.bytes.resize(unit.len, 0);
        let rest = self.bytes.get_mut(unit.head.len()..).unwrap_or_default();
        if memory.gather(unit.spans, rest).is_ok() {
            self.record(OUTBOUND);
        }
    }

    /// The guest gets the first `len` bytes of these.
    pub(crate) fn received(&mut self, memory: &Mapping, room: &[Span], len: usize) {
        self.bytes.clear();
        self.bytes.resize(len, 0);
        if memory.gather(room, &mut self.bytes).is_ok() {
            self.record(INBOUND);
        }
    }

    /// What was recorded is to be in the file.
    pub(crate) fn flush(&self) {
        self.write(|_| Ok(()));
    }

    fn record(&self, direction: u32) {
        let now = SystemTime::now();
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let nanos = now.map_or(0, |time| time.as_nanos()) as u64;
        let len = (self.bytes.len() as u32).to_le_bytes();
        let mut block = Vec::with_capacity(self.bytes.len() + 40);
        block.extend(self.interface.to_le_bytes());
        block.extend(((nanos >> 32) as u32).to_le_bytes());
        block.extend((nanos as u32).to_le_bytes());
        block.extend([len, len].as_flattened());
        block.extend_from_slice(&self.bytes);
        pad(&mut block);
        option(&mut block, EPB_FLAGS, &direction.to_le_bytes());
        option(&mut block, 0, &[]);
        self.write(|file| write_block(file, PACKET, &block));
    }

    /// The first error ends the capture, and is told; the card goes on.
    fn write(&self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &mut output.file else { return };
        if let Err(error) = write(file) {
            eprintln!(
                "wireboot nic: the capture ends here: {}: {error}",
                output.path.display()
            );
            output.file = None;
        }
    }
}

fn write_block(file: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    // The length is there at both ends.
    let len = (body.len() as u32 + 12).to_le_bytes();
    file.write_all(&kind.to_le_bytes())?;
    file.write_all(&len)?;
    file.write_all(body)?;
    file.write_all(&len)
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    block.extend(code.to_le_bytes());
    block.extend((value.len() as u16).to_le_bytes());
    block.extend_from_slice(value);
    pad(block);
}

/// All fields are whole words.
fn pad(block: &mut Vec<u8>) {
    block.resize(block.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wires::testing::{memory, room, with_unit};
    use wireboot_capture::Packets;
    use wireboot_card::GuestMemory;

    /// The interface of each packet, and its flags, which stand in front of the options' end: 1 for inbound, 2 for outbound (section 4.3.1).
    fn ways(file: &[u8]) -> Vec<(u8, u8)> {
        let (mut rest, mut ways) = (file, Vec::new());
        while let Some((kind, behind)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(behind[..4].try_into().unwrap()) as usize;
            let (block, next) = rest.split_at(len);
            if *kind == [6, 0, 0, 0] {
                let [2, 0, 4, 0, way, 0, 0, 0, 0, 0, 0, 0] = block[len - 16..len - 4] else {
                    panic!("{block:?}");
                };
                ways.push((block[8], way));
            }
            rest = next;
        }
        ways
    }

    #[test]
    fn both_ways_of_each_port_are_read_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card.pcapng");
        let names = ["/run/a".to_owned(), "/run/long".to_owned()];
        let mut captures = create(&path, &names).unwrap();
        let memory = memory();
        let frame = |n: u8, len| vec![n; len];
        let before = SystemTime::now();
        for (port, capture) in captures.iter_mut().enumerate() {
            let n = port as u8;
            with_unit(&memory, &frame(n, 61 + port), 20, |unit| {
                capture.sent(&memory, unit);
            });
            memory.write(0x8000, &frame(n + 10, 1500)).unwrap();
            capture.received(&memory, &room(1518), 1500 - port);
        }
        captures[0].flush();
        drop(captures);
        let text = std::fs::read(&path).unwrap();
        let packets = Packets::new(&text[..]).unwrap();
        let got: Vec<_> = packets.map(Result::unwrap).collect();
        let bytes: Vec<_> = got.iter().map(|packet| packet.data.clone()).collect();
        let wanted = [frame(0, 61), frame(10, 1500), frame(1, 62), frame(11, 1499)];
        assert!(bytes == wanted);
        let since = before.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(ways(&text), [(0, 2), (0, 1), (1, 2), (1, 1)]);
        for packet in got {
            let late = packet.time - since.as_secs_f64();
            assert!((-0.1..60.0).contains(&late), "{late}");
        }
    }
}
