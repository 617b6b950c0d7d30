//! What a wireboot.efi above us tells us: one that has started a program which has started us. The device path cannot tell it.

use alloc::format;
use alloc::string::String;
use wireboot_fetch::url::Url;

const HTTP: &str = "by http";
const PXE: &str = "by pxe";

/// Lines: each program's URL, and how the machine came by its first program.
#[derive(Default)]
pub(crate) struct Above(pub(crate) String);

impl Above {
    /// Whether it has started this.
    pub(crate) fn has_started(&self, url: &Url) -> bool {
        self.0.lines().any(|line| line == url.as_str())
    }

    /// Whether the machine came by HTTP Boot, not by PXE.
    pub(crate) fn http(&self) -> Option<bool> {
        let mut how = self.0.lines().filter(|line| [HTTP, PXE].contains(line));
        how.next_back().map(|how| how == HTTP)
    }
}

/// What is told of a program.
pub(crate) fn lines(url: &Url, http: bool) -> String {
    let how = if http { HTTP } else { PXE };
    format!("{url}\n{how}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_and_the_last_goes_before() {
        let url = |text| Url::parse(text).unwrap();
        let (first, second) = (url("tftp://10.0.0.1/ipxe.efi"), url("http://a/grub.efi"));
        let mut above = Above::default();
        assert_eq!(above.http(), None);
        assert!(!above.has_started(&first));
        above.0 += &lines(&first, true);
        assert_eq!(above.http(), Some(true));
        above.0 += &lines(&second, false);
        assert_eq!(above.http(), Some(false));
        assert!(above.has_started(&first) && above.has_started(&second));
        assert!(!above.has_started(&url("http://a/grub")));
    }
}
