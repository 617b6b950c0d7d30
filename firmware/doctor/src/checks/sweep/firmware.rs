//! By the firmware's TFTP.

use super::{BOOT_FILE_ROOM, Source};
use crate::error::{Error, refused};
use alloc::format;
use alloc::string::String;
use wireboot_platform::claim::pci::Candidate;
use wireboot_platform::firmware_net::{Mtftp, Station, Transferred, Wanted};
use wireboot_platform::memory::{self, DownloadBuffer};
use wireboot_report::sweep::Cell;
use wireboot_wire::text;
use wireboot_wire::tftp::{DEFAULT_BLOCK_SIZE, Packet, TransferOptions};

/// The firmware's protocol on a card.
pub(super) struct FirmwareTransfers<'s> {
    mtftp: Mtftp,
    memory: DownloadBuffer,
    source: &'s Source,
}

impl<'s> FirmwareTransfers<'s> {
    pub(super) fn open(
        card: &Candidate,
        station: Station,
        source: &'s Source,
    ) -> Result<Self, Error> {
        let mtftp = Mtftp::open(card, station);
        let memory = memory::download_buffer(source.room);
        // A small machine has no such piece.
        let memory = memory.or_else(|_| {
            log::warn!("no {} MiB in one piece for the file", source.room >> 20);
            memory::download_buffer(BOOT_FILE_ROOM)
        });
        let (memory, _) = memory.map_err(refused("memory for the file"))?;
        Ok(Self {
            mtftp: mtftp.map_err(refused("TFTP on this interface"))?,
            memory,
            source,
        })
    }
}

impl super::Transfers for FirmwareTransfers<'_> {
    fn transfer(&mut self, cell: &mut Cell, most: u64, goes_on: &mut dyn FnMut() -> bool) {
        let clock = self.source.clock;
        let wanted = Wanted {
            server: self.source.server,
            file: &self.source.file,
            block_bytes: u16::try_from(cell.block_bytes).unwrap_or(u16::MAX),
            window: u16::try_from(cell.window.unwrap_or(1)).unwrap_or(u16::MAX),
        };
        let begin = clock.micros();
        let goes_on = || clock.micros() - begin < most && goes_on();
        let ended = self.mtftp.read(wanted, self.memory.rest_mut(0), goes_on);
        let micros = clock.micros() - begin;
        match ended {
            Ok(transferred) => tell(cell, &transferred, micros),
            Err(error) => cell.failure = Some(format!("{:?}", error.status())),
        }
    }
}

/// Fills in what became of a transfer in so many microseconds.
fn tell(cell: &mut Cell, transferred: &Transferred, micros: u64) {
    cell.retransmitted = Some(transferred.timeouts.into());
    let granted = granted(&transferred.answer);
    match &transferred.bytes {
        Ok(bytes) => {
            let (block, window) = granted.unwrap_or((DEFAULT_BLOCK_SIZE, 1));
            cell.granted_block_bytes = Some(block.into());
            cell.granted_window = Some(window.into());
            cell.bytes = *bytes;
            cell.seconds = micros as f64 / 1e6;
        }
        Err(error) => {
            cell.granted_block_bytes = granted.map(|(block, _)| block.into());
            cell.granted_window = granted.map(|(_, window)| window.into());
            cell.failure = Some(failure(error.status(), &transferred.answer));
        }
    }
}

/// What an acknowledgement of options grants: bytes of a block, blocks of a window. `None` where it is none.
fn granted(answer: &[u8]) -> Option<(u16, u16)> {
    let Ok(Packet::Oack(options)) = Packet::parse(answer) else {
        return None;
    };
    let granted = TransferOptions::from_acknowledgement(options).ok()?;
    Some((
        granted.block_size.unwrap_or(DEFAULT_BLOCK_SIZE),
        granted.window_size.unwrap_or(1),
    ))
}

/// The firmware's status, with the server's words where it has refused.
fn failure(status: wireboot_platform::Status, answer: &[u8]) -> String {
    let words = match Packet::parse(answer) {
        Ok(Packet::Error { code, text }) => match text::shown(text) {
            text if text.is_empty() => format!(": {}", code.meaning()),
            text => format!(": {text}"),
        },
        _ => String::new(),
    };
    format!("{status:?}{words}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use wireboot_platform::Status;

    fn of(bytes: Result<u64, Status>, answer: &[u8]) -> Cell {
        let mut cell = Cell::default();
        let transferred = Transferred {
            bytes: bytes.map_err(Into::into),
            answer: Vec::from(answer),
            timeouts: 2,
        };
        tell(&mut cell, &transferred, 1_500_000);
        cell
    }

    #[test]
    fn what_the_server_grants_is_told() {
        let cell = of(Ok(9), b"\0\x06blksize\x001448\0windowsize\x0064\0");
        assert_eq!(cell.granted_block_bytes, Some(1448));
        assert_eq!(cell.granted_window, Some(64));
        assert_eq!((cell.bytes, cell.seconds), (9, 1.5));
        assert_eq!((cell.retransmitted, cell.failure), (Some(2), None));
        // dnsmasq knows no windows; the oldest servers know no options.
        let cell = of(Ok(9), b"\0\x06blksize\x001448\0");
        assert_eq!(cell.granted_window, Some(1));
        let cell = of(Ok(9), b"");
        let granted = (cell.granted_block_bytes, cell.granted_window);
        assert_eq!(granted, (Some(512), Some(1)));
    }

    #[test]
    fn a_refusal_is_in_the_servers_words() {
        let cell = of(Err(Status::TFTP_ERROR), b"\0\x05\0\x01no such file\0");
        let failure = cell.failure.unwrap();
        assert_eq!(failure, "TFTP_ERROR: no such file");
        assert_eq!(cell.granted_window, None);
        let cell = of(Err(Status::TIMEOUT), b"");
        assert_eq!(cell.failure.unwrap(), "TIMEOUT");
        assert_eq!(cell.seconds, 0.0);
    }
}
