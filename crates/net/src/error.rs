//! What can go wrong on the network.

use wireboot_nic::Fault;

/// Why the network did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// The peer answered with a reset: nobody listens there.
    #[error("connection refused: nothing listens on that port")]
    Refused,
    /// The peer has reset the connection, or it has ended.
    #[error("the connection was reset")]
    Reset,
    /// Nothing came in time.
    #[error("no answer in time")]
    TimedOut,
    /// No address, or no route to there.
    #[error("no route: this machine has no address, or the destination needs a gateway")]
    Unreachable,
    /// A datagram that no packet of the link holds.
    #[error("the datagram is longer than a packet of this link")]
    TooLong,
    /// Too much waits to be sent.
    #[error("too many packets wait to be sent (does the next hop answer ARP?)")]
    Full,
    /// No local port is free whose packets the card brings to this engine.
    #[error("no free port leads to this queue of the network card")]
    NoPort,
    /// The NIC failed, and is of no more use.
    #[error(transparent)]
    Fault(#[from] Fault),
}
