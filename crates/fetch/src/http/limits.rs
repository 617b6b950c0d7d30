//! How long a server may take for what.

use wireboot_net::Duration;

/// How long a connection may take to be made.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that sends nothing for so long is asked again.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// Longest `Retry-After` obeyed.
pub(super) const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(30);
