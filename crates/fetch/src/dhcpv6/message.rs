//! What the client sends.

use alloc::format;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use wireboot_wire::dhcpv6::{IaAddress, IaNa, MessageType, Options, Writer, duid, option};

use crate::dhcp_request::{ClientId, DhcpRequest};

/// Options to ask for.
const OPTION_REQUEST: [u16; 6] = [
    option::BOOT_FILE_URL,
    option::BOOT_FILE_PARAMETERS,
    option::VENDOR_CLASS,
    option::VENDOR_OPTIONS,
    option::DNS_SERVERS,
    option::DOMAIN_SEARCH,
];
/// Maximum retransmission times, which each client has to ask for (RFC 8415 sections 18.2.1, 18.2.2, 18.2.6), and the time after which
/// information is old.
const SOL_MAX_RT: u16 = 82;
const INF_MAX_RT: u16 = 83;
const INFORMATION_REFRESH_TIME: u16 = 32;
/// Intel's enterprise number: the vendor of PXE, and so that of its classes.
const INTEL: u32 = 343;

/// What the options of each message say of this client.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) duid: Vec<u8>,
    pub(super) iaid: u32,
    vendor_class: alloc::string::String,
    user_class: alloc::string::String,
    architecture: u16,
    /// A server may give an address without being asked a second time (RFC 8415 section 18.2.1). No other server's offer is seen then.
    pub(super) rapid_commit: bool,
}

impl Identity {
    pub(super) fn new(request: &DhcpRequest, mac: [u8; 6]) -> Self {
        let [_, _, iaid @ ..] = mac;
        let client_id = request.client_id.clone();
        let client_id = client_id.filter(|client_id| duid::is_valid(&client_id.duid));
        let client_id = client_id.unwrap_or_else(|| ClientId {
            duid: match request.uuid {
                // In SMBIOS' byte order, as EDK II sends it.
                Some(uuid) => duid::from_uuid(uuid).to_vec(),
                None => duid::from_mac(mac).to_vec(),
            },
            iaid: None,
        });
        Self {
            duid: client_id.duid,
            iaid: client_id.iaid.unwrap_or(u32::from_be_bytes(iaid)),
            vendor_class: format!(
                "{}:Arch:{:05}:UNDI:003000",
                request.vendor_class.prefix(),
                request.architecture
            ),
            user_class: request.user_class.clone(),
            architecture: request.architecture,
            rapid_commit: !request.want_boot_file,
        }
    }

    /// A message of this kind; `server` is the DUID of the only one that shall answer. `elapsed` is in hundredths of a second. `addresses`
    /// are those that the message is about.
    pub(super) fn message(
        &self,
        kind: MessageType,
        transaction_id: u32,
        elapsed: u16,
        server: Option<&[u8]>,
        addresses: &[Ipv6Addr],
    ) -> Vec<u8> {
        let mut message = Writer::new(kind, transaction_id);
        message.option(option::CLIENT_ID, &self.duid);
        if let Some(server) = server {
            message.option(option::SERVER_ID, server);
        }
        message.option(option::ELAPSED_TIME, elapsed.to_be_bytes());
        if kind != MessageType::InformationRequest {
            let association = IaNa {
                iaid: self.iaid,
                t1: 0,
                t2: 0,
                options: Options::default(),
            };
            message.ia_na(&association, |message| {
                for &address in addresses {
                    message.ia_address(&IaAddress {
                        address,
                        preferred_lifetime: 0,
                        valid_lifetime: 0,
                        options: Options::default(),
                    });
                }
            });
        }
        if kind == MessageType::Decline {
            // Nothing is asked for (section 21.7).
            return message.finish();
        }
        let own: &[u16] = match kind {
            MessageType::InformationRequest => &[INF_MAX_RT, INFORMATION_REFRESH_TIME],
            _ => &[SOL_MAX_RT],
        };
        message.words(option::OPTION_REQUEST, &[&OPTION_REQUEST, own].concat());
        if kind == MessageType::Solicit && self.rapid_commit {
            message.option(option::RAPID_COMMIT, []);
        }
        message.words(option::ARCHITECTURE, &[self.architecture]);
        // UNDI 3.0, as the vendor class says.
        message.option(option::NETWORK_INTERFACE, [1, 3, 0]);
        if !self.user_class.is_empty() {
            message.strings(option::USER_CLASS, &[&self.user_class]);
        }
        message.vendor_class(INTEL, &[&self.vendor_class]);
        message.finish()
    }
}
