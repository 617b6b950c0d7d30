//! The bytes that say what a loader does, and the arguments that they make.

use super::memory::Guarded;
use super::{firmware, network};
use core::cell::{Cell, RefCell};
use core::ptr;
use std::rc::Rc;

/// What is left of the input, for all that reads it.
#[derive(Clone)]
pub(super) struct Input(Rc<(Vec<u8>, Cell<usize>)>);

impl Input {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self(Rc::new((bytes.to_vec(), Cell::new(0))))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.1.get() >= self.0.0.len()
    }

    /// The next byte, or zero behind the last.
    pub(super) fn byte(&self) -> u8 {
        let (bytes, at) = &*self.0;
        let byte = bytes.get(at.get()).copied().unwrap_or(0);
        at.set(at.get() + 1);
        byte
    }

    pub(super) fn bytes<const N: usize>(&self) -> [u8; N] {
        [(); N].map(|()| self.byte())
    }

    /// True for one of eight.
    pub(super) fn seldom(&self) -> bool {
        self.byte() % 8 == 7
    }

    pub(super) fn flag(&self) -> bool {
        self.byte() % 2 == 1
    }

    /// A size that is usual, or as odd as can be.
    pub(super) fn size(&self) -> usize {
        match self.byte() {
            0 => 0,
            255 => usize::MAX,
            254 => isize::MAX as usize,
            253 => isize::MAX as usize + 1,
            252 => 1 << 32,
            251 => usize::MAX - 15,
            byte => usize::from(byte) * 16,
        }
    }
}

/// Variables and buffers of a call.
pub(super) struct Arguments<'a> {
    input: &'a Input,
    memory: RefCell<Vec<Guarded>>,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(input: &'a Input) -> Self {
        Self {
            input,
            memory: RefCell::default(),
        }
    }

    /// A variable with these bytes, where nothing but bytes is asked for: aligned or not. Seldom null.
    pub(super) fn bytes<T>(&self, contents: &[u8]) -> *mut T {
        let skew = self.input.byte() % 8;
        self.put(Guarded::of(contents, skew.into()))
    }

    /// An aligned variable with this value. Seldom null.
    pub(super) fn word<T>(&self, contents: &[u8]) -> *mut T {
        self.put(Guarded::of(contents, 0))
    }

    /// A buffer of so many bytes, or of as many as can be used where that is more. Seldom null.
    pub(super) fn buffer<T>(&self, len: usize) -> *mut T {
        let skew = self.input.byte() % 8;
        let len = len.min(4 * network::LARGEST);
        self.put(Guarded::new(len, skew.into()))
    }

    fn put<T>(&self, mut memory: Guarded) -> *mut T {
        if self.input.byte() % 32 == 31 {
            return ptr::null_mut();
        }
        let at = memory.as_mut_ptr();
        self.memory.borrow_mut().push(memory);
        at
    }
}

impl Drop for Arguments<'_> {
    fn drop(&mut self) {
        if !self.memory.borrow().iter().all(Guarded::is_intact) {
            firmware::fault("a call writes outside its arguments");
        }
    }
}
