//! Text for people.

use std::borrow::Cow;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Text that may come from anywhere, such that it is one line and does nothing to a terminal: control characters become signs
/// that stand for them.
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

/// Whether a character does something else than to be seen: control characters, and those that break lines or change the
/// direction of what follows.
fn is_harmful(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A table in which lines are all that separates.
pub(crate) fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(columns);
    table
}

pub(crate) fn align_right(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Nanoseconds for people.
pub(crate) fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..10_000 => format!("{:.2} µs", value / 1e3),
        10_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0 => String::new(),
        1..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.1} GB", value / 1e9),
    }
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
}
