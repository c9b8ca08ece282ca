//! `telegrad trace view`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use telegrad::profile;
use tokio::signal::unix::{SignalKind, signal};

use super::output::{Output, abandon_when_ended, is_same};
use crate::Error;
use crate::addresses::Addresses;
use crate::page::{Fetches, Page, guarded};

/// What shows a recording.
const PAGE: Page = Page {
    title: "Telegrad trace",
    fetches: Fetches::Nothing,
    style: include_str!("view.css"),
    body: include_str!("view.html"),
    script: &[
        include_str!("view/words.js"),
        include_str!("view/data.js"),
        include_str!("view/lanes.js"),
        include_str!("view/crowds.js"),
        include_str!("view/axis.js"),
        include_str!("view/profile.js"),
        include_str!("view/timeline.js"),
        include_str!("view/lines.js"),
        include_str!("view/painting.js"),
        include_str!("view/moving.js"),
        include_str!("view/finding.js"),
        include_str!("view/details.js"),
        include_str!("view/input.js"),
        include_str!("view/table.js"),
        include_str!("view/traffic.js"),
        include_str!("view/steps.js"),
        include_str!("view/main.js"),
    ],
};

/// Show a recording in the browser.
///
/// Serves one page with the timeline, the table, the traffic between workers and the critical path. It needs no network: with
/// --output it is a file that can be sent to anybody.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Recordings of one world: files, or folders of what workers have written
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Where to serve the page; port 0 for any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: Addresses,

    /// Write the page to a file instead, which is replaced, unless it is one of the recordings
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, Error> {
    let output = args.output.map(|path| Output::new(Some(path)));
    if let Some(output) = &output {
        refuse(&output.path, &args.files)?;
        output.check()?;
        abandon_when_ended()?;
    }
    let profile = profile::read(&args.files)?;
    let title = args.files.iter().map(|file| file.display().to_string());
    let title = title.collect::<Vec<_>>().join(", ");
    let page = PAGE.with(&profile.view(&title))?;
    // Large recordings take a lot of memory.
    drop(profile);
    if let Some(output) = output {
        output.write(|to| to.write_all(page.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(page, &args.listen))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses to replace what is shown by what shows it.
fn refuse(output: &Path, files: &[PathBuf]) -> Result<(), Error> {
    for file in files {
        let mut within = fs::read_dir(file).into_iter().flatten().flatten();
        if is_same(file, output) || within.any(|entry| is_same(&entry.path(), output)) {
            let output = output.display();
            return Err(format!("{output} is what is to be shown, and is not replaced by the page").into());
        }
    }
    Ok(())
}

async fn serve(page: String, addresses: &Addresses) -> Result<(), Error> {
    let listener = tokio::net::TcpListener::from_std(addresses.listen()?)?;
    let address = listener.local_addr()?;
    // Before anybody is told that it has begun: from then on it ends in this way.
    let mut ended = signal(SignalKind::interrupt())?;
    // Whoever started this in a script reads it from there.
    writeln!(std::io::stdout(), "http://{address}/ shows it; Ctrl-C ends this")?;
    let app = guarded(PAGE.served(page), address);
    // It ends with the runtime, whoever has not read all of it yet.
    tokio::spawn(axum::serve(listener, app).into_future());
    ended.recv().await;
    Ok(())
}
