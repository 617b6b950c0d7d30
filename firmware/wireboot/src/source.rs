//! What to boot: load options, else an embedded configuration, else what the DHCP server gives to user class
//! `wireboot`, else `wireboot.conf` beside wireboot.efi.

use crate::boot::{Kind, Plan, Planned};
use crate::error::Error;
use crate::fetching::{Fetcher, Wanted};
use crate::menu;
use crate::origin::{self, Origin};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_fetch::dhcp::{DhcpRequest, VendorClass};
use wireboot_fetch::url::Url;
use wireboot_fetch::{File, Leases};
use wireboot_net::Duration;
use wireboot_platform::image::LoadedSelf;
use wireboot_platform::smbios;
use wireboot_wire::bootconf::{self, BootConfig, Program, Setting};
use wireboot_wire::filetype;

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
        /// Absolute, as the load options give it.
        url: Url,
        /// For what is started.
        arguments: String,
    },
    /// The same as DHCP names it by one version of IP. By the other it may name another.
    Named {
        /// A boot file, or `wireboot.conf` beside wireboot.efi.
        url: Url,
    },
    /// A configuration that is here already.
    Config {
        /// Parsed, with at least one entry.
        config: BootConfig,
        /// What its relative URLs are relative to.
        base: Option<Url>,
        /// For what is started.
        arguments: String,
    },
}

/// How messages name PE section `.wbconf`.
const EMBEDDED: &str = "the embedded configuration";

/// The configuration in our own image, if it has one.
pub fn embedded(image: &LoadedSelf) -> Result<Option<BootConfig>, Error> {
    let Some(text) = &image.section else {
        return Ok(None);
    };
    let config = bootconf::parse_embedded(text).map_err(|errors| Error::Config {
        name: EMBEDDED.to_string(),
        errors,
    })?;
    warn(EMBEDDED, &config);
    Ok(Some(config))
}

fn warn(name: &str, config: &BootConfig) {
    for warning in &config.warnings {
        log::warn!("{name}: {warning}");
    }
}

/// What load options or embedded configuration say. One without entries says nothing.
pub fn given(
    image: &LoadedSelf,
    embedded: Option<BootConfig>,
    origin: &Origin,
) -> Result<Option<Choice>, Error> {
    if let Some((url, arguments)) = from_options(&image.options) {
        return Ok(Some(Choice::Url {
            url: Url::parse(url)?,
            arguments: arguments.to_string(),
        }));
    }
    let embedded = embedded.filter(|config| !config.entries.is_empty());
    let embedded = embedded.map(|config| {
        log::info!("using {EMBEDDED}");
        Choice::Config {
            config,
            base: origin.url.clone(),
            arguments: String::new(),
        }
    });
    Ok(embedded)
}

/// `[wireboot.efi] [setting=value ...] URL [arguments]`: the shell puts the program's name first, a boot option does not.
pub fn from_options(options: &str) -> Option<(&str, &str)> {
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
    if origin.has_lease() {
        adopt(fetcher, &origin.leases)
    } else {
        ask(fetcher, origin, false, patience).map(drop)
    }
}

fn adopt(fetcher: &mut Fetcher, leases: &Leases) -> Result<(), Error> {
    report(leases, "the firmware's lease");
    fetcher.configure(leases.clone())
}

fn report(leases: &Leases, source: &str) {
    if let Some(lease) = &leases.v4 {
        log::info!("address {} ({source})", lease.address);
    }
    for address in leases.v6.iter().flat_map(|lease| &lease.addresses) {
        log::info!("address {address} ({source})");
    }
}

fn ask(
    fetcher: &mut Fetcher,
    origin: &Origin,
    want_boot_file: bool,
    patience: Option<Duration>,
) -> Result<Leases, Error> {
    let (architecture, vendor_class) = if origin.http {
        (16, VendorClass::Http)
    } else {
        (7, VendorClass::Pxe)
    };
    let leases = fetcher.dhcp(DhcpRequest {
        architecture,
        uuid: smbios::system_uuid(),
        client_id: origin.client_id.clone(),
        vendor_class,
        user_class: USER_CLASS.to_string(),
        requested_address: origin
            .leases
            .v4
            .as_ref()
            .map(|lease| lease.address.address()),
        want_boot_file,
        // With a lease in hand the question is only what to boot.
        patience: if origin.has_lease() {
            Some(PATIENCE_WITH_LEASE)
        } else {
            patience
        },
    })?;
    report(&leases, "DHCP");
    Ok(leases)
}

/// Asks DHCP what to boot, and looks beside wireboot.efi when the answer is of no help.
pub fn by_dhcp(
    fetcher: &mut Fetcher,
    origin: &Origin,
    patience: Option<Duration>,
) -> Result<Choice, Error> {
    let named = match ask(fetcher, origin, true, patience) {
        Ok(leases) => origin::boot_file(&leases).map_err(Error::BootFile)?,
        Err(Error::Fetch(error)) if origin.has_lease() => {
            log::warn!("{error}");
            adopt(fetcher, &origin.leases)?;
            None
        }
        Err(error) => return Err(error),
    };
    match named {
        Some(url) if !is_us(&url, origin) => Ok(Choice::Named { url }),
        named => {
            let own = origin.url.clone().or(named).ok_or(Error::Nothing)?;
            let url = own.join(CONFIG_NAME)?;
            Ok(Choice::Named { url })
        }
    }
}

/// A server that does not know the user class names wireboot.efi again.
fn is_us(url: &Url, origin: &Origin) -> bool {
    origin.url.as_ref() == Some(url) || url.resource().rsplit(['/', '\\']).next() == Some(OWN_NAME)
}

/// Fetches `url` and finds out what it is: an EFI program, or a configuration.
pub fn fetch(fetcher: &mut Fetcher, url: Url, arguments: String) -> Result<Plan, Error> {
    let mut files = fetcher.get(&[Wanted::plain(&url)])?;
    let file = files.pop().ok_or(Error::Nothing)?;
    plan(fetcher, file, url, arguments)
}

/// The same for what DHCP names by one version of IP, or else by the other.
pub fn fetch_named(fetcher: &mut Fetcher, url: Url, origin: &Origin) -> Result<Plan, Error> {
    let other = |leases: &Leases| {
        origin::boot_files(leases).find(|other| *other != url && !is_us(other, origin))
    };
    let file = fetcher.get_either(&url, other)?;
    let url = Url::parse(&file.url)?;
    plan(fetcher, file, url, String::new())
}

/// What a file says. It came from `url`.
fn plan(fetcher: &mut Fetcher, file: File, url: Url, arguments: String) -> Result<Plan, Error> {
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
    let config = configuration(bytes, &file.url)?;
    warn(&file.url, &config);
    for Setting { key, value } in &config.settings {
        log::warn!(
            "{}: {key} {value} comes too late: the network runs already; embed it in wireboot.efi, or write {key}={value} \
             before the URL of the load options",
            file.url
        );
    }
    drop(file);
    choose(fetcher, config, Some(&base), &arguments)
}

/// The configuration that a file is which came from `url`, or what it is instead.
fn configuration(bytes: &[u8], url: &str) -> Result<BootConfig, Error> {
    bootconf::parse(bytes).map_err(|errors| match filetype::misfit(bytes) {
        Some(what) => Error::Misfit {
            url: url.to_string(),
            what,
        },
        None => Error::Config {
            name: url.to_string(),
            errors,
        },
    })
}

/// Lets the user choose.
pub fn choose(
    fetcher: &mut Fetcher,
    mut config: BootConfig,
    base: Option<&Url>,
    arguments: &str,
) -> Result<Plan, Error> {
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
    fn what_is_no_configuration_is_called_what_it_is() {
        let error = |bytes: &[u8]| configuration(bytes, "http://a/b").unwrap_err();
        let page = error(b"<!DOCTYPE html>\n<title>404</title>").to_string();
        assert!(page.starts_with("http://a/b: is a web page"), "{page}");
        let typo = error(b"title A\nlinux");
        assert!(matches!(typo, Error::Config { errors, .. } if errors.len() == 1));
    }

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
}
