//! Engines on this processor for programs that measure: of the one type that a boot has here, so that the way of a packet is there once, and
//! built for speed whatever the caller is built for.

use crate::card::AnyNic;
use wireboot_fetch::Service;
use wireboot_net::{Engine, Instant};
use wireboot_nic::Fault;
use wireboot_nic::vlan::Vlan;

/// A card as an engine of a boot has it.
pub type Cable = Vlan<AnyNic>;

/// The card without VLAN tags.
pub fn cable(nic: AnyNic) -> Cable {
    Vlan::new(nic, None)
}

/// One turn of an engine: [`Engine::poll`].
#[inline(never)]
pub fn turn(engine: &mut Engine<Cable>, now: Instant) -> Result<bool, Fault> {
    engine.poll(now)
}

/// One turn of a service: [`Service::poll`].
#[inline(never)]
pub fn serve(service: &mut Service<Cable>, now: Instant) -> Result<bool, Fault> {
    service.poll(now)
}
