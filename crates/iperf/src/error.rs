//! Why a test did not come to its end.

use alloc::string::String;
use core::net::SocketAddr;
use wireboot_net::NetError;

/// Why a test did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection to the server.
    #[error("no iperf3 server at {0}: {1}. Start one there: iperf3 -s")]
    Connect(SocketAddr, NetError),
    /// The control connection broke.
    #[error("the control connection, {0}: {1}")]
    Control(&'static str, NetError),
    /// One of the streams that carry the test's data broke.
    #[error("a stream of data: {0}")]
    Stream(NetError),
    /// The server does not answer the first datagram of a stream.
    #[error("UDP port {0} of the server does not answer; does a firewall let it pass?")]
    NoDatagrams(u16),
    /// The server closed the control connection.
    #[error("the server closed the control connection, {0}; its output says why")]
    Closed(&'static str),
    /// It serves somebody else.
    #[error("the server is busy with another test; try again when that has ended")]
    Busy,
    /// Whoever runs the server stopped it during the test.
    #[error("the server was stopped during the test")]
    Terminated,
    /// It says that it failed.
    #[error("the server failed (iperf3's error {code}, errno {errno}); its output says why")]
    Server {
        /// Its number in iperf3's list of errors.
        code: i32,
        /// The `errno` of the server's system.
        errno: i32,
    },
    /// A state that does not belong there.
    #[error(
        "the server says {state}, {when}: it is no iperf3 server, or one of a version that is not known here"
    )]
    State {
        /// The byte that it sent.
        state: i8,
        /// Where the test was.
        when: &'static str,
    },
    /// A message of impossible length.
    #[error("the server announces {0} bytes of results; no test has more than 262144")]
    TooLong(u32),
    /// Results that are none.
    #[error("the server's results are not understood: {0}")]
    Results(String),
    /// Nothing came through for so many seconds.
    #[error("nothing came through for {0} s")]
    Stalled(u64),
    /// Segments or datagrams of a size that the path does not take.
    #[error("{0}")]
    Size(&'static str),
}
