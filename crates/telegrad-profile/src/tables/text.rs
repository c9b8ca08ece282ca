//! Text layout, and numbers with units.

use unicode_width::UnicodeWidthChar;

/// The width of all printed text: half of a large screen.
pub(crate) const WIDTH: usize = 120;

/// Wraps a text to 120 columns.
pub fn wrap(text: &str) -> String {
    wrapped(text, WIDTH, 0).join("\n")
}

/// Breaks a text into lines of at most `limit` columns, indented after the first: after spaces and between the parts of paths
/// where possible.
pub(crate) fn wrapped(text: &str, limit: usize, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for mut piece in pieces(text) {
        loop {
            let available = limit.saturating_sub(width(&line));
            if width(piece.trim_end()) <= available {
                line += piece;
                break;
            }
            // A piece longer than a line is broken anywhere.
            if line.trim().is_empty() {
                let first = piece.chars().next().map_or(0, char::len_utf8);
                let (head, rest) = piece.split_at(fitting(piece, available).len().max(first));
                line += head;
                piece = rest;
            }
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        }
    }
    lines.push(line);
    lines.retain(|line| !line.trim().is_empty());
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Splits a text into pieces that stay on one line: words, segments of paths, text in parentheses.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (at, char) in text.char_indices() {
        let before = &text[start..at];
        let ends = depth == 0 && (char == '(' || before.ends_with(' '));
        if at > start && (ends || before.ends_with('#') || before.ends_with("::")) {
            pieces.push(before);
            start = at;
        }
        depth = match char {
            '(' => depth + 1,
            ')' => depth.saturating_sub(1),
            _ => depth,
        };
    }
    pieces.push(&text[start..]);
    pieces
}

/// Returns the longest prefix of a text within `limit` columns.
pub(crate) fn fitting(text: &str, limit: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, char)| {
        taken += char.width().unwrap_or(0);
        taken > limit
    });
    end.map_or(text, |(end, _)| &text[..end])
}

/// Returns the number of terminal columns of a text.
pub(crate) fn width(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// Formats nanoseconds with three digits.
pub(crate) fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000_000 => format!("{} µs", three_digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(value / 1e6)),
        _ => format!("{} s", three_digits(value / 1e9)),
    }
}

/// Formats a number with three digits, or more before the point. Absurdly large ones are rounded.
fn three_digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        ..1e6 => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    let value = bytes as f64;
    let of = |unit: f64, name: &str| match value / unit {
        value @ ..99.95 => format!("{value:.1} {name}"),
        value => format!("{value:.0} {name}"),
    };
    match bytes {
        0 => String::new(),
        1..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => of(1e3, "kB"),
        1_000_000..1_000_000_000 => of(1e6, "MB"),
        1_000_000_000..1_000_000_000_000 => of(1e9, "GB"),
        1_000_000_000_000..1_000_000_000_000_000 => of(1e12, "TB"),
        _ => of(1e15, "PB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_broken_between_pieces() {
        let lines = |text, limit| wrapped(text, limit, 0);
        assert_eq!(lines("", 5), [""; 0]);
        assert_eq!(lines("one two three", 8), ["one two", "three"]);
        assert_eq!(
            lines("rpc_sync#a::b::forward(client -> server)", 24),
            ["rpc_sync#a::b::forward", "(client -> server)"]
        );
        assert_eq!(lines("a::bb::cccc", 6), ["a::", "bb::", "cccc"]);
        // Long pieces are broken anywhere; a character wider than the limit gets its own line.
        assert_eq!(lines("abcdefg hi", 3), ["abc", "def", "g", "hi"]);
        assert_eq!(lines("漢字漢", 5), ["漢字", "漢"]);
        assert_eq!(lines("漢字", 1), ["漢", "字"]);
        assert_eq!(
            wrapped("one two abcdef", 5, 2),
            ["one", "  two", "  abc", "  def"]
        );
        assert_eq!(
            wrapped("abc", 1, 3),
            ["a", "   b", "   c"],
            "an indent wider than the limit"
        );
    }

    #[test]
    fn numbers_have_three_digits_and_at_most_eight_characters() {
        for (nanoseconds, text) in [
            (0, "0.00 µs"),
            (1_234, "1.23 µs"),
            (9_996, "10.0 µs"),
            (241_345, "241 µs"),
            (51_400_000, "51.4 ms"),
            (999_999_999, "1000 ms"),
            (86_400_000_000_000, "86400 s"),
            (u64::MAX, "1.8e10 s"),
        ] {
            assert_eq!(time(nanoseconds), text);
        }
        for (bytes, text) in [
            (0, ""),
            (999, "999 B"),
            (1_234, "1.2 kB"),
            (921_100, "921 kB"),
            (999_999, "1000 kB"),
            (2_500_000_000_000, "2.5 TB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
