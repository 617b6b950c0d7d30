//! The canary: where the card wrote while wireboot had it, and whether anything was written there afterwards.
//!
//! Linux fills its memory with [`PAGE`] and later tells the checksums of what it wrote. Two things are read from outside meanwhile, so that
//! nobody has to be believed: the queue's own list of receive buffers, and all of the machine's memory.

use std::fs;

use anyhow::{Context, Result, ensure};
use memchr::memmem;
use serde_json::{Value, json};

use super::stray::Mark;
use wireboot_lab::netns::Lab;
use wireboot_lab::nic::CardChoice;
use wireboot_lab::qemu::RunningMachine;

/// What Linux fills its memory with, page by page.
pub(super) const PAGE: [u8; 4096] = page();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would say so"
)]
const fn page() -> [u8; 4096] {
    let text = b"canary! ";
    let mut page = [0; 4096];
    let mut index = 0;
    while index < page.len() {
        page[index] = text[index % text.len()];
        index += 1;
    }
    page
}

/// Where QEMU keeps the card in its tree of objects.
const CARD: &str = "/machine/peripheral/nic0/virtio-backend";
/// A descriptor's size in bytes (virtio 1.2, 2.7.5).
const DESCRIPTOR: u64 = 16;
/// In its flags: the device writes.
const WRITE: u16 = 2;

/// Physical memory that the device may write to: start and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    start: u64,
    length: u64,
}

/// Whether the card works at the moment.
///
/// # Errors
/// When QEMU does not answer.
pub(super) fn is_running(machine: &mut RunningMachine) -> Result<bool> {
    let status = machine.ask("x-query-virtio-status", json!({ "path": CARD }))?;
    // A device that is reset has no status bit at all (virtio 1.2, 2.1).
    let bits = status
        .pointer("/status/statuses")
        .and_then(Value::as_array)
        .context("QEMU tells no device status")?;
    Ok(status.get("started") == Some(&json!(true)) || !bits.is_empty())
}

/// How QEMU is asked for a queue, and what it calls the ring's entries, its table and its used ring.
struct Question {
    command: &'static str,
    fields: [&'static str; 3],
}

impl Question {
    fn about(card: CardChoice) -> Self {
        match card {
            CardChoice::Qemu => Self {
                command: "x-query-virtio-queue-status",
                fields: ["vring-num", "vring-desc", "vring-used"],
            },
            // The other one has QEMU 7.2 stop a vhost-user card's queue (GET_VRING_BASE), and nobody starts it again.
            CardChoice::Nic => Self {
                command: "x-query-virtio-vhost-queue-status",
                fields: ["num", "desc-phys", "used-phys"],
            },
        }
    }
}

/// The areas that the driver has given to the device for what it receives: buffers, and the ring in which they come back.
///
/// # Errors
/// When QEMU does not answer, or a queue of the first so many pairs is not set up.
pub(super) fn receive_areas(
    machine: &mut RunningMachine,
    lab: &Lab,
    card: CardChoice,
    pairs: u32,
) -> Result<Vec<Area>> {
    let question = Question::about(card);
    let pairs = match card {
        CardChoice::Qemu => pairs,
        // It tells of the first one alone.
        CardChoice::Nic => 1,
    };
    let mut areas = Vec::new();
    for pair in 0..pairs {
        // A pair's receive queue comes first, then its transmit queue (virtio 1.2, 5.1.2).
        areas.extend(queue_areas(machine, lab, &question, 2 * pair)?);
    }
    Ok(areas)
}

fn queue_areas(
    machine: &mut RunningMachine,
    lab: &Lab,
    Question { command, fields }: &Question,
    index: u32,
) -> Result<Vec<Area>> {
    let queue = machine.ask(command, json!({ "path": CARD, "queue": index }))?;
    let number = |name: &str| {
        queue
            .get(name)
            .and_then(Value::as_u64)
            .with_context(|| format!("QEMU tells no {name} of receive queue {index}"))
    };
    let [length, table, used] = fields.map(number);
    let (length, table, used) = (length?, table?, used?);
    ensure!(
        table != 0 && used != 0,
        "receive queue {index} is not set up: {queue}"
    );
    let mut areas = descriptors(&memory(machine, lab, table, length * DESCRIPTOR)?);
    ensure!(!areas.is_empty(), "receive queue {index} has no buffers");
    // flags and idx of 2 bytes each, then 8 bytes for each buffer that comes back (virtio 1.2, 2.7.8).
    areas.push(Area {
        start: used,
        length: 4 + 8 * length,
    });
    Ok(areas)
}

fn descriptors(table: &[u8]) -> Vec<Area> {
    let (entries, _) = table.as_chunks::<16>();
    entries
        .iter()
        .filter_map(|entry| {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, _, _] = *entry;
            let length = u64::from(u32::from_le_bytes([i, j, k, l]));
            let writes = u16::from_le_bytes([m, n]) & WRITE != 0;
            (writes && length > 0).then_some(Area {
                start: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                length,
            })
        })
        .collect()
}

/// What the machine's memory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Pages that hold the pattern.
    pub canaries: usize,
    /// Pages that the device could write to.
    pub receive: usize,
    /// Those of them that hold the pattern now.
    pub receive_canaries: usize,
    /// Where bytes of a frame lie that should be nowhere, at most one for each page.
    pub stray: Vec<u64>,
}

/// Reads all of the machine's memory.
///
/// # Errors
/// When QEMU does not write it, or the disk is full.
pub(super) fn examine(
    machine: &mut RunningMachine,
    lab: &Lab,
    memory_mib: u32,
    areas: &[Area],
    mark: Mark,
) -> Result<Found> {
    let bytes = memory(machine, lab, 0, u64::from(memory_mib) << 20)?;
    Ok(search(&bytes, areas, mark))
}

fn search(memory: &[u8], areas: &[Area], mark: Mark) -> Found {
    let size = PAGE.len() as u64;
    let mut receive: Vec<u64> = areas
        .iter()
        .flat_map(|area| area.start / size..(area.start + area.length).div_ceil(size))
        .collect();
    receive.sort_unstable();
    receive.dedup();
    let holds = |page: &[u8]| page == PAGE;
    let receive_canaries = receive
        .iter()
        .filter(|&&number| {
            usize::try_from(number * size)
                .ok()
                .and_then(|start| memory.get(start..start + PAGE.len()))
                .is_some_and(holds)
        })
        .count();
    let mut stray: Vec<u64> = memmem::find_iter(memory, mark.0)
        .map(|place| place as u64)
        .collect();
    stray.dedup_by_key(|place| *place / size);
    Found {
        canaries: memory.chunks(PAGE.len()).filter(|page| holds(page)).count(),
        receive: receive.len(),
        receive_canaries,
        stray,
    }
}

/// Physical memory of the machine.
fn memory(machine: &mut RunningMachine, lab: &Lab, start: u64, length: u64) -> Result<Vec<u8>> {
    let file = lab.scratch().join("memory");
    machine.ask(
        "pmemsave",
        json!({ "val": start, "size": length, "filename": file }),
    )?;
    let bytes = fs::read(&file).context("reading the machine's memory")?;
    fs::remove_file(&file).context("removing the machine's memory from the disk")?;
    ensure!(
        bytes.len() as u64 == length,
        "QEMU wrote {} bytes of memory instead of {length}",
        bytes.len()
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::stray::{AFTER, BEFORE};
    use super::*;

    const BUFFERS: [Area; 2] = [
        Area {
            start: 4096,
            length: 8192,
        },
        Area {
            start: 12288,
            length: 100,
        },
    ];

    #[test]
    fn a_machine_full_of_canaries_is_clean() {
        let found = search(&PAGE.repeat(8), &BUFFERS, AFTER);
        assert_eq!(
            found,
            Found {
                canaries: 8,
                receive: 3,
                receive_canaries: 3,
                stray: Vec::new()
            }
        );
    }

    #[test]
    fn a_frame_in_a_buffer_is_found() {
        let mut memory = PAGE.repeat(8);
        memory[8000..8000 + AFTER.0.len()].copy_from_slice(AFTER.0);
        memory[16500..16500 + BEFORE.0.len()].copy_from_slice(BEFORE.0);
        let found = search(&memory, &BUFFERS, AFTER);
        assert_eq!(found.stray, [8000]);
        assert_eq!((found.canaries, found.receive_canaries), (6, 2));
    }

    #[test]
    fn memory_that_is_not_there_holds_no_canary() {
        let area = Area {
            start: u64::MAX - 4096,
            length: 1,
        };
        assert_eq!(search(&PAGE, &[area], AFTER).receive_canaries, 0);
    }

    #[test]
    fn only_what_the_device_writes_is_an_area() {
        let mut table = vec![0; 48];
        table[..8].copy_from_slice(&0x12_3000_u64.to_le_bytes());
        table[8..12].copy_from_slice(&2048_u32.to_le_bytes());
        table[12] = 2;
        // One that the device reads.
        table[24..28].copy_from_slice(&64_u32.to_le_bytes());
        assert_eq!(
            descriptors(&table),
            [Area {
                start: 0x12_3000,
                length: 2048
            }]
        );
    }
}
