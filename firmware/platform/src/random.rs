//! Random numbers for what attackers look at: transaction ids, ports, sequence numbers.
//!
//! From the firmware's generator, else the processor's, else whatever differs between two boots. A machine
//! with neither generator still boots.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, _rdtsc};
use uefi::boot;
use uefi::proto::rng::Rng;

/// Where [`seed`]'s bits came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `EFI_RNG_PROTOCOL`.
    Firmware,
    /// The RDRAND instruction.
    Processor,
    /// Time stamps and addresses: differs from boot to boot, but could be guessed.
    Weak,
}

/// A seed of 256 bits.
pub type Seed = [u8; 32];

/// Whether the firmware offers some (`EFI_RNG_PROTOCOL`).
#[must_use]
pub fn is_offered() -> bool {
    boot::get_handle_for_protocol::<Rng>().is_ok()
}

/// Random bits and their source.
#[must_use]
pub fn seed() -> (Seed, Source) {
    if let Some(seed) = from_firmware() {
        (seed, Source::Firmware)
    } else if let Some(seed) = from_words(processor) {
        (seed, Source::Processor)
    } else {
        (from_machine(), Source::Weak)
    }
}

fn from_firmware() -> Option<Seed> {
    let handle = boot::get_handle_for_protocol::<Rng>().ok()?;
    let mut rng = boot::open_protocol_exclusive::<Rng>(handle).ok()?;
    let mut seed = [0; 32];
    rng.get_mut()?.get_rng(None, &mut seed).ok()?;
    // Some firmware reports success and writes nothing.
    (seed != [0; 32]).then_some(seed)
}

fn from_words(mut word: impl FnMut() -> Option<u64>) -> Option<Seed> {
    let mut seed = [0; 32];
    let mut previous = 0;
    for place in seed.chunks_exact_mut(8) {
        let value = word()?;
        // A broken generator returns the same number each time.
        if value == previous {
            return None;
        }
        previous = value;
        place.copy_from_slice(&value.to_le_bytes());
    }
    Some(seed)
}

fn processor() -> Option<u64> {
    const RDRAND: u32 = 1 << 30;
    if __cpuid(1).ecx & RDRAND == 0 {
        return None;
    }
    // It may have nothing for a moment; ten attempts are what its maker advises.
    (0..10).find_map(|_| {
        let (value, ok): (u64, u8);
        // SAFETY: CPUID says that the instruction exists; it writes two registers and the flags only.
        unsafe {
            asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack));
        }
        // All zeros and all ones are what broken generators return.
        (ok != 0 && value != 0 && value != u64::MAX).then_some(value)
    })
}

fn from_machine() -> Seed {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut stir = |value: u64| {
        // SplitMix64's output function: each input bit reaches each output bit.
        state = (state ^ value).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 32;
        state
    };
    stir(core::ptr::from_ref(&RDTSC_ROUNDS).addr() as u64);
    stir(boot::image_handle().as_ptr().addr() as u64);
    if let Ok(time) = uefi::runtime::get_time() {
        stir(u64::from(time.second()) << 32 | u64::from(time.nanosecond()));
        stir(u64::from(time.minute()) << 16 | u64::from(time.day()) << 8 | u64::from(time.hour()));
    }
    let mut seed = [0; 32];
    for place in seed.chunks_exact_mut(8) {
        let mut word = 0;
        // The jitter of firmware calls against the counter.
        for _ in 0..RDTSC_ROUNDS {
            boot::stall(core::time::Duration::from_micros(1));
            // SAFETY: every x86-64 processor has the instruction.
            word = stir(unsafe { _rdtsc() });
        }
        place.copy_from_slice(&word.to_le_bytes());
    }
    seed
}

/// Readings of the counter behind each 64 bits of a weak seed.
static RDTSC_ROUNDS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_generator_is_refused() {
        assert_eq!(from_words(|| Some(7)), None);
        assert_eq!(from_words(|| None), None);
        let mut n = 0;
        let seed = from_words(|| {
            n += 1;
            Some(n)
        });
        assert_eq!(seed.map(|seed| (seed[0], seed[24])), Some((1, 4)));
    }
}
