//! A capture: writes what goes through any NIC to a pcap file (the classic format, microseconds).
//!
//! Coalesced units are written as they are, and checksums that the device completes are still partial, as in a
//! capture on a host with offloads.

use std::boxed::Box;
use std::io::{self, Write};

use crate::Nic;
use crate::middleware::{Direction, Hook, Hooked};

const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const VERSION: [u16; 2] = [2, 4];
const SNAPLEN: u32 = 0x4_0000;
const LINKTYPE_ETHERNET: u32 = 1;

/// The hook behind [`capture`].
pub struct Capture<W> {
    writer: W,
    now: Box<dyn Fn() -> i64>,
    result: io::Result<()>,
}

/// Writes each frame of `nic` to `writer`, stamped by `now` (microseconds since the epoch).
///
/// # Errors
/// When the file header cannot be written. Later errors end the capture, not the NIC; see [`Capture::finish`].
pub fn capture<N: Nic, W: Write>(
    nic: N,
    mut writer: W,
    now: impl Fn() -> i64 + 'static,
) -> io::Result<Hooked<N, Capture<W>>> {
    writer.write_all(&MAGIC_MICROS.to_le_bytes())?;
    for part in VERSION {
        writer.write_all(&part.to_le_bytes())?;
    }
    // Time zone and accuracy are 0 by convention.
    for field in [0, 0, SNAPLEN, LINKTYPE_ETHERNET] {
        writer.write_all(&field.to_le_bytes())?;
    }
    let capture = Capture {
        writer,
        now: Box::new(now),
        result: Ok(()),
    };
    Ok(Hooked::new(nic, capture))
}

impl<W: Write> Capture<W> {
    /// Flushes the writer, and returns the error that ended the capture, once, if there was one.
    pub fn finish(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.result, Ok(()))?;
        self.writer.flush()
    }

    fn record(&mut self, frame: &[u8]) -> io::Result<()> {
        let now = (self.now)();
        let len = frame.len() as u32;
        let seconds = now.div_euclid(1_000_000) as u32;
        let micros = now.rem_euclid(1_000_000) as u32;
        for field in [seconds, micros, len.min(SNAPLEN), len] {
            self.writer.write_all(&field.to_le_bytes())?;
        }
        let kept = frame.len().min(SNAPLEN as usize);
        self.writer.write_all(&frame[..kept])
    }
}

impl<W: Write> Hook for Capture<W> {
    fn frame(&mut self, _direction: Direction, frame: &mut [u8]) {
        if self.result.is_ok() {
            self.result = self.record(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{LinkConfig, NicConfig, link};
    use crate::{Offload, Receive, Transmit};
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::vec::Vec;

    /// A file that the test can look into.
    #[derive(Clone, Default)]
    struct File(Rc<RefCell<Vec<u8>>>);

    impl Write for File {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn both_directions_are_written() {
        let (a, mut b) = link(LinkConfig::default(), LinkConfig::default(), 1);
        let clock = a.clock();
        let (file, stamp) = (File::default(), clock.clone());
        let mut a = capture(a, file.clone(), move || stamp.now()).unwrap();
        a.with(|nic, _| {
            nic.configure(NicConfig {
                part_len: Some(128),
                ..NicConfig::new([2; 6])
            });
        });
        clock.set(2_000_003);
        let (_, tx) = a.split();
        tx.send(60, Offload::None, &mut |frame| frame.fill(1))
            .unwrap();
        tx.flush().unwrap();
        let (_, tx) = b.split();
        tx.send(300, Offload::None, &mut |frame| frame.fill(2))
            .unwrap();
        tx.flush().unwrap();
        clock.set(3_000_000);
        let sink = |frame: crate::Frame<'_>| assert_eq!(frame.parts.len(), 3);
        assert_eq!(a.split().0.burst(8, sink), Ok(1));
        a.with(|_, capture| capture.finish()).unwrap();

        let bytes = file.0.borrow().clone();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4)), (0xa1b2_c3d4, 0x0004_0002));
        assert_eq!((word(16), word(20)), (0x4_0000, 1));
        assert_eq!([word(24), word(28), word(32), word(36)], [2, 3, 60, 60]);
        assert_eq!(bytes[40..100], [1; 60]);
        assert_eq!(
            [word(100), word(104), word(108), word(112)],
            [3, 0, 300, 300]
        );
        assert_eq!(bytes[116..], [2; 300]);
    }

    /// A disk with room for so many bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.0.checked_sub(bytes.len());
            self.0 = left.ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_ends_the_capture_and_not_the_nic() {
        let (a, _b) = link(LinkConfig::default(), LinkConfig::default(), 1);
        assert!(capture(a, Disk(20), || 0).is_err());
        let (a, _b) = link(LinkConfig::default(), LinkConfig::default(), 1);
        let mut a = capture(a, Disk(24 + 16 + 60), || 0).unwrap();
        for _ in 0..3 {
            let (_, tx) = a.split();
            tx.send(60, Offload::None, &mut |frame| frame.fill(1))
                .unwrap();
            tx.flush().unwrap();
        }
        let mut finish = || a.with(|_, capture| capture.finish());
        assert_eq!(finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        finish().unwrap();
    }
}
