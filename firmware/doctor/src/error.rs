//! Why something was not measured.

use alloc::string::String;
use core::net::IpAddr;
use wireboot_boot::error::Error as BootError;
use wireboot_fetch::FetchError;
use wireboot_fetch::url::UrlError;
use wireboot_net::NetError;
use wireboot_nic::Fault;
use wireboot_platform::Status;

/// Why something was not measured. Each text is complete: what, whom, what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// What a boot needs, too, is not to be had.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// A word of the load options is wrong.
    #[error("{word:?} is not understood: any of {known}")]
    Options {
        /// That word.
        word: String,
        /// What could stand there.
        known: String,
    },
    /// Neither the load options nor DHCP name a server.
    #[error("nobody says where the sender is: write server=ADDRESS")]
    NoServer,
    /// Nobody to measure against.
    #[error("no sender answers at {0}; wireboot lab ladder starts one")]
    NoSender(IpAddr),
    /// What is sent to the sender does not arrive.
    #[error("sending by TCP to the sender: {0}")]
    Sink(NetError),
    /// There is no address of the version of IP that is to be measured.
    #[error(
        "this machine has no address that reaches {0}; check that DHCP serves that version of IP"
    )]
    NoAddress(IpAddr),
    /// A file does not end.
    #[error("{0}: more than a minute is too long to be measured; name a smaller file")]
    Slow(String),
}

impl Error {
    /// `word` of the load options is none of the `known` ones.
    pub(crate) fn options(word: &str, known: impl Into<String>) -> Self {
        Self::Options {
            word: word.into(),
            known: known.into(),
        }
    }
}

impl From<FetchError> for Error {
    fn from(error: FetchError) -> Self {
        Self::Boot(error.into())
    }
}

impl From<UrlError> for Error {
    fn from(error: UrlError) -> Self {
        Self::Boot(error.into())
    }
}

impl From<Fault> for Error {
    fn from(error: Fault) -> Self {
        Self::Boot(error.into())
    }
}

/// What the firmware does not do.
pub(crate) fn refused(what: &'static str) -> impl Fn(wireboot_platform::Error) -> Error {
    move |error| {
        Error::Boot(BootError::Firmware {
            what,
            status: error.status(),
        })
    }
}

impl Error {
    /// What to tell the firmware.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Boot(error) => error.status(),
            Self::NoSender(_) | Self::Sink(_) => Status::NO_RESPONSE,
            Self::Options { .. } => Status::INVALID_PARAMETER,
            Self::NoServer | Self::NoAddress(_) | Self::Slow(_) => Status::ABORTED,
        }
    }
}
