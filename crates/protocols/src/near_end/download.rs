//! A file of the engine's for the near end, through a window of memory.

use super::{DownloadState, Progress};
use alloc::string::String;
use wireboot_fetch::FetchError;
use wireboot_fetch::memory_window::{PIECES, WindowReader};
use wireboot_fetch::tftp::TftpError;
use wireboot_net::Memory;
use wireboot_ring::{Block, PrefixReader, PrefixWriter};

/// Memory beyond what has come of a file whose size nobody has told.
const AHEAD: u64 = 4 << 20;
/// The same where it was told, as it need not be true: more than a block.
const BEYOND: u64 = 64 << 10;

/// Both ends of a piece of memory.
pub type Piece<B> = (PrefixWriter<B>, PrefixReader<B>);

/// What has come of a file, and has not been released.
pub struct Download<B> {
    window: WindowReader<B>,
    /// Bytes that it may have in memory, and of a piece of that.
    most: u64,
    piece: u64,
    announced: Option<u64>,
    /// The server has answered.
    coming: bool,
    /// There was no memory for another piece.
    short: bool,
    /// What has become of it, once that is known.
    end: Option<DownloadState>,
    /// The engine knows no more of it.
    over: bool,
}

impl<B: Block + 'static> Download<B> {
    /// One that was asked for, and may have `most` bytes in memory.
    #[must_use]
    pub fn new(most: u64) -> Self {
        let (_, window) = WindowReader::new(0);
        Self {
            window,
            most,
            piece: most / PIECES as u64,
            announced: None,
            coming: false,
            short: false,
            end: None,
            over: false,
        }
    }

    /// The server has told the file's size, or none.
    pub fn tell(&mut self, size: Option<u64>) {
        match (self.announced, size) {
            // So servers say that do not know it.
            (Some(0), None) => {}
            (Some(announced), size) if size != Some(announced) => self.changed(),
            _ => self.announced = size,
        }
    }

    /// A transfer begins: the first, or one in the place of another that the server gave up. `allocate` makes pieces of at least so many
    /// bytes. `None` where there is no memory, or no use for any.
    pub fn begin(&mut self, allocate: impl FnMut(usize) -> Option<Piece<B>>) -> Option<Memory> {
        let window = self.window.renew(usize::MAX);
        let first = !self.coming;
        (self.coming, self.short) = (true, false);
        self.give(allocate);
        if first && self.short && self.window.end() < AHEAD {
            self.end = Some(DownloadState::ForTheWire);
        }
        self.end.is_none().then(|| Memory::new(window))
    }

    /// Gives it memory, as far as there may be.
    pub fn give(&mut self, mut allocate: impl FnMut(usize) -> Option<Piece<B>>) {
        if self.short || self.end.is_some() || !self.coming {
            return;
        }
        let ready = self.ready();
        let wanted = match self.announced.filter(|size| *size > 0) {
            Some(size) => size.max(ready + BEYOND),
            None => ready + AHEAD,
        };
        let most = self.window.released() + self.most;
        while self.window.end() < wanted && self.window.pieces() < PIECES {
            let len = (wanted - self.window.end()).max(BEYOND).min(self.piece);
            if self.window.end() + len > most {
                return;
            }
            let Some(piece) = allocate(len as usize) else {
                // Asked for again when some has been read.
                self.short = true;
                return;
            };
            self.window.give(piece);
        }
    }

    /// The transfer is over, with a file of so many bytes or an error.
    pub fn finish(&mut self, result: Result<u64, &FetchError>) {
        self.over = true;
        // What was not filled is of no more use.
        let _ = self.window.renew(0);
        let (len, end) = match result {
            Ok(len) => (Some(len), DownloadState::Whole),
            Err(FetchError::Tftp { error, .. }) => match &**error {
                // No memory was asked for, as the size cannot be, or the server cannot be reached from here.
                TftpError::WrongSize { .. } | TftpError::Net(_) if !self.coming => {
                    (None, DownloadState::ForTheWire)
                }
                // The reader was told the size, and sees it.
                TftpError::WrongSize { received, .. } => (Some(*received), DownloadState::Whole),
                TftpError::Server { code, text } => {
                    let (code, text) = (*code, text.clone());
                    (None, DownloadState::Refused { code, text })
                }
                _ => (None, DownloadState::Silent),
            },
            Err(_) => (None, DownloadState::Silent),
        };
        if len.is_some_and(|len| len != self.ready()) {
            self.changed();
        }
        self.end.get_or_insert(end);
    }

    /// The engine is lost.
    pub fn lose(&mut self) {
        self.over = true;
        self.end.get_or_insert(DownloadState::Silent);
    }

    /// Whether the engine knows no more of it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether its first transfer has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.coming
    }

    /// How far it is.
    pub fn progress(&mut self) -> Progress {
        let state = match &self.end {
            Some(end) => end.clone(),
            None if self.coming => DownloadState::Coming,
            None => DownloadState::Asked,
        };
        Progress {
            announced: self.announced,
            ready: self.ready(),
            state,
        }
    }

    /// Copies bytes of the file from `at` on, as many as have come without a gap and fit, and returns how many.
    pub fn read(&self, at: u64, to: &mut [u8]) -> usize {
        let at = at.checked_sub(self.window.released());
        let at = at.and_then(|at| usize::try_from(at).ok());
        at.map_or(0, |at| self.window.read(at, to))
    }

    /// The bytes before `at` are of no more use. Returns how many are released by that.
    pub fn release(&mut self, at: u64) -> u64 {
        let before = self.window.released();
        let count = at.saturating_sub(before);
        if count > 0 {
            self.window.release(usize::try_from(count).unwrap_or(0));
            self.short = false;
        }
        self.window.released() - before
    }

    fn ready(&mut self) -> u64 {
        self.window.released() + self.window.ready() as u64
    }

    fn changed(&mut self) {
        self.end.get_or_insert(DownloadState::Refused {
            code: 0,
            text: String::from("the file has changed on the server"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;
    use wireboot_fetch::url::Url;
    use wireboot_net::NetError;
    use wireboot_ring::{HeapBlock, prefix};

    fn piece(bytes: usize) -> Option<Piece<HeapBlock>> {
        Some(prefix(HeapBlock::in_pieces(&vec![0; bytes], 999)))
    }

    fn refused(one: &mut Download<HeapBlock>) -> bool {
        matches!(one.progress().state, DownloadState::Refused { .. })
    }

    /// No part of one file behind a part of another, and no end of a file that has not come.
    #[test]
    fn a_file_that_changes_or_is_not_there_is_refused() {
        let mut one = Download::new(1 << 20);
        one.tell(Some(10));
        drop(one.begin(piece).unwrap());
        one.tell(Some(10));
        assert!(!refused(&mut one));
        one.tell(Some(11));
        assert!(refused(&mut one));
        let mut one = Download::new(1 << 20);
        drop(one.begin(piece).unwrap());
        one.finish(Ok(100));
        assert!(refused(&mut one));
        // An empty file is one.
        let mut one = Download::new(1 << 20);
        drop(one.begin(piece).unwrap());
        one.finish(Ok(0));
        assert_eq!(one.progress().state, DownloadState::Whole);
    }

    /// A window of the largest size has room.
    #[test]
    fn a_size_of_nothing_is_no_limit() {
        let mut one = Download::new(64 << 20);
        one.tell(Some(0));
        let mut given = 0;
        let allocate = |bytes| {
            given += bytes as u64;
            piece(bytes)
        };
        drop(one.begin(allocate).unwrap());
        assert!(given >= AHEAD, "{given}");
        one.tell(None);
        assert!(!refused(&mut one));
    }

    #[test]
    fn a_server_that_the_engine_has_no_way_to_is_asked_by_the_loader() {
        let error = |error| FetchError::Tftp {
            url: Url::parse("tftp://10.9.9.9/file").unwrap(),
            servers: vec![],
            error: Box::new(error),
        };
        let unreachable = error(TftpError::Net(NetError::Unreachable));
        let mut one = Download::<HeapBlock>::new(1 << 20);
        one.finish(Err(&unreachable));
        assert_eq!(one.progress().state, DownloadState::ForTheWire);
        // In the middle there is no way to the server any more.
        let mut one = Download::new(1 << 20);
        drop(one.begin(piece).unwrap());
        one.finish(Err(&unreachable));
        assert_eq!(one.progress().state, DownloadState::Silent);
        let mut one = Download::<HeapBlock>::new(1 << 20);
        one.finish(Err(&error(TftpError::Stalled { received: 0 })));
        assert_eq!(one.progress().state, DownloadState::Silent);
    }

    #[test]
    fn without_memory_the_loader_reads_it_itself() {
        let mut one = Download::<HeapBlock>::new(1 << 20);
        one.tell(Some(10));
        assert!(one.begin(|_| None).is_none());
        assert_eq!(one.progress().state, DownloadState::ForTheWire);
    }
}
