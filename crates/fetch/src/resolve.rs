//! From the host in a URL to addresses.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Why a name has no address.
#[derive(Clone, Debug)]
pub struct Unresolved {
    /// What went wrong and what to do, in words for the user.
    pub reason: String,
    /// The name servers do not answer, or fail: they may know later.
    pub passing: bool,
}

/// Finds the addresses of host names.
#[expect(
    async_fn_in_trait,
    reason = "single-threaded engine: no Send bound is wanted"
)]
pub trait Resolve {
    /// The addresses of `host`, best first.
    ///
    /// # Errors
    /// [`Unresolved`]. Retries are over by then.
    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved>;
}
