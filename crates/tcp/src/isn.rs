//! Initial sequence numbers that no one can compute from others (RFC 6528).

use crate::time::Instant;
use core::hash::{Hash, Hasher};
use core::net::SocketAddr;
use siphasher::sip::SipHasher24;

/// Makes initial sequence numbers: a clock of 4 microseconds, plus a keyed hash of the connection's addresses and ports.
#[derive(Clone)]
pub struct InitialSequence {
    hasher: SipHasher24,
}

impl InitialSequence {
    /// With a secret of 128 bits, which must be unpredictable and is used for nothing else.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Self {
        Self {
            hasher: SipHasher24::new_with_key(&secret),
        }
    }

    /// The ISS of a connection that is opened now.
    #[must_use]
    pub fn iss(&self, local: SocketAddr, remote: SocketAddr, now: Instant) -> u32 {
        let mut hasher = self.hasher;
        (local, remote).hash(&mut hasher);
        let clock = now.total_micros() / 4;
        (clock as u32).wrapping_add(hasher.finish() as u32)
    }
}
