//! Files by HTTP/1.1 (RFC 9110, RFC 9112): GET, redirects, connections used again, and transfers that go on
//! where they broke off.
//!
//! A body goes from the wire straight to the memory of its [`Destination`](crate::destination::Destination). What was received is never mixed
//! with another version of the file: a transfer is resumed only if the server gave a strong validator, which goes into
//! `If-Range`; else it starts anew. A body without a length in HTTP/1.0 style ends where the server closes; whether
//! it is complete only a digest can tell ([`crate::verify`]).
//!
//! A large file comes over several connections, if the server can send ranges and it is distant or other APs (application processors) help
//! (modules `ranges` and `team`).

mod body;
pub(crate) mod chunked;
mod connections;
mod download;
mod error;
mod exchange;
pub(crate) mod head;
mod limits;
mod patience;
mod piece;
mod ranges;
pub(crate) mod request;
mod resolved;
pub(crate) mod source;
pub(crate) mod team;

pub use connections::Connections;
pub use download::{Fetched, get};
pub use error::{ChunkError, HeadError, HttpError, Problem};
pub use exchange::{Request, ResponseHead, ask_on};
pub(crate) use exchange::{Taker, exchange};
pub(crate) use piece::{Carrier, Piece, Tally};
pub use source::HttpStats;

#[cfg(test)]
mod tests;
