//! What a run gives: a table or lines, and files.

use std::fs;
use std::path::Path;

use super::record::Recorder;
use super::summary::Summary;
use super::torch::Torch;
use super::{Args, chart, record, table};
use crate::Error;

/// Around what `--markdown` writes in a file that has more in it.
const BEGIN: &str = "<!-- bench: begin -->";
const END: &str = "<!-- bench: end -->";

/// Whether the files can be written: better said before the measuring than after it.
pub(super) fn check(args: &Args) -> Result<(), Error> {
    for path in args.svg.iter().chain(&args.markdown) {
        let mut options = fs::OpenOptions::new();
        let opened = options.append(true).create(true).open(path);
        opened.map_err(|error| cannot_write(path, &error))?;
    }
    if let Some(path) = &args.markdown {
        around(&fs::read_to_string(path)?).ok_or_else(|| {
            format!(
                "`{}` has text, and no line `{BEGIN}` before a line `{END}`",
                path.display()
            )
        })?;
    }
    Ok(())
}

/// Prints and writes everything.
pub(super) fn write(
    args: &Args,
    recorder: &Recorder,
    torch: Option<&Torch>,
    reps: usize,
) -> Result<(), Error> {
    let summary = Summary::new(recorder.ours(), recorder.theirs());
    let against = torch.map(|torch| format!("torch.distributed.rpc {}", torch.version()));
    if args.json {
        let against = against.as_deref().unwrap_or_default();
        for line in summary.rows.iter().filter_map(|row| row.line(against)) {
            record::print(&line);
        }
    } else {
        crate::print(table::text(&summary).as_bytes());
    }
    if let (Some(path), Some(against)) = (&args.svg, &against) {
        fs::write(path, chart::svg(&summary, against)).map_err(|error| cannot_write(path, &error))?;
    }
    if let Some(path) = &args.markdown {
        let text = fs::read_to_string(path)?;
        let (before, after) = around(&text).unwrap_or_default();
        let setting = setting(args, against.as_deref(), reps);
        let table = table::markdown(&summary);
        let text = format!("{before}{BEGIN}\n{setting}\n\n{table}{END}{after}");
        fs::write(path, text).map_err(|error| cannot_write(path, &error))?;
    }
    Ok(())
}

/// What is before and after the place of the table; nothing if there is text without such a place.
fn around(text: &str) -> Option<(&str, &str)> {
    if text.trim().is_empty() {
        return Some(("", "\n"));
    }
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some((before, after))
}

/// Under which circumstances the values came to be.
fn setting(args: &Args, against: Option<&str>, reps: usize) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(format!(" of {}", line.split_once(": ")?.1.trim()))
    });
    let against = against.map_or(String::new(), |against| format!(", against {against}"));
    format!(
        "telegrad {}{against}; best of {reps}; {cores} cores{}; links: {}{}.",
        env!("CARGO_PKG_VERSION"),
        model.unwrap_or_default(),
        args.transport.name(),
        if args.quick { "; a quick run" } else { "" },
    )
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write `{}`: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_goes_to_its_place_or_into_an_empty_file_and_nowhere_else() {
        let text = format!("# Title\n{BEGIN}\nold\n{END}\nrest\n");
        assert_eq!(around(&text), Some(("# Title\n", "\nrest\n")));
        assert_eq!(around("\n"), Some(("", "\n")));
        assert_eq!(around("text of somebody"), None);
        assert_eq!(around(&format!("{END} {BEGIN}")), None);
    }
}
