//! Where a downloaded file goes: memory that its receiver gives, asked for as soon as the size is known.

use wireboot_net::Memory;

/// The receiver of one file. A download asks it for memory and reports progress to it.
///
/// The protocols run on one processor and are polled by one engine, so the returned futures need not be
/// `Send`.
#[expect(
    async_fn_in_trait,
    reason = "single-threaded engine: no Send bound is wanted"
)]
pub trait Destination {
    /// Memory of at least `bytes` bytes (never asked for 0). `bytes` is the size of the whole file when the
    /// server announced it, else a size to go on with, which later calls enlarge.
    ///
    /// `previous` is the memory given before, with the number of bytes at its start that hold received
    /// data. The receiver keeps those bytes: the returned memory starts with a copy of them (or is
    /// the same memory, grown).
    ///
    /// # Errors
    /// [`DestinationError`] ends the download; it is not retried.
    async fn memory(
        &mut self,
        bytes: u64,
        previous: Option<(Memory, u64)>,
    ) -> Result<Memory, DestinationError>;

    /// `received` bytes of the file are in memory, of `total` if that is known; not only at its start when the file comes
    /// in parts. Called often: it must be cheap. `received` can go back when a download starts anew.
    fn progress(&mut self, received: u64, total: Option<u64>);
}

/// Why the receiver ended a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The machine has no free memory of that size.
    #[error("no memory for {bytes} bytes: give the machine more memory, or boot a smaller file")]
    NoMemory {
        /// What was asked for, in bytes.
        bytes: u64,
    },
    /// The receiver wants the file no more.
    #[error("cancelled")]
    Cancelled,
}
