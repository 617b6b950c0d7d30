//! The plan of a boot: which program with which files, by what the file says that the source names, and by the user's choice.

use crate::error::Error;
use crate::fetching::{Fetcher, Wanted};
use crate::menu;
use crate::origin::{self, Origin};
use crate::settings::Settings;
use crate::source;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_fetch::url::Url;
use wireboot_fetch::{File, Leases};
use wireboot_wire::bootconf::{self, BootConfig, Program};
use wireboot_wire::filetype;

/// What is started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An EFI program, which finds a network: ours, or the firmware's.
    Efi,
    /// A Linux kernel, by its EFI stub.
    Linux,
}

/// A file to be fetched, or fetched already.
pub(crate) struct Planned {
    /// Absolute: relative URLs have been resolved.
    pub url: Url,
    /// What it must hash to, if it is still to be fetched.
    pub sha256: Option<[u8; 32]>,
    /// `None` until it was fetched.
    pub file: Option<File>,
}

/// What to boot, with nothing left to decide.
pub(crate) struct Plan {
    /// An EFI application or a kernel with an EFI stub.
    pub program: Planned,
    /// Decides who has the network card while it runs.
    pub kind: Kind,
    /// In the order in which Linux gets them; not used for [`Kind::Efi`].
    pub initrds: Vec<Planned>,
    /// Its load options, without its name.
    pub options: String,
}

/// Fetches `url` and finds out what it is: an EFI program, or a configuration, which completes the settings.
pub(crate) fn fetch(
    fetcher: &mut Fetcher,
    url: Url,
    arguments: String,
    settings: &mut Settings,
) -> Result<Plan, Error> {
    let mut files = fetcher.get(&[Wanted::plain(&url)])?;
    let file = files.pop().ok_or(Error::Nothing)?;
    plan(fetcher, file, url, arguments, settings)
}

/// The same for what DHCP names by one version of IP, or else by the other.
pub(crate) fn fetch_named(
    fetcher: &mut Fetcher,
    url: Url,
    origin: &Origin,
    settings: &mut Settings,
) -> Result<Plan, Error> {
    let other = |leases: &Leases| {
        origin::boot_files(leases).find(|other| *other != url && !origin.is_us(other))
    };
    let file = fetcher.get_either(&url, other)?;
    let url = Url::parse(&file.url)?;
    plan(fetcher, file, url, String::new(), settings)
}

/// What a file says. It came from `url`.
fn plan(
    fetcher: &mut Fetcher,
    file: File,
    url: Url,
    arguments: String,
    settings: &mut Settings,
) -> Result<Plan, Error> {
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
    let mut config = configuration(bytes, &file.url)?;
    source::warn(&file.url, &config);
    let name = file.url.clone();
    drop(file);
    let of_all = core::mem::take(&mut config.settings);
    let plan = choose(
        fetcher,
        config,
        Some(&base),
        &arguments,
        (&name, &mut *settings),
    )?;
    // The entry's own go before.
    settings.complete(&name, &of_all)?;
    Ok(plan)
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

/// Lets the user choose from the configuration `name`. What the entry says of how wireboot.efi is to work completes the settings.
pub(crate) fn choose(
    fetcher: &mut Fetcher,
    mut config: BootConfig,
    base: Option<&Url>,
    arguments: &str,
    (name, settings): (&str, &mut Settings),
) -> Result<Plan, Error> {
    let index = menu::choose(&config, fetcher.network())?;
    if index >= config.entries.len() {
        return Err(Error::Nothing);
    }
    let entry = config.entries.swap_remove(index);
    log::info!("booting {:?}", entry.title);
    settings.complete(name, &entry.settings)?;
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
}
