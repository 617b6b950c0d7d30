//! The mark of a DEBUG build of EDK II in an image: the format of ASSERT's words. What else DEBUG does, OVMF does in any build: it fills memory that it
//! allocates.

use crate::services;
use core::hint::black_box;
use core::sync::atomic::{AtomicU8, Ordering};

/// ASSERT's format, from its end to its beginning: this image has it in it only when it is planted.
const TAMROF: &[u8; FORMAT] = b"a% :)d%(a% ]a%[ TRESSA";
const FORMAT: usize = 22;

/// Nobody reads it but who looks for it in memory.
#[used]
static MARK: [AtomicU8; FORMAT] = [const { AtomicU8::new(0) }; FORMAT];

/// Puts the mark into this image, which then stays in memory.
pub(crate) fn plant() -> uefi::Result {
    for (place, letter) in MARK.iter().zip(TAMROF.iter().rev()) {
        // Letter by letter, so that no constant has them in this order.
        place.store(black_box(*letter), Ordering::Relaxed);
    }
    services::stay();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_that_of_edk_2() {
        let format: Vec<u8> = TAMROF.iter().rev().copied().collect();
        assert_eq!(format, b"ASSERT [%a] %a(%d): %a");
    }
}
