//! A test of throughput by wireboot's engine on this processor, and what the processor had to do for it.

use crate::cards::{LINK, take};
use crate::error::{Error, refused};
use crate::escape::is_ended;
use crate::examination::Examination;
use crate::vlan;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::ToString;
use core::cell::Cell;
use core::net::IpAddr;
use wireboot_boot::card::Card;
use wireboot_boot::driver::Driver;
use wireboot_boot::engine::{self, Cable};
use wireboot_boot::error::Error as BootError;
use wireboot_boot::fetching::Fetcher;
use wireboot_boot::network::Network;
use wireboot_boot::origin::Origin;
use wireboot_boot::source;
use wireboot_fetch::Leases;
use wireboot_iperf::{Limit, Test, Watch};
use wireboot_net::{Duration, Engine, Instant, Memory, Region, Stack};
use wireboot_nic::Nic;
use wireboot_platform::claim::pci::Claim;
use wireboot_platform::{Clock, console, memory, random};
use wireboot_report::Throughput;
use wireboot_report::throughput::{Direction, Transport, Work};

/// Memory that data comes to and goes from: more than any processor's cache.
const MEMORY: usize = 64 << 20;
/// How long a router of IPv6 may take to tell what is on the link.
const ROUTER: Duration = Duration::from_secs(4);
/// A test of so many bytes may take so long, and any test so much more than its time, in microseconds.
const SLOWEST: u64 = 300_000_000;
const REST: u64 = 60_000_000;
/// How often progress is shown, in microseconds.
const SHOWN: u64 = 1_000_000;

/// A card with an address, taken from the firmware. Dropping it gives the card back.
pub(crate) struct Measurer {
    /// Always there, but while a test has it.
    nic: Option<Cable>,
    driver: &'static str,
    /// Dropped behind the NIC, whose memory belongs to the device.
    _claim: Option<Claim>,
    leases: Leases,
    region: Region,
    clock: Clock,
}

impl Measurer {
    /// Takes the card that the machine came by, or the first that has a link; with an address of the version of IP that `server` has.
    pub(crate) fn open(
        examination: &Examination<'_>,
        driver: Option<Driver>,
        server: IpAddr,
    ) -> Result<Self, Error> {
        let (origin, clock) = (examination.origin, examination.clock);
        let (memory, _) =
            memory::download_buffer(MEMORY).map_err(refused("memory for the data"))?;
        let card = examination.card(driver)?;
        let leases = leases(&card, origin, server, clock)?;
        let taken = take(&card, clock)?;
        Ok(Self {
            nic: Some(vlan::cable(taken.nic, origin)),
            driver: taken.driver,
            _claim: taken.claim,
            leases,
            region: Region::new(Memory::new(memory)),
            clock,
        })
    }

    /// The longest packet that the card takes, in bytes.
    pub(crate) fn mtu(&self) -> u16 {
        self.nic.as_ref().map_or(0, |nic| nic.properties().mtu)
    }

    /// Runs one test.
    pub(crate) fn measure(&mut self, test: &Test) -> Result<Throughput, Error> {
        let nic = self.nic.take().ok_or(BootError::NoInterface)?;
        let (nic, measured) = measure(nic, &self.leases, test, &self.region, self.clock);
        self.nic = Some(nic);
        let mut measured = measured?;
        measured.driver = self.driver.to_string();
        Ok(measured)
    }
}

impl Drop for Measurer {
    fn drop(&mut self) {
        if let Some(nic) = &mut self.nic {
            nic.stop();
        }
    }
}

/// The addresses of one version of IP: the firmware's, else by DHCP.
fn leases(card: &Card, origin: &Origin, server: IpAddr, clock: Clock) -> Result<Leases, Error> {
    let mut leases = origin.leases.clone();
    if !leases.have_version_of(server) {
        let network = Network::open(card, LINK, &vlan::settings(origin), clock)?;
        let mut fetcher = Fetcher::new(network);
        source::take_lease_for(&mut fetcher, origin, Some(server))?;
        leases = fetcher.leases().clone();
    }
    leases.keep_version_of(server);
    if leases.have_version_of(server) {
        Ok(leases)
    } else {
        Err(Error::NoAddress(server))
    }
}

/// Runs one test on `nic`, which it gives back.
fn measure(
    nic: Cable,
    leases: &Leases,
    test: &Test,
    region: &Region,
    clock: Clock,
) -> (Cable, Result<Throughput, Error>) {
    let mut engine = Engine::new(nic, random::seed().0);
    let measured = turns(&mut engine, leases, test, region, clock);
    (engine.into_nic(), measured)
}

fn turns(
    engine: &mut Engine<Cable>,
    leases: &Leases,
    test: &Test,
    region: &Region,
    clock: Clock,
) -> Result<Throughput, Error> {
    let stack = engine.stack();
    configure(&stack, leases);
    let watch = Rc::new(Watch::default());
    let result = Rc::new(Cell::new(None));
    let task = {
        let (test, region) = (test.clone(), region.clone());
        let (watch, result) = (watch.clone(), result.clone());
        async move {
            wait_for_router(&stack, test.server.ip()).await;
            result.set(Some(
                wireboot_iperf::run(&stack, &test, &region, &watch).await,
            ));
        }
    };
    engine.spawn(task);
    let begin = clock.micros();
    let end = begin + longest(test);
    let mut load = Load::default();
    let mut shown = begin;
    loop {
        let before = load.units;
        let start = clock.ticks();
        let now = clock.micros();
        let received = engine::turn(engine, Instant::from_micros(now as i64))?;
        load.units = units(engine);
        if watch.is_running() {
            load.running(
                start,
                clock.ticks(),
                received || load.units > before,
                before,
            );
            watch.set_busy_percent(load.percent());
            if now - shown >= SHOWN {
                shown = now;
                if is_ended() {
                    return Err(Error::Ended);
                }
                if is_patient(test) {
                    show(&watch);
                }
            }
        }
        if let Some(result) = result.take() {
            console::clear_progress();
            let mut measured: Throughput = result.map_err(Error::Throughput)?;
            measured.work = Some(Work {
                busy_cycles: load.busy,
                busy_percent: load.percent(),
                units: load.last.saturating_sub(load.first.unwrap_or(load.last)),
            });
            return Ok(measured);
        }
        if now > end {
            return Err(Error::Throughput(wireboot_iperf::Error::Stalled(
                (now - begin) / 1_000_000,
            )));
        }
    }
}

/// What the processor does while data moves.
#[derive(Default)]
struct Load {
    /// Ticks in turns that moved something, and in all.
    busy: u64,
    began: Option<u64>,
    ended: u64,
    /// Units that the driver has moved so far.
    units: u64,
    /// The same before the data, and by now.
    first: Option<u64>,
    last: u64,
}

impl Load {
    /// A turn from one tick to another, before which the driver had moved so many units.
    fn running(&mut self, start: u64, end: u64, worked: bool, before: u64) {
        self.began.get_or_insert(start);
        self.first.get_or_insert(before);
        self.ended = end;
        self.last = self.units;
        if worked {
            self.busy += end.saturating_sub(start);
        }
    }

    fn percent(&self) -> f64 {
        let all = self.ended.saturating_sub(self.began.unwrap_or(self.ended));
        self.busy as f64 * 100.0 / (all as f64).max(1.0)
    }
}

fn units(engine: &mut Engine<Cable>) -> u64 {
    let counters = engine.nic_mut().counters();
    counters.transmit_frames + counters.receive_units
}

/// Whether nothing is lost while the console is written to: TCP's windows fit the card's buffers, and a sender loses nothing.
fn is_patient(test: &Test) -> bool {
    test.transport == Transport::Tcp || test.direction == Direction::Send
}

fn show(watch: &Watch) {
    let (bytes, micros) = watch.so_far();
    let rate = (bytes * 8).checked_div(micros).unwrap_or(0);
    let seconds = micros / 1_000_000;
    console::progress(&format!("{seconds} s, {rate} Mbit/s"));
}

/// In microseconds.
fn longest(test: &Test) -> u64 {
    let data = match test.limit {
        Limit::Seconds(seconds) => u64::from(seconds) * 1_000_000,
        Limit::Bytes(_) => SLOWEST,
    };
    data + REST
}

/// Gives the stack its addresses.
pub(crate) fn configure(stack: &Stack, leases: &Leases) {
    if let Some(lease) = &leases.v4 {
        stack.configure(&lease.ipv4_config());
    }
    if let Some(lease) = &leases.v6 {
        stack.ipv6_up();
        for &address in &lease.addresses {
            stack.add_ipv6(address);
        }
    }
}

/// What is on the link of `server` is known, if it is one of IPv6.
pub(crate) async fn wait_for_router(stack: &Stack, server: IpAddr) {
    let end = stack.now() + ROUTER;
    while server.is_ipv6() && stack.router().is_none() && stack.now() < end {
        stack.next_turn().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_that_moved_something_are_work() {
        let mut load = Load::default();
        assert_eq!(load.percent(), 0.0);
        load.units = 5;
        load.running(1000, 1100, true, 2);
        load.units = 5;
        load.running(1100, 1300, false, 5);
        load.units = 9;
        load.running(1300, 1400, true, 5);
        assert_eq!((load.busy, load.first, load.last), (200, Some(2), 9));
        assert_eq!(load.percent(), 50.0);
    }

    #[test]
    fn every_test_ends() {
        let mut test = Test::new(([10, 0, 0, 2], 5201).into());
        assert_eq!(longest(&test), 70_000_000);
        test.limit = Limit::Bytes(u64::MAX);
        assert_eq!(longest(&test), 360_000_000);
    }
}
