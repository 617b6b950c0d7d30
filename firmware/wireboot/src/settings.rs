//! How we are to work: what the embedded configuration says, overridden by words of the load options. What concerns only the program that is
//! started, a configuration from a server may say too.

use crate::driver::Driver;
use crate::error::Error;
use crate::options;
use alloc::string::ToString;
use core::num::NonZeroU32;
use wireboot_fetch::Floor;
use wireboot_fetch::url::{Scheme, Url};
use wireboot_net::Duration;
use wireboot_nic::vlan::VlanId;
use wireboot_wire::bootconf::Setting;

/// How long a server is waited for that files have come from, unless the settings say: with a few hundred machines, a start after a power
/// failure takes minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// How we are to work.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    /// APs for the network: 0 for none, else as many as are of use.
    pub processors: Option<u32>,
    /// Whose driver drives the network card; ours where there is one, if this does not say.
    pub nic: Option<Driver>,
    /// The VLAN (IEEE 802.1Q) that all frames are in; `None` for untagged ones.
    pub vlan: Option<VlanId>,
    /// The network card is asked what it does beyond virtio, unless this is false.
    pub ask_card: bool,
    /// The slowest download that goes on.
    pub floor: Floor,
    /// How long a server is waited for that files have come from.
    pub patience: Duration,
    /// Whose network an EFI program finds; ours where it can be, if this does not say.
    pub network: Option<NetworkOwner>,
    /// Over ours: what such a program reads by a TFTP of its own comes from memory, unless this says otherwise.
    pub near_end: Option<bool>,
    /// Where the report of a boot goes; nowhere, if this does not say.
    pub report: Option<Url>,
}

/// Whose network an EFI program finds that is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkOwner {
    /// The firmware's, which gets the card back before.
    Firmware,
    /// Ours, where our own driver drives the card: it stays while the program runs.
    #[default]
    Wireboot,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            processors: None,
            nic: None,
            vlan: None,
            ask_card: true,
            floor: Floor::default(),
            patience: PATIENCE,
            network: None,
            near_end: None,
            report: None,
        }
    }
}

/// How messages name PE section `.wbconf`.
pub(crate) const EMBEDDED: &str = "the embedded configuration";

/// Why a setting is refused.
enum Refusal {
    /// There is none of this name.
    Unknown,
    /// It takes something else: this.
    Takes(&'static str),
}

impl Settings {
    /// Those of the embedded configuration and of the load options.
    pub fn of(embedded: &[Setting], options: &str) -> Result<Self, Error> {
        let mut settings = Self::default();
        for setting in embedded {
            settings.configure(EMBEDDED, setting)?;
        }
        settings.override_by(options)?;
        Ok(settings)
    }

    /// Adds what the configuration `name` says that came from a server: of what is started, and where neither load options nor the embedded
    /// configuration say anything.
    pub fn complete(&mut self, name: &str, served: &[Setting]) -> Result<(), Error> {
        for setting in served {
            let Setting { key, value } = setting;
            let is_said = match *key {
                "network" => self.network.is_some(),
                "near-end" => self.near_end.is_some(),
                "report" => self.report.is_some(),
                _ => {
                    log::warn!(
                        "{name}: {key} {value} comes too late: the network runs already; embed it in wireboot.efi, or write {key}={value} \
                         before the URL of the load options"
                    );
                    continue;
                }
            };
            if is_said {
                continue;
            }
            match self.configure(name, setting) {
                // No reason not to boot.
                Err(error) if *key == "report" => log::warn!("{error}"),
                result => result?,
            }
        }
        Ok(())
    }

    fn configure(&mut self, name: &str, Setting { key, value }: &Setting) -> Result<(), Error> {
        self.set(key, value).map_err(|refusal| Error::Configured {
            name: name.to_string(),
            key,
            value: value.clone(),
            takes: match refusal {
                Refusal::Takes(what) => what,
                Refusal::Unknown => "no value",
            },
        })?;
        log::info!("{name}: {key} {value}");
        Ok(())
    }

    fn override_by(&mut self, load_options: &str) -> Result<(), Error> {
        let url = options::url(load_options).map(|(url, _)| url);
        for word in load_options.split_whitespace() {
            if url == Some(word) {
                break;
            }
            let Some((key, value)) = word.split_once('=') else {
                continue;
            };
            match self.set(key, value) {
                // Without a URL, the options may be somebody else's.
                Err(Refusal::Unknown) if url.is_none() => {}
                Err(_) => return Err(Error::Setting(word.to_string())),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        match key {
            "processors" => {
                let takes = "a number: 0 for the BSP (bootstrap processor) alone, else on how many APs the network may run";
                let number = value.parse().map_err(|_| Refusal::Takes(takes))?;
                self.processors = Some(number);
            }
            "nic" => {
                let driver = Driver::named(value);
                self.nic = Some(driver.ok_or(Refusal::Takes(Driver::NAMES))?);
            }
            "vlan" => {
                let id = value.parse().ok().and_then(VlanId::new);
                self.vlan = Some(id.ok_or(Refusal::Takes("a number from 1 to 4094"))?);
            }
            "card" => {
                self.ask_card = match value {
                    "plain" => false,
                    "ask" => true,
                    _ => return Err(Refusal::Takes("plain or ask")),
                };
            }
            "floor" => {
                // None is none: a server could hold the machine for ever.
                let takes = "the KiB of a file that must come in any 30 s, at least 1";
                let kib: NonZeroU32 = value.parse().map_err(|_| Refusal::Takes(takes))?;
                self.floor.bytes = u64::from(kib.get()) * 1024;
            }
            "patience" => {
                let takes =
                    "the seconds to wait for a server that files have come from, 0 to 65535";
                let seconds: u16 = value.parse().map_err(|_| Refusal::Takes(takes))?;
                self.patience = Duration::from_secs(seconds.into());
            }
            "near-end" => {
                self.near_end = match value {
                    "0" => Some(false),
                    "1" => Some(true),
                    _ => return Err(Refusal::Takes("0 or 1")),
                };
            }
            "network" => {
                self.network = match value {
                    "firmware" => Some(NetworkOwner::Firmware),
                    "wireboot" => Some(NetworkOwner::Wireboot),
                    _ => return Err(Refusal::Takes("firmware or wireboot")),
                };
            }
            "report" => {
                let url = Url::parse(value).ok();
                let url = url.filter(|url| url.scheme() == Scheme::Http);
                self.report = Some(url.ok_or(Refusal::Takes("an http URL"))?);
            }
            _ => return Err(Refusal::Unknown),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;
    use wireboot_wire::bootconf;

    fn by_options(options: &str) -> Result<Settings, Error> {
        Settings::of(&[], options)
    }

    fn embedded(text: &str) -> Vec<Setting> {
        bootconf::parse_embedded(text).unwrap().settings
    }

    #[test]
    fn load_options_stand_before_the_url() {
        let of = |options| by_options(options).map(|settings| settings.processors);
        assert!(matches!(of("http://a/b processors=1"), Ok(None)));
        assert!(matches!(of("processors=0 http://a/b"), Ok(Some(0))));
        assert!(matches!(of("x.efi processors=2 http://a/b"), Ok(Some(2))));
        assert!(matches!(of("x.efi processors=2"), Ok(Some(2))));
        assert!(matches!(of("x.efi root=/dev/sda"), Ok(None)));
        assert!(
            matches!(of("processors=many http://a/b"), Err(Error::Setting(word)) if word == "processors=many")
        );
        let nic = |name| by_options(name).map(|settings| settings.nic);
        assert!(matches!(nic("nic=snp http://a/b"), Ok(Some(Driver::Snp))));
        assert!(matches!(nic("nic=undi http://a/b"), Ok(Some(Driver::Undi))));
        assert!(matches!(nic("nic=native x.efi"), Ok(Some(Driver::Native))));
        assert!(
            matches!(nic("nic=other http://a/b"), Err(Error::Setting(word)) if word == "nic=other")
        );
        let vlan = |number| by_options(number).map(|settings| settings.vlan);
        assert!(matches!(vlan("vlan=4094 http://a/b"), Ok(Some(id)) if id.to_string() == "4094"));
        for wrong in ["vlan=0", "vlan=4095", "vlan=", "vlan=70000"] {
            assert!(matches!(vlan(wrong), Err(Error::Setting(word)) if word == wrong));
        }
        let card = |word| by_options(word).map(|settings| settings.ask_card);
        assert!(matches!(card("http://a/b card=plain"), Ok(true)));
        assert!(matches!(card("card=plain http://a/b"), Ok(false)));
        assert!(matches!(card("card=ask x.efi"), Ok(true)));
        assert!(
            matches!(card("card=fast x.efi"), Err(Error::Setting(word)) if word == "card=fast")
        );
        let floor = |kib| by_options(kib).map(|settings| settings.floor);
        let slow = |kib: u64| Floor {
            bytes: kib * 1024,
            ..Floor::default()
        };
        assert!(matches!(floor("http://a/b floor=1"), Ok(floor) if floor == slow(64)));
        assert!(matches!(floor("floor=1 http://a/b"), Ok(floor) if floor == slow(1)));
        assert!(
            matches!(floor("floor=4294967295 x.efi"), Ok(floor) if floor == slow(u32::MAX.into()))
        );
        for wrong in [
            "floor=0",
            "floor=-1",
            "floor=",
            "floor=4294967296",
            "floor=2M",
        ] {
            assert!(matches!(floor(wrong), Err(Error::Setting(word)) if word == wrong));
        }
        let patience = |seconds| by_options(seconds).map(|settings| settings.patience.secs());
        assert!(matches!(patience("http://a/b patience=1"), Ok(600)));
        assert!(matches!(patience("patience=0 http://a/b"), Ok(0)));
        assert!(matches!(patience("patience=65535 x.efi"), Ok(65_535)));
        for wrong in [
            "patience=65536",
            "patience=-1",
            "patience=",
            "patience=5min",
        ] {
            assert!(matches!(patience(wrong), Err(Error::Setting(word)) if word == wrong));
        }
        let near_end = |name| by_options(name).map(|settings| settings.near_end);
        assert!(matches!(near_end("near-end=0 http://a/b"), Ok(Some(false))));
        assert!(matches!(near_end("near-end=1 x.efi"), Ok(Some(true))));
        assert!(
            matches!(near_end("near-end=2 x.efi"), Err(Error::Setting(word)) if word == "near-end=2")
        );
        let network = |name| by_options(name).map(|settings| settings.network);
        use NetworkOwner::{Firmware, Wireboot};
        assert!(matches!(network("http://a/b network=wireboot"), Ok(None)));
        assert!(matches!(
            network("network=wireboot http://a/b"),
            Ok(Some(Wireboot))
        ));
        assert!(matches!(
            network("network=firmware x.efi"),
            Ok(Some(Firmware))
        ));
        assert!(
            matches!(network("network=ours x.efi"), Err(Error::Setting(word)) if word == "network=ours")
        );
        assert!(matches!(
            by_options("x.efi procesors=2 http://a/b"),
            Err(Error::Setting(_))
        ));
    }

    #[test]
    fn every_key_of_a_configuration_is_a_setting() {
        for key in bootconf::SETTINGS {
            assert!(
                !matches!(Settings::default().set(key, "?"), Err(Refusal::Unknown)),
                "{key}"
            );
        }
    }

    #[test]
    fn load_options_override_what_is_embedded() {
        let embedded = embedded(
            "processors 3\nnic snp\nvlan 7\ncard plain\nfloor 16\npatience 60\nnetwork wireboot\nnear-end 0\nreport http://a/r\ntitle A\nlinux a",
        );
        let all = Settings {
            processors: Some(3),
            nic: Some(Driver::Snp),
            vlan: VlanId::new(7),
            ask_card: false,
            floor: Floor {
                bytes: 16_384,
                ..Floor::default()
            },
            patience: Duration::from_secs(60),
            network: Some(NetworkOwner::Wireboot),
            near_end: Some(false),
            report: Url::parse("http://a/r").ok(),
        };
        assert!(matches!(Settings::of(&embedded, ""), Ok(settings) if settings == all));
        let some = Settings::of(
            &embedded,
            "processors=0 nic=native card=ask floor=128 patience=9 network=firmware near-end=1 report=http://b/r http://a/b",
        );
        let expected = Settings {
            processors: Some(0),
            nic: Some(Driver::Native),
            vlan: VlanId::new(7),
            ask_card: true,
            floor: Floor {
                bytes: 131_072,
                ..Floor::default()
            },
            patience: Duration::from_secs(9),
            network: Some(NetworkOwner::Firmware),
            near_end: Some(true),
            report: Url::parse("http://b/r").ok(),
        };
        assert!(matches!(some, Ok(settings) if settings == expected));
    }

    #[test]
    fn a_server_says_what_is_started_where_nobody_else_does() {
        let served =
            bootconf::parse("network wireboot\nnear-end 0\nreport http://a/r\nvlan 7\nefi a")
                .unwrap();
        let completed = |embedded: &[Setting], options| {
            let mut settings = Settings::of(embedded, options).unwrap();
            settings.complete("a", &served.settings).unwrap();
            settings
        };
        use NetworkOwner::{Firmware, Wireboot};
        let all = completed(&[], "");
        assert_eq!((all.network, all.near_end), (Some(Wireboot), Some(false)));
        assert_eq!(all.vlan, None);
        let to = |settings: Settings| settings.report.map(|url| url.to_string());
        assert_eq!(to(all).as_deref(), Some("http://a/r"));
        let elsewhere = completed(&embedded("report http://b/r"), "");
        assert_eq!(to(elsewhere).as_deref(), Some("http://b/r"));
        let some = completed(&embedded("network firmware"), "near-end=1 http://a/b");
        assert_eq!((some.network, some.near_end), (Some(Firmware), Some(true)));
        let wrong = bootconf::parse("network ours\nefi a").unwrap().settings;
        let error = Settings::default()
            .complete("tftp://a/b", &wrong)
            .unwrap_err();
        let expected =
            "tftp://a/b: network \"ours\" is not understood: network takes firmware or wireboot";
        assert_eq!(error.to_string(), expected);
    }

    /// `wireboot serve --check` asks it.
    #[test]
    fn the_codec_knows_what_a_server_may_say() {
        for key in bootconf::SETTINGS {
            for value in [
                "0",
                "1",
                "2",
                "firmware",
                "wireboot",
                "?",
                "http://a/r",
                "http:///r",
                "tftp://a/r",
            ] {
                let setting = Setting {
                    key,
                    value: value.to_string(),
                };
                let values = setting.of_the_program();
                let expected = values.is_none_or(|values| values.accept(value));
                let mut settings = Settings::default();
                let taken = settings.complete("a", &[setting]);
                if key == "report" {
                    // It is no reason not to boot.
                    assert_eq!((taken.is_ok(), settings.report.is_some()), (true, expected));
                } else {
                    assert_eq!(taken.is_ok(), expected, "{key} {value}");
                }
            }
        }
    }

    #[test]
    fn errors_name_the_key_the_value_and_what_it_takes() {
        for (line, expected) in [
            (
                "vlan 4095",
                "vlan \"4095\" is not understood: vlan takes a number from 1 to 4094",
            ),
            (
                "processors two",
                "processors \"two\" is not understood: processors takes a number",
            ),
            (
                "floor 0",
                "floor \"0\" is not understood: floor takes the KiB of a file that must come in any 30 s, at least 1",
            ),
            (
                "patience long",
                "patience \"long\" is not understood: patience takes the seconds to wait for a server",
            ),
            (
                "report tftp://a/b",
                "report \"tftp://a/b\" is not understood: report takes an http URL",
            ),
            (
                "nic intel",
                "nic \"intel\" is not understood: nic takes native",
            ),
        ] {
            let error: String = Settings::of(&embedded(line), "").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
