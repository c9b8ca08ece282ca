//! The output of a run: a table or JSON lines, and files.

use std::fs;

use telegrad_cli::{cannot_write, check_writable, print};

use crate::args::Args;
use crate::measurement::Measurements;
use crate::summary::Summary;
use crate::torch::Torch;
use crate::{Error, chart, measurement, table};

// The lines between which `--markdown` writes in a file with other text.
const BEGIN: &str = "<!-- bench: begin -->";
const END: &str = "<!-- bench: end -->";

/// Checks that the output files can be written, before any measurement.
pub(crate) fn check(args: &Args) -> Result<(), Error> {
    for path in args.svg.iter().chain(&args.markdown) {
        check_writable(path)?;
    }
    if let Some(path) = &args.markdown {
        around(&fs::read_to_string(path)?).ok_or_else(|| {
            format!(
                "cannot write a table into `{}`: the file has text, but no line `{BEGIN}` before a line `{END}`; add \
                 both lines or name a new file",
                path.display()
            )
        })?;
    }
    Ok(())
}

/// Prints the summary and writes the output files.
pub(crate) fn write(
    args: &Args,
    measurements: &Measurements,
    torch: Option<&Torch>,
    reps: usize,
) -> Result<(), Error> {
    let summary = Summary::new(measurements.ours(), measurements.theirs());
    let against = torch.map(|torch| format!("torch.distributed.rpc {}", torch.version()));
    if args.json {
        let against = against.as_deref().unwrap_or_default();
        for line in summary.rows.iter().filter_map(|row| row.line(against)) {
            measurement::print(&line);
        }
    } else {
        print(table::text(&summary).as_bytes());
    }
    if let (Some(path), Some(against)) = (&args.svg, &against) {
        fs::write(path, chart::svg(&summary, against)).map_err(|error| cannot_write(path, &error))?;
    }
    if let Some(path) = &args.markdown {
        let text = fs::read_to_string(path)?;
        let (before, after) = around(&text).unwrap_or_default();
        let conditions = conditions(args, against.as_deref(), reps);
        let table = table::markdown(&summary);
        let text = format!("{before}{BEGIN}\n{conditions}\n\n{table}{END}{after}");
        fs::write(path, text).map_err(|error| cannot_write(path, &error))?;
    }
    Ok(())
}

/// The text before and after the marked lines; `None` if a text has no such lines.
fn around(text: &str) -> Option<(&str, &str)> {
    if text.trim().is_empty() {
        return Some(("", "\n"));
    }
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some((before, after))
}

/// Describes the versions, the machine and the options of a run.
fn conditions(args: &Args, against: Option<&str>, reps: usize) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_goes_between_its_lines_or_into_an_empty_file() {
        let text = format!("# Title\n{BEGIN}\nold\n{END}\nrest\n");
        assert_eq!(around(&text), Some(("# Title\n", "\nrest\n")));
        assert_eq!(around("\n"), Some(("", "\n")));
        assert_eq!(around("other text"), None);
        assert_eq!(around(&format!("{END} {BEGIN}")), None);
    }
}
