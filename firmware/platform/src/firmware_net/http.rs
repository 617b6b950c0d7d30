//! The firmware's HTTP by `EFI_HTTP_PROTOCOL` (UEFI 2.10, section 29.6).

use super::{handle_with, open};
use crate::claim::pci::Candidate;
use alloc::vec::Vec;
use uefi::boot::{OpenProtocolAttributes, ScopedProtocol};
use uefi::proto::network::http::{HttpBinding, HttpHelper};
use uefi::proto::network::ip4config2::Ip4Config2;
use uefi::{Identify, Status};
use uefi_raw::protocol::network::http::HttpStatusCode;
use uefi_raw::protocol::network::ip4_config2::Ip4Config2DataType;

/// The firmware's HTTP over IPv4, with an address from its DHCP. How the firmware comes by addresses is as before on drop.
#[derive(Debug)]
pub struct Http {
    /// Before the policy, whose change it need not see.
    helper: HttpHelper,
    _policy: Policy,
}

/// How the firmware comes by addresses.
#[derive(Debug)]
struct Policy {
    configuration: ScopedProtocol<Ip4Config2>,
    before: Vec<u8>,
}

impl Http {
    /// Has the firmware obtain an address, which takes it seconds, and opens its HTTP.
    ///
    /// # Errors
    /// What the firmware answers when it has no HTTP on the interface, or obtains no address (`TIMEOUT`).
    pub fn open(interface: &Candidate) -> uefi::Result<Self> {
        let handle = handle_with(interface, &Ip4Config2::GUID, |_| true)?;
        // SAFETY: nothing below removes the protocol while it is open. (Opening it exclusively would disconnect the
        // firmware's network.)
        let mut configuration: ScopedProtocol<Ip4Config2> =
            unsafe { open(handle, OpenProtocolAttributes::GetProtocol) }?;
        let before = configuration.get_data(Ip4Config2DataType::POLICY)?;
        let mut policy = Policy {
            configuration,
            before,
        };
        policy.configuration.ifup()?;
        let handle = handle_with(interface, &HttpBinding::GUID, |_| true)?;
        let mut helper = HttpHelper::new(handle)?;
        helper.configure()?;
        Ok(Self {
            helper,
            _policy: policy,
        })
    }

    /// Reads a file into `memory`, and returns its size. For one file: the connection is closed behind it.
    ///
    /// # Errors
    /// What the firmware answers: `TIMEOUT`, `HTTP_ERROR` and others. `NOT_FOUND` for any status but 200, `BUFFER_TOO_SMALL` for a
    /// larger file, `UNSUPPORTED` when the server does not tell its size, `END_OF_FILE` when it ends before.
    pub fn read(&mut self, url: &str, memory: &mut [u8]) -> uefi::Result<u64> {
        self.helper.request_get(url)?;
        let response = self.helper.response_first(true)?;
        if response.status != HttpStatusCode::STATUS_200_OK {
            return Err(Status::NOT_FOUND.into());
        }
        let mut headers = response.headers.iter();
        let size = headers.find(|(name, _)| name == "content-length");
        let size: usize = size
            .and_then(|(_, value)| value.trim().parse().ok())
            .ok_or(Status::UNSUPPORTED)?;
        let mut rest = memory.get_mut(..size).ok_or(Status::BUFFER_TOO_SMALL)?;
        let mut body = response.body;
        loop {
            let (now, later) = core::mem::take(&mut rest)
                .split_at_mut_checked(body.len())
                .ok_or(Status::PROTOCOL_ERROR)?;
            now.copy_from_slice(&body);
            rest = later;
            if rest.is_empty() {
                return Ok(size as u64);
            }
            body.clear();
            if self.helper.response_more(&mut body)?.is_empty() {
                return Err(Status::END_OF_FILE.into());
            }
        }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        let policy = Ip4Config2DataType::POLICY;
        // A failure leaves it with DHCP, as network boot does.
        let _ = self.configuration.set_data(policy, &mut self.before);
    }
}
