//! Discover: a boot server of a type, as the caller, the layers before or DHCP's messages say.

use super::{Face, dhcp, mode, status, with};
use alloc::vec::Vec;
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeBootType, PxeBaseCodeDiscoverInfo, PxeBaseCodeProtocol, PxeBaseCodeSrvlist,
};
use uefi_raw::{Boolean, Status};
use wireboot_platform::raw::pxe_callback::PxeBaseCodeFunction;
use wireboot_protocols::base_code::{Discovery, Server, server_of};

/// EFI_PXE_BASE_CODE_BOOT_LAYER_INITIAL: the first layer of a type.
const INITIAL: u16 = 0;
/// Servers of a list at most: option 43 has no room for more.
const SERVERS: u16 = 64;

/// The caller's information, with its list.
struct Info {
    multicast: Option<[u8; 16]>,
    broadcast: bool,
    unicast: bool,
    must_use_list: bool,
    servers: Vec<PxeBaseCodeSrvlist>,
}

impl Info {
    /// # Safety
    /// The caller's information, with as many servers behind it as it says.
    unsafe fn read(info: *const PxeBaseCodeDiscoverInfo) -> Option<Self> {
        // SAFETY: the caller's word; plain bytes, aligned or not.
        unsafe {
            let count = (&raw const (*info).ip_cnt).read_unaligned();
            let list = (&raw const (*info).srv_list).cast::<PxeBaseCodeSrvlist>();
            let flag = |flag: *const Boolean| bool::from(*flag);
            if count > SERVERS {
                return None;
            }
            let group = (&raw const (*info).server_m_cast_ip).cast::<[u8; 16]>();
            Some(Self {
                multicast: flag(&raw const (*info).use_m_cast).then(|| group.read_unaligned()),
                broadcast: flag(&raw const (*info).use_b_cast),
                unicast: flag(&raw const (*info).use_u_cast),
                must_use_list: flag(&raw const (*info).must_use_list),
                servers: (0..count.into())
                    .map(|index| list.add(index).read_unaligned())
                    .collect(),
            })
        }
    }

    fn discovery(&self, face: &mut Face<'_>) -> Discovery {
        let servers = self.servers.iter().map(|one| Server {
            kind: one.server_type.0,
            address: (!bool::from(one.accept_any_response))
                // SAFETY: a union of bytes, as many as the larger address has.
                .then(|| face.address(unsafe { one.ip_addr.v6 }.0)),
        });
        let servers: Vec<Server> = servers.collect();
        let listed = self.servers.iter().filter(|_| self.unicast);
        let unicast = listed
            // SAFETY: as above.
            .map(|one| face.address(unsafe { one.ip_addr.v6 }.0))
            .filter(|address| !address.is_unspecified());
        let unicast = unicast.collect();
        Discovery {
            multicast: self.multicast.map(|group| face.address(group)),
            broadcast: self.broadcast,
            unicast,
            only: self.must_use_list.then_some(servers),
        }
    }
}

pub(super) unsafe extern "efiapi" fn discover(
    this: *mut PxeBaseCodeProtocol,
    kind: PxeBaseCodeBootType,
    layer: *mut u16,
    use_bis: Boolean,
    info: *const PxeBaseCodeDiscoverInfo,
) -> Status {
    // There are no Boot Integrity Services.
    if layer.is_null() || bool::from(use_bis) {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: the caller's variable, aligned or not.
    let wanted = unsafe { layer.read_unaligned() };
    // SAFETY: null or the caller's information.
    let info = (!info.is_null()).then(|| unsafe { Info::read(info) });
    if matches!(info, Some(None)) {
        return Status::INVALID_PARAMETER;
    }
    let info = info.flatten();
    with(this, |face| {
        face.started()?;
        let how = how(face, kind.0, wanted, info.as_ref()).ok_or(Status::INVALID_PARAMETER)?;
        let found = find(face, (kind.0, wanted), &how);
        face.leave();
        // SAFETY: the caller's variable.
        unsafe { layer.write_unaligned(found?) };
        Ok(())
    })
}

/// How to look for it: as the caller says, as the server of the layers before, or as the packets say.
fn how(face: &mut Face<'_>, kind: u16, layer: u16, info: Option<&Info>) -> Option<Discovery> {
    let mode = face.mode();
    let ipv6 = mode.using_ipv6.into();
    if layer != INITIAL {
        let replied = bool::from(mode.pxe_discover_valid) && bool::from(mode.pxe_reply_received);
        let server = server_of(mode::message(&mode.pxe_reply, ipv6));
        return Some(Discovery {
            unicast: alloc::vec![server.filter(|_| replied)?],
            ..Discovery::default()
        });
    }
    if let Some(info) = info {
        return Some(info.discovery(face));
    }
    let packets = [
        (mode.proxy_offer_received, &mode.proxy_offer),
        (mode.dhcp_ack_received, &mode.dhcp_ack),
    ];
    packets
        .into_iter()
        .filter(|(received, _)| bool::from(*received))
        .find_map(|(_, packet)| Discovery::of_packet(mode::message(packet, ipv6), kind))
}

/// Returns the layer that was found.
fn find(face: &mut Face<'_>, item: (u16, u16), how: &Discovery) -> Result<u16, Status> {
    let template = dhcp::template(face.mode());
    let ipv6 = bool::from(face.mode().using_ipv6);
    let found = face.work(PxeBaseCodeFunction::DISCOVER, |host, port| {
        host.discover(port, template.as_deref(), item, how)
    });
    let found = found.map_err(status)?;
    let m = face.mode();
    let (discover, reply) = (
        mode::shown(&found.discover, ipv6),
        mode::shown(&found.reply, ipv6),
    );
    mode::show(
        Some(&discover),
        &mut m.pxe_discover,
        &mut m.pxe_discover_valid,
    );
    mode::show(Some(&reply), &mut m.pxe_reply, &mut m.pxe_reply_received);
    m.pxe_bis_reply_received = Boolean::FALSE;
    Ok(found.layer)
}
