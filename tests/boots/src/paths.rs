//! Servers behind a link that takes packets of 1280 bytes at most, whose router tells the server so or does not.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use wireboot_lab::ip::{IpVersion, host};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions, server};
use wireboot_lab::remote_server::{Path, REMOTE_SERVER, REMOTE_SERVER6, RemoteServer};

use crate::fixture::{Fixture, PATIENCE};
use crate::{servers, system};

const MTU: u16 = 1280;
/// Fits into a frame, but not through the link.
const LARGE: usize = 1400;
const SMALL: usize = 100;

fn remote_address(version: IpVersion) -> IpAddr {
    match version {
        IpVersion::V4 => REMOTE_SERVER.into(),
        IpVersion::V6 => REMOTE_SERVER6.into(),
    }
}

fn both() -> NetworkOptions {
    NetworkOptions {
        ip: &[IpVersion::V4, IpVersion::V6],
        ..NetworkOptions::default()
    }
}

/// The server's kernel learns what fits, and cuts its datagrams accordingly.
pub(crate) fn small_link_is_told(lab: &Lab) -> Result<()> {
    let network = Network::new(lab, both())?;
    let remote = RemoteServer::new(
        lab,
        &network,
        Path {
            mtu: MTU,
            icmp: true,
        },
    )?;
    for version in [IpVersion::V4, IpVersion::V6] {
        // One is lost, and the news comes for it.
        let (number, length) = first_to_arrive(&remote, version, &[LARGE; 200])?;
        ensure!(
            number > 0 && length == LARGE,
            "{version}: number {number}, {length} bytes"
        );
    }
    Ok(())
}

/// Nobody learns anything: what is too big is gone, each time.
pub(crate) fn small_link_swallows(lab: &Lab) -> Result<()> {
    let network = Network::new(lab, both())?;
    let path = Path {
        mtu: MTU,
        icmp: false,
    };
    let remote = RemoteServer::new(lab, &network, path)?;
    for version in [IpVersion::V4, IpVersion::V6] {
        let (number, length) = first_to_arrive(&remote, version, &[LARGE, LARGE, LARGE, SMALL])?;
        ensure!(
            number == 3 && length == SMALL,
            "{version}: number {number}, {length} bytes"
        );
    }
    Ok(())
}

/// Number and length of the first datagram that arrives here of those that the server sends, one each tenth of a second.
fn first_to_arrive(
    remote: &RemoteServer,
    version: IpVersion,
    lengths: &[usize],
) -> Result<(u8, usize)> {
    let socket = UdpSocket::bind((server(version), 0)).context("listening")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let to = socket.local_addr()?;
    let arrived = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<()> {
            remote.server().enter()?;
            let socket = UdpSocket::bind((remote_address(version), 0)).context("sending")?;
            for (number, length) in (0..).zip(lengths) {
                // Told that it does not fit, the kernel refuses one datagram with the news.
                let _ = socket.send_to(&vec![number; *length], to);
                thread::sleep(Duration::from_millis(100));
                if arrived.load(Ordering::Relaxed) {
                    break;
                }
            }
            Ok(())
        });
        let mut buffer = [0; 2000];
        let received = socket.recv(&mut buffer).context("nothing arrived");
        arrived.store(true, Ordering::Relaxed);
        let sent = sender.join().ok().context("the sender panicked")?;
        sent?;
        Ok((buffer[0], received?))
    })
}

/// A boot: the configuration comes from near by, the system from behind the link by
/// `http` or `tftp`.
pub(crate) fn boots(lab: &Lab, version: IpVersion, scheme: &str, icmp: bool) -> Result<()> {
    let fixture = Fixture::on(lab, NetworkOptions::of(version), 1)?.by_stick()?;
    let remote = RemoteServer::new(lab, &fixture.network, Path { mtu: MTU, icmp })?;
    let directory = &fixture.system.directory;
    let configuration = match version {
        IpVersion::V4 => "dnsmasq.conf",
        IpVersion::V6 => "dnsmasq-ipv6.conf",
    };
    let (near, there) = (server(version), remote_address(version));
    let _near = [
        servers::dnsmasq(lab, lab.command("dnsmasq"), configuration)?,
        servers::atftpd(lab, near, directory)?,
        servers::nginx(lab, lab.command("nginx"), near, directory)?,
    ];
    let station = remote.server();
    let _there = match scheme {
        "http" => servers::nginx(lab, station.command("nginx"), there, directory)?,
        _ => servers::dnsmasq_tftp(lab, station.command("dnsmasq"), directory)?,
    };
    let url = format!("{scheme}://{}", host(there));
    fixture.system.configure(&format!(
        "title Test system\nlinux {url}/linux\ninitrd {url}/system.cpio\ninitrd {url}/data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    fixture.system.check(&format!("{url}/data.cpio"))?;
    fixture.fetches().map(drop)
}
