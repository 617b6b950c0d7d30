//! Text that strangers may have written, for HTML.

/// For elements and for quoted attributes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_ends_an_element_or_an_attribute() {
        assert_eq!(
            super::escaped(r#"<a b="&">"#),
            "&lt;a b=&quot;&amp;&quot;&gt;"
        );
    }
}
