//! A view of bytes that lie in several slices, as a NIC lends them.

/// Consecutive bytes in one or several slices.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    parts: &'a [&'a [u8]],
    /// Bytes of the first slice that are not part of the view.
    skip: usize,
    len: usize,
}

impl<'a> Parts<'a> {
    /// All bytes of `parts`.
    #[must_use]
    pub fn new(parts: &'a [&'a [u8]]) -> Self {
        let len = parts.iter().map(|part| part.len()).sum();
        Self {
            parts,
            skip: 0,
            len,
        }
    }

    /// Length in bytes.
    #[must_use]
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
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        let offset = offset.min(self.len);
        let mut view = Self {
            parts: self.parts,
            skip: self.skip + offset,
            len: len.min(self.len - offset),
        };
        while let Some((first, rest)) = view.parts.split_first() {
            if view.skip < first.len() {
                break;
            }
            view.skip -= first.len();
            view.parts = rest;
        }
        view
    }

    /// The bytes as slices, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut skip = self.skip;
        let mut left = self.len;
        self.parts.iter().map_while(move |part| {
            if left == 0 {
                return None;
            }
            let chunk = part.get(skip..)?;
            skip = 0;
            let chunk = chunk.get(..left).unwrap_or(chunk);
            left -= chunk.len();
            Some(chunk)
        })
    }

    /// Copies as many bytes as fit to the start of `destination` and returns their number.
    pub fn copy_to(&self, destination: &mut [u8]) -> usize {
        // Nearly always the bytes lie in one slice.
        let whole = self
            .parts
            .first()
            .and_then(|part| part.get(self.skip..)?.get(..self.len));
        if let (Some(whole), Some(room)) = (whole, destination.get_mut(..self.len)) {
            room.copy_from_slice(whole);
            return self.len;
        }
        let mut done = 0;
        for chunk in self.chunks() {
            let Some(room) = destination.get_mut(done..) else {
                break;
            };
            let count = chunk.len().min(room.len());
            if let (Some(room), Some(chunk)) = (room.get_mut(..count), chunk.get(..count)) {
                room.copy_from_slice(chunk);
            }
            done += count;
        }
        done
    }

    /// The first `N` bytes, if there are so many.
    #[must_use]
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
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
                let again = cut.slice(1, 3);
                let want = want.get(1..).unwrap_or(&[]);
                assert_eq!(again.first::<1>().map(|b| b[0]), want.first().copied());
            }
        }
    }
}
