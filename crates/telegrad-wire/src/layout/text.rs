//! Layouts as text.

use super::table::Table;
use super::{Layout, TypeNumber};
use crate::printable;

/// Longest text of a layout or a name, in characters. A peer's names can be of any length.
const LIMIT: usize = 96;

/// Removes the paths from a type's name: `a::B<c::D>` becomes `B<D>`.
pub(crate) fn short(type_name: &str) -> String {
    let ends_path = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    type_name
        .split_inclusive(ends_path)
        .map(|path| path.rsplit("::").next().unwrap_or(path))
        .collect()
}

/// Quotes, escapes and truncates a name.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", shown(name))
}

fn shown(name: &str) -> String {
    let (start, end) = truncate(name);
    format!("{}{end}", printable(start))
}

/// The text up to the limit, and an ellipsis if there is more.
fn truncate(text: &str) -> (&str, &'static str) {
    match text.char_indices().nth(LIMIT) {
        None => (text, ""),
        Some((end, _)) => (&text[..end], "…"),
    }
}

impl Table {
    /// A type in Rust's notation.
    pub(super) fn text(&self, number: TypeNumber) -> String {
        let mut out = String::new();
        self.append(&mut out, number);
        let (start, end) = truncate(&out);
        format!("{start}{end}")
    }

    /// Stops soon after the limit, because a table that refers to itself has no end.
    fn append(&self, out: &mut String, number: TypeNumber) {
        let mut list = |open: &str, parts: &[TypeNumber], close: &str| {
            out.push_str(open);
            for (i, part) in parts.iter().enumerate() {
                if out.len() > LIMIT {
                    break;
                }
                if i > 0 {
                    out.push_str(", ");
                }
                self.append(out, *part);
            }
            out.push_str(close);
        };
        match &self.0[number.index()] {
            Layout::Named(name) => out.push_str(&shown(name)),
            Layout::Struct(name, _) => out.push_str(&format!("struct {}", quoted(name))),
            Layout::Enum(name, _) => out.push_str(&format!("enum {}", quoted(name))),
            Layout::Tuple(elements) => list("(", elements, ")"),
            Layout::List(of) => list("Vec<", &[*of], ">"),
            Layout::Set(of) => list("Set<", &[*of], ">"),
            Layout::Map(key, value) => list("Map<", &[*key, *value], ">"),
            Layout::Array(of, len) => list("[", &[*of], &format!("; {len}]")),
            Layout::Option(of) => list("Option<", &[*of], ">"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_have_no_paths() {
        for (long, expected) in [
            ("u64", "u64"),
            ("a::b::Cfg", "Cfg"),
            ("alloc::vec::Vec<(a::B, [c::D; 3])>", "Vec<(B, [D; 3])>"),
            ("a::Serde<b::f::Local<c::D>>", "Serde<Local<D>>"),
        ] {
            assert_eq!(short(long), expected);
        }
    }

    #[test]
    fn the_text_of_a_recursive_table_ends_at_the_limit() {
        let endless = Table(vec![Layout::List(TypeNumber(0))]);
        assert_eq!(endless.text(TypeNumber(0)), "Vec<".repeat(LIMIT / 4) + "…");
        let wide = Table(vec![Layout::Tuple(vec![TypeNumber(0); 100_000])]);
        assert_eq!(wide.text(TypeNumber(0)), "(".repeat(LIMIT) + "…");
    }

    #[test]
    fn a_peers_names_are_escaped_and_truncated() {
        assert_eq!(quoted("a\n\u{1b}[31m"), "`a␊␛[31m`");
        assert!(quoted(&"x".repeat(1 << 20)).len() < 2 * LIMIT);
    }
}
