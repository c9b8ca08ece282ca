//! Layouts in words.

use super::table::Table;
use super::{Layout, TypeNumber};
use crate::printable;

/// Longest text of a layout or a name: what a peer sends could be of any length.
const LIMIT: usize = 96;

/// A type's name without the paths in it: `a::B<c::D>` is `B<D>`.
pub(crate) fn short(type_name: &str) -> String {
    let ends_path = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    type_name
        .split_inclusive(ends_path)
        .map(|path| path.rsplit("::").next().unwrap_or(path))
        .collect()
}

/// A name in quotes, escaped and cut.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", shown(name))
}

fn shown(name: &str) -> String {
    let (start, end) = cut(name);
    format!("{}{end}", printable(start))
}

/// The text up to the limit, and a sign that there is more.
fn cut(text: &str) -> (&str, &'static str) {
    match text.char_indices().nth(LIMIT) {
        None => (text, ""),
        Some((end, _)) => (&text[..end], "…"),
    }
}

impl Table {
    /// A type as people write it.
    pub(super) fn text(&self, number: TypeNumber) -> String {
        let mut out = String::new();
        self.append(&mut out, number);
        let (start, end) = cut(&out);
        format!("{start}{end}")
    }

    /// Ends soon after the limit, which a table that refers to itself would otherwise pass by any length.
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
    fn a_table_that_refers_to_itself_is_shown_up_to_the_limit() {
        let endless = Table(vec![Layout::List(TypeNumber(0))]);
        assert_eq!(endless.text(TypeNumber(0)), "Vec<".repeat(LIMIT / 4) + "…");
        let wide = Table(vec![Layout::Tuple(vec![TypeNumber(0); 100_000])]);
        assert_eq!(wide.text(TypeNumber(0)), "(".repeat(LIMIT) + "…");
    }

    #[test]
    fn names_of_a_peer_are_escaped_and_cut() {
        assert_eq!(quoted("a\n\u{1b}[31m"), "`a␊␛[31m`");
        assert!(quoted(&"x".repeat(1 << 20)).len() < 2 * LIMIT);
    }
}
