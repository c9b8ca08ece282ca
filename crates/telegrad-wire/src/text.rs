//! Text of peers, for people.

use std::borrow::Cow;

/// Characters of a peer's text that are shown. More than an error message of any use has; a frame could have millions.
const MAX_SHOWN: usize = 4096;

/// Text on one line that does nothing to a terminal: control characters become signs that stand for them.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return text.into();
    }
    let signs = text.chars().map(|char| match char {
        // Unicode has pictures of these, in the same order.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(char)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '␡',
        char if is_harmful(char) => char::REPLACEMENT_CHARACTER,
        char => char,
    });
    signs.collect()
}

/// Text that a peer has sent, as it may be shown or logged: [`printable`], and cut at 4,096 characters. To be applied
/// where the text enters, or where it is shown if the program is to have it as it is.
pub fn peer_text(text: &str) -> Cow<'_, str> {
    // No character is shorter than a byte.
    let end = match text.len() <= MAX_SHOWN {
        true => None,
        false => text.char_indices().nth(MAX_SHOWN),
    };
    match end {
        None => printable(text),
        Some((end, _)) => format!("{}… ({} bytes)", printable(&text[..end]), text.len()).into(),
    }
}

/// Whether a character does something else than to be seen: control characters, and those that break lines or change the
/// direction of what follows.
fn is_harmful(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_does_nothing_but_be_seen() {
        assert_eq!(printable("f(a -> b) · ∂"), "f(a -> b) · ∂");
        assert_eq!(printable("\x1b[2J\x07a\nb\x7f"), "␛[2J␇a␊b␡");
        assert_eq!(
            printable("\u{9b}0m\u{202e}x\u{2028}"),
            "\u{fffd}0m\u{fffd}x\u{fffd}"
        );
    }

    #[test]
    fn text_of_a_peer_is_cut_between_characters() {
        assert_eq!(peer_text("as it is"), "as it is");
        let long = "é".repeat(MAX_SHOWN);
        assert_eq!(peer_text(&long), long);
        let longer = format!("{long}\n");
        assert_eq!(peer_text(&longer), format!("{long}… ({} bytes)", longer.len()));
        assert_eq!(peer_text("\x1b[0m"), "␛[0m");
    }
}
