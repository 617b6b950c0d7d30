//! Messages with descriptors over a Unix socket that does not block.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg,
    sendmsg,
};

use super::message::{HEADER_LEN, Header, MAX_PAYLOAD, MAX_REGIONS, MessageError, Request};

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The monitor has closed it.
    #[error("the monitor has closed the connection")]
    Closed,
    /// What came is no message.
    #[error("the monitor sent {0}")]
    Message(#[from] MessageError),
    /// More descriptors than any message has.
    #[error("the monitor sent more descriptors than a message can have")]
    TooManyDescriptors,
    /// It takes no replies.
    #[error("the monitor does not read its replies")]
    Stuck,
    #[error("the connection with the monitor: {0}")]
    Kernel(#[from] Errno),
}

/// A message and what came with it.
#[derive(Debug)]
pub(crate) struct Message {
    pub request: Request,
    /// Its number, for the reply.
    pub number: u32,
    /// The monitor wants to know whether it could be done.
    pub need_reply: bool,
    /// The descriptors that came with it, in the order of the message.
    pub fds: Vec<OwnedFd>,
}

/// A connection with a monitor.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: UnixStream,
    /// The message that is coming.
    bytes: [u8; HEADER_LEN + MAX_PAYLOAD],
    len: usize,
    fds: Vec<OwnedFd>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            bytes: [0; HEADER_LEN + MAX_PAYLOAD],
            len: 0,
            fds: Vec::new(),
        })
    }

    /// The next message, if all of it has come.
    pub(crate) fn receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        loop {
            let header = match self.bytes.first_chunk() {
                Some(bytes) if self.len >= HEADER_LEN => Some(Header::parse(*bytes)?),
                _ => None,
            };
            let wanted = HEADER_LEN + header.map_or(0, |header| header.len);
            if let Some(header) = header
                && self.len == wanted
            {
                let payload = self.bytes.get(HEADER_LEN..wanted).unwrap_or_default();
                let request = Request::parse(header.request, payload)?;
                self.len = 0;
                return Ok(Some(Message {
                    request,
                    number: header.request,
                    need_reply: header.need_reply,
                    fds: std::mem::take(&mut self.fds),
                }));
            }
            // Never beyond this message: the descriptors of the next are its own.
            let Some(room) = self.bytes.get_mut(self.len..wanted) else {
                return Ok(None);
            };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_REGIONS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut room = [IoSliceMut::new(room)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = match recvmsg(&self.socket, &mut room, &mut control, flags) {
                Ok(got) => got.bytes,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Err(ConnectionError::Closed),
                Err(error) => return Err(error.into()),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.fds.extend(fds);
                }
            }
            if got == 0 {
                return Err(ConnectionError::Closed);
            }
            if self.fds.len() > MAX_REGIONS {
                return Err(ConnectionError::TooManyDescriptors);
            }
            self.len += got;
        }
    }

    /// Answers the request of that number. Nothing waits for the monitor to read it.
    pub(crate) fn reply(&self, request: u32, payload: &[u8]) -> Result<(), ConnectionError> {
        let header = Header::reply(request, payload.len());
        let parts = [IoSlice::new(&header), IoSlice::new(payload)];
        let mut none = SendAncillaryBuffer::default();
        match sendmsg(&self.socket, &parts, &mut none, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == HEADER_LEN + payload.len() => Ok(()),
            // It is 20 bytes: no monitor leaves so many unread that they do not fit.
            Ok(_) | Err(Errno::AGAIN) => Err(ConnectionError::Stuck),
            Err(Errno::PIPE) => Err(ConnectionError::Closed),
            Err(error) => Err(error.into()),
        }
    }
}
