//! The way of a loader's own TFTP: UDP by SNP, or by the base code.

use crate::report::Failure;
use alloc::vec::Vec;

/// Datagrams to and from the boot server.
pub(crate) trait Datagrams {
    /// Sends one to a port of the server.
    fn send(&mut self, port: u16, data: &[u8]) -> Result<(), Failure>;

    /// The next that came from the server, with its port there. `None` when nothing came for about a second.
    fn receive(&mut self) -> Result<Option<(u16, Vec<u8>)>, Failure>;
}
