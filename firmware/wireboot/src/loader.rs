//! The network under a boot loader: it stays while the loader runs, and EFI protocols lead to it.

mod connections;
mod counts;
mod downloads;
mod exchanges;
mod port;
mod transfers;

use crate::error::Error;
use crate::network::{Network, instant};
use crate::origin::Origin;
use crate::tap::MTU;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use connections::Connection;
use core::cell::RefCell;
use core::net::IpAddr;
use counts::Counts;
use downloads::Downloads;
use efi_protocols::{Buffer, Failure, Interface, Packets, Resident, Station};
use exchanges::Exchange;
use port::LoaderPort;
use wireboot_fetch::http::Problem;
use wireboot_fetch::tftp::TftpError;
use wireboot_fetch::url::{Scheme, Url};
use wireboot_fetch::{Command, FetchError, File, Job, Lease, Lease6, LeaseSource, Leases};
use wireboot_net::{Duration, Instant, Ipv4Cidr};
use wireboot_platform::device_path::PathBuf;
use wireboot_platform::pxe::Cached;
use wireboot_platform::{Handle, Status, random};
use wireboot_protocols::ip_config::Settings;
use wireboot_protocols::link::Link;
use wireboot_protocols::near_end::NearEnd;
use wireboot_protocols::near_end::tcp::NearTcp;
use wireboot_protocols::packet;
use wireboot_protocols::simple_network::MEDIA_HEADER;
use wireboot_wire::dhcp::{Message, MessageType, Operation, option};

/// Jobs of loaders are numbered from here on: others' late events are not taken for theirs.
const FIRST_JOB: Job = 1 << 16;
/// The length of an IPv6 network's prefix: addresses of DHCPv6 have none, and nearly all networks have this one (RFC 4291, section 2.5.1).
pub(crate) const PREFIX6: u8 = 64;
/// How long a server may be silent, as loaders try others themselves.
const PATIENCE: Duration = Duration::ZERO;

/// The network with what loaders' calls have left behind.
struct LoaderNetwork {
    network: Network,
    /// How often all that ran was lost.
    losses: u32,
    last_job: Job,
    /// A file that was too long for its buffer, or only measured: the next call wants it.
    kept: Option<File>,
    /// For the near end.
    downloads: Downloads,
    exchanges: Vec<Exchange>,
    connections: Vec<Connection>,
    counts: Counts,
}

/// Offers `network` by the protocols to a loader that came from `url` and is given `path`.
pub fn offer(
    mut network: Network,
    origin: &Origin,
    url: &Url,
    path: &PathBuf,
    near_end: bool,
) -> Result<Resident, Error> {
    let port = LoaderPort::new(network.tap()?).ok_or(Error::Nothing)?;
    let server = network.server_of(url);
    let (address, prefix_len) = address(network.leases(), server).ok_or(Error::Nothing)?;
    let lease = network.leases().v4.as_ref().filter(|_| address.is_ipv4());
    let router = lease.and_then(|lease| lease.router).map(IpAddr::V4);
    let interfaces = path.interfaces().ok_or(Error::Nothing)?;
    let station = Station {
        mac: network.mac(),
        mtu: MTU,
        address,
        prefix_len,
        router,
        vlan: origin.network.vlan,
        mac_path: interfaces.mac,
        ip_path: interfaces.ip,
    };
    let firmwares = origin.cached.as_ref().map(of_firmware);
    let mut packets = packets(firmwares, network.leases(), address, network.mac());
    name_loader(&mut packets, url, server, address.is_ipv6());
    let by_http = url.scheme() == Scheme::Http;
    let interface = Interface {
        url: url.clone(),
        uri_path: by_http.then(|| path.as_bytes().into()),
        v4: network
            .leases()
            .v4
            .as_ref()
            .map(v4_settings)
            .unwrap_or_default(),
        v6: network
            .leases()
            .v6
            .as_ref()
            .map(v6_settings)
            .unwrap_or_default(),
    };
    let lent = network.lend();
    let network = SharedLoaderNetwork(Rc::new(RefCell::new(LoaderNetwork {
        network,
        losses: 0,
        last_job: FIRST_JOB,
        kept: None,
        downloads: Vec::new(),
        exchanges: Vec::new(),
        connections: Vec::new(),
        counts: Counts::default(),
    })));
    let link: Box<dyn Link> = if near_end {
        let longest = MEDIA_HEADER + usize::from(MTU);
        let (seed, _) = random::seed();
        let files = NearEnd::new(port, network.clone(), longest, seed);
        let (secret, _) = random::seed();
        let (secret, _) = secret.split_first_chunk().ok_or(Error::Nothing)?;
        Box::new(NearTcp::new(files, network.clone(), longest, *secret))
    } else {
        Box::new(port)
    };
    let network = Box::new(network);
    let lent = lent.as_ref();
    let resident = Resident::offer(network, link, station, &packets, interface, lent);
    resident.map_err(|error| Error::Firmware {
        what: "handles for the boot loader's network",
        status: error.status(),
    })
}

/// The address for a loader, and the length of its network's prefix: of the version that the loader came by, where its server is known.
fn address(leases: &Leases, server: Option<IpAddr>) -> Option<(IpAddr, u8)> {
    let v4 = leases.v4.as_ref().map(|lease| {
        let address = lease.address;
        (IpAddr::V4(address.address()), address.prefix_len())
    });
    let v6 = leases.v6.as_ref().and_then(|lease| lease.addresses.first());
    let v6 = v6.map(|address| (IpAddr::V6(*address), PREFIX6));
    if server.is_some_and(|server| server.is_ipv6()) {
        v6.or(v4)
    } else {
        v4.or(v6)
    }
}

fn v4_settings(lease: &Lease) -> Settings {
    let address = lease.address;
    Settings {
        addresses: [(address.address().into(), address.prefix_len())].into(),
        gateways: lease.router.into_iter().map(IpAddr::V4).collect(),
        dns: lease.dns.iter().copied().map(IpAddr::V4).collect(),
    }
}

/// `lease` with an address and a router that a loader has set. Other routes, and DHCP's router, belong to the address that DHCP has given
/// with them.
fn with_address(lease: Option<&Lease>, address: Ipv4Cidr, router: Option<IpAddr>) -> Lease {
    let lease = lease.cloned();
    let mut lease = lease.unwrap_or_else(|| Lease::new(address, LeaseSource::Firmware));
    if lease.address.address() != address.address() {
        lease.routes.clear();
        lease.router = None;
    }
    lease.address = address;
    if let Some(IpAddr::V4(router)) = router {
        lease.router = Some(router);
    }
    lease
}

fn v6_settings(lease: &Lease6) -> Settings {
    let addresses = lease.addresses.iter();
    Settings {
        addresses: addresses.map(|one| ((*one).into(), PREFIX6)).collect(),
        gateways: Vec::new(),
        dns: lease.dns.iter().copied().map(IpAddr::V6).collect(),
    }
}

/// The packets of the firmware's PXE, and the address that they tell.
fn of_firmware(cached: &Cached) -> (IpAddr, Packets) {
    let [discover, ack, proxy_offer, pxe_discover, pxe_reply] = cached.raw();
    let packets = Packets {
        discover,
        ack,
        proxy_offer,
        pxe_discover,
        pxe_reply,
    };
    (cached.station, packets)
}

/// The packets of the DHCP exchange that has brought `address`: the firmware's or ours.
fn packets(
    firmwares: Option<(IpAddr, Packets)>,
    leases: &Leases,
    address: IpAddr,
    mac: [u8; 6],
) -> Packets {
    if let Some((_, packets)) = firmwares.filter(|(told, _)| *told == address) {
        return packets;
    }
    let made;
    let raw = match (address, &leases.v4, &leases.v6) {
        (IpAddr::V4(_), Some(lease), _) => {
            let ack = if lease.ack.is_empty() {
                made = made_ack(lease, mac);
                &made
            } else {
                &lease.ack
            };
            [&lease.discover, ack, &lease.proxy_offer]
        }
        (IpAddr::V6(_), _, Some(lease)) => [&lease.discover, &lease.ack, &lease.proxy_offer],
        _ => return Packets::default(),
    };
    let raw = raw.map(|raw| (!raw.is_empty()).then(|| packet::padded(raw)));
    let [discover, ack, proxy_offer] = raw;
    Packets {
        discover,
        ack,
        proxy_offer,
        ..Packets::default()
    }
}

/// An acknowledgement that tells a lease whose own is not known, as HTTP Boot's: without any, loaders have no use for a base code.
fn made_ack(lease: &Lease, mac: [u8; 6]) -> Vec<u8> {
    let mut ack = Message::request(MessageType::Ack, 0, mac);
    ack.operation = Operation::Reply;
    ack.yiaddr = lease.address.address();
    ack.siaddr = lease.next_server.unwrap_or(ack.siaddr);
    let mask = [lease.address.netmask()];
    for (code, addresses) in [
        (option::SUBNET_MASK, mask.as_slice()),
        (option::ROUTERS, lease.router.as_slice()),
        (option::DNS_SERVERS, lease.dns.as_slice()),
    ] {
        if !addresses.is_empty() {
            ack.options.set_addresses(code, addresses);
        }
    }
    ack.emit()
}

/// Has the packets of servers name the loader, where its server is known.
fn name_loader(packets: &mut Packets, url: &Url, server: Option<IpAddr>, ipv6: bool) {
    if !ipv6 {
        packets.each(packet::end_options);
    }
    let file = match url.scheme() {
        Scheme::Http => url.resource().trim_start_matches('/'),
        // A slash at its beginning is DHCP's: there are servers to which it makes another file.
        Scheme::Tftp => url.resource(),
    };
    // Loaders look for their server in the boot server's reply first, then in the proxy's offer.
    let named = [
        &mut packets.ack,
        &mut packets.proxy_offer,
        &mut packets.pxe_reply,
    ];
    for packet in named.into_iter().flatten() {
        match server {
            Some(IpAddr::V4(server)) if !ipv6 => packet::name_file(packet, server, file),
            Some(server) if ipv6 => packet::name_file6(packet, server, file),
            _ => {}
        }
    }
}

fn failure(error: &FetchError) -> Failure {
    log::debug!("{error}");
    match error {
        FetchError::Tftp { error, .. } => match &**error {
            TftpError::Server { code, text } => Failure::Tftp {
                code: *code as u8,
                text: text.clone(),
            },
            TftpError::Refused { .. } => Failure::Refused,
            _ => Failure::Timeout,
        },
        FetchError::Http(error) if matches!(error.problem, Problem::Status { status: 404, .. }) => {
            Failure::NotFound
        }
        _ => Failure::Timeout,
    }
}

impl LoaderNetwork {
    /// The number of the next job.
    fn next_job(&mut self) -> Job {
        self.last_job += 1;
        self.last_job
    }

    /// Uses another address of the station's.
    fn configure(&mut self, address: IpAddr, prefix_len: u8, router: Option<IpAddr>) {
        let leases = self.network.leases();
        let command = match (address, router) {
            (IpAddr::V4(address), router) => {
                let address = Ipv4Cidr::new(address, prefix_len);
                Command::Configure(with_address(leases.v4.as_ref(), address, router))
            }
            (IpAddr::V6(address), _) => {
                let lease = leases.v6.clone();
                let mut lease = lease.unwrap_or_else(|| Lease6::new(LeaseSource::Dhcp));
                lease.addresses.retain(|one| *one != address);
                lease.addresses.insert(0, address);
                Command::Configure6(lease)
            }
        };
        // Where it cannot be told, the next call tells.
        let _ = self.send(command);
    }

    /// Sends a command. Where that fails, all that ran is lost.
    fn send(&mut self, command: Command) -> Result<(), Failure> {
        self.network.send(command).map_err(|_| {
            self.lose_all();
            Failure::Device
        })
    }

    /// What ran is lost with an AP (application processor), or with the card.
    fn lose_all(&mut self) {
        self.losses += 1;
        self.lose_downloads();
        self.lose_exchanges();
        self.lose_connections();
    }

    /// Looks after the network for a moment.
    fn turn(&mut self) {
        if self.network.turn().is_err() {
            self.lose_all();
        }
        while let Some(event) = self.network.event() {
            self.take(event);
        }
        self.turn_downloads();
        self.turn_connections();
    }
}

/// The network, as the protocols and the near end share it. They take turns.
#[derive(Clone)]
struct SharedLoaderNetwork(Rc<RefCell<LoaderNetwork>>);

impl efi_protocols::Network for SharedLoaderNetwork {
    fn turn(&mut self) {
        self.0.borrow_mut().turn();
    }

    fn idle(&mut self) {
        self.0.borrow_mut().network.idle();
    }

    fn now(&self) -> Instant {
        instant(self.0.borrow().network.clock)
    }

    fn link_up(&self) -> bool {
        self.0.borrow().network.link_up()
    }

    fn configure(&mut self, address: IpAddr, prefix_len: u8, router: Option<IpAddr>) {
        self.0.borrow_mut().configure(address, prefix_len, router);
    }

    fn size(&mut self, url: &Url) -> Result<u64, Failure> {
        self.0.borrow_mut().size(url)
    }

    fn read(&mut self, url: &Url, buffer: Buffer) -> Result<File, Failure> {
        self.0.borrow_mut().read(url, buffer)
    }

    fn set_interface(&mut self, settings: &Settings) {
        let network = &mut *self.0.borrow_mut();
        let leases = network.network.leases();
        let v4 = |addresses: &[IpAddr]| -> Vec<_> {
            let v4 = addresses.iter().filter_map(|one| match one {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            });
            v4.collect()
        };
        let v6 = |addresses: &mut dyn Iterator<Item = IpAddr>| -> Vec<_> {
            let v6 = addresses.filter_map(|one| match one {
                IpAddr::V6(address) => Some(address),
                IpAddr::V4(_) => None,
            });
            v6.collect()
        };
        // An interface without an address keeps the one that it has.
        let command = match settings.addresses.first() {
            Some((IpAddr::V4(address), prefix_len)) => {
                let address = Ipv4Cidr::new(*address, *prefix_len);
                let router = settings.gateways.iter().copied().find(IpAddr::is_ipv4);
                Command::Configure(Lease {
                    dns: v4(&settings.dns),
                    ..with_address(leases.v4.as_ref(), address, router)
                })
            }
            Some((IpAddr::V6(_), _)) => {
                let lease = leases.v6.clone();
                Command::Configure6(Lease6 {
                    addresses: v6(&mut settings.addresses.iter().map(|(address, _)| *address)),
                    dns: v6(&mut settings.dns.iter().copied()),
                    ..lease.unwrap_or_else(|| Lease6::new(LeaseSource::Firmware))
                })
            }
            None => return,
        };
        if network.send(command).is_err() {
            log::warn!("the boot loader's settings of the interface were lost");
        }
    }

    fn halt(&mut self) {
        self.0.borrow_mut().network.halt();
    }

    fn hold_as_driver(&mut self) -> Result<Option<Handle>, Status> {
        let held = self.0.borrow_mut().network.hold_as_driver();
        held.map_err(|error| error.status())
    }

    fn let_go(&mut self) {
        let network = &mut *self.0.borrow_mut();
        network.network.let_go();
        network.lose_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use core::net::Ipv4Addr;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];

    fn lease() -> Lease {
        let address = Ipv4Cidr::new(Ipv4Addr::new(10, 0, 0, 5), 24);
        Lease {
            router: Some(SERVER),
            dns: [SERVER].into(),
            next_server: Some(SERVER),
            ..Lease::new(address, LeaseSource::Firmware)
        }
    }

    fn of_lease(lease: Lease, firmwares: Option<(IpAddr, Packets)>) -> Packets {
        let address = lease.address.address().into();
        packets(firmwares, &lease.into(), address, MAC)
    }

    fn parsed(packet: Option<packet::Packet>) -> Message {
        Message::parse(&packet.unwrap()).unwrap()
    }

    /// HTTP Boot tells none.
    #[test]
    fn a_lease_without_an_acknowledgement_gets_one() {
        let lease = lease();
        let ack = parsed(of_lease(lease.clone(), None).ack);
        assert_eq!(ack.operation, Operation::Reply);
        assert_eq!(ack.message_type(), Some(MessageType::Ack));
        assert_eq!((ack.siaddr, ack.mac()), (SERVER, Some(MAC)));
        let told = Lease::from_packets(&ack.emit(), None, None).unwrap();
        assert_eq!(told.address, lease.address);
        assert_eq!((told.router, told.dns), (lease.router, lease.dns));
        let bare = Lease::new(lease.address, LeaseSource::Firmware);
        let ack = parsed(of_lease(bare, None).ack);
        assert_eq!(ack.options.get(option::ROUTERS), None);
        assert_eq!(ack.options.get(option::DNS_SERVERS), None);
    }

    /// The firmware has another address than DHCP has given since.
    #[test]
    fn an_acknowledgement_tells_the_address_in_use() {
        let firmwares = |of: [u8; 4]| {
            let ack = Some([7; packet::PACKET]);
            let packets = Packets {
                ack,
                ..Packets::default()
            };
            Some((of.into(), packets))
        };
        let same = of_lease(lease(), firmwares([10, 0, 0, 5]));
        assert_eq!(same.ack, Some([7; packet::PACKET]));
        let other = of_lease(lease(), firmwares([10, 0, 0, 6]));
        assert_eq!(parsed(other.ack).yiaddr, lease().address.address());
    }

    #[test]
    fn packets_name_the_loader_as_dhcp_does() {
        let named = |url: &str, server: Option<IpAddr>| {
            let mut packets = of_lease(lease(), None);
            name_loader(&mut packets, &Url::parse(url).unwrap(), server, false);
            let ack = parsed(packets.ack);
            (ack.siaddr, ack.boot_file().unwrap_or_default().to_string())
        };
        let other = Ipv4Addr::new(10, 0, 0, 9);
        for file in ["shimx64.efi", "/tftpboot/shimx64.efi"] {
            let url = Url::from_boot_file(other, file).unwrap();
            let expected = (other, file.to_string());
            assert_eq!(named(url.as_str(), Some(other.into())), expected);
        }
        let by_http = named("http://10.0.0.9/a/b.efi", Some(other.into()));
        assert_eq!(by_http, (other, "a/b.efi".to_string()));
        // By its name, of which the address is known where the file came by TFTP.
        let url = "tftp://boot.example/a.efi";
        let by_name = named(url, Some(other.into()));
        assert_eq!(by_name, (other, "a.efi".to_string()));
        assert_eq!(named(url, None), (SERVER, String::new()));
    }

    #[test]
    fn an_address_of_a_loaders_own_has_none_of_dhcps_routes() {
        let beyond = Ipv4Cidr::new(Ipv4Addr::new(10, 9, 0, 0), 16);
        let given = Lease {
            routes: [(beyond, SERVER)].into(),
            ..lease()
        };
        let own = Ipv4Cidr::new(Ipv4Addr::new(192, 168, 0, 5), 24);
        let router = Ipv4Addr::new(192, 168, 0, 1);
        let set = with_address(Some(&given), own, Some(router.into()));
        let expected = Lease {
            address: own,
            router: Some(router),
            ..lease()
        };
        assert_eq!(set, expected);
        // As a loader sets it that has asked the same server.
        let same = with_address(Some(&given), given.address, Some(SERVER.into()));
        assert_eq!(same, given);
        // By SetStationIp, which tells no router.
        assert_eq!(with_address(Some(&given), given.address, None), given);
        assert_eq!(with_address(Some(&given), own, None).router, None);
        let alone = with_address(None, own, None);
        assert_eq!(alone, Lease::new(own, LeaseSource::Firmware));
    }

    #[test]
    fn the_address_is_of_the_servers_version() {
        let six = "fd00::5".parse().unwrap();
        let both = Leases {
            v6: Some(Lease6 {
                addresses: [six].into(),
                ..Lease6::new(LeaseSource::Dhcp)
            }),
            ..Leases::from(lease())
        };
        let of = |server: Option<&str>| {
            let server = server.map(|server| server.parse().unwrap());
            address(&both, server).unwrap().0
        };
        assert_eq!(of(Some("fd00::1")), IpAddr::V6(six));
        assert!(of(Some("10.0.0.1")).is_ipv4() && of(None).is_ipv4());
    }
}
