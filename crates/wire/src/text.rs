//! Text that came from a network, made fit to be shown.

use alloc::string::String;

/// Text from the network as a person may see it: up to the first NUL, at most 255 characters, with malformed UTF-8 and
/// control characters (a terminal would obey them) replaced.
pub fn shown(bytes: &[u8]) -> String {
    replaced(bytes).chars().take(255).collect()
}

/// Text up to the first NUL, with malformed UTF-8 and control characters replaced.
pub(crate) fn replaced(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default())
        .chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn control_characters_and_bad_utf8_are_replaced() {
        assert_eq!(
            shown(b"File \x1b[2Jnot\xff found\0rest"),
            "File \u{fffd}[2Jnot\u{fffd} found"
        );
        assert_eq!(shown(&[b'a'; 600]).len(), 255);
        assert_eq!(shown(b""), "");
    }
}
