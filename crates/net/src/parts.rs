//! A view of bytes that lie in several slices, as a NIC lends them.

use wireboot_nic::Frame;

static EMPTY: &[u8] = &[];

/// Consecutive bytes in one or several slices.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Nearly always all of them.
    first: &'a [u8],
    rest: &'a [&'a [u8]],
    len: usize,
}

impl<'a> Parts<'a> {
    /// All bytes of `parts`.
    #[must_use]
    pub fn new(parts: &'a [&'a [u8]]) -> Self {
        Self::with_len(parts, parts.iter().map(|part| part.len()).sum())
    }

    /// All bytes of a received unit.
    #[must_use]
    #[inline]
    pub fn of(frame: &Frame<'a>) -> Self {
        Self::with_len(frame.parts, frame.len)
    }

    #[inline]
    fn with_len(parts: &'a [&'a [u8]], len: usize) -> Self {
        let (first, rest) = parts.split_first().unwrap_or((&EMPTY, &[]));
        Self { first, rest, len }
    }

    /// Length in bytes.
    #[must_use]
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The view from byte `offset` of at most `len` bytes. Beyond the end it is empty.
    #[must_use]
    #[inline(always)]
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        let mut offset = offset.min(self.len);
        let mut view = Self {
            len: len.min(self.len - offset),
            ..*self
        };
        loop {
            if let Some(first) = view.first.get(offset..) {
                view.first = first;
                return view;
            }
            offset -= view.first.len();
            match view.rest {
                [first, rest @ ..] => (view.first, view.rest) = (first, rest),
                // Not reached: the offset lies within the parts.
                [] => return view,
            }
        }
    }

    /// The bytes as slices, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = self.len;
        let parts = core::iter::once(self.first).chain(self.rest.iter().copied());
        parts.map_while(move |part| {
            if left == 0 {
                return None;
            }
            let chunk = part.get(..left).unwrap_or(part);
            left -= chunk.len();
            Some(chunk)
        })
    }

    /// Copies as many bytes as fit to the start of `destination` and returns their number.
    #[inline(always)]
    pub fn copy_to(&self, destination: &mut [u8]) -> usize {
        if let (Some(whole), Some(room)) =
            (self.first.get(..self.len), destination.get_mut(..self.len))
        {
            room.copy_from_slice(whole);
            return self.len;
        }
        self.copy_parts(destination)
    }

    #[inline(never)]
    fn copy_parts(self, destination: &mut [u8]) -> usize {
        let whole = self.len.min(destination.len());
        let mut to = destination.get_mut(..whole).unwrap_or_default();
        let (mut part, mut rest) = (self.first, self.rest);
        while part.len() <= to.len()
            && let Some((here, behind)) = core::mem::take(&mut to).split_at_mut_checked(part.len())
        {
            here.copy_from_slice(part);
            to = behind;
            match rest {
                [next, after @ ..] => (part, rest) = (next, after),
                [] => return whole - to.len(),
            }
        }
        // Less is wanted than the last part has.
        to.copy_from_slice(part.get(..to.len()).unwrap_or_default());
        whole
    }

    /// The first `N` bytes, if there are so many.
    #[must_use]
    #[inline(always)]
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        if let (Some(bytes), true) = (self.first.first_chunk(), N <= self.len) {
            return Some(*bytes);
        }
        let mut bytes = [0; N];
        (self.slice(0, N).copy_to(&mut bytes) == N).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn slices_and_copies_across_the_parts() {
        let whole: Vec<u8> = (0..50).collect();
        let parts: [&[u8]; 4] = [&whole[..7], &whole[7..7], &whole[7..30], &whole[30..]];
        let view = Parts::new(&parts);
        assert_eq!(view.len(), 50);
        for offset in 0..=52 {
            for len in 0..=52 {
                let cut = view.slice(offset, len);
                let want = &whole[offset.min(50)..(offset + len).min(50)];
                let mut got = std::vec![0; 60];
                let count = cut.copy_to(&mut got);
                assert_eq!((cut.len(), &got[..count]), (want.len(), want));
                assert_eq!(cut.is_empty(), want.is_empty());
                let again = cut.slice(1, 3);
                let want = want.get(1..).unwrap_or(&[]);
                assert_eq!(again.first::<1>().map(|b| b[0]), want.first().copied());
            }
        }
    }
}
