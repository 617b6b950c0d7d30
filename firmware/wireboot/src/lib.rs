//! wireboot.efi: takes the network interface that the firmware booted it from, fetches an operating system over
//! its own network stack, and starts it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod above;
mod account;
pub mod boot;
pub mod card;
pub mod driver;
pub mod engine;
pub mod error;
pub mod fetching;
mod file_url;
pub mod loader;
mod menu;
pub mod network;
mod options;
pub mod origin;
mod plan;
pub mod settings;
pub mod source;
mod tap;

use alloc::string::ToString;
use alloc::vec::Vec;
use card::Card;
use error::{Error, Reached};
use fetching::Fetcher;
use network::Network;
use origin::Origin;
use settings::Settings;
use source::Choice;
use wireboot_fetch::File;
use wireboot_net::Duration;
use wireboot_nic::vlan::VlanId;
use wireboot_platform::image::LoadedSelf;
use wireboot_platform::{Clock, Status};

/// The program: returns only when nothing was booted, with an error status that makes the firmware go on.
pub fn main() -> Status {
    let clock = Clock::calibrate();
    log::info!("wireboot {}", env!("CARGO_PKG_VERSION"));
    let image = LoadedSelf::read();
    // All that can be booted is started inside; coming back means that nothing was.
    let Err(error) = run(&image, clock);
    error.report();
    log::info!("the firmware goes on with its next boot option");
    error.status()
}

/// How long a card is waited for, and whether there is another.
#[derive(Clone, Copy)]
pub struct CardTimeouts {
    /// For its link, in microseconds.
    link: u64,
    /// For a DHCP server; `None`: as long as a switch port with spanning tree takes.
    pub dhcp: Option<Duration>,
    /// There is no other card.
    is_only: bool,
}

/// For the only card: a switch may take as long until it lets anything through (spanning tree, 802.1D: 2 times 15 s, and 20 s before).
const ONLY_CARD: CardTimeouts = CardTimeouts {
    link: 50_000_000,
    dhcp: None,
    is_only: true,
};
/// For one of several that were all in vain.
const SECOND_ROUND: CardTimeouts = CardTimeouts {
    link: 20_000_000,
    dhcp: None,
    is_only: false,
};
/// For one of several: another may be ready.
const FIRST_ROUND: CardTimeouts = CardTimeouts {
    link: 1_000_000,
    dhcp: Some(Duration::from_secs(8)),
    is_only: false,
};

/// Takes the first network card behind which `ask` hears what it needs. It is told how long the card may take. Cards that were in vain go
/// back to the firmware. When all were, they get more time: all of them, or those alone that led to nobody where a server has said that it
/// has no such file.
///
/// # Errors
/// Why the cards were of no use.
pub fn connect<T>(
    origin: &Origin,
    settings: &Settings,
    clock: Clock,
    mut ask: impl FnMut(&mut Fetcher, CardTimeouts) -> Result<T, Error>,
) -> Result<(Fetcher, T), Error> {
    let cards = card::all(origin, settings.nic)?;
    by_turns(&cards, |card, timeouts| {
        attempt(card, timeouts, origin, settings, clock, &mut ask)
    })
}

/// Tries one card after the other, and those of several that may do with more time once more.
fn by_turns<C, T>(
    cards: &[C],
    mut attempt: impl FnMut(&C, CardTimeouts) -> Result<T, Error>,
) -> Result<T, Error> {
    let rounds: &[CardTimeouts] = match cards {
        [_] => &[ONLY_CARD],
        _ => &[FIRST_ROUND, SECOND_ROUND],
    };
    let mut failure = Error::NoInterface;
    let mut led = alloc::vec![(Reached::Nobody, false); cards.len()];
    for timeouts in rounds {
        let is_refused = failure.reached() == Reached::Server;
        for (card, led) in cards.iter().zip(&mut led) {
            // Its network has been seen already, and time brings it no other file.
            let (reached, is_final) = *led;
            if is_final || is_refused && reached > Reached::Nobody {
                continue;
            }
            match attempt(card, *timeouts) {
                Err(error) if error.is_card_failure() => {
                    if cards.len() > 1 {
                        log::warn!("{error}");
                        log::info!("going on with the next network card");
                    }
                    let reached = error.reached();
                    *led = (reached, error.is_final());
                    // What led farther tells more than what another card lacks.
                    if reached > failure.reached() || failure.reached() == Reached::Nobody {
                        failure = error;
                    }
                }
                result => return result,
            }
        }
    }
    Err(failure)
}

/// Opens one card and gets an address over it. Where our driver does not get it or does not start it, and the settings name none, the
/// firmware's does: below a wireboot.efi that keeps the card, that is the one that it offers.
fn attempt<T>(
    card: &Card,
    timeouts: CardTimeouts,
    origin: &Origin,
    settings: &Settings,
    clock: Clock,
    ask: &mut impl FnMut(&mut Fetcher, CardTimeouts) -> Result<T, Error>,
) -> Result<(Fetcher, T), Error> {
    let network = match Network::open(card, timeouts.link, settings, clock) {
        Err(error) if error.is_native_driver_failure() && settings.nic.is_none() => {
            let Some(card) = card.with_firmware_driver() else {
                return Err(error);
            };
            log::warn!("{error}; going on with the firmware's driver");
            Network::open(&card, timeouts.link, settings, clock)?
        }
        result => result?,
    };
    log::info!("ready after {} ms", clock.micros() / 1000);
    let mut fetcher = Fetcher::new(network).with_patience(settings.patience, origin.url.as_ref());
    fetcher.passed("card", card.to_string());
    let heard = ask(&mut fetcher, timeouts)?;
    Ok((fetcher, heard))
}

/// Our address, what to boot where that is not `given`, and its first file. A configuration that is here already needs none from the only
/// card; of several, it takes the one by which its default entry's program comes.
fn choice(
    fetcher: &mut Fetcher,
    origin: &Origin,
    given: Option<Choice>,
    timeouts: CardTimeouts,
) -> Result<(Choice, Option<File>), Error> {
    let choice = match given {
        Some(choice) => {
            source::take_lease_to(fetcher, origin, &choice, timeouts.dhcp)?;
            choice
        }
        None => source::by_dhcp(fetcher, origin, timeouts.dhcp)?,
    };
    fetcher.passed("address", source::addresses(fetcher.leases()));
    if timeouts.is_only && matches!(choice, Choice::Config { .. }) {
        return Ok((choice, None));
    }
    let file = choice.first_file(fetcher, origin)?;
    Ok((choice, file))
}

fn run(image: &LoadedSelf, clock: Clock) -> Result<core::convert::Infallible, Error> {
    // Taking the network interface makes the firmware forget how it loaded us: read that first.
    let origin = Origin::of(image);
    let embedded = source::embedded(image)?;
    let said = embedded.as_ref().map(|config| config.settings.clone());
    let said = said.unwrap_or_default().into_iter();
    // Of what is started, an entry may say something else.
    let (of_program, said): (Vec<_>, Vec<_>) =
        said.partition(|setting| setting.of_the_program().is_some());
    let mut settings = Settings::of(&said, &image.options)?;
    // The firmware may have come by a VLAN itself.
    let by = origin.network.vlan.and_then(VlanId::new);
    settings.vlan = settings.vlan.or(by);
    let mut given = source::given(image, embedded, &origin)?;
    let (mut fetcher, (choice, file)) = loop {
        let connected = connect(&origin, &settings, clock, |fetcher, timeouts| {
            choice(fetcher, &origin, given.clone(), timeouts)
        });
        let error = match connected {
            Ok(connected) => break connected,
            Err(error) => error,
        };
        match &mut given {
            // Another entry than the default may be to be had, by whichever card.
            Some(Choice::Config { config, .. }) if error.is_of_file() => {
                log::warn!("{error}");
                if !menu::choose_another(config, clock)? {
                    return Err(error);
                }
            }
            _ => return Err(error),
        }
    };
    let plan = plan::make(&mut fetcher, choice, file, &of_program, &mut settings)?;
    fetcher.passed("choice", plan.program.url.to_string());
    boot::run(fetcher, &origin, plan, &settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::string::String;
    use wireboot_fetch::FetchError;
    use wireboot_fetch::tftp::TftpError;
    use wireboot_fetch::url::Url;

    /// Why a card was in vain that led so `far`.
    fn in_vain(far: Reached) -> Error {
        let error = match far {
            Reached::Nobody => return Error::NoLink(String::new()),
            Reached::Network => TftpError::Refused {
                requests: 1,
                port: 69,
            },
            Reached::Server => TftpError::Server {
                code: 1,
                text: String::new(),
            },
        };
        Error::from(FetchError::Tftp {
            url: Url::parse("tftp://10.0.0.1/a").unwrap(),
            servers: Vec::new(),
            error: Box::new(error),
        })
    }

    #[test]
    fn more_time_is_for_cards_that_may_do_with_it() {
        use Reached::{Network, Nobody, Server};
        let cases: [(&[Reached], &[usize]); 9] = [
            (&[Nobody], &[0]),
            (&[Server], &[0]),
            (&[Nobody, Nobody], &[0, 1, 0, 1]),
            (&[Network, Network], &[0, 1, 0, 1]),
            (&[Network, Nobody], &[0, 1, 0, 1]),
            // One may be the right one, and not ready yet.
            (&[Nobody, Server], &[0, 1, 0]),
            (&[Network, Server, Nobody], &[0, 1, 2, 2]),
            (&[Network, Server], &[0, 1]),
            (&[Server, Server], &[0, 1]),
        ];
        for (cards, expected) in cases {
            let mut tried = Vec::new();
            let cards: Vec<_> = cards.iter().copied().enumerate().collect();
            let result = by_turns(&cards, |&(number, led), _| -> Result<(), Error> {
                tried.push(number);
                Err(in_vain(led))
            });
            assert_eq!(tried, expected, "{cards:?}");
            let farthest = cards.iter().map(|(_, led)| *led).max();
            assert_eq!(Some(result.unwrap_err().reached()), farthest, "{cards:?}");
        }
    }

    #[test]
    fn a_network_that_has_another_file_is_not_asked_twice() {
        let unreadable = || Url::parse("https://10.0.0.1/a").unwrap_err();
        for other in [Reached::Nobody, Reached::Network] {
            let mut tried = Vec::new();
            let result = by_turns(&[0, 1], |&number, _| -> Result<(), Error> {
                tried.push(number);
                Err(match number {
                    0 => Error::BootFile(unreadable()),
                    _ => in_vain(other),
                })
            });
            assert_eq!(tried, [0, 1, 1]);
            assert!(matches!(result, Err(Error::BootFile(_))));
        }
    }

    #[test]
    fn what_no_other_card_could_do_better_ends_all() {
        let mut tried = 0;
        let result = by_turns(&[0, 1, 2], |&number, _| {
            tried += 1;
            match number {
                0 => Err(in_vain(Reached::Network)),
                _ => Err::<(), _>(Error::Stopped),
            }
        });
        assert!(matches!(result, Err(Error::Stopped)) && tried == 2);
        // The second is ready in the second round.
        let mut links = [false, true].into_iter();
        let second = by_turns(&[0, 1], |&number, timeouts| {
            if number == 1 && links.next() == Some(true) {
                return Ok(timeouts.link);
            }
            Err(in_vain(Reached::Nobody))
        });
        assert!(matches!(second, Ok(link) if link == SECOND_ROUND.link));
    }
}
