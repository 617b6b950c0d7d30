//! Tokens that callers have given and that are not answered.

use alloc::vec::Vec;
use uefi_raw::Event;
use uefi_raw::protocol::network::http::{HttpMessage, HttpToken};
use wireboot_platform::free_memory::FreeMemory;
use wireboot_protocols::http::Answer;

/// What a token led to when it was given.
#[derive(Clone, Copy)]
pub(crate) struct GivenToken {
    token: *const HttpToken,
    event: Event,
    message: *const HttpMessage,
    /// Address and bytes of the buffer for a body.
    body: (usize, usize),
}

impl GivenToken {
    /// # Safety
    /// A caller's token, aligned, with its message.
    pub(crate) unsafe fn read(token: *const HttpToken) -> Self {
        // SAFETY: the caller's word.
        unsafe {
            let message = (*token).message;
            Self {
                token,
                event: (*token).event,
                message: message.cast_const(),
                body: ((*message).body.addr(), (*message).body_length),
            }
        }
    }

    /// Its memory is free, or has other things in it: the program that gave it has ended.
    fn is_gone(&self, free: &FreeMemory) -> bool {
        let (body, bytes) = self.body;
        if free.has_some_of(self.token.addr(), size_of::<HttpToken>())
            || bytes > 0 && free.has_some_of(body, bytes)
        {
            return true;
        }
        // SAFETY: the memory map does not say that it is free, or there is no map: what a caller gave is mapped either way. It is aligned, as it was then.
        let (event, message) = unsafe {
            (
                (&raw const (*self.token).event).read_volatile(),
                (&raw const (*self.token).message).read_volatile(),
            )
        };
        event != self.event || message.cast_const() != self.message
    }
}

/// A child's tokens that are not answered.
#[derive(Default)]
pub(crate) struct GivenTokens(Vec<GivenToken>);

impl GivenTokens {
    pub(crate) fn push(&mut self, token: GivenToken) {
        self.0.push(token);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These are their callers' again.
    pub(crate) fn answered(&mut self, answers: &[Answer]) {
        let is_answered = |one: &GivenToken| {
            let mut answers = answers.iter();
            answers.any(|answer| answer.token == one.token.addr())
        };
        self.0.retain(|one| !is_answered(one));
    }

    /// Whether the program that gave one has ended.
    pub(crate) fn are_gone(&self, free: &FreeMemory) -> bool {
        self.0.iter().any(|one| one.is_gone(free))
    }

    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}
