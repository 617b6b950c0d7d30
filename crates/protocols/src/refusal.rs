//! Why a call is refused.

/// Why a call is refused, by the names of EFI_STATUS (UEFI 2.10, appendix D).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// EFI_NOT_STARTED: in this state the call does nothing.
    #[error("not started")]
    NotStarted,
    /// EFI_ALREADY_STARTED: somebody has started the interface before.
    #[error("already started")]
    AlreadyStarted,
    /// EFI_DEVICE_ERROR: the state is another one than the call is for, or the card is dead.
    #[error("device error")]
    DeviceError,
    /// EFI_INVALID_PARAMETER: an argument that the call cannot have in any state.
    #[error("invalid parameter")]
    InvalidParameter,
    /// EFI_UNSUPPORTED: the specification has it, and this interface has not.
    #[error("unsupported")]
    Unsupported,
    /// EFI_BUFFER_TOO_SMALL: so many bytes are needed.
    #[error("{0} bytes are needed")]
    BufferTooSmall(usize),
    /// EFI_NOT_READY: nothing has come, or there is no room.
    #[error("not ready")]
    NotReady,
    /// EFI_TIMEOUT: nobody has answered.
    #[error("nobody answers")]
    Timeout,
    /// EFI_NO_MEDIA: the card has no link.
    #[error("the network card has no link")]
    NoMedia,
    /// EFI_OUT_OF_RESOURCES: there is no memory, or no room for more.
    #[error("no memory")]
    OutOfResources,
    /// EFI_ABORTED: the caller's callback wants no more.
    #[error("ended by the caller")]
    Aborted,
    /// EFI_BAD_BUFFER_SIZE: more than can be sent, or not what its kind has.
    #[error("a buffer of the wrong size")]
    BadBufferSize,
    /// EFI_ICMP_ERROR: the network says that it cannot be.
    #[error("an ICMP error came")]
    IcmpError,
    /// EFI_TFTP_ERROR: the server says that it cannot be.
    #[error("a TFTP error came")]
    TftpError,
    /// EFI_NO_RESPONSE: there were answers, and none of a boot server.
    #[error("no server offers to boot")]
    NoResponse,
    /// EFI_ACCESS_DENIED: what is asked for is in use, or there is none.
    #[error("access denied")]
    AccessDenied,
    /// EFI_NOT_FOUND: there is none such.
    #[error("not found")]
    NotFound,
    /// EFI_WRITE_PROTECTED: it can only be read, or not be set in this state.
    #[error("write protected")]
    WriteProtected,
}
