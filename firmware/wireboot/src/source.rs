//! What to boot: load options, else an embedded configuration, else what the DHCP server gives to user class
//! `wireboot`, else `wireboot.conf` beside wireboot.efi.

use crate::boot::{Kind, Plan, Planned};
use crate::card::Driver;
use crate::error::Error;
use crate::fetching::Fetcher;
use crate::menu;
use crate::origin::{self, Origin};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_fetch::dhcp::{DhcpRequest, Lease, VendorClass};
use wireboot_fetch::url::Url;
use wireboot_net::Duration;
use wireboot_nic::vlan::VlanId;
use wireboot_platform::image::Own;
use wireboot_platform::smbios;
use wireboot_wire::bootconf::{self, BootConfig, Program};

/// The user class that we give (option 77).
const USER_CLASS: &str = "wireboot";
/// Our own file's name, by which a DHCP server that knows no user classes is recognised.
const OWN_NAME: &str = "wireboot.efi";
/// The configuration looked for beside it.
const CONFIG_NAME: &str = "wireboot.conf";

/// How long a DHCP server may take to say what to boot when the firmware has got an address already.
const PATIENCE_WITH_LEASE: Duration = Duration::from_secs(4);

/// What shall be booted, as far as known before anything is fetched.
#[derive(Clone)]
pub enum Choice {
    /// A configuration or an EFI program.
    Url {
        /// Where.
        url: Url,
        /// For what is started.
        arguments: String,
    },
    /// A configuration that is here already.
    Config {
        /// Its text.
        text: Vec<u8>,
        /// What its relative URLs are relative to.
        base: Option<Url>,
        /// For what is started.
        arguments: String,
    },
}

/// How we are to work, by words of the load options before the URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Processors for the network besides the boot processor: 0 for none, else as many as are of use.
    pub processors: Option<u32>,
    /// Whose driver drives the network card; ours where there is one, if this does not say.
    pub nic: Option<Driver>,
    /// The VLAN to be in.
    pub vlan: Option<VlanId>,
}

impl Settings {
    /// Those in the load options.
    pub fn of(image: &Own) -> Result<Self, Error> {
        Self::from_options(&image.options)
    }

    fn from_options(options: &str) -> Result<Self, Error> {
        let mut settings = Self::default();
        let url = from_options(options).map(|(url, _)| url);
        for word in options.split_whitespace() {
            if url == Some(word) {
                break;
            }
            let refused = || Error::Setting(word.to_string());
            match word.split_once('=') {
                Some(("processors", number)) => {
                    settings.processors = Some(number.parse().map_err(|_| refused())?);
                }
                Some(("nic", name)) => {
                    settings.nic = Some(Driver::named(name).ok_or_else(refused)?);
                }
                Some(("vlan", number)) => {
                    let id = number.parse().ok().and_then(VlanId::new);
                    settings.vlan = Some(id.ok_or_else(refused)?);
                }
                // Without a URL, the options may be somebody else's.
                Some(_) if url.is_some() => return Err(refused()),
                _ => {}
            }
        }
        Ok(settings)
    }
}

/// What load options or embedded configuration say.
pub fn given(image: &Own, origin: &Origin) -> Result<Option<Choice>, Error> {
    if let Some((url, arguments)) = from_options(&image.options) {
        return Ok(Some(Choice::Url {
            url: Url::parse(url)?,
            arguments: arguments.to_string(),
        }));
    }
    let embedded = image.section.clone().map(|text| {
        log::info!("using the embedded configuration");
        Choice::Config {
            text,
            base: origin.url.clone(),
            arguments: String::new(),
        }
    });
    Ok(embedded)
}

/// `[wireboot.efi] [setting=value ...] URL [arguments]`: the shell puts the program's name first, a boot option does not.
fn from_options(options: &str) -> Option<(&str, &str)> {
    let (mut word, mut rest) = cut_word(options);
    let mut first = true;
    while !word.contains("://") {
        if !first && !word.contains('=') {
            return None;
        }
        first = false;
        (word, rest) = cut_word(rest);
    }
    Some((word, rest))
}

/// The first word and the rest.
fn cut_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

/// An address without a question about boot files: the firmware's, else by DHCP.
pub fn take_lease(
    fetcher: &mut Fetcher,
    origin: &Origin,
    patience: Option<Duration>,
) -> Result<(), Error> {
    match &origin.lease {
        Some(lease) => adopt(fetcher, lease),
        None => ask(fetcher, origin, false, patience).map(drop),
    }
}

fn adopt(fetcher: &mut Fetcher, lease: &Lease) -> Result<(), Error> {
    log::info!("address {} (the firmware's lease)", lease.address);
    fetcher.configure(lease.clone())
}

fn ask(
    fetcher: &mut Fetcher,
    origin: &Origin,
    want_boot_file: bool,
    patience: Option<Duration>,
) -> Result<Lease, Error> {
    let mac = fetcher.network().mac();
    let (architecture, vendor_class) = if origin.http {
        (16, VendorClass::Http)
    } else {
        (7, VendorClass::Pxe)
    };
    let lease = fetcher.dhcp(DhcpRequest {
        architecture,
        uuid: smbios::system_uuid().unwrap_or_else(|| uuid_of(mac)),
        vendor_class,
        user_class: USER_CLASS.to_string(),
        requested_address: origin.lease.as_ref().map(|lease| lease.address.address()),
        want_boot_file,
        // With a lease in hand the question is only what to boot.
        patience: origin
            .lease
            .as_ref()
            .map(|_| PATIENCE_WITH_LEASE)
            .or(patience),
    })?;
    log::info!("address {} (DHCP)", lease.address);
    Ok(lease)
}

/// Something that stays the same for a machine without a UUID: its MAC address.
fn uuid_of(mac: [u8; 6]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[10..].copy_from_slice(&mac);
    uuid
}

/// Asks DHCP what to boot, and looks beside wireboot.efi when the answer is of no help.
pub fn by_dhcp(
    fetcher: &mut Fetcher,
    origin: &Origin,
    patience: Option<Duration>,
) -> Result<Choice, Error> {
    let arguments = String::new();
    let named = match (ask(fetcher, origin, true, patience), &origin.lease) {
        (Ok(lease), _) => origin::boot_file(&lease),
        (Err(Error::Fetch(error)), Some(lease)) => {
            log::warn!("{error}");
            adopt(fetcher, lease)?;
            None
        }
        (Err(error), _) => return Err(error),
    };
    // A server that does not know the user class names wireboot.efi again.
    let is_us = |url: &Url| {
        origin.url.as_ref() == Some(url)
            || url.resource().rsplit(['/', '\\']).next() == Some(OWN_NAME)
    };
    match named {
        Some(url) if !is_us(&url) => Ok(Choice::Url { url, arguments }),
        named => {
            let own = origin.url.clone().or(named).ok_or(Error::Nothing)?;
            Ok(Choice::Url {
                url: own.join(CONFIG_NAME)?,
                arguments,
            })
        }
    }
}

/// Fetches `url` and finds out what it is: an EFI program, or a configuration.
pub fn fetch(fetcher: &mut Fetcher, url: Url, arguments: String) -> Result<Plan, Error> {
    let mut files = fetcher.get(&[(&url, None)])?;
    let file = files.pop().ok_or(Error::Nothing)?;
    let bytes = file.content();
    if bytes.starts_with(b"MZ") {
        return Ok(Plan {
            program: Planned {
                url,
                sha256: None,
                file: Some(file),
            },
            kind: Kind::Efi,
            initrds: Vec::new(),
            options: arguments,
        });
    }
    // Relative to where it was found in the end, after redirects.
    let base = Url::parse(&file.url)?;
    let text = bytes.to_vec();
    choose(fetcher, &text, Some(&base), &file.url, &arguments)
}

/// Reads a configuration and lets the user choose.
pub fn choose(
    fetcher: &mut Fetcher,
    text: &[u8],
    base: Option<&Url>,
    name: &str,
    arguments: &str,
) -> Result<Plan, Error> {
    let mut config: BootConfig = bootconf::parse(text).map_err(|errors| Error::Config {
        name: name.to_string(),
        errors,
    })?;
    for warning in &config.warnings {
        log::warn!("{name}: {warning}");
    }
    let index = menu::choose(&config, fetcher.network())?;
    if index >= config.entries.len() {
        return Err(Error::Nothing);
    }
    let entry = config.entries.swap_remove(index);
    log::info!("booting {:?}", entry.title);
    let planned = |file: &bootconf::File| -> Result<Planned, Error> {
        let url = match base {
            Some(base) => base.join(&file.url)?,
            None if file.url.contains("://") => Url::parse(&file.url)?,
            None => return Err(Error::Relative(file.url.clone())),
        };
        Ok(Planned {
            url,
            sha256: file.sha256,
            file: None,
        })
    };
    let kind = match entry.program {
        Program::Linux(_) => Kind::Linux,
        Program::Efi(_) => Kind::Efi,
    };
    let mut options = entry.options.clone();
    if !arguments.is_empty() {
        if !options.is_empty() {
            options.push(' ');
        }
        options.push_str(arguments);
    }
    Ok(Plan {
        program: planned(entry.program.file())?,
        kind,
        initrds: entry.initrd.iter().map(planned).collect::<Result<_, _>>()?,
        options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_options() {
        let url = "http://a/b";
        assert_eq!(from_options("http://a/b"), Some((url, "")));
        assert_eq!(from_options(" http://a/b  x=1 y "), Some((url, "x=1 y")));
        assert_eq!(from_options("wireboot.efi http://a/b"), Some((url, "")));
        assert_eq!(
            from_options("FS0:\\wireboot.efi\thttp://a/b quiet"),
            Some((url, "quiet"))
        );
        assert_eq!(from_options("wireboot.efi"), None);
        assert_eq!(from_options(""), None);
        assert_eq!(from_options("wireboot.efi quiet http://a/b"), None);
        assert_eq!(
            from_options("wireboot.efi processors=0 http://a/b x=1"),
            Some((url, "x=1"))
        );
    }

    #[test]
    fn settings_stand_before_the_url() {
        let of = |options| Settings::from_options(options).map(|settings| settings.processors);
        assert!(matches!(of("http://a/b processors=1"), Ok(None)));
        assert!(matches!(of("processors=0 http://a/b"), Ok(Some(0))));
        assert!(matches!(of("x.efi processors=2 http://a/b"), Ok(Some(2))));
        assert!(matches!(of("x.efi processors=2"), Ok(Some(2))));
        assert!(matches!(of("x.efi root=/dev/sda"), Ok(None)));
        assert!(
            matches!(of("processors=many http://a/b"), Err(Error::Setting(word)) if word == "processors=many")
        );
        let of = |options| Settings::from_options(options);
        let nic = |name| of(name).map(|settings| settings.nic);
        assert!(matches!(nic("nic=snp http://a/b"), Ok(Some(Driver::Snp))));
        assert!(matches!(nic("nic=native x.efi"), Ok(Some(Driver::Native))));
        assert!(
            matches!(nic("nic=undi http://a/b"), Err(Error::Setting(word)) if word == "nic=undi")
        );
        let vlan = |number| of(number).map(|settings| settings.vlan);
        assert!(matches!(vlan("vlan=4094 http://a/b"), Ok(Some(id)) if id.to_string() == "4094"));
        for wrong in ["vlan=0", "vlan=4095", "vlan=", "vlan=70000"] {
            assert!(matches!(vlan(wrong), Err(Error::Setting(word)) if word == wrong));
        }
        assert!(matches!(
            of("x.efi procesors=2 http://a/b"),
            Err(Error::Setting(_))
        ));
    }
}
