//! The guest's memory, as the card reaches it.

use core::sync::atomic::Ordering;

/// Memory of a guest by guest physical addresses. The guest may change it at any time, so whoever checks a value keeps a copy.
///
/// No method reaches beyond the guest's memory, whatever the address.
pub trait GuestMemory {
    /// True when all bytes of the span are the guest's.
    fn contains(&self, span: Span) -> bool;

    /// Copies from the guest. Each byte is read once.
    ///
    /// # Errors
    /// [`Unmapped`].
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Unmapped>;

    /// Copies to the guest.
    ///
    /// # Errors
    /// [`Unmapped`]; some bytes may have been written.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped>;

    /// The same for little-endian numbers, which mostly lie at a multiple of 4.
    ///
    /// # Errors
    /// [`Unmapped`].
    #[inline]
    fn read_words<const N: usize>(&self, address: u64) -> Result<[u32; N], Unmapped> {
        let mut bytes = [[0; 4]; N];
        self.read(address, bytes.as_flattened_mut())?;
        Ok(bytes.map(u32::from_le_bytes))
    }

    /// Writes little-endian numbers, mostly to a multiple of 4.
    ///
    /// # Errors
    /// As [`Self::write`].
    #[inline]
    fn write_words<const N: usize>(&self, address: u64, words: [u32; N]) -> Result<(), Unmapped> {
        let bytes = words.map(u32::to_le_bytes);
        self.write(address, bytes.as_flattened())
    }

    /// Reads a little-endian number at an even address in one access.
    ///
    /// # Errors
    /// [`Unmapped`], also for an odd address.
    fn load(&self, address: u64, order: Ordering) -> Result<u16, Unmapped>;

    /// Writes a little-endian number at an even address in one access.
    ///
    /// # Errors
    /// [`Unmapped`], also for an odd address.
    fn store(&self, address: u64, value: u16, order: Ordering) -> Result<(), Unmapped>;
}

/// An address at which the guest has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address outside the guest's memory")]
pub struct Unmapped;

/// A piece of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The guest physical address of its first byte.
    pub address: u64,
    /// Bytes from there on; none is no error.
    pub len: u32,
}

/// Copies from the beginning of the spans. False when they are shorter than `to`.
///
/// # Errors
/// [`Unmapped`].
pub fn gather<M: GuestMemory>(memory: &M, spans: &[Span], to: &mut [u8]) -> Result<bool, Unmapped> {
    gather_at(memory, spans, 0, to)
}

/// Copies from the spans, from byte `at` on. False when they are shorter.
pub(crate) fn gather_at<M: GuestMemory>(
    memory: &M,
    spans: &[Span],
    at: usize,
    mut to: &mut [u8],
) -> Result<bool, Unmapped> {
    let mut skip = at;
    for span in spans {
        let cut = skip.min(span.len as usize);
        skip -= cut;
        let len = to.len().min(span.len as usize - cut);
        let (now, rest) = to.split_at_mut(len);
        // No overflow: the span lies in the guest's memory.
        memory.read(span.address.wrapping_add(cut as u64), now)?;
        to = rest;
        if to.is_empty() {
            break;
        }
    }
    Ok(to.is_empty())
}

/// Copies to the beginning of the spans. False when they are shorter than `from`.
///
/// # Errors
/// [`Unmapped`]; some bytes may have been written.
pub fn scatter<M: GuestMemory>(memory: &M, spans: &[Span], from: &[u8]) -> Result<bool, Unmapped> {
    scatter_at(memory, spans, 0, from)
}

/// Copies to the spans, from byte `at` on. False when they are shorter.
pub(crate) fn scatter_at<M: GuestMemory>(
    memory: &M,
    spans: &[Span],
    at: usize,
    mut from: &[u8],
) -> Result<bool, Unmapped> {
    let mut skip = at;
    for span in spans {
        let len = span.len as usize;
        let cut = skip.min(len);
        skip -= cut;
        let (now, rest) = from.split_at(from.len().min(len - cut));
        // No overflow: the span lies in the guest's memory.
        memory.write(span.address.wrapping_add(cut as u64), now)?;
        from = rest;
        if from.is_empty() {
            break;
        }
    }
    Ok(from.is_empty())
}

/// Takes `skip` bytes away from the beginning of the spans, which are in `spans`, and leaves the rest in `rest`.
pub(crate) fn behind(spans: &[Span], skip: u32, rest: &mut alloc::vec::Vec<Span>) {
    rest.clear();
    let mut skip = skip;
    for span in spans {
        let cut = skip.min(span.len);
        skip -= cut;
        if cut < span.len {
            rest.push(Span {
                // No overflow: the span lies in the guest's memory.
                address: span.address.wrapping_add(cut.into()),
                len: span.len - cut,
            });
        }
    }
}

/// Keeps the first `len` bytes of the spans.
pub(crate) fn keep(spans: &mut alloc::vec::Vec<Span>, len: usize) {
    let mut left = len as u32;
    let mut count = 0;
    for span in spans.iter_mut() {
        if left == 0 {
            break;
        }
        span.len = span.len.min(left);
        left -= span.len;
        count += 1;
    }
    spans.truncate(count);
}
