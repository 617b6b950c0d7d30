//! Why something was not measured.

use alloc::string::String;
use core::net::IpAddr;
use wireboot_boot::error::Error as BootError;
use wireboot_fetch::FetchError;
use wireboot_fetch::url::UrlError;
use wireboot_net::NetError;
use wireboot_nic::Fault;
use wireboot_nic::vlan::VlanId;
use wireboot_platform::Status;
use wireboot_platform::frames::WatchError;

/// Why something was not measured. Each text is complete: what, whom, what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// What a boot needs, too, is not to be had.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// A word of the load options is wrong.
    #[error("{word:?} is not understood: any of {known}")]
    Options {
        word: String,
        /// What could stand there.
        known: String,
    },
    /// Nobody names a server by its address.
    #[error(
        "neither DHCP nor the URL that this program came from names a server by its address; doctor.efi ladder server=ADDRESS does"
    )]
    NoServer,
    /// Nobody to measure against.
    #[error(
        "no sender answers at {0}; wireboot serve --reports is one, wireboot nic serve too, and the laboratory starts one"
    )]
    NoSender(IpAddr),
    /// The sender says hello, and no more.
    #[error(
        "the sender at {0} answers, and does not do what it is asked: other machines have their turn, or, as wireboot serve, it counts no frames; its log says what it could \
         not send"
    )]
    Unserved(IpAddr),
    /// What is sent to the sender does not arrive.
    #[error("cannot send to the measuring server: {0}")]
    Sink(NetError),
    /// There is no address of the version of IP that is to be measured.
    #[error(
        "this machine has no address that reaches {0}; check that DHCP serves that version of IP"
    )]
    NoAddress(IpAddr),
    /// The firmware's calls cannot be looked at.
    #[error(transparent)]
    Trace(#[from] wireboot_platform::trace::TraceError),
    /// The firmware does not boot over a network.
    #[error(
        "the firmware has no network boot option, and no card that it boots from; switch network boot on in its setup"
    )]
    NoBootOption,
    /// The frames of the firmware's network cannot be seen.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// What the firmware is to load must lie where it finds it again.
    #[error(
        "doctor.efi did not come from a disk: copy it and recorder.efi to a stick, or to the machine's EFI system partition, and start it \
         from there"
    )]
    NotFromDisk,
    /// The driver does not lie beside this program.
    #[error("{0} is not on the disk that doctor.efi came from: copy recorder.efi there")]
    NoRecorder(String),
    /// The firmware does not part with a variable.
    #[error(
        "the firmware keeps {0}: remove it in its setup, or by the shell's command bcfg driver"
    )]
    Kept(String),
    /// A server says nothing to the report.
    #[error("{0} does not answer within a minute; server=URL names another server")]
    NoAnswer(String),
    /// A server does not take the report.
    #[error("{url} answers {status}: {}", match status {
        404 | 405 => "`wireboot serve` takes reports with --reports, and server=URL names another server",
        _ => "its messages say why",
    })]
    NotTaken {
        /// Where it was sent.
        url: String,
        /// The answer's status code.
        status: u16,
    },
    /// Nobody says against whom throughput is to be measured.
    #[error("nobody says where the server is: start `iperf3 -s` there and write iperf3=ADDRESS")]
    NoIperfServer,
    /// The same for the matrix of sizes.
    #[error("nobody says where the server is: start `iperf3 -s` there and write ttcp=ADDRESS")]
    NoTtcpServer,
    /// A test of throughput did not come to its end.
    #[error(transparent)]
    Throughput(wireboot_iperf::Error),
    /// The firmware boots from elsewhere.
    #[error("the firmware was not told a file to fetch by TFTP")]
    NoTftp,
    /// Nobody can ask the BSP where it is.
    #[error(transparent)]
    Profiler(#[from] wireboot_platform::profiler::Unable),
    /// The AP has not asked the BSP.
    #[error(
        "the AP (application processor) has no access to the interrupts of others, so nobody asks the BSP where it is"
    )]
    NotAsked,
    /// What was taken for the firmware's timer has not ticked.
    #[error("the only interrupt that the firmware handles did not come: it is not its timer's")]
    NotTicked,
    /// Frames that are measured have no tag.
    #[error(
        "this machine is in VLAN {0}, and frames are measured without a tag: connect it to a port of the switch that has this VLAN untagged"
    )]
    Vlan(VlanId),
    /// Nobody names a boot file.
    #[error("neither DHCP nor the URL that this program came from names a boot file")]
    NoBootFile,
    /// The user does not want to wait.
    #[error("ended by the Esc key; what was measured until then is in the report")]
    Ended,
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
            Self::NoSender(_)
            | Self::Unserved(_)
            | Self::Sink(_)
            | Self::NoAnswer(_)
            | Self::Throughput(_) => Status::NO_RESPONSE,
            Self::Options { .. } => Status::INVALID_PARAMETER,
            Self::Trace(_) | Self::Vlan(_) => Status::UNSUPPORTED,
            Self::NoServer
            | Self::NoTftp
            | Self::NoBootFile
            | Self::Profiler(_)
            | Self::NotAsked
            | Self::NotTicked
            | Self::NoIperfServer
            | Self::NoTtcpServer
            | Self::NoAddress(_)
            | Self::NoBootOption
            | Self::NotFromDisk
            | Self::NoRecorder(_)
            | Self::Kept(_)
            | Self::NotTaken { .. }
            | Self::Watch(_)
            | Self::Ended
            | Self::Slow(_) => Status::ABORTED,
        }
    }
}
