//! What each function may answer: the status codes that UEFI 2.10 lists for it, and a few more where a reason stands.

use uefi_raw::Status;

const S: Status = Status::SUCCESS;
const INVALID: Status = Status::INVALID_PARAMETER;
const UNSUPPORTED: Status = Status::UNSUPPORTED;
const NOT_STARTED: Status = Status::NOT_STARTED;
const DEVICE: Status = Status::DEVICE_ERROR;
const NO_MEMORY: Status = Status::OUT_OF_RESOURCES;
const TIMEOUT: Status = Status::TIMEOUT;
const ABORTED: Status = Status::ABORTED;
const ICMP: Status = Status::ICMP_ERROR;
const TOO_SMALL: Status = Status::BUFFER_TOO_SMALL;
const NOT_READY: Status = Status::NOT_READY;
const DENIED: Status = Status::ACCESS_DENIED;
const NOT_FOUND: Status = Status::NOT_FOUND;

/// In the middle of another call, and above TPL_CALLBACK, where the specification has none.
pub(super) const REFUSED: &[Status] = &[NOT_READY, DENIED];

// EFI_SIMPLE_NETWORK_PROTOCOL, section 24.1.
pub(super) const SNP_START: &[Status] = &[S, Status::ALREADY_STARTED, INVALID, DEVICE, UNSUPPORTED];
/// Of Stop, Reset, Shutdown, ReceiveFilters, StationAddress, MCastIPtoMAC, NvData and GetStatus.
pub(super) const SNP: &[Status] = &[S, NOT_STARTED, INVALID, DEVICE, UNSUPPORTED];
pub(super) const SNP_INITIALIZE: &[Status] =
    &[S, NOT_STARTED, NO_MEMORY, INVALID, DEVICE, UNSUPPORTED];
pub(super) const SNP_STATISTICS: &[Status] =
    &[S, NOT_STARTED, TOO_SMALL, INVALID, DEVICE, UNSUPPORTED];
/// Of Transmit and Receive.
pub(super) const SNP_FRAMES: &[Status] = &[
    S,
    NOT_STARTED,
    NOT_READY,
    TOO_SMALL,
    INVALID,
    DEVICE,
    UNSUPPORTED,
];

// EFI_PXE_BASE_CODE_PROTOCOL, section 24.3.
pub(super) const BC_START: &[Status] = &[
    S,
    INVALID,
    UNSUPPORTED,
    Status::ALREADY_STARTED,
    DEVICE,
    NO_MEMORY,
];
/// Of Stop, SetIpFilter, SetParameters, SetStationIp and SetPackets.
pub(super) const BC_SET: &[Status] = &[S, NOT_STARTED, INVALID];
/// Of Dhcp; of Discover with `NO_RESPONSE` too, which EDK II answers for a boot server that offers nothing.
pub(super) const BC_DHCP: &[Status] = &[
    S,
    NOT_STARTED,
    INVALID,
    DEVICE,
    NO_MEMORY,
    ABORTED,
    TIMEOUT,
    ICMP,
    Status::NO_RESPONSE,
];
/// With `UNSUPPORTED` for MTFTP by the text, and `OUT_OF_RESOURCES` as in EDK II.
pub(super) const BC_MTFTP: &[Status] = &[
    S,
    NOT_STARTED,
    INVALID,
    DEVICE,
    TOO_SMALL,
    ABORTED,
    TIMEOUT,
    ICMP,
    Status::TFTP_ERROR,
    UNSUPPORTED,
    NO_MEMORY,
];
pub(super) const BC_UDP_WRITE: &[Status] = &[
    S,
    NOT_STARTED,
    INVALID,
    Status::BAD_BUFFER_SIZE,
    ABORTED,
    TIMEOUT,
    ICMP,
];
pub(super) const BC_UDP_READ: &[Status] =
    &[S, NOT_STARTED, INVALID, DEVICE, TOO_SMALL, ABORTED, TIMEOUT];
pub(super) const BC_ARP: &[Status] = &[S, NOT_STARTED, INVALID, DEVICE, ABORTED, TIMEOUT];

// EFI_SERVICE_BINDING_PROTOCOL, section 11.6, which allows others.
pub(super) const CREATE_CHILD: &[Status] = &[S, INVALID, NO_MEMORY];
pub(super) const DESTROY_CHILD: &[Status] = &[S, UNSUPPORTED, INVALID, DENIED];

// EFI_HTTP_PROTOCOL, section 29.6.
pub(super) const HTTP_GET_MODE_DATA: &[Status] = &[S, INVALID, NOT_STARTED];
pub(super) const HTTP_CONFIGURE: &[Status] = &[
    S,
    INVALID,
    Status::ALREADY_STARTED,
    DEVICE,
    NO_MEMORY,
    UNSUPPORTED,
];
/// With `ACCESS_DENIED`, which EDK II answers for a token that is in use.
pub(super) const HTTP_REQUEST: &[Status] = &[
    S,
    NOT_STARTED,
    DEVICE,
    TIMEOUT,
    INVALID,
    NO_MEMORY,
    UNSUPPORTED,
    DENIED,
];
pub(super) const HTTP_RESPONSE: &[Status] = &[S, NOT_STARTED, INVALID, NO_MEMORY, DENIED];
pub(super) const HTTP_CANCEL: &[Status] = &[S, INVALID, NOT_STARTED, NOT_FOUND, UNSUPPORTED];
pub(super) const HTTP_POLL: &[Status] = &[S, DEVICE, INVALID, NOT_READY, NOT_STARTED];
/// Of EFI_HTTP_TOKEN; the last four are what EDK II's TCP says.
pub(super) const HTTP_TOKEN: &[Status] = &[
    S,
    Status::HTTP_ERROR,
    ABORTED,
    TIMEOUT,
    DEVICE,
    Status(Status::ERROR_BIT | 100),
    Status(Status::ERROR_BIT | 104),
    Status(Status::ERROR_BIT | 105),
    Status(Status::ERROR_BIT | 106),
    NO_MEMORY,
];

// EFI_IP4_CONFIG2_PROTOCOL, section 28.5; EFI_IP6_CONFIG_PROTOCOL, section 28.7.
pub(super) const IP_SET_DATA: &[Status] = &[
    S,
    INVALID,
    Status::WRITE_PROTECTED,
    DENIED,
    NOT_READY,
    Status::BAD_BUFFER_SIZE,
    UNSUPPORTED,
    NO_MEMORY,
    DEVICE,
];
pub(super) const IP_GET_DATA: &[Status] = &[S, INVALID, TOO_SMALL, NOT_READY, NOT_FOUND];
pub(super) const IP_REGISTER: &[Status] = &[S, INVALID, UNSUPPORTED, NO_MEMORY, DENIED];
pub(super) const IP_UNREGISTER: &[Status] = &[S, INVALID, NOT_FOUND];
