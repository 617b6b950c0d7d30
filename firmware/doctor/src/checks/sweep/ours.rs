//! By wireboot's engine.

use super::Source;
use crate::throughput::{configure, wait_for_router};
use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell;
use core::net::SocketAddr;
use wireboot_boot::engine::{self, Cable};
use wireboot_fetch::Limits;
use wireboot_fetch::destination::{Destination, DestinationError};
use wireboot_fetch::tftp::{self, Sizes, TftpError, TftpFile, Window};
use wireboot_net::{Duration, Engine, Instant, Memory, Parts, Stack};
use wireboot_platform::{memory, random};
use wireboot_report::sweep::{Cell, NOT_GRANTED};

/// TFTP's port.
const PORT: u16 = 69;

/// An engine on a card.
pub(super) struct OurTransfers<'s> {
    engine: Engine<Cable>,
    source: &'s Source,
}

impl<'s> OurTransfers<'s> {
    pub(super) fn new(nic: Cable, source: &'s Source) -> Self {
        let engine = Engine::new(nic, random::seed().0);
        configure(&engine.stack(), &source.leases);
        Self { engine, source }
    }

    /// The card, still running.
    pub(super) fn into_nic(self) -> Cable {
        self.engine.into_nic()
    }
}

/// What became of a transfer: none where it was not waited for any longer.
type Ended = Option<Result<TftpFile, TftpError>>;

impl super::Transfers for OurTransfers<'_> {
    fn transfer(&mut self, cell: &mut Cell, most: u64, goes_on: &mut dyn FnMut() -> bool) {
        let sizes = Sizes {
            block: u16::try_from(cell.block_bytes).ok(),
            window: match cell.window.and_then(|window| u16::try_from(window).ok()) {
                Some(window) => Window::Of(window),
                None if cell.varying => Window::Variable,
                None => Window::Own,
            },
        };
        let ended = Rc::new(cell::Cell::new(None));
        let (stack, out) = (self.engine.stack(), ended.clone());
        let (server, file) = (self.source.server, self.source.file.clone());
        let room = Room(self.source.room);
        self.engine.spawn(async move {
            wait_for_router(&stack, server).await;
            let begin = stack.now();
            let most = Duration::from_micros(most);
            let ended = fetch(
                &stack,
                SocketAddr::new(server, PORT),
                &file,
                sizes,
                most,
                room,
            )
            .await;
            out.set(Some((ended, (stack.now() - begin).total_micros())));
        });
        while goes_on() {
            let now = Instant::from_micros(self.source.clock.micros() as i64);
            if let Err(fault) = engine::turn(&mut self.engine, now) {
                cell.failure = Some(fault.to_string());
                return;
            }
            if let Some((ended, micros)) = ended.take() {
                return tell(cell, ended, micros);
            }
        }
    }
}

async fn fetch(
    stack: &Stack,
    server: SocketAddr,
    file: &str,
    sizes: Sizes,
    most: Duration,
    mut room: Room,
) -> Ended {
    let mut servers = Vec::from([server]);
    let limits = Limits::default();
    let transfer = tftp::get(stack, &mut servers, file, 1, sizes, limits, &mut room);
    stack.timeout(most, transfer).await
}

/// Fills in what became of a transfer in so many microseconds.
fn tell(cell: &mut Cell, ended: Ended, micros: u64) {
    match ended {
        Some(Ok(file)) => {
            cell.granted_block_bytes = Some(file.granted.block.into());
            cell.granted_window = Some(file.granted.window.into());
            cell.bytes = file.len;
            cell.seconds = micros as f64 / 1e6;
            cell.retransmitted = Some(file.retransmissions);
        }
        Some(Err(TftpError::NotGranted)) => cell.failure = Some(NOT_GRANTED.to_string()),
        Some(Err(error)) => cell.failure = Some(error.to_string()),
        None => cell.failure = Some("it took too long".to_string()),
    }
}

/// Memory of this processor's for a file of so many bytes at most.
struct Room(usize);

impl Destination for Room {
    async fn memory(
        &mut self,
        bytes: u64,
        previous: Option<(Memory, u64)>,
    ) -> Result<Memory, DestinationError> {
        let none = DestinationError::NoMemory { bytes };
        let size = usize::try_from(bytes).ok().filter(|size| *size <= self.0);
        let (buffer, _) = memory::download_buffer(size.ok_or(none)?).map_err(|_| none)?;
        let mut memory = Memory::new(buffer);
        if let Some((before, received)) = previous {
            let received = usize::try_from(received).unwrap_or(usize::MAX);
            let all = before.rest(0);
            let kept = all.get(..received).unwrap_or(all);
            memory.write(0, Parts::new(&[kept]));
        }
        Ok(memory)
    }

    fn progress(&mut self, _: u64, _: Option<u64>) {}
}
