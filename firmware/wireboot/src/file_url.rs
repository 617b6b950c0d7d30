//! The URLs of a configuration's files, which may be relative.

use crate::error::Error;
use wireboot_fetch::url::Url;
use wireboot_wire::bootconf;

/// The whole URL of a file. `base`: where the configuration came from; `None` where that is no server.
///
/// # Errors
/// [`Error::Relative`] without a base, [`Error::Url`] where it is no URL that can be fetched.
pub(crate) fn absolute(base: Option<&Url>, file: &bootconf::File) -> Result<Url, Error> {
    Ok(match base {
        Some(base) => base.join(&file.url)?,
        None if file.url.contains("://") => Url::parse(&file.url)?,
        None => return Err(Error::Relative(file.url.clone())),
    })
}
