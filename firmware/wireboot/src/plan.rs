//! The plan of a boot: which program with which files, by what the file says that the source names, and by the user's choice.

use crate::error::Error;
use crate::fetching::Fetcher;
use crate::file_url::absolute;
use crate::menu;
use crate::settings::{EMBEDDED, Settings};
use crate::source::{self, Choice};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_fetch::File;
use wireboot_fetch::url::Url;
use wireboot_wire::bootconf::{self, BootConfig, Program, Setting};
use wireboot_wire::filetype;

/// As what the program is started.
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

/// What was chosen comes to: `file` is its first, if that is here already, and `embedded` what the embedded configuration says of what is
/// started.
pub(crate) fn make(
    fetcher: &mut Fetcher,
    choice: Choice,
    file: Option<File>,
    embedded: &[Setting],
    settings: &mut Settings,
) -> Result<Plan, Error> {
    let (file, url, arguments) = match (choice, file) {
        (
            Choice::Config {
                config,
                base,
                arguments,
            },
            file,
        ) => {
            let how = (EMBEDDED, &mut *settings);
            let plan = choose(fetcher, config, file, base.as_ref(), &arguments, how)?;
            settings.complete(EMBEDDED, embedded)?;
            return Ok(plan);
        }
        (Choice::Url { url, arguments }, Some(file)) => (file, url, arguments),
        // The one of either version of IP that has come.
        (Choice::Named { .. }, Some(file)) => {
            let url = Url::parse(&file.url)?;
            (file, url, String::new())
        }
        (_, None) => return Err(Error::Nothing),
    };
    settings.complete(EMBEDDED, embedded)?;
    plan(fetcher, file, url, arguments, settings)
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
        None,
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

/// Lets the user choose from the configuration `name`; the default entry's program may be here already. What the entry says of how
/// wireboot.efi is to work completes the settings.
fn choose(
    fetcher: &mut Fetcher,
    mut config: BootConfig,
    default: Option<File>,
    base: Option<&Url>,
    arguments: &str,
    (name, settings): (&str, &mut Settings),
) -> Result<Plan, Error> {
    let network = fetcher.network();
    let index = menu::choose(&config, network.clock, Some(network))?;
    if index >= config.entries.len() {
        return Err(Error::Nothing);
    }
    let file = default.filter(|_| index == config.default);
    let entry = config.entries.swap_remove(index);
    log::info!("booting {:?}", entry.title);
    settings.complete(name, &entry.settings)?;
    let planned = |file: &bootconf::File| -> Result<Planned, Error> {
        Ok(Planned {
            url: absolute(base, file)?,
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
        program: Planned {
            file,
            ..planned(entry.program.file())?
        },
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
