//! `servers`: what the boot servers that the machine is told of grant, and what the paths to them carry, by wireboot's engine on the BSP.

use crate::cards::take;
use crate::error::Error;
use crate::escape::is_ended;
use crate::examination::Examination;
use crate::throughput::{configure, wait_for_router};
use crate::vlan;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, Ipv6Addr};
use wireboot_boot::card::Card;
use wireboot_boot::engine::{self, Cable};
use wireboot_boot::fetching::Fetcher;
use wireboot_boot::network::Network;
use wireboot_boot::origin::{Origin, boot_files};
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
/// How long neighbours may take to answer.
const NEIGHBOUR: Duration = Duration::from_secs(35);
/// How often the keyboard is looked at, in microseconds.
const LOOKED: u64 = 100_000;

/// Asks each server.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let (origin, clock) = (examination.origin, examination.clock);
    let card = examination.card(None)?;
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
    let (mut nic, asked) = ask(vlan::cable(taken.nic, origin), leases, urls, clock);
    nic.stop();
    // Before the claim: its memory belonged to the device.
    drop(nic);
    drop(taken.claim);
    let (servers, ended) = asked?;
    for server in &servers {
        let way = server.path.as_ref().and_then(|path| path.echoes.first());
        let way = way.map_or(0, |echoes| echoes.median_us);
        let failure = server.failure.as_deref().unwrap_or("answers");
        log::info!("{}: {way} us there and back; {failure}", server.url);
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
    let network = Network::open(card, LINK, &vlan::settings(origin), clock)?;
    Ok(source::boot_leases(&mut Fetcher::new(network), origin)?)
}

/// What the servers said so far, and whether the Esc key has ended it.
type Asked = (Vec<Server>, bool);

/// Asks over a card, which it gives back.
fn ask(nic: Cable, leases: Leases, urls: Vec<Url>, clock: Clock) -> (Cable, Result<Asked, Error>) {
    let mut engine = Engine::new(nic, random::seed().0);
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
        let end = stack.now() + NEIGHBOUR;
        for (url, number) in urls.iter().zip(1..) {
            console::progress(&format!("{url}, {number} of {all}"));
            let server = server(&stack, &leases, url, end).await;
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
    let nic = engine.into_nic();
    match fault {
        Some(fault) => (nic, Err(fault.into())),
        None => (nic, Ok((servers.take(), ended))),
    }
}

/// `end`: until then the first hop may learn that the machine is there. The card was just taken from the firmware, and a switch whose spanning tree has seen its
/// link go forwards nothing for 30 s.
async fn server(stack: &Stack, leases: &Leases, url: &Url, end: Instant) -> Server {
    match address(stack, leases, url).await {
        Ok(address) => {
            while !stack.resolves(address) && stack.now() < end {
                stack.next_turn().await;
            }
            wireboot_probe::probe(stack, url, address).await
        }
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
