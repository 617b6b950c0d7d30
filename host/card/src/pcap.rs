//! `--pcap`: what goes through a card, as a pcapng file (draft-ietf-opsawg-pcapng), an interface for each port.
//!
//! Units are written as the guest sends and gets them: large ones whole, checksums that are still to be completed as they are.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread::Builder;
use std::time::{Duration, SystemTime};

use wireboot_card::{Span, Unit};

use crate::memory::Mapping;
use crate::say::say;

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

/// Bytes of packets that are given to the file's thread together, at the least.
const BATCH: usize = 64 << 10;
/// Batches that may wait for the file.
const WAITING: usize = 256;
/// How long the end of the file is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// A port's way to the file. It waits for nothing: what the file cannot take in time is left out.
#[derive(Clone)]
pub(crate) struct Capture {
    file: SyncSender<Batch>,
    interface: u32,
    packet: Vec<u8>,
    batch: Batch,
    left_out: Arc<AtomicU64>,
}

/// Packets as they are to stand in the file.
#[derive(Clone, Default)]
struct Batch {
    blocks: Vec<u8>,
    packets: u64,
}

/// The thread that writes the file.
pub(crate) struct Writer(Receiver<()>);

/// Begins a file, which is at `path`, with an interface of each of these names.
///
/// # Errors
/// Those of the kernel's calls.
pub(crate) fn start(
    mut file: File,
    path: &Path,
    names: &[String],
) -> io::Result<(Writer, Vec<Capture>)> {
    let mut head = Vec::new();
    let mut section = Vec::new();
    section.extend(BYTE_ORDER.to_le_bytes());
    // Version 1.0, of unknown length.
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    add_block(&mut head, SECTION, &section);
    for name in names {
        let mut interface = Vec::new();
        // No limit to the length.
        interface.extend([LINKTYPE_ETHERNET.to_le_bytes(), [0; 2], [0; 2], [0; 2]].as_flattened());
        option(&mut interface, IF_NAME, name.as_bytes());
        option(&mut interface, IF_TSRESOL, &[NANOSECONDS]);
        option(&mut interface, 0, &[]);
        add_block(&mut head, INTERFACE, &interface);
    }
    file.write_all(&head)?;
    let (sender, batches) = sync_channel(WAITING);
    let left_out = Arc::new(AtomicU64::new(0));
    let capture = |(interface, _)| Capture {
        file: sender.clone(),
        interface,
        packet: Vec::new(),
        batch: Batch::default(),
        left_out: left_out.clone(),
    };
    let captures = (0..).zip(names).map(capture).collect();
    let (ended, end) = channel();
    let path = path.to_owned();
    Builder::new().name("capture".to_owned()).spawn(move || {
        write(file, &path, &batches);
        let left_out = left_out.load(Ordering::Relaxed);
        if left_out != 0 {
            say!(
                "wireboot nic: {left_out} packets are not in {}, which took them too slowly",
                path.display()
            );
        }
        // Nobody waits where the card has lost its patience.
        let _ = ended.send(());
    })?;
    Ok((Writer(end), captures))
}

/// Until no port is left. The first error ends the capture, and is told; the card goes on.
fn write(mut file: File, path: &Path, batches: &Receiver<Batch>) {
    for batch in batches {
        if let Err(error) = file.write_all(&batch.blocks) {
            let path = path.display();
            say!("wireboot nic: the capture ends here: {path}: {error}");
            return;
        }
    }
}

impl Writer {
    /// Waits until all is in the file, when no port is left.
    pub(crate) fn end(self) {
        let _ = self.0.recv_timeout(PATIENCE);
    }
}

impl Capture {
    /// The guest has sent this.
    pub(crate) fn sent(&mut self, memory: &Mapping, unit: &Unit<'_>) {
        self.packet.clear();
        self.packet.extend_from_slice(unit.head);
        self.packet.resize(unit.len, 0);
        let rest = self.packet.get_mut(unit.head.len()..).unwrap_or_default();
        if memory.gather(unit.spans, rest).is_ok() {
            self.record(OUTBOUND);
        }
    }

    /// The guest gets the first `len` bytes of these.
    pub(crate) fn received(&mut self, memory: &Mapping, room: &[Span], len: usize) {
        self.packet.clear();
        self.packet.resize(len, 0);
        if memory.gather(room, &mut self.packet).is_ok() {
            self.record(INBOUND);
        }
    }

    /// What was recorded is to be in the file.
    pub(crate) fn flush(&mut self) {
        if self.batch.packets == 0 {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        if let Err(TrySendError::Full(batch)) = self.file.try_send(batch) {
            self.left_out.fetch_add(batch.packets, Ordering::Relaxed);
        }
    }

    fn record(&mut self, direction: u32) {
        let now = SystemTime::now();
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let nanos = now.map_or(0, |time| time.as_nanos()) as u64;
        let len = (self.packet.len() as u32).to_le_bytes();
        let mut block = Vec::with_capacity(self.packet.len() + 40);
        block.extend(self.interface.to_le_bytes());
        block.extend(((nanos >> 32) as u32).to_le_bytes());
        block.extend((nanos as u32).to_le_bytes());
        block.extend([len, len].as_flattened());
        block.extend_from_slice(&self.packet);
        pad(&mut block);
        option(&mut block, EPB_FLAGS, &direction.to_le_bytes());
        option(&mut block, 0, &[]);
        add_block(&mut self.batch.blocks, PACKET, &block);
        self.batch.packets += 1;
        if self.batch.blocks.len() >= BATCH {
            self.flush();
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.flush();
    }
}

fn add_block(to: &mut Vec<u8>, kind: u32, body: &[u8]) {
    // The length is there at both ends.
    let len = (body.len() as u32 + 12).to_le_bytes();
    to.extend(kind.to_le_bytes());
    to.extend(len);
    to.extend_from_slice(body);
    to.extend(len);
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
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::fs::OpenOptions;
    use std::io::{BufReader, Read};
    use std::thread::spawn;
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
        let file = File::create(&path).unwrap();
        let (writer, mut captures) = start(file, &path, &names).unwrap();
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
        writer.end();
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

    /// A pipe that nobody reads holds up no machine, and what it has not taken is counted.
    #[test]
    fn who_reads_slowly_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let read = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let file = File::create(&path).unwrap();
        let (writer, mut captures) = start(file, &path, &["card".to_owned()]).unwrap();
        let memory = memory();
        let count = (WAITING as u64 + 10) * (BATCH as u64 / 1500 + 1);
        for _ in 0..count {
            captures[0].received(&memory, &room(1518), 1500);
        }
        let left_out = captures[0].left_out.clone();
        assert!(left_out.load(Ordering::Relaxed) > 0);
        drop(captures);
        // From here on all is read.
        let reader = spawn(move || {
            let mut read = BufReader::new(read);
            let mut packets = 0;
            loop {
                let mut start = [0; 8];
                read.read_exact(&mut start).unwrap();
                let [kind, _, _, _, l0, l1, l2, l3] = start;
                let len = u32::from_le_bytes([l0, l1, l2, l3]);
                read.read_exact(&mut vec![0; len as usize - 8]).unwrap();
                packets += u64::from(u32::from(kind) == PACKET);
                if packets + left_out.load(Ordering::Relaxed) == count {
                    return;
                }
            }
        });
        reader.join().unwrap();
        writer.end();
    }
}
