//! Why a file was not had.

use alloc::string::String;

/// Why a file was not had.
#[derive(Debug)]
pub enum Failure {
    /// It is so many bytes long, which is more than the buffer.
    TooSmall(u64),
    /// The server sent a TFTP error.
    Tftp {
        /// Its number (RFC 1350, section 5).
        code: u8,
        /// The server's own words for it; may be empty.
        text: String,
    },
    /// The server has no such file.
    NotFound,
    /// The server's host says that nobody listens there.
    Refused,
    /// Nobody answers, or no more.
    Timeout,
    /// There is no memory.
    OutOfResources,
    /// The card is dead, or something else that is not the server's fault.
    Device,
}
