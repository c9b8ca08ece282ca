//! Peers' text for logs and terminals.

use std::borrow::Cow;

/// Longest text of a peer that is shown, in characters. Longer than any useful message; a frame could have millions.
const MAX_SHOWN: usize = 4096;

/// Replaces characters that control a terminal or break lines by visible signs.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return text.into();
    }
    let signs = text.chars().map(|char| match char {
        // Unicode has pictures of the control characters in the same order.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(char)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '␡',
        char if is_harmful(char) => char::REPLACEMENT_CHARACTER,
        char => char,
    });
    signs.collect()
}

/// Makes a peer's text safe to show or log: [`printable`], and truncated to 4,096 characters.
///
/// Apply it where the text enters the program, or where it is shown if the program needs the original.
pub fn peer_text(text: &str) -> Cow<'_, str> {
    // A character has at least one byte.
    let end = match text.len() <= MAX_SHOWN {
        true => None,
        false => text.char_indices().nth(MAX_SHOWN),
    };
    match end {
        None => printable(text),
        Some((end, _)) => format!("{}… ({} bytes)", printable(&text[..end]), text.len()).into(),
    }
}

/// Whether a character controls a terminal, breaks a line or changes the text direction.
fn is_harmful(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible_signs() {
        assert_eq!(printable("f(a -> b) · ∂"), "f(a -> b) · ∂");
        assert_eq!(printable("\x1b[2J\x07a\nb\x7f"), "␛[2J␇a␊b␡");
        assert_eq!(
            printable("\u{9b}0m\u{202e}x\u{2028}"),
            "\u{fffd}0m\u{fffd}x\u{fffd}"
        );
    }

    #[test]
    fn a_peers_text_is_truncated_between_characters() {
        assert_eq!(peer_text("as it is"), "as it is");
        let long = "é".repeat(MAX_SHOWN);
        assert_eq!(peer_text(&long), long);
        let longer = format!("{long}\n");
        assert_eq!(peer_text(&longer), format!("{long}… ({} bytes)", longer.len()));
        assert_eq!(peer_text("\x1b[0m"), "␛[0m");
    }
}
