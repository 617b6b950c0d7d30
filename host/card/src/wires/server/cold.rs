//! Files that the kernel has to fetch first. A thread waits for them, and the card's own never does.
//!
//! ```text
//!   card's thread: preadv2(RWF_NOWAIT) ── "not yet" ──> asks ──────> reader: waits for the disk
//!                  tries again         <──────────── its bytes ────
//! ```
//!
//! What is read lies in the kernel's cache then, so what follows comes from there. Where there is no cache that can be asked (FUSE, NFS), the
//! bytes that the reader hands over are taken.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};
use wireboot_server::directory::{Content, Lying};

/// Bytes that are read at once.
const CHUNK: u64 = 1 << 20;
/// Bytes behind these that the disk is asked for, soon to be sent, and how many in one call: Linux takes a longer one for as much as it reads
/// ahead at most, which is this much by default.
const AHEAD: u64 = 4 << 20;
const AHEAD_STEP: u64 = 128 << 10;
/// Chunks that are asked for at a time, and chunks that are kept.
const MOST: usize = 16;
/// File systems whose files lie in memory alone (statfs(2)).
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// How files are read.
pub(super) trait Files: Send + Sync {
    /// Has `read` read with these flags what is there without waiting.
    ///
    /// # Errors
    /// Those of `read`, and [`ErrorKind::WouldBlock`].
    fn now(
        &self,
        file: BorrowedFd<'_>,
        read: &mut dyn FnMut(ReadWriteFlags) -> io::Result<usize>,
    ) -> io::Result<usize>;

    /// Fills `bytes` with those from `offset` on, however long that takes.
    ///
    /// # Errors
    /// The file's.
    fn wait_for(&self, content: &Content, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Those of this host.
pub(super) struct HostFiles;

impl Files for HostFiles {
    fn now(
        &self,
        file: BorrowedFd<'_>,
        read: &mut dyn FnMut(ReadWriteFlags) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match read(ReadWriteFlags::NOWAIT) {
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                let kind = rustix::fs::fstatfs(file)?.f_type as u64;
                if [TMPFS, RAMFS].contains(&kind) {
                    read(ReadWriteFlags::empty())
                } else {
                    Err(ErrorKind::WouldBlock.into())
                }
            }
            result => result,
        }
    }

    fn wait_for(&self, content: &Content, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        content.read_exact_at(&mut [IoSliceMut::new(bytes)], offset)?;
        let behind = offset + bytes.len() as u64;
        let until = behind.saturating_add(AHEAD).min(content.len());
        for at in (behind..until).step_by(AHEAD_STEP as usize) {
            content.read_ahead(at, AHEAD_STEP);
        }
        Ok(())
    }
}

/// A part of a file.
struct Part {
    content: Content,
    offset: u64,
    len: usize,
}

impl Part {
    fn holds(&self, content: &Content, offset: u64, len: usize) -> bool {
        let at = offset.checked_sub(self.offset);
        let end = at.map(|at| at.saturating_add(len as u64));
        end.is_some_and(|end| end <= self.len as u64) && self.content.is_same(content)
    }
}

/// A part that was read, or why it was not.
struct Chunk {
    part: Part,
    bytes: io::Result<Vec<u8>>,
}

/// What is asked of the thread.
struct Reader {
    wanted: SyncSender<Part>,
    read: Receiver<Chunk>,
}

/// Why bytes of a file are not there.
pub(super) enum NotThere {
    /// They are being read.
    Yet,
    Ever(io::Error),
}

/// The files of a wire.
pub(super) struct ColdFiles {
    files: Arc<dyn Files>,
    /// Readable when something has been read.
    event: Arc<OwnedFd>,
    /// From when it was first needed.
    reader: Option<Reader>,
    asked: Vec<Part>,
    /// Chunks that have come whose event may still be to come.
    unheard: u64,
    chunks: VecDeque<Chunk>,
}

impl ColdFiles {
    /// # Errors
    /// Those of the kernel's calls.
    pub(super) fn new(files: Arc<dyn Files>) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            files,
            event: Arc::new(event),
            reader: None,
            asked: Vec::new(),
            unheard: 0,
            chunks: VecDeque::new(),
        })
    }

    /// Readable when [`Self::collect`] has something.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Nobody wants any more what was read, or is being read.
    pub(super) fn forget(&mut self) {
        self.chunks.clear();
    }

    /// Takes what has been read. Whether there was something.
    pub(super) fn collect(&mut self) -> bool {
        let Some(reader) = &self.reader else {
            return false;
        };
        if self.asked.is_empty() && self.unheard == 0 {
            return false;
        }
        // First the event: what comes from here on sets it again. A chunk is there before its event.
        let mut rings = [0; 8];
        let heard = match rustix::io::read(&*self.event, &mut rings) {
            Ok(_) => u64::from_ne_bytes(rings),
            Err(_) => 0,
        };
        let mut come = 0;
        for chunk in reader.read.try_iter() {
            come += 1;
            let part = &chunk.part;
            let is_it = |asked: &Part| asked.holds(&part.content, part.offset, part.len);
            if let Some(n) = self.asked.iter().position(is_it) {
                self.asked.swap_remove(n);
            }
            if self.chunks.len() >= MOST {
                self.chunks.pop_front();
            }
            self.chunks.push_back(chunk);
        }
        self.unheard = (self.unheard + come).saturating_sub(heard);
        come > 0
    }

    /// Has `read` take `len` bytes of a file: by a call of the kernel with these flags, or from where they lie. It may have to begin anew. With
    /// `looks`, as [`Content::read_where_it_lies`].
    ///
    /// # Errors
    /// [`NotThere`].
    pub(super) fn read(
        &mut self,
        content: &Content,
        offset: u64,
        (len, looks): (usize, bool),
        mut read: impl FnMut(Lying<'_>, ReadWriteFlags) -> io::Result<usize>,
    ) -> Result<(), NotThere> {
        let files = self.files.clone();
        let now = content.read_where_it_lies(offset, len, looks, |lying| match lying {
            Lying::File(file) => {
                let taken = files.now(file, &mut |flags| read(Lying::File(file), flags))?;
                // The rest is not there yet, or not any more: who waits for it is told.
                (taken == len)
                    .then_some(taken)
                    .ok_or(ErrorKind::WouldBlock.into())
            }
            Lying::Bytes(_) => read(lying, ReadWriteFlags::empty()),
        });
        match now {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            now => return now.map_err(NotThere::Ever),
        }
        let is_it = |chunk: &Chunk| chunk.part.holds(content, offset, len);
        let Some(n) = self.chunks.iter().position(is_it) else {
            self.ask(content, offset).map_err(NotThere::Ever)?;
            return Err(NotThere::Yet);
        };
        match self
            .chunks
            .get(n)
            .map(|chunk| (chunk.part.offset, &chunk.bytes))
        {
            Some((begin, Ok(bytes))) => {
                let at = (offset - begin) as usize;
                let bytes = bytes.get(at..at + len).unwrap_or_default();
                let taken = read(Lying::Bytes(bytes), ReadWriteFlags::empty());
                taken.map(drop).map_err(NotThere::Ever)
            }
            _ => {
                let chunk = self.chunks.remove(n);
                let error = chunk.and_then(|chunk| chunk.bytes.err());
                Err(NotThere::Ever(
                    error.unwrap_or(ErrorKind::UnexpectedEof.into()),
                ))
            }
        }
    }

    /// Has the thread read a chunk from `offset` on, unless it does, or has enough to do: then it is asked when it is done.
    fn ask(&mut self, content: &Content, offset: u64) -> io::Result<()> {
        let len = content.len().saturating_sub(offset).min(CHUNK) as usize;
        let part = || Part {
            content: content.clone(),
            offset,
            len,
        };
        let is_asked = |asked: &Part| asked.offset == offset && asked.content.is_same(content);
        if self.asked.len() >= MOST || self.asked.iter().any(is_asked) {
            return Ok(());
        }
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::start(self.files.clone(), self.event.clone())?,
        };
        // There is room for all that are asked for; the thread ends with its reader only.
        let told = reader.wanted.try_send(part());
        self.reader = Some(reader);
        told.map_err(io::Error::other)?;
        self.asked.push(part());
        Ok(())
    }
}

impl Reader {
    fn start(files: Arc<dyn Files>, event: Arc<OwnedFd>) -> io::Result<Self> {
        let (wanted, wants) = sync_channel::<Part>(MOST);
        let (sender, read) = sync_channel(MOST);
        let body = move || {
            for part in wants {
                let mut bytes = vec![0; part.len];
                let result = files.wait_for(&part.content, part.offset, &mut bytes);
                let bytes = result.map(|()| bytes);
                if sender.send(Chunk { part, bytes }).is_err() {
                    return;
                }
                // One that is full rings already.
                let _ = rustix::io::write(&*event, &1u64.to_ne_bytes());
            }
        };
        Builder::new().name("reader".to_owned()).spawn(body)?;
        Ok(Self { wanted, read })
    }
}
