//! From the host in a URL to addresses.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Finds the addresses of host names.
#[expect(
    async_fn_in_trait,
    reason = "single-threaded engine: no Send bound is wanted"
)]
pub trait Resolve {
    /// The addresses of `host`, best first.
    ///
    /// # Errors
    /// What went wrong and what to do, in words for the user. Retries are over by then.
    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String>;
}
