//! Text from elsewhere, for terminals.

use std::borrow::Cow;

/// Text that may come from anywhere, such that it is one line and does nothing to a terminal: control characters become signs
/// that stand for them.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
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

/// Whether a character does something else than to be seen: control characters, and those that break lines or change the
/// direction of what follows.
fn is_harmful(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
