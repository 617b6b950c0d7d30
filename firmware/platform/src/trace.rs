//! Which services of the firmware's its network drivers call, how often, from where, and how long they take.
//!
//! While a [`Tracer`] lives, the members of the service tables, of one card's protocols and of the console's lead through code of ours. What
//! the firmware's core calls within itself is not seen, as it does not go through the tables.

mod entries;
mod record;
mod services;
mod work;

pub use record::Site;
pub use services::{RECEIVE, TRANSMIT};
pub use work::{PacketWork, Worked};

use crate::claim::pci::Candidate;
use crate::firmware_net::{handle_with, open};
use crate::shim::{self, Shim};
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use entries::{Function, ORIGINALS, RECORD, TIMED, entries};
use services::{ALL, Table};
use uefi::boot::OpenProtocolAttributes;
use uefi::proto::network::snp::SimpleNetwork;
use uefi::{Identify, Status};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use uefi_raw::table::Header;

/// Why nothing is looked at.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A member was not replaced.
    #[error(transparent)]
    Shim(#[from] shim::Refused),
    /// The firmware does not show a table or protocol.
    #[error("the firmware does not show its services: {0}")]
    Firmware(uefi::Error),
}

impl From<uefi::Error> for TraceError {
    fn from(error: uefi::Error) -> Self {
        Self::Firmware(error)
    }
}

/// Looks at calls until it is dropped. One at a time.
#[derive(Debug)]
pub struct Tracer {
    shims: Vec<Shim>,
}

/// The calls of services that a [`Tracer`] has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// One for each place and the service that it called, in no order.
    pub sites: Vec<Site>,
    /// Calls that there was no room to note.
    pub lost: u64,
}

impl Site {
    /// The service's name in the specification.
    #[must_use]
    pub fn service(&self) -> &'static str {
        ALL.get(self.service).map_or("", |service| service.name)
    }
}

/// Where the card's `EFI_SIMPLE_NETWORK_PROTOCOL` is.
fn simple_network(card: &Candidate) -> uefi::Result<NonNull<SimpleNetworkProtocol>> {
    let interface = handle_with(card, &SimpleNetwork::GUID, |_| true)?;
    // SAFETY: only its address is used, while the firmware's drivers stay connected.
    let snp = unsafe {
        open::<SimpleNetwork>(interface, OpenProtocolAttributes::GetProtocol)?
            .get_mut()
            .map(core::ptr::from_mut)
    };
    let snp = snp.and_then(NonNull::new).map(NonNull::cast);
    snp.ok_or_else(|| Status::UNSUPPORTED.into())
}

/// Where the tables are.
struct Places {
    boot: NonNull<Header>,
    runtime: NonNull<Header>,
    card: NonNull<Header>,
    snp: NonNull<Header>,
    input: NonNull<Header>,
    output: NonNull<Header>,
}

impl Places {
    fn find(card: &Candidate) -> uefi::Result<Self> {
        fn some<T>(place: *mut T) -> uefi::Result<NonNull<Header>> {
            let place = NonNull::new(place.cast());
            place.ok_or_else(|| Status::UNSUPPORTED.into())
        }
        let system = uefi::table::system_table_raw().ok_or(Status::UNSUPPORTED)?;
        // SAFETY: the system table is live, as boot services run.
        let system = unsafe { system.as_ref() };
        Ok(Self {
            boot: some(system.boot_services)?,
            runtime: some(system.runtime_services)?,
            card: card.io()?.cast(),
            snp: simple_network(card)?.cast(),
            input: some(system.stdin)?,
            output: some(system.stdout)?,
        })
    }

    /// The table, and whether it has a header.
    fn of(&self, table: Table) -> (NonNull<Header>, bool) {
        match table {
            Table::Boot => (self.boot, true),
            Table::Runtime => (self.runtime, true),
            Table::PciIo => (self.card, false),
            Table::Snp => (self.snp, false),
            Table::ConIn => (self.input, false),
            Table::ConOut => (self.output, false),
        }
    }
}

impl Tracer {
    /// Looks at what the firmware calls while it uses `card`: counts, and takes times where `timed` says so. The card's drivers must stay connected
    /// until the tracer is dropped.
    ///
    /// # Errors
    /// Where the firmware does not show the tables, or lets nobody write to them.
    // For `entries`, which see.
    #[inline]
    pub fn start(card: &Candidate, timed: bool) -> Result<Self, TraceError> {
        let places = Places::find(card)?;
        RECORD.clear();
        TIMED.store(timed, Ordering::Relaxed);
        let mut tracer = Self {
            shims: Vec::with_capacity(ALL.len()),
        };
        for ((service, entry), original) in ALL.iter().zip(entries(timed)).zip(&ORIGINALS) {
            let (table, has_header) = places.of(service.table);
            // SAFETY: the tables are live while boot services run, and the card's protocols while its drivers are connected. The offset is
            // the member's; an entry goes on to the original with the caller's arguments.
            let shim = unsafe {
                let member = table.byte_add(service.offset).cast::<Function>();
                let header = has_header.then_some(table);
                shim::replace(member, header, entry, original)?
            };
            tracer.shims.push(shim);
        }
        Ok(tracer)
    }

    /// Looks no more, and tells what was seen.
    #[must_use]
    pub fn finish(self) -> Calls {
        drop(self);
        let (sites, lost) = RECORD.read();
        Calls {
            sites: sites.collect(),
            lost,
        }
    }
}
