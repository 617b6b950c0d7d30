//! The guest's memory, mapped from the files that the monitor hands over.
//!
//! All reads and writes of guest memory are here, and so is most `unsafe` of this crate. Guest and card run at the same time, so there is never a
//! Rust reference to guest memory: only raw pointers, volatile accesses and the kernel's copies.

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use libc::HUGETLBFS_MAGIC;
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs};
use rustix::io::ReadWriteFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use wireboot_card::{GuestMemory, Span, Unmapped};

/// Spans that go to the kernel in one call.
pub(crate) const MAX_SPANS: usize = 64;

/// Bytes of a guest's memory at most, counted from the beginnings of its files, where mappings begin. Sixteen guests with as much, and with as
/// much again while a new table takes the place of the old one, have half of the addresses that a process has (2^47 bytes).
const MOST: u64 = 2 << 40;

/// Where a part of the guest's memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The guest physical address of its first byte.
    pub guest: u64,
    /// Its size in bytes.
    pub len: u64,
    /// Its first byte in the file.
    pub offset: u64,
}

/// Why memory cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    #[error("a part of guest memory of no length, or beyond all addresses")]
    Length,
    #[error(
        "more guest memory than the 2 TiB that a card maps, which count from the beginnings of its files"
    )]
    TooMuch,
    #[error("two parts of guest memory at the same addresses")]
    Overlap,
    #[error("a file of guest memory that is shorter than the memory")]
    FileTooShort,
    #[error("mapping guest memory: {0}")]
    Kernel(#[from] rustix::io::Errno),
}

/// A part of guest memory, with the mapping of its file.
#[derive(Debug)]
struct Region {
    guest: u64,
    len: u64,
    /// Where the guest's first byte is.
    first: NonNull<u8>,
    mapped: NonNull<c_void>,
    mapped_len: usize,
    keeps_memory: bool,
}

/// Whether the file has all its memory from here on. Who touches a page that is behind the end of its file, or for which there is no huge
/// page, is ended (SIGBUS).
fn keeps_memory(file: BorrowedFd<'_>) -> bool {
    // Huge pages can be taken out of it again, and may then be used up.
    let huge = fstatfs(file).is_ok_and(|system| system.f_type == HUGETLBFS_MAGIC);
    // It may have the seal, or be none of the files that can have it.
    let _ = fcntl_add_seals(file, SealFlags::SHRINK);
    !huge && fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

impl Region {
    fn new(place: Place, file: BorrowedFd<'_>) -> Result<Self, MapError> {
        let end = place.offset.checked_add(place.len);
        let end = end.ok_or(MapError::Length)?;
        let overflows = place.guest.checked_add(place.len).is_none();
        if place.len == 0 || overflows {
            return Err(MapError::Length);
        }
        // Before the look at its size, which is then the least that it will have.
        let keeps_memory = keeps_memory(file);
        let stat = fstat(file)?;
        if u64::try_from(stat.st_size).is_ok_and(|size| size < end) {
            return Err(MapError::FileTooShort);
        }
        // From the beginning, in whole blocks: an offset need not be a multiple of a huge page, but a mapping must be.
        let block = u64::try_from(stat.st_blksize).unwrap_or(1).max(1);
        let len = end.checked_next_multiple_of(block);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let mapped_len = len
            .filter(|len| isize::try_from(*len).is_ok())
            .ok_or(MapError::Length)?;
        // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
        let mapped = unsafe {
            mmap(
                ptr::null_mut(),
                mapped_len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                0,
            )
        }?;
        let mapped = NonNull::new(mapped).ok_or(MapError::Length)?;
        // SAFETY: the offset lies in the mapping, which is as long as its end at least.
        let first = unsafe { mapped.cast::<u8>().add(place.offset as usize) };
        Ok(Self {
            guest: place.guest,
            len: place.len,
            first,
            mapped,
            mapped_len,
            keeps_memory,
        })
    }

    /// The first of `len` bytes at a guest address, if all are here.
    #[inline]
    fn at(&self, address: u64, len: usize) -> Option<NonNull<u8>> {
        // Beyond the end, too, where the address lies before the region.
        let offset = address.wrapping_sub(self.guest);
        if offset > self.len || len as u64 > self.len - offset {
            return None;
        }
        // SAFETY: the region is `self.len` bytes long from `first`, and the offset is not beyond that.
        Some(unsafe { self.first.add(offset as usize) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped so, and nobody keeps a pointer: those that `at` gives are used within calls of the mapping's owner.
        let result = unsafe { munmap(self.mapped.as_ptr(), self.mapped_len) };
        debug_assert!(result.is_ok());
    }
}

/// All of a guest's memory. A buffer that lies in two parts counts as outside.
#[derive(Debug)]
pub(crate) struct Mapping {
    regions: Vec<Region>,
}

// SAFETY: the pointers lead to memory that any thread may use, and are reached through the mapping alone.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps each part from its file.
    ///
    /// # Errors
    /// [`MapError`].
    pub(crate) fn new<F: AsFd>(parts: &[(Place, F)]) -> Result<Self, MapError> {
        // What ends beyond all numbers is refused below.
        let ends = parts
            .iter()
            .filter_map(|(place, _)| place.offset.checked_add(place.len));
        if ends.fold(0, u64::saturating_add) > MOST {
            return Err(MapError::TooMuch);
        }
        let regions: Result<Vec<_>, _> = parts
            .iter()
            .map(|(place, file)| Region::new(*place, file.as_fd()))
            .collect();
        let mut regions = regions?;
        regions.sort_by_key(|region| region.guest);
        let apart = regions
            .iter()
            .zip(regions.iter().skip(1))
            .all(|(one, next)| one.guest + one.len <= next.guest);
        if !apart {
            return Err(MapError::Overlap);
        }
        Ok(Self { regions })
    }

    /// Whether nobody can take this memory away. Else who does so ends this process.
    pub(crate) fn is_sealed(&self) -> bool {
        self.regions.iter().all(|region| region.keeps_memory)
    }

    #[inline]
    fn at(&self, address: u64, len: usize) -> Result<NonNull<u8>, Unmapped> {
        // There are eight at most.
        self.regions
            .iter()
            .find_map(|region| region.at(address, len))
            .ok_or(Unmapped)
    }

    /// Reads once from `file`: to `before`, then to the spans, then to `behind`. How many bytes.
    ///
    /// # Errors
    /// The kernel's, and those of spans that are no memory or too many ([`io::ErrorKind::InvalidInput`]).
    pub(crate) fn read_from(
        &self,
        file: BorrowedFd<'_>,
        before: &mut [u8],
        spans: &[Span],
        behind: &mut [u8],
    ) -> io::Result<usize> {
        let mut vectors = Vectors::new();
        vectors.push(before.as_mut_ptr(), before.len())?;
        self.push(&mut vectors, spans)?;
        vectors.push(behind.as_mut_ptr(), behind.len())?;
        // SAFETY: each vector is memory that may be written: slices on loan to us, and guest memory that `at` has found in the mapping, to which
        // there is no reference.
        let got = unsafe { libc::readv(file.as_raw_fd(), vectors.first(), vectors.count()) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// Receives one message of a socket: to `before`, then to the spans, then to `behind`; what the kernel says of it to `control`. How many
    /// bytes.
    ///
    /// # Errors
    /// As [`Self::read_from`].
    pub(crate) fn receive_from(
        &self,
        socket: BorrowedFd<'_>,
        before: &mut [u8],
        spans: &[Span],
        behind: &mut [u8],
        control: &mut Control,
    ) -> io::Result<usize> {
        let mut vectors = Vectors::new();
        vectors.push(before.as_mut_ptr(), before.len())?;
        self.push(&mut vectors, spans)?;
        vectors.push(behind.as_mut_ptr(), behind.len())?;
        control.len = 0;
        // SAFETY: numbers and pointers, all of which may be zero.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = vectors.first().cast_mut();
        message.msg_iovlen = vectors.count;
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = control.bytes.len();
        // SAFETY: each vector is memory that may be written, as above; the control bytes are on loan to us.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        control.len = message.msg_controllen;
        Ok(got)
    }

    /// Writes once to `file`: `before`, then the spans. How many bytes.
    ///
    /// # Errors
    /// As [`Self::read_from`].
    pub(crate) fn write_to(
        &self,
        file: BorrowedFd<'_>,
        before: &[u8],
        spans: &[Span],
    ) -> io::Result<usize> {
        let mut vectors = Vectors::new();
        vectors.push(before.as_ptr().cast_mut(), before.len())?;
        self.push(&mut vectors, spans)?;
        // SAFETY: each vector is memory that may be read, as above; the kernel does not write to it.
        let put = unsafe { libc::writev(file.as_raw_fd(), vectors.first(), vectors.count()) };
        usize::try_from(put).map_err(|_| io::Error::last_os_error())
    }

    /// Reads once from `file`, `offset` bytes from its beginning: `len` bytes to the spans, behind their first `skip`, with these flags of preadv2(2).
    /// How many bytes.
    ///
    /// # Errors
    /// As [`Self::read_from`].
    pub(crate) fn read_file(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        spans: &[Span],
        (skip, len): (usize, usize),
        flags: ReadWriteFlags,
    ) -> io::Result<usize> {
        let offset = offset.try_into().map_err(io::Error::other)?;
        let mut vectors = Vectors::new();
        for span in part(spans, skip, len) {
            self.push(&mut vectors, &[span])?;
        }
        // SAFETY: each vector is guest memory that `at` has found in the mapping, to which there is no reference.
        let got = unsafe {
            libc::preadv2(
                file.as_raw_fd(),
                vectors.first(),
                vectors.count(),
                offset,
                flags.bits() as libc::c_int,
            )
        };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// Copies from the spans, which are as long as `to`.
    ///
    /// # Errors
    /// [`Unmapped`], also when the spans are shorter.
    pub(crate) fn gather(&self, spans: &[Span], to: &mut [u8]) -> Result<(), Unmapped> {
        let mut rest = to;
        for span in part(spans, 0, rest.len()) {
            let (now, later) = rest
                .split_at_mut_checked(span.len as usize)
                .ok_or(Unmapped)?;
            self.read(span.address, now)?;
            rest = later;
        }
        rest.is_empty().then_some(()).ok_or(Unmapped)
    }

    /// Copies to the spans, behind their first `skip` bytes.
    ///
    /// # Errors
    /// [`Unmapped`], also when the spans are shorter; some bytes may have been written.
    #[inline]
    pub(crate) fn scatter(&self, spans: &[Span], skip: usize, from: &[u8]) -> Result<(), Unmapped> {
        // Nearly always the first has room for all.
        match spans.first() {
            Some(first) if skip.saturating_add(from.len()) <= first.len as usize => {
                self.write(first.address.wrapping_add(skip as u64), from)
            }
            _ => self.scatter_to_several(spans, skip, from),
        }
    }

    fn scatter_to_several(&self, spans: &[Span], skip: usize, from: &[u8]) -> Result<(), Unmapped> {
        let mut rest = from;
        for span in part(spans, skip, from.len()) {
            let (now, later) = rest.split_at_checked(span.len as usize).ok_or(Unmapped)?;
            self.write(span.address, now)?;
            rest = later;
        }
        rest.is_empty().then_some(()).ok_or(Unmapped)
    }

    fn push(&self, vectors: &mut Vectors, spans: &[Span]) -> io::Result<()> {
        for span in spans {
            let len = span.len as usize;
            let place = self
                .at(span.address, len)
                .map_err(|_| io::ErrorKind::InvalidInput)?;
            vectors.push(place.as_ptr(), len)?;
        }
        Ok(())
    }
}

/// Whether the spans go to the kernel in one call.
pub(crate) fn few(spans: &[Span]) -> bool {
    spans.len() <= MAX_SPANS
}

/// `len` bytes of the spans, behind their first `skip`.
pub(crate) fn part(spans: &[Span], skip: usize, len: usize) -> impl Iterator<Item = Span> {
    let (mut skip, mut left) = (skip, len);
    spans.iter().filter_map(move |span| {
        let before = skip.min(span.len as usize);
        let taken = left.min(span.len as usize - before);
        skip -= before;
        left -= taken;
        (taken != 0).then_some(Span {
            // No overflow: the span lies in the guest's memory.
            address: span.address.wrapping_add(before as u64),
            len: taken as u32,
        })
    })
}

/// What the kernel says of a message: control messages (cmsg(3)), of which the first begins at the beginning.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Control {
    bytes: [u8; 64],
    len: usize,
}

impl Control {
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; 64],
            len: 0,
        }
    }

    /// As far as they were written.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// What `readv` and `writev` take.
struct Vectors {
    vectors: [libc::iovec; MAX_SPANS + 2],
    count: usize,
}

impl Vectors {
    fn new() -> Self {
        let empty = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            vectors: [empty; MAX_SPANS + 2],
            count: 0,
        }
    }

    fn push(&mut self, place: *mut u8, len: usize) -> io::Result<()> {
        let vector = self.vectors.get_mut(self.count);
        *vector.ok_or(io::ErrorKind::InvalidInput)? = libc::iovec {
            iov_base: place.cast(),
            iov_len: len,
        };
        self.count += 1;
        Ok(())
    }

    fn first(&self) -> *const libc::iovec {
        self.vectors.as_ptr()
    }

    fn count(&self) -> libc::c_int {
        self.count as libc::c_int
    }
}

/// [`copy_to_guest`] in a function of its own, by whose name instructions of the copy are told from all others.
///
/// # Safety
/// As for [`copy_to_guest`].
#[inline(never)]
unsafe fn copy_payload(to: *mut u8, from: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { copy_to_guest(to, from) }
}

/// Writes `from` to guest memory, each byte once, in accesses of eight bytes where they are aligned.
///
/// # Safety
/// There are as many bytes of guest memory at `to`.
#[inline]
unsafe fn copy_to_guest(to: *mut u8, from: &[u8]) {
    let (before, rest) = from.split_at(to.align_offset(8).min(from.len()));
    let (words, behind) = rest.as_chunks::<8>();
    // SAFETY: each place lies as far behind `to` as its bytes in `from`, and words are aligned; the guest may access them meanwhile, hence
    // volatile.
    unsafe {
        put_few(to, before);
        let to = to.add(before.len()).cast::<u64>();
        for (n, word) in words.iter().enumerate() {
            to.add(n).write_volatile(u64::from_ne_bytes(*word));
        }
        put_few(to.add(words.len()).cast(), behind);
    }
}

/// The same for less than eight bytes.
///
/// # Safety
/// As for [`copy_to_guest`].
#[inline]
unsafe fn put_few(to: *mut u8, from: &[u8]) {
    let (mut to, mut from) = (to, from);
    if let Some((word, rest)) = from.split_first_chunk::<4>()
        && to.cast::<u32>().is_aligned()
    {
        // SAFETY: as in [`copy_to_guest`].
        unsafe {
            to.cast::<u32>().write_volatile(u32::from_ne_bytes(*word));
            to = to.add(4);
        }
        from = rest;
    }
    for (n, byte) in from.iter().enumerate() {
        // SAFETY: as above.
        unsafe { to.add(n).write_volatile(*byte) };
    }
}

/// Reads little-endian numbers that lie at no multiple of 4.
///
/// # Safety
/// There are as many bytes of guest memory at `from`.
#[cold]
unsafe fn unaligned_words<const N: usize>(from: *const u8) -> [u32; N] {
    let mut words = [[0; 4]; N];
    // SAFETY: the caller's promise.
    unsafe { copy_from_guest(from, words.as_flattened_mut()) };
    words.map(u32::from_le_bytes)
}

/// Reads guest memory, each byte once, in accesses of eight bytes where they are aligned.
///
/// # Safety
/// There are as many bytes of guest memory at `from` as `to` is long.
#[inline]
unsafe fn copy_from_guest(from: *const u8, to: &mut [u8]) {
    let (before, rest) = to.split_at_mut(from.align_offset(8).min(to.len()));
    let (words, behind) = rest.as_chunks_mut::<8>();
    // SAFETY: each place lies as far behind `from` as its bytes in `to`, and words are aligned; the guest may change them meanwhile, hence
    // volatile.
    unsafe {
        take_few(from, before);
        let from = from.add(before.len()).cast::<u64>();
        for (n, word) in words.iter_mut().enumerate() {
            *word = from.add(n).read_volatile().to_ne_bytes();
        }
        take_few(from.add(words.len()).cast(), behind);
    }
}

/// The same for less than eight bytes.
///
/// # Safety
/// As for [`copy_from_guest`].
#[inline]
unsafe fn take_few(from: *const u8, to: &mut [u8]) {
    let (mut from, mut to) = (from, to);
    if to.len() >= 4 && from.cast::<u32>().is_aligned() {
        let (word, rest) = std::mem::take(&mut to).split_at_mut(4);
        // SAFETY: as in [`copy_from_guest`].
        unsafe {
            word.copy_from_slice(&from.cast::<u32>().read_volatile().to_ne_bytes());
            from = from.add(4);
        }
        to = rest;
    }
    for (n, byte) in to.iter_mut().enumerate() {
        // SAFETY: as above.
        *byte = unsafe { from.add(n).read_volatile() };
    }
}

impl GuestMemory for Mapping {
    #[inline]
    fn contains(&self, span: Span) -> bool {
        self.at(span.address, span.len as usize).is_ok()
    }

    #[inline]
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Unmapped> {
        let from = self.at(address, to.len())?.as_ptr();
        // SAFETY: `at` has found as many bytes at `from`.
        unsafe { copy_from_guest(from, to) };
        Ok(())
    }

    #[inline]
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let to = self.at(address, from.len())?.as_ptr();
        // SAFETY: `at` has found as many bytes at `to`, to which there is no reference.
        unsafe { copy_payload(to, from) };
        Ok(())
    }

    #[inline]
    fn read_words<const N: usize>(&self, address: u64) -> Result<[u32; N], Unmapped> {
        let from = self.at(address, 4 * N)?.as_ptr().cast::<u32>();
        if !from.is_aligned() {
            // SAFETY: `at` has found as many bytes.
            return Ok(unsafe { unaligned_words(from.cast()) });
        }
        let mut words = [0; N];
        for (n, word) in words.iter_mut().enumerate() {
            // SAFETY: `at` has found as many words, which are aligned; the guest may change them meanwhile, hence volatile.
            *word = u32::from_le(unsafe { from.add(n).read_volatile() });
        }
        Ok(words)
    }

    #[inline]
    fn write_words<const N: usize>(&self, address: u64, words: [u32; N]) -> Result<(), Unmapped> {
        let to = self.at(address, 4 * N)?.as_ptr().cast::<u32>();
        if !to.is_aligned() {
            return self.write(address, words.map(u32::to_le_bytes).as_flattened());
        }
        for (n, word) in words.into_iter().enumerate() {
            // SAFETY: `at` has found as many words, which are aligned, and to which there is no reference.
            unsafe { to.add(n).write_volatile(word.to_le()) };
        }
        Ok(())
    }

    #[inline]
    fn load(&self, address: u64, order: Ordering) -> Result<u16, Unmapped> {
        Ok(u16::from_le(self.number(address)?.load(order)))
    }

    #[inline]
    fn store(&self, address: u64, value: u16, order: Ordering) -> Result<(), Unmapped> {
        self.number(address)?.store(value.to_le(), order);
        Ok(())
    }
}

impl Mapping {
    fn number(&self, address: u64) -> Result<&AtomicU16, Unmapped> {
        let place = self.at(address, 2)?.as_ptr().cast::<u16>();
        if !place.is_aligned() {
            return Err(Unmapped);
        }
        // SAFETY: two bytes of the mapping, aligned, which live as long as `self`. Other accesses of ours to these bytes are by this thread, as
        // the mapping is not shared; the guest's are atomic as the processor makes them.
        Ok(unsafe { AtomicU16::from_ptr(place) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;

    fn file(len: u64) -> OwnedFd {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len).unwrap();
        file
    }

    fn place(guest: u64, len: u64, offset: u64) -> Place {
        Place { guest, len, offset }
    }

    /// Two parts of one file, the second of them first.
    fn two() -> (Mapping, File) {
        let file = file(0x4000);
        let parts = [
            (place(0x10_0000, 0x3000, 0x1000), file.try_clone().unwrap()),
            (place(0, 0x1000, 0), file.try_clone().unwrap()),
        ];
        (Mapping::new(&parts).unwrap(), file.into())
    }

    #[test]
    fn addresses_lead_to_their_bytes_in_the_file() {
        let (mapping, file) = two();
        for (address, len, at) in [(0x10_0008, 24, 0x1008), (0x10_0003, 19, 0x1003), (5, 3, 5)] {
            let bytes: Vec<u8> = (0..len).map(|n| n + address as u8).collect();
            mapping.write(address, &bytes).unwrap();
            let mut there = vec![0; bytes.len()];
            file.read_exact_at(&mut there, at).unwrap();
            assert_eq!(there, bytes);
            let mut back = vec![0; bytes.len()];
            mapping.read(address, &mut back).unwrap();
            assert_eq!(back, bytes);
        }
        mapping.store(0x10_2ffe, 0x1234, Ordering::Relaxed).unwrap();
        let mut there = [0; 2];
        file.read_exact_at(&mut there, 0x3ffe).unwrap();
        assert_eq!(there, [0x34, 0x12]);
        assert_eq!(mapping.load(0x10_2ffe, Ordering::Relaxed), Ok(0x1234));
    }

    #[test]
    fn each_byte_is_copied_wherever_it_lies() {
        let (mapping, file) = two();
        for (at, len) in (0..9).flat_map(|at| (0..34).map(move |len| (at, len))) {
            file.write_all_at(&[0xaa; 64], 0).unwrap();
            let bytes: Vec<u8> = (1..=len).collect();
            mapping.write(8 + at, &bytes).unwrap();
            let mut there = [0; 64];
            file.read_exact_at(&mut there, 0).unwrap();
            let (before, rest) = there.split_at(8 + at as usize);
            let (copied, behind) = rest.split_at(len.into());
            assert_eq!(copied, bytes, "{at} {len}");
            assert!(before.iter().chain(behind).all(|byte| *byte == 0xaa));
            let mut back = vec![0; bytes.len()];
            mapping.read(8 + at, &mut back).unwrap();
            assert_eq!(back, bytes, "{at} {len}");
        }
        for at in 0..9 {
            let words = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09];
            mapping.write_words(8 + at, words).unwrap();
            let mut there = [0; 12];
            file.read_exact_at(&mut there, 8 + at).unwrap();
            assert_eq!(there, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], "{at}");
            assert_eq!(mapping.read_words(8 + at), Ok(words), "{at}");
        }
        assert_eq!(mapping.read_words::<2>(0xffc), Err(Unmapped));
        assert_eq!(mapping.write_words(0xffc, [0; 2]), Err(Unmapped));
    }

    #[test]
    fn nothing_is_reached_outside() {
        let (mapping, _) = two();
        let span = |address, len| Span { address, len };
        assert!(mapping.contains(span(0xfff, 1)) && mapping.contains(span(0x10_0000, 0x3000)));
        for (address, len) in [
            (0xfff, 2),
            (0x1000, 1),
            (0xf_ffff, 2),
            (0x10_0000, 0x3001),
            (u64::MAX, 1),
            (u64::MAX, u32::MAX),
        ] {
            assert!(!mapping.contains(span(address, len)), "{address:x} {len}");
        }
        assert_eq!(mapping.read(0xfff, &mut [0; 2]), Err(Unmapped));
        assert_eq!(mapping.write(0xfff, &[0; 2]), Err(Unmapped));
        assert_eq!(mapping.load(1, Ordering::Relaxed), Err(Unmapped));
        assert_eq!(mapping.load(0xfff, Ordering::Relaxed), Err(Unmapped));
    }

    #[test]
    fn memory_that_cannot_be_is_refused() {
        let file = file(0x2000);
        let map = |parts: &[Place]| {
            let parts: Vec<_> = parts.iter().map(|place| (*place, file.as_fd())).collect();
            Mapping::new(&parts)
        };
        assert!(map(&[place(0, 0x1000, 0), place(0x1000, 0x1000, 0x1000)]).is_ok());
        for bad in [
            place(0, 0, 0),
            place(u64::MAX, 0x1000, 0),
            place(0, 0x1000, u64::MAX),
        ] {
            assert!(matches!(map(&[bad]), Err(MapError::Length)), "{bad:?}");
        }
        let long = map(&[place(0, 0x1001, 0x1000)]);
        assert!(matches!(long, Err(MapError::FileTooShort)));
        let twice = map(&[place(0, 0x1000, 0), place(0xfff, 0x1000, 0)]);
        assert!(matches!(twice, Err(MapError::Overlap)));
    }

    /// A file may be as long as it likes, as long as nobody writes to it.
    #[test]
    fn more_memory_than_there_are_addresses_for_is_refused() {
        let file = file(1 << 46);
        let map = |parts: &[Place]| {
            let parts: Vec<_> = parts.iter().map(|place| (*place, file.as_fd())).collect();
            Mapping::new(&parts)
        };
        let half = 1 << 40;
        for much in [
            &[place(0, 1 << 46, 0)][..],
            &[place(0, 0x1000, 1 << 45)],
            // Each of them alone would do.
            &[place(0, half, 0), place(half, 0x1000, half)],
        ] {
            assert!(matches!(map(much), Err(MapError::TooMuch)), "{much:?}");
        }
        assert!(map(&[place(0, 0x1000, 0), place(0x1000, 0x1000, 0x1000)]).is_ok());
    }

    #[test]
    fn memory_is_kept_where_it_can_be_sealed() {
        let map = |flags| {
            let file = memfd_create("guest", MemfdFlags::CLOEXEC | flags).unwrap();
            ftruncate(&file, 0x2000).unwrap();
            let mapping = Mapping::new(&[(place(0, 0x2000, 0), file.as_fd())]).unwrap();
            (mapping.is_sealed(), ftruncate(&file, 0x1000).is_ok())
        };
        assert_eq!(map(MemfdFlags::ALLOW_SEALING), (true, false));
        assert_eq!(map(MemfdFlags::empty()), (false, true));
    }

    #[test]
    fn the_kernel_reads_and_writes_spans_in_order() {
        let (mapping, _) = two();
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        theirs.send(b"abcdefgh").unwrap();
        let spans = [(0x10_0010, 2), (0x8, 3)].map(|(address, len)| Span { address, len });
        let (mut before, mut behind) = ([0; 1], [0; 10]);
        let got = mapping.read_from(ours.as_fd(), &mut before, &spans, &mut behind);
        assert_eq!(got.unwrap(), 8);
        assert_eq!((&before, &behind[..2]), (b"a", &b"gh"[..]));
        assert_eq!(mapping.write_to(ours.as_fd(), b"x", &spans).unwrap(), 6);
        let mut bytes = [0; 10];
        assert_eq!(theirs.recv(&mut bytes).unwrap(), 6);
        assert_eq!(&bytes[..6], b"xbcdef");
        let outside = [Span {
            address: 0x1000,
            len: 1,
        }];
        assert!(mapping.write_to(ours.as_fd(), b"", &outside).is_err());
    }
}
