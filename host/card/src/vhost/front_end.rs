//! The monitor's side of a connection: requests to a card, and what it answers.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use super::message::{HEADER_LEN, Header, MessageError, Request};
use super::session::{MULTI_QUEUE, PROTOCOL_FEATURES, REPLY_ACK};

/// How long a card may take to read a request, and to answer one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a card cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrontEndError {
    #[error(
        "the card has closed the connection: another monitor may be there, or its log tells why"
    )]
    Closed,
    #[error("the card did not answer request {0} of vhost-user within 5 s")]
    Silent(u32),
    #[error("the card answered with {0}")]
    Message(#[from] MessageError),
    #[error(
        "the card answered request {request} of vhost-user by an answer to {to} of {len} bytes"
    )]
    Answer { request: u32, to: u32, len: usize },
    #[error("the card refused request {0} of vhost-user")]
    Refused(u32),
    #[error("the connection with the card: {0}")]
    Kernel(io::Error),
}

/// What a card offers to any monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    /// Feature bits, vhost-user's own among them.
    pub features: u64,
    /// Bits of protocol features; 0 from a card without any.
    pub protocol: u64,
    /// Pairs of queues, at most; 1 from a card that does not tell.
    pub pairs: u64,
}

/// A connection with a card.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    socket: UnixStream,
    offered: Offered,
    /// The card says of each request whether it was obeyed.
    acknowledges: bool,
}

impl FrontEnd {
    /// Connects to the card that listens at `path`, and asks what it offers.
    ///
    /// # Errors
    /// [`FrontEndError`].
    pub(crate) fn connect(path: &Path) -> Result<Self, FrontEndError> {
        Self::over(UnixStream::connect(path).map_err(FrontEndError::Kernel)?)
    }

    /// The same with the card at the other end of a socket.
    ///
    /// # Errors
    /// [`FrontEndError`].
    pub(crate) fn over(socket: UnixStream) -> Result<Self, FrontEndError> {
        for set in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
            set(&socket, Some(PATIENCE)).map_err(FrontEndError::Kernel)?;
        }
        let mut card = Self {
            socket,
            offered: Offered {
                features: 0,
                protocol: 0,
                pairs: 1,
            },
            acknowledges: false,
        };
        card.offered.features = card.ask(&Request::GetFeatures)?;
        if card.has_protocol_features() {
            card.offered.protocol = card.ask(&Request::GetProtocolFeatures)?;
            let agreed = card.offered.protocol & (MULTI_QUEUE | REPLY_ACK);
            card.tell(&Request::SetProtocolFeatures(agreed), &[])?;
            card.acknowledges = agreed & REPLY_ACK != 0;
            if agreed & MULTI_QUEUE != 0 {
                card.offered.pairs = card.ask(&Request::GetQueueNumber)?;
            }
        }
        card.tell(&Request::SetOwner, &[])?;
        Ok(card)
    }

    pub(crate) fn offered(&self) -> Offered {
        self.offered
    }

    /// There are protocol features to agree on: rings are then enabled by a request of their own.
    pub(crate) fn has_protocol_features(&self) -> bool {
        self.offered.features & PROTOCOL_FEATURES != 0
    }

    /// Tells the features that the driver has accepted.
    ///
    /// # Errors
    /// As [`Self::tell`].
    pub(crate) fn set_features(&mut self, accepted: u64) -> Result<(), FrontEndError> {
        let own = self.offered.features & PROTOCOL_FEATURES;
        let features = accepted & self.offered.features | own;
        self.tell(&Request::SetFeatures(features), &[])
    }

    /// Sends a request that has an answer, and waits for that.
    ///
    /// # Errors
    /// [`FrontEndError`].
    pub(crate) fn ask(&mut self, request: &Request) -> Result<u64, FrontEndError> {
        self.send(request, false, &[])?;
        self.answer(request.number())
    }

    /// Sends a request that has none. Where the card says whether it obeys, that is waited for.
    ///
    /// # Errors
    /// [`FrontEndError`].
    pub(crate) fn tell(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), FrontEndError> {
        self.send(request, self.acknowledges, fds)?;
        if self.acknowledges && self.answer(request.number())? != 0 {
            return Err(FrontEndError::Refused(request.number()));
        }
        Ok(())
    }

    /// Whether the card is still there.
    pub(crate) fn is_open(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.socket, &mut [0; 1], flags) {
            Ok((got, _)) => got != 0,
            Err(error) => matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
        }
    }

    fn send(
        &self,
        request: &Request,
        need_reply: bool,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), FrontEndError> {
        let number = request.number();
        let payload = request.payload();
        let header = Header::request(number, need_reply, payload.len());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let held = control.push(SendAncillaryMessage::ScmRights(fds));
            debug_assert!(held, "no request of ours has two descriptors");
        }
        let parts = [IoSlice::new(&header), IoSlice::new(&payload)];
        match sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == HEADER_LEN + payload.len() => Ok(()),
            Ok(_) => Err(FrontEndError::Silent(number)),
            Err(error) => Err(failure(error.into(), number)),
        }
    }

    /// The answer to a request: all that are asked have one number.
    fn answer(&mut self, request: u32) -> Result<u64, FrontEndError> {
        let failed = |error| failure(error, request);
        let mut header = [0; HEADER_LEN];
        self.socket.read_exact(&mut header).map_err(failed)?;
        let Header {
            request: to, len, ..
        } = Header::parse_reply(header)?;
        let mut bytes = [0; 8];
        if to != request || len != bytes.len() {
            return Err(FrontEndError::Answer { request, to, len });
        }
        self.socket.read_exact(&mut bytes).map_err(failed)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

fn failure(error: io::Error, request: u32) -> FrontEndError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => FrontEndError::Silent(request),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            FrontEndError::Closed
        }
        _ => FrontEndError::Kernel(error),
    }
}
