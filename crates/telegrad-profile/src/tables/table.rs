//! Tables for terminals.

use std::fmt;

use super::names::FOR;
use super::text::{WIDTH, fitting, width, wrapped};
use telegrad_wire::printable;

/// The largest number of lines of a cell. Longer text is shortened in the middle.
const MAX_LINES: usize = 4;

/// Spaces before the lines of a cell after the first.
const INDENT: usize = 2;

/// Spaces between two columns.
const GAP: usize = 2;

/// A table with text columns on the left and number columns on the right, at most [`WIDTH`] wide.
///
/// Numbers are never cut; empty number columns are omitted. Text columns share the rest: longer text is wrapped, and
/// shortened in the middle beyond [`MAX_LINES`].
pub(crate) struct Table {
    header: Vec<String>,
    /// The number of text columns.
    texts: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(texts: &[&str], numbers: &[&str]) -> Self {
        Self {
            header: [texts, numbers].concat().into_iter().map(Into::into).collect(),
            texts: texts.len(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Texts may be untrusted.
    pub(crate) fn add<const T: usize, const N: usize>(&mut self, texts: [&str; T], numbers: [String; N]) {
        let texts = texts.map(|text| printable(text).into_owned());
        self.rows.push(texts.into_iter().chain(numbers).collect());
    }

    /// Returns the width of each column; 0 for an omitted one.
    fn widths(&self) -> Vec<usize> {
        let of_cells = |at: usize| {
            self.rows
                .iter()
                .map(move |row| width(&row[at]))
                .max()
                .unwrap_or(0)
        };
        let needed = |at: usize| match of_cells(at) {
            0 if at >= self.texts && !self.rows.is_empty() => 0,
            cells => cells.max(width(&self.header[at])),
        };
        let mut widths: Vec<usize> = (0..self.header.len()).map(needed).collect();
        let (texts, numbers) = widths.split_at_mut(self.texts);
        let taken: usize = numbers
            .iter()
            .filter(|width| **width > 0)
            .map(|width| width + GAP)
            .sum();
        let available = WIDTH.saturating_sub(taken + GAP * (texts.len() - 1));
        if texts.iter().sum::<usize>() > available {
            // The first column gets most, because it identifies the row.
            let (first, others) = texts.split_at_mut(1);
            others
                .iter_mut()
                .for_each(|width| *width = (*width).min(available / 3));
            first[0] = available - others.iter().sum::<usize>();
        }
        widths
    }

    /// Writes a row, with as many lines as its longest cell.
    fn write(&self, f: &mut fmt::Formatter<'_>, row: &[String], widths: &[usize]) -> fmt::Result {
        let lines = |(cell, width): (&String, &usize)| match *width {
            0 => Vec::new(),
            width => lines_of(cell, width),
        };
        let cells: Vec<Vec<String>> = row.iter().zip(widths).map(lines).collect();
        let shown: Vec<usize> = (0..widths.len()).filter(|at| widths[*at] > 0).collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut text = String::new();
            for at in &shown {
                let cell = cells[*at].get(line).map_or("", |line| line);
                let blanks = " ".repeat(widths[*at] - width(cell));
                let gap = if *at == 0 { "" } else { &"  "[..GAP] };
                text += &if *at < self.texts {
                    format!("{gap}{cell}{blanks}")
                } else {
                    format!("{gap}{blanks}{cell}")
                };
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

/// Breaks the text of a cell into lines.
pub(crate) fn lines_of(cell: &str, limit: usize) -> Vec<String> {
    if width(cell) <= limit {
        return vec![cell.to_owned()];
    }
    // Each call in a name starts a line.
    let parts = cell.replace(FOR, &format!("\n{:INDENT$}{FOR}", ""));
    let lines = parts.lines().flat_map(|part| wrapped(part, limit, INDENT));
    let mut lines: Vec<String> = lines.collect();
    if lines.len() > MAX_LINES {
        lines.drain(MAX_LINES / 2..lines.len() - MAX_LINES / 2);
        let cut = &mut lines[MAX_LINES / 2 - 1];
        *cut = fitting(cut, limit.saturating_sub(1)).to_owned() + "…";
    }
    lines
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        self.write(f, &self.header, &widths)?;
        let shown = widths.iter().filter(|width| **width > 0);
        let whole = shown.clone().sum::<usize>() + GAP * (shown.count() - 1);
        writeln!(f, "{}", "─".repeat(whole))?;
        self.rows.iter().try_for_each(|row| self.write(f, row, &widths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widest(text: &str) -> usize {
        text.lines().map(width).max().unwrap_or(0)
    }

    #[test]
    fn texts_and_numbers_are_aligned_in_columns() {
        let mut table = Table::new(&["name", "worker"], &["calls", "failed", "time"]);
        table.add(
            ["step", "trainer"],
            ["12".into(), String::new(), "1.50 ms".into()],
        );
        table.add(["f", "ps"], ["3".into(), String::new(), "9 s".into()]);
        // The empty column `failed` is omitted.
        let expected = "\
name  worker   calls     time
─────────────────────────────
step  trainer     12  1.50 ms
f     ps           3      9 s
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn long_names_wrap_and_numbers_stay_whole() {
        let name = format!(
            "rpc_sync#{}f(a -> b){FOR}{}g",
            "module::".repeat(4),
            "other::".repeat(3)
        );
        let worker = "w".repeat(127);
        let mut table = Table::new(&["name", "worker"], &["calls"; 8]);
        table.add([&name, &worker], ["99.9 ms"; 8].map(Into::into));
        table.add([&"漢".repeat(100_000), "w0"], ["1"; 8].map(Into::into));
        let text = table.to_string();
        assert!(widest(&text) <= WIDTH, "{text}");
        assert_eq!(text.matches("99.9 ms").count(), 8, "{text}");
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), 2 * MAX_LINES, "{text}");
        // A shortened name keeps its start and its end.
        assert!(lines[0].starts_with("rpc_sync#module::"), "{text}");
        assert!(
            lines[1].contains("f(a -> b)") && lines[2].trim_start().starts_with(FOR),
            "{text}"
        );
        assert!(lines[MAX_LINES + 1].contains('…'), "{text}");
    }
}
