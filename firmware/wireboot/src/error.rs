//! Why nothing was booted, for the user.

use crate::driver::Driver;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_fetch::FetchError;
use wireboot_fetch::http::Problem;
use wireboot_fetch::url::UrlError;
use wireboot_fetch::verify::WrongDigest;
use wireboot_nic::{Fault, e1000e, virtio};
use wireboot_platform::Status;
use wireboot_platform::undi::UndiError;
use wireboot_wire::bootconf::Notice;

/// Why nothing was booted. Each text is complete: what, whom, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no network interface that anybody drives.
    #[error(
        "no usable network card: neither wireboot nor the firmware has a driver for one, or the setting nic excludes it"
    )]
    NoInterface,
    /// An interface has no link.
    #[error("no link on {0}; check the cable and the switch's port")]
    NoLink(String),
    /// We were booted over an interface that the wanted driver does not drive.
    #[error(
        "the firmware booted over {0}; the driver that the setting nic asks for does not drive it: leave the setting out"
    )]
    Unsupported(String),
    /// The firmware's driver does not let go.
    #[error(
        "the firmware does not give up {interface} ({status}); close whatever uses the network"
    )]
    Refused {
        /// PCI address and ids where there are such.
        interface: String,
        /// Of the first call that failed.
        status: Status,
    },
    /// The device does not start.
    #[error("the network card does not start: {0}")]
    Start(#[from] virtio::InitError),
    /// Neither does this one, of Intel.
    #[error("the network card does not start: {0}")]
    StartIntel(#[from] e1000e::InitError),
    /// The firmware's driver does not, by UNDI.
    #[error("{interface} does not start by UNDI: {reason}")]
    Undi {
        /// PCI address and ids where there are such.
        interface: String,
        /// At which step of UEFI 2.10, appendix E.
        reason: UndiError,
    },
    /// The device failed at work.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// An AP (application processor) that ran the network is lost. The BSP (bootstrap processor) runs it now. Its jobs have to be given
    /// again.
    #[error("the processor that ran the network was lost")]
    Processor,
    /// What runs on an AP that is lost cannot be ended, so the network interface cannot be used.
    #[error(
        "the firmware does not end what runs on processor {0}; start wireboot.efi with processors=0"
    )]
    NotKilled(usize),
    /// Our own load options are wrong.
    #[error(
        "load option {0:?} is not understood: processors=N, nic={names}, vlan=1 to vlan=4094, card=plain or ask, floor=KIB, patience=SECONDS, network=firmware or wireboot, near-end=0 or 1, report=URL, then the URL, then the program's arguments",
        names = Driver::NAMES
    )]
    Setting(String),
    /// A setting in a configuration is wrong.
    #[error("{name}: {key} {value:?} is not understood: {key} takes {takes}")]
    Configured {
        /// URL of the configuration, or "the embedded configuration".
        name: String,
        /// One of `bootconf::SETTINGS`.
        key: &'static str,
        /// As written behind the key.
        value: String,
        /// What it takes instead.
        takes: &'static str,
    },
    /// A lease or file could not be had.
    #[error(transparent)]
    Fetch(Box<FetchError>),
    /// What the DHCP server says is to be booted cannot be.
    #[error("the boot file that the DHCP server names cannot be fetched: {0}")]
    BootFile(UrlError),
    /// A URL in load options or configuration is none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A relative URL with nothing to be relative to.
    #[error("{0:?} is relative, but this configuration came from no server: write the whole URL")]
    Relative(String),
    /// A configuration with errors.
    #[error("{name}: {} error(s)", .errors.len())]
    Config {
        /// Where it came from.
        name: String,
        /// Each with its line.
        errors: Vec<Notice>,
    },
    /// A file is not the one that was meant.
    #[error("{url}: {error}")]
    Digest {
        /// Where the file came from.
        url: String,
        /// The digest of what came, and the one that it should have.
        error: WrongDigest,
    },
    /// There are no load options, no embedded entries and no boot file, nor a server to ask for `wireboot.conf`.
    #[error(
        "nothing to boot: no load options, no embedded configuration, no boot file for user class wireboot, and no server \
         to look for wireboot.conf on; put a wireboot.conf beside wireboot.efi"
    )]
    Nothing,
    /// The user pressed Escape.
    #[error("stopped by Esc")]
    Stopped,
    /// A file that is neither a configuration nor a program.
    #[error("{url}: is {what}")]
    Misfit {
        /// Where it came from, after redirects.
        url: String,
        /// What the file is instead: a web page, for example.
        what: &'static str,
    },
    /// The firmware does not load the program.
    #[error("{url}: {}", load_text(.what, .status))]
    Load {
        /// Where the program came from.
        url: String,
        /// What it is, where that is no program for this machine.
        what: Option<&'static str>,
        /// What LoadImage answered.
        status: Status,
    },
    /// The firmware has no memory left.
    #[error("the firmware refuses {what} ({status})")]
    Firmware {
        /// For the text: "refuses WHAT".
        what: &'static str,
        /// What the call returned.
        status: Status,
    },
    /// The server of the setting `report` does not take the report.
    #[error("{url} does not take the report: {reason}")]
    Report {
        /// Where the report was sent: the value of the setting.
        url: String,
        /// Its answer, or why there is none.
        reason: String,
    },
    /// The program was started and came back.
    #[error("{url} returned ({status})")]
    Returned {
        /// Where the program came from.
        url: String,
        /// What StartImage returned: the exit status of the program, or why the firmware did not start it.
        status: Status,
    },
}

/// How far a network card led that was in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    /// Not to a server for a file, or that is not told.
    Nobody,
    /// To where a server was asked for a file, or a name server for the file's; to another file, or to the name of one that cannot be had.
    Network,
    /// To a server that has no such file.
    Server,
}

impl From<FetchError> for Error {
    fn from(error: FetchError) -> Self {
        Self::Fetch(Box::new(error))
    }
}

fn load_text(what: &Option<&'static str>, status: &Status) -> String {
    if let Some(what) = what {
        return alloc::format!("is {what} (the firmware says {status})");
    }
    let reason = match *status {
        Status::LOAD_ERROR | Status::UNSUPPORTED | Status::INVALID_PARAMETER => {
            "is no EFI program for this machine, or it is truncated or damaged"
        }
        Status::SECURITY_VIOLATION | Status::ACCESS_DENIED => {
            "is refused by Secure Boot: sign it with a key that the machine trusts"
        }
        Status::OUT_OF_RESOURCES => {
            "is too large for this machine's memory: give it more, or boot a smaller file"
        }
        _ => "cannot be loaded",
    };
    alloc::format!("{reason} (the firmware says {status})")
}

impl Error {
    /// Before the first file is there: whether another network card could do better.
    pub fn is_card_failure(&self) -> bool {
        matches!(
            self,
            Self::NoLink(_)
                | Self::Refused { .. }
                | Self::Start(_)
                | Self::StartIntel(_)
                | Self::Undi { .. }
                | Self::Fault(_)
                | Self::Fetch(_)
                | Self::BootFile(_)
                | Self::Digest { .. }
                | Self::Nothing
        )
    }

    /// Whether what failed is one file, or its server: another entry's may be had.
    pub(crate) fn is_of_file(&self) -> bool {
        matches!(self, Self::Relative(_) | Self::Url(_)) || self.reached() > Reached::Nobody
    }

    /// How far a card led.
    pub(crate) fn reached(&self) -> Reached {
        let error = match self {
            Self::Fetch(error) => error,
            Self::BootFile(_) | Self::Digest { .. } => return Reached::Network,
            _ => return Reached::Nobody,
        };
        match **error {
            _ if error.is_answer() => Reached::Server,
            FetchError::Http(_) | FetchError::Tftp { .. } | FetchError::Unresolved { .. } => {
                Reached::Network
            }
            _ => Reached::Nobody,
        }
    }

    /// Whether time changes nothing: this network has given its answer, and it is none that can be booted.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::BootFile(_) | Self::Digest { .. })
    }

    /// Whether a host's name has no address, or none of the versions of IP that there are.
    pub(crate) fn is_of_a_name(&self) -> bool {
        let Self::Fetch(error) = self else {
            return false;
        };
        match &**error {
            FetchError::Unresolved { .. } => true,
            FetchError::Http(error) => matches!(error.problem, Problem::Resolve { .. }),
            _ => false,
        }
    }

    /// Whether our own driver did not get the card, or did not start it: another may do.
    pub fn is_native_driver_failure(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. } | Self::Start(_) | Self::StartIntel(_)
        )
    }

    /// Logs the error, for a configuration line by line.
    pub fn report(&self) {
        log::error!("{self}");
        if let Self::Config { name, errors } = self {
            for error in errors {
                log::error!("{name}: {error}");
            }
        }
    }

    /// What to tell the firmware: never success, so that it goes on.
    pub fn status(&self) -> Status {
        match self {
            Self::Load { status, .. }
            | Self::Firmware { status, .. }
            | Self::Refused { status, .. }
            | Self::Returned { status, .. }
                if status.is_error() =>
            {
                *status
            }
            Self::Digest { .. } => Status::SECURITY_VIOLATION,
            Self::Fault(_)
            | Self::Start(_)
            | Self::StartIntel(_)
            | Self::Undi { .. }
            | Self::NotKilled(_) => Status::DEVICE_ERROR,
            Self::NoInterface | Self::Unsupported(_) | Self::Misfit { .. } => Status::UNSUPPORTED,
            Self::NoLink(_) => Status::NO_MEDIA,
            Self::Fetch(_) => Status::NO_RESPONSE,
            _ => Status::ABORTED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use wireboot_fetch::http::HttpError;
    use wireboot_fetch::tftp::TftpError;
    use wireboot_fetch::url::Url;
    use wireboot_fetch::verify::Sha256Digest;

    #[test]
    fn a_program_that_is_refused_is_called_what_it_is() {
        let text = |what, status| {
            let url = "http://a/b".to_string();
            Error::Load { url, what, status }.to_string()
        };
        let known = text(Some("an ISO"), Status::UNSUPPORTED);
        assert!(known.starts_with("http://a/b: is an ISO (the firmware says "));
        // Secure Boot refuses what is no program by the same status as one that is not signed.
        let unsigned = text(None, Status::SECURITY_VIOLATION);
        assert!(unsigned.contains("Secure Boot"), "{unsigned}");
        let other = text(Some("an ISO"), Status::SECURITY_VIOLATION);
        assert!(!other.contains("Secure Boot"), "{other}");
    }

    #[test]
    fn what_led_farther_is_told() {
        let url = || Url::parse("tftp://10.0.0.1/a").unwrap();
        let by_tftp = |error| {
            Error::from(FetchError::Tftp {
                url: url(),
                servers: Vec::new(),
                error: Box::new(error),
            })
        };
        let said = |code| TftpError::Server {
            code,
            text: String::new(),
        };
        let reason = String::new();
        for (error, reached) in [
            (Error::NoLink(String::new()), Reached::Nobody),
            (
                Error::from(FetchError::Unresolved { url: url(), reason }),
                Reached::Network,
            ),
            (
                by_tftp(TftpError::Refused {
                    requests: 1,
                    port: 69,
                }),
                Reached::Network,
            ),
            // Something in between answers to everything, or names what we cannot fetch.
            (
                Error::Digest {
                    url: String::new(),
                    error: WrongDigest {
                        expected: Sha256Digest([0; 32]),
                        received: Sha256Digest([1; 32]),
                    },
                },
                Reached::Network,
            ),
            (
                Error::BootFile(Url::parse("https://10.0.0.1/a").unwrap_err()),
                Reached::Network,
            ),
            // Busy, or anything.
            (by_tftp(said(0)), Reached::Network),
            (by_tftp(said(1)), Reached::Server),
            (by_tftp(said(2)), Reached::Server),
        ] {
            assert_eq!(error.reached(), reached, "{error}");
            // Another card may lead farther.
            assert!(error.is_card_failure(), "{error}");
        }
        assert!(Reached::Nobody < Reached::Network && Reached::Network < Reached::Server);
    }

    #[test]
    fn another_entry_may_be_had_where_one_file_failed() {
        let url = || Url::parse("tftp://10.0.0.1/a").unwrap();
        let reason = String::new();
        for of_file in [
            Error::Relative(String::new()),
            Error::Url(Url::parse("https://10.0.0.1/a").unwrap_err()),
            Error::from(FetchError::Unresolved { url: url(), reason }),
        ] {
            assert!(of_file.is_of_file(), "{of_file}");
        }
        for other in [
            Error::NoLink(String::new()),
            Error::Nothing,
            Error::Stopped,
            Error::from(FetchError::Cancelled { url: url() }),
        ] {
            assert!(!other.is_of_file(), "{other}");
        }
    }

    #[test]
    fn a_name_without_an_address_is_told_from_other_failures() {
        let url = || Url::parse("http://boot.lab/a").unwrap();
        let by_http = |problem| {
            Error::from(FetchError::from(HttpError {
                url: url(),
                server: None,
                attempts: 1,
                problem,
            }))
        };
        let reason = String::new();
        let unknown = Problem::Resolve {
            host: String::new(),
            reason: reason.clone(),
            passing: false,
        };
        assert!(by_http(unknown).is_of_a_name());
        assert!(Error::from(FetchError::Unresolved { url: url(), reason }).is_of_a_name());
        assert!(!by_http(Problem::NoAnswer).is_of_a_name());
        assert!(!Error::Nothing.is_of_a_name());
    }
}
