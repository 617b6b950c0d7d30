//! `servers`: what the boot servers that the machine is told of grant, and what the paths to them carry, by wireboot's engine on the BSP.

use super::is_ended;
use crate::error::Error;
use crate::examination::Examination;
use crate::throughput::{configure, take, wait_for_router};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, Ipv6Addr};
use wireboot_boot::card::{self, AnyNic, Card};
use wireboot_boot::engine;
use wireboot_boot::error::Error as BootError;
use wireboot_boot::fetching::Fetcher;
use wireboot_boot::network::Network;
use wireboot_boot::origin::{Origin, boot_files};
use wireboot_boot::settings::Settings;
use wireboot_boot::source;
use wireboot_fetch::url::{Host, Url};
use wireboot_fetch::{Leases, dns};
use wireboot_net::{Duration, Engine, Instant, Stack};
use wireboot_nic::Nic;
use wireboot_platform::{Clock, console, random};
use wireboot_report::Server;

/// As many servers are asked, the first of them.
const SERVERS: usize = 4;
/// How long the link may take to come up, in microseconds.
const LINK: u64 = 5_000_000;
/// How long a neighbour may take to answer, and how long after one question comes the next: longer than a spanning tree's 30 s.
const NEIGHBOUR: Duration = Duration::from_secs(35);
const NEIGHBOUR_ASKED: Duration = Duration::from_millis(500);
/// How often the keyboard is looked at, in microseconds.
const LOOKED: u64 = 100_000;

/// Asks each server.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let (origin, clock) = (examination.origin, examination.clock);
    let cards = card::all(origin, None)?;
    let card = cards.into_iter().next().ok_or(BootError::NoInterface)?;
    let leases = leases(&card, origin, clock)?;
    let mut urls: Vec<Url> = Vec::new();
    for url in origin.url.clone().into_iter().chain(boot_files(&leases)) {
        if urls.len() < SERVERS && !urls.iter().any(|known| known.same_server(&url)) {
            urls.push(url);
        }
    }
    if urls.is_empty() {
        return Err(Error::NoBootFile);
    }
    let taken = take(&card, clock)?;
    let (mut nic, asked) = ask(taken.nic, leases, urls, clock);
    nic.stop();
    // Before the claim: its memory belonged to the device.
    drop(nic);
    drop(taken.claim);
    let (servers, ended) = asked?;
    for server in &servers {
        log::info!("{}", shown(server));
    }
    examination.report.servers = servers;
    match ended {
        true => Err(Error::Ended),
        false => Ok(()),
    }
}

/// The firmware's, if they name a boot file, else by DHCP.
fn leases(card: &Card, origin: &Origin, clock: Clock) -> Result<Leases, Error> {
    if origin.has_lease() && (origin.url.is_some() || boot_files(&origin.leases).next().is_some()) {
        return Ok(origin.leases.clone());
    }
    let network = Network::open(card, LINK, &Settings::default(), clock)?;
    Ok(source::boot_leases(&mut Fetcher::new(network), origin)?)
}

/// What the servers said so far, and whether the Esc key has ended it.
type Asked = (Vec<Server>, bool);

/// Asks over a card, which it gives back.
fn ask(
    nic: AnyNic,
    leases: Leases,
    urls: Vec<Url>,
    clock: Clock,
) -> (AnyNic, Result<Asked, Error>) {
    let mut engine = Engine::new(engine::cable(nic), random::seed().0);
    let stack = engine.stack();
    configure(&stack, &leases);
    let all = urls.len();
    let told = Rc::<RefCell<Vec<Server>>>::default();
    let servers = told.clone();
    engine.spawn(async move {
        if leases.v6.is_some() {
            // Without it nothing is known to be on the link, not even a name server.
            wait_for_router(&stack, Ipv6Addr::UNSPECIFIED.into()).await;
        }
        wait_for_link_partner(&stack, &leases).await;
        for (url, number) in urls.iter().zip(1..) {
            console::progress(&format!("{url}, {number} of {all}"));
            let server = server(&stack, &leases, url).await;
            told.borrow_mut().push(server);
        }
    });
    let mut looked = 0;
    let mut ended = false;
    let mut fault = None;
    while servers.borrow().len() < all && !ended && fault.is_none() {
        let now = clock.micros();
        if now >= looked {
            looked = now + LOOKED;
            ended = is_ended();
        }
        fault = engine::turn(&mut engine, Instant::from_micros(now as i64)).err();
    }
    console::clear_progress();
    let nic = engine.into_nic().into_nic();
    match fault {
        Some(fault) => (nic, Err(fault.into())),
        None => (nic, Ok((servers.take(), ended))),
    }
}

/// The card was just taken from the firmware: a switch whose spanning tree has seen its link go forwards nothing for 30 s. Waits until a neighbour answers.
async fn wait_for_link_partner(stack: &Stack, leases: &Leases) {
    let Some(lease) = &leases.v4 else { return };
    let Some(server) = lease.next_server.or(lease.server).or(lease.router) else {
        return;
    };
    let Some(route) = stack.route(server.into()).await else {
        return;
    };
    let IpAddr::V4(neighbour) = route.next_hop else {
        return;
    };
    let end = stack.now() + NEIGHBOUR;
    while stack.arp_probe(neighbour).await.is_none() && stack.now() < end {
        stack.sleep(NEIGHBOUR_ASKED).await;
    }
}

async fn server(stack: &Stack, leases: &Leases, url: &Url) -> Server {
    match address(stack, leases, url).await {
        Ok(address) => wireboot_probe::probe(stack, url, address).await,
        Err(failure) => Server {
            url: url.to_string(),
            failure: Some(failure),
            ..Server::default()
        },
    }
}

/// The first address of a URL's host.
async fn address(stack: &Stack, leases: &Leases, url: &Url) -> Result<IpAddr, String> {
    let name = match url.host() {
        Host::Address(address) => return Ok(*address),
        Host::Name(name) => name,
    };
    let found = dns::resolve_by(stack, leases, name).await;
    let mut found = found.map_err(|error| error.to_string())?;
    stack.order(&mut found);
    found
        .first()
        .copied()
        .ok_or_else(|| format!("{name} has no address"))
}

/// A line for the screen.
fn shown(server: &Server) -> String {
    let mut line = server.url.clone();
    if let Some(path) = &server.path {
        let way = path.echoes.first().map_or(0, |one| one.median_us);
        line += &format!(
            ": packets of {} bytes, {} us there and back, {:.1} % lost",
            path.mtu_bytes.unwrap_or(0),
            way,
            path.lost_percent()
        );
    }
    if let Some(failure) = &server.failure {
        line += &format!(": {failure}");
    }
    line
}
