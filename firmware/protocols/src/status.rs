//! The status codes by which functions tell refusals.

use uefi_raw::Status;
use wireboot_protocols::Refusal;

pub(crate) fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::NotStarted => Status::NOT_STARTED,
        Refusal::AlreadyStarted => Status::ALREADY_STARTED,
        Refusal::DeviceError => Status::DEVICE_ERROR,
        Refusal::InvalidParameter => Status::INVALID_PARAMETER,
        Refusal::Timeout => Status::TIMEOUT,
        Refusal::NoMedia => Status::NO_MEDIA,
        Refusal::OutOfResources => Status::OUT_OF_RESOURCES,
        Refusal::Aborted => Status::ABORTED,
        Refusal::BadBufferSize => Status::BAD_BUFFER_SIZE,
        Refusal::IcmpError => Status::ICMP_ERROR,
        Refusal::TftpError => Status::TFTP_ERROR,
        Refusal::NoResponse => Status::NO_RESPONSE,
        Refusal::Unsupported => Status::UNSUPPORTED,
        Refusal::BufferTooSmall(_) => Status::BUFFER_TOO_SMALL,
        Refusal::NotReady => Status::NOT_READY,
        Refusal::AccessDenied => Status::ACCESS_DENIED,
        Refusal::NotFound => Status::NOT_FOUND,
        Refusal::WriteProtected => Status::WRITE_PROTECTED,
    }
}

/// Where a call that is at work is told by ACCESS_DENIED.
pub(crate) fn denied(refusal: Refusal) -> Status {
    match refusal {
        Refusal::NotReady => Status::ACCESS_DENIED,
        refusal => status(refusal),
    }
}
