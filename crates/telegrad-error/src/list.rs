//! Lists in error texts.

use std::fmt;

/// Names in backticks, cut after a few.
pub(crate) struct Names<'a>(pub(crate) &'a [String]);

/// Values separated by semicolons, cut after a few.
pub(crate) struct Values<'a, T>(pub(crate) &'a [T]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_some(f, self.0.iter().map(|name| format!("`{name}`")), ", ")
    }
}

impl<T: fmt::Display> fmt::Display for Values<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_some(f, self.0.iter().map(ToString::to_string), "; ")
    }
}

fn write_some(
    f: &mut fmt::Formatter<'_>,
    all: impl ExactSizeIterator<Item = String>,
    separator: &str,
) -> fmt::Result {
    /// An error text stays readable.
    const SHOWN: usize = 8;
    let more = all.len().saturating_sub(SHOWN);
    let shown: Vec<_> = all.take(SHOWN).collect();
    f.write_str(&shown.join(separator))?;
    if more > 0 {
        write!(f, " and {more} more")?;
    }
    Ok(())
}
