//! Which bytes of which version of a file a request gets: validators, conditions and ranges (RFC 9110 sections 8.8, 13 and 14).

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::head::Fields;
use crate::content::Content;

/// What tells one version of a file from another.
#[derive(Debug)]
pub(super) struct Validators {
    /// Absent for content made for this request.
    tag: Option<String>,
    modified: Option<SystemTime>,
}

impl Validators {
    pub(super) fn of(content: &Content) -> Self {
        // Whole seconds, which is what the header can say.
        let since = content
            .modified()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            tag: since.map(|since| format!("\"{:x}-{:x}\"", since.as_nanos(), content.len())),
            modified: since.map(|since| UNIX_EPOCH + Duration::from_secs(since.as_secs())),
        }
    }

    /// The header fields that tell them.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static str, String)> {
        let modified = self.modified.map(httpdate::fmt_http_date);
        [("ETag", self.tag.clone()), ("Last-Modified", modified)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
    }

    /// True when a list of entity tags names this version (weak comparison).
    fn tag_is_in(&self, list: &str) -> bool {
        let listed = |tag: &str| self.tag.as_deref() == Some(tag.trim().trim_start_matches("W/"));
        list.trim() == "*" || list.split(',').any(listed)
    }

    /// True when the value of If-Range is this version (strong comparison; an exact date counts as strong).
    fn is(&self, value: &str) -> bool {
        let date = httpdate::parse_http_date(value).ok();
        self.tag.as_deref() == Some(value.trim()) || (date.is_some() && date == self.modified)
    }
}

/// Which bytes a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    Whole,
    Part(RangeInclusive<u64>),
    OutOfReach,
    Unchanged,
}

/// RFC 9110 section 13.2.2 for GET and HEAD. Several ranges, or a header that is no range, get the whole file.
pub(super) fn select(fields: &Fields, validators: &Validators, length: u64) -> Selection {
    if let Some(list) = fields.get("if-none-match") {
        if validators.tag_is_in(list) {
            return Selection::Unchanged;
        }
    } else if let Some(date) = fields.get("if-modified-since")
        && let Ok(date) = httpdate::parse_http_date(date)
        && validators.modified.is_some_and(|modified| modified <= date)
    {
        return Selection::Unchanged;
    }
    let Some(range) = fields.get("range") else {
        return Selection::Whole;
    };
    if fields
        .get("if-range")
        .is_some_and(|value| !validators.is(value))
    {
        return Selection::Whole;
    }
    only_range(range, length).unwrap_or(Selection::Whole)
}

/// The one range of a Range header (RFC 9110 section 14.1.2); `None` when there are several, or it is malformed.
fn only_range(header: &str, length: u64) -> Option<Selection> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that does not fit lies behind the end of any file.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let (first, last) = header.strip_prefix("bytes=")?.trim().split_once('-')?;
    let (first, last) = match (first, last) {
        ("", suffix) => (length.saturating_sub(number(suffix)?), u64::MAX),
        (first, "") => (number(first)?, u64::MAX),
        (first, last) => (number(first)?, number(last)?),
    };
    if last < first {
        return None;
    }
    Some(match first < length {
        true => Selection::Part(first..=last.min(length - 1)),
        false => Selection::OutOfReach,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn selected(fields: &[(&str, &str)]) -> Selection {
        let validators = Validators {
            tag: Some("\"v1\"".to_owned()),
            modified: httpdate::parse_http_date(DATE).ok(),
        };
        let fields = fields
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()));
        select(&Fields(fields.collect()), &validators, 1000)
    }

    #[test]
    fn ranges() {
        for (range, expected) in [
            ("bytes=0-99", Selection::Part(0..=99)),
            ("bytes=900-", Selection::Part(900..=999)),
            ("bytes=-100", Selection::Part(900..=999)),
            ("bytes=-5000", Selection::Part(0..=999)),
            ("bytes=999-", Selection::Part(999..=999)),
            ("bytes=990-2000", Selection::Part(990..=999)),
            ("bytes=1000-", Selection::OutOfReach),
            ("bytes=0-1,5-6", Selection::Whole),
            ("lines=1-2", Selection::Whole),
            ("bytes=-0", Selection::OutOfReach),
            ("bytes=99999999999999999999-", Selection::OutOfReach),
            ("bytes=5-4", Selection::Whole),
            ("bytes=+5-9", Selection::Whole),
            ("bytes=-", Selection::Whole),
            ("bytes=x", Selection::Whole),
        ] {
            assert_eq!(selected(&[("range", range)]), expected, "{range}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_the_whole_file() {
        for (version, expected) in [
            ("\"v1\"", Selection::Part(5..=999)),
            (DATE, Selection::Part(5..=999)),
            ("\"v2\"", Selection::Whole),
            ("W/\"v1\"", Selection::Whole),
            ("Sun, 06 Nov 1994 08:49:38 GMT", Selection::Whole),
        ] {
            let headers = [("range", "bytes=5-"), ("if-range", version)];
            assert_eq!(selected(&headers), expected, "{version}");
        }
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        for (name, value, expected) in [
            ("if-none-match", "\"v0\", W/\"v1\"", Selection::Unchanged),
            ("if-none-match", "*", Selection::Unchanged),
            ("if-none-match", "\"v2\"", Selection::Whole),
            ("if-modified-since", DATE, Selection::Unchanged),
            (
                "if-modified-since",
                "Sun, 06 Nov 1994 08:49:36 GMT",
                Selection::Whole,
            ),
            ("if-modified-since", "yesterday", Selection::Whole),
        ] {
            assert_eq!(selected(&[(name, value)]), expected, "{value}");
        }
    }

    #[test]
    fn another_time_or_length_is_another_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let directory = crate::directory::Directory::open(folder.path(), None).unwrap();
        let tag = |text: &str, time| {
            std::fs::write(&path, text).unwrap();
            let file = std::fs::File::options().append(true).open(&path).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_nanos(time))
                .unwrap();
            let tag = Validators::of(&directory.find("file").unwrap()).tag;
            tag.expect("files have tags")
        };
        let first = tag("abc", 1_000_000_000);
        assert_eq!(tag("abc", 1_000_000_000), first);
        assert_ne!(tag("abd", 1_000_000_001), first);
        assert_ne!(tag("abcd", 1_000_000_000), first);
    }
}
