//! A guest that breaks the rules of its rings on purpose, for tests.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use wireboot_card::GuestMemory;

use super::device::{QUEUES, Register};
use super::{Guest, Machine};
use crate::memory::{Mapping, Place};

const MAC: [u8; 6] = [0x52, 0x54, 0, 0x66, 0x66, 0x66];
/// Turns of its network before it scribbles, at most, and after.
const TURNS: u32 = 200;
const TURNS_AFTER: u32 = 50;

/// Is the guest of the card at `socket`: starts the driver, writes what it likes to the driver's rings, and begins anew, as long as `go_on` says so.
///
/// # Errors
/// When it cannot connect, or the card throws it out: that is not to happen for what stands in rings.
pub fn scribble_at(socket: &Path, mut go_on: impl FnMut() -> bool) -> Result<()> {
    let guest = Guest::connect(socket, MAC).context("connecting to the card")?;
    for seed in 0.. {
        if !go_on() {
            break;
        }
        let mut random = Rng::with_seed(seed);
        scribble_once(&guest, &mut random).with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

/// Starts a driver at whatever the one before has left, lets it use the network for a while, and scribbles in its rings.
///
/// # Errors
/// When there is no card any more.
pub(super) fn scribble_once(guest: &Guest, random: &mut Rng) -> Result<()> {
    let mut machine =
        Machine::start(guest, [7; 32], Some(0x1234)).context("starting the driver")?;
    machine.ask_for_lease(Duration::from_secs(60));
    for _ in 0..random.u32(..TURNS) {
        let _ = machine.turn();
    }
    scribble(guest, random)?;
    for _ in 0..TURNS_AFTER {
        let _ = machine.turn();
    }
    Ok(())
}

/// Writes to descriptors, available rings and used rings, and rings both doorbells.
fn scribble(guest: &Guest, random: &mut Rng) -> Result<()> {
    let shared = guest.0.borrow().shared();
    let (memory, queues) = shared.context("a driver with memory")?;
    let region = memory.region();
    let place = Place {
        guest: region.guest,
        len: region.len,
        offset: 0,
    };
    let mapping = Mapping::new(&[(place, memory.file())])?;
    for tables in queues {
        let [descriptors, available, _] = tables;
        // Anything anywhere, or what could almost be: descriptors, their numbers, and an index that goes on by a little.
        if random.bool() {
            for _ in 0..random.u32(1..20) {
                let table = random.choice(tables).unwrap_or(available);
                let value = random.u16(..);
                mapping.write(table + 2 * random.u64(..20), &value.to_le_bytes())?;
            }
            continue;
        }
        let more = random.u16(1..8);
        let index = mapping.load(available + 2, Acquire)?;
        for n in 0..more {
            let id = random.u16(..40);
            let address = region.guest + random.u64(..region.len + 0x1000);
            let words = [
                address,
                random.u64(..3000) | random.u64(..8) << 32 | random.u64(..40) << 48,
            ];
            let bytes = words.map(u64::to_le_bytes);
            mapping.write(descriptors + 16 * u64::from(id), bytes.as_flattened())?;
            let entry = available + 4 + 2 * u64::from(index.wrapping_add(n) % 256);
            let id = if random.u8(..8) == 0 { 5000 } else { id };
            mapping.store(entry, id, Relaxed)?;
        }
        mapping.store(available + 2, index.wrapping_add(more), Release)?;
    }
    let mut device = guest.0.borrow_mut();
    for queue in 0..QUEUES {
        device.write(Register::Doorbell(queue), queue as u32);
    }
    Ok(())
}
