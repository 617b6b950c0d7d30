//! Why our code has panicked or faulted on an AP (application processor), kept for the BSP (bootstrap processor).

use crate::bsp::apic_id;
use alloc::string::String;
use core::arch::asm;
use core::fmt::{self, Write};
use spinning_top::Spinlock;

/// Longest message that is kept, in bytes.
const MESSAGE: usize = 300;

/// How often an AP looks whether it can keep its message, while another has the place for that.
const LOOKS: u32 = 1_000_000;

/// The message of the AP that failed last, until it is told.
static FAILURE: Spinlock<Option<Message>> = Spinlock::new(None);

/// Text of a bounded length, made without a heap.
struct Message {
    /// The APIC id of the AP that it is of.
    of: u32,
    bytes: [u8; MESSAGE],
    len: usize,
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let fits = text.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..fits), text.as_bytes().get(..fits)) {
            to.copy_from_slice(from);
            self.len += fits;
        }
        Ok(())
    }
}

/// Keeps the message of code that panics or faults on an AP, and halts that AP for good.
pub(crate) fn record_and_halt(message: &dyn fmt::Display) -> ! {
    let mut text = Message {
        of: apic_id(),
        bytes: [0; MESSAGE],
        len: 0,
    };
    let _ = write!(text, "{message}");
    let mut looks = 0..LOOKS;
    while looks.next().is_some() {
        if let Some(mut failure) = FAILURE.try_lock() {
            *failure = Some(text);
            break;
        }
        core::hint::spin_loop();
    }
    loop {
        // SAFETY: interrupts are off here, so this halts until the firmware starts the AP anew.
        unsafe { asm!("hlt", options(nomem, nostack)) };
    }
}

/// The message of the AP with this APIC id, once; `None` also while an AP writes one.
pub(super) fn take(apic_id: u32) -> Option<String> {
    let mut text = None;
    tell(apic_id, |message| text = Some(String::from(message)));
    text
}

/// The same, shown to `told`; takes no memory of the heap. Whether there was one.
pub(super) fn tell(apic_id: u32, told: impl FnOnce(&str)) -> bool {
    let message = FAILURE
        .try_lock()
        .and_then(|mut failure| failure.take_if(|message| message.of == apic_id));
    let Some(message) = message else { return false };
    let bytes = message.bytes.get(..message.len).unwrap_or_default();
    // It may have been cut within a letter.
    let text = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    told(text);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_not_lost() {
        let mut message = Message {
            of: 0,
            bytes: [0; MESSAGE],
            len: 0,
        };
        for _ in 0..100 {
            write!(message, "0123456789").unwrap();
        }
        assert_eq!(message.len, MESSAGE);
        assert!(message.bytes.starts_with(b"0123456789012"));
    }
}
