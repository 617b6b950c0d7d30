//! Our own load options: settings, then a URL, then what is passed on to the program.

/// `[wireboot.efi] [setting=value ...] URL [arguments]`: the shell puts the program's name first, a boot option does not.
pub(crate) fn url(options: &str) -> Option<(&str, &str)> {
    let (mut word, mut rest) = cut_word(options);
    let mut first = true;
    while !is_url(word) {
        if !first && !word.contains('=') {
            return None;
        }
        first = false;
        (word, rest) = cut_word(rest);
    }
    Some((word, rest))
}

/// Not a setting whose value is one.
fn is_url(word: &str) -> bool {
    let parts = word.split_once("://");
    parts.is_some_and(|(scheme, _)| !scheme.contains('='))
}

/// The first word and the rest. A word in quotes, as the shell puts a path in that holds a space, ends at the next quote.
fn cut_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    if let Some((word, rest)) = text.strip_prefix('"').and_then(|text| text.split_once('"')) {
        return (word, rest.trim());
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_options() {
        let expected = "http://a/b";
        assert_eq!(url("http://a/b"), Some((expected, "")));
        assert_eq!(url(" http://a/b  x=1 y "), Some((expected, "x=1 y")));
        assert_eq!(url("wireboot.efi http://a/b"), Some((expected, "")));
        assert_eq!(
            url("FS0:\\wireboot.efi\thttp://a/b quiet"),
            Some((expected, "quiet"))
        );
        let quoted = "\"FS0:\\a b\\wireboot.efi\" http://a/b quiet";
        assert_eq!(url(quoted), Some((expected, "quiet")));
        assert_eq!(url("\"FS0: http://a/b"), Some((expected, "")));
        assert_eq!(url("wireboot.efi"), None);
        assert_eq!(url(""), None);
        assert_eq!(url("wireboot.efi quiet http://a/b"), None);
        assert_eq!(
            url("wireboot.efi processors=0 http://a/b x=1"),
            Some((expected, "x=1"))
        );
        assert_eq!(
            url("report=http://c/d http://a/b x=http://e/f"),
            Some((expected, "x=http://e/f"))
        );
        assert_eq!(url("http://a/b?c=d"), Some(("http://a/b?c=d", "")));
        assert_eq!(url("report=http://c/d"), None);
    }
}
